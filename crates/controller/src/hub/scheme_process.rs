//! The process of a scheme that is no part of the controller, such as one in Python, as a state machine: it says when to start
//! and stop the process and what to write, and takes lines and the time. `drivers::process` has the process and its pipe.

use crate::config::{CheckedProcess, Launch};
use pathloom_control::DurationHistogram;
use pathloom_model::{Fabric, Nanos};
use pathloom_scheme::remote::{Answer, Ask, Greeting, Order, Told, PROTOCOL};
use pathloom_scheme::Needs;
use std::collections::VecDeque;

/// How long a process may take to say its first line.
pub(crate) const START_WITHIN: Nanos = Nanos::from_secs(30);
/// Events that may wait for a process. One that falls so far behind decides on flows that are long over.
const MOST_WAITING: usize = 10_000;
/// How long to wait before the first new start. The time doubles with each failure.
const FIRST_PAUSE: Nanos = Nanos::from_secs(1);
/// The longest wait before a new start.
const LONGEST_PAUSE: Nanos = Nanos::from_secs(60);
/// A process that ran this long has recovered: the next failure counts as the first.
const RECOVERED: Nanos = Nanos::from_secs(60);

/// What the driver of the process must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Start the process, or connect to it, in this way. Its lines have this number.
    Start(u64, Launch),
    /// Write a line to it.
    Write(String),
    /// Kill it.
    Stop,
}

/// What the process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// There is none until this time.
    Down(Nanos),
    /// It was started at this time, and has not greeted.
    Starting(Nanos),
    /// It takes events since this time.
    Up(Nanos),
}

/// An event that the process has not answered.
struct Waiting {
    ticket: u64,
    /// When it was sent, or when the one before it was answered.
    since: Nanos,
}

/// What the processes of a scheme have done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcessCounts {
    /// Processes that were started.
    pub starts: u64,
    /// Events that were answered.
    pub answered: u64,
    /// Events at which the scheme had an error.
    pub errors: u64,
    /// Events that were never answered, because the process ended.
    pub lost: u64,
    /// Processes that were ended because an answer took too long.
    pub late: u64,
    /// Times from an event, or from the answer to the one before if that was later, to its answer.
    pub times: DurationHistogram,
}

/// The process of a scheme.
pub(crate) struct SchemeProcess {
    name: String,
    launch: Launch,
    hello: String,
    needs: Needs,
    answer_within: Nanos,
    stage: Stage,
    counts: ProcessCounts,
    /// Failures in a row.
    failures: u32,
    waiting: VecDeque<Waiting>,
    /// Lines for the first process, which has not greeted yet.
    early: Vec<String>,
    /// Ticket of [`Order::Watch`].
    watch: Option<u64>,
    outputs: VecDeque<Output>,
    answers: VecDeque<(u64, Answer)>,
    /// What has ended the last process.
    problem: Option<String>,
}

impl SchemeProcess {
    /// A process that starts at the first time-out. It has told its needs.
    pub(crate) fn new(checked: &CheckedProcess, fabric: &Fabric) -> SchemeProcess {
        let CheckedProcess { label, launch, answer_within, .. } = checked;
        SchemeProcess::of(label.clone(), launch.clone(), checked.hello(fabric), checked.needs(), *answer_within)
    }

    /// The same. `hello` is the first line for it, `needs` are those that the controller knows.
    fn of(name: String, launch: Launch, hello: String, needs: Needs, answer_within: Nanos) -> SchemeProcess {
        SchemeProcess {
            name,
            launch,
            hello,
            needs,
            answer_within,
            stage: Stage::Down(Nanos::ZERO),
            counts: ProcessCounts::default(),
            failures: 0,
            waiting: VecDeque::new(),
            early: Vec::new(),
            watch: None,
            outputs: VecDeque::new(),
            answers: VecDeque::new(),
            problem: None,
        }
    }

    /// The first line for it.
    pub(crate) fn hello(&self) -> &str {
        &self.hello
    }

    /// What the process does.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// What has been done so far.
    pub(crate) fn counts(&self) -> &ProcessCounts {
        &self.counts
    }

