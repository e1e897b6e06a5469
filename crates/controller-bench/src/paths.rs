//! Paths set up per second: from a flow's first packet to the last of its path's rules.

use super::plan::Plan;
use super::report::{Measured, Row};
use super::served;
use super::target::Target;
use crate::process::ran_ns_of;
use pathloom_fabrics::fabric_from_spec;
use pathloom_fake_switch::{append_message, Common, Fake};
use pathloom_fake_switch::{connect, until, Work};
use pathloom_model::{Attachment, Fabric, FiveTuple, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_openflow::flow_match::{FlowMatch, ETH_IPV4};
use pathloom_openflow::packet::Ethernet;
use pathloom_openflow::{FlowCommand, Header, Kind, Message, PacketIn, PacketInReason, NO_BUFFER, VERSION};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The fabric of the comparison.
pub(super) const FABRIC: &str = "fat-tree:k=8";
/// Number of flows set up before the measurement, and number of flows measured.
pub(super) const FLOWS: (usize, usize) = (10_000, 40_000);
/// Time without a message after which the default routes count as installed.
const QUIET: Duration = Duration::from_millis(300);
/// Time limit for everything, including the flows that exist before.
const PATIENCE: Duration = Duration::from_secs(120);
/// The table with rules of single flows. The default routes and the rules that copy packets are in others.
const FLOW_TABLE: u8 = 1;

/// Counters of all ToRs together.
pub(super) struct Counts {
    /// Flows that may still be started.
    left: usize,
    started: usize,
    finished: usize,
    times_ns: Vec<u64>,
    /// Number of flows before the measurement, and when it was reached.
    standing: usize,
    from: Option<Instant>,
    to: Option<Instant>,
    /// Time limit of the measurement.
    limit: Duration,
    /// The controller's process, and its CPU time before and during the measurement.
    process: Option<u32>,
    ran_ns: Option<u64>,
    ran_s: Option<f64>,
}

impl Counts {
    /// Counts these numbers of flows: set up before the measurement, and measured. The measurement ends after `limit`
    /// at the latest.
    pub(super) fn new((standing, measured): (usize, usize), limit: Duration, process: Option<u32>) -> Counts {
        Counts {
            left: standing + measured,
            started: 0,
            finished: 0,
            times_ns: Vec::with_capacity(measured),
            standing,
            from: None,
            to: None,
            limit,
            process,
            ran_ns: None,
            ran_s: None,
        }
    }

    /// A path was set up. Its first packet was sent at `sent`; the last of its rules was read at `read`.
    fn finish(&mut self, sent: Instant, read: Instant) {
        self.finished += 1;
        if self.finished <= self.standing {
            if self.finished == self.standing {
                self.from = Some(Instant::now());
                self.ran_ns = self.process.and_then(ran_ns_of);
            }
            return;
        }
        if self.is_done() {
            return;
        }
        self.times_ns.push(read.duration_since(sent).as_nanos() as u64);
        let late = self.finished.is_multiple_of(16) && self.from.is_some_and(|from| from.elapsed() > self.limit);
        if late || (self.finished == self.started && self.left == 0) {
            self.left = 0;
            self.to = Some(Instant::now());
            let ran_ns = self.process.and_then(ran_ns_of).zip(self.ran_ns).map(|(after, before)| after - before);
            self.ran_s = ran_ns.map(|ns| ns as f64 / 1e9);
        }
    }

    /// Number of paths set up.
    pub(super) fn finished(&self) -> usize {
        self.finished
    }

    /// Whether all flows before the measurement exist.
    pub(super) fn is_measuring(&self) -> bool {
        self.from.is_some()
    }

    /// Whether all paths have been set up.
    pub(super) fn is_done(&self) -> bool {
        self.to.is_some()
    }
}

/// A switch. A ToR opens flows of its hosts.
pub(super) struct FlowSetupWork {
    fabric: Rc<Fabric>,
    hosts: Vec<Attachment>,
    outstanding: usize,
    next: u32,
    sent: FxHashMap<FiveTuple, Instant>,
    counts: Rc<RefCell<Counts>>,
}

impl FlowSetupWork {
    /// Appends the first packet of the next flow, from a host of this ToR to one of another.
    pub(super) fn open(&mut self, now: Instant, out: &mut Vec<u8>) {
        {
            let mut counts = self.counts.borrow_mut();
            if self.hosts.is_empty() || counts.left == 0 {
                return;
            }
            counts.left -= 1;
            counts.started += 1;
        }
        let all = self.fabric.attachments();
        let src = self.hosts[self.next as usize % self.hosts.len()];
        let own = all.partition_point(|at| at.address < src.address);
        let away = self.hosts.len() + self.next as usize % (all.len() - 2 * self.hosts.len());
        let dst = all[(own + away) % all.len()];
        let (src_port, dst_port) = (1024 + (self.next % 60_000) as u16, 80 + (self.next / 60_000) as u16);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.address, src_port), (dst.address, dst_port));
        self.next += 1;
        first_packet(five_tuple, self.fabric.link(src.uplink).to_port.0, out);
        self.sent.insert(five_tuple, now);
    }
}

