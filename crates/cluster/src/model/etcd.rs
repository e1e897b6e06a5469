//! An etcd in memory: what etcd's version 3 answers, without its machines. It answers at once or not at all.

use crate::etcd::{Answer, Body, Change, Condition, Failure, KeyValue, Keys, LeaseId, Operation, Request, Transaction};
use pathloom_model::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Least time to live of a lease with etcd's default settings: one and a half election time-outs of 1 s, rounded up
/// (etcd 3.4, `minTTL`).
const LEAST_TTL_S: u64 = 2;

#[derive(Clone, Debug)]
struct Lease {
    ttl_s: u64,
    ends: Nanos,
    keys: BTreeSet<String>,
}

/// An etcd.
#[derive(Clone, Debug)]
pub struct Etcd {
    now: Nanos,
    revision: u64,
    keys: BTreeMap<String, KeyValue>,
    history: Vec<Change>,
    compacted: u64,
    leases: BTreeMap<LeaseId, Lease>,
    granted: i64,
    /// Whether it has no room for keys and leases (etcd's alarm NOSPACE).
    pub is_full: bool,
}

impl Default for Etcd {
    fn default() -> Etcd {
        Etcd::new()
    }
}

impl Etcd {
    /// An etcd without keys. Its revision is 1.
    pub fn new() -> Etcd {
        Etcd {
            now: Nanos::ZERO,
            revision: 1,
            keys: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            granted: 0,
            is_full: false,
        }
    }

    /// The revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &KeyValue> {
        self.keys.values()
    }

    /// When the next lease ends.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.leases.values().map(|lease| lease.ends).min()
    }

    /// Ends the leases whose time is over.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.ends <= self.now).map(|(&id, _)| id).collect();
        over.into_iter().for_each(|id| self.end_lease(id));
    }

    /// Another machine of etcd leads. Etcd then gives each lease its whole time to live again.
    pub fn change_leader(&mut self, now: Nanos) {
        self.advance(now);
        let now = self.now;
        self.leases.values_mut().for_each(|lease| lease.ends = now + Nanos::from_secs(lease.ttl_s));
    }

    /// Goes on from a backup of earlier. Identifiers of leases do not repeat: etcd draws them at random.
    pub fn restore(&mut self, now: Nanos, backup: &Etcd) {
        *self = Etcd { granted: self.granted, ..backup.clone() };
        self.now = now;
        self.leases.values_mut().for_each(|lease| lease.ends = now + Nanos::from_secs(lease.ttl_s));
    }

    /// Carries out a request, except [`Request::Watch`], for which there is [`Etcd::changes`].
    ///
    /// # Errors
    /// Etcd refuses it. Nothing has changed.
    pub fn handle(&mut self, now: Nanos, request: &Request) -> Result<Answer, Failure> {
        self.advance(now);
        let body = match request {
            Request::Grant { ttl_s } => self.grant(*ttl_s)?,
            Request::KeepAlive(id) => Body::KeptAlive { ttl_s: self.keep_alive(*id) },
            Request::Revoke(id) => {
                if !self.leases.contains_key(id) {
                    return Err(Failure::NoLease);
                }
                self.end_lease(*id);
                Body::Revoked
            }
            Request::Transact(transaction) => self.transact(transaction)?,
            Request::Compact { before } => self.compact(*before)?,
            Request::Watch { .. } => return Err(Failure::Other("a watch has no answer".to_owned())),
        };
        Ok(Answer { revision: self.revision, body })
    }

    /// Changes of these keys at this revision or later.
    ///
    /// # Errors
    /// The history that early is forgotten.
    pub fn changes(&self, keys: &Keys, from: u64) -> Result<Vec<Change>, Failure> {
        if from < self.compacted {
            return Err(Failure::Compacted { before: self.compacted });
        }
        let wanted = |change: &&Change| change.revision() >= from && keys.contains(change.key());
        Ok(self.history.iter().filter(wanted).cloned().collect())
    }

    fn grant(&mut self, ttl_s: u64) -> Result<Body, Failure> {
        if self.is_full {
            return Err(Failure::NoSpace);
        }
        self.granted += 1;
        let (lease, ttl_s) = (LeaseId(self.granted), ttl_s.max(LEAST_TTL_S));
        let ends = self.now + Nanos::from_secs(ttl_s);
        self.leases.insert(lease, Lease { ttl_s, ends, keys: BTreeSet::new() });
        Ok(Body::Granted { lease, ttl_s })
    }

    fn keep_alive(&mut self, id: LeaseId) -> u64 {
        let now = self.now;
        self.leases.get_mut(&id).map_or(0, |lease| {
            lease.ends = now + Nanos::from_secs(lease.ttl_s);
            lease.ttl_s
        })
    }

    fn end_lease(&mut self, id: LeaseId) {
        let keys = self.leases.remove(&id).map(|lease| lease.keys).unwrap_or_default();
        if !keys.is_empty() {
            self.revision += 1;
            keys.iter().for_each(|key| self.delete(key));
        }
    }

    fn compact(&mut self, before: u64) -> Result<Body, Failure> {
        if before <= self.compacted {
            return Err(Failure::Compacted { before: self.compacted });
        }
        if before > self.revision {
            return Err(Failure::FutureRevision);
        }
        self.compacted = before;
        // Etcd 3.4 sometimes forgets deletions at this revision, too, although it can still be watched.
        self.history.retain(|change| {
            change.revision() > before || change.revision() == before && matches!(change, Change::Set(_))
        });
        Ok(Body::Compacted)
    }

    fn holds(&self, condition: &Condition) -> bool {
        let found = |key: &String| self.keys.get(key);
        match condition {
            Condition::Created { key, at } => found(key).map_or(0, |found| found.create_revision) == *at,
            Condition::Changed { key, at } => found(key).map_or(0, |found| found.mod_revision) == *at,
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<Body, Failure> {
        check_keys(&transaction.then)?;
        check_keys(&transaction.otherwise)?;
        let held = transaction.conditions.iter().all(|condition| self.holds(condition));
        let operations = if held { &transaction.then } else { &transaction.otherwise };
        for operation in operations {
            match operation {
                Operation::Put { .. } if self.is_full => return Err(Failure::NoSpace),
                Operation::Put { lease: Some(lease), .. } if !self.leases.contains_key(lease) => {
                    return Err(Failure::NoLease)
                }
                _ => {}
            }
        }
        let changes = operations.iter().any(|operation| match operation {
            Operation::Put { .. } => true,
            Operation::Delete(keys) => self.keys.keys().any(|key| keys.contains(key)),
            Operation::Range(_) => false,
        });
        self.revision += u64::from(changes);
        let mut found = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => self.put(key, value, *lease),
                Operation::Delete(keys) => {
                    let gone: Vec<String> = self.keys.keys().filter(|key| keys.contains(key)).cloned().collect();
                    gone.iter().for_each(|key| self.delete(key));
                }
                Operation::Range(keys) => {
                    found.push(self.keys.values().filter(|one| keys.contains(&one.key)).cloned().collect());
                }
            }
        }
        Ok(Body::Done { held, found })
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<LeaseId>) {
        let before = self.keys.get(key);
        let create_revision = before.map_or(self.revision, |before| before.create_revision);
        if let Some(old) = before.and_then(|before| before.lease).and_then(|old| self.leases.get_mut(&old)) {
            old.keys.remove(key);
        }
        if let Some(new) = lease.and_then(|new| self.leases.get_mut(&new)) {
            new.keys.insert(key.to_owned());
        }
        let (key, value, mod_revision) = (key.to_owned(), value.to_vec(), self.revision);
        let set = KeyValue { key, value, create_revision, mod_revision, lease };
        self.history.push(Change::Set(set.clone()));
        self.keys.insert(set.key.clone(), set);
    }

    fn delete(&mut self, key: &str) {
        let Some(gone) = self.keys.remove(key) else { return };
        if let Some(lease) = gone.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(key);
        }
        self.history.push(Change::Deleted { key: gone.key, revision: self.revision });
    }
}

