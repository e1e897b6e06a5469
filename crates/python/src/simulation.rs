//! `pathloom._core.Simulation`.

use crate::columns::{
    control_dict, flow_columns, kind_dict, link_columns, offered_dict, packet_dict, pause_dict, program_dict,
    skip_dict, subflow_columns,
};
use crate::errors::{read_bytes, read_file, Error};
use crate::fabric::Fabric;
use crate::jobs::{delays, job_list};
use crate::output_files::{EventLog, PartialFile};
use crate::scheme::{PyScheme, SchemeErrors};
use pathloom_model::spec::SpecError;
use pathloom_model::units::parse_time;
use pathloom_model::{Fault, LinkId, Nanos};
use pathloom_scheme::{Entropy, Needs, Scheme, Selection};
use pathloom_schemes::Deployment;
use pathloom_sim::{
    ControlSettings, Fidelity, LargeFabric, NoTap, Outcome, Parted, PcapTap, SimSettings, SubflowPath, Successor, Tap,
};
use pathloom_transport::{Reordering, TransportSpec};
use pathloom_workload::{PartFiles, TrafficPart, TrafficSpec, Workload};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde::Deserialize;
use std::fs::File;
use std::io::BufWriter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Default for the longest time after the end of arrivals, in which flows under way can finish. It is a multiple of
/// the duration.
const DRAIN: u32 = 5;

/// Settings that Python sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    fabric: String,
    fabric_text: Option<String>,
    traffic: String,
    scheme: String,
    transport: Option<String>,
    /// Upper limit of the transport's minimum retransmission time-out.
    min_rto_ns: Option<u64>,
    control: Option<String>,
    duration: String,
    drain: Option<u32>,
    seed: u64,
    faults: Vec<String>,
    fidelity: Option<String>,
    threads: Option<usize>,
    pcap: Option<String>,
    event_log: Option<String>,
}

/// A run with or without a packet capture, on a fabric of any size or a large one, on one thread or on several.
enum Run {
    Plain(pathloom_sim::Simulation<NoTap>),
    Large(pathloom_sim::Simulation<LargeFabric>),
    Parted(pathloom_sim::Simulation<Parted<false>>),
    PartedLarge(pathloom_sim::Simulation<Parted<true>>),
    Pcap(pathloom_sim::Simulation<PcapTap<BufWriter<File>>>, PartialFile),
}

/// One run of one scheme.
#[pyclass(frozen, module = "pathloom._core")]
pub struct Simulation {
    run: Mutex<Run>,
    threads: usize,
    fidelity: Fidelity,
    event_log: Option<EventLog>,
    workload: Arc<Workload>,
    fabric: Arc<pathloom_model::Fabric>,
    scheme_errors: SchemeErrors,
}

impl Simulation {
    fn prepare(settings: &str, object: Option<Object>) -> Result<Simulation, Error> {
        let settings: Settings = serde_json::from_str(settings)?;
        let fidelity = fidelity(settings.fidelity.as_deref(), settings.pcap.is_some())?;
        // This comes before anything that takes long: a caller that gives up waiting removes the files that exist
        // then, and no file may be created later.
        let event_log = settings.event_log.as_deref().map(EventLog::create).transpose()?;
        let pcap = settings.pcap.as_deref().map(|path| PartialFile::create("pcap", path)).transpose()?;
        let fabric = Fabric::build(&settings.fabric, settings.fabric_text.as_deref())?.fabric;
        let duration = parse_time(&settings.duration)?;
        let transport = settings.transport.as_deref().map(TransportSpec::parse).transpose()?;
        let Programs { central, successor, transport, programs, scheme_errors } =
            programs(&settings, &fabric, transport, object)?;
        let transport = match settings.min_rto_ns {
            Some(nanos) => transport.with_min_rto_at_most(Nanos(nanos)),
            None => transport,
        };
        let control =
            settings.control.as_deref().map_or_else(|| Ok(ControlSettings::default()), ControlSettings::parse)?;
        let faults = settings.faults.iter().map(|text| Fault::parse_all(&fabric, text));
        let faults = faults.collect::<Result<Vec<_>, SpecError>>()?.concat();
        let traffic = TrafficSpec::parse(&settings.traffic)?;
        let files = traffic.parts().iter().map(FilesOfPart::read).collect::<Result<Vec<_>, _>>()?;
        let files: Vec<PartFiles> = files.iter().map(FilesOfPart::borrowed).collect();
        let workload = Arc::new(traffic.generate_from(&fabric, duration, settings.seed, &files)?);
        let sim = SimSettings {
            fabric: fabric.clone(),
            workload: workload.clone(),
            central,
            successor: Some(successor),
            programs,
            transport,
            control,
            duration,
            drain: settings.drain.unwrap_or(DRAIN),
            faults,
            seed: settings.seed,
        };
        let (threads, log) = (settings.threads.unwrap_or(1), event_log.as_ref());
        let large = fabric.links().len() >= LargeFabric::LINKS;
        let run = match pcap {
            None if fidelity == Fidelity::Fluid => Run::Plain(start_with(sim, NoTap, log, fidelity)?),
            None if fidelity == Fidelity::Skip && large => Run::Large(start_with(sim, LargeFabric, log, fidelity)?),
            None if fidelity == Fidelity::Skip => Run::Plain(start_with(sim, NoTap, log, fidelity)?),
            None if threads > 1 && large => Run::PartedLarge(start(sim, Parted, log)?),
            None if threads > 1 => Run::Parted(start(sim, Parted, log)?),
            None if large => Run::Large(start(sim, LargeFabric, log)?),
            None => Run::Plain(start(sim, NoTap, log)?),
            Some((file, out)) => {
                let tap = PcapTap::new(out, &fabric).map_err(|source| file.error(source))?;
                Run::Pcap(start(sim, tap, log)?, file)
            }
        };
        Ok(Simulation { run: Mutex::new(run), threads, fidelity, event_log, workload, fabric, scheme_errors })
    }

