//! Requests to etcd and its answers: the part of the API of etcd's version 3 that members use.
//!
//! All changes in etcd have a common number, the revision. It grows with each change.

/// Identifier of a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub i64);

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Revision at which the key was created.
    pub create_revision: u64,
    /// Revision of its last change.
    pub mod_revision: u64,
    /// The lease with which the key ends.
    pub lease: Option<LeaseId>,
}

/// Some keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// One key.
    One(String),
    /// All keys that begin with this text.
    Prefix(String),
}

impl Keys {
    /// Whether a key is one of them.
    pub fn contains(&self, key: &str) -> bool {
        match self {
            Keys::One(one) => one == key,
            Keys::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The key was created at this revision; 0: there is no such key.
    Created {
        /// The key.
        key: String,
        /// The revision.
        at: u64,
    },
    /// The key was last changed at this revision; 0: there is no such key.
    Changed {
        /// The key.
        key: String,
        /// The revision.
        at: u64,
    },
}

/// An operation of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease with which the key ends.
        lease: Option<LeaseId>,
    },
    /// Deletes keys.
    Delete(Keys),
    /// Reads keys.
    Range(Keys),
}

/// A transaction: operations that are done at one revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// What is done if all conditions hold.
    pub then: Vec<Operation>,
    /// What is done otherwise.
    pub otherwise: Vec<Operation>,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A new lease.
    Grant {
        /// Its time to live. Etcd may grant more.
        ttl_s: u64,
    },
    /// A lease begins its time to live anew.
    KeepAlive(LeaseId),
    /// A lease ends, and its keys with it.
    Revoke(LeaseId),
    /// A transaction.
    Transact(Transaction),
    /// Changes of keys, from this revision on, as they happen. Answered by [`crate::Input::Changed`] only.
    Watch {
        /// The keys.
        keys: Keys,
        /// The first revision.
        from: u64,
    },
    /// Etcd may forget the history before this revision.
    Compact {
        /// The revision.
        before: u64,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Etcd's revision when it answered.
    pub revision: u64,
    /// The answer.
    pub body: Body,
}

/// What an answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// There is a new lease.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Its time to live.
        ttl_s: u64,
    },
    /// The lease was kept alive.
    KeptAlive {
        /// Its time to live; 0: there is no such lease.
        ttl_s: u64,
    },
    /// The lease was revoked.
    Revoked,
    /// The transaction was carried out.
    Done {
        /// Whether its conditions held.
        held: bool,
        /// The keys that each [`Operation::Range`] has found, in order of the operations.
        found: Vec<Vec<KeyValue>>,
    },
    /// The history was forgotten.
    Compacted,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There was no answer. The request may have been carried out.
    Unanswered,
    /// There is no such lease.
    NoLease,
    /// The history before this revision is forgotten.
    Compacted {
        /// The revision.
        before: u64,
    },
    /// The revision is one of the future.
    FutureRevision,
    /// A transaction sets one key twice.
    DuplicateKey,
    /// Etcd has no room for more.
    NoSpace,
    /// Another refusal, in etcd's words.
    Other(String),
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It was set.
    Set(KeyValue),
    /// It was deleted, or its lease has ended.
    Deleted {
        /// The key.
        key: String,
        /// The revision.
        revision: u64,
    },
}

impl Change {
    /// The key.
    pub fn key(&self) -> &str {
        match self {
            Change::Set(set) => &set.key,
            Change::Deleted { key, .. } => key,
        }
    }

    /// The revision.
    pub fn revision(&self) -> u64 {
        match self {
            Change::Set(set) => set.mod_revision,
            Change::Deleted { revision, .. } => *revision,
        }
    }
}
