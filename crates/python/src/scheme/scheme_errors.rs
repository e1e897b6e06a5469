//! Errors in a scheme written in Python.

use pathloom_model::Nanos;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of errors, and the first error. Clones show the same content.
#[derive(Clone, Default)]
pub struct SchemeErrors(Arc<Mutex<Noted>>);

#[derive(Clone, Default)]
struct Noted {
    count: u64,
    first: Option<First>,
}

/// The first error: a line for a table of notes, and the traceback for the author of the scheme.
#[derive(Clone)]
struct First {
    line: String,
    traceback: String,
}

impl SchemeErrors {
    /// Records an exception that `method` of `object` raised, or that its result caused.
    pub fn note(&self, py: Python<'_>, now: Nanos, object: &Py<PyAny>, method: &str, error: &PyErr) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.count += 1;
        if noted.first.is_none() {
            let class = object.bind(py).get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            let line = format!("{class}.{method} at {} s: {error}", now.as_secs_f64());
            let traceback = traceback_of(py, error).unwrap_or_else(|_| error.to_string());
            noted.first = Some(First { line, traceback });
        }
    }

    /// Number of errors, the first one in one line, and its traceback; `None` if there was none.
    pub fn summary(&self) -> Option<(u64, String, String)> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.first.clone().map(|first| (noted.count, first.line, first.traceback))
    }

    /// As [`SchemeErrors::summary`], without the number. The next error then counts as the first.
    pub fn take(&self) -> Option<(String, String)> {
        let noted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        noted.first.map(|first| (first.line, first.traceback))
    }
}

fn traceback_of(py: Python<'_>, error: &PyErr) -> PyResult<String> {
    let parts = (error.get_type(py), error.value(py), error.traceback(py));
    let lines = py.import("traceback")?.call_method1("format_exception", parts)?;
    Ok(lines.extract::<Vec<String>>()?.concat())
}
