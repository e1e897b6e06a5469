//! The measured controllers: the usual hub and sessions, on a port of the loopback.

use super::etcd::cluster;
use super::learning::Learning;
use super::path_per_flow::PathPerFlow;
use pathloom_control::{Config, Controller};
use pathloom_controller::config::{Limits, Sessions};
use pathloom_controller::embed::{self, Hub, Responder};
use pathloom_fabrics::fabric_from_spec;
use pathloom_scheme::{Detection, Scheme};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of flows per host; high, because the load comes from few hosts.
const FLOWS_PER_HOST: u32 = 10_000_000;
/// The usual lease.
pub(super) const TTL: Duration = Duration::from_secs(5);
/// What the keys of a measured cluster begin with.
pub(super) const PREFIX: &str = "/bench/";
/// The token of the load generator. A measured controller listens on the loopback and ends with its parent.
pub(super) const TOKEN: &str = "00000000000000000000000000000000";

/// Serves `learning` or `fabric:SCHEME:FABRIC`, prints its ports, and runs until its parent process is gone. With the
/// endpoint of an etcd, it leads a cluster.
pub(crate) fn run(what: &str, endpoint: Option<&str>) -> Result<(), String> {
    // When the parent process is gone, standard input is closed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    serve(what, endpoint, |port, second| {
        println!("{port} {}", second.map_or(String::new(), |second| second.to_string()));
        let _ = std::io::stdout().flush();
    })
}

/// Serves on a thread of this process, for tests. Returns the port.
#[cfg(test)]
pub(crate) fn on_a_thread(what: &'static str) -> u16 {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(what, None, |port, _| sender.send(port).unwrap()).unwrap());
    receiver.recv().unwrap()
}

/// Serves a fabric on a thread of this process. Returns the ports for switches and for applications that ask for
/// paths.
#[cfg(test)]
pub(crate) fn both_on_a_thread(what: &'static str) -> (u16, u16) {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        serve(what, None, |port, second| sender.send((port, second.unwrap())).unwrap()).unwrap()
    });
    receiver.recv().unwrap()
}

/// The hub for `learning` or `fabric:SCHEME:FABRIC`.
pub(super) fn hub(what: &str) -> Result<Hub, String> {
    let limits = Limits { packet_ins_per_port: 0, ..Limits::default() };
    let settings = (Sessions::default(), limits);
    if what == "learning" {
        return Ok(Hub::new(Responder::Packets(Box::<Learning>::default()), None, Default::default(), settings));
    }
    let (scheme, spec) = what.strip_prefix("fabric:").and_then(|rest| rest.split_once(':')).ok_or("unknown subject")?;
    let fabric = Arc::new(fabric_from_spec(spec).map_err(|problem| problem.to_string())?);
    let scheme = central(scheme)?;
    let datapaths = fabric.switches().iter().map(|&switch| (u64::from(switch.0) + 1, switch)).collect();
    let (max_flows_per_host, max_counted_per_tor) = (FLOWS_PER_HOST, u32::MAX);
    let config = Config { max_flows_per_host, max_counted_per_tor, ..Config::default() };
    let controller = Controller::new(config, fabric.clone(), scheme);
    Ok(Hub::new(Responder::Fabric(controller), Some(fabric), datapaths, settings))
}

/// The scheme of the registry. `spt` and `ecmp` leave all flows on default routes and set up no paths. So they are
/// replaced by a scheme whose rules give each flow the path that it would take.
fn central(scheme: &str) -> Result<Box<dyn Scheme>, String> {
    match scheme {
        "spt" => Ok(Box::new(PathPerFlow::spt())),
        "ecmp" => Ok(Box::new(PathPerFlow::ecmp())),
        _ => {
            let parsed = pathloom_schemes::parse(scheme).map_err(|problem| problem.to_string())?;
            parsed.central(1).ok_or(format!("{scheme} has no central part"))
        }
    }
}

/// Whether a scheme gives a flow a path after its first packet. Others wait for measurements.
pub(super) fn routes_first_packets(scheme: &str) -> Result<bool, String> {
    Ok(matches!(central(scheme)?.needs().detection, Detection::Label | Detection::Any { .. }))
}

fn serve(what: &str, endpoint: Option<&str>, ready: impl FnOnce(u16, Option<u16>)) -> Result<(), String> {
    let token = (what != "learning").then_some(TOKEN);
    let cluster = endpoint.map(|endpoint| cluster(endpoint, ("leader", PREFIX), TTL)).transpose()?;
    embed::serve(hub(what)?, token, cluster.as_ref(), ready)
}
