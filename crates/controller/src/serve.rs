//! The controller as a program: it listens, keeps time, runs solvers, and stops without changing a rule.

use crate::addresses::Learnt;
use crate::api::{self, Confirmed};
use crate::clock::Clock;
use crate::config::{Addresses, CheckedConfig};
use crate::descriptors;
use crate::encrypted::{accept_tls, Encryption};
use crate::etcd::{Elected, Membership};
use crate::failed_accepts::FailedAccepts;
use crate::gauges::Leadership;
use crate::hosts;
use crate::hub::{Hub, Responder};
use crate::job::Job;
use crate::live_discovery::{self, LiveDiscovery};
use crate::load::Load;
use crate::persist::{Persist, Stored};
use crate::record::Recorder;
use crate::reload::{reload, InUse};
use crate::session::Shared;
use crate::storing::{store_changes, store_in_etcd, store_last_in_etcd, SavedState};
use crate::tls::Binding;
use pathloom_control::{Config as ControlConfig, Controller, Counts, Input, Snapshot, StoredDrains, Target};
use pathloom_model::{Fabric, Nanos};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout, MissedTickBehavior};

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen at a place.
    #[error("cannot listen on {place}: {problem}; is another controller running? Choose another place under [listen]")]
    Listen {
        /// The place.
        place: String,
        /// The error of the system.
        problem: io::Error,
    },
    /// It cannot store its state.
    #[error("{directory}: the state cannot be stored there: {problem}; choose another place under [state]")]
    State {
        /// The place.
        directory: String,
        /// The error of the system.
        problem: io::Error,
    },
    /// The system gives it no threads, timers or signals.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
}

/// Backlog of the listening sockets: all switches of a fabric connect at once. If it is full, a client tries again after 1 s
/// and then 3 s.
const WAITING: i32 = 1024;
/// How often the event log is written.
const TICK: Duration = Duration::from_millis(250);
/// How often the state is stored.
const STORE_INTERVAL: Duration = Duration::from_secs(5);
/// By how much the clock of the leader before may be ahead of this one.
const MOST_AHEAD: Nanos = Nanos::from_secs(10);
/// Number of ticks between two looks at the load of this process.
const LOAD_TICKS: u64 = 4;
/// How long a stop waits for remaining messages to be written.
const STOP: Duration = Duration::from_millis(500);

/// Makes the hub of a fabric, from the stored snapshot if there is one. If the snapshot cannot be used, also returns
/// the links and switches that it had out of service, which the caller passes to the controller.
pub(crate) fn hub(checked: &CheckedConfig, persist: &Persist) -> io::Result<(Shared, Vec<Target>)> {
    let config = checked.control(persist.next_epoch()?);
    let stored = persist.load()?;
    let clock = clock_after(stored.snapshot.as_ref());
    let now = clock.now();
    let (controller, recorder, out_of_service) = controller(checked, persist, config, stored, now)?;
    let mut hub = empty_hub(checked, Responder::Fabric(controller));
    hub.discovery = discovery(checked)?;
    if let Some(discovery) = &mut hub.discovery {
        persist.load_hosts().into_iter().for_each(|host| discovery.remember(now, host));
        discovery.renumber(&persist.load_wiring());
    }
    if recorder.is_some() {
        hub.record();
    }
    hub.gauges.started = now;
    hub.gauges.scheme = (checked.scheme.label.clone(), now);
    let shared = Shared::with_clock(hub, clock);
    *shared.tasks.recorder.borrow_mut() = recorder;
    Ok((shared, out_of_service))
}

/// Makes the controller, from the stored snapshot if it can be used. Also returns the event log, and what the caller must
/// take out of service because the snapshot was not restored.
fn controller(
    checked: &CheckedConfig,
    persist: &Persist,
    config: ControlConfig,
    Stored { snapshot, drains }: Stored,
    now: Nanos,
) -> io::Result<(Controller, Option<Recorder>, Vec<Target>)> {
    let restored = snapshot.and_then(|snapshot| restore(checked, persist, &config, snapshot, now));
    let lost = drains.filter(|_| restored.is_none());
    let out_of_service = lost.map(|drains| out_of_service(&drains, &checked.fabric)).unwrap_or_default();
    let recorder = match &checked.config.log.events {
        Some(path) if restored.is_none() => Some(Recorder::create(path, &config)?),
        Some(path) => {
            let path = path.display();
            tracing::warn!(%path, "no event log: it could not describe the restored state");
            None
        }
        None => None,
    };
    let controller = match restored {
        Some(controller) => controller,
        None => {
            let scheme = checked.scheme.require_central(checked.config.scheme.seed).map_err(io::Error::other)?;
            Controller::new(config, checked.fabric.clone(), scheme)
        }
    };
    Ok((controller, recorder, out_of_service))
}

