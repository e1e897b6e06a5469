//! The driver's own rules at switches: for control traffic, refused frames, and ARP between known hosts. They are written
//! when a session begins, renewed, and restored after reviews.

use crate::hub::arp_routes;
use crate::hub::connection::ConnectionId;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::numbers;
use crate::hub::outgoing::read_all;
use crate::hub::punts::{self, Punt};
use crate::hub::reading::Why;
use crate::hub::refused::{self, Refusals};
use crate::hub::{Hub, Responder};
use pathloom_control::Input;
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::{Fabric, Nanos, NodeId, PortNo};
use pathloom_openflow::{FlowStats, Message, PORT_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Installs the driver's own rules in a switch with a new session.
pub(crate) fn write_own_rules(hub: &mut Hub, id: ConnectionId) {
    let (wanted, unwanted) = own_rules(hub, id);
    let Some(connection) = hub.connection_mut(id) else { return };
    // Hosts of an earlier start may have moved. Until the next rules arrive, the controller gets their frames.
    connection.queue(&arp_routes::forget_all());
    for rule in wanted.iter().chain(&unwanted) {
        connection.queue(rule);
    }
    hub.mark(id);
}

/// The driver's own rules that a switch should have, for control traffic and refused frames. Also the messages that
/// delete rules of an earlier start that it should not have.
pub(crate) fn own_rules(hub: &mut Hub, id: ConnectionId) -> (Vec<Message<'static>>, Vec<Message<'static>>) {
    let Some(connection) = hub.connection_mut(id) else { return Default::default() };
    let (node, ports) = (connection.node, connection.ports().collect::<Vec<u32>>());
    let dpid = connection.discovered_dpid;
    let place = node.zip(hub.fabric.as_deref());
    let (punts, others): (Vec<Punt>, Vec<Punt>) = Punt::ALL.into_iter().partition(|&punt| punts(hub, node, punt));
    let mut wanted: Vec<Message<'static>> = punts.into_iter().map(|punt| punt.add(place.is_some())).collect();
    let mut unwanted: Vec<Message<'static>> = others.into_iter().map(Punt::delete).collect();
    if let (Some((node, fabric)), Some(discovery)) = (place, &hub.discovery) {
        let (rules, of_others) = discovery_rules(discovery, (fabric, node), dpid, &ports);
        wanted.extend(rules);
        unwanted.extend(of_others);
    }
    if let Some((node, fabric)) = place {
        wanted.extend(may_have_hosts(hub, Some(node)).then(punts::fragments));
        let refusals = Refusals::of(fabric, node, &ports);
        wanted.extend(refusals.wanted);
        unwanted.extend(refusals.unwanted);
    }
    (wanted, unwanted)
}

/// Sends a switch the rule for ARP beside a default route.
pub(crate) fn add_arp_route(hub: &mut Hub, switch: NodeId, route: &Rule) {
    if !arp_routes::is_default_route(&route.key()) || !routes_arp(hub) {
        return;
    }
    // The switch gets the route in the same way, and an error has been logged if OpenFlow cannot express it.
    let Ok(message) = arp_routes::route(route) else { return };
    let id = hub.switches.session(switch);
    id.into_iter().for_each(|id| send_arp_rule(hub, id, &message));
}

/// Deletes the rule for ARP beside a default route.
pub(crate) fn delete_arp_route(hub: &mut Hub, switch: NodeId, route: &RuleKey) {
    if arp_routes::is_default_route(route) && routes_arp(hub) {
        let Ok(message) = arp_routes::delete_route(route) else { return };
        let id = hub.switches.session(switch);
        id.into_iter().for_each(|id| send_arp_rule(hub, id, &message));
    }
}

/// Sends the switch with this datapath identifier a change of a rule for the frames of a host.
pub(crate) fn change_known_host(hub: &mut Hub, dpid: u64, message: &Message<'static>) {
    if let Some(id) = hub.standing(dpid).filter(|_| routes_arp(hub)) {
        send_arp_rule(hub, id, message);
    }
}

fn send_arp_rule(hub: &mut Hub, id: ConnectionId, message: &Message<'static>) {
    let Some(connection) = hub.connection_mut(id) else { return };
    connection.queue(message);
    connection.reading.iter_mut().for_each(|reading| reading.arp_changed = true);
    hub.mark(id);
}

/// Whether the switches of the fabric forward ARP between known hosts.
fn routes_arp(hub: &Hub) -> bool {
    hub.discovery.as_ref().is_some_and(LiveDiscovery::routes_arp)
}

/// Whether a switch sends this control traffic to the controller. `node`: its place in the fabric, if it has one.
fn punts(hub: &Hub, node: Option<NodeId>, punt: Punt) -> bool {
    let is_wanted = hub.discovery.as_ref().is_some_and(|discovery| discovery.wants(punt));
    is_wanted && (!punt.is_of_hosts() || may_have_hosts(hub, node))
}

/// Whether a switch is a ToR. A switch without a place in the fabric may be one.
fn may_have_hosts(hub: &Hub, node: Option<NodeId>) -> bool {
    let place = node.zip(hub.fabric.as_deref());
    place.is_none_or(|(node, fabric)| fabric.tor_index(node).is_some())
}

/// Renews the punts of all switches for which it is time. Repeats the driver's own rules and readings that switches have
/// refused.
pub(crate) fn renew_punts(hub: &mut Hub, now: Nanos) {
    let standing: Vec<ConnectionId> = hub.switches.sessions().flatten().collect();
    for id in standing {
        let Some(connection) = hub.connection_mut(id) else { continue };
        if connection.take_own_rules_due(now) {
            write_own_rules(hub, id);
        }
        let Some(connection) = hub.connection_mut(id) else { continue };
        if connection.take_reading_due(now) {
            read_all(connection, Why::Dump);
            hub.mark(id);
        }
        let Some(connection) = hub.connection_mut(id) else { continue };
        if now.saturating_sub(connection.last_renewal) < punts::RENEWED_AFTER {
            continue;
        }
        connection.last_renewal = now;
        let node = connection.node;
        let punts = Punt::ALL.into_iter().filter(|&punt| punts(hub, node, punt)).map(|punt| punt.add(true));
        let of_hosts = (routes_arp(hub) && may_have_hosts(hub, node)).then(arp_routes::of_hosts);
        let renewed: Vec<Message<'static>> = punts.chain(of_hosts).filter(punts::is_renewed).collect();
        let Some(connection) = hub.connection_mut(id) else { continue };
        for rule in &renewed {
            connection.queue(rule);
        }
        hub.mark(id);
    }
}

/// Adds the driver's own rules that a review did not find among these rows, and deletes rules for ARP that the switch
/// should not have. Rules that are renewed all the time may be missing for a moment; this is not an error.
/// `arp_changed`: whether rules for ARP were changed while the rows were read, so that they are compared next time.
pub(crate) fn restore_own_rules(hub: &mut Hub, id: ConnectionId, found: &[FlowStats], arp_changed: bool) {
    let mut wanted = all_own_rules(hub, id);
    tell_room(hub, id, wanted.len());
    let rows: BTreeMap<u64, &FlowStats> = found.iter().map(|row| (row.cookie, row)).collect();
    let is_skipped = |cookie: u64| arp_changed && arp_routes::is_changing(cookie);
    let cookies: BTreeSet<u64> = wanted.iter().map(cookie_of).collect();
    let is_surplus =
        |&cookie: &u64| arp_routes::is_changing(cookie) && !is_skipped(cookie) && !cookies.contains(&cookie);
    let surplus: Vec<Message<'static>> = rows.keys().copied().filter(is_surplus).map(punts::delete).collect();
    let is_there = |rule: &Message<'_>| {
        let cookie = cookie_of(rule);
        is_skipped(cookie) || rows.get(&cookie).is_some_and(|row| punts::is_installed(rule, row))
    };
    wanted.retain(|rule| !punts::is_renewed(rule) && !is_there(rule));
    if !wanted.is_empty() {
        let (switch, rules) = (hub.name_of(id), wanted.len());
        tracing::warn!(switch, rules, "rules for control traffic or refused frames were missing and are restored");
        hub.counts.punts_restored += rules as u64;
    }
    let Some(connection) = hub.connection_mut(id) else { return };
    for rule in wanted.iter().chain(&surplus) {
        connection.queue(rule);
    }
    hub.mark(id);
}

