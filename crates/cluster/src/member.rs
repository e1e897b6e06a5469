//! One member of a cluster, as a state machine.

use crate::etcd::{Answer, Body, Change, Condition, Failure, KeyValue, Keys, LeaseId, Operation, Request, Transaction};
use crate::format;
use crate::position::{Leader, Position, Token};
use pathloom_model::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// Number of heartbeats in the time to live of a lease. A leader that misses one answer still has time for the next.
const BEATS: u64 = 3;
/// Number of times to live after which nobody waits for an answer any more.
const FORGOTTEN_AFTER: u64 = 10;

/// Settings of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its name, which no other member has.
    pub name: String,
    /// What the keys of the cluster begin with.
    pub prefix: String,
    /// Time to live of a lease.
    pub ttl_s: u64,
    /// By how much the clocks of a member and of etcd may run apart, in thousandths. A leader counts its lease as over so
    /// much earlier.
    pub drift_permille: u64,
    /// The newest format of the keys that it knows ([`format`]).
    pub format: u32,
}

impl Settings {
    /// Settings with the default allowance for clocks, which is a tenth. Clocks of computers run apart by less than a
    /// thousandth. The rest is for the time between a look at the clock and what is done then.
    pub fn new(name: &str, prefix: &str, ttl_s: u64) -> Settings {
        Settings {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            ttl_s,
            drift_permille: 100,
            format: format::FORMAT,
        }
    }

    /// The key of the leader.
    pub fn leader_key(&self) -> String {
        format!("{}leader", self.prefix)
    }

    /// The key of the format of all keys.
    pub fn format_key(&self) -> String {
        format!("{}format", self.prefix)
    }

    fn beat(&self) -> Nanos {
        Nanos(Nanos::from_secs(self.ttl_s).0 / BEATS)
    }
}

/// Number of a request, which its answer repeats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// What a member learns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// An answer of etcd, or the reason why there is none.
    Answered {
        /// The request.
        id: RequestId,
        /// The answer.
        answer: Result<Answer, Failure>,
    },
    /// Changes of keys that are watched. After a failure, the watch is over.
    Changed {
        /// The request for the watch.
        id: RequestId,
        /// The changes, in order.
        changes: Result<Vec<Change>, Failure>,
    },
    /// A switch has refused the role of the master, or what only a master may do, because of a newer leader.
    RefusedBySwitch,
    /// The member leaves the cluster.
    Stop,
}

/// What the driver must do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send etcd a request. The driver passes a [`Failure::Unanswered`] when it gives up.
    Request {
        /// Number of the request.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// The member is now this.
    Position(Position),
    /// Etcd's revision has gone back: it was restored from a backup. The member neither leads by a smaller number than before
    /// nor believes what etcd says about the leader, until etcd's revision is greater than `from`.
    WentBack {
        /// The revision that etcd had before.
        from: u64,
        /// The revision that it has now.
        to: u64,
    },
    /// The member does not know the format of the keys, so it does not lead. This is what the key of the format says.
    UnknownFormat(String),
}

/// What an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Grant,
    KeepAlive(LeaseId),
    /// `known_at`: what was known about the key of the leader when the request was sent.
    Campaign {
        lease: LeaseId,
        known_at: u64,
    },
    Other,
}

/// A lease of this member.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: LeaseId,
    /// When it may end, by this member's clock. Etcd counts from when it handles a request, which is after the request
    /// was sent.
    ends: Nanos,
}

/// A member. The driver calls [`Member::handle`] and [`Member::handle_timeout`], and takes all outputs after each call.
#[derive(Debug)]
pub struct Member {
    settings: Settings,
    now: Nanos,
    lease: Option<Lease>,
    /// The election that this member has won, while the key of the leader is its own.
    won: Option<Token>,
    /// The leader, if it is another member.
    leader: Option<Leader>,
    /// Revision of what is known about the key of the leader. Answers may arrive in another order.
    known_at: u64,
    /// Whether etcd's revision is less than what was known before.
    went_back: bool,
    /// Revision of the last change of the format of the keys, when the member last knew that format; 0: there was no key.
    format_at: u64,
    /// What the key of the format says, if the member does not know that.
    unknown_format: Option<String>,
    position: Position,
    since: Nanos,
    last_answer: Option<Nanos>,
    next_beat: Nanos,
    stopped: bool,
    watch: Option<RequestId>,
    waiting: BTreeMap<RequestId, (Purpose, Nanos)>,
    requests: u64,
    outputs: VecDeque<Output>,
}

impl Member {
    /// A member that follows. Its first time-out is at once.
    pub fn new(settings: Settings, now: Nanos) -> Member {
        Member {
            settings,
            now,
            lease: None,
            won: None,
            leader: None,
            known_at: 0,
            went_back: false,
            format_at: 0,
            unknown_format: None,
            position: Position::Follow { leader: None },
            since: now,
            last_answer: None,
            next_beat: now,
            stopped: false,
            watch: None,
            waiting: BTreeMap::new(),
            requests: 0,
            outputs: VecDeque::new(),
        }
    }

