//! The state of the leader in etcd, which the next leader reads.
//!
//! It is cut into parts, because etcd refuses requests above 1.5 MiB. There are two places for the parts. The one that is not
//! in use is written, and the head then says which one is in use. So a leader that is killed meanwhile leaves the state
//! of before.
//!
//! Two conditions guard each write. Only the leader can write: the key of the leader must be that of its election. And the
//! head must be unchanged. A request without an answer may be carried out much later, when newer parts are already in
//! its place. Therefore after such a request the writer changes the revision of the head, by writing the same head once more.
//! Etcd then refuses whatever was sent before.

use crate::etcd::{Answer, Body, Condition, Failure, KeyValue, Keys, Operation, Request, Transaction};
use crate::member::Settings;
use crate::position::Token;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum size of a part.
pub const PART_BYTES: usize = 512 << 10;

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
    fn of(place: u8, parts: usize, bytes: &[u8]) -> Head {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
        Head { place, parts, bytes: bytes.len(), sha256 }
    }
}

/// The keys of the state.
#[derive(Clone, Debug)]
struct StateKeys {
    leader: String,
    prefix: String,
}

impl StateKeys {
    fn of(settings: &Settings) -> StateKeys {
        StateKeys { leader: settings.leader_key(), prefix: format!("{}state/", settings.prefix) }
    }

    fn head(&self) -> String {
        format!("{}head", self.prefix)
    }

    fn part(&self, place: u8, part: usize) -> String {
        format!("{}{place}/{part}", self.prefix)
    }
}

fn range(key: String) -> Operation {
    Operation::Range(Keys::One(key))
}

fn read(key: String) -> Request {
    Request::Transact(Transaction { then: vec![range(key)], ..Transaction::default() })
}

/// Whether the conditions of a transaction held, and what it has found.
fn done(answer: Answer) -> Result<(bool, Vec<Vec<KeyValue>>), Failure> {
    match answer.body {
        Body::Done { held, found } => Ok((held, found)),
        other => Err(Failure::Other(format!("etcd answers a transaction with {other:?}"))),
    }
}

/// What the writer knows about the key of the head.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Known {
    Nothing,
    /// The revision of its last change, 0 without a key, and its value.
    Head {
        at: u64,
        value: Vec<u8>,
    },
}

/// What the next request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    ReadHead,
    /// Changes the revision of the head, and nothing else.
    RenewHead,
    Part,
    /// The last part, and the head that names the parts.
    LastPart,
}

/// How far a state is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Another request follows.
    More,
    /// The state is stored.
    Stored,
    /// It is not stored: this controller does not lead by this election.
    Deposed,
}

/// Stores states, one after another, as the leader of an election. A state machine: [`Writer::begin`], and then by
/// turns [`Writer::request`] and [`Writer::handle`].
#[derive(Debug)]
pub struct Writer {
    keys: StateKeys,
    token: Token,
    part_bytes: usize,
    head: Known,
    /// Whether a request of before may still be carried out, as long as the head is unchanged.
    is_doubtful: bool,
    /// A request has been sent and is not answered.
    sent: Option<Step>,
    /// The part that is written next.
    part: usize,
}

impl Writer {
    /// A writer for the leader of this election.
    pub fn new(settings: &Settings, token: Token) -> Writer {
        Writer::fresh(StateKeys::of(settings), token, PART_BYTES)
    }

    /// As this one, with parts of this size.
    #[must_use]
    pub fn with_part_bytes(self, part_bytes: usize) -> Writer {
        Writer { part_bytes, ..self }
    }

    /// The election by which the leader leads.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The leader leads by another election. Others may have stored states meanwhile. Etcd refuses what was sent before.
    pub fn renew(&mut self, token: Token) {
        *self = Writer::fresh(self.keys.clone(), token, self.part_bytes);
    }

    fn fresh(keys: StateKeys, token: Token, part_bytes: usize) -> Writer {
        Writer { keys, token, part_bytes, head: Known::Nothing, is_doubtful: false, sent: None, part: 0 }
    }

    /// Begins with another state. Also after a request whose answer nobody waited for.
    pub fn begin(&mut self) {
        self.part = 0;
        // It may be carried out later.
        self.is_doubtful |= self.sent.take().is_some_and(|step| step != Step::ReadHead);
    }

    fn parts(&self, bytes: &[u8]) -> usize {
        bytes.len().div_ceil(self.part_bytes).max(1)
    }

    fn step(&self, bytes: &[u8]) -> Step {
        match &self.head {
            Known::Nothing => Step::ReadHead,
            Known::Head { .. } if self.is_doubtful => Step::RenewHead,
            Known::Head { .. } if self.part + 1 < self.parts(bytes) => Step::Part,
            Known::Head { .. } => Step::LastPart,
        }
    }

    /// The next request for storing these bytes.
    pub fn request(&mut self, bytes: &[u8]) -> Request {
        let step = self.step(bytes);
        self.sent = Some(step);
        let Known::Head { at, value } = &self.head else { return read(self.keys.head()) };
        let then = match step {
            Step::ReadHead => vec![range(self.keys.head())],
            Step::RenewHead => vec![self.put_head(renewed(value))],
            Step::Part | Step::LastPart => {
                let place = place_not_in_use(value);
                let chunk = bytes.chunks(self.part_bytes).nth(self.part).unwrap_or_default().to_vec();
                let part = Operation::Put { key: self.keys.part(place, self.part), value: chunk, lease: None };
                let head = (step == Step::LastPart).then(|| {
                    let head = Head::of(place, self.parts(bytes), bytes);
                    self.put_head(encoded(&head))
                });
                std::iter::once(part).chain(head).collect()
            }
        };
        let leads = Condition::Created { key: self.keys.leader.clone(), at: self.token.0 };
        let unchanged = Condition::Changed { key: self.keys.head(), at: *at };
        let otherwise = vec![range(self.keys.leader.clone()), range(self.keys.head())];
        Request::Transact(Transaction { conditions: vec![leads, unchanged], then, otherwise })
    }