    /// What has ended the last process.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Number of events without an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes an order of the scheme.
    pub(crate) fn order(&mut self, now: Nanos, ticket: u64, order: Order) {
        let request = match order {
            Order::Watch => return self.watch = Some(ticket),
            Order::Ask(request) => *request,
        };
        let is_up = matches!(self.stage, Stage::Up(_));
        if !is_up && self.problem.is_some() {
            return self.answers.push_back((ticket, Answer::Lost));
        }
        self.waiting.push_back(Waiting { ticket, since: now });
        match serde_json::to_string(&Ask { id: ticket, request }) {
            Ok(line) if is_up => self.outputs.push_back(Output::Write(line)),
            Ok(line) => self.early.push(line),
            Err(problem) => self.fail(now, &format!("an event has no form in JSON: {problem}")),
        }
        if self.waiting.len() > MOST_WAITING {
            self.fail(now, &format!("more than {MOST_WAITING} events wait for it"));
        }
    }

    /// Takes a line of the process with this number.
    pub(crate) fn line(&mut self, now: Nanos, run: u64, line: &str) {
        if run != self.counts.starts {
            return;
        }
        match self.stage {
            Stage::Down(_) => {}
            Stage::Starting(_) => match self.check_greeting(line) {
                Ok(()) => self.greeted(now),
                Err(problem) => self.fail(now, &problem),
            },
            Stage::Up(_) => {
                if let Err(problem) = self.take_reply(now, line) {
                    self.fail(now, &problem);
                }
            }
        }
    }

    fn check_greeting(&self, line: &str) -> Result<(), String> {
        self.check_needs(read_greeting(line)?.needs)
    }

    /// Whether the controller serves these needs.
    ///
    /// # Errors
    /// They are others than those that the process told at the start.
    pub(crate) fn check_needs(&self, needs: Needs) -> Result<(), String> {
        match needs == self.needs {
            true => Ok(()),
            false => Err("its needs are others than at the start of the controller; restart the controller".to_owned()),
        }
    }

    fn greeted(&mut self, now: Nanos) {
        tracing::info!(scheme = self.name, starts = self.counts.starts, "the process of the scheme takes events");
        self.stage = Stage::Up(now);
        self.waiting.iter_mut().for_each(|one| one.since = now);
        self.outputs.extend(self.early.drain(..).map(Output::Write));
        // The first process has missed nothing.
        if let Some(ticket) = self.watch.take_if(|_| self.problem.is_some()) {
            self.answers.push_back((ticket, Answer::Up));
        }
    }

    fn take_reply(&mut self, now: Nanos, line: &str) -> Result<(), String> {
        let Told { id, reply } = serde_json::from_str(line)
            .map_err(|problem| format!("it wrote a line that is no reply: {problem}: {}", short(line)))?;
        if self.waiting.front().is_none_or(|first| first.ticket != id) {
            return Err(format!("it answered event {id} out of turn"));
        }
        if let Some(first) = self.waiting.pop_front() {
            self.counts.answered += 1;
            self.counts.times.add(now.saturating_sub(first.since));
        }
        if let Some(next) = self.waiting.front_mut() {
            next.since = now;
        }
        if let Some(error) = &reply.error {
            self.counts.errors += 1;
            // Powers of two: a scheme may fail at each event.
            if self.counts.errors.is_power_of_two() {
                tracing::warn!(
                    scheme = self.name,
                    times = self.counts.errors,
                    error,
                    "the scheme failed; flows stay where they are"
                );
            }
        }
        self.answers.push_back((id, Answer::Reply(reply)));
        Ok(())
    }

    /// The process with this number has ended, or could not be started.
    pub(crate) fn ended(&mut self, now: Nanos, run: u64, why: &str) {
        if run == self.counts.starts && !matches!(self.stage, Stage::Down(_)) {
            self.fail(now, why);
        }
    }

