//! What other programs of this repository can embed: the hub as a pure machine, the same behind sockets of the loopback,
//! and the client of etcd.

pub use crate::drivers::etcd::Client as EtcdClient;
pub use crate::hub::answers::Answers;
pub use crate::hub::configured::{configured_hub, discover, place_addresses};
pub use crate::hub::connection::{ConnectionId, Transmit};
pub use crate::hub::counts::HubCounts;
pub use crate::hub::hosts::{AgentId, Hosts};
pub use crate::hub::job::Job;
pub use crate::hub::{Hub, Received, Responder};

use crate::api::{answer, start_for_hosts};
use crate::config::{ApiTokens, CheckedAddress, CheckedCluster, Paths};
use crate::drivers::etcd::Membership;
use crate::drivers::listening::{accept_tcp, bind_tcp};
use crate::drivers::persist::Persist;
use crate::drivers::session::Shared;
use crate::drivers::storing::{store_in_etcd, SavedState};
use crate::drivers::timers::{run_periodic_work, run_timers};
use pathloom_cluster::state::PART_BYTES;
use pathloom_control::Input;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A free port of the loopback.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The address for applications, at which whoever shows `token` may act for any host.
fn paths(token: &str) -> Result<CheckedAddress, String> {
    let tokens = Arc::new(ApiTokens::parse(&format!("operate embedded {token}\n"))?);
    let paths = Paths { address: Some(ANY), ..Paths::default() };
    let ready = paths.load(Path::new(""), None)?.ok_or("no address")?;
    ready.tokens.set(tokens);
    Ok(ready)
}

/// Serves switches on a port of the loopback, in this thread and without an end. With a `token`, applications can ask for
/// paths on a second port, for any host. With a `cluster`, it first waits until it leads. `ready` gets the ports when they
/// are open.
///
/// # Errors
/// The token is too short, or the system refused a port or a thread.
pub fn serve(
    hub: Hub,
    token: Option<&str>,
    cluster: Option<&CheckedCluster>,
    ready: impl FnOnce(u16, Option<u16>),
) -> Result<(), String> {
    let shared = Shared::new(hub);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = bind_tcp(ANY).map_err(|problem| problem.to_string())?;
        let port = listener.local_addr().map_err(|problem| problem.to_string())?.port();
        let second = match token {
            Some(token) => Some(start_for_hosts(paths(token)?).map_err(|problem| problem.to_string())?),
            None => None,
        };
        let second = second.map(|(address, questions)| {
            tokio::task::spawn_local(answer(shared.clone(), questions));
            address.port()
        });
        if let Some(cluster) = cluster {
            lead(cluster, &shared).await;
        }
        ready(port, second);
        shared.drive(|hub, now| hub.handle(now, Input::Timeout));
        tokio::task::spawn_local(run_timers(shared.clone()));
        tokio::task::spawn_local(run_periodic_work(shared.clone(), Persist::new(None)));
        accept_tcp(listener, shared).await;
        Ok(())
    })
}

/// Waits until this controller leads its cluster. From then on, it stores its state.
async fn lead(cluster: &CheckedCluster, shared: &Shared) {
    let mut membership = Membership::start(cluster, shared, Vec::new());
    let elected = membership.lead(shared).await;
    membership.begin(elected.token);
    if let Some(store) = membership.store() {
        tokio::task::spawn_local(store_in_etcd(shared.clone(), store));
    }
    let shared = shared.clone();
    tokio::task::spawn_local(async move { membership.keep(&shared).await });
}

/// The state that the leader of a cluster has stored, as the next leader reads it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inherited {
    /// Its size.
    pub bytes: usize,
    /// Number of keys with parts of it.
    pub parts: usize,
    /// Time to read it from etcd.
    pub read: Duration,
    /// Time to make a snapshot of it.
    pub parsed: Duration,
}

/// Waits until a controller with this hub leads its cluster, and reads the state of the leader before.
///
/// # Errors
/// Etcd has no state, or the system refused a thread.
pub fn inherit(hub: Hub, cluster: &CheckedCluster) -> Result<Inherited, String> {
    let shared = Shared::new(hub);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut membership = Membership::start(cluster, &shared, Vec::new());
        membership.lead(&shared).await;
        let store = membership.store().ok_or("it does not lead")?;
        let start = Instant::now();
        let state = store.load().await.map_err(|problem| format!("{problem:?}"))?;
        let (read, start) = (start.elapsed(), Instant::now());
        let bytes = state.as_ref().map(Vec::len).ok_or("etcd has no state")?;
        let saved = SavedState::read(state.as_deref());
        let parsed = start.elapsed();
        saved.stored.snapshot.ok_or("the state has no snapshot")?;
        membership.stop().await;
        Ok(Inherited { bytes, parts: bytes.div_ceil(PART_BYTES), read, parsed })
    })
}