/// A hub with these settings, without discovery.
fn empty_hub(checked: &CheckedConfig, responder: Responder) -> Hub {
    let settings = (checked.config.sessions.clone(), checked.config.limits.clone());
    let mut hub = Hub::new(responder, Some(checked.fabric.clone()), checked.datapaths.clone(), settings);
    hub.binding = checked.config.listen.tls.as_ref().map(Binding::new).unwrap_or_default();
    hub.foreign = checked.config.reconcile.foreign;
    hub
}

/// What discovers cables and hosts, if that is configured.
fn discovery(checked: &CheckedConfig) -> io::Result<Option<LiveDiscovery>> {
    let config = &checked.config.discovery;
    let (fabric, datapaths) = (checked.fabric.clone(), checked.datapaths.clone());
    let learnt = (config.addresses == Addresses::Any, checked.allowed.clone(), config.most_addresses);
    let learnt = Learnt::new(fabric.clone(), learnt, &checked.places);
    Ok(LiveDiscovery::new(config, fabric, datapaths, learnt, live_discovery::secret()?))
}

/// Makes the hub of a controller that follows another one.
fn follower(checked: &CheckedConfig) -> Shared {
    let mut hub = empty_hub(checked, Responder::SurveyOnly);
    hub.follow();
    Shared::new(hub)
}

/// A controller that followed leads by this election. It adopts the rules that it finds in the switches. Returns what must
/// be taken out of service.
fn take_over(
    checked: &CheckedConfig,
    persist: &Persist,
    shared: &Shared,
    Elected { token, epoch, state }: Elected,
) -> io::Result<Vec<Target>> {
    let SavedState { mut stored, hosts, wiring } = SavedState::read(state.as_deref());
    let now = shared.clock.now();
    // The clock of the leader before may be ahead. Times of the controller stand still until this one shows the same.
    if stored.snapshot.as_ref().is_some_and(|snapshot| snapshot.taken() > now + MOST_AHEAD) {
        tracing::warn!("the clock of the leader before is far ahead of this one; its state is not used, except drains");
        stored.snapshot = None;
    }
    let is_restored = stored.snapshot.is_some();
    let (controller, recorder, out_of_service) = controller(checked, persist, checked.control(epoch), stored, now)?;
    let mut discovery = discovery(checked)?;
    if let Some(discovery) = &mut discovery {
        hosts.into_iter().for_each(|host| discovery.remember(now, host));
        discovery.renumber(&wiring);
    }
    let name = checked.cluster.as_ref().map(|cluster| cluster.name().to_owned()).unwrap_or_default();
    let is_recorded = recorder.is_some();
    *shared.tasks.recorder.borrow_mut() = recorder;
    shared.drive(|hub, now| {
        if is_recorded {
            hub.record();
        }
        hub.discovery = discovery;
        hub.gauges.started = now;
        hub.gauges.scheme = (checked.scheme.label.clone(), now);
        hub.gauges.leadership = Some(Leadership { name, election: token.0, since: now, is_confirmed: true });
        hub.lead(now, token.0, controller);
    });
    tracing::info!(election = token.0, start = epoch, is_restored, "this controller leads");
    Ok(out_of_service)
}

/// A clock that continues from the time of the snapshot, even if the machine's clock was set back since.
fn clock_after(kept: Option<&Snapshot>) -> Clock {
    let taken = kept.map_or(Nanos::ZERO, Snapshot::taken);
    let ahead = taken.saturating_sub(Clock::start().now());
    if ahead > Nanos::from_secs(1) {
        let ahead_s = ahead.0 / 1_000_000_000;
        tracing::warn!(ahead_s, "this machine's clock is behind the snapshot; times continue from the snapshot");
    }
    Clock::start_not_before(taken)
}