    /// When [`SchemeProcess::timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        match self.stage {
            Stage::Down(until) => Some(until),
            Stage::Starting(since) => Some(since.saturating_add(START_WITHIN)),
            Stage::Up(_) => self.waiting.front().map(|first| first.since.saturating_add(self.answer_within)),
        }
    }

    /// Starts a process for which it is time, and ends one that hangs.
    pub(crate) fn timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match self.stage {
            Stage::Down(_) => {
                self.counts.starts += 1;
                self.stage = Stage::Starting(now);
                let start = Output::Start(self.counts.starts, self.launch.clone());
                self.outputs.extend([start, Output::Write(self.hello.clone())]);
            }
            Stage::Starting(_) => {
                self.fail(now, &format!("it has not greeted within {} s", START_WITHIN.as_secs_f64()));
            }
            Stage::Up(_) => {
                self.counts.late += 1;
                let within_s = self.answer_within.as_secs_f64();
                self.fail(now, &format!("it has not answered an event within {within_s} s"));
            }
        }
    }

    /// Ends the process, and waits before the next one.
    fn fail(&mut self, now: Nanos, why: &str) {
        let ran = match self.stage {
            Stage::Up(since) => now.saturating_sub(since),
            _ => Nanos::ZERO,
        };
        self.failures = if ran >= RECOVERED { 0 } else { self.failures };
        let pause = Nanos(FIRST_PAUSE.0 << self.failures.min(6)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.end(now.saturating_add(pause), why);
        let (scheme, again_s) = (&self.name, pause.as_secs_f64());
        tracing::warn!(scheme, why, again_s, "the process of the scheme is gone; default routes and paths stay");
    }

    /// Begins anew with a process of these settings, for a scheme of the same name and needs. It gets the state of the one
    /// before, and no path changes until it says so.
    pub(crate) fn reload(&mut self, now: Nanos, launch: Launch, answer_within: Nanos) {
        (self.launch, self.answer_within) = (launch, answer_within);
        self.failures = 0;
        self.end(now, "the configuration was read again");
    }

    /// Ends the process. Its events count as lost. The next one starts at `next`.
    fn end(&mut self, next: Nanos, why: &str) {
        self.stage = Stage::Down(next);
        self.problem = Some(why.to_owned());
        // What was to be written is for the process that ends.
        self.outputs.retain(|output| !matches!(output, Output::Write(_)));
        self.early.clear();
        self.outputs.push_back(Output::Stop);
        self.counts.lost += self.waiting.len() as u64;
        self.answers.extend(self.waiting.drain(..).map(|one| (one.ticket, Answer::Lost)));
    }

    /// What the driver must do next.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether the driver must do something.
    pub(crate) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// An answer for the scheme, and its ticket.
    pub(crate) fn poll_answer(&mut self) -> Option<(u64, Answer)> {
        self.answers.pop_front()
    }
}

/// Reads the first line of a process.
pub(crate) fn read_greeting(line: &str) -> Result<Greeting, String> {
    // The version comes first: other fields may differ in others.
    let version = serde_json::from_str::<serde_json::Value>(line).ok().and_then(|line| line.get("protocol")?.as_u64());
    match version {
        Some(version) if version == u64::from(PROTOCOL) => serde_json::from_str(line)
            .map_err(|problem| format!("its greeting cannot be read: {problem}: {}", short(line))),
        Some(version) => Err(format!("it speaks version {version} of the protocol; expected {PROTOCOL}")),
        None => Err(format!("its first line is no greeting: {}", short(line))),
    }
}

