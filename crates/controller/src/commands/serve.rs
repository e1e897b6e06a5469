//! The controller as a program: it listens, keeps time, runs solvers, and stops without changing a rule.

use crate::api;
use crate::commands::reload::{reload, InUse};
use crate::commands::start::{follower, hub, take_over};
use crate::config::{CheckedCluster, CheckedConfig};
use crate::drivers::encrypted::{accept_tls, Encryption};
use crate::drivers::etcd::Membership;
use crate::drivers::listening::{accept_tcp, accept_unix, bind_tcp, bind_unix};
use crate::drivers::persist::Persist;
use crate::drivers::record::Recorder;
use crate::drivers::session::Shared;
use crate::drivers::storing::{store_changes, store_in_etcd, store_last_in_etcd};
use crate::drivers::timers::{nanos, run_periodic_work, run_timers, store_state};
use crate::drivers::{agents, descriptors, process};
use crate::hub::configured::place_addresses;
use pathloom_control::{Counts, Input, Target};
use pathloom_model::Nanos;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{signal, SignalKind};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

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

/// How long a stop waits for remaining messages to be written.
const STOP: Duration = Duration::from_millis(500);

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
    listens.extend(listen_for_agents(&checked, &shared)?);
    tokio::task::spawn_local(run_timers(shared.clone()));
    let mut membership = checked.cluster.as_ref().map(|cluster| join(&checked, cluster, &shared));
    if membership.is_some() {
        // A follower answers about itself, and sends clients to the leader.
        listens.extend(listen_for_clients(&checked, &shared)?);
    }
    if let Some(membership) = &mut membership {
        tokio::select! {
            elected = membership.lead(&shared) => {
                let token = elected.token;
                out_of_service = take_over(&checked, &persist, &shared, elected)?;
                membership.begin(token);
            }
            _ = terminate.recv() => return Ok(Ended::Stopped),
            _ = interrupt.recv() => return Ok(Ended::Stopped),
        }
    }
    if membership.is_none() {
        listens.extend(listen_for_clients(&checked, &shared)?);
    }
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
        () = deposed(&mut membership, &shared) => return Ok(Ended::Deposed),
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
    process::begin(checked, shared);
    // Starts the scheme.
    shared.drive(|hub, now| hub.handle(now, Input::Timeout));
    for warning in checked.warnings() {
        tracing::warn!("{warning}");
    }
    shared.drive(|hub, now| place_addresses(hub, checked, now));
    for target in out_of_service {
        shared.drive(|hub, now| hub.handle(now, Input::Drain { target, out: true }));
    }
}

/// This controller becomes a member of its cluster, and follows.
fn join(checked: &CheckedConfig, cluster: &CheckedCluster, shared: &Shared) -> Membership {
    let addresses = [&checked.api, &checked.paths].into_iter().flatten();
    Membership::start(cluster, shared, addresses.map(|address| address.authority.clone()).collect())
}

/// Waits until another controller leads. Never returns if there is no other one.
async fn deposed(membership: &mut Option<Membership>, shared: &Shared) {
    match membership {
        Some(membership) => membership.keep(shared).await,
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
        listens.push(tokio::task::spawn_local(agents::accept_tcp(listener, checked.hosts_tls.clone(), shared.clone())));
    }
    if let Some(path) = &hosts.unix {
        let place = path.display().to_string();
        let listener = bind_unix(path).map_err(|problem| ServeError::Listen { place: place.clone(), problem })?;
        tracing::info!(path = place, "listening for host agents");
        listens.push(tokio::task::spawn_local(agents::accept_unix(listener, shared.clone())));
    }
    Ok(listens)
}

/// Opens the API, and the address at which applications on hosts request paths.
fn listen_for_clients(checked: &CheckedConfig, shared: &Shared) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let people = listen_for_people(checked, shared)?;
    Ok(people.into_iter().chain(listen_for_applications(checked, shared)?).collect())
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
