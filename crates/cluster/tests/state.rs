//! A leader stores states while requests and answers are lost and delayed, and leaders change.

use pathloom_cluster::etcd::{Body, Condition, Failure, Keys, Operation, Request, Transaction};
use pathloom_cluster::model::Etcd;
use pathloom_cluster::state::{Found, Progress, Reader, Writer};
use pathloom_cluster::{Settings, Token};
use pathloom_model::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const PART_BYTES: usize = 8;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Answered,
    Lost,
    /// It is carried out, and its answer is lost.
    Unanswered,
    /// It is carried out later, and its answer is lost.
    Delayed,
}

struct Scene {
    settings: Settings,
    etcd: Etcd,
    rng: Pcg64Mcg,
    writer: Writer,
    /// Requests that are still on their way.
    delayed: Vec<Request>,
    /// Number of the last state that was begun, and of the last one that was answered as stored.
    begun: u64,
    stored: u64,
}

/// A state with a number, one to five parts long.
fn state(number: u64) -> Vec<u8> {
    format!("{number}{}", "-".repeat(usize::try_from(number % 5).unwrap() * PART_BYTES)).into_bytes()
}

fn elect(etcd: &mut Etcd, settings: &Settings) -> Token {
    let key = settings.leader_key();
    for then in
        [Operation::Delete(Keys::One(key.clone())), Operation::Put { key: key.clone(), value: Vec::new(), lease: None }]
    {
        let request = Request::Transact(Transaction { then: vec![then], ..Transaction::default() });
        etcd.handle(Nanos::ZERO, &request).unwrap();
    }
    Token(etcd.keys().find(|one| one.key == key).unwrap().create_revision)
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (settings, mut etcd) = (Settings::new("a", "/pathloom/", 2), Etcd::new());
        let token = elect(&mut etcd, &settings);
        let writer = Writer::new(&settings, token).with_part_bytes(PART_BYTES);
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Scene { settings, etcd, rng, writer, delayed: Vec::new(), begun: 0, stored: 0 }
    }

    fn fate(&mut self) -> Fate {
        match self.rng.random_range(0..10) {
            0 => Fate::Lost,
            1 => Fate::Unanswered,
            2 => Fate::Delayed,
            _ => Fate::Answered,
        }
    }

    fn late_requests(&mut self) {
        while !self.delayed.is_empty() && self.rng.random_range(0..3) == 0 {
            let at = self.rng.random_range(0..self.delayed.len());
            let request = self.delayed.swap_remove(at);
            self.etcd.handle(Nanos::ZERO, &request).unwrap();
            self.check();
        }
    }

    /// Stores the next state, as far as etcd answers.
    fn save(&mut self) -> Result<Progress, Failure> {
        self.begun += 1;
        let bytes = state(self.begun);
        self.writer.begin();
        loop {
            self.late_requests();
            let request = self.writer.request(&bytes);
            let answer = match self.fate() {
                Fate::Answered => self.etcd.handle(Nanos::ZERO, &request),
                Fate::Lost => Err(Failure::Unanswered),
                Fate::Unanswered => {
                    self.etcd.handle(Nanos::ZERO, &request).unwrap();
                    Err(Failure::Unanswered)
                }
                Fate::Delayed => {
                    self.delayed.push(request);
                    // A driver that no longer waits does not pass the failure on.
                    if self.rng.random_range(0..2) == 0 {
                        return Err(Failure::Unanswered);
                    }
                    Err(Failure::Unanswered)
                }
            };
            self.check();
            match self.writer.handle(&bytes, answer)? {
                Progress::More => {}
                Progress::Stored => {
                    self.stored = self.begun;
                    self.check();
                    return Ok(Progress::Stored);
                }
                Progress::Deposed => return Ok(Progress::Deposed),
            }
        }
    }

    /// Stores a state while etcd answers everything. Returns the requests.
    fn save_at_once(&mut self, bytes: &[u8]) -> Vec<Request> {
        let mut requests = Vec::new();
        self.writer.begin();
        loop {
            let request = self.writer.request(bytes);
            let answer = self.etcd.handle(Nanos::ZERO, &request);
            requests.push(request);
            if self.writer.handle(bytes, answer).unwrap() == Progress::Stored {
                return requests;
            }
        }
    }

    /// What the next leader would read.
    fn read(&mut self) -> Found {
        let mut reader = Reader::new(&self.settings);
        loop {
            let found = reader.handle(self.etcd.handle(Nanos::ZERO, &reader.request())).unwrap();
            if found != Found::More {
                return found;
            }
        }
    }

    /// A leader that is killed now leaves the last state that was answered as stored, or a later one.
    fn check(&mut self) {
        let number = match self.read() {
            Found::Nothing => 0,
            Found::State(bytes) => {
                let text = String::from_utf8(bytes).unwrap();
                let number = text.trim_end_matches('-').parse().unwrap();
                assert_eq!(text.as_bytes(), state(number));
                number
            }
            other => panic!("{other:?}"),
        };
        assert!((self.stored..=self.begun).contains(&number), "{number} of {}..={}", self.stored, self.begun);
    }
}

