//! Outcomes as columns. A missing whole number is -1, a missing real number is NaN. Runs without packets lack the columns of
//! links about packets, and their counts of packets are `None`.

use numpy::{Element, IntoPyArray};
use pathloom_model::{Fabric, LinkId, Nanos};
use pathloom_sim::{
    ControlOutcome, Deadlock, Fidelity, FlowOutcome, KindOutcome, LinkOutcome, OfferedFlow, PacketTotals, PauseOutcome,
    ProgramOutcome, Skipped, SubflowOutcome,
};
use pathloom_workload::{FlowSpec, Start};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Adds a column with one value per row.
fn column<R, T: Element>(columns: &Bound<'_, PyDict>, name: &str, rows: &[R], value: impl Fn(&R) -> T) -> PyResult<()> {
    let values: Vec<T> = rows.iter().map(value).collect();
    columns.set_item(name, values.into_pyarray(columns.py()))
}

fn or_none(number: Option<impl TryInto<i64>>) -> i64 {
    number.and_then(|number| number.try_into().ok()).unwrap_or(-1)
}

fn ns(time: Option<Nanos>) -> i64 {
    or_none(time.map(|time| time.0))
}

/// Adds a column of counts of packets, which are missing in a run without packets.
fn counts<R>(
    columns: &Bound<'_, PyDict>,
    fidelity: Fidelity,
    (name, rows): (&str, &[R]),
    value: impl Fn(&R) -> u64,
) -> PyResult<()> {
    match fidelity {
        Fidelity::Packets | Fidelity::Skip => column(columns, name, rows, value),
        Fidelity::Fluid => column(columns, name, rows, |_| or_none(None::<i64>)),
    }
}

/// One row per flow. `specs` are the flows of the workload, by the index of a flow.
pub fn flow_columns<'py>(
    py: Python<'py>,
    flows: &[FlowOutcome],
    specs: &[FlowSpec],
    fidelity: Fidelity,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    column(&columns, "index", flows, |flow| flow.index)?;
    column(&columns, "src", flows, |flow| flow.src.0)?;
    column(&columns, "dst", flows, |flow| flow.dst.0)?;
    column(&columns, "src_port", flows, |flow| or_none(flow.five_tuple.map(|tuple| tuple.src_port())))?;
    column(&columns, "dst_port", flows, |flow| or_none(flow.five_tuple.map(|tuple| tuple.dst_port())))?;
    column(&columns, "size_bytes", flows, |flow| or_none(flow.size_bytes))?;
    column(&columns, "start_ns", flows, |flow| ns(flow.start))?;
    column(&columns, "finish_ns", flows, |flow| ns(flow.finish))?;
    column(&columns, "delivered_bytes", flows, |flow| flow.delivered_bytes)?;
    column(&columns, "arrived_bytes", flows, |flow| flow.arrived_bytes)?;
    column(&columns, "optimum_bps", flows, |flow| flow.optimum_bps)?;
    column(&columns, "ideal_fct_ns", flows, |flow| ns(flow.ideal_fct))?;
    column(&columns, "throughput", flows, |flow| flow.throughput.unwrap_or(f64::NAN))?;
    counts(&columns, fidelity, ("window_bytes", flows), |flow| flow.window_bytes)?;
    counts(&columns, fidelity, ("retransmits", flows), |flow| flow.retransmits.into())?;
    counts(&columns, fidelity, ("timeouts", flows), |flow| flow.timeouts.into())?;
    let waited = |flow: &FlowOutcome| flow.timeout_wait.initial.0 + flow.timeout_wait.sampled.0;
    counts(&columns, fidelity, ("timeout_wait_ns", flows), waited)?;
    counts(&columns, fidelity, ("initial_wait_ns", flows), |flow| flow.timeout_wait.initial.0)?;
    counts(&columns, fidelity, ("packets", flows), |flow| flow.packets)?;
    counts(&columns, fidelity, ("segments", flows), |flow| flow.segments.into())?;
    counts(&columns, fidelity, ("reordered", flows), |flow| flow.reordered.into())?;
    column(&columns, "coflow", flows, |flow| or_none(flow.coflow))?;
    column(&columns, "delay_ns", flows, |flow| match specs[flow.index as usize].start {
        Start::At(_) => or_none(None::<i64>),
        Start::After { delay, .. } => ns(Some(delay)),
    })?;
    Ok(columns)
}