    /// What the member is, and since when.
    pub fn position(&self) -> (&Position, Nanos) {
        (&self.position, self.since)
    }

    /// Whether the member leads at this time and etcd confirms it. A process that was stopped for a while should ask
    /// before it acts.
    pub fn leads_at(&self, now: Nanos) -> bool {
        self.position.is_lead() && self.lease.is_some_and(|lease| now < lease.ends)
    }

    /// When etcd has last answered.
    pub fn last_answer(&self) -> Option<Nanos> {
        self.last_answer
    }

    /// Handles what the member learns.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Answered { id, answer } => {
                let Some((purpose, sent)) = self.waiting.remove(&id) else { return };
                self.answered(purpose, sent, answer);
            }
            Input::Changed { id, changes } if self.watch == Some(id) => match changes {
                Ok(changes) => changes.into_iter().for_each(|change| self.changed(change)),
                // The next heartbeat reads the key and watches it again.
                Err(_) => self.watch = None,
            },
            Input::Changed { .. } => {}
            Input::RefusedBySwitch => {
                // While etcd confirms the lease, no newer leader can exist. One switch must not depose this one.
                if matches!(self.position, Position::Unconfirmed { .. }) {
                    self.set_position(Position::Follow { leader: None });
                    self.next_beat = self.now;
                }
            }
            Input::Stop => self.stop(),
        }
        self.decide();
    }

    /// When to call [`Member::handle_timeout`].
    pub fn poll_timeout(&self) -> Nanos {
        let lease = self.lease.filter(|_| self.position.is_lead()).map_or(Nanos::MAX, |lease| lease.ends);
        let beat = if self.stopped { Nanos::MAX } else { self.next_beat };
        beat.min(lease)
    }

    /// Handles time-outs that are due.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        // The end of a lease comes first: nothing is sent between it and the decision.
        self.decide();
        if !self.stopped && self.now >= self.next_beat {
            self.next_beat = self.now + self.settings.beat();
            self.beat();
        }
    }

    /// What the driver must do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn beat(&mut self) {
        let oldest = self.now.saturating_sub(Nanos(Nanos::from_secs(self.settings.ttl_s).0 * FORGOTTEN_AFTER));
        self.waiting.retain(|_, (_, sent)| *sent >= oldest);
        match self.lease {
            None => self.grant(),
            Some(Lease { id, .. }) => {
                self.request(Purpose::KeepAlive(id), Request::KeepAlive(id));
                self.campaign();
            }
        }
    }

    fn request(&mut self, purpose: Purpose, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        if !matches!(request, Request::Watch { .. }) {
            self.waiting.insert(id, (purpose, self.now));
        }
        self.outputs.push_back(Output::Request { id, request });
        id
    }

    fn grant(&mut self) {
        self.request(Purpose::Grant, Request::Grant { ttl_s: self.settings.ttl_s });
    }

    /// Becomes the leader if there is none and the format of the keys is the known one, and otherwise reads both keys. The
    /// format is a condition, because another leader may change it while this member stands still or is cut off.
    fn campaign(&mut self) {
        let Some(Lease { id, .. }) = self.lease.filter(|_| !self.stopped) else { return };
        let key = self.settings.leader_key();
        let put = Operation::Put { key: key.clone(), value: self.settings.name.clone().into_bytes(), lease: Some(id) };
        let transaction = Transaction {
            conditions: vec![
                Condition::Created { key: key.clone(), at: 0 },
                Condition::Changed { key: self.settings.format_key(), at: self.format_at },
            ],
            then: vec![put],
            otherwise: [key, self.settings.format_key()].map(|key| Operation::Range(Keys::One(key))).into(),
        };
        let purpose = Purpose::Campaign { lease: id, known_at: self.known_at };
        self.request(purpose, Request::Transact(transaction));
    }

    fn answered(&mut self, purpose: Purpose, sent: Nanos, answer: Result<Answer, Failure>) {
        if answer.is_ok() {
            self.last_answer = Some(self.now);
        }
        match (purpose, answer) {
            // If a second grant was requested because the first was late, the unused lease ends by itself.
            (Purpose::Grant, Ok(Answer { body: Body::Granted { lease, ttl_s }, .. }))
                if self.lease.is_none() && !self.stopped =>
            {
                self.lease = Some(Lease { id: lease, ends: self.end_of_lease(sent, ttl_s) });
                self.campaign();
            }
            (Purpose::KeepAlive(id), Ok(Answer { body: Body::KeptAlive { ttl_s }, .. })) => {
                if ttl_s == 0 {
                    return self.lost(id);
                }
                let ends = self.end_of_lease(sent, ttl_s);
                self.lease
                    .iter_mut()
                    .filter(|lease| lease.id == id)
                    .for_each(|lease| lease.ends = lease.ends.max(ends));
            }
            (Purpose::Campaign { lease, known_at }, Ok(Answer { revision, body: Body::Done { held, found } })) => {
                self.compare(known_at, revision);
                self.campaigned(lease, revision, held, found);
            }
            (Purpose::Campaign { lease, .. }, Err(Failure::NoLease)) => self.lost(lease),
            _ => {}
        }
    }

    /// When a lease may end that etcd has renewed after this time.
    fn end_of_lease(&self, sent: Nanos, ttl_s: u64) -> Nanos {
        let ttl = Nanos::from_secs(ttl_s).0;
        sent + Nanos(ttl - ttl * self.settings.drift_permille.min(1000) / 1000)
    }

    /// Handles a lease that etcd does not have any more, and so neither its keys.
    fn lost(&mut self, id: LeaseId) {
        if self.lease.is_some_and(|lease| lease.id == id) {
            (self.lease, self.won) = (None, None);
            if !self.stopped {
                self.grant();
            }
        }
    }

    /// Compares the revision of a transaction with one that was known before it was sent. Etcd handles it later, so its
    /// revision can only be greater, unless etcd has lost what happened since a backup.
    fn compare(&mut self, known_at: u64, revision: u64) {
        let went_back = revision < known_at;
        if went_back && !self.went_back {
            self.outputs.push_back(Output::WentBack { from: known_at, to: revision });
        }
        self.went_back = went_back;
    }

    fn campaigned(&mut self, lease: LeaseId, revision: u64, held: bool, found: Vec<Vec<KeyValue>>) {
        if revision >= self.known_at {
            self.known_at = revision;
            if held {
                self.owner(&self.settings.name.clone(), revision, Some(lease));
            } else {
                let mut keys = found.into_iter().map(|keys| keys.into_iter().next());
                match keys.next().flatten() {
                    Some(key) => self.owner(&String::from_utf8_lossy(&key.value), key.create_revision, key.lease),
                    None => (self.won, self.leader) = (None, None),
                }
                self.learn_format(keys.next().flatten());
            }
        }
        if self.watch.is_none() && !self.stopped {
            let (keys, from) = (Keys::One(self.settings.leader_key()), revision + 1);
            self.watch = Some(self.request(Purpose::Other, Request::Watch { keys, from }));
        }
    }

    /// Notes the format of the keys. If it is another one than before and nobody leads, the member tries at once again.
    fn learn_format(&mut self, key: Option<KeyValue>) {
        let is_known = format::of_key(key.as_ref()).is_some_and(|format| format <= self.settings.format);
        let at = key.as_ref().map_or(0, |key| key.mod_revision);
        if is_known {
            self.unknown_format = None;
            if std::mem::replace(&mut self.format_at, at) != at && self.won.is_none() && self.leader.is_none() {
                self.campaign();
            }
            return;
        }
        let says = key.map(|key| String::from_utf8_lossy(&key.value).into_owned());
        if says != self.unknown_format {
            self.outputs.extend(says.clone().map(Output::UnknownFormat));
            self.unknown_format = says;
        }
    }

    /// Notes whose the key of the leader is.
    fn owner(&mut self, name: &str, created: u64, lease: Option<LeaseId>) {
        let token = Token(created);
        // An earlier process of this member had another lease.
        let is_own = lease.is_some() && self.lease.map(|own| own.id) == lease;
        self.won = is_own.then_some(token);
        self.leader = (!is_own).then(|| Leader { name: name.to_owned(), token });
    }

    fn changed(&mut self, change: Change) {
        if change.revision() <= self.known_at || change.key() != self.settings.leader_key() {
            return;
        }
        self.known_at = change.revision();
        match change {
            Change::Set(key) => self.owner(&String::from_utf8_lossy(&key.value), key.create_revision, key.lease),
            Change::Deleted { .. } => {
                (self.won, self.leader) = (None, None);
                self.campaign();
            }
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.won = None;
        // The decision is taken before etcd lets another member lead.
        self.set_position(Position::Follow { leader: self.leader.clone() });
        if let Some(Lease { id, .. }) = self.lease.take() {
            self.request(Purpose::Other, Request::Revoke(id));
        }
    }

    fn decide(&mut self) {
        let is_confirmed = self.lease.is_some_and(|lease| self.now < lease.ends);
        let next = match (self.won, self.position.token()) {
            (Some(token), _) if is_confirmed => Position::Lead { token },
            // Only a later leader can have changed the format.
            (_, Some(token)) if self.leader.is_none() && self.unknown_format.is_none() && !self.stopped => {
                Position::Unconfirmed { token }
            }
            _ => Position::Follow { leader: self.leader.clone() },
        };
        self.set_position(next);
    }

    fn set_position(&mut self, next: Position) {
        if self.position != next {
            self.since = self.now;
            self.position = next.clone();
            self.outputs.push_back(Output::Position(next));
        }
    }
}
