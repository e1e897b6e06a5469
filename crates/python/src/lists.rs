//! Fabrics, schemes, traffic and transports, for listings.

use crate::errors::Error;
use crate::registry::registry;
use pathloom_fabrics::{COMMON_KEYS, FABRICS};
use pathloom_schemes::{Carried, Encoding, SchemeSpec};
use pathloom_workload::{traffic_names, TrafficSpec};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A dict of texts.
fn texts<'py>(py: Python<'py>, pairs: &[(&str, &str)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    pairs.iter().try_for_each(|(key, value)| dict.set_item(key, value))?;
    Ok(dict)
}

#[pyfunction]
pub fn fabrics(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = FABRICS.iter().map(|kind| {
        let common = COMMON_KEYS;
        texts(py, &[("name", kind.name), ("example", kind.example), ("about", kind.about), ("common_keys", common)])
    });
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

#[pyfunction]
pub fn schemes(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = registry().entries().map(|entry| {
        let spec = registry().parse(entry.name).map_err(Error::from)?;
        let hosts = spec.transport().name();
        let told = [("name", entry.name), ("about", entry.summary), ("paper", entry.paper), ("transport", hosts)];
        let row = texts(py, &told)?;
        let keys = entry.keys.iter();
        let keys =
            keys.map(|(name, default, about)| texts(py, &[("name", name), ("default", default), ("about", about)]));
        row.set_item("keys", keys.collect::<PyResult<Vec<_>>>()?)?;
        row.set_item("encodings", encodings(py, &spec)?)?;
        Ok(row)
    });
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

/// Which encodings carry a scheme: name, `yes`, `in part` or `no`, and the reason.
fn encodings<'py>(py: Python<'py>, spec: &SchemeSpec) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let row = |encoding: Encoding| {
        let (verdict, why) = match spec.carried_by(encoding) {
            Carried::Whole => ("yes", ""),
            Carried::Part(why) => ("in part", why),
            Carried::No(why) => ("no", why),
        };
        texts(py, &[("name", encoding.name()), ("carried", verdict), ("why", why)])
    };
    Encoding::ALL.into_iter().map(row).collect()
}

#[pyfunction]
pub fn scheme_encodings<'py>(py: Python<'py>, spec: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
    encodings(py, &registry().parse(spec).map_err(Error::from)?)
}

#[pyfunction]
pub fn traffics(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = traffic_names().iter().map(|traffic| {
        let row = texts(py, &[("name", traffic.name), ("about", traffic.help)])?;
        let keys = traffic.keys.iter().map(|key| texts(py, &[("name", key.name), ("about", key.help)]));
        row.set_item("keys", keys.collect::<PyResult<Vec<_>>>()?)?;
        Ok(row)
    });
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

#[pyfunction]
pub fn traffic_parts(traffic: &str) -> Result<Vec<String>, Error> {
    let spec = TrafficSpec::parse(traffic)?;
    Ok(spec.parts().iter().map(|part| part.text().to_owned()).collect())
}

#[pyfunction]
pub fn transports(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = pathloom_transport::transports().into_iter().map(|entry| {
        let row = texts(py, &[("name", entry.name), ("about", entry.about), ("source", entry.source)])?;
        let keys = entry.keys.iter().map(|key| {
            texts(py, &[("name", key.name), ("default", key.default), ("about", key.about), ("source", key.source)])
        });
        row.set_item("keys", keys.collect::<PyResult<Vec<_>>>()?)?;
        Ok(row)
    });
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

#[pyfunction]
pub fn scheme_transport(spec: &str) -> Result<&'static str, Error> {
    Ok(registry().parse(spec)?.transport().name())
}

#[pyfunction]
pub fn scheme_name(spec: &str) -> Result<&'static str, Error> {
    Ok(registry().parse(spec)?.name)
}
