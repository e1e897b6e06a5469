//! Tests of hosts that move to another switch, and of hosts that only pretend to.

use super::net::{identity, mac_of, tuple, Inspect, Net};
use crate::program::DropCause;
use crate::programs::{ArpPath, Selection, Settings, TcpPath};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Address, Arp, Body, Fabric, Frame, Mac, Nanos, NodeId};

/// Longer than several time-outs of a host in these tests, and much shorter than the life of an entry.
const SOON: Nanos = Nanos::from_secs(20);

fn fabric() -> Fabric {
    fabric_from_spec("leaf-spine:spines=2,leaves=3,hosts=2").unwrap()
}

/// Without Hello: links of these tests may reorder frames, and a Hello that is overtaken looks like a one-way link.
fn settings() -> Settings {
    Settings { hello: None, ..Settings::default() }
}

fn tcp_path(now: Nanos, fabric: &Fabric, node: NodeId, boot: u64) -> TcpPath {
    TcpPath::new(now, identity(fabric, node, boot, false), settings(), Selection::AllTcp)
}

fn arp_path(now: Nanos, fabric: &Fabric, node: NodeId, boot: u64) -> ArpPath {
    ArpPath::new(now, identity(fabric, node, boot, false), settings())
}

fn addresses(fabric: &Fabric) -> Vec<Address> {
    fabric.attachments().iter().map(|one| one.address).collect()
}

fn run<P: Inspect>(net: &mut Net<'_, P>, time: Nanos) {
    let end = net.now + time;
    net.run(end);
    net.check_ways();
    assert_eq!(net.violations, [] as [String; 0]);
}

fn stuck<P: Inspect>(net: &Net<'_, P>) -> usize {
    net.sessions().filter(|one| one.acked < one.wanted).count()
}

/// Two hosts of different switches exchange their places while all hosts have connections to the first one, and it has
/// one to the last. Everybody reaches everybody soon after.
fn hosts_move<P: Inspect>(make: fn(Nanos, &Fabric, NodeId, u64) -> P, unplug: bool) {
    let fabric = fabric();
    let all = addresses(&fabric);
    let mut net = Net::new(&fabric, 1, Nanos::from_millis(1), make);
    run(&mut net, Nanos::from_secs(2));
    all[1..].iter().for_each(|&from| net.open(tuple(from, all[0], 1000), 2));
    net.open(tuple(all[0], all[5], 2000), 2);
    run(&mut net, Nanos::from_secs(2));
    assert_eq!(stuck(&net), 0);
    net.swap_hosts(all[0], all[4], unplug);
    net.want_more();
    run(&mut net, SOON);
    assert_eq!(stuck(&net), 0, "{:?}", net.sessions().collect::<Vec<_>>());
}

#[test]
fn hosts_whose_ports_went_down_are_reached_at_their_new_places() {
    hosts_move(tcp_path, true);
    hosts_move(arp_path, true);
}

#[test]
fn hosts_that_move_behind_ports_that_stay_up_are_reached_at_their_new_places() {
    hosts_move(tcp_path, false);
    hosts_move(arp_path, false);
}

#[test]
fn a_host_that_answers_keeps_its_address() {
    let fabric = fabric();
    let all = addresses(&fabric);
    let mut net = Net::new(&fabric, 1, Nanos::from_millis(1), tcp_path);
    run(&mut net, Nanos::from_secs(2));
    let (victim, thief) = (all[0], all[4]);
    // The host has sent a broadcast, so that all switches know where it is.
    net.open(tuple(all[2], victim, 1000), 2);
    net.open(tuple(victim, all[3], 1000), 2);
    run(&mut net, Nanos::from_secs(2));
    let lie = |sender_ip| Arp {
        request: true,
        sender_mac: mac_of(victim),
        sender_ip,
        target_mac: Mac::ZERO,
        target_ip: all[2],
    };
    for round in 0..40 {
        // The address in the lie does not matter: the switch asks for the one that it knows.
        let arp = lie([victim, thief, Address::UNSPECIFIED][round % 3]);
        net.host_sends(thief, Frame { src: mac_of(victim), dst: Mac::BROADCAST, body: Body::Arp(arp) });
        net.want_more();
        run(&mut net, Nanos::from_millis(700));
        assert_eq!(stuck(&net), 0);
    }
    let places = |node: NodeId, port| net.programs[&node].base.hosts.local_port(net.now, mac_of(victim)) == port;
    let tor = |ip| fabric.attachment(ip).unwrap().tor;
    let port = fabric.link(fabric.attachment(victim).unwrap().uplink).to_port;
    assert!(places(tor(victim), Some(port)) && places(tor(thief), None));
    let refused = net.programs[&tor(thief)].base.counts.tables().refused;
    assert_eq!((refused[0].frames, refused[0].last), (40, Some(DropCause::StolenAddress)));
}
