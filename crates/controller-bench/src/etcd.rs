//! `pathloom-controller-bench etcd ENDPOINT [--seed N] [--requests N]`: sends a real etcd and the model the same random
//! requests, and compares their answers and changes. Nobody else may use that etcd meanwhile.

use pathloom_cluster::etcd::{
    Answer, Body, Change, Condition, Failure, KeyValue, Keys, LeaseId, Operation, Request, Transaction,
};
use pathloom_cluster::model::Etcd;
use pathloom_controller::config::{CheckedCluster, Cluster};
use pathloom_controller::embed::EtcdClient as Client;
use pathloom_model::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const USAGE: &str = "usage: pathloom-controller-bench etcd http://HOST:PORT [--seed 1] [--requests 1000]";
/// Time to live of leases. None ends by itself.
const TTL_S: u64 = 1000;
/// Number of keys.
const KEYS: u32 = 6;
/// How long changes may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Compares, and prints the number of requests.
///
/// # Errors
/// Names the first request whose answers differ.
pub(crate) fn run(endpoint: &str, words: &[&str]) -> Result<(), String> {
    let (mut seed, mut requests) = (1, 1000);
    for pair in words.chunks(2) {
        match *pair {
            ["--seed", text] => seed = text.parse().map_err(|_| format!("--seed {text}: a number was expected"))?,
            ["--requests", text] => {
                requests = text.parse().map_err(|_| format!("--requests {text}: a number was expected"))?;
            }
            _ => return Err(format!("{} is not known here\n{USAGE}", pair[0])),
        }
    }
    let client = Client::new(cluster(endpoint, ("check", "/check/"), Duration::from_secs(60))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    let local = tokio::task::LocalSet::new();
    let changes = local.block_on(&runtime, Comparison::new(client, seed).run(requests))?;
    println!("{requests} requests and {changes} changes agree");
    Ok(())
}

/// A member of a cluster with one etcd: its name, what keys begin with, and its lease.
pub(super) fn cluster(endpoint: &str, (name, prefix): (&str, &str), ttl: Duration) -> Result<CheckedCluster, String> {
    let cluster = Cluster {
        endpoints: vec![endpoint.to_owned()],
        name: name.to_owned(),
        ttl,
        prefix: prefix.to_owned(),
        ca: None,
        certificate: None,
        key: None,
        user: None,
        password_file: None,
        api: None,
        paths: None,
    };
    cluster.check(Path::new(""))
}

struct Comparison {
    client: Client,
    model: Etcd,
    /// By how much etcd's revisions are above those of the model.
    ahead: u64,
    prefix: String,
    /// The real lease of each lease of the model, and the other way round.
    real: BTreeMap<LeaseId, LeaseId>,
    of_model: BTreeMap<LeaseId, LeaseId>,
    rng: Pcg64,
}

impl Comparison {
    fn new(client: Client, seed: u64) -> Comparison {
        Comparison {
            client,
            model: Etcd::new(),
            ahead: 0,
            prefix: format!("/check/{seed}/"),
            real: BTreeMap::new(),
            of_model: BTreeMap::new(),
            rng: Pcg64::seed_from_u64(seed),
        }
    }

    /// Returns the number of changes.
    async fn run(mut self, requests: usize) -> Result<usize, String> {
        let all = Keys::Prefix(self.prefix.clone());
        let clear = Transaction { then: vec![Operation::Delete(all.clone())], ..Transaction::default() };
        let cleared = self.client.ask(&Request::Transact(clear)).await;
        let cleared = cleared.map_err(|problem| format!("etcd does not answer: {problem:?}"))?;
        self.ahead = cleared.revision - self.model.revision();
        for number in 0..requests {
            let request = self.draw();
            let expected = self.model.handle(Nanos::ZERO, &request);
            let sent = self.to_real(&request);
            let answered = self.client.ask(&sent).await;
            if let (Request::Grant { .. }, Ok(expected), Ok(answered)) = (&request, &expected, &answered) {
                self.note_lease(expected, answered);
            }
            let found = self.to_model(answered);
            if !same(&expected, &found) {
                return Err(format!("request {number} differs: {request:?}\nmodel: {expected:?}\netcd: {found:?}"));
            }
        }
        self.compare_changes(&all).await
    }

    /// Compares the changes since the last compaction.
    async fn compare_changes(&self, keys: &Keys) -> Result<usize, String> {
        let from = match self.model.changes(keys, 0) {
            // Etcd sometimes forgets deletions at the very revision of a compaction.
            Err(Failure::Compacted { before }) => before + 1,
            _ => 1,
        };
        let expected = self.model.changes(keys, from).map_err(|problem| format!("{problem:?}"))?;
        let mut found: Vec<Change> = Vec::new();
        let (sender, mut arrived) = tokio::sync::mpsc::unbounded_channel();
        let watch = Request::Watch { keys: keys.clone(), from: from + self.ahead };
        let watching = self.client.watch(&watch, |changes| drop(sender.send(changes)));
        let collect = async {
            while found.len() < expected.len() {
                let Some(changes) = arrived.recv().await else { break };
                found.extend(changes.into_iter().map(|change| self.change_to_model(change)));
            }
        };
        tokio::select! {
            failure = watching => return Err(format!("the watch failed: {failure:?}")),
            () = collect => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
        let count = expected.len().max(found.len());
        if let Some(first) = (0..count).find(|&number| expected.get(number) != found.get(number)) {
            let (expected, found) = (expected.get(first), found.get(first));
            return Err(format!("change {first} since revision {from} differs\nmodel: {expected:?}\netcd: {found:?}"));
        }
        Ok(found.len())
    }

    fn draw(&mut self) -> Request {
        match self.rng.random_range(0..20) {
            0 => Request::Grant { ttl_s: TTL_S },
            1 => Request::KeepAlive(self.draw_lease()),
            2 => Request::Revoke(self.draw_lease()),
            3 => Request::Compact { before: self.rng.random_range(1..=self.model.revision() + 1) },
            _ => {
                let conditions = (0..self.rng.random_range(0..3)).map(|_| self.draw_condition()).collect();
                let then = (0..self.rng.random_range(0..4)).map(|_| self.draw_operation()).collect();
                let otherwise = (0..self.rng.random_range(0..3)).map(|_| self.draw_operation()).collect();
                Request::Transact(Transaction { conditions, then, otherwise })
            }
        }
    }

    fn draw_key(&mut self) -> String {
        format!("{}{}", self.prefix, self.rng.random_range(0..KEYS))
    }

    /// A lease of the model, which may be over.
    fn draw_lease(&mut self) -> LeaseId {
        let count = self.real.len() as i64;
        LeaseId(self.rng.random_range(1..=count + 1))
    }

    fn draw_condition(&mut self) -> Condition {
        let key = self.draw_key();
        let known = self.model.keys().find(|one| one.key == key).cloned();
        let known = known.map_or((0, 0), |one| (one.create_revision, one.mod_revision));
        match self.rng.random_range(0..4) {
            0 => Condition::Created { key, at: 0 },
            1 => Condition::Created { key, at: known.0 },
            2 => Condition::Changed { key, at: known.1 },
            _ => Condition::Changed { key, at: self.rng.random_range(0..=self.model.revision()) },
        }
    }

    fn draw_operation(&mut self) -> Operation {
        let (key, all) = (self.draw_key(), Keys::Prefix(self.prefix.clone()));
        match self.rng.random_range(0..10) {
            0 => Operation::Delete(Keys::One(key)),
            1 => Operation::Delete(all),
            2 => Operation::Range(all),
            3 => Operation::Range(Keys::One(key)),
            drawn => {
                let value = format!("{}", self.rng.random_range(0..1000)).into_bytes();
                let lease = (drawn < 7).then(|| self.draw_lease());
                Operation::Put { key, value, lease }
            }
        }
    }

    fn note_lease(&mut self, expected: &Answer, answered: &Answer) {
        if let (Body::Granted { lease: own, .. }, Body::Granted { lease: real, .. }) = (&expected.body, &answered.body)
        {
            self.real.insert(*own, *real);
            self.of_model.insert(*real, *own);
        }
    }

    /// A lease that was never granted has the same number at both.
    fn real_lease(&self, lease: LeaseId) -> LeaseId {
        self.real.get(&lease).copied().unwrap_or(lease)
    }

    fn to_real(&self, request: &Request) -> Request {
        let revision = |at: u64| if at == 0 { 0 } else { at + self.ahead };
        let condition = |condition: &Condition| match condition.clone() {
            Condition::Created { key, at } => Condition::Created { key, at: revision(at) },
            Condition::Changed { key, at } => Condition::Changed { key, at: revision(at) },
        };
        let operation = |operation: &Operation| match operation.clone() {
            Operation::Put { key, value, lease } => {
                Operation::Put { key, value, lease: lease.map(|lease| self.real_lease(lease)) }
            }
            other => other,
        };
        match request {
            Request::KeepAlive(lease) => Request::KeepAlive(self.real_lease(*lease)),
            Request::Revoke(lease) => Request::Revoke(self.real_lease(*lease)),
            Request::Compact { before } => Request::Compact { before: revision(*before) },
            Request::Transact(Transaction { conditions, then, otherwise }) => Request::Transact(Transaction {
                conditions: conditions.iter().map(condition).collect(),
                then: then.iter().map(operation).collect(),
                otherwise: otherwise.iter().map(operation).collect(),
            }),
            other => other.clone(),
        }
    }

    fn to_model(&self, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let Answer { revision, body } = answer?;
        let body = match body {
            Body::Granted { lease, ttl_s } => {
                Body::Granted { lease: self.of_model.get(&lease).copied().unwrap_or(lease), ttl_s }
            }
            Body::Done { held, found } => {
                let row = |keys: Vec<KeyValue>| keys.into_iter().map(|key| self.key_to_model(key)).collect();
                Body::Done { held, found: found.into_iter().map(row).collect() }
            }
            other => other,
        };
        Ok(Answer { revision: revision.saturating_sub(self.ahead), body })
    }

    fn key_to_model(&self, key: KeyValue) -> KeyValue {
        KeyValue {
            create_revision: key.create_revision.saturating_sub(self.ahead),
            mod_revision: key.mod_revision.saturating_sub(self.ahead),
            lease: key.lease.map(|lease| self.of_model.get(&lease).copied().unwrap_or(lease)),
            ..key
        }
    }

    fn change_to_model(&self, change: Change) -> Change {
        match change {
            Change::Set(key) => Change::Set(self.key_to_model(key)),
            Change::Deleted { key, revision } => Change::Deleted { key, revision: revision - self.ahead },
        }
    }
}

/// Whether two answers are the same. The real etcd does not say before which revision its history is forgotten.
fn same(expected: &Result<Answer, Failure>, found: &Result<Answer, Failure>) -> bool {
    let is_compacted = |one: &Result<Answer, Failure>| matches!(one, Err(Failure::Compacted { .. }));
    expected == found || is_compacted(expected) && is_compacted(found)
}