/// Restores a controller from the snapshot. An unusable snapshot is renamed.
fn restore(
    checked: &CheckedConfig,
    persist: &Persist,
    config: &ControlConfig,
    snapshot: Snapshot,
    now: Nanos,
) -> Option<Controller> {
    let seed = checked.config.scheme.seed;
    // The scheme may have changed since the snapshot, by the API or in the configuration. So the snapshot's scheme
    // restores first.
    let last = crate::registry::registry().parse(snapshot.scheme()).ok();
    let last = last.filter(|last| last.name != checked.scheme.name);
    let first = last.as_ref().unwrap_or(&checked.scheme).central(seed)?;
    let homeless = snapshot.homeless(&checked.fabric);
    if let Some(example) = homeless.first() {
        let flows = homeless.len();
        tracing::warn!(flows, ?example, "flows of the snapshot have addresses that no longer exist, and are left out");
    }
    match Controller::restore(config.clone(), checked.fabric.clone(), first, snapshot, now) {
        Ok(mut controller) => {
            if let Some(scheme) = last.and_then(|_| checked.scheme.central(seed)) {
                controller.set_scheme(now, scheme);
            }
            Some(controller)
        }
        Err(problem) => {
            persist.rename_unusable(&problem);
            None
        }
    }
}

/// Returns what must be taken out of service again, because its snapshot was not restored.
pub(crate) fn out_of_service(drains: &StoredDrains, fabric: &Fabric) -> Vec<Target> {
    let targets = drains.targets();
    if drains.is_of(fabric) {
        let exists = |target: &Target| match target {
            Target::Switch(switch) => switch.index() < fabric.nodes().len(),
            Target::Cable(link) => link.index() < fabric.links().len(),
        };
        return targets.into_iter().filter(exists).collect();
    }
    if !targets.is_empty() {
        let lost = targets.len();
        tracing::warn!(lost, "links and switches of another fabric were out of service: drain those of this one");
    }
    Vec::new()
}

/// Why a controller has ended without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The process was told to stop.
    Stopped,
    /// Another controller leads. The process should start again, to follow it.
    Deposed,
}

