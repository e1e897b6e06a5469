//! `pathloom._core.Binder`.

use crate::errors::Error;
use crate::fabric::Fabric;
use crate::registry::registry;
use pathloom_model::{Address, FiveTuple, LinkId, Nanos, PROTO_TCP};
use pathloom_routed::{Opening, Pair};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Source address and port, destination address and port of a TCP connection.
type Key = (String, u16, String, u16);

fn address(text: &str) -> Result<Address, Error> {
    let unknown = |_| Error::Operation(format!("address `{text}`: expected an IPv4 address such as 10.0.0.1"));
    Ok(text.parse::<std::net::Ipv4Addr>().map_err(unknown)?.into())
}

fn five_tuple((src, src_port, dst, dst_port): &Key) -> Result<FiveTuple, Error> {
    let (src_port, dst_port) = (*src_port, *dst_port);
    Ok(FiveTuple::new(PROTO_TCP, (address(src)?, src_port), (address(dst)?, dst_port)))
}

/// A scheme over a fabric of routers, where source ports choose the paths.
#[pyclass(frozen, module = "pathloom._core")]
pub struct Binder {
    links: usize,
    binder: Mutex<pathloom_routed::Binder>,
}

impl Binder {
    fn locked(&self) -> MutexGuard<'_, pathloom_routed::Binder> {
        self.binder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, link: u32) -> Result<LinkId, Error> {
        let known = usize::try_from(link).is_ok_and(|number| number < self.links);
        known.then_some(LinkId(link)).ok_or_else(|| {
            Error::Operation(format!("link {link}: the fabric has {} links, numbered from 0", self.links))
        })
    }
}

#[pymethods]
impl Binder {
    #[new]
    fn new(fabric: &Fabric, scheme: &str, seed: u64) -> Result<Binder, Error> {
        let central = registry().parse(scheme)?.require_central(seed).map_err(Error::Operation)?;
        let fabric = fabric.fabric.clone();
        let links = fabric.links().len();
        Ok(Binder { links, binder: Mutex::new(pathloom_routed::Binder::new(Nanos::ZERO, fabric, central)) })
    }

    fn set_ports(&self, source: &str, target: &str, port: u16, paths: BTreeMap<u16, Vec<u32>>) -> Result<(), Error> {
        let checked = |(port, path): (u16, Vec<u32>)| {
            let links: Result<Vec<LinkId>, Error> = path.into_iter().map(|link| self.link(link)).collect();
            Ok((port, links?))
        };
        let map = paths.into_iter().map(checked).collect::<Result<_, Error>>()?;
        let (src, dst) = (address(source)?, address(target)?);
        self.locked().set_ports(Pair { src, dst, proto: PROTO_TCP, dst_port: port }, map);
        Ok(())
    }

    fn open(
        &self,
        now_ns: u64,
        key: Key,
        long: bool,
        size_bytes: Option<u64>,
    ) -> Result<(Option<u16>, Vec<u32>, bool), Error> {
        let opening = Opening { five_tuple: five_tuple(&key)?, long, size_bytes };
        let bound =
            self.locked().open(Nanos(now_ns), opening).map_err(|problem| Error::Operation(problem.to_string()))?;
        Ok((bound.port, bound.path.iter().map(|link| link.0).collect(), bound.chosen))
    }

    fn port_is_taken(&self, key: Key) -> Result<Option<u16>, Error> {
        Ok(self.locked().port_is_taken(&five_tuple(&key)?))
    }

    fn sent(&self, now_ns: u64, key: Key, packets: u64, size_bytes: u64) -> Result<(), Error> {
        self.locked().sent(Nanos(now_ns), &five_tuple(&key)?, (packets, size_bytes));
        Ok(())
    }

    fn close(&self, now_ns: u64, key: Key) -> Result<(), Error> {
        self.locked().close(Nanos(now_ns), &five_tuple(&key)?);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.locked().poll_timeout().map(|at| at.0)
    }

    fn advance(&self, now_ns: u64) {
        self.locked().advance(Nanos(now_ns));
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let binder = self.locked();
        let (own, scheme) = (binder.counts(), binder.controller().counts());
        let dict = PyDict::new(py);
        let counts = [
            ("opened", own.opened),
            ("chosen", own.chosen),
            ("without_port", own.without_port),
            ("moves_refused", own.moves_refused),
            ("polls", scheme.polls),
        ];
        counts.into_iter().try_for_each(|(name, count)| dict.set_item(name, count))?;
        dict.set_item("polling_period_s", scheme.polling_period().map(|period| period.as_secs_f64()))?;
        Ok(dict)
    }
}