/// Appends the packet-in of a labelled flow's first packet, a SYN that arrived at `port`.
pub(crate) fn first_packet(five_tuple: FiveTuple, port: u32, out: &mut Vec<u8>) {
    let mut payload = [0u8; 40];
    payload[..10].copy_from_slice(&[0x45, LONG_FLOW_DSCP << 2, 0, 40, 0, 0, 0, 0, 64, PROTO_TCP]);
    payload[12..16].copy_from_slice(&five_tuple.src().low().to_be_bytes());
    payload[16..20].copy_from_slice(&five_tuple.dst().low().to_be_bytes());
    payload[20..22].copy_from_slice(&five_tuple.src_port().to_be_bytes());
    payload[22..24].copy_from_slice(&five_tuple.dst_port().to_be_bytes());
    (payload[32], payload[33]) = (5 << 4, TCP_SYN);
    let mut data = Vec::with_capacity(54);
    let (dst, src) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    Ethernet { dst, src, vlan: None, kind: ETH_IPV4, payload: &payload }.emit(&mut data);
    let matches = FlowMatch { in_port: Some(port), ..FlowMatch::default() };
    let (total_len, reason) = (data.len() as u16, PacketInReason::Action);
    let packet = PacketIn { buffer: NO_BUFFER, total_len, reason, table: 0, cookie: 0, matches, data: &data };
    append_message(&Message::PacketIn(packet), 0, out);
}

impl Work for FlowSetupWork {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        for _ in 0..self.outstanding {
            self.open(now, out);
        }
    }

    fn message(&mut self, read: Instant, kind: u8, body: &[u8], out: &mut Vec<u8>) {
        if self.note(read, kind, body) {
            self.open(read, out);
        }
    }
}

impl FlowSetupWork {
    /// Whether the switch has hosts, whose flows may be opened.
    pub(super) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Notes a message; returns whether it finished a path.
    pub(super) fn note(&mut self, read: Instant, kind: u8, body: &[u8]) -> bool {
        // The rule at the source ToR is the last of a path, because it is sent when all others are confirmed.
        if kind != Kind::FLOW_MOD || self.hosts.is_empty() || body.get(16) != Some(&FLOW_TABLE) {
            return false;
        }
        let header = Header { version: VERSION, kind, length: 0, xid: 0 };
        let Ok(Message::FlowMod(flow)) = Message::parse(header, body) else { return false };
        let matches = flow.matches;
        let on_path = flow.command == FlowCommand::Add && !flow.instructions.apply.is_empty();
        let (Some(src), Some(dst), true) = (matches.ipv4_src, matches.ipv4_dst, on_path) else { return false };
        let (Some(src_port), Some(dst_port)) = (matches.tcp_src, matches.tcp_dst) else { return false };
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.0.into(), src_port), (dst.0.into(), dst_port));
        let Some(sent) = self.sent.remove(&five_tuple) else { return false };
        self.counts.borrow_mut().finish(sent, read);
        true
    }
}

/// The switches of a fabric, and the flows of their hosts.
pub(super) fn switches<'a>(
    fabric: &'a Rc<Fabric>,
    outstanding: usize,
    common: &'a Common,
    counts: &'a Rc<RefCell<Counts>>,
) -> impl Iterator<Item = (Fake, FlowSetupWork)> + 'a {
    fabric.switches().iter().map(move |&switch| {
        let hosts: Vec<Attachment> = fabric.attachments().iter().copied().filter(|at| at.tor == switch).collect();
        let ports = fabric.node(switch).ports.len() as u32;
        let (counts, fabric) = (counts.clone(), fabric.clone());
        let work = FlowSetupWork { fabric, hosts, outstanding, next: 0, sent: FxHashMap::default(), counts };
        (Fake::new(u64::from(switch.0) + 1, ports, common.clone()), work)
    })
}