/// Runs until the process is told to stop (SIGTERM, SIGINT), or another controller leads. Rules stay in the switches.
/// SIGHUP reads `file` again.
///
/// # Errors
/// It cannot listen, or cannot store its state.
pub fn run(mut checked: CheckedConfig, file: &Path) -> Result<Ended, ServeError> {
    descriptors::fit(&mut checked);
    let persist = Persist::new(checked.config.state.directory.clone());
    let made = if checked.cluster.is_some() { Ok((follower(&checked), Vec::new())) } else { hub(&checked, &persist) };
    let (shared, out_of_service) = made.map_err(|problem| {
        let directory = checked.config.state.directory.clone().unwrap_or_default().display().to_string();
        ServeError::State { directory, problem }
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(checked, file.to_owned(), shared, persist, out_of_service))
}

async fn serve(
    checked: CheckedConfig,
    file: PathBuf,
    shared: Shared,
    persist: Persist,
    mut out_of_service: Vec<Target>,
) -> Result<Ended, ServeError> {
    // The signals are handled before the log says that the controller runs, because a reader of the log may send one
    // at once.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let hangup = signal(SignalKind::hangup())?;
    let mut listens = listen_for_switches(&checked, &shared)?;
    tokio::task::spawn_local(run_timers(shared.clone()));
    let mut membership = checked.cluster.as_ref().map(|cluster| Membership::start(cluster, shared.clock));
    if let Some(membership) = &mut membership {
        tokio::select! {
            elected = membership.lead() => out_of_service = take_over(&checked, &persist, &shared, elected)?,
            _ = terminate.recv() => return Ok(Ended::Stopped),
            _ = interrupt.recv() => return Ok(Ended::Stopped),
        }
    }
    listens.extend(listen_for_agents(&checked, &shared)?);
    listens.extend(listen_for_people(&checked, &shared)?);
    listens.extend(listen_for_applications(&checked, &shared)?);
    begin(&checked, &shared, out_of_service);
    tokio::task::spawn_local(run_periodic_work(shared.clone(), persist.clone()));
    tokio::task::spawn_local(store_changes(shared.clone(), persist.clone()));
    if let Some(store) = membership.as_ref().and_then(Membership::store) {
        tokio::task::spawn_local(store_in_etcd(shared.clone(), store));
    }
    tokio::task::spawn_local(reload(shared.clone(), file, hangup, InUse::new(&checked)));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = deposed(&mut membership, &checked, &shared) => return Ok(Ended::Deposed),
    }
    listens.iter().for_each(|task| task.abort());
    // The results of messages that were received last are sent too.
    shared.drive(|hub, now| hub.settle(now));
    let backlog = async {
        while shared.hub.borrow().has_backlog() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(STOP, backlog).await;
    store_state(&shared, &persist);
    if let Some(membership) = membership {
        if let Some(store) = membership.store() {
            store_last_in_etcd(&shared, &store).await;
        }
        membership.stop().await;
    }
    clean_up(&checked, &shared);
    Ok(Ended::Stopped)
}

/// Starts the scheme, and tells the controller what the configuration says.
fn begin(checked: &CheckedConfig, shared: &Shared, out_of_service: Vec<Target>) {
    tracing::info!(fabric = checked.fabric.spec(), scheme = checked.scheme.label, "the controller runs");
    // Starts the scheme.
    shared.drive(|hub, now| hub.handle(now, Input::Timeout));
    for warning in checked.warnings() {
        tracing::warn!("{warning}");
    }
    for &(prefix, at) in &checked.places {
        shared.drive(|hub, now| hub.handle(now, Input::Place { prefix, at: Some(at) }));
    }
    for target in out_of_service {
        shared.drive(|hub, now| hub.handle(now, Input::Drain { target, out: true }));
    }
}

/// Waits until another controller leads. Never returns if there is no other one.
async fn deposed(membership: &mut Option<Membership>, checked: &CheckedConfig, shared: &Shared) {
    let addresses: Vec<Confirmed> =
        [&checked.api, &checked.paths].into_iter().flatten().map(|address| address.confirmed.clone()).collect();
    match membership {
        Some(membership) => membership.keep(shared, &addresses).await,
        None => std::future::pending().await,
    }
}

/// Closes files and sockets, and logs what the controller has done.
fn clean_up(checked: &CheckedConfig, shared: &Shared) {
    let counts = shared.drive(|hub, _| hub.controller().map(|controller| controller.counts()).unwrap_or_default());
    shared.tasks.recorder.borrow_mut().iter_mut().for_each(Recorder::flush);
    for path in [&checked.config.listen.unix, &checked.config.hosts.unix].into_iter().flatten() {
        let _ = std::fs::remove_file(path);
    }
    let Counts { routes, reroutes, bound, rules_max, polls, .. } = counts;
    let polling_ns = counts.polling_period().unwrap_or(Nanos::ZERO).0;
    tracing::info!(routes, reroutes, bound, rules_max, polls, polling_ns, "stopped; the rules stay in the switches");
}

/// Opens the sockets for switches.
fn listen_for_switches(checked: &CheckedConfig, shared: &Shared) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let mut listens = Vec::new();
    if let Some(address) = checked.config.listen.address {
        let listener =
            bind_tcp(address).map_err(|problem| ServeError::Listen { place: address.to_string(), problem })?;
        let encryption = Encryption::new(checked);
        tracing::info!(address = %listener.local_addr()?, tls = encryption.is_some(), "listening for switches");
        listens.push(match encryption {
            Some(encryption) => tokio::task::spawn_local(accept_tls(listener, encryption, shared.clone())),
            None => tokio::task::spawn_local(accept_tcp(listener, shared.clone())),
        });
    }
    if let Some(path) = &checked.config.listen.unix {
        let place = path.display().to_string();
        let listener = bind_unix(path).map_err(|problem| ServeError::Listen { place: place.clone(), problem })?;
        tracing::info!(path = place, "listening for switches");
        listens.push(tokio::task::spawn_local(accept_unix(listener, shared.clone())));
    }
    Ok(listens)
}

/// Opens the sockets for host agents.
fn listen_for_agents(checked: &CheckedConfig, shared: &Shared) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let hosts = &checked.config.hosts;
    shared.hub.borrow_mut().hosts.set_limits(hosts);
    shared.hub.borrow_mut().hosts.set_tokens(checked.hosts_tokens.clone());
    let mut listens = Vec::new();
    if let Some(address) = hosts.address {
        let listener =
            bind_tcp(address).map_err(|problem| ServeError::Listen { place: address.to_string(), problem })?;
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "listening for host agents");
        listens.push(tokio::task::spawn_local(hosts::accept_tcp(listener, checked.hosts_tls.clone(), shared.clone())));
    }
    if let Some(path) = &hosts.unix {
        let place = path.display().to_string();
        let listener = bind_unix(path).map_err(|problem| ServeError::Listen { place: place.clone(), problem })?;
        tracing::info!(path = place, "listening for host agents");
        listens.push(tokio::task::spawn_local(hosts::accept_unix(listener, shared.clone())));
    }
    Ok(listens)
}

