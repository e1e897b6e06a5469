//! The state of the leader in etcd: the snapshot, known hosts and port numbers. It is cut into parts, because etcd refuses
//! requests above 1.5 MiB. There are two places for the parts. The one that is not in use is written, and a small key
//! then says which one is in use. So a leader that is killed meanwhile leaves the state of before. Only the leader can
//! write: each transaction has the number of its election as a condition.

use super::client::Client;
use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::{Settings, Token};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::rc::Rc;

/// Size of a part.
pub(crate) const PART_BYTES: usize = 512 << 10;

/// Says which parts are the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Head {
    /// The place of the parts: 0 or 1.
    place: u8,
    parts: usize,
    bytes: usize,
    /// SHA-256 of all bytes, in hexadecimal digits.
    sha256: String,
}

impl Head {
    fn of(place: u8, bytes: &[u8]) -> Head {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
        Head { place, parts: bytes.len().div_ceil(PART_BYTES), bytes: bytes.len(), sha256 }
    }
}

/// The state in etcd, as the leader of one election sees it.
pub(crate) struct StateStore {
    client: Rc<Client>,
    settings: Settings,
    token: Cell<Token>,
    /// The place that is in use.
    place: Cell<u8>,
}

impl StateStore {
    pub(super) fn new(client: Rc<Client>, settings: Settings, token: Token) -> StateStore {
        StateStore { client, settings, token: Cell::new(token), place: Cell::new(1) }
    }

    /// The election by which the leader leads.
    pub(super) fn token(&self) -> Token {
        self.token.get()
    }

    /// The leader leads by another election.
    pub(super) fn renew(&self, token: Token) {
        self.token.set(token);
    }

    fn head_key(&self) -> String {
        format!("{}state/head", self.settings.prefix)
    }

    fn part_key(&self, place: u8, part: usize) -> String {
        format!("{}state/{place}/{part}", self.settings.prefix)
    }

    /// Reads the state. `None` if there is none, or if it is damaged, which is logged.
    ///
    /// # Errors
    /// Etcd does not answer, or refuses.
    pub(crate) async fn load(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(head) = self.read(self.head_key()).await? else { return Ok(None) };
        let Ok(head) = serde_json::from_slice::<Head>(&head) else {
            tracing::warn!(key = self.head_key(), "the stored state is damaged; the rules in the switches are adopted");
            return Ok(None);
        };
        self.place.set(head.place);
        let mut bytes = Vec::with_capacity(head.bytes);
        for part in 0..head.parts {
            bytes.extend(self.read(self.part_key(head.place, part)).await?.unwrap_or_default());
        }
        if Head::of(head.place, &bytes) != head {
            tracing::warn!(
                key = self.head_key(),
                "parts of the stored state are damaged; the rules in the switches are adopted"
            );
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    async fn read(&self, key: String) -> Result<Option<Vec<u8>>, Failure> {
        let then = vec![Operation::Range(Keys::One(key))];
        let request = Request::Transact(Transaction { then, ..Transaction::default() });
        let Body::Done { found, .. } = self.client.ask(&request).await?.body else { return Ok(None) };
        Ok(found.into_iter().flatten().next().map(|found| found.value))
    }

    /// Stores the state. Returns whether it is stored; it is not if this controller no longer leads by this election.
    ///
    /// # Errors
    /// Etcd does not answer, or refuses. The state of before remains.
    pub(crate) async fn save(&self, bytes: &[u8]) -> Result<bool, Failure> {
        let place = 1 - self.place.get().min(1);
        for (part, value) in bytes.chunks(PART_BYTES).enumerate() {
            if !self.put(self.part_key(place, part), value.to_vec()).await? {
                return Ok(false);
            }
        }
        let head = serde_json::to_vec(&Head::of(place, bytes)).map_err(|why| Failure::Other(why.to_string()))?;
        let is_stored = self.put(self.head_key(), head).await?;
        if is_stored {
            self.place.set(place);
        }
        Ok(is_stored)
    }

    /// Sets a key if this controller leads.
    async fn put(&self, key: String, value: Vec<u8>) -> Result<bool, Failure> {
        let request = Request::Transact(Transaction {
            conditions: vec![Condition::Created { key: self.settings.leader_key(), at: self.token.get().0 }],
            then: vec![Operation::Put { key, value, lease: None }],
            otherwise: Vec::new(),
        });
        Ok(matches!(self.client.ask(&request).await?.body, Body::Done { held: true, .. }))
    }
}
