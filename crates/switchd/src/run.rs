//! The process of a switch: one thread that waits for frames, changes of links, requests at the control socket, and
//! timers.

use crate::bpf::{self, Bpf, FlowTable};
use crate::config::Config;
use crate::filters::Filters;
use crate::foreigners::Foreigners;
use crate::layout::{Flow as KernelFlow, Path as KernelPath, Port};
use crate::links::{enter, index_of, Changes, Links, Numbers, Sender};
use crate::show::{self, refused_name, PortRow, Report};
use crate::state::{self, State};
use crate::switch::{Flow, ForwardingReason, Passed, Switch, System, Way};
use pathloom_daemon_support::system::{monotonic_ns, realtime_ns};
use pathloom_model::{Nanos, PortNo};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use tracing::{info, warn};

/// Maximum number of frames that are handled before other events.
const BATCH: usize = 256;
/// Minimum time between two readings of the kernel's counters.
const LEAST_PAUSE: Nanos = Nanos::from_millis(50);
/// The pause after a reading is at least this many times as long as the reading.
const CREDIT_SHARE: u64 = 20;
/// Longest time between a change and its storage in the state file.
const SAVE_AFTER: Nanos = Nanos::from_millis(50);
/// Time between two checks for ports whose frames were refused, and minimum time between two messages about one port.
const LOOK_AFTER: Nanos = Nanos::from_secs(1);
const NAME_AGAIN: Nanos = Nanos::from_secs(10);
/// Time between two checks whether the BPF program is attached to all ports. Its removal is noticed at once; a program that
/// replaces it causes no event.
const CHECK_AFTER: Nanos = Nanos::from_secs(5);

/// Values of `path.kind` in the kernel: the reasons for which it forwards a flow.
const DEFAULT: u32 = 0;
const FORWARD: u32 = 1;
const BACKWARD: u32 = 2;

/// Clock of the program. It starts with the time of day at the start of the process, and is monotonic from then on. So
/// the numbers of explorations increase over restarts of the machine.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ahead_ns: u64,
}

impl Clock {
    fn new() -> Clock {
        Clock { ahead_ns: realtime_ns().saturating_sub(monotonic_ns()) }
    }

    fn now(self) -> Nanos {
        self.at(monotonic_ns())
    }

    fn at(self, monotonic_ns: u64) -> Nanos {
        Nanos(monotonic_ns.saturating_add(self.ahead_ns))
    }
}

/// Access to the kernel and the interfaces, for one call of the switch.
struct Kernel<'a, 'b> {
    flow_table: &'a mut FlowTable<'b>,
    out: &'a mut Out,
}

/// The objects that are needed to send frames.
struct Out {
    sender: Sender,
    numbers: Numbers,
    clock: Clock,
    failures: u64,
}

impl Kernel<'_, '_> {
    fn key(&self, flow: &Flow) -> Option<KernelFlow> {
        let index = *self.out.numbers.index_of.get(&flow.in_port)?;
        KernelFlow::new(index, &flow.five_tuple, flow.src, flow.dst, flow.dscp)
    }

    fn passed_of(&self, path: &KernelPath) -> Passed {
        Passed { last: self.out.clock.at(path.last_ns), packets: path.packets, bytes: path.bytes }
    }
}

impl System for Kernel<'_, '_> {
    fn send(&mut self, port: PortNo, bytes: &[u8]) {
        let index = self.out.numbers.index_of.get(&port);
        if index.is_none_or(|&index| self.out.sender.send(index, bytes).is_err()) {
            self.out.failures += 1;
        }
    }

    fn remember(&mut self, flow: &Flow, way: &Way) -> bool {
        let (Some(key), Some(&ifindex)) = (self.key(flow), self.out.numbers.index_of.get(&way.out_port)) else {
            return false;
        };
        let (kind, exploration) = match way.reason {
            ForwardingReason::Default => (DEFAULT, 0),
            ForwardingReason::Connection { exploration, forward: true } => (FORWARD, exploration),
            ForwardingReason::Connection { exploration, forward: false } => (BACKWARD, exploration),
        };
        let last_ns = monotonic_ns();
        self.flow_table.put(&key, &KernelPath { ifindex, kind, exploration, last_ns, packets: 0, bytes: 0 })
    }

    fn forget(&mut self, flow: &Flow) {
        if let Some(key) = self.key(flow) {
            self.flow_table.remove(&key);
        }
    }