/// Opens the API.
fn listen_for_people(checked: &CheckedConfig, shared: &Shared) -> Result<Option<JoinHandle<()>>, ServeError> {
    let Some(api) = checked.api.clone() else { return Ok(None) };
    let (place, tls) = (api.address.to_string(), api.tls.is_some());
    let (address, questions) = api::start(api).map_err(|problem| ServeError::Listen { place, problem })?;
    tracing::info!(%address, tls, "the API listens");
    let period = checked.config.api.port_period;
    shared.drive(|hub, now| hub.periodic.read_ports_every(now, nanos(period)));
    Ok(Some(tokio::task::spawn_local(api::answer(shared.clone(), questions))))
}

/// Opens the address at which applications on hosts request paths.
fn listen_for_applications(checked: &CheckedConfig, shared: &Shared) -> Result<Option<JoinHandle<()>>, ServeError> {
    let Some(paths) = checked.paths.clone() else { return Ok(None) };
    let (place, tls) = (paths.address.to_string(), paths.tls.is_some());
    let (address, questions) = api::start_for_hosts(paths).map_err(|problem| ServeError::Listen { place, problem })?;
    tracing::info!(%address, tls, "listening for applications that ask for paths");
    Ok(Some(tokio::task::spawn_local(api::answer(shared.clone(), questions))))
}

pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(listen_tcp(address)?)
}

/// A listening socket that does not block.
pub(crate) fn listen_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(WAITING)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds a Unix socket. An existing one without a listener is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(problem) if problem.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(problem);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        done => done,
    }
}

pub(crate) async fn accept_tcp(listener: TcpListener, shared: Shared) {
    let mut failed = FailedAccepts::new("switches");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failed.accepted();
                let _ = stream.set_nodelay(true);
                let (reader, writer) = stream.into_split();
                tokio::task::spawn_local(shared.clone().serve(peer.to_string(), reader, writer));
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, shared: Shared) {
    let mut failed = FailedAccepts::new("switches");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                failed.accepted();
                let (reader, writer) = stream.into_split();
                tokio::task::spawn_local(shared.clone().serve("a local socket".into(), reader, writer));
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Carries out the results of received messages, after all readable messages have been handled.
async fn settle_inputs(shared: Shared) {
    loop {
        shared.tasks.settle.notified().await;
        shared.drive(|hub, now| hub.settle(now));
    }
}

/// Calls the hub at its time-outs, and runs its jobs in other threads.
pub(crate) async fn run_timers(shared: Shared) {
    tokio::task::spawn_local(settle_inputs(shared.clone()));
    let (sender, mut solved) = mpsc::unbounded_channel();
    loop {
        let (next, jobs) = shared.drive(|hub, now| {
            if hub.poll_timeout() <= now {
                hub.handle_timeout(now);
            }
            let jobs: Vec<Job> = std::iter::from_fn(|| hub.poll_job()).collect();
            shared.tasks.armed.set(hub.poll_timeout());
            (hub.poll_timeout(), jobs)
        });
        for job in jobs {
            let sender = sender.clone();
            tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let result = job.run();
                let _ = sender.send((nanos(begun.elapsed()), result));
            });
        }
        tokio::select! {
            () = shared.tasks.timer.notified() => {}
            () = sleep(shared.clock.until(next)) => {}
            Some((took, result)) = solved.recv() => shared.drive(|hub, now| hub.solved(now, took, result)),
        }
    }
}

/// Does the periodic work outside of the hub: the event log, the load and the state.
pub(crate) async fn run_periodic_work(shared: Shared, persist: Persist) {
    let mut load = Load::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for count in 1u64.. {
        ticks.tick().await;
        shared.tasks.recorder.borrow_mut().iter_mut().for_each(Recorder::flush);
        if count.is_multiple_of(LOAD_TICKS) {
            if let Some(busy_share) = load.busy_share() {
                shared.drive(|hub, now| hub.handle(now, Input::Load { busy_share }));
            }
        }
        if count.is_multiple_of((STORE_INTERVAL.as_millis() / TICK.as_millis()) as u64) {
            store_state(&shared, &persist);
        }
    }
}

fn store_state(shared: &Shared, persist: &Persist) {
    if persist.is_enabled() {
        if let Some(discovery) = &shared.hub.borrow().discovery {
            persist.save_hosts(discovery.state().hosts().hosts());
            persist.save_wiring(&discovery.renumbered());
        }
        let snapshot = shared.hub.borrow_mut().controller().map(|controller| controller.snapshot());
        snapshot.iter().for_each(|snapshot| persist.save(snapshot));
    }
}