#[test]
fn whatever_is_lost_or_late_the_state_is_whole_and_not_older_than_the_last_answer() {
    let (mut stored, mut failed, mut late) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut scene = Scene::new(seed);
        for _ in 0..20 {
            match scene.save() {
                Ok(progress) => {
                    assert_eq!(progress, Progress::Stored, "seed {seed}: nobody else leads");
                    stored += 1;
                }
                Err(_) => failed += 1,
            }
            late += scene.delayed.len();
            if scene.rng.random_range(0..8) == 0 {
                let token = elect(&mut scene.etcd, &scene.settings);
                scene.writer.renew(token);
            }
        }
    }
    assert!(stored > 10_000 && failed > 10_000 && late > 10_000, "{stored} {failed} {late}");
}

#[test]
fn a_deposed_leader_stores_nothing() {
    let mut scene = Scene::new(1);
    while scene.save() != Ok(Progress::Stored) {}
    let before = scene.read();
    elect(&mut scene.etcd, &scene.settings);
    while scene.save() != Ok(Progress::Deposed) {}
    assert_eq!(scene.read(), before);
}

#[test]
fn a_state_of_one_part_is_one_request() {
    let mut scene = Scene::new(1);
    let requests: Vec<Request> = (0..3).flat_map(|_| scene.save_at_once(&state(5))).collect();
    assert_eq!(requests.len(), 4, "the head is read once, and then there is one write for a state");
    let Request::Transact(last) = &requests[3] else { panic!() };
    assert!(last.conditions.iter().any(|one| matches!(one, Condition::Created { key, .. } if key.ends_with("leader"))));
}

#[test]
fn an_unexpected_answer_and_a_damaged_state_are_named() {
    let mut scene = Scene::new(1);
    let answer = pathloom_cluster::etcd::Answer { revision: 1, body: Body::Revoked };
    scene.writer.begin();
    scene.writer.request(b"state");
    assert!(matches!(scene.writer.handle(b"state", Ok(answer)), Err(Failure::Other(why)) if why.contains("Revoked")));
    for damage in ["no JSON", r#"{"place":0,"parts":1,"bytes":5,"sha256":"00"}"#] {
        let put = Operation::Put { key: "/pathloom/state/head".into(), value: damage.into(), lease: None };
        let request = Request::Transact(Transaction { then: vec![put], ..Transaction::default() });
        scene.etcd.handle(Nanos::ZERO, &request).unwrap();
        assert_eq!(scene.read(), Found::Damaged("/pathloom/state/head".into()));
        // The next leader writes over it.
        scene.writer = Writer::new(&scene.settings, scene.writer.token());
        scene.save_at_once(b"state");
        assert_eq!(scene.read(), Found::State(b"state".to_vec()));
    }
}