    /// Locks the run. A panic in another thread leaves a run that nobody will read; this thread may still drop it.
    fn lock(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content of the files of a part of the traffic.
struct FilesOfPart {
    text: Option<String>,
    traces: Vec<Vec<u8>>,
}

impl FilesOfPart {
    fn read(part: &TrafficPart) -> Result<FilesOfPart, Error> {
        let text = part.needs_file().map(|path| read_file("traffic", path)).transpose()?;
        Ok(FilesOfPart { text, traces: read_traces(part)? })
    }

    fn borrowed(&self) -> PartFiles<'_> {
        PartFiles { text: self.text.as_deref(), traces: &self.traces }
    }
}

/// The files of a trace, by rank: all that exist. It is an error if even the first one does not exist.
fn read_traces(traffic: &TrafficPart) -> Result<Vec<Vec<u8>>, Error> {
    let mut traces = Vec::new();
    for path in traffic.needs_traces() {
        match read_bytes(&path) {
            Ok(content) => traces.push(content),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound && !traces.is_empty() => break,
            Err(source) => return Err(Error::File { what: "traffic", path, source }),
        }
    }
    Ok(traces)
}

/// A scheme written in Python: an object, and a callable that creates another one of its kind.
struct Object {
    scheme: Py<PyAny>,
    make: Option<Py<PyAny>>,
}

/// The programs of a run.
struct Programs {
    central: Option<Box<dyn Scheme>>,
    /// Creates the central policy again.
    successor: Successor,
    /// Transport of the hosts.
    transport: TransportSpec,
    /// Programs of the switches; `None` if they follow rules.
    programs: Option<Deployment>,
    /// Errors in the central policy.
    scheme_errors: SchemeErrors,
}

/// The central policy (the object if there is one, otherwise the scheme with this name in the registry), and what
/// hosts and switches run under it.
fn programs(
    settings: &Settings,
    fabric: &pathloom_model::Fabric,
    transport: Option<TransportSpec>,
    object: Option<Object>,
) -> Result<Programs, Error> {
    if let Some(Object { scheme, make }) = object {
        let scheme = Python::attach(|py| PyScheme::new(py, &settings.scheme, scheme))?;
        let (scheme_errors, label) = (scheme.errors(), settings.scheme.clone());
        let noted = scheme_errors.clone();
        let successor = move || {
            let made = Python::attach(|py| PyScheme::successor(py, &label, make.as_ref()?, &noted));
            made.map(|scheme| Box::new(scheme) as Box<dyn Scheme>)
        };
        let transport = transport_for(&scheme.needs(), transport)?;
        let (central, successor) = (Some(Box::new(scheme) as Box<dyn Scheme>), Box::new(successor));
        return Ok(Programs { central, successor, transport, programs: None, scheme_errors });
    }
    let scheme = crate::registry::registry().parse(&settings.scheme)?;
    scheme.check_fabric(fabric).map_err(Error::Operation)?;
    let transport = scheme.transport_with(transport).map_err(Error::Transport)?;
    let seed = settings.seed;
    let (central, programs) = (scheme.central(seed), scheme.deployment());
    let successor = Box::new(move || scheme.central(seed));
    Ok(Programs { central, successor, transport, programs, scheme_errors: SchemeErrors::default() })
}

/// The transport of hosts with these needs: as in the built-in schemes with the same needs, hosts tolerate reordering where
/// every packet may take another path, and echo congestion marks where senders react to them. Flowlets need no tolerance: the
/// next one leaves when the packets of the one before have arrived.
fn transport_for(needs: &Needs, given: Option<TransportSpec>) -> Result<TransportSpec, Error> {
    let is_by_packet = matches!(needs.entropy, Entropy::Packet | Entropy::Cell { .. })
        || matches!(needs.selection, Selection::RoundRobin | Selection::ShortestQueue { .. });
    let usual = match needs.entropy {
        Entropy::Rehashed(_) => TransportSpec::parse("dctcp")?,
        _ => TransportSpec::default(),
    };
    let transport = given.unwrap_or(usual).tolerating(is_by_packet.then_some(Reordering::Window));
    if matches!(needs.entropy, Entropy::Rehashed(_)) && !transport.echoes_marks() {
        let expected = "--transport: expected dctcp:… or roce:…, because a scheme with Rehash needs congestion marks";
        return Err(Error::Transport(expected.to_owned()));
    }
    Ok(transport)
}

/// The fidelity of this name; packets without one.
fn fidelity(name: Option<&str>, captures: bool) -> Result<Fidelity, Error> {
    let fidelity = name.map_or(Some(Fidelity::default()), Fidelity::of_name);
    let problem = match fidelity {
        Some(Fidelity::Skip) if captures => {
            "packets that are skipped cannot be captured; leave out --pcap, or use packets"
        }
        Some(Fidelity::Fluid) if captures => "there are no packets to capture; leave out --pcap, or use packets",
        Some(fidelity) => return Ok(fidelity),
        None => "expected packets, skip or fluid",
    };
    let spec = name.unwrap_or_default().to_owned();
    Err(SpecError { what: "fidelity", spec, problem: problem.into() }.into())
}

fn start<T: Tap>(
    settings: SimSettings,
    tap: T,
    event_log: Option<&EventLog>,
) -> Result<pathloom_sim::Simulation<T>, Error> {
    start_with(settings, tap, event_log, Fidelity::Packets)
}

fn start_with<T: Tap>(
    settings: SimSettings,
    tap: T,
    event_log: Option<&EventLog>,
    fidelity: Fidelity,
) -> Result<pathloom_sim::Simulation<T>, Error> {
    let journal = event_log.map(|log| Box::new(log.clone()) as Box<dyn pathloom_sim::Journal + Send>);
    Ok(pathloom_sim::Simulation::with_fidelity(settings, tap, journal, fidelity)?)
}

/// Calls a method of a run of any kind.
macro_rules! of_run {
    ($run:expr, $sim:ident => $call:expr) => {
        match $run {
            Run::Plain($sim) => $call,
            Run::Large($sim) => $call,
            Run::Parted($sim) => $call,
            Run::PartedLarge($sim) => $call,
            Run::Pcap($sim, _) => $call,
        }
    };
}

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (settings, scheme = None, make = None))]
    fn new(
        py: Python<'_>,
        settings: &str,
        scheme: Option<Py<PyAny>>,
        make: Option<Py<PyAny>>,
    ) -> Result<Simulation, Error> {
        let object = scheme.map(|scheme| Object { scheme, make });
        py.detach(|| Simulation::prepare(settings, object))
    }

    fn advance(&self, py: Python<'_>, until_s: f64) -> f64 {
        let until = Nanos((until_s.max(0.0) * 1e9) as u64);
        py.detach(|| {
            let mut run = self.lock();
            match &mut *run {
                Run::Parted(sim) => sim.advance_on(until, self.threads),
                Run::PartedLarge(sim) => sim.advance_on(until, self.threads),
                Run::Plain(sim) => sim.advance(until),
                Run::Large(sim) => sim.advance(until),
                Run::Pcap(sim, _) => sim.advance(until),
            }
            of_run!(&*run, sim => sim.now().as_secs_f64())
        })
    }

    /// Why the run must stay on one thread; `None` if it need not.
    #[getter]
    fn one_thread(&self, py: Python<'_>) -> Option<&'static str> {
        py.detach(|| match &*self.lock() {
            Run::Pcap(..) => Some("packets are captured"),
            run => of_run!(run, sim => sim.one_thread()),
        })
    }

    /// Completes the files that are written during the run.
    fn finish(&self, py: Python<'_>) -> Result<(), Error> {
        py.detach(|| {
            if let Run::Pcap(sim, file) = &mut *self.lock() {
                let written = sim.tap_mut().finish().map(|_packets| ());
                file.finish(written)?;
            }
            self.event_log.as_ref().map_or(Ok(()), EventLog::finish)
        })
    }

    #[getter]
    fn done(&self, py: Python<'_>) -> bool {
        // A run that holds the lock may be waiting for the interpreter: its scheme may be written in Python.
        py.detach(|| of_run!(&*self.lock(), sim => sim.is_done()))
    }

    #[getter]
    fn end_s(&self, py: Python<'_>) -> f64 {
        py.detach(|| of_run!(&*self.lock(), sim => sim.end().as_secs_f64()))
    }

    #[getter]
    fn first_subflows(&self, py: Python<'_>) -> (usize, bool) {
        py.detach(|| of_run!(&*self.lock(), sim => sim.first_subflows()))
    }

    #[getter]
    fn description(&self) -> &str {
        &self.workload.description
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.workload.notes.clone()
    }

    fn offered<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let flows = py.detach(|| of_run!(&*self.lock(), sim => sim.offered()));
        PyList::new(py, flows.iter().map(|flow| offered_dict(py, flow)).collect::<PyResult<Vec<_>>>()?)
    }

    fn cable_faults(&self, py: Python<'_>) -> Result<Vec<(u64, bool, Vec<u32>)>, Error> {
        let faults = py.detach(|| of_run!(&*self.lock(), sim => sim.cable_faults()));
        let numbers = |links: Vec<LinkId>| links.into_iter().map(|link| link.0).collect();
        Ok(faults?.into_iter().map(|(at, up, links)| (at.0, up, numbers(links))).collect())
    }

    fn switch_tables(&self, py: Python<'_>) -> Result<String, Error> {
        py.detach(|| {
            let tables = of_run!(&mut *self.lock(), sim => sim.switch_tables());
            let rows = tables.iter().map(|of| (of.switch.0, &of.rules, &of.groups)).collect::<Vec<_>>();
            Ok(serde_json::to_string(&rows)?)
        })
    }

    /// Takes a switch, or the cables between two neighbours, out of service without loss, or back into it.
    fn drain(&self, py: Python<'_>, name: &str, out: bool) -> Result<(), Error> {
        let target = crate::operations::drain_target(&self.fabric, name)?;
        py.detach(|| of_run!(&mut *self.lock(), sim => sim.drain(target, out)));
        Ok(())
    }

    /// Puts another scheme in charge of the running controller.
    fn set_scheme(&self, py: Python<'_>, spec: &str) -> Result<(), Error> {
        let scheme = crate::operations::central_scheme(&self.fabric, spec)?;
        py.detach(|| of_run!(&mut *self.lock(), sim => sim.set_scheme(scheme)));
        Ok(())
    }

    fn keep_ways(&self, py: Python<'_>) {
        py.detach(|| of_run!(&mut *self.lock(), sim => sim.record_subflow_paths()));
    }

    fn take_ways(&self, py: Python<'_>) -> Vec<(u32, u16, Vec<u32>, Option<String>)> {
        let paths = py.detach(|| of_run!(&mut *self.lock(), sim => sim.take_subflow_paths()));
        let row = |path: SubflowPath| {
            let links = path.links.into_iter().map(|link| link.0).collect();
            (path.transfer, path.five_tuple.src_port(), links, path.why)
        };
        paths.into_iter().map(row).collect()
    }

    /// Number of errors in a scheme in Python, the first one in one line, and its traceback.
    #[getter]
    fn troubles(&self) -> Option<(u64, String, String)> {
        self.scheme_errors.summary()
    }

    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (outcome, delays, skipped): (Outcome, _, _) = py.detach(|| {
            let run = &*self.lock();
            let outcome = of_run!(run, sim => sim.outcome());
            let delays = delays(&self.workload, &outcome, |flow| of_run!(run, sim => sim.path_of(flow)));
            (outcome, delays, of_run!(run, sim => sim.skipped()))
        });
        if !outcome.conserves_packets() {
            return Err(Error::Unbalanced(outcome.packets).into());
        }
        let parts = PyDict::new(py);
        parts.set_item("flows", flow_columns(py, &outcome.flows, &self.workload.flows, self.fidelity)?)?;
        parts.set_item("subflows", subflow_columns(py, &outcome.subflows, self.fidelity)?)?;
        parts.set_item("links", link_columns(py, &outcome.links, self.fidelity)?)?;
        parts.set_item("packets", packet_dict(py, &outcome.packets, self.fidelity)?)?;
        parts.set_item("control", control_dict(py, &outcome.control)?)?;
        parts.set_item("programs", outcome.programs.as_ref().map(|of| program_dict(py, of)).transpose()?)?;
        parts.set_item("pauses", outcome.pauses.as_ref().map(|of| pause_dict(py, &self.fabric, of)).transpose()?)?;
        parts.set_item("kinds", outcome.kinds.as_ref().map(|of| kind_dict(py, of)).transpose()?)?;
        parts.set_item("skipped", skipped.map(|of| skip_dict(py, &of)).transpose()?)?;
        parts.set_item("jobs", job_list(py, &self.workload, &delays)?)?;
        parts.set_item("end_ns", outcome.end.0)?;
        Ok(parts)
    }
}
