//! A survey, for use before a fabric is configured. It discovers the switches that connect, until nothing has changed
//! for a while. The result is a fabric for a file that `fabric.spec` can name.

use crate::config::{Hosts, Limits, Sessions};
use crate::drivers::listening::{accept_tcp, bind_tcp};
use crate::drivers::secret::secret;
use crate::drivers::session::Shared;
use crate::drivers::timers::run_timers;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::{Hub, Responder};
use pathloom_discovery::{build_fabric, Dpid, FoundFabric, KnownHost, Place};
use pathloom_fabrics::to_node_link_json;
use pathloom_model::spec::Spec;
use pathloom_model::{Fabric, LinkSettings, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Time without a change after which the result is accepted.
const STABLE: Nanos = Nanos::from_secs(3);
/// Minimum time between two log lines: `SAY_SOON` before a new line, `SAY_AGAIN` before the same line.
const SAY_SOON: Nanos = Nanos::from_secs(1);
const SAY_AGAIN: Nanos = Nanos::from_secs(10);
/// Time between two checks.
const LOOK: Duration = Duration::from_millis(100);
/// Default link settings, which discovery cannot measure.
const LINKS: &str = "link:rate=1Gbps,delay=1us,buffer=100";

/// The topology found, for comparison with the previous one.
#[derive(Clone, PartialEq, Eq, Default)]
struct Findings {
    switches: Vec<Dpid>,
    links: Vec<(Place, Place)>,
    hosts: Vec<KnownHost>,
}

impl Findings {
    fn of(discovery: &LiveDiscovery) -> Findings {
        let (links, hosts) = (discovery.state().links(), discovery.state().hosts());
        let switches = links.known_switches().collect();
        Findings { switches, links: links.links().collect(), hosts: hosts.hosts().collect() }
    }
}

/// Listens at an address until a fabric can be built from the switches found, and returns it as node-link JSON.
///
/// # Errors
/// A message: it cannot listen, or an argument is invalid.
pub fn run(address: &str, links: Option<&str>) -> Result<String, String> {
    let address: SocketAddr = address
        .parse()
        .map_err(|_| format!("`{address}` is not an address; one such as 127.0.0.1:6653 was expected"))?;
    let links = read_links(links.unwrap_or(LINKS))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    let fabric = tokio::task::LocalSet::new().block_on(&runtime, survey(address, links))?;
    Ok(to_node_link_json(&fabric))
}

fn read_links(text: &str) -> Result<LinkSettings, String> {
    let read = || {
        let spec = Spec::parse_named("links", text, "link")?;
        let rate_bps = spec.rate_bps("rate")?.unwrap_or(1_000_000_000);
        let delay_ps = spec.time_ps("delay")?.unwrap_or(1_000_000);
        let buffer_packets = spec.count("buffer", 1, u64::from(u32::MAX))?.unwrap_or(100) as u32;
        spec.finish()?;
        Ok::<_, pathloom_model::spec::SpecError>(LinkSettings { rate_bps, delay_ps, buffer_packets })
    };
    read().map_err(|problem| problem.to_string())
}

async fn survey(address: SocketAddr, links: LinkSettings) -> Result<Fabric, String> {
    let words = |problem: std::io::Error| format!("cannot listen on {address}: {problem}");
    let mut hub = Hub::new(Responder::SurveyOnly, None, BTreeMap::new(), (Sessions::default(), Limits::default()));
    hub.discovery = Some(LiveDiscovery::without_fabric(Hosts::Learn, secret().map_err(words)?));
    let shared = Shared::new(hub);
    let listener = bind_tcp(address).map_err(words)?;
    tracing::info!(%address, "waiting for switches to connect");
    tokio::task::spawn_local(accept_tcp(listener, shared.clone()));
    tokio::task::spawn_local(run_timers(shared.clone()));
    let (mut before, mut since, mut problem) = (Findings::default(), Nanos::ZERO, None);
    let mut last = LastProgress::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let (hub, now) = (shared.hub.borrow(), shared.clock.now());
        let findings = hub.discovery.as_ref().map(Findings::of).unwrap_or_default();
        if findings != before {
            (before, since, problem) = (findings, now, None);
        } else if now.saturating_sub(since) >= STABLE && problem.is_none() {
            match make(&before, links) {
                Ok(fabric) => return Ok(fabric),
                Err(why) => problem = Some(why),
            }
        }
        if let Some(waits_for) = last.line_due(now, waits_for(address, &before, problem.as_deref())) {
            let (switches, cables, hosts) = (before.switches.len(), before.links.len(), before.hosts.len());
            tracing::info!(switches, cables, hosts, "waiting: {waits_for}");
        }
    }
}

