//! The main loop of the agent: passes events to the state machine, and carries out its outputs.

use crate::agent::{Agent, ControllerId, ProgramId, Settings, PACES_KEPT};
use crate::announcement_socket;
use crate::bpf::Seen;
use crate::changes;
use crate::config::Config;
use crate::election_file::ElectionFile;
use crate::kernel::{Kernel, News};
use crate::messages::{self, ProgramMessage};
use crate::mptcp;

use crate::session;
use crate::{notify, token};
use pathloom_daemon_support::system::monotonic_ns;
use pathloom_model::Nanos;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::{mpsc, Notify};
use tokio::time::{interval, sleep, sleep_until, Instant, MissedTickBehavior};

/// Time between two heartbeats. At each one, the agent extends the validity of orders in the kernel and tidies its
/// state.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Time between an event of the machine and the look at what others can remove. Events come in groups.
const SETTLE: Duration = Duration::from_millis(200);
/// Number of heartbeats between two visits of all sockets.
const VISIT_EVERY: u32 = 60;

struct Running {
    agent: Agent,
    kernel: Kernel,
    election_file: ElectionFile,
    to_controllers: BTreeMap<ControllerId, mpsc::Sender<String>>,
    programs: BTreeMap<ProgramId, mpsc::UnboundedSender<String>>,
    /// Whether the controller wants announcements, as last sent to programs.
    announced_to_programs: Option<bool>,
    /// Why each controller has no connection, as last logged.
    last_losses: BTreeMap<ControllerId, String>,
    last_refusal: String,
}

fn now() -> Nanos {
    Nanos(monotonic_ns())
}

/// Runs the agent until SIGTERM or SIGINT. The error is one line.
pub async fn run(config: Config) -> Result<(), String> {
    let settings = Settings {
        hosts: config.addresses(),
        token: config.controller.token_file.as_deref().map(token::read).transpose()?,
        max_flows: config.flows.max_flows,
    };
    if let Some(tls) = &config.controller.tls {
        session::load(tls)?;
    }
    let source = settings.hosts[0].into();
    let path_managers = mptcp::open(&config)?;
    let mut kernel = Kernel::start(&config, |line| tracing::warn!("{line}"))?;
    let mut agent = Agent::new(settings);
    let (flows, orders, paces_until) = kernel.inherited();
    let election_file =
        ElectionFile::open(config.controller.election_file.as_deref(), |line| tracing::warn!("{line}"))?;
    agent.adopt_election(kernel.election().max(election_file.newest()));
    tracing::info!(flows = flows.len(), orders = orders.len(), bpf = kernel.enforces(), "the agent starts");
    flows.into_iter().for_each(|flow| agent.handle_long(flow));
    orders.into_iter().for_each(|(flow, order)| agent.adopt(now(), flow, order, paces_until));
    let events_fd = kernel.events_fd().map_err(|problem| problem.to_string())?;
    let running = Running {
        agent,
        kernel,
        election_file,
        to_controllers: BTreeMap::new(),
        programs: BTreeMap::new(),
        announced_to_programs: None,
        last_losses: BTreeMap::new(),
        last_refusal: String::new(),
    };
    let (session_events, from_controller) = mpsc::channel(1024);
    let (program_events, from_programs) = mpsc::channel(1024);
    if let Some(path) = &config.programs.unix {
        let listener = announcement_socket::listen(path).map_err(|problem| format!("{}: {problem}", path.display()))?;
        tokio::task::spawn_local(announcement_socket::accept(listener, program_events.clone()));
    }
    session::keep_all(&config.controller, source, &session_events);
    for manager in path_managers {
        tokio::task::spawn_local(manager.keep());
    }
    notify::ready();
    let kernel = running.run_loop(&config, events_fd, from_controller, from_programs).await?;
    drop(program_events);
    kernel.stop(&config)
}