    fn passed(&self, flow: &Flow) -> Option<Passed> {
        let path = self.flow_table.get(&self.key(flow)?)?;
        Some(self.passed_of(&path))
    }

    fn flows(&self) -> Vec<(Flow, Way, Passed)> {
        let port_of = &self.out.numbers.port_of;
        let one = |(key, path): (KernelFlow, KernelPath)| {
            let (in_port, out_port) = (*port_of.get(&key.ifindex)?, *port_of.get(&path.ifindex)?);
            let (src, dst) = (pathloom_model::Mac(key.src_mac), pathloom_model::Mac(key.dst_mac));
            let flow = Flow { five_tuple: key.five_tuple(), in_port, src, dst, dscp: key.dscp as u8 };
            let reason = match path.kind {
                DEFAULT => ForwardingReason::Default,
                kind => ForwardingReason::Connection { exploration: path.exploration, forward: kind == FORWARD },
            };
            Some((flow, Way { out_port, reason }, self.passed_of(&path)))
        };
        self.flow_table.all().into_iter().filter_map(one).collect()
    }
}

struct Running {
    config: Config,
    switch: Switch,
    bpf: Bpf,
    out: Out,
    links: Links,
    listener: UnixListener,
    up: BTreeMap<PortNo, bool>,
    started: Nanos,
    taken_over: bool,
    kept: State,
    /// Time at which changes are written to the state file. `None` if nothing can have changed.
    save_due: Option<Nanos>,
    credit_due: Nanos,
    look_due: Nanos,
    filters: Filters,
    program: u32,
    check_due: Nanos,
    /// Number of times that the BPF program was put back, by port.
    put_back: BTreeMap<PortNo, u64>,
    foreigners: Foreigners,
    /// Per port: number of refused or limited frames in the last message, and earliest time of the next message.
    named: BTreeMap<PortNo, (u64, Nanos)>,
}

/// Runs a switch until the process ends.
///
/// # Errors
/// The reason why the switch could not start or cannot continue.
pub fn run(config: Config) -> Result<(), String> {
    let mut running = Running::start(config)?;
    running.serve()
}

impl Running {
    fn start(config: Config) -> Result<Running, String> {
        bpf::require()?;
        if let Some(namespace) = &config.namespace {
            enter(namespace).map_err(|problem| format!("{}: {problem}", namespace.display()))?;
        }
        let directory = config.directory.clone();
        let named = |problem: io::Error| {
            let root = problem.kind() == io::ErrorKind::PermissionDenied;
            format!("{}: {problem}{}", directory.display(), if root { "; run the switch as root" } else { "" })
        };
        fs::create_dir_all(&directory).map_err(named)?;
        if show::ask(&directory)?.is_some() {
            return Err(format!("{}: the switch `{}` is already running", directory.display(), config.name));
        }
        let missing = config.ports.iter().find(|port| index_of(&port.interface).is_none());
        if let Some(port) = missing {
            return Err(format!("ports: number {}: there is no interface `{}`", port.number, port.interface));
        }
        let clock = Clock::new();
        let now = clock.now();
        let pinned = bpf::is_pinned(&config.bpf_fs, &config.name);
        let before = state::load(&directory, config.protocol.name(), &config.mac).filter(|_| pinned);
        let bpf = Bpf::load(&config.bpf_fs, &config.name)?;
        let boot = before.as_ref().map_or(now.0, |state| state.boot);
        let shares = config.ports.iter().map(|port| (PortNo(port.number), config.kernel_flows(port.role)));
        let switch = Switch::new(config.program(now, boot)?, shares, now.0);
        let problem = |problem: io::Error| problem.to_string();
        let out = Out { sender: Sender::open().map_err(problem)?, numbers: Numbers::default(), clock, failures: 0 };
        let (links, filters) = (Links::open().map_err(problem)?, Filters::open().map_err(problem)?);
        let program = bpf.program_id()?;
        let listener = show::listen(&directory).map_err(named)?;
        let kept = State {
            machine: state::machine(),
            protocol: config.protocol.name().into(),
            mac: config.mac.clone(),
            boot,
            saved: Default::default(),
        };
        let mut running = Running {
            config,
            switch,
            bpf,
            out,
            links,
            listener,
            up: BTreeMap::new(),
            started: now,
            taken_over: before.is_some(),
            kept,
            save_due: None,
            credit_due: now,
            look_due: now.saturating_add(LOOK_AFTER),
            filters,
            program,
            check_due: now.saturating_add(CHECK_AFTER),
            put_back: BTreeMap::new(),
            foreigners: Foreigners::default(),
            named: BTreeMap::new(),
        };
        running.begin(before)?;
        Ok(running)
    }

