//! A scheme in Python that a live controller asks by lines of text.

use super::{PyScheme, SchemeErrors, View};
use crate::errors::Error;
use pathloom_fabrics::fabric_from_file_text;
use pathloom_scheme::remote::{Ask, Greeting, Hello, Host, Reply, Told, ViewSender, PROTOCOL};
use pathloom_scheme::{Needs, Scheme};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The answers of a scheme to the lines of a controller.
#[pyclass(frozen, module = "pathloom._core")]
pub struct SchemeHost {
    label: String,
    needs: Needs,
    errors: SchemeErrors,
    host: Mutex<Host>,
}

#[pymethods]
impl SchemeHost {
    /// A host for the object `scheme`. `hello` is the first line of the controller.
    #[new]
    fn new(py: Python<'_>, label: &str, scheme: Py<PyAny>, hello: &str) -> Result<SchemeHost, Error> {
        let Hello { fabric, .. } = read_hello(label, hello)?;
        let fabric = fabric_from_file_text("fabric.json", &fabric.to_string())?.fabric;
        let scheme = PyScheme::new(py, label, scheme)?;
        let (needs, errors) = (scheme.needs(), scheme.errors());
        let host = Mutex::new(Host::new(Box::new(scheme), Arc::new(fabric)));
        Ok(SchemeHost { label: label.to_owned(), needs, errors, host })
    }

    /// The seed in the first line of a controller.
    #[staticmethod]
    fn seed_of(label: &str, hello: &str) -> Result<u64, Error> {
        Ok(read_hello(label, hello)?.seed)
    }

    /// The first line for the controller.
    fn greeting(&self) -> Result<String, Error> {
        Ok(serde_json::to_string(&Greeting { protocol: PROTOCOL, needs: self.needs })?)
    }

    /// The answer to a line, and the traceback of an exception in the scheme. After one, the answer has no actions.
    fn answer(&self, py: Python<'_>, line: &str) -> Result<(String, Option<String>), Error> {
        let Ask { id, request } = serde_json::from_str(line).map_err(|problem| self.broken(problem.to_string()))?;
        // The scheme takes the interpreter by itself.
        let reply = py.detach(|| self.host.lock().unwrap_or_else(PoisonError::into_inner).handle(request));
        let reply = reply.map_err(|problem| self.broken(problem))?;
        let (reply, traceback) = match self.errors.take() {
            Some((line, traceback)) => (Reply { actions: Vec::new(), error: Some(line), ..reply }, Some(traceback)),
            None => (reply, None),
        };
        Ok((serde_json::to_string(&Told { id, reply })?, traceback))
    }
}

impl SchemeHost {
    fn broken(&self, problem: String) -> Error {
        Error::PyScheme(self.label.clone(), format!("a line of the controller cannot be used: {problem}"))
    }
}

/// What changes in the views of a scheme, as a controller tells it to a process.
#[pyclass(frozen, module = "pathloom._core")]
pub struct ViewChanges(Mutex<ViewSender>);

#[pymethods]
impl ViewChanges {
    #[new]
    fn new() -> ViewChanges {
        ViewChanges(Mutex::default())
    }

    /// What has changed since the view of the last call, as JSON.
    fn next(&self, view: &View) -> Result<String, Error> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(serde_json::to_string(&sender.changes(view.shown()))?)
    }
}

fn read_hello(label: &str, hello: &str) -> Result<Hello, Error> {
    let broken = |problem: String| Error::PyScheme(label.to_owned(), problem);
    let read: serde_json::Value = serde_json::from_str(hello)
        .map_err(|problem| broken(format!("the first line of the controller is no JSON: {problem}")))?;
    match read["protocol"].as_u64() {
        Some(version) if version == u64::from(PROTOCOL) => {
            serde_json::from_value(read).map_err(|problem| broken(format!("the hello cannot be read: {problem}")))
        }
        version => {
            let version = version.map_or("no version".to_owned(), |version| format!("version {version}"));
            Err(broken(format!(
                "the controller speaks {version} of the protocol; expected {PROTOCOL}: install the same Pathloom for both"
            )))
        }
    }
}
