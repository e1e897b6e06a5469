//! What must be changed in an etcd that was restored from a backup, before controllers use it.
//!
//! Its revision is that of the backup, so the next election would have a smaller number than the last one, and switches and
//! agents of hosts would refuse its leader. The number of the last start is that of the backup, too, so the next leader could
//! give flows the identifiers of rules that are in the switches.

use super::client::Client;
use super::epoch::epoch_key;
use crate::config::CheckedCluster;
use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, LeaseId, Operation, Request, Transaction};
use pathloom_cluster::Settings;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Requests that are on their way at a time. Etcd writes all of them to its disk at once.
const AT_A_TIME: u64 = 64;
/// By how much the number of the last start grows: more than the hand-overs since any backup that is worth restoring.
const STARTS: u16 = 1000;
/// What members read as the name of the leader meanwhile. No member can have it.
const NOBODY: &[u8] = b"(restored)";
/// How long an answer of etcd may take. An operator waits for the command, and no lease is renewed meanwhile.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a change is tried that another one has overtaken.
const TRIES: u32 = 10;

/// What etcd has after the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Its revision. The next election has a greater number.
    pub revision: u64,
    /// The number of the last start. The next one has a greater number.
    pub epoch: u16,
}

/// Makes etcd's revision greater than `above`, adds to the number of the last start, and ends the present election, so that
/// the next one has a greater number. Controllers may run meanwhile: none leads for the time to live of a lease. `say` gets the
/// revision now and then.
///
/// # Errors
/// Etcd does not answer, or refuses. The call can be repeated.
pub(crate) async fn restored(cluster: &CheckedCluster, above: u64, say: impl Fn(u64)) -> Result<Restored, Failure> {
    let (client, settings) = (Rc::new(Client::with_patience(cluster.clone(), PATIENCE)), &cluster.member);
    let mut revision = write_once(&client, settings).await?;
    let mut said = revision;
    while revision <= above {
        let count = (above - revision + 1).min(AT_A_TIME);
        let mut writes = JoinSet::new();
        for _ in 0..count {
            let (client, settings) = (client.clone(), settings.clone());
            writes.spawn_local(async move { write_once(&client, &settings).await });
        }
        while let Some(written) = writes.join_next().await {
            revision = revision.max(written.map_err(|_| Failure::Unanswered)??);
        }
        if revision >= said + 50_000 {
            said = revision;
            say(revision);
        }
    }
    let Body::Granted { lease, ttl_s } = client.ask(&Request::Grant { ttl_s: 3 * settings.ttl_s }).await?.body else {
        return Err(Failure::Unanswered);
    };
    for _ in 0..TRIES {
        if let Some(restored) = take_lead(&client, settings, lease).await? {
            // A leader has learnt it by then, or its own lease has ended.
            sleep(Duration::from_secs(settings.ttl_s.min(ttl_s))).await;
            client.ask(&Request::Revoke(lease)).await?;
            return Ok(restored);
        }
    }
    Err(Failure::Other("the number of the start changed all the time".to_owned()))
}

/// The key that is written so that the revision grows.
fn key(settings: &Settings) -> String {
    format!("{}restored", settings.prefix)
}

/// Writes a key. Returns the revision of that.
async fn write_once(client: &Client, settings: &Settings) -> Result<u64, Failure> {
    let then = vec![Operation::Put { key: key(settings), value: b"1".to_vec(), lease: None }];
    Ok(client.ask(&Request::Transact(Transaction { then, ..Transaction::default() })).await?.revision)
}

/// Adds to the number of the last start and takes the key of the leader for the time of a lease, both at once. `None`: a leader has
/// begun meanwhile.
async fn take_lead(client: &Client, settings: &Settings, lease: LeaseId) -> Result<Option<Restored>, Failure> {
    let epoch = epoch_key(settings);
    let read = Transaction { then: vec![Operation::Range(Keys::One(epoch.clone()))], ..Transaction::default() };
    let Body::Done { found, .. } = client.ask(&Request::Transact(read)).await?.body else {
        return Err(Failure::Unanswered);
    };
    let last = found.into_iter().flatten().next();
    let at = last.as_ref().map_or(0, |last| last.mod_revision);
    let number = last.map_or(Some(0), |last| std::str::from_utf8(&last.value).ok()?.trim().parse::<u16>().ok());
    let number =
        number.ok_or_else(|| Failure::Other(format!("{epoch} has no number from 0 to 65535; write one there")))?;
    let next = number.wrapping_add(STARTS);
    let write = Transaction {
        conditions: vec![Condition::Changed { key: epoch.clone(), at }],
        then: vec![
            Operation::Put { key: epoch, value: next.to_string().into_bytes(), lease: None },
            Operation::Delete(Keys::One(key(settings))),
            Operation::Put { key: settings.leader_key(), value: NOBODY.to_vec(), lease: Some(lease) },
        ],
        otherwise: Vec::new(),
    };
    let answer = client.ask(&Request::Transact(write)).await?;
    let held = matches!(answer.body, Body::Done { held: true, .. });
    Ok(held.then_some(Restored { revision: answer.revision, epoch: next }))
}