/// The beginning of a line.
fn short(line: &str) -> String {
    const MOST: usize = 80;
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProcessCommand;
    use pathloom_scheme::remote::{Reply, Request, ViewChange};
    use pathloom_scheme::Event;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * SECOND)
    }

    fn greeting(needs: Needs) -> String {
        serde_json::to_string(&Greeting { protocol: PROTOCOL, needs }).unwrap()
    }

    fn process() -> SchemeProcess {
        SchemeProcess::of("x.py".into(), launch("python3"), "hello".into(), Needs::NOTHING, at(5))
    }

    fn start(number: u64) -> Output {
        Output::Start(number, launch("python3"))
    }

    fn launch(program: &str) -> Launch {
        Launch::Start(ProcessCommand { program: program.into(), arguments: Vec::new(), user: None })
    }

    fn ask() -> Order {
        let view = ViewChange::default();
        Order::Ask(Box::new(Request { now: at(1), view, restore: None, event: Event::Started }))
    }

    fn reply(id: u64) -> String {
        serde_json::to_string(&Told { id, reply: Reply::default() }).unwrap()
    }

    /// Starts a process, which greets.
    fn up(process: &mut SchemeProcess, now: Nanos) {
        process.timeout(now);
        let started = process.counts().starts;
        assert_eq!(outputs(process), [start(started), Output::Write("hello".into())]);
        process.line(now, started, &greeting(Needs::NOTHING));
        assert_eq!(process.stage(), Stage::Up(now));
    }

    fn outputs(process: &mut SchemeProcess) -> Vec<Output> {
        std::iter::from_fn(|| process.poll_output()).collect()
    }

    fn answers(process: &mut SchemeProcess) -> Vec<(u64, Answer)> {
        std::iter::from_fn(|| process.poll_answer()).collect()
    }

    #[test]
    fn events_are_answered_in_order() {
        let mut process = process();
        process.order(at(0), 1, Order::Watch);
        process.order(at(0), 2, ask());
        // The first process gets also what happened before it greeted.
        process.timeout(at(0));
        assert_eq!(outputs(&mut process), [start(1), Output::Write("hello".into())]);
        process.line(at(1), 1, &greeting(Needs::NOTHING));
        assert!(matches!(&outputs(&mut process)[..], [Output::Write(line)] if line.contains("\"id\":2")));
        assert_eq!(process.poll_timeout(), Some(at(6)));
        process.line(at(1), 1, &reply(2));
        assert_eq!(answers(&mut process), [(2, Answer::Reply(Reply::default()))]);
        process.order(at(1), 3, ask());
        process.order(at(1), 4, ask());
        assert!(
            matches!(&outputs(&mut process)[..], [Output::Write(a), Output::Write(b)] if a.contains("\"id\":3") && b.contains("\"id\":4"))
        );
        process.line(at(5), 1, &reply(3));
        // The time of the second event begins when the first one is answered.
        assert_eq!(process.poll_timeout(), Some(at(10)));
        process.line(at(6), 1, &reply(4));
        assert_eq!(answers(&mut process), [3, 4].map(|id| (id, Answer::Reply(Reply::default()))));
        assert_eq!((process.poll_timeout(), process.problem()), (None, None));
    }

    #[test]
    fn events_before_a_first_process_that_fails_are_lost() {
        let mut process = process();
        process.timeout(at(1));
        process.order(at(1), 2, ask());
        process.ended(at(1), 1, "no such file");
        process.order(at(1), 3, ask());
        assert_eq!(answers(&mut process), [(2, Answer::Lost), (3, Answer::Lost)]);
        assert_eq!(outputs(&mut process), [start(1), Output::Stop]);
        up(&mut process, at(2));
        assert_eq!(outputs(&mut process), []);
    }

    #[test]
    fn a_process_that_hangs_or_ends_or_talks_nonsense_is_started_again() {
        let nonsense = "{\"id\":1}".to_owned();
        let deaf: [&dyn Fn(&mut SchemeProcess); 4] = [
            &|process| process.timeout(at(6)),
            &|process| process.ended(at(6), 1, "its output ended"),
            &|process| process.line(at(6), 1, &nonsense),
            &|process| process.line(at(6), 1, &reply(9)),
        ];
        for (fails, words) in deaf.iter().zip(["within 5 s", "its output ended", "is no reply", "out of turn"]) {
            let mut process = process();
            up(&mut process, at(1));
            process.order(at(1), 1, Order::Watch);
            process.order(at(1), 2, ask());
            outputs(&mut process);
            fails(&mut process);
            assert_eq!((outputs(&mut process), answers(&mut process)), (vec![Output::Stop], vec![(2, Answer::Lost)]));
            assert!(process.problem().unwrap().contains(words), "{:?}", process.problem());
            assert_eq!(process.poll_timeout(), Some(at(7)));
            // What the old process still says has no effect on the new one.
            process.line(at(6), 1, &reply(2));
            up(&mut process, at(7));
            assert_eq!(answers(&mut process), [(1, Answer::Up)]);
            process.ended(at(7), 1, "late");
            assert_eq!(process.stage(), Stage::Up(at(7)));
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute_until_a_process_lasts() {
        let mut process = process();
        let (mut now, mut pauses) = (at(1), Vec::new());
        for _ in 0..8 {
            process.timeout(now);
            outputs(&mut process);
            process.ended(now, process.counts().starts, "no such file");
            outputs(&mut process);
            let next = process.poll_timeout().unwrap();
            pauses.push((next.0 - now.0) / SECOND);
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        up(&mut process, now);
        let later = Nanos(now.0 + 61 * SECOND);
        process.ended(later, process.counts().starts, "it ended");
        assert_eq!(process.poll_timeout(), Some(Nanos(later.0 + SECOND)));
    }

    #[test]
    fn a_wrong_greeting_is_refused_with_its_cause() {
        let other = Needs { subflows: true, ..Needs::NOTHING };
        let newer = greeting(Needs::NOTHING).replace("\"protocol\":1", "\"protocol\":2");
        for (line, words) in [
            (greeting(other), "restart the controller"),
            (newer, "version 2"),
            ("Traceback".to_owned(), "no greeting: Traceback"),
            ("{\"protocol\":1}".to_owned(), "cannot be read"),
        ] {
            let mut process = process();
            process.timeout(at(1));
            process.line(at(1), 1, &line);
            assert!(process.problem().unwrap().contains(words), "{:?}", process.problem());
        }
        let mut process = process();
        process.timeout(at(1));
        process.timeout(at(31));
        assert!(process.problem().unwrap().contains("not greeted within 30 s"));
    }

    #[test]
    fn too_many_waiting_events_end_the_process() {
        let mut process = process();
        up(&mut process, at(1));
        (0..MOST_WAITING as u64).for_each(|ticket| process.order(at(1), ticket, ask()));
        assert_eq!((process.stage(), process.waiting()), (Stage::Up(at(1)), MOST_WAITING));
        process.order(at(1), 99_999, ask());
        assert_eq!(answers(&mut process).len(), MOST_WAITING + 1);
        assert_eq!((outputs(&mut process), process.waiting()), (vec![Output::Stop], 0));
    }

    #[test]
    fn a_reload_begins_with_the_new_command_at_once_and_without_a_failure() {
        let mut process = process();
        up(&mut process, at(1));
        process.order(at(1), 1, Order::Watch);
        process.order(at(2), 2, ask());
        outputs(&mut process);
        process.reload(at(3), launch("/new/python3"), at(5));
        assert_eq!((outputs(&mut process), answers(&mut process)), (vec![Output::Stop], vec![(2, Answer::Lost)]));
        process.timeout(at(3));
        let started = Output::Start(2, launch("/new/python3"));
        assert_eq!(outputs(&mut process), [started, Output::Write("hello".into())]);
        // The old one has no part in it any more.
        process.line(at(3), 1, &reply(2));
        process.line(at(4), 2, &greeting(Needs::NOTHING));
        assert_eq!(answers(&mut process), [(1, Answer::Up)]);
        // A failure now counts as the first.
        process.ended(at(4), 2, "it ended");
        assert_eq!(process.poll_timeout(), Some(at(5)));
    }

    #[test]
    fn answers_are_counted_and_timed() {
        let mut process = process();
        up(&mut process, at(1));
        (2..5).for_each(|ticket| process.order(at(2), ticket, ask()));
        process.line(at(3), 1, &reply(2));
        process.line(at(5), 1, &reply(3));
        process.timeout(at(10));
        let ProcessCounts { starts, answered, errors, lost, late, times } = *process.counts();
        assert_eq!((starts, answered, errors, lost, late), (1, 2, 0, 1, 1));
        assert_eq!((times.count(), times.sum), (2, at(3)));
    }
}