impl Running {
    /// Runs the loop. Returns the kernel when the agent must end.
    async fn run_loop(
        mut self,
        config: &Config,
        events_fd: Option<OwnedFd>,
        mut from_controller: mpsc::Receiver<session::Event>,
        mut from_programs: mpsc::Receiver<announcement_socket::Event>,
    ) -> Result<Kernel, String> {
        let plain = |problem: io::Error| problem.to_string();
        let kernel_events = events_fd.map(register).transpose().map_err(plain)?;
        let mut polls = interval(Duration::from_millis(config.kernel.poll_ms));
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heartbeats = interval(HEARTBEAT);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beats = 0_u32;
        let changed = Arc::new(Notify::new());
        let mut watching = changes::watch(self.kernel.watches(), &changed);
        let mut look_at: Option<Instant> = None;
        let mut terminate = signal(SignalKind::terminate()).map_err(plain)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(plain)?;
        loop {
            let due = self.agent.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(now()).0));
            tokio::select! {
                event = from_controller.recv() => {
                    self.handle_controller_event(event);
                    // Many events may wait. Their orders are carried out together.
                    while let Ok(event) = from_controller.try_recv() {
                        self.handle_controller_event(Some(event));
                    }
                }
                event = from_programs.recv(), if config.programs.unix.is_some() => self.handle_program_event(event),
                ready = readable(kernel_events.as_ref()) => {
                    ready?;
                    self.handle_kernel_events()?;
                }
                _ = polls.tick(), if kernel_events.is_none() => self.handle_kernel_events()?,
                _ = heartbeats.tick() => {
                    beats = beats.wrapping_add(1);
                    self.handle_kernel_events()?;
                    self.kernel.tidy();
                    if beats.is_multiple_of(config.kernel.look_s) {
                        look_at = Some(Instant::now());
                    }
                    if beats.is_multiple_of(VISIT_EVERY) {
                        self.kernel.sweep_all()?;
                    }
                    tracing::debug!(counts = ?self.agent.counts(), kernel = ?self.kernel.counters(), "figures");
                    notify::alive();
                }
                () = changed.notified(), if look_at.is_none() => look_at = Some(Instant::now() + SETTLE),
                () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {
                    look_at = None;
                    self.kernel.look_after().iter().for_each(|line| tracing::warn!("{line}"));
                    if self.kernel.has_new_namespaces() {
                        watching = changes::watch(self.kernel.watches(), &changed);
                    }
                }
                () = sleep(due.unwrap_or(Duration::from_secs(3600))) => {}
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
            self.carry_out()?;
        }
        drop(watching);
        let (counts, kernel) = (self.agent.counts(), self.kernel.counters());
        tracing::info!(?counts, ?kernel, "the agent ends; all flows are released");
        Ok(self.kernel)
    }

    fn handle_controller_event(&mut self, event: Option<session::Event>) {
        let Some(session::Event { controller, what }) = event else { return };
        match what {
            session::What::Open(queue) => {
                self.to_controllers.insert(controller, queue);
                self.agent.handle_connected(controller);
            }
            session::What::Line(line) => self.handle_line(controller, &line),
            session::What::Lost(why) => {
                self.to_controllers.remove(&controller);
                self.agent.handle_lost(now(), controller);
                // A repeated reason is logged only once.
                if self.last_losses.get(&controller) != Some(&why) {
                    tracing::warn!(controller = controller.0, why, "no session with a controller");
                    self.last_losses.insert(controller, why);
                }
            }
        }
    }

    fn handle_line(&mut self, controller: ControllerId, line: &[u8]) {
        let (before, stale) = (self.agent.leader(), self.agent.counts().stale);
        self.agent.handle_line(now(), controller, line);
        if let Some(leader) = self.agent.leader().filter(|&leader| before != Some(leader)) {
            let election = self.agent.newest_election();
            tracing::info!(controller = leader.0, election, "the controller has accepted this agent");
            self.last_losses.remove(&leader);
            self.last_refusal.clear();
        }
        if stale == 0 && self.agent.counts().stale > 0 {
            let newest = self.agent.newest_election();
            tracing::warn!(controller = controller.0, newest, "a controller that no longer leads has sent an order");
        }
        if let Some(why) = self.agent.take_refusal().filter(|why| *why != self.last_refusal) {
            tracing::warn!(controller = controller.0, why, "the controller refused something");
            self.last_refusal = why;
        }
    }

    fn handle_program_event(&mut self, event: Option<announcement_socket::Event>) {
        match event {
            Some(announcement_socket::Event::Hello(id, queue)) => {
                if let Some(announce) = self.agent.session() {
                    let _ = queue.send(messages::welcome(announce, self.kernel.enforces()));
                }
                self.programs.insert(id, queue);
            }
            Some(announcement_socket::Event::Message(id, message)) => {
                let answer = match message {
                    ProgramMessage::Announce { flow, size_bytes } => self.agent.handle_announce(id, flow, size_bytes),
                    ProgramMessage::Finish { flow } => {
                        self.agent.handle_finish(id, flow);
                        Ok(())
                    }
                    ProgramMessage::Hello { .. } => Ok(()),
                };
                if let (Err(why), Some(queue)) = (answer, self.programs.get(&id)) {
                    let _ = queue.send(messages::refused(&why));
                }
            }
            Some(announcement_socket::Event::Gone(id)) => {
                self.programs.remove(&id);
                self.agent.handle_program_gone(id);
            }
            None => {}
        }
    }

    fn handle_kernel_events(&mut self) -> Result<(), String> {
        let News { seen, all } = self.kernel.news()?;
        for one in seen {
            match one {
                Seen::Long(flow, _) => self.agent.handle_long(flow),
                Seen::Closed(flow) => self.agent.handle_closed(flow),
            }
        }
        if let Some(all) = all {
            tracing::warn!("events of the kernel were lost; the agent reads all flows");
            self.agent.handle_all(&all);
        }
        Ok(())
    }

    /// Carries out the outputs of the state machine.
    fn carry_out(&mut self) -> Result<(), String> {
        self.agent.handle_time(now());
        let orders: Vec<_> = std::iter::from_fn(|| self.agent.poll_order()).collect();
        let alive_until = now().saturating_add(PACES_KEPT);
        let alive_until = self.agent.paces_end().map_or(alive_until, |end| end.min(alive_until));
        self.kernel.set_election(self.agent.newest_election())?;
        if let Err(problem) = self.election_file.store(self.agent.newest_election()) {
            tracing::warn!("{problem}");
        }
        self.kernel.carry_out(&orders, self.agent.has_holds(), alive_until)?;
        while let Some((controller, line)) = self.agent.poll_line() {
            // The connection to a controller that does not read is closed. The next session announces all flows again.
            if self.to_controllers.get(&controller).is_some_and(|queue| queue.try_send(line).is_err()) {
                self.to_controllers.remove(&controller);
            }
        }
        while let Some((id, line)) = self.agent.poll_program() {
            if let Some(queue) = self.programs.get(&id) {
                let _ = queue.send(line);
            }
        }
        let session = self.agent.session();
        if session.is_some() && session != self.announced_to_programs {
            let enforces = self.kernel.enforces();
            for queue in self.programs.values() {
                let _ = match self.announced_to_programs {
                    None => queue.send(messages::welcome(session == Some(true), enforces)),
                    Some(_) => queue.send(messages::wants(session == Some(true))),
                };
            }
        }
        self.announced_to_programs = session;
        Ok(())
    }
}

async fn readable(events: Option<&AsyncFd<OwnedFd>>) -> Result<(), String> {
    match events {
        None => std::future::pending().await,
        Some(events) => {
            let mut guard = events.readable().await.map_err(|problem| problem.to_string())?;
            guard.clear_ready();
            Ok(())
        }
    }
}

#[allow(unsafe_code)]
pub(crate) fn register(events: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it exists, and its number never changes.
    unsafe { AsyncFd::register(events) }.map_err(io::Error::from)
}
