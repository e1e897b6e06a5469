//! Answers to requests for paths. The controller answers a request of the API at once. (Host agents send the same
//! requests over their own connections, see [`crate::hub::hosts`].)

use pathloom_control::{Output, Owner};
use pathloom_model::{Address, Nanos};
use std::collections::VecDeque;

/// Marks the numbers of requests of the API. Those of agents count from 1.
const API_REQUEST: u64 = 1 << 63;
/// Maximum time that the answer to an assignment waits until a switch has confirmed the rules that show its
/// connections to the controller.
pub const CONFIRMATION: Nanos = Nanos::from_secs(1);

/// Answers to requests, and those that wait.
pub(crate) struct Assigning {
    last: u64,
    answer: Option<Output>,
    /// Changes of assignments so far.
    changes: u64,
    /// Answers that wait until switches will send the first packets of these addresses to the controller.
    waiting: Vec<(Address, WaitingAnswer)>,
    /// Calls of the API that need not wait any more.
    visible: VecDeque<u64>,
    calls: u64,
}

/// An answer that waits until the first packets of an address will come to the controller.
enum WaitingAnswer {
    /// The answer to a call of the API with this number. It waits until a time.
    Call(u64, Nanos),
    /// The answer to an agent.
    Agent(Output),
}

impl Default for Assigning {
    fn default() -> Assigning {
        let (waiting, visible) = (Vec::new(), VecDeque::new());
        Assigning { last: API_REQUEST, answer: None, changes: 0, waiting, visible, calls: 0 }
    }
}

impl Assigning {
    /// Begins a request of the API. Returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.last = API_REQUEST | self.last.wrapping_add(1);
        self.answer = None;
        self.last
    }

    /// The answer to the latest request of the API.
    pub(crate) fn take_answer(&mut self) -> Option<Output> {
        self.answer.take()
    }

    /// Notes a change that must be stored before its caller gets an answer.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Number of changes so far that must be stored: of assignments, and of what is out of service. A driver that stores the state does so when the number has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Handles the answer to a request. Keeps it if the request came from the API, otherwise returns it.
    pub(crate) fn answered(&mut self, request: u64, output: Output) -> Option<Output> {
        let changed =
            matches!(output, Output::Assigned { answer: Ok(_), .. } | Output::Released { answer: Ok(()), .. });
        self.changes += u64::from(changed);
        if request < API_REQUEST {
            return Some(output);
        }
        if request == self.last {
            self.answer = Some(output);
        }
        None
    }
    /// Notes a call of the API that waits until a time at most. Returns its number.
    pub(crate) fn call_waits(&mut self, src: Address, until: Nanos) -> u64 {
        self.calls += 1;
        self.waiting.push((src, WaitingAnswer::Call(self.calls, until)));
        self.calls
    }

    /// Notes an answer to an agent that waits.
    pub(crate) fn agent_waits(&mut self, src: Address, answer: Output) {
        self.waiting.push((src, WaitingAnswer::Agent(answer)));
    }

    /// Takes the answers to agents that need not wait any more. `is_seen`: whether the controller sees the connections
    /// that the host of an address opens.
    pub(crate) fn seen(&mut self, now: Nanos, is_seen: impl Fn(Address) -> bool) -> Vec<Output> {
        let is_ready = |(src, waiting): &mut (Address, WaitingAnswer)| {
            // The driver no longer waits for a call that is late.
            matches!(waiting, WaitingAnswer::Call(_, until) if *until < now) || is_seen(*src)
        };
        let mut answers = Vec::new();
        for (_, waiting) in self.waiting.extract_if(.., is_ready) {
            match waiting {
                WaitingAnswer::Call(call, _) => self.visible.push_back(call),
                WaitingAnswer::Agent(answer) => answers.push(answer),
            }
        }
        answers
    }

    /// A call of the API that need not wait any more.
    pub(crate) fn poll_visible(&mut self) -> Option<u64> {
        self.visible.pop_front()
    }
}

/// Owner of the assignments of a host. A caller that may act for the host, by its address, by its agent or by a
/// token, acts as this owner.
pub(crate) fn owner_of(host: Address) -> Owner {
    Owner(format!("host {host}"))
}