/// One row per subflow of a transfer that has several.
pub fn subflow_columns<'py>(
    py: Python<'py>,
    subflows: &[SubflowOutcome],
    fidelity: Fidelity,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    column(&columns, "flow", subflows, |one| one.transfer)?;
    column(&columns, "src_port", subflows, |one| one.five_tuple.src_port())?;
    column(&columns, "delivered_bytes", subflows, |one| one.delivered_bytes)?;
    counts(&columns, fidelity, ("retransmits", subflows), |one| one.retransmits.into())?;
    counts(&columns, fidelity, ("timeouts", subflows), |one| one.timeouts.into())?;
    let address = |address: fn(&SubflowOutcome) -> String| subflows.iter().map(address).collect::<Vec<_>>();
    columns.set_item("src_address", address(|one| one.five_tuple.src().to_string()))?;
    columns.set_item("dst_address", address(|one| one.five_tuple.dst().to_string()))?;
    let links = |one: &SubflowOutcome| one.links.iter().map(|link| link.0).collect::<Vec<_>>();
    columns.set_item("links", subflows.iter().map(links).collect::<Vec<_>>())?;
    Ok(columns)
}

/// A transfer as it is offered.
pub fn offered_dict<'py>(py: Python<'py>, flow: &OfferedFlow) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (after, start) = match &flow.spec.start {
        Start::At(at) => (Vec::new(), at.0),
        Start::After { flows, delay } => (flows.to_vec(), delay.0),
    };
    dict.set_item("after", after)?;
    dict.set_item("start_ns", start)?;
    dict.set_item("src", flow.spec.src.0)?;
    dict.set_item("dst", flow.spec.dst.0)?;
    dict.set_item("src_address", flow.five_tuple.src().to_string())?;
    dict.set_item("dst_address", flow.five_tuple.dst().to_string())?;
    dict.set_item("src_port", flow.five_tuple.src_port())?;
    dict.set_item("dst_port", flow.five_tuple.dst_port())?;
    dict.set_item("size_bytes", flow.spec.size_bytes)?;
    dict.set_item("coflow", flow.spec.coflow)?;
    dict.set_item("dscp", flow.dscp)?;
    dict.set_item("optimum_bps", flow.optimum_bps)?;
    dict.set_item("ideal_fct_ns", flow.ideal_fct.map(|time| time.0))?;
    dict.set_item("ways", flow.paths.each_ref().map(|path| path.iter().map(|link| link.0).collect::<Vec<_>>()))?;
    Ok(dict)
}

/// One row per directed link.
pub fn link_columns<'py>(py: Python<'py>, links: &[LinkOutcome], fidelity: Fidelity) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    column(&columns, "sent_bytes", links, |link| link.sent_bytes)?;
    column(&columns, "utilisation", links, |link| link.utilisation)?;
    if fidelity == Fidelity::Fluid {
        column(&columns, "mean_queue", links, |_| f64::NAN)?;
        return Ok(columns);
    }
    column(&columns, "mean_queue", links, |link| link.mean_queue)?;
    column(&columns, "sent_packets", links, |link| link.sent_packets)?;
    column(&columns, "dropped_packets", links, |link| link.dropped_packets)?;
    column(&columns, "pauses", links, |link| link.pauses)?;
    column(&columns, "paused_s", links, |link| link.paused.as_secs_f64())?;
    Ok(columns)
}

/// Counts of all packets.
pub fn packet_dict<'py>(py: Python<'py>, packets: &PacketTotals, fidelity: Fidelity) -> PyResult<Bound<'py, PyDict>> {
    let PacketTotals { sent, copied, delivered, misdelivered, dropped, in_flight, trimmed, hops, events } = *packets;
    let dict = PyDict::new(py);
    let counts = [
        ("sent", sent),
        ("copied", copied),
        ("delivered", delivered),
        ("misdelivered", misdelivered),
        ("dropped", dropped),
        ("in_flight", in_flight),
        ("trimmed", trimmed),
        ("hops", hops),
    ];
    let known = |count| (fidelity != Fidelity::Fluid).then_some(count);
    counts.into_iter().try_for_each(|(name, count)| dict.set_item(name, known(count)))?;
    dict.set_item("events", events)?;
    Ok(dict)
}

/// What was skipped of a run.
pub fn skip_dict<'py>(py: Python<'py>, skipped: &Skipped) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("time_s", skipped.time.as_secs_f64())?;
    dict.set_item("jumps", skipped.jumps)?;
    dict.set_item("obstacle", skipped.obstacle)?;
    Ok(dict)
}

