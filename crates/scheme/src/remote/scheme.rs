//! The end of the controller: a scheme whose decisions come later, from a process.

use super::{Answer, Order, Reply, Request, ViewSender};
use crate::{Action, Event, FlowView, Needs, Scheme, State, StateError, View};
use pathloom_model::{Fabric, LinkId, Nanos, NodeId, Path};
use std::collections::VecDeque;

/// A scheme in another process. Its jobs are [`Order`]s, and their results [`Answer`]s.
///
/// Actions are carried out when they arrive. Until then all flows stay where they are. While there is no process, events are
/// dropped, and default routes and paths stay. A new process gets the whole view, [`Event::Started`], and
/// [`Event::FlowAdopted`] for each long flow, as a scheme that takes over from another one.
pub struct RemoteScheme {
    name: &'static str,
    needs: Needs,
    sender: ViewSender,
    /// Whether a process takes events.
    up: bool,
    /// Ticket of the last order.
    last: u64,
    /// Tickets up to this one belong to an earlier process.
    forgotten: u64,
    wake_at: Option<Nanos>,
    /// The last state that a process has told.
    saved: State,
    /// Whether the next request must restore that state.
    restores: bool,
    /// Actions that could not be carried out, such as paths that connect nothing.
    refused: u64,
}

impl RemoteScheme {
    /// A scheme of this name whose process has told these needs.
    pub fn new(name: &'static str, needs: Needs) -> RemoteScheme {
        let (sender, saved) = (ViewSender::new(), State::default());
        RemoteScheme {
            name,
            needs,
            sender,
            up: true,
            last: 0,
            forgotten: 0,
            wake_at: None,
            saved,
            restores: false,
            refused: 0,
        }
    }

    fn order(&mut self, order: &Order, actions: &mut Vec<Action>) {
        self.last += 1;
        actions.push(Action::Solve { ticket: self.last, input: order.to_state(), modelled: Nanos::ZERO });
    }

    fn ask(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        let restore = std::mem::take(&mut self.restores).then(|| self.saved.clone());
        let request = Request { now, view: self.sender.changes(view), restore, event: event.clone() };
        self.order(&Order::Ask(Box::new(request)), actions);
    }

    fn answered(&mut self, (now, ticket): (Nanos, u64), answer: Answer, view: &View, actions: &mut Vec<Action>) {
        match answer {
            Answer::Reply(reply) if ticket > self.forgotten => self.replied((now, ticket), reply, view, actions),
            Answer::Lost if ticket > self.forgotten => (self.up, self.wake_at) = (false, None),
            Answer::Up => self.begin(now, view, actions),
            Answer::Reply(_) | Answer::Lost => {}
        }
    }

    fn replied(&mut self, (now, ticket): (Nanos, u64), reply: Reply, view: &View, actions: &mut Vec<Action>) {
        if let Some(state) = reply.state {
            self.saved = state;
        }
        // A later event may have changed the time, such as the time-out itself.
        if ticket == self.last {
            self.wake_at = reply.timeout;
        }
        let mut solved = VecDeque::new();
        for action in reply.actions {
            match action {
                // The process has the answer already.
                Action::Solve { ticket, input, .. } => solved.push_back(Event::Solved { ticket, answer: input }),
                action if is_possible(&action, view) => actions.push(action),
                _ => self.refused += 1,
            }
        }
        for event in solved {
            self.ask(now, &event, view, actions);
        }
    }

    /// Begins with a new process.
    fn begin(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        self.forgotten = self.last;
        (self.up, self.wake_at) = (true, None);
        self.sender.forget();
        self.restores = self.saved != State::default();
        self.order(&Order::Watch, actions);
        self.ask(now, &Event::Started, view, actions);
        let flows: Vec<_> = view.long_flows().map(|(flow, _)| flow).collect();
        for flow in flows {
            self.ask(now, &Event::FlowAdopted { flow }, view, actions);
        }
    }
}

/// Whether the controller can carry out an action. A flow may have ended while the process decided.
fn is_possible(action: &Action, view: &View) -> bool {
    let fabric = &*view.fabric;
    if action.flow().is_some_and(|flow| !view.flows.contains_key(&flow)) {
        return false;
    }
    match action {
        Action::Route { flow, path, .. } => {
            view.flows.get(flow).is_some_and(|flow| path.check(fabric).is_ok() && joins(path, flow, fabric))
        }
        Action::SetWeights(all) => all.iter().all(|one| {
            let is_switch = |node: NodeId| node.index() < fabric.nodes().len() && !fabric.is_host(node);
            let leaves = |link: LinkId| fabric.links().get(link.index()).is_some_and(|link| link.from == one.switch);
            is_switch(one.switch) && is_switch(one.tor) && one.weights.iter().all(|&(link, _)| leaves(link))
        }),
        _ => true,
    }
}

/// Whether a path leads from the source ToR of a flow to its destination ToR.
fn joins(path: &Path, flow: &FlowView, fabric: &Fabric) -> bool {
    match (path.links().first(), path.links().last()) {
        (Some(&first), Some(&last)) => (fabric.link(first).from, fabric.link(last).to) == (flow.src_tor, flow.dst_tor),
        _ => flow.src_tor == flow.dst_tor,
    }
}

impl Scheme for RemoteScheme {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Solved { ticket, answer } => {
                if let Some(answer) = Answer::from_state(answer) {
                    self.answered((now, *ticket), answer, view, actions);
                }
                return;
            }
            Event::Started => self.order(&Order::Watch, actions),
            Event::Timeout => self.wake_at = None,
            _ => {}
        }
        if self.up {
            self.ask(now, event, view, actions);
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.wake_at
    }

    fn sizes(&self) -> Vec<(&'static str, u64)> {
        vec![("refused actions", self.refused)]
    }

    fn save(&self) -> State {
        self.saved.clone()
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        self.restores = state != State::default();
        self.saved = state;
        Ok(())
    }
}