/// Etcd refuses a branch that changes one key twice (etcd 3.4, `checkTxnRequest`).
fn check_keys(operations: &[Operation]) -> Result<(), Failure> {
    let mut set = BTreeSet::new();
    let puts = operations.iter().filter_map(|operation| match operation {
        Operation::Put { key, .. } => Some(key),
        _ => None,
    });
    for key in puts {
        let deleted = |operation: &Operation| matches!(operation, Operation::Delete(keys) if keys.contains(key));
        if !set.insert(key) || operations.iter().any(deleted) {
            return Err(Failure::DuplicateKey);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(s: u64) -> Nanos {
        Nanos::from_secs(s)
    }

    fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Operation {
        Operation::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease }
    }

    fn range(prefix: &str) -> Operation {
        Operation::Range(Keys::Prefix(prefix.to_owned()))
    }

    fn then(operations: Vec<Operation>) -> Request {
        Request::Transact(Transaction { then: operations, ..Transaction::default() })
    }

    fn granted(etcd: &mut Etcd, now: Nanos, ttl_s: u64) -> LeaseId {
        match etcd.handle(now, &Request::Grant { ttl_s }).unwrap().body {
            Body::Granted { lease, .. } => lease,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_transaction_has_one_revision_and_reads_its_own_writes() {
        let mut etcd = Etcd::new();
        let answer = etcd.handle(s(0), &then(vec![put("a", "1", None), range(""), put("b", "2", None), range("")]));
        let Body::Done { held: true, found } = answer.unwrap().body else { panic!() };
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(found[1].iter().map(|key| key.create_revision).collect::<Vec<_>>(), [2, 2]);
        // A transaction that changes nothing has no revision of its own.
        let gone = Operation::Delete(Keys::One("c".to_owned()));
        assert_eq!(etcd.handle(s(0), &then(vec![gone, range("")])).unwrap().revision, 2);
        etcd.handle(s(0), &then(vec![put("a", "3", None)])).unwrap();
        let a = etcd.keys().next().unwrap();
        assert_eq!((a.create_revision, a.mod_revision), (2, 3));
    }

    #[test]
    fn conditions_choose_the_branch() {
        let mut etcd = Etcd::new();
        let create = |value: &str| {
            Request::Transact(Transaction {
                conditions: vec![Condition::Created { key: "a".to_owned(), at: 0 }],
                then: vec![put("a", value, None)],
                otherwise: vec![range("a")],
            })
        };
        let held = |answer: Result<Answer, Failure>| matches!(answer.unwrap().body, Body::Done { held: true, .. });
        assert!(held(etcd.handle(s(0), &create("1"))));
        assert!(!held(etcd.handle(s(0), &create("2"))));
        assert_eq!(etcd.keys().next().unwrap().value, b"1");
        let changed = Condition::Changed { key: "a".to_owned(), at: 2 };
        let change = Transaction { conditions: vec![changed], then: vec![put("a", "3", None)], otherwise: vec![] };
        assert!(held(etcd.handle(s(0), &Request::Transact(change.clone()))));
        assert!(!held(etcd.handle(s(0), &Request::Transact(change))));
    }

    #[test]
    fn keys_end_with_their_lease_and_another_put_frees_them() {
        let mut etcd = Etcd::new();
        let lease = granted(&mut etcd, s(0), 2);
        etcd.handle(s(0), &then(vec![put("a", "", Some(lease)), put("b", "", Some(lease))])).unwrap();
        etcd.handle(s(0), &then(vec![put("b", "", None)])).unwrap();
        assert_eq!(etcd.handle(s(1), &Request::KeepAlive(lease)).unwrap().body, Body::KeptAlive { ttl_s: 2 });
        etcd.advance(Nanos(s(3).0 - 1));
        assert_eq!(etcd.keys().count(), 2);
        etcd.advance(s(3));
        assert_eq!(etcd.keys().map(|key| key.key.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(etcd.handle(s(3), &Request::KeepAlive(lease)).unwrap().body, Body::KeptAlive { ttl_s: 0 });
        assert_eq!(etcd.handle(s(3), &then(vec![put("a", "", Some(lease))])), Err(Failure::NoLease));
        assert_eq!(etcd.handle(s(3), &Request::Revoke(lease)), Err(Failure::NoLease));
        let last = etcd.changes(&Keys::One("a".to_owned()), 1).unwrap().pop().unwrap();
        assert_eq!(last, Change::Deleted { key: "a".to_owned(), revision: 4 });
    }

    #[test]
    fn a_new_leader_of_etcd_gives_leases_their_whole_time_again() {
        let mut etcd = Etcd::new();
        let lease = granted(&mut etcd, s(0), 5);
        etcd.change_leader(s(4));
        assert_eq!(etcd.poll_timeout(), Some(s(9)));
        assert_eq!(etcd.handle(s(8), &Request::KeepAlive(lease)).unwrap().body, Body::KeptAlive { ttl_s: 5 });
    }

    #[test]
    fn forgotten_history_cannot_be_watched() {
        let mut etcd = Etcd::new();
        for value in ["1", "2", "3"] {
            etcd.handle(s(0), &then(vec![put("a", value, None)])).unwrap();
        }
        let key = Keys::One("a".to_owned());
        assert_eq!(etcd.changes(&key, 3).unwrap().len(), 2);
        etcd.handle(s(0), &Request::Compact { before: 4 }).unwrap();
        assert_eq!(etcd.changes(&key, 3), Err(Failure::Compacted { before: 4 }));
        assert_eq!(etcd.changes(&key, 4).unwrap().len(), 1);
        etcd.handle(s(0), &then(vec![Operation::Delete(key.clone())])).unwrap();
        etcd.handle(s(0), &Request::Compact { before: 5 }).unwrap();
        assert_eq!(etcd.changes(&key, 5), Ok(vec![]), "the deletion is forgotten");
        assert_eq!(etcd.handle(s(0), &Request::Compact { before: 9 }), Err(Failure::FutureRevision));
        assert_eq!(etcd.handle(s(0), &Request::Compact { before: 4 }), Err(Failure::Compacted { before: 5 }));
    }

    #[test]
    fn a_full_etcd_keeps_leases_alive_and_takes_no_keys() {
        let mut etcd = Etcd::new();
        let lease = granted(&mut etcd, s(0), 2);
        etcd.is_full = true;
        assert_eq!(etcd.handle(s(0), &then(vec![put("a", "", None)])), Err(Failure::NoSpace));
        assert_eq!(etcd.handle(s(0), &Request::Grant { ttl_s: 2 }), Err(Failure::NoSpace));
        assert_eq!(etcd.handle(s(1), &Request::KeepAlive(lease)).unwrap().body, Body::KeptAlive { ttl_s: 2 });
        assert_eq!(etcd.handle(s(1), &then(vec![range("")])).unwrap().revision, 1);
    }

    #[test]
    fn one_transaction_must_not_set_a_key_twice() {
        let mut etcd = Etcd::new();
        let all = Operation::Delete(Keys::Prefix("a".to_owned()));
        for operations in [vec![put("a", "", None), put("a", "", None)], vec![all, put("ab", "", None)]] {
            assert_eq!(etcd.handle(s(0), &then(operations)), Err(Failure::DuplicateKey));
        }
    }
}