/// Loads the controller on a port with `flows` (set up before, measured) on a fabric.
pub(crate) fn run(
    (port, process): (u16, u32),
    spec: &str,
    flows: (usize, usize),
    (outstanding, limit): (usize, Duration),
) -> Result<Measured, String> {
    let fabric = Rc::new(fabric_from_spec(spec).map_err(|problem| problem.to_string())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (common, go) = (Common::default(), Rc::new(Notify::new()));
        let counts = Rc::new(RefCell::new(Counts::new(flows, limit, Some(process))));
        let start = Instant::now();
        let tasks: Vec<_> = switches(&fabric, outstanding, &common, &counts)
            .map(|(fake, work)| connect(port, fake, work, go.clone()))
            .collect();
        until("the start of all sessions", || common.standing.get() == fabric.switches().len()).await?;
        let connected_s = start.elapsed().as_secs_f64();
        wait_until_quiet(&common).await;
        go.notify_waiters();
        let start = Instant::now();
        let mut seen = (0, start);
        until_progress(|| {
            let counts = counts.borrow();
            if counts.finished > seen.0 {
                seen = (counts.finished, Instant::now());
            }
            let idle = if start.elapsed() > PATIENCE { PATIENCE } else { seen.1.elapsed() };
            (counts.to.is_some(), idle, counts.finished)
        })
        .await?;
        tasks.iter().for_each(|task| task.abort());
        let mut counts = counts.borrow_mut();
        let seconds = counts.to.zip(counts.from).map_or(0.0, |(to, from)| (to - from).as_secs_f64());
        let count = counts.times_ns.len() as u64;
        let ran_s = counts.ran_s;
        Ok(Measured::new(count, seconds, std::mem::take(&mut counts.times_ns), (connected_s, ran_s)))
    })
}

/// Waits until no message has come for a while.
pub(super) async fn wait_until_quiet(common: &Common) {
    loop {
        let before = common.messages.get();
        tokio::time::sleep(QUIET).await;
        if common.messages.get() == before {
            return;
        }
    }
}

/// Waits until everything is done, or nothing has happened for long.
async fn until_progress(mut state: impl FnMut() -> (bool, Duration, usize)) -> Result<(), String> {
    loop {
        let (done, idle, finished) = state();
        if done {
            return Ok(());
        }
        if idle > Duration::from_secs(10) {
            return Err(format!("too slow: {finished} paths were set up within the time limit"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Measures the schemes.
pub(crate) fn measure(plan: &Plan, done: &mut impl FnMut(Row)) -> Result<(), String> {
    let known = pathloom_schemes::names();
    for scheme in &plan.schemes {
        let name = scheme.split(':').next().unwrap_or_default();
        if !known.contains(&name) {
            return Err(format!("--schemes: there is no scheme {name}; the schemes are {}", known.join(", ")));
        }
        for &outstanding in &plan.outstanding {
            let (work, numbers) = (format!("paths {scheme}"), (80, outstanding));
            if !served::routes_first_packets(scheme)? {
                let why = "it sets up no path when the first packet of a flow arrives".into();
                done(Row::without(("pathloom", &work), numbers, why));
                continue;
            }
            let target = Target::start(&format!("fabric:{scheme}:{FABRIC}"))?;
            let flows = if outstanding == 1 { (FLOWS.0, FLOWS.1 / 4) } else { FLOWS };
            let row = match run(target.place(), FABRIC, flows, (outstanding, 5 * plan.duration)) {
                Ok(measured) => Row::new(("pathloom", &work), numbers, &measured, target.resident_bytes()),
                Err(why) => Row::without(("pathloom", &work), numbers, why),
            };
            done(row);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_openflow::frame;

    #[test]
    fn the_controller_can_parse_a_first_packet() {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 1].into());
        let five_tuple = FiveTuple::new(PROTO_TCP, (src, 1), (dst, 2));
        let mut out = Vec::new();
        first_packet(five_tuple, 3, &mut out);
        let (header, body, _) = frame(&out).unwrap().unwrap();
        let Message::PacketIn(packet) = Message::parse(header, body).unwrap() else { panic!("no packet-in") };
        let read = pathloom_openflow::packet::headers(&Ethernet::parse(packet.data).unwrap()).unwrap().unwrap();
        assert_eq!((read.five_tuple, read.dscp, read.tcp_flags), (five_tuple, LONG_FLOW_DSCP, TCP_SYN));
    }
}