/// The last log line about what the survey waits for, and its time.
#[derive(Default)]
struct LastProgress(Option<(Nanos, String)>);

impl LastProgress {
    /// Returns the log line that is due now, if any. A new line comes at least 1 s after the last one, the same line
    /// every 10 s.
    fn line_due(&mut self, now: Nanos, waits_for: String) -> Option<String> {
        let due = self
            .0
            .as_ref()
            .is_none_or(|(at, last)| now.saturating_sub(*at) >= if *last == waits_for { SAY_AGAIN } else { SAY_SOON });
        due.then(|| self.0.insert((now, waits_for)).1.clone())
    }
}

/// What a survey waits for, and what the user can do about it.
fn waits_for(address: SocketAddr, found: &Findings, problem: Option<&str>) -> String {
    if found.switches.is_empty() {
        return format!(
            "no switch has connected to {address} yet; connect each one, for example with `ovs-vsctl set-controller BRIDGE tcp:{address}`"
        );
    }
    if let Some(problem) = problem {
        return format!("no fabric can be built from the topology found: {problem}");
    }
    if found.links.is_empty() && found.switches.len() > 1 {
        return "no cable between switches was found yet; LLDP probes are sent from every port that is up".into();
    }
    let silent = if found.hosts.is_empty() {
        "; no host has sent ARP yet: let each ping an address of its network".to_owned()
    } else {
        let seen: BTreeSet<Dpid> = found.hosts.iter().map(|host| host.place.dpid).collect();
        format!("; hosts were seen at {} of the switches: a host that sends no ARP is not in the fabric", seen.len())
    };
    format!("the topology must not change for {} s{silent}", STABLE.0 / 1_000_000_000)
}

/// Builds a fabric from the topology found. Its numbers and addresses must be those of the switches and hosts.
fn make(found: &Findings, links: LinkSettings) -> Result<Fabric, String> {
    let hosts = found.hosts.iter().copied();
    let built = build_fabric(found.switches.iter().copied(), found.links.iter().copied(), hosts, |_| links);
    let built = built.map_err(|problem| problem.to_string())?;
    check_names(&built)?;
    if let Some((address, laid_out)) = built.addresses.iter().find(|(address, laid_out)| **laid_out != **address) {
        return Err(format!("host {address} is at the port of {laid_out}; addresses must follow ToRs and ports"));
    }
    Ok(built.fabric)
}

