//! The end of the process: a scheme with a view of its own.

use super::{Reply, Request};
use crate::{Action, Event, Scheme, State, View};
use pathloom_model::Fabric;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A scheme that is asked by lines.
pub struct Host {
    scheme: Box<dyn Scheme>,
    view: View,
    /// The state in the last reply that had one.
    saved: State,
    /// The inputs of the scheme's jobs, by ticket.
    jobs: BTreeMap<u64, State>,
}

impl Host {
    /// A scheme that has seen no event yet, on this fabric.
    pub fn new(scheme: Box<dyn Scheme>, fabric: Arc<Fabric>) -> Host {
        Host { scheme, view: View::new(fabric), saved: State::default(), jobs: BTreeMap::new() }
    }

    /// Passes an event to the scheme. If the scheme cannot restore its state, such as that of an older version of its file, it
    /// begins without one, and the reply says so.
    ///
    /// # Errors
    /// The request names nodes or links that the fabric does not have.
    pub fn handle(&mut self, request: Request) -> Result<Reply, String> {
        let Request { now, view: change, restore, event } = request;
        if change.fresh {
            self.view = View::new(self.view.fabric.clone());
        }
        if !change.fits(&self.view.fabric) {
            return Err("the view has nodes or links that the fabric of the hello does not have".to_owned());
        }
        change.apply(&mut self.view);
        let error = restore.and_then(|state| {
            self.saved = state.clone();
            self.scheme.restore(state).err().map(|problem| problem.to_string())
        });
        let mut actions = Vec::new();
        let event = self.with_own_answer(event);
        self.scheme.handle(now, &event, &self.view, &mut actions);
        for action in &actions {
            if let Action::Solve { ticket, input, .. } = action {
                self.jobs.insert(*ticket, input.clone());
            }
        }
        let (saved, timeout) = (self.scheme.save(), self.scheme.poll_timeout());
        let state = (saved != self.saved).then(|| saved.clone());
        self.saved = saved;
        Ok(Reply { actions, timeout, state, error })
    }

    /// The event. If a job is answered with its input, as in Python, that is the very value: text does not always keep the last
    /// digit of a number.
    fn with_own_answer(&mut self, event: Event) -> Event {
        match event {
            Event::Solved { ticket, answer } => {
                let own = self.jobs.remove(&ticket).filter(|own| read_again(&read_again(own)) == answer);
                Event::Solved { ticket, answer: own.unwrap_or(answer) }
            }
            event => event,
        }
    }
}

/// A state after one way over the pipe.
fn read_again(state: &State) -> State {
    serde_json::from_str(&state.0.to_string()).map(State).unwrap_or_default()
}