/// Costs of control.
pub fn control_dict<'py>(py: Python<'py>, control: &ControlOutcome) -> PyResult<Bound<'py, PyDict>> {
    let &ControlOutcome { messages, rules_max, routes, reroutes, polls, polling_period, busy_share, ref sizes } =
        control;
    let dict = PyDict::new(py);
    let of_scheme = PyDict::new(py);
    sizes.iter().try_for_each(|(name, size)| of_scheme.set_item(name, size))?;
    dict.set_item("sizes", of_scheme)?;
    dict.set_item("messages", messages)?;
    dict.set_item("rules_max", rules_max)?;
    dict.set_item("routes", routes)?;
    dict.set_item("reroutes", reroutes)?;
    dict.set_item("polls", polls)?;
    dict.set_item("polling_period_s", polling_period.map(Nanos::as_secs_f64))?;
    dict.set_item("busy_share", busy_share)?;
    Ok(dict)
}

/// Results of the programs of switches.
pub fn program_dict<'py>(py: Python<'py>, programs: &ProgramOutcome) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let counts = [
        ("entries_max", programs.entries_max),
        ("hosts_max", programs.hosts_max),
        ("explorations", programs.explorations),
        ("recoveries", programs.recoveries),
        ("fails", programs.fails),
        ("late_copies", programs.late_copies),
        ("refused", programs.refused),
        ("exploration_frames", programs.exploration.frames),
        ("exploration_bytes", programs.exploration.bytes),
        ("arp_frames", programs.arp.frames),
        ("arp_bytes", programs.arp.bytes),
        ("hello_frames", programs.hello.frames),
        ("hello_bytes", programs.hello.bytes),
    ];
    counts.into_iter().try_for_each(|(name, count)| dict.set_item(name, count))?;
    dict.set_item("entries_mean", programs.entries_mean)?;
    dict.set_item("broadcast_share", programs.broadcast_share)?;
    let samples: Vec<(f64, f64)> =
        programs.samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.entries_mean)).collect();
    dict.set_item("entries", samples)?;
    Ok(dict)
}

/// Packets by kind: how many were sent under the name of the kind, and how many of them were lost.
pub fn kind_dict<'py>(py: Python<'py>, kinds: &[KindOutcome]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for kind in kinds {
        dict.set_item(kind.name, kind.sent)?;
        dict.set_item(format!("{}_lost", kind.name), kind.lost)?;
    }
    Ok(dict)
}

/// Most victims of a run in its results; the number of all is there as well.
const MOST_VICTIMS: usize = 20;

/// Results of priority-based flow control. A deadlock names the links of its cycle, as in `e0 → e1, e1 → e0`.
pub fn pause_dict<'py>(py: Python<'py>, fabric: &Fabric, pauses: &PauseOutcome) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pauses", pauses.pauses)?;
    dict.set_item("frames", pauses.frames)?;
    dict.set_item("paused_s", pauses.paused.as_secs_f64())?;
    dict.set_item("most_beyond_xoff_bytes", pauses.most_beyond_xoff_bytes)?;
    set_victims(py, &dict, fabric, pauses)?;
    let deadlock = pauses.deadlock.as_ref();
    let cycle = |of: &Deadlock| of.cycle.iter().map(|&link| link_name(fabric, link)).collect::<Vec<_>>().join(", ");
    dict.set_item("deadlock_cycle", deadlock.map(cycle))?;
    dict.set_item("deadlock_since_s", deadlock.map(|of| of.since.as_secs_f64()))?;
    dict.set_item("deadlock_stuck_links", deadlock.map_or(0, |of| of.stuck.len()))?;
    Ok(dict)
}

/// Adds the victims of pauses: their number, the longest time, and a list of the first of them.
fn set_victims(py: Python<'_>, dict: &Bound<'_, PyDict>, fabric: &Fabric, pauses: &PauseOutcome) -> PyResult<()> {
    dict.set_item("victims", pauses.victims.len())?;
    dict.set_item("victim_paused_s", pauses.victims.first().map_or(0.0, |victim| victim.paused.as_secs_f64()))?;
    let host = |address| match fabric.attachment(address) {
        Some(at) => fabric.node(at.host).name.clone(),
        None => address.to_string(),
    };
    let rows = pauses.victims.iter().take(MOST_VICTIMS).map(|victim| {
        let row = PyDict::new(py);
        row.set_item("src", host(victim.five_tuple.src()))?;
        row.set_item("dst", host(victim.five_tuple.dst()))?;
        row.set_item("src_port", victim.five_tuple.src_port())?;
        row.set_item("paused_s", victim.paused.as_secs_f64())?;
        row.set_item("at", link_name(fabric, victim.link))?;
        row.set_item("because_of", link_name(fabric, victim.root))?;
        Ok(row)
    });
    dict.set_item("victim_flows", rows.collect::<PyResult<Vec<_>>>()?)
}

/// Both ends of a link, as in `e0 → e1`.
fn link_name(fabric: &Fabric, link: LinkId) -> String {
    let link = fabric.link(link);
    format!("{} → {}", fabric.node(link.from).name, fabric.node(link.to).name)
}
