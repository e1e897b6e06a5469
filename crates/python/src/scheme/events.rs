//! The events and actions of the contract as Python classes: `pathloom.scheme`.

use pathloom_scheme::{Event, State};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyModule;

/// The module of events and actions, and JSON for the state of a scheme.
pub struct Vocabulary {
    words: Py<PyModule>,
    json: Py<PyModule>,
}

impl Vocabulary {
    /// Loads the modules.
    pub fn load(py: Python<'_>) -> PyResult<Vocabulary> {
        Ok(Vocabulary { words: py.import("pathloom.scheme")?.unbind(), json: py.import("json")?.unbind() })
    }

    /// A class of the module: that of an event, or the base class of actions.
    pub fn word<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.words.bind(py).getattr(name)
    }

    /// An event as its Python dataclass.
    pub fn event<'py>(&self, py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyAny>> {
        let word = |name| self.word(py, name);
        match *event {
            Event::Started => word("Started")?.call0(),
            Event::FlowArrived { flow } => word("FlowArrived")?.call1((flow.0,)),
            Event::SubflowArrived { flow, token } => word("SubflowArrived")?.call1((flow.0, token)),
            Event::FlowAdopted { flow } => word("FlowAdopted")?.call1((flow.0,)),
            Event::FlowFinished { flow } => word("FlowFinished")?.call1((flow.0,)),
            Event::RatesMeasured { period } => word("RatesMeasured")?.call1((period.0,)),
            Event::LinkChanged { link, up } => word("LinkChanged")?.call1((link.0, up)),
            Event::RouteConfirmed { flow } => word("RouteConfirmed")?.call1((flow.0,)),
            Event::RouteRejected { flow, why } => word("RouteRejected")?.call1((flow.0, why.to_string())),
            Event::Solved { ticket, ref answer } => word("Solved")?.call1((ticket, self.plain(py, answer)?)),
            Event::Timeout => word("Timeout")?.call0(),
        }
    }

    /// A state as Python objects.
    pub fn plain<'py>(&self, py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyAny>> {
        self.json.bind(py).call_method1("loads", (state.0.to_string(),))
    }

    /// Python objects as a state. JSON must be able to represent them.
    pub fn state(&self, value: &Bound<'_, PyAny>) -> PyResult<State> {
        let text: String = self.json.bind(value.py()).call_method1("dumps", (value,))?.extract()?;
        let parsed = serde_json::from_str(&text);
        parsed.map(State).map_err(|error| PyTypeError::new_err(format!("cannot be represented in JSON: {error}")))
    }
}