/// The driver's own rules that a switch should have, with those beside default routes.
pub(crate) fn all_own_rules(hub: &mut Hub, id: ConnectionId) -> Vec<Message<'static>> {
    let (mut wanted, _) = own_rules(hub, id);
    wanted.extend(arp_routes(hub, id));
    wanted
}

/// Adds the rules beside default routes that a switch with a new session does not have. The others were sent when the
/// session began.
pub(crate) fn add_arp_routes(hub: &mut Hub, id: ConnectionId, found: &[FlowStats]) {
    let rows: BTreeMap<u64, &FlowStats> = found.iter().map(|row| (row.cookie, row)).collect();
    let mut missing = arp_routes(hub, id);
    missing.retain(|rule| !rows.get(&cookie_of(rule)).is_some_and(|row| punts::is_installed(rule, row)));
    missing.iter().for_each(|rule| send_arp_rule(hub, id, rule));
}

/// Tells the controller how many rules a switch can hold for it, if the number of the driver's own rules has changed.
fn tell_room(hub: &mut Hub, id: ConnectionId, own: usize) {
    let Some(connection) = hub.connection_mut(id) else { return };
    if let (Some(switch), Some(rules)) = (connection.node, connection.room.changed(own)) {
        hub.queued.push_back(Input::Capacity { switch, rules });
    }
}