    /// Brings the ports up, takes over the state of an earlier start, and attaches the BPF program.
    fn begin(&mut self, before: Option<State>) -> Result<(), String> {
        for port in &self.config.ports {
            if let Some(index) = index_of(&port.interface) {
                self.out.numbers.set(PortNo(port.number), index);
            }
        }
        let wanted: Vec<u32> = self.out.numbers.port_of.keys().copied().collect();
        self.bpf.keep_ports(&wanted);
        self.forget_strangers(before.is_some());
        // The program is attached before the first Hello leaves. The answer may arrive at once, and then waits in the
        // ring.
        for port in self.config.ports.clone() {
            self.attach(&port)?;
        }
        let now = self.out.clock.now();
        let up = self.request_link_states()?;
        // With saved state, Hello is sent by `take_over`, when it can contain the neighbours.
        for (&port, index) in &self.out.numbers.index_of {
            self.up.insert(port, up.get(index).copied().unwrap_or(false));
        }
        let states: Vec<(PortNo, bool)> = self.up.iter().map(|(&port, &up)| (port, up)).collect();
        let mut flow_table = self.bpf.flow_table();
        let mut kernel = Kernel { flow_table: &mut flow_table, out: &mut self.out };
        match before {
            Some(state) => {
                states.iter().for_each(|&(port, up)| self.switch.prepare_port(now, port, up));
                self.switch.take_over(now, state.saved, &mut kernel);
            }
            None => states.iter().for_each(|&(port, up)| self.switch.port(now, port, up, &mut kernel)),
        }
        self.save(now);
        let how = if self.taken_over { "with the tables of an earlier start" } else { "without earlier tables" };
        info!("switch {} runs {} on {} ports, {how}", self.config.name, self.kept.protocol, self.config.ports.len());
        Ok(())
    }

    fn attach(&mut self, port: &crate::config::Port) -> Result<(), String> {
        let Some(&index) = self.out.numbers.index_of.get(&PortNo(port.number)) else { return Ok(()) };
        let per_s = self.config.frames_per_s(port.role);
        self.bpf.attach(&port.interface, index, Port { number: port.number, per_s, ..Port::default() })
    }

    /// Removes flows by interfaces that are not ports of this switch, or all flows if no state is taken over.
    fn forget_strangers(&mut self, taken_over: bool) {
        let known = &self.out.numbers.port_of;
        let mut flow_table = self.bpf.flow_table();
        for (flow, path) in flow_table.all() {
            if !taken_over || !known.contains_key(&flow.ifindex) || !known.contains_key(&path.ifindex) {
                flow_table.remove(&flow);
            }
        }
    }