    fn put_head(&self, value: Vec<u8>) -> Operation {
        Operation::Put { key: self.keys.head(), value, lease: None }
    }

    /// Takes the answer to the last request.
    ///
    /// # Errors
    /// Etcd refuses the request, or does not answer. The state of before remains, or this one is stored. The next
    /// [`Writer::begin`] finds out.
    pub fn handle(&mut self, bytes: &[u8], answer: Result<Answer, Failure>) -> Result<Progress, Failure> {
        let Some(step) = self.sent else { return Ok(Progress::More) };
        let (revision, (held, found)) = match answer.and_then(|answer| Ok((answer.revision, done(answer)?))) {
            Ok(answer) => answer,
            Err(failure) => {
                self.begin();
                return Err(failure);
            }
        };
        self.sent = None;
        if !held {
            return Ok(self.refused(found));
        }
        match step {
            Step::ReadHead => self.know(found.into_iter().flatten().next()),
            Step::RenewHead => {
                if let Known::Head { at, value } = &mut self.head {
                    (*at, *value) = (revision, renewed(value));
                }
                self.is_doubtful = false;
            }
            Step::Part => self.part += 1,
            Step::LastPart => {
                let Known::Head { value, .. } = &self.head else { return Ok(Progress::More) };
                let head = Head::of(place_not_in_use(value), self.parts(bytes), bytes);
                self.head = Known::Head { at: revision, value: encoded(&head) };
                return Ok(Progress::Stored);
            }
        }
        Ok(Progress::More)
    }

    /// Etcd has refused a write, and says what it has as the leader and as the head.
    fn refused(&mut self, found: Vec<Vec<KeyValue>>) -> Progress {
        let mut found = found.into_iter().map(|keys| keys.into_iter().next());
        let (leader, head) = (found.next().flatten(), found.next().flatten());
        self.know(head);
        self.part = 0;
        // Otherwise a request of before was carried out late.
        let leads = leader.is_some_and(|leader| leader.create_revision == self.token.0);
        if leads {
            Progress::More
        } else {
            Progress::Deposed
        }
    }

    fn know(&mut self, head: Option<KeyValue>) {
        self.is_doubtful = false;
        self.head = head.map_or(Known::Head { at: 0, value: Vec::new() }, |head| Known::Head {
            at: head.mod_revision,
            value: head.value,
        });
    }
}

fn encoded(head: &Head) -> Vec<u8> {
    serde_json::to_vec(head).unwrap_or_default()
}

/// A head that says the same. If there was none, it names an empty state.
fn renewed(value: &[u8]) -> Vec<u8> {
    if value.is_empty() {
        encoded(&Head::of(1, 0, &[]))
    } else {
        value.to_vec()
    }
}

fn place_not_in_use(head: &[u8]) -> u8 {
    serde_json::from_slice::<Head>(head).map_or(0, |head| 1 - head.place.min(1))
}

/// What a reader has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Another request follows.
    More,
    /// There is no state.
    Nothing,
    /// The state.
    State(Vec<u8>),
    /// The head or the parts are damaged. This is the key of the head.
    Damaged(String),
}

/// Reads the state. A state machine: [`Reader::request`] and [`Reader::handle`] by turns. Nobody may write meanwhile.
#[derive(Debug)]
pub struct Reader {
    keys: StateKeys,
    head: Option<Head>,
    bytes: Vec<u8>,
    part: usize,
}

impl Reader {
    /// A reader for the leader of an election.
    pub fn new(settings: &Settings) -> Reader {
        Reader { keys: StateKeys::of(settings), head: None, bytes: Vec::new(), part: 0 }
    }

    /// The next request.
    pub fn request(&self) -> Request {
        match &self.head {
            None => read(self.keys.head()),
            Some(head) => read(self.keys.part(head.place, self.part)),
        }
    }

    /// Takes the answer to the last request.
    ///
    /// # Errors
    /// Etcd refuses the request, or does not answer.
    pub fn handle(&mut self, answer: Result<Answer, Failure>) -> Result<Found, Failure> {
        let found = done(answer?)?.1.into_iter().flatten().next();
        if self.head.is_none() {
            let Some(found) = found else { return Ok(Found::Nothing) };
            let Ok(head) = serde_json::from_slice::<Head>(&found.value) else {
                return Ok(Found::Damaged(self.keys.head()));
            };
            self.head = Some(head);
        } else {
            self.bytes.extend(found.map(|part| part.value).unwrap_or_default());
            self.part += 1;
        }
        Ok(self.state())
    }

    fn state(&mut self) -> Found {
        match &self.head {
            Some(head) if head.bytes == 0 => Found::Nothing,
            Some(head) if self.part < head.parts => Found::More,
            Some(head) if Head::of(head.place, head.parts, &self.bytes) == *head => {
                Found::State(std::mem::take(&mut self.bytes))
            }
            _ => Found::Damaged(self.keys.head()),
        }
    }
}
