//! The Python module `pathloom._core`: short methods over the other crates. Its types are declared in
//! `python/pathloom/_core.pyi`.

// The Python documentation is in the stub; a second copy here would become outdated.
#![allow(missing_docs)]

mod binder;
mod columns;
mod errors;
mod fabric;
mod faults;
mod jobs;
mod lists;
mod operations;
mod output_files;
mod registry;
mod scheme;
mod simulation;
mod solver;

use errors::Error;
use pathloom_transport::TransportSpec;
use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::binder::Binder;
    #[pymodule_export]
    use super::errors::PathloomError;
    #[pymodule_export]
    use super::fabric::Fabric;
    #[pymodule_export]
    use super::faults::fault_schedule;
    #[pymodule_export]
    use super::lists::{
        fabrics, scheme_encodings, scheme_name, scheme_transport, schemes, traffic_parts, traffics, transports,
    };
    #[pymodule_export]
    use super::scheme::{hand_over, Flow, Link, Node, SchemeHost, View, ViewChanges};
    #[pymodule_export]
    use super::simulation::Simulation;
    #[pymodule_export]
    use super::solver::{max_concurrent_flow, max_min_rates, Placer};
    use super::*;
    #[pymodule_export]
    use super::{fitting_min_rto_ns, nearest, parse_time_s, transport_settings};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("__profile__", if cfg!(debug_assertions) { "dev" } else { "release" })?;
        // Packages say from which commit they are. Other builds do not, so that a commit changes no program.
        module.add("__commit__", option_env!("PATHLOOM_COMMIT"))?;
        quiet_panics();
        Ok(())
    }
}

/// A panic becomes a Python exception, whose handler informs the user. So the panic itself is printed only for
/// debugging.
fn quiet_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::env::var_os("PATHLOOM_TRACEBACK").is_some() {
            loud(info);
        }
    }));
}

#[pyfunction]
fn parse_time_s(text: &str) -> Result<f64, Error> {
    Ok(pathloom_model::units::parse_time(text)?.as_secs_f64())
}

#[pyfunction]
fn fitting_min_rto_ns(full_round_trip_ps: u64) -> u64 {
    pathloom_fabrics::fitting_min_rto(full_round_trip_ps).0
}

#[pyfunction]
fn nearest(word: &str, known: Vec<String>) -> Option<String> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    pathloom_model::spec::nearest(word, &known).map(str::to_owned)
}

#[pyfunction]
#[pyo3(signature = (spec = None))]
fn transport_settings<'py>(py: Python<'py>, spec: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let parsed = spec.map_or_else(|| Ok(TransportSpec::default()), TransportSpec::parse).map_err(Error::from)?;
    let text = serde_json::to_string(parsed.settings()).map_err(Error::from)?;
    let settings = py.import("json")?.call_method1("loads", (text,))?;
    settings.set_item("name", parsed.name())?;
    Ok(settings)
}