    /// Returns for each interface whether it is up.
    fn request_link_states(&mut self) -> Result<BTreeMap<u32, bool>, String> {
        let mut found = Changes::default();
        self.links.ask().map_err(|problem| problem.to_string())?;
        // The kernel answers during the call or shortly after it.
        for _ in 0..1000 {
            self.links.take(&mut found).map_err(|problem| problem.to_string())?;
            if self.out.numbers.port_of.keys().all(|index| found.up.contains_key(index)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(found.up)
    }

    fn serve(&mut self) -> Result<(), String> {
        // Links may have changed since their state was requested.
        let mut ready = Ready { links: true, questions: true };
        loop {
            let more = self.handle_frames();
            if ready.links {
                self.handle_link_changes();
            }
            if ready.questions {
                self.answer_show_requests();
            }
            let now = self.out.clock.now();
            self.run_timers(now);
            // While frames wait, the check for other events must not block.
            ready = self.wait(if more { Some(now) } else { None })?;
        }
    }

    fn handle_frames(&mut self) -> bool {
        let (switch, out, save_due) = (&mut self.switch, &mut self.out, &mut self.save_due);
        self.bpf.frames(BATCH, |flow_table, frame| {
            let now = out.clock.now();
            let port = PortNo(frame.port);
            switch.frame(now, port, frame.tci, frame.bytes, &mut Kernel { flow_table, out });
            save_due.get_or_insert(now.saturating_add(SAVE_AFTER));
        })
    }

    fn handle_link_changes(&mut self) {
        let mut found = Changes::default();
        if self.links.take(&mut found).is_err() {
            // Messages were lost.
            let _ = self.links.ask();
            self.check_due = self.out.clock.now();
        }
        self.put_programs_back(|index| found.stripped.contains(&index));
        self.foreigners.name_xdp(&self.config.ports, &self.out.numbers, &found.xdp);
        if found.up.is_empty() {
            return;
        }
        self.find_lost_interfaces();
        self.foreigners.name_renamed(&self.config.ports, &self.out.numbers);
        let now = self.out.clock.now();
        for (index, up) in found.up {
            let Some(&port) = self.out.numbers.port_of.get(&index) else { continue };
            if self.up.insert(port, up) != Some(up) {
                info!("port {} ({}) is {}", port.0, self.interface(port), if up { "up" } else { "down" });
                let mut flow_table = self.bpf.flow_table();
                self.switch.port(now, port, up, &mut Kernel { flow_table: &mut flow_table, out: &mut self.out });
                self.save_due.get_or_insert(now.saturating_add(SAVE_AFTER));
            }
        }
    }

    /// Attaches the BPF program again to ports from which others have removed it.
    fn put_programs_back(&mut self, is_suspect: impl Fn(u32) -> bool) {
        for port in self.config.ports.clone() {
            let number = PortNo(port.number);
            let known = self.out.numbers.index_of.get(&number).copied();
            let Some(index) = known.filter(|&index| is_suspect(index)) else { continue };
            // An interface that is gone has no program. Its end is noticed elsewhere.
            if index_of(&port.interface) != Some(index) {
                continue;
            }
            let about = format!("port {} ({})", port.number, port.interface);
            match self.filters.program_at(index, bpf::PLACE) {
                Ok(Some(program)) if program == self.program => continue,
                Ok(None) => warn!("{about}: another program has removed the tc filter of the switch; it is attached again"),
                Ok(Some(_)) => warn!(
                    "{about}: another program has replaced the tc filter of the switch; it is attached again. Check that \
                     no other switch or tc script uses this interface"
                ),
                Err(problem) => {
                    warn!("{about}: the tc filters cannot be read: {problem}");
                    continue;
                }
            }
            match self.attach(&port) {
                Ok(()) => *self.put_back.entry(number).or_default() += 1,
                Err(problem) => warn!("{about}: {problem}; it forwards nothing. The switch tries again every 5 s"),
            }
        }
    }

    /// Finds interfaces that were deleted and created again. They have another index and no BPF program.
    fn find_lost_interfaces(&mut self) {
        for port in self.config.ports.clone() {
            let number = PortNo(port.number);
            let Some(index) = index_of(&port.interface) else { continue };
            if self.out.numbers.index_of.get(&number) != Some(&index) {
                let now = self.out.clock.now();
                let mut flow_table = self.bpf.flow_table();
                self.switch.port(now, number, false, &mut Kernel { flow_table: &mut flow_table, out: &mut self.out });
                self.up.insert(number, false);
                self.out.numbers.set(number, index);
                if let Err(problem) = self.attach(&port) {
                    warn!("{problem}");
                }
                let _ = self.links.ask();
            }
        }
    }

    fn interface(&self, port: PortNo) -> &str {
        self.config.ports.iter().find(|one| one.number == port.0).map_or("", |one| &one.interface)
    }

    fn answer_show_requests(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let now = self.out.clock.now();
            let mut flow_table = self.bpf.flow_table();
            self.switch.credit(now, &mut Kernel { flow_table: &mut flow_table, out: &mut self.out });
            show::answer(stream, self.report(now));
        }
    }

    fn run_timers(&mut self, now: Nanos) {
        let due = self.switch.next_timeout().is_some_and(|at| at <= now);
        if due && now >= self.credit_due {
            let mut flow_table = self.bpf.flow_table();
            self.switch.timeout(now, &mut Kernel { flow_table: &mut flow_table, out: &mut self.out });
            let after = self.out.clock.now();
            let pause = Nanos(after.saturating_sub(now).0 * CREDIT_SHARE).max(LEAST_PAUSE);
            self.credit_due = after.saturating_add(pause);
            self.save_due.get_or_insert(now.saturating_add(SAVE_AFTER));
        }
        if self.save_due.is_some_and(|at| at <= now) {
            self.save(now);
        }
        if now >= self.look_due {
            self.look_due = now.saturating_add(LOOK_AFTER);
            self.name_ports(now);
        }
        if now >= self.check_due {
            self.check_due = now.saturating_add(CHECK_AFTER);
            self.put_programs_back(|_| true);
            self.foreigners.name_preceding(&self.config.ports);
            // The kernel reports XDP programs that `ip` attaches, and lists those that are attached by a BPF link.
            let _ = self.links.ask();
        }
    }

    /// Writes the state file, if the state has changed.
    fn save(&mut self, now: Nanos) {
        self.save_due = None;
        let mut saved = self.switch.save_tables();
        let last_number = std::mem::replace(&mut saved.last_number, self.kept.saved.last_number);
        if saved == self.kept.saved && now > self.started {
            return;
        }
        saved.last_number = last_number;
        self.kept.saved = saved;
        if let Err(problem) = state::store(&self.config.directory, &self.kept) {
            warn!("{}: {problem}; a restart will begin without tables", self.config.directory.display());
        }
    }

    /// Logs ports whose frames were refused, each port at most once per [`NAME_AGAIN`].
    fn name_ports(&mut self, now: Nanos) {
        let refused = self.switch.tables().refused;
        for port in &self.config.ports {
            let number = PortNo(port.number);
            let kernel = self.out.numbers.index_of.get(&number).map_or(Port::default(), |&index| self.bpf.port(index));
            let by_program = refused.iter().find(|one| one.port == number);
            let total = by_program.map_or(0, |one| one.frames) + kernel.limited + kernel.too_long;
            let (named, again) = self.named.get(&number).copied().unwrap_or_default();
            if total > named && now >= again {
                let last = by_program.map_or("too many frames for user space", |one| refused_name(one.last));
                let more = total - named;
                warn!(
                    "port {} ({}): refused {more} frames, last cause: {last}; {} limited in total",
                    port.number, port.interface, kernel.limited
                );
                self.named.insert(number, (total, now.saturating_add(NAME_AGAIN)));
            }
        }
    }

    fn report(&mut self, now: Nanos) -> Report {
        let shares = self.switch.shares();
        let row = |port: &crate::config::Port| {
            let number = PortNo(port.number);
            let up = self.up.get(&number).copied().unwrap_or(false);
            let kernel = self.out.numbers.index_of.get(&number).map_or(Port::default(), |&index| self.bpf.port(index));
            let kernel_flows = shares.get(&number).map_or(0, |share| share.flows);
            let put_back = self.put_back.get(&number).copied().unwrap_or(0);
            PortRow { kernel_flows, put_back, ..PortRow::new(number, &port.interface, up, kernel) }
        };
        let ports: Vec<PortRow> = self.config.ports.iter().map(row).collect();
        let kernel_flows = shares.values().map(|share| share.flows).sum();
        let mut report = Report {
            name: self.config.name.clone(),
            protocol: self.config.protocol.name().into(),
            process: std::process::id(),
            uptime_s: now.saturating_sub(self.started).0 as f64 / 1e9,
            taken_over: self.taken_over,
            ports,
            connection_entries: 0,
            confirmed_entries: 0,
            explorations: 0,
            recoveries: 0,
            fails: 0,
            unreadable: 0,
            send_failures: self.out.failures,
            dropped: BTreeMap::new(),
            kernel_flows,
            hosts: Vec::new(),
            neighbours: Vec::new(),
            connections: Vec::new(),
        };
        report.fill(&self.switch.tables(), &self.switch.save());
        report
    }

    /// Waits for the next event or timer, or at most until `until`. Returns which events besides frames are ready.
    #[allow(unsafe_code)]
    fn wait(&self, until: Option<Nanos>) -> Result<Ready, String> {
        let now = self.out.clock.now();
        let timeout = self.switch.next_timeout().map_or(Nanos::MAX, |at| at.max(self.credit_due));
        let due = timeout.min(self.save_due.unwrap_or(Nanos::MAX)).min(self.look_due);
        let pause = until.unwrap_or(due).saturating_sub(now).0;
        let pause = libc::timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        let ready = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [ready(self.bpf.as_raw_fd()), ready(self.links.as_raw_fd()), ready(self.listener.as_raw_fd())];
        // SAFETY: the length is that of the array, and the array and the time are alive.
        let done = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &pause, std::ptr::null()) };
        let problem = io::Error::last_os_error();
        if done < 0 && problem.kind() != io::ErrorKind::Interrupted {
            return Err(problem.to_string());
        }
        Ok(Ready { links: fds[1].revents != 0, questions: fds[2].revents != 0 })
    }
}

/// Events besides frames that are ready.
struct Ready {
    links: bool,
    questions: bool,
}
