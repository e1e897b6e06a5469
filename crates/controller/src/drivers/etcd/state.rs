//! Stores the state of the leader in etcd, and reads it.

use super::client::Client;
use pathloom_cluster::etcd::Failure;
use pathloom_cluster::state::{Found, Progress, Reader, Writer};
use pathloom_cluster::{Settings, Token};
use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::Mutex;

/// The state in etcd, as the leader of one election sees it.
pub(crate) struct StateStore {
    client: Rc<Client>,
    settings: Settings,
    token: Cell<Token>,
    /// One state is stored at a time.
    writer: Mutex<Writer>,
}

impl StateStore {
    pub(super) fn new(client: Rc<Client>, settings: Settings, token: Token) -> StateStore {
        let writer = Mutex::new(Writer::new(&settings, token));
        StateStore { client, settings, token: Cell::new(token), writer }
    }

    /// The election by which the leader leads.
    pub(super) fn token(&self) -> Token {
        self.token.get()
    }

    /// The leader leads by another election.
    pub(super) fn renew(&self, token: Token) {
        self.token.set(token);
    }

    /// Reads the state. `None` if there is none, or if it is damaged, which is logged.
    ///
    /// # Errors
    /// Etcd does not answer, or refuses.
    pub(crate) async fn load(&self) -> Result<Option<Vec<u8>>, Failure> {
        let mut reader = Reader::new(&self.settings);
        loop {
            match reader.handle(self.client.ask(&reader.request()).await)? {
                Found::More => {}
                Found::Nothing => return Ok(None),
                Found::State(bytes) => return Ok(Some(bytes)),
                Found::Damaged(key) => {
                    tracing::warn!(key, "the stored state is damaged; the rules in the switches are adopted");
                    return Ok(None);
                }
            }
        }
    }

    /// Stores the state. Returns whether it is stored; it is not if this controller no longer leads by this election.
    ///
    /// # Errors
    /// Etcd does not answer, or refuses. The state of before remains, or this one is stored.
    pub(crate) async fn save(&self, bytes: &[u8]) -> Result<bool, Failure> {
        let mut writer = self.writer.lock().await;
        writer.begin();
        loop {
            if writer.token() != self.token.get() {
                writer.renew(self.token.get());
            }
            let request = writer.request(bytes);
            match writer.handle(bytes, self.client.ask(&request).await)? {
                Progress::More => {}
                Progress::Stored => return Ok(true),
                Progress::Deposed => return Ok(false),
            }
        }
    }
}
