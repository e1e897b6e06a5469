//! `pathloom._core.max_concurrent_flow` and `pathloom._core.Placer`.

use crate::errors::Error;
use crate::fabric::Fabric;
use numpy::{IntoPyArray, PyArray1};
use pathloom_allocation::fractional::{fractional, Commodity};
use pathloom_allocation::placement::{PlacedFlow, PlacerSettings};
use pathloom_allocation::{max_min, FlowSet};
use pathloom_model::{LinkState, NodeId};
use pathloom_schemes::allocation::{flow_between, follow, network_at, network_of};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The flow between two hosts, given by the numbers of their nodes.
fn flow(fabric: &pathloom_model::Fabric, src: u32, dst: u32) -> Result<PlacedFlow, Error> {
    flow_between(fabric, NodeId(src), NodeId(dst)).ok_or(Error::NoHosts(src, dst))
}

/// Returns λ, its bound, rounds and operations for demands between hosts.
#[pyfunction]
pub fn max_concurrent_flow(
    py: Python<'_>,
    fabric: &Fabric,
    flows: Vec<(u32, u32, f64)>,
    epsilon: f64,
) -> Result<(f64, f64, u32, u64), Error> {
    py.detach(|| {
        let fabric = &fabric.fabric;
        let commodity = |(src, dst, demand_bps)| {
            let ends = flow(fabric, src, dst)?;
            Ok(Commodity { src: ends.src_tor, dst: ends.dst_tor, demand_bps })
        };
        let commodities = flows.into_iter().map(commodity).collect::<Result<Vec<_>, Error>>()?;
        let found = fractional(&network_at(fabric, &LinkState::of(fabric)), &commodities, epsilon)?;
        Ok((found.lambda, found.bound, found.rounds, found.operations))
    })
}

/// Max-min fair rates of flows, in the units of `capacity`. A flow has the numbers of the links that it crosses.
#[pyfunction]
pub fn max_min_rates<'py>(
    py: Python<'py>,
    capacity: Vec<f64>,
    flows: Vec<Vec<u32>>,
) -> Result<Bound<'py, PyArray1<f64>>, Error> {
    let rates = py.detach(|| {
        let mut set = FlowSet::new();
        for links in &flows {
            set.push(links);
        }
        max_min(&capacity, &set).map(|fair| fair.rates)
    });
    Ok(rates?.into_pyarray(py))
}

/// Places flows on one path each.
#[pyclass(frozen, module = "pathloom._core")]
pub struct Placer {
    fabric: Fabric,
    placer: Mutex<pathloom_allocation::placement::Placer>,
}

impl Placer {
    fn lock(&self) -> MutexGuard<'_, pathloom_allocation::placement::Placer> {
        self.placer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Placer {
    #[new]
    fn new(fabric: &Fabric) -> Placer {
        let network = network_of(&fabric.fabric);
        let mut placer = pathloom_allocation::placement::Placer::new(network, PlacerSettings::default());
        follow(&mut placer, &LinkState::of(&fabric.fabric));
        Placer { fabric: fabric.clone(), placer: Mutex::new(placer) }
    }

    fn wait(&self, flow_id: u64, src: u32, dst: u32) -> Result<(), Error> {
        Ok(self.lock().wait(flow_id, flow(&self.fabric.fabric, src, dst)?)?)
    }

    fn arrive(&self, flow_id: u64, src: u32, dst: u32) -> Result<Option<Vec<u32>>, Error> {
        let flow = flow(&self.fabric.fabric, src, dst)?;
        Ok(self.lock().arrive(flow_id, flow)?.map(<[u32]>::to_vec))
    }

    fn path(&self, flow_id: u64) -> Option<Vec<u32>> {
        self.lock().path(flow_id).map(<[u32]>::to_vec)
    }

    fn depart(&self, flow_id: u64) -> bool {
        self.lock().depart(flow_id)
    }

    fn lift_all(&self) {
        self.lock().lift_all();
    }

    fn round(&self, py: Python<'_>, most_moves: usize) -> (usize, usize, usize, u64) {
        let round = py.detach(|| self.lock().round(most_moves));
        (round.placed.len(), round.moved.len(), round.stranded.len(), round.operations)
    }

    fn max_min_bps<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let rates: Vec<f64> = py.detach(|| self.lock().max_min_bps().into_iter().map(|(_, rate)| rate).collect());
        rates.into_pyarray(py)
    }
}
