//! Jobs of a workload as Python sees them: their algorithms, and what they waited for.

use pathloom_model::LinkId;
use pathloom_sim::Outcome;
use pathloom_workload::{Access, Algorithm, Job, Workload};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// What a finished job waited for.
pub struct Delay {
    /// Number of transfers that waited for each other until the end.
    transfers: usize,
    /// The transfer that finished last.
    last: u32,
    /// Of those transfers, the one that took longest beyond its lower bound.
    slowest: u32,
    /// The most utilised link on the path of the slowest one, if the path is known.
    busiest: Option<LinkId>,
}

/// What each job of a workload waited for; `None` if it has not finished. `path_of` returns the links of a transfer.
pub fn delays(
    workload: &Workload,
    outcome: &Outcome,
    path_of: impl Fn(u32) -> Option<Vec<LinkId>>,
) -> Vec<Option<Delay>> {
    let flow = |index: u32| &outcome.flows[index as usize];
    let lost = |index: &u32| {
        let flow = flow(*index);
        let took = flow.finish?.saturating_sub(flow.start?);
        Some(took.saturating_sub(flow.ideal_fct?))
    };
    let utilisation = |link: &LinkId| outcome.links[link.index()].utilisation;
    let delay = |job: &Job| {
        let chain = workload.waited_for(job, |index| flow(index).finish);
        let slowest = chain.iter().copied().max_by_key(lost)?;
        let path = path_of(slowest).into_iter().flatten();
        let busiest = path.max_by(|one, other| utilisation(one).total_cmp(&utilisation(other)));
        Some(Delay { transfers: chain.len(), last: *chain.first()?, slowest, busiest })
    };
    workload.jobs.iter().map(delay).collect()
}

/// One dict per job.
pub fn job_list<'py>(py: Python<'py>, workload: &Workload, delays: &[Option<Delay>]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (job, delay) in workload.jobs.iter().zip(delays) {
        let dict = job_dict(py, job)?;
        dict.set_item("delay", delay.as_ref().map(|delay| delay_dict(py, delay)).transpose()?)?;
        list.append(dict)?;
    }
    Ok(list)
}

fn job_dict<'py>(py: Python<'py>, job: &Job) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("spec", &job.spec)?;
    dict.set_item("collective", &job.collective)?;
    dict.set_item("hosts", job.hosts.iter().map(|host| host.0).collect::<Vec<_>>())?;
    dict.set_item("iterations", job.iterations)?;
    dict.set_item("first_coflow", job.coflows.0)?;
    dict.set_item("coflows", job.coflows.1)?;
    dict.set_item("size_bytes", job.size_bytes)?;
    dict.set_item("bus_factor", job.bus_factor)?;
    dict.set_item("algorithm", algorithm_dict(py, &job.algorithm)?)?;
    let known = job.known.iter().map(|known| algorithm_dict(py, known)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("known", known)?;
    dict.set_item("outside", access_dict(py, &job.outside)?)?;
    dict.set_item("inside", job.inside.as_ref().map(|access| access_dict(py, access)).transpose()?)?;
    dict.set_item("in_one_server", job.in_one_server)?;
    dict.set_item("compute_ns", job.compute.iter().map(|time| time.0).collect::<Vec<_>>())?;
    Ok(dict)
}

fn algorithm_dict<'py>(py: Python<'py>, algorithm: &Algorithm) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &algorithm.name)?;
    dict.set_item("steps", algorithm.outside.steps)?;
    dict.set_item("bytes", algorithm.outside.bytes)?;
    dict.set_item("inside_steps", algorithm.inside.steps)?;
    dict.set_item("inside_bytes", algorithm.inside.bytes)?;
    Ok(dict)
}

fn access_dict<'py>(py: Python<'py>, access: &Access) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rate_bps", access.rate_bps)?;
    dict.set_item("delay_ps", access.delay_ps)?;
    Ok(dict)
}

fn delay_dict<'py>(py: Python<'py>, delay: &Delay) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("transfers", delay.transfers)?;
    dict.set_item("last_flow", delay.last)?;
    dict.set_item("slowest_flow", delay.slowest)?;
    dict.set_item("busiest_link", delay.busiest.map(|link| link.0))?;
    Ok(dict)
}
