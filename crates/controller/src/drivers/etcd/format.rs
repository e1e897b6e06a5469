//! The leader says in etcd which format the keys have, when all controllers know a newer one.

use super::client::Client;
use super::members::{cards, members_prefix, now_s};
use pathloom_cluster::etcd::{Body, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::format::{newest_for_all, of_key, say};
use pathloom_cluster::{Settings, Token};
use pathloom_model::Nanos;

/// Says the newest format that all controllers know, if it is newer than that of the keys. Only the leader of this election can.
///
/// # Errors
/// Etcd does not answer, or refuses.
pub(super) async fn agree(client: &Client, settings: &Settings, token: Token) -> Result<(), Failure> {
    let keys = [Keys::One(settings.format_key()), Keys::Prefix(members_prefix(settings))];
    let request = Request::Transact(Transaction { then: keys.map(Operation::Range).into(), ..Transaction::default() });
    let Body::Done { found, .. } = client.ask(&request).await?.body else { return Err(Failure::Unanswered) };
    let [format, members] = found.as_slice() else { return Err(Failure::Unanswered) };
    let known = cards(&members_prefix(settings), members);
    let time = |at_s: f64| Nanos((at_s * 1e9) as u64);
    let others = known.iter().map(|(_, card)| (time(card.at_s), card.format));
    let agreed = newest_for_all(settings.format, time(now_s()), others);
    // A member does not lead unless it knows the format of the key.
    if of_key(format.first()).is_some_and(|present| agreed > present) {
        client.ask(&say(settings, token, agreed)).await?;
    }
    Ok(())
}
