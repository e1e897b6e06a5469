//! Schemes written in Python: an object with a method `handle`, driven through the contract of all schemes.

mod actions;
mod events;
mod fields;
mod needs;
mod process;
mod scheme_errors;
mod topology;
mod view;

pub use process::{SchemeHost, ViewChanges};
pub use scheme_errors::SchemeErrors;
pub use topology::{Link, Node};
pub use view::{Flow, View};

use crate::errors::Error;
use events::Vocabulary;
use needs::needs_of;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, Needs, Scheme, State, StateError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;
use topology::Topology;

/// A scheme that asks a Python object. Errors in the object are recorded, and flows keep their paths.
pub struct PyScheme {
    name: &'static str,
    object: Py<PyAny>,
    vocabulary: Vocabulary,
    needs: Needs,
    /// Result of `poll_timeout` after the last event. It is kept because drivers ask far more often than it can
    /// change.
    wake_at: Option<Nanos>,
    topology: Arc<Topology>,
    errors: SchemeErrors,
}

impl PyScheme {
    /// Creates a scheme from `object`. Its results have the name `label`. Asks the object for its needs at once.
    pub fn new(py: Python<'_>, label: &str, object: Py<PyAny>) -> Result<PyScheme, Error> {
        let broken = |error: PyErr| Error::PyScheme(label.to_owned(), error.to_string());
        if !object.bind(py).hasattr("handle").map_err(broken)? {
            return Err(Error::PyScheme(label.to_owned(), "has no method `handle(now_ns, event, view)`".to_owned()));
        }
        let vocabulary = Vocabulary::load(py).map_err(broken)?;
        let needs = needs_of(object.bind(py)).map_err(broken)?;
        let (topology, errors) = (Arc::default(), SchemeErrors::default());
        Ok(PyScheme {
            name: pathloom_schemes::lasting(label),
            object,
            vocabulary,
            needs,
            wake_at: None,
            topology,
            errors,
        })
    }

    /// Creates a scheme for a controller that starts again; `make` creates its object. Errors are recorded.
    pub fn successor(py: Python<'_>, label: &str, make: &Py<PyAny>, errors: &SchemeErrors) -> Option<PyScheme> {
        let note = |error: &PyErr| errors.note(py, Nanos::ZERO, make, "__init__", error);
        let object = make.call0(py).inspect_err(note).ok()?;
        let scheme = PyScheme::new(py, label, object).map_err(PyErr::from).inspect_err(note).ok()?;
        Some(PyScheme { errors: errors.clone(), ..scheme })
    }

    /// The record of errors. Clones show the same content.
    pub fn errors(&self) -> SchemeErrors {
        self.errors.clone()
    }

    fn ask(&self, py: Python<'_>, now: Nanos, event: &Event, view: &pathloom_scheme::View) -> PyResult<Vec<Action>> {
        let shown = Bound::new(py, View::new(view.clone(), self.topology.clone()))?;
        let object = self.object.bind(py);
        let given = object.call_method1("handle", (now.0, self.vocabulary.event(py, event)?, shown))?;
        if given.is_none() {
            return Ok(Vec::new());
        }
        let batch = given.try_iter().map_err(|_| {
            let kind = given.get_type();
            PyTypeError::new_err(format!("handle returned {kind}; expected actions, such as a list of them, or None"))
        })?;
        batch.map(|action| self.vocabulary.action(&action?, view)).collect()
    }

    fn ask_timeout(&self, py: Python<'_>) -> PyResult<Option<Nanos>> {
        let Some(method) = self.object.bind(py).getattr_opt("poll_timeout")? else { return Ok(None) };
        Ok(method.call0()?.extract::<Option<u64>>()?.map(Nanos))
    }

    fn saved(&self, py: Python<'_>) -> PyResult<State> {
        let Some(method) = self.object.bind(py).getattr_opt("save")? else { return Ok(State::default()) };
        self.vocabulary.state(&method.call0()?)
    }

    fn take_back(&self, py: Python<'_>, state: &State) -> PyResult<()> {
        let Some(method) = self.object.bind(py).getattr_opt("restore")? else { return Ok(()) };
        method.call1((self.vocabulary.plain(py, state)?,)).map(drop)
    }
}

impl Scheme for PyScheme {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &pathloom_scheme::View, actions: &mut Vec<Action>) {
        Python::attach(|py| {
            match self.ask(py, now, event, view) {
                Ok(batch) => actions.extend(batch),
                Err(error) => self.errors.note(py, now, &self.object, "handle", &error),
            }
            self.wake_at = self.ask_timeout(py).unwrap_or_else(|error| {
                self.errors.note(py, now, &self.object, "poll_timeout", &error);
                None
            });
        });
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.wake_at
    }

    fn save(&self) -> State {
        Python::attach(|py| {
            self.saved(py).unwrap_or_else(|error| {
                self.errors.note(py, Nanos::ZERO, &self.object, "save", &error);
                State::default()
            })
        })
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        Python::attach(|py| {
            self.take_back(py, &state).map_err(|error| StateError { scheme: self.name, problem: error.to_string() })?;
            self.wake_at = self.ask_timeout(py).unwrap_or_default();
            Ok(())
        })
    }
}

/// Does what a restart of the controller does with schemes: the state of `old` is passed to `new`, as JSON text.
#[pyfunction]
pub fn hand_over(py: Python<'_>, old: Py<PyAny>, new: Py<PyAny>) -> Result<(), Error> {
    let label = |object: &Py<PyAny>| object.bind(py).get_type().to_string();
    let old = PyScheme::new(py, &label(&old), old)?;
    let mut new = PyScheme::new(py, &label(&new), new)?;
    let state = old.saved(py).map_err(|error| Error::PyScheme(old.name.to_owned(), format!("save: {error}")))?;
    let text = serde_json::to_string(&state)?;
    new.restore(serde_json::from_str(&text)?).map_err(|error| Error::PyScheme(error.scheme.to_owned(), error.problem))
}
