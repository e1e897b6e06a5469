//! The number of a start, from etcd: it is part of the identifiers of flows, which no two leaders may share.

use super::client::Client;
use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::{Settings, Token};

/// The key of the number of the last start.
pub(super) fn epoch_key(settings: &Settings) -> String {
    format!("{}epoch", settings.prefix)
}

/// Takes the next number. Only the leader of this election can. `None` if it is not the leader any more.
///
/// # Errors
/// Etcd does not answer, or refuses. Then no number is lost or taken twice, and the caller tries again.
pub(crate) async fn next_epoch(client: &Client, settings: &Settings, token: Token) -> Result<Option<u16>, Failure> {
    let key = epoch_key(settings);
    let leads = Condition::Created { key: settings.leader_key(), at: token.0 };
    let read = Transaction {
        conditions: vec![leads.clone()],
        then: vec![Operation::Range(Keys::One(key.clone()))],
        otherwise: Vec::new(),
    };
    let Body::Done { held: true, found } = client.ask(&Request::Transact(read)).await?.body else { return Ok(None) };
    let last = found.into_iter().flatten().next();
    let at = last.as_ref().map_or(0, |last| last.mod_revision);
    let next = match last.map(|last| String::from_utf8_lossy(&last.value).trim().parse::<u16>()) {
        None => 1,
        Some(Ok(number)) => number.wrapping_add(1),
        // Rules of flows of earlier starts may still exist, and their identifiers must not be used again.
        Some(Err(_)) => return Err(Failure::Other(format!("{key} has no number from 0 to 65535; write one there"))),
    };
    let write = Transaction {
        conditions: vec![leads, Condition::Changed { key: key.clone(), at }],
        then: vec![Operation::Put { key, value: next.to_string().into_bytes(), lease: None }],
        otherwise: Vec::new(),
    };
    let Body::Done { held, .. } = client.ask(&Request::Transact(write)).await?.body else { return Ok(None) };
    Ok(held.then_some(next))
}