/// By convention, node n is the switch with datapath identifier n + 1, and ports count from 1 in the order of cabling.
fn check_names(built: &FoundFabric) -> Result<(), String> {
    for &node in built.fabric.switches() {
        for &link in &built.fabric.node(node).ports {
            let port = built.fabric.link(link).from_port;
            let Some(place) = built.place(node, port) else { continue };
            if place != Place::new(u64::from(node.0) + 1, port.0) {
                let name = &built.fabric.node(node).name;
                return Err(format!(
                    "{place} would be port {} of {name}, number {}; datapath identifiers must count from 1, and so must the \
                     ports in use, in the order of the switches at their other ends",
                    port.0, node.0
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_discovery::cabling::{dpid_of, place_of};
    use pathloom_discovery::Mac;
    use pathloom_fabrics::fabric_from_spec;

    fn perfect(spec: &str) -> Findings {
        let fabric = fabric_from_spec(spec).unwrap();
        let host = |at: &pathloom_model::Attachment| KnownHost {
            address: at.address.v4().unwrap(),
            mac: Mac([2, 0, 0, 0, 0, at.host.0 as u8]),
            place: place_of(&fabric, at.uplink.reverse()),
        };
        let ends = |link: pathloom_model::LinkId| (place_of(&fabric, link), place_of(&fabric, link.reverse()));
        Findings {
            switches: fabric.switches().iter().map(|&node| dpid_of(node)).collect(),
            links: fabric.switch_cables().map(ends).collect(),
            hosts: fabric.attachments().iter().map(host).collect(),
        }
    }

    #[test]
    fn surveyed_fabrics_have_the_numbers_of_the_switches() {
        let links = read_links("link:rate=10Mbps,buffer=150").unwrap();
        assert_eq!((links.rate_bps, links.buffer_packets), (10_000_000, 150));
        for spec in ["fat-tree:k=4", "leaf-spine:spines=2,leaves=3,hosts=2", "diamond"] {
            let found = perfect(spec);
            let fabric = make(&found, links).unwrap();
            let again: Vec<_> = fabric
                .switch_cables()
                .map(|link| (place_of(&fabric, link), place_of(&fabric, link.reverse())))
                .collect();
            let order = |(a, b): (Place, Place)| (a.min(b), a.max(b));
            let sorted = |links: &[(Place, Place)]| {
                let mut links: Vec<_> = links.iter().copied().map(order).collect();
                links.sort_unstable();
                links
            };
            assert_eq!(sorted(&again), sorted(&found.links), "{spec}");
        }
    }

    #[test]
    fn invalid_topologies_and_arguments_are_named() {
        let links = read_links(LINKS).unwrap();
        let mut strange = perfect("fat-tree:k=4");
        strange.hosts[3].address = [192, 168, 0, 7].into();
        assert!(make(&strange, links).unwrap_err().contains("192.168.0.7"));
        let mut gap = perfect("diamond");
        gap.hosts.iter_mut().for_each(|host| host.place.port.0 += 30);
        assert!(make(&gap, links).unwrap_err().contains("port"));
        assert!(make(&Findings::default(), links).is_err());
        assert!(read_links("link:rate=fast").unwrap_err().contains("rate"));
        assert!(run("nowhere", None).unwrap_err().contains("127.0.0.1:6653"));
    }
    #[test]
    fn log_lines_name_what_the_survey_waits_for_and_the_way_out() {
        let address = "127.0.0.1:6653".parse().unwrap();
        let whole = perfect("fat-tree:k=4");
        let nothing = Findings::default();
        let switches = Findings { switches: whole.switches.clone(), ..Findings::default() };
        let cables = Findings { links: whole.links.clone(), ..switches.clone() };
        let cases = [
            (&nothing, None, "set-controller BRIDGE tcp:127.0.0.1:6653"),
            (&switches, None, "no cable"),
            (&cables, None, "let each ping"),
            (&whole, None, "hosts were seen at 8 of the switches"),
            (&whole, Some("port 3 is strange"), "port 3 is strange"),
        ];
        for (found, problem, words) in cases {
            let said = waits_for(address, found, problem);
            assert!(said.contains(words) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn the_same_line_is_logged_every_ten_seconds_and_a_new_one_within_one() {
        let mut last = LastProgress::default();
        let mut says = |at_ms: u64, what: &str| last.line_due(Nanos::from_millis(at_ms), what.into()).is_some();
        assert!(says(0, "switches") && !says(100, "switches") && !says(900, "hosts") && says(1000, "hosts"));
        assert!(!says(5000, "hosts") && says(11_000, "hosts") && !says(11_100, "hosts"));
    }
}
