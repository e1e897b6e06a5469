//! A job of a scheme's solver, which the driver runs in another thread.

use pathloom_control::Input;
use pathloom_scheme::{State, View};

/// A job. It may take long.
pub struct Job {
    pub(crate) ticket: u64,
    pub(crate) solver: fn(&View, &State) -> State,
    pub(crate) view: View,
    pub(crate) input: State,
}

impl Job {
    /// Runs the solver. The result is for [`crate::hub::Hub::solved`].
    pub fn run(self) -> Input {
        Input::Solved { ticket: self.ticket, answer: (self.solver)(&self.view, &self.input) }
    }
}
