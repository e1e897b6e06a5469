//! The format of the keys in etcd, for controllers of different versions.
//!
//! A version adds fields without a new format: others ignore them and keep them. It needs a new format only if earlier versions
//! could not use what it writes. Then it writes the format before, until all controllers know the new one, and the leader
//! says so in a key. A controller that does not know the format of this key does not lead.

use super::client::Client;
use super::members::{cards, members_prefix, now_s};
use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::{Settings, Token};

/// The newest format that this version knows.
pub(super) const FORMAT: u32 = 1;
/// The format of versions that wrote none.
pub(super) const FIRST: u32 = 1;
/// Time after which a controller that says nothing counts as removed.
const GONE_AFTER_S: f64 = 60.0;

fn format_key(settings: &Settings) -> String {
    format!("{}format", settings.prefix)
}

/// The format of the keys.
///
/// # Errors
/// Etcd does not answer, or refuses, or the key has no number.
pub(super) async fn read(client: &Client, settings: &Settings) -> Result<u32, Failure> {
    let key = format_key(settings);
    let then = vec![Operation::Range(Keys::One(key.clone()))];
    let request = Request::Transact(Transaction { then, ..Transaction::default() });
    let Body::Done { found, .. } = client.ask(&request).await?.body else { return Err(Failure::Unanswered) };
    let Some(found) = found.into_iter().flatten().next() else { return Ok(FIRST) };
    let number = std::str::from_utf8(&found.value).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| Failure::Other(format!("{key} has no number; the number of a format was expected there")))
}

/// Notes the newest format that all controllers know, if it is newer than that of the keys. Only the leader of this election can.
///
/// # Errors
/// Etcd does not answer, or refuses.
pub(super) async fn agree(client: &Client, settings: &Settings, token: Token) -> Result<(), Failure> {
    let present = read(client, settings).await?;
    let then = vec![Operation::Range(Keys::Prefix(members_prefix(settings)))];
    let request = Request::Transact(Transaction { then, ..Transaction::default() });
    let Body::Done { found, .. } = client.ask(&request).await?.body else { return Err(Failure::Unanswered) };
    let found: Vec<_> = found.into_iter().flatten().collect();
    let known = cards(&members_prefix(settings), &found);
    let agreed = newest_for_all(FORMAT, now_s(), known.iter().map(|(_, card)| (card.at_s, card.format)));
    if agreed <= present {
        return Ok(());
    }
    let request = Request::Transact(Transaction {
        conditions: vec![Condition::Created { key: settings.leader_key(), at: token.0 }],
        then: vec![Operation::Put { key: format_key(settings), value: agreed.to_string().into_bytes(), lease: None }],
        otherwise: Vec::new(),
    });
    client.ask(&request).await.map(|_| ())
}

/// The newest format that this controller knows and all others: when each has last said something, in seconds since 1970, and
/// which format it knows.
fn newest_for_all(own: u32, now_s: f64, others: impl Iterator<Item = (f64, u32)>) -> u32 {
    others.filter(|(at_s, _)| now_s - at_s < GONE_AFTER_S).fold(own, |newest, (_, known)| newest.min(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_format_waits_for_all_controllers_that_run() {
        let newest = |others: &[(f64, u32)]| newest_for_all(3, 1000.0, others.iter().copied());
        assert_eq!(newest(&[(999.0, 3), (998.0, 3)]), 3);
        assert_eq!(newest(&[(999.0, 3), (998.0, 2)]), 2, "one of an earlier version runs");
        assert_eq!(newest(&[(999.0, 4), (900.0, 2)]), 3, "it was removed");
        assert_eq!(newest(&[(1030.0, 1)]), 1, "its clock is ahead");
    }
}
