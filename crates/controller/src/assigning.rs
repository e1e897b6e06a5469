//! Path assignments for the handlers of the API: a request goes to the controller, which answers at once. (Host
//! agents send the same requests over their own connections, see [`crate::hosts`].)

use crate::hosts::names;
use crate::hub::{Hub, Responder};
use crate::persist::Persist;
use crate::session::Shared;
use pathloom_control::{
    AssignError, Assigned, AssignmentId, Assignments, ClaimKey, Input, Listed, Output, Owner, PathRequest,
};
use pathloom_model::{Fabric, Path};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{oneshot, watch, Notify};

/// Marks the numbers of requests of the API. Those of agents count from 1.
const API_REQUEST: u64 = 1 << 63;
/// Maximum time that the answer to an assignment waits until a switch has confirmed the rules that show its
/// connections to the controller.
pub(crate) const CONFIRMATION: Duration = Duration::from_secs(1);
/// Minimum time between two stores of the state because of changed assignments.
const STORE_INTERVAL: Duration = Duration::from_millis(100);

/// Answers to requests, and the number of changes of assignments that are stored.
pub(crate) struct Assigning {
    last: u64,
    answer: Option<Output>,
    /// Changes of assignments so far.
    changes: u64,
    /// Wakes the task that stores them.
    changed: Rc<Notify>,
    /// Number of changes that are stored.
    stored: watch::Sender<u64>,
    /// Whether the state is stored at all.
    is_stored: bool,
    /// Answers that wait until switches will send the first packets of these addresses to the controller.
    waiting: Vec<(Ipv4Addr, WaitingAnswer)>,
}

/// An answer that waits until the first packets of an address will come to the controller.
enum WaitingAnswer {
    /// The answer to a call of the API.
    Call(oneshot::Sender<()>),
    /// The answer to an agent.
    Agent(Output),
}

impl Default for Assigning {
    fn default() -> Assigning {
        let (changed, stored) = (Rc::default(), watch::channel(0).0);
        Assigning {
            last: API_REQUEST,
            answer: None,
            changes: 0,
            changed,
            stored,
            is_stored: false,
            waiting: Vec::new(),
        }
    }
}

/// A change that must be stored before its caller gets an answer.
pub(crate) struct ToBeStored {
    change: u64,
    stored: watch::Receiver<u64>,
}

impl ToBeStored {
    /// Waits until the change is stored.
    pub(crate) async fn wait(mut self) {
        // An error means that the controller is stopping, which stores the state too.
        let _ = self.stored.wait_for(|&stored| stored >= self.change).await;
    }
}

impl Assigning {
    /// Handles the answer to a request. Keeps it if the request came from the API, otherwise returns it.
    pub(crate) fn answered(&mut self, request: u64, output: Output) -> Option<Output> {
        let changed =
            matches!(output, Output::Assigned { answer: Ok(_), .. } | Output::Released { answer: Ok(()), .. });
        if changed {
            self.changes += 1;
            self.changed.notify_one();
        }
        if request < API_REQUEST {
            return Some(output);
        }
        if request == self.last {
            self.answer = Some(output);
        }
        None
    }

    /// Returns a value that waits until all changes made so far are stored; `None` if no state is stored.
    pub(crate) fn to_be_stored(&self) -> Option<ToBeStored> {
        self.is_stored.then(|| ToBeStored { change: self.changes, stored: self.stored.subscribe() })
    }
}

/// Owner of the assignments of a host. A caller that may act for the host, by its address, by its agent or by a
/// token, acts as this owner.
pub(crate) fn owner_of(host: Ipv4Addr) -> Owner {
    Owner(format!("host {host}"))
}

/// Stores the state soon after assignments have changed, so that a killed controller loses no assignment that it has
/// answered.
pub(crate) async fn store_changes(shared: Shared, persist: Persist) {
    if !persist.is_enabled() {
        return;
    }
    let changed = {
        let assigning = &mut shared.hub.borrow_mut().assigning;
        assigning.is_stored = true;
        assigning.changed.clone()
    };
    loop {
        changed.notified().await;
        {
            let mut hub = shared.hub.borrow_mut();
            let snapshot = hub.controller().map(|controller| controller.snapshot());
            snapshot.iter().for_each(|snapshot| persist.save(snapshot));
            let changes = hub.assigning.changes;
            hub.assigning.stored.send_replace(changes);
        }
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}

impl Hub {
    /// Sends the controller a request and takes its answer; `None` if no fabric is controlled.
    fn request(&mut self, input: impl FnOnce(u64) -> Input) -> Option<Output> {
        self.controller()?;
        self.assigning.last = API_REQUEST | self.assigning.last.wrapping_add(1);
        self.assigning.answer = None;
        let input = input(self.assigning.last);
        self.queue_and_settle(input);
        self.assigning.answer.take()
    }

    /// Assigns paths to an owner.
    pub(crate) fn assign_paths(&mut self, owner: Owner, paths: PathRequest) -> Option<Result<Assigned, AssignError>> {
        match self.request(|request| Input::AssignPaths { request, owner, paths })? {
            Output::Assigned { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Claims the next path of an assignment.
    pub(crate) fn claim_path(
        &mut self,
        owner: Owner,
        assignment: AssignmentId,
        connection: ClaimKey,
        (path, opens_to): (Option<u32>, Option<u16>),
    ) -> Option<Result<Path, AssignError>> {
        match self.request(|request| Input::ClaimPath { request, owner, assignment, connection, path, opens_to })? {
            Output::Claimed { answer, .. } => answer.map(|claimed| claimed.paths.into_iter().next()).transpose(),
            _ => None,
        }
    }

    /// Releases an assignment.
    pub(crate) fn release_paths(&mut self, owner: Owner, assignment: AssignmentId) -> Option<Result<(), AssignError>> {
        match self.request(|request| Input::ReleasePaths { request, owner, assignment })? {
            Output::Released { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Returns a receiver that is ready when the controller will see the connections that the host of this address
    /// opens. Before that, a connection could miss its path.
    pub(crate) fn when_visible(&mut self, src: Ipv4Addr) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.assigning.waiting.push((src, WaitingAnswer::Call(sender)));
        self.send_visible_answers();
        receiver
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
        let (ready, waiting) = std::mem::take(&mut self.assigning.waiting).into_iter().partition(|(src, waiting)| {
            let gone = matches!(waiting, WaitingAnswer::Call(sender) if sender.is_closed());
            gone || controller.sees_connections_of(*src)
        });
        self.assigning.waiting = waiting;
        let ready: Vec<(Ipv4Addr, WaitingAnswer)> = ready;
        for (_, waiting) in ready {
            match waiting {
                // A caller that has gone needs no answer.
                WaitingAnswer::Call(sender) => drop(sender.send(())),
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
