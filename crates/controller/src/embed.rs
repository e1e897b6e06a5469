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
use crate::config::{ApiTokens, CheckedAddress, Paths};
use crate::drivers::listening::{accept_tcp, bind_tcp};
use crate::drivers::persist::Persist;
use crate::drivers::session::Shared;
use crate::drivers::timers::{run_periodic_work, run_timers};
use pathloom_control::Input;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

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
/// paths on a second port, for any host. `ready` gets the ports when they are open.
///
/// # Errors
/// The token is too short, or the system refused a port or a thread.
pub fn serve(hub: Hub, token: Option<&str>, ready: impl FnOnce(u16, Option<u16>)) -> Result<(), String> {
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
        ready(port, second);
        shared.drive(|hub, now| hub.handle(now, Input::Timeout));
        tokio::task::spawn_local(run_timers(shared.clone()));
        tokio::task::spawn_local(run_periodic_work(shared.clone(), Persist::new(None)));
        accept_tcp(listener, shared).await;
        Ok(())
    })
}