/// The rules for ARP beside the default routes of a switch.
fn arp_routes(hub: &mut Hub, id: ConnectionId) -> Vec<Message<'static>> {
    let Some(node) = hub.connection_mut(id).and_then(|connection| connection.node) else { return Vec::new() };
    let (map, Responder::Fabric(controller)) = (hub.port_map(node), &hub.responder) else { return Vec::new() };
    if !routes_arp(hub) {
        return Vec::new();
    }
    let route = |rule: Rule| match map {
        Some(map) => arp_routes::route(&numbers::rule_to_switch(map, &rule)),
        None => arp_routes::route(&rule),
    };
    controller.default_routes(node).filter_map(|rule| route(rule).ok()).collect()
}

/// Refuses frames from a port that the fabric does not have.
pub(crate) fn refuse_unknown_port(hub: &mut Hub, id: ConnectionId, port: u32) {
    let Some(node) = hub.connection_mut(id).and_then(|connection| connection.node) else { return };
    let known = hub.fabric.as_ref().is_none_or(|fabric| fabric.out_link(node, PortNo(port)).is_some());
    let unknown = (routes_arp(hub) && may_have_hosts(hub, Some(node))).then(|| arp_routes::unknown(port));
    let Some(connection) = hub.connection_mut(id).filter(|_| !known && (1..=PORT_MAX).contains(&port)) else {
        return;
    };
    for rule in refused::rules_of_unknown_port(port).iter().chain(&unknown) {
        connection.queue(rule);
    }
    hub.mark(id);
}

/// The rules of a switch for the trees and for ARP between known hosts, without those beside default routes, and the
/// messages that delete rules of an earlier start. `reported`: the ports that the switch has.
fn discovery_rules(
    discovery: &LiveDiscovery,
    (fabric, node): (&Fabric, NodeId),
    dpid: Option<u64>,
    reported: &[u32],
) -> (Vec<Message<'static>>, Vec<Message<'static>>) {
    let ports = discovery.tree_ports(fabric, node);
    let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
    for punt in Punt::ALL.into_iter().filter(|punt| punt.has_tree()) {
        if !discovery.wants(punt) {
            unwanted.push(punt.delete_trees());
            continue;
        }
        let (rules, of_other_ports) = punt.trees(&ports);
        wanted.extend(rules);
        unwanted.extend(of_other_ports);
    }
    if !discovery.routes_arp() {
        unwanted.push(arp_routes::delete_everything());
        return (wanted, unwanted);
    }
    let strange = |port: &u32| (1..=PORT_MAX).contains(port) && fabric.out_link(node, PortNo(*port)).is_none();
    let strange: Vec<u32> = reported.iter().copied().filter(strange).collect();
    let (rules, of_others) = arp_routes::standing(&ports.hosts, &ports.to_switches(), &strange);
    wanted.extend(rules);
    wanted.extend(dpid.into_iter().flat_map(|dpid| discovery.hosts_at(dpid)).map(arp_routes::known));
    unwanted.extend(of_others);
    (wanted, unwanted)
}

/// The cookie of a rule of the driver.
fn cookie_of(rule: &Message<'_>) -> u64 {
    match rule {
        Message::FlowMod(rule) => rule.cookie,
        _ => 0,
    }
}
