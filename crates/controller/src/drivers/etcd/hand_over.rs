//! The record of the last hand-over in etcd: who leads since when, after whom and why.

use super::client::Client;
use super::members::{hand_over_key, now_s};
use crate::hub::gauges::HandOver;
use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::{Settings, Token};

/// The key of the leader that was last told to stop. Its value is the number of the election.
fn left_key(settings: &Settings) -> String {
    format!("{}left", settings.prefix)
}

/// Why a controller leads after another one. `left`: the last election whose leader was told to stop.
fn cause(before: Option<&HandOver>, name: &str, left: Option<u64>) -> String {
    match before {
        None => "no controller led before".to_owned(),
        Some(before) if left == Some(before.election) => format!("{} was told to stop", before.to),
        Some(before) if before.to == name => "its lease had ended, and no other controller had led".to_owned(),
        Some(before) => {
            format!("the lease of {} ended: it was killed, stood still or was cut off from etcd", before.to)
        }
    }
}

/// Notes that this controller leads by this election. Returns the record.
///
/// # Errors
/// Etcd does not answer, or refuses.
pub(super) async fn note_lead(client: &Client, settings: &Settings, token: Token) -> Result<HandOver, Failure> {
    let then = [hand_over_key(settings), left_key(settings)].map(|key| Operation::Range(Keys::One(key)));
    let read = Request::Transact(Transaction { then: then.into(), ..Transaction::default() });
    let Body::Done { found, .. } = client.ask(&read).await?.body else { return Err(Failure::Unanswered) };
    let value = |at: usize| found.get(at).and_then(|found| found.first()).map(|found| found.value.as_slice());
    let before: Option<HandOver> = value(0).and_then(|value| serde_json::from_slice(value).ok());
    let left = value(1).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    let record = HandOver {
        election: token.0,
        from: before.as_ref().map(|before| before.to.clone()),
        to: settings.name.clone(),
        at_s: now_s(),
        cause: cause(before.as_ref(), &settings.name, left),
        count: before.map_or(0, |before| before.count) + 1,
    };
    let value = serde_json::to_vec(&record).map_err(|why| Failure::Other(why.to_string()))?;
    put(client, settings, token, hand_over_key(settings), value).await?;
    Ok(record)
}

/// Notes that the leader of this election was told to stop.
///
/// # Errors
/// Etcd does not answer, or refuses.
pub(super) async fn note_stop(client: &Client, settings: &Settings, token: Token) -> Result<(), Failure> {
    put(client, settings, token, left_key(settings), token.0.to_string().into_bytes()).await
}

/// Sets a key if this controller leads.
async fn put(client: &Client, settings: &Settings, token: Token, key: String, value: Vec<u8>) -> Result<(), Failure> {
    let request = Request::Transact(Transaction {
        conditions: vec![Condition::Created { key: settings.leader_key(), at: token.0 }],
        then: vec![Operation::Put { key, value, lease: None }],
        otherwise: Vec::new(),
    });
    client.ask(&request).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_says_whether_the_leader_before_was_told_to_stop() {
        let before = HandOver { election: 7, to: "c0".into(), ..HandOver::default() };
        assert_eq!(cause(None, "c1", None), "no controller led before");
        assert_eq!(cause(Some(&before), "c1", Some(7)), "c0 was told to stop");
        assert!(cause(Some(&before), "c1", Some(3)).starts_with("the lease of c0 ended"));
        assert!(cause(Some(&before), "c0", None).contains("no other controller had led"));
    }
}
