//! Path assignments for the handlers of the API: a request goes to the controller, which answers at once. (Host
//! agents send the same requests over their own connections, see [`crate::hosts`].)

use crate::hosts::names;
use crate::hub::{Hub, Responder};
use pathloom_control::{
    AssignError, Assigned, AssignmentId, Assignments, ClaimKey, Input, Listed, Output, Owner, PathRequest,
};
use pathloom_model::{Fabric, Nanos, Path};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

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
    waiting: Vec<(Ipv4Addr, WaitingAnswer)>,
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
}

/// Owner of the assignments of a host. A caller that may act for the host, by its address, by its agent or by a
/// token, acts as this owner.
pub(crate) fn owner_of(host: Ipv4Addr) -> Owner {
    Owner(format!("host {host}"))
}

impl Hub {
    /// Sends the controller a request and takes its answer; `None` if no fabric is controlled.
    fn request(&mut self, now: Nanos, input: impl FnOnce(u64) -> Input) -> Option<Output> {
        self.controller()?;
        self.assigning.last = API_REQUEST | self.assigning.last.wrapping_add(1);
        self.assigning.answer = None;
        let input = input(self.assigning.last);
        self.handle(now, input);
        self.assigning.answer.take()
    }

    /// Assigns paths to an owner.
    pub fn assign_paths(
        &mut self,
        now: Nanos,
        owner: Owner,
        paths: PathRequest,
    ) -> Option<Result<Assigned, AssignError>> {
        match self.request(now, |request| Input::AssignPaths { request, owner, paths })? {
            Output::Assigned { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Claims the next path of an assignment.
    pub fn claim_path(
        &mut self,
        now: Nanos,
        owner: Owner,
        assignment: AssignmentId,
        connection: ClaimKey,
        (path, opens_to): (Option<u32>, Option<u16>),
    ) -> Option<Result<Path, AssignError>> {
        match self.request(now, |request| Input::ClaimPath {
            request,
            owner,
            assignment,
            connection,
            path,
            opens_to,
        })? {
            Output::Claimed { answer, .. } => answer.map(|claimed| claimed.paths.into_iter().next()).transpose(),
            _ => None,
        }
    }

    /// Releases an assignment.
    pub fn release_paths(
        &mut self,
        now: Nanos,
        owner: Owner,
        assignment: AssignmentId,
    ) -> Option<Result<(), AssignError>> {
        match self.request(now, |request| Input::ReleasePaths { request, owner, assignment })? {
            Output::Released { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Number of changes of assignments so far. A driver that stores the state does so when the number has changed.
    pub fn assignment_changes(&self) -> u64 {
        self.assigning.changes
    }

    /// Returns a number that [`Hub::poll_visible`] returns when the controller will see the connections that the host
    /// of this address opens, within [`CONFIRMATION`]. Before that, a connection could miss its path.
    pub fn when_visible(&mut self, now: Nanos, src: Ipv4Addr) -> u64 {
        let until = self.advance(now).saturating_add(CONFIRMATION);
        self.assigning.calls += 1;
        self.assigning.waiting.push((src, WaitingAnswer::Call(self.assigning.calls, until)));
        self.send_visible_answers();
        self.assigning.calls
    }

    /// A number that [`Hub::when_visible`] returned, and whose time has come.
    pub fn poll_visible(&mut self) -> Option<u64> {
        self.assigning.visible.pop_front()
    }

    /// Passes an answer to an agent. The answer to an assignment waits until its connections will be seen.
    pub(crate) fn tell_agent(&mut self, output: Output) {
        match output {
            Output::Assigned { answer: Ok(ref assigned), .. } => {
                let listed = self.assignment(assigned.assignment);
                match listed {
                    Some(listed) => self.assigning.waiting.push((listed.request.src, WaitingAnswer::Agent(output))),
                    None => self.hosts.carry_out(&output),
                }
            }
            _ => self.hosts.carry_out(&output),
        }
    }

    /// Sends the waiting answers whose connections will now be seen.
    pub(crate) fn send_visible_answers(&mut self) {
        if self.assigning.waiting.is_empty() {
            return;
        }
        let Responder::Fabric(controller) = &self.responder else { return };
        let now = self.now;
        let (ready, waiting) = std::mem::take(&mut self.assigning.waiting).into_iter().partition(|(src, waiting)| {
            let late = matches!(waiting, WaitingAnswer::Call(_, until) if *until < now);
            late || controller.sees_connections_of(*src)
        });
        self.assigning.waiting = waiting;
        let ready: Vec<(Ipv4Addr, WaitingAnswer)> = ready;
        for (_, waiting) in ready {
            match waiting {
                // The driver no longer waits for a call that is late.
                WaitingAnswer::Call(call, _) => self.assigning.visible.push_back(call),
                WaitingAnswer::Agent(output) => self.hosts.carry_out(&output),
            }
        }
    }

    /// All assignments.
    pub(crate) fn assignments(&mut self) -> Option<&Assignments> {
        Some(self.controller()?.assignments())
    }

    /// An assignment by its id.
    pub(crate) fn assignment(&mut self, id: AssignmentId) -> Option<Listed> {
        self.assignments()?.get(id)
    }
}

/// Names of the switches of a path, as an owned copy of [`crate::hosts::names`].
pub(crate) fn switch_names(fabric: &Fabric, path: &Path) -> Vec<String> {
    names(fabric, path).into_iter().map(str::to_owned).collect()
}
