//! Tests of attacks by hosts and of invalid input, with one switch that has hosts at ports 1 and 2 and switches at 3
//! and 4.

use super::net::{mac_of, tuple};
use crate::program::{DropCause, Outgoing, Program, Verdict};
use crate::programs::{Elephants, Identity, PortRole, Selection, Settings, TcpPath};
use pathloom_model::{
    Address, Arp, Body, Carried, Conversation, Frame, Headers, Heard, Hello, Mac, Nanos, PathKind, PathMessage, PortNo,
    LONG_FLOW_DSCP, TCP_ACK, TCP_RST, TCP_SYN,
};

const NOW: Nanos = Nanos::from_secs(100);
const OWN: Mac = Mac([6, 0, 0, 0, 0, 1]);
const A: Address = Address::new(10, 0, 0, 1);
const B: Address = Address::new(10, 0, 0, 2);
const FAR: Address = Address::new(10, 0, 9, 9);
const H1: PortNo = PortNo(1);
const H2: PortNo = PortNo(2);
const S3: PortNo = PortNo(3);
const S4: PortNo = PortNo(4);

fn switch_with(settings: Settings, selection: Selection) -> TcpPath {
    let neighbour = PortRole::Switch { tier: None };
    let roles = [(H1, PortRole::Host), (H2, PortRole::Host), (S3, neighbour), (S4, neighbour)].into();
    let identity = Identity { mac: OWN, tier: None, boot: 1, roles };
    let mut switch = TcpPath::new(NOW, identity, Settings { quiet: Nanos::ZERO, ..settings }, selection);
    [H1, H2, S3, S4].into_iter().for_each(|port| switch.set_port(NOW, port, true));
    while switch.poll_emission().is_some() {}
    switch
}

fn switch() -> TcpPath {
    switch_with(Settings::default(), Selection::AllTcp)
}

fn segment(src: Address, dst: Address, src_port: u16, tcp_flags: u8) -> Frame {
    let headers = Headers { tcp_flags, ..Headers::plain(tuple(src, dst, src_port)) };
    Frame { src: mac_of(src), dst: mac_of(dst), body: Body::Ip(headers) }
}

fn broadcast(src: Mac) -> Frame {
    let arp = Arp { request: true, sender_mac: src, sender_ip: A, target_mac: Mac::ZERO, target_ip: FAR };
    Frame { src, dst: Mac::BROADCAST, body: Body::Arp(arp) }
}

fn message(kind: PathKind, conversation: Conversation, exploration: u64, carried: Carried) -> Frame {
    let message = PathMessage { kind, conversation, exploration, hops: 1, carried };
    Frame { src: Mac([6; 6]), dst: Mac([3, 0x50, 0x41, 0x54, 0x48, 0]), body: Body::Path(message) }
}

/// Returns a SYN of a remote host to `dst`, in the form in which another switch sends it.
fn request(dst: Address, src_port: u16, exploration: u64) -> Frame {
    let frame = segment(FAR, dst, src_port, TCP_SYN);
    let conversation = Conversation::of(frame.src, frame.dst, tuple(FAR, dst, src_port));
    message(PathKind::Request, conversation, exploration, Carried::from_body(frame.body).unwrap())
}

fn ports(verdict: &Verdict) -> Vec<u32> {
    verdict.emissions.iter().map(|out| out.port.0).collect()
}

/// Opens a connection from host A to the remote host, confirmed by port 3. Returns the number of its exploration.
fn connect(switch: &mut TcpPath, src_port: u16) -> u64 {
    let verdict = switch.decide(NOW, H1, &segment(A, FAR, src_port, TCP_SYN));
    assert_eq!(ports(&verdict), [3, 4, 2], "the host port without a known host gets a copy too: {verdict:?}");
    let Body::Path(sent) = verdict.emissions[0].frame.body else { panic!("{verdict:?}") };
    let answer = segment(FAR, A, src_port, TCP_SYN | TCP_ACK);
    let Body::Ip(headers) = answer.body else { unreachable!() };
    let back = Headers { five_tuple: tuple(A, FAR, src_port).reverse(), ..headers };
    let reply = PathMessage { kind: PathKind::Reply, carried: Carried::Ip(back), ..sent };
    let frame = Frame { src: Mac([6; 6]), dst: verdict.emissions[0].frame.dst, body: Body::Path(reply) };
    let verdict = switch.decide(NOW, S3, &frame);
    assert_eq!(ports(&verdict), [1]);
    assert_eq!(verdict.emissions[0].frame.body, Body::Ip(back));
    sent.exploration
}

#[test]
fn data_takes_the_confirmed_path_and_may_be_remembered() {
    let mut switch = switch_with(Settings { hello: None, ..Settings::default() }, Selection::AllTcp);
    connect(&mut switch, 5);
    let verdict = switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK));
    assert_eq!((ports(&verdict), verdict.remember), (vec![3], Some(tuple(A, FAR, 5))));
    assert_eq!((switch.tables().connections, switch.tables().confirmed), (2, 2));
    // Frames that were forwarded from memory renew the entry.
    let last = NOW.saturating_add(Nanos::from_secs(9));
    switch.credit(tuple(A, FAR, 5), crate::Used { last, packets: 1, bytes: 66 });
    switch.handle_timeout(NOW.saturating_add(Nanos::from_secs(18)));
    assert_eq!(switch.tables().connections, 2);
    switch.take_stale();
    switch.handle_timeout(NOW.saturating_add(Nanos::from_secs(19)));
    assert_eq!(switch.tables().connections, 0);
    let mut both = vec![tuple(A, FAR, 5), tuple(A, FAR, 5).reverse()];
    both.sort();
    assert!(matches!(switch.take_stale(), crate::Stale::Flows(flows) if flows == both));
}

#[test]
fn a_host_cannot_send_messages_of_a_switch() {
    let mut switch = switch();
    let hello = Hello { switch: Mac([6; 6]), port: H1, tier: None, boot: 1, heard: None };
    let own = Heard { switch: OWN, port: H1, boot: 1 };
    let conversation = Conversation::of(mac_of(A), mac_of(FAR), tuple(A, FAR, 5));
    let forged = [
        Frame { src: Mac([6; 6]), dst: Mac::BROADCAST, body: Body::Hello(hello) },
        Frame { src: Mac([6; 6]), dst: Mac::BROADCAST, body: Body::Hello(Hello { heard: Some(own), ..hello }) },
        message(PathKind::Fail, conversation, 0, Carried::Nothing),
        message(PathKind::RecoveryRequest, conversation, u64::MAX, Carried::Nothing),
        request(B, 5, u64::MAX),
    ];
    connect(&mut switch, 5);
    for frame in &forged {
        assert_eq!(switch.decide(NOW, H2, frame).dropped, Some(DropCause::Forged), "{frame:?}");
    }
    let mut tagged = segment(B, FAR, 6, TCP_ACK);
    tagged.body = Body::Ip(Headers { tag: Some(4094), ..Headers::plain(tuple(B, FAR, 6)) });
    assert_eq!(switch.decide(NOW, H2, &tagged).dropped, Some(DropCause::Forged));
    let tagged = Frame { body: Body::Other { ether_type: 0x8100 }, ..tagged };
    assert_eq!(switch.decide(NOW, H2, &tagged).dropped, Some(DropCause::Forged));
    let refused = switch.tables().refused;
    assert_eq!((refused[0].port, refused[0].frames, refused[0].last), (H2, 7, Some(DropCause::Forged)));
    assert_eq!(ports(&switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK))), [3], "the connection is unaffected");
}

#[test]
fn an_address_belongs_to_its_first_port_until_the_entry_expires() {
    let mut switch = switch();
    connect(&mut switch, 5);
    let stolen = [segment(A, FAR, 5, TCP_ACK), segment(A, FAR, 6, TCP_SYN), broadcast(mac_of(A))];
    for frame in &stolen {
        assert_eq!(switch.decide(NOW, H2, frame).dropped, Some(DropCause::StolenAddress));
    }
    // The address of a host at another switch cannot be taken either.
    let far = message(
        PathKind::Request,
        Conversation::hosts(mac_of(FAR), Mac::BROADCAST, FAR, A),
        7,
        Carried::from_body(broadcast(mac_of(FAR)).body).unwrap(),
    );
    assert_eq!(ports(&switch.decide(NOW, S3, &far)), [1, 2, 4]);
    assert_eq!(switch.decide(NOW, H2, &broadcast(mac_of(FAR))).dropped, Some(DropCause::StolenAddress));
    // Another switch claims to have begun an exploration for a local host.
    let claimed = message(
        PathKind::Request,
        Conversation::hosts(mac_of(A), Mac::BROADCAST, A, FAR),
        u64::MAX,
        Carried::from_body(broadcast(mac_of(A)).body).unwrap(),
    );
    assert_eq!(switch.decide(NOW, S4, &claimed).dropped, Some(DropCause::StolenAddress));
    let later = NOW.saturating_add(Settings::default().host_age).saturating_add(Nanos::from_secs(1));
    switch.handle_timeout(later);
    assert!(switch.decide(later, H2, &segment(A, FAR, 7, TCP_SYN)).dropped.is_none());
    for src in [Mac::ZERO, Mac::BROADCAST, OWN] {
        let frame = Frame { src, ..broadcast(src) };
        assert_eq!(switch.decide(NOW, H1, &frame).dropped, Some(DropCause::Invalid));
    }
    let lie = Frame { src: mac_of(B), ..broadcast(mac_of(A)) };
    assert_eq!(switch.decide(NOW, H2, &lie).dropped, Some(DropCause::Invalid));
}

#[test]
fn no_table_exceeds_its_limit() {
    let settings = Settings { most_connections: 20, most_connections_per_port: 5, ..Settings::default() };
    let mut switch = switch_with(Settings { most_hosts_per_port: 3, most_hosts: 10, ..settings }, Selection::AllTcp);
    for src_port in 0..2000 {
        switch.decide(NOW, H1, &segment(A, FAR, src_port, TCP_SYN));
        switch.decide(NOW, H1, &segment(A, FAR, src_port, TCP_ACK));
    }
    assert_eq!(switch.tables().connections, 5);
    assert_eq!(switch.tables().refused[0].port, H1);
    for src_port in 0..2000 {
        switch.decide(NOW, S3, &request(A, src_port, 1000 + u64::from(src_port)));
    }
    assert_eq!(switch.tables().connections, 20);
    for host in 0..100 {
        let src = mac_of(Address::new(10, 1, 0, host));
        let mut frame = broadcast(src);
        let Body::Arp(arp) = &mut frame.body else { unreachable!() };
        arp.sender_mac = src;
        switch.decide(NOW, H2, &frame);
    }
    assert_eq!(switch.tables().hosts, 4, "one at port 1, three at port 2");
    let full = switch.tables().refused[1];
    assert_eq!((full.port, full.frames, full.last), (H2, 97, Some(DropCause::TableFull)));
    // All entries expire, so limits that were reached have no lasting effect.
    let later = NOW.saturating_add(Settings::default().host_age).saturating_add(Nanos::from_secs(1));
    switch.handle_timeout(later);
    assert_eq!((switch.tables().connections, switch.tables().hosts), (0, 0));
    assert_eq!(switch.decide(later, H1, &segment(A, FAR, 5, TCP_SYN)).dropped, None);
}

#[test]
fn connections_beyond_the_exploration_limit_take_the_default_forwarding() {
    let mut switch = switch_with(Settings { explorations_per_s: 10, ..Settings::default() }, Selection::AllTcp);
    let far = Conversation::hosts(mac_of(FAR), Mac::BROADCAST, FAR, A);
    let carried = Carried::from_body(broadcast(mac_of(FAR)).body).unwrap();
    switch.decide(NOW, S3, &message(PathKind::Request, far, 7, carried));
    let explored = |verdict: &Verdict| matches!(verdict.emissions[0].frame.body, Body::Path(_));
    let verdicts: Vec<Verdict> =
        (0..50).map(|src_port| switch.decide(NOW, H1, &segment(A, FAR, src_port, TCP_SYN))).collect();
    assert_eq!(verdicts.iter().filter(|verdict| explored(verdict)).count(), 20);
    let Body::Ip(headers) = verdicts[49].emissions[0].frame.body else { panic!("{:?}", verdicts[49]) };
    assert_eq!((ports(&verdicts[49]), headers.tag), (vec![3], Some(4094)));
    assert_eq!(switch.tables().refused[0].last, Some(DropCause::RateLimited));
    let other = switch.decide(NOW, H2, &segment(B, FAR, 1, TCP_SYN));
    assert!(explored(&other), "other ports keep their share");
}

/// Returns whether the switch explores for a SYN of host A, whose answer arrives at port 3. Then the host sends a segment with
/// `flags`.
fn explores(switch: &mut TcpPath, src_port: u16, flags: u8) -> bool {
    let verdict = switch.decide(NOW, H1, &segment(A, FAR, src_port, TCP_SYN));
    let Some(Body::Path(sent)) = verdict.emissions.first().map(|out| out.frame.body) else { return false };
    let back = Headers { tcp_flags: TCP_SYN | TCP_ACK, ..Headers::plain(tuple(A, FAR, src_port).reverse()) };
    let reply = PathMessage { kind: PathKind::Reply, carried: Carried::Ip(back), ..sent };
    let frame = Frame { src: Mac([6; 6]), dst: verdict.emissions[0].frame.dst, body: Body::Path(reply) };
    assert_eq!(ports(&switch.decide(NOW, S3, &frame)), [1]);
    assert_eq!(ports(&switch.decide(NOW, H1, &segment(A, FAR, src_port, flags))), [3]);
    true
}

#[test]
fn syns_of_connections_that_nobody_uses_have_a_limit_of_their_own() {
    let settings = || Settings { unused_explorations_per_s: 10, ..Settings::default() };
    let explored = |switch: &mut TcpPath, flags: u8| (0..300).filter(|&port| explores(switch, port, flags)).count();
    let mut used = switch_with(settings(), Selection::AllTcp);
    explores(&mut used, 400, TCP_ACK);
    assert_eq!(explored(&mut used, TCP_ACK), 300);
    assert_eq!(used.tables().refused, []);
    // The kernel of a host that forged a SYN resets the connection.
    for flags in [TCP_RST, TCP_RST | TCP_ACK] {
        let mut unused = switch_with(settings(), Selection::AllTcp);
        explores(&mut unused, 400, TCP_ACK);
        assert_eq!(explored(&mut unused, flags), 20, "{flags:#x}");
        assert_eq!(unused.tables().refused[0].last, Some(DropCause::RateLimited));
        // A second segment puts nothing back.
        (0..5).for_each(|_| _ = unused.decide(NOW, H1, &segment(A, FAR, 400, TCP_ACK)));
        assert!(!explores(&mut unused, 500, TCP_ACK));
    }
}

/// Without a place for new connections in a full table, one host could keep all others from paths of their own.
#[test]
fn in_a_full_table_the_host_with_the_most_connections_loses_the_idlest_one() {
    let settings = Settings { most_connections: 20, ..Settings::default() };
    let mut switch = switch_with(settings, Selection::AllTcp);
    connect(&mut switch, 5);
    let first = 2 * NOW.0 + 1_000;
    // Remote explorations that A does not answer.
    let flood = |switch: &mut TcpPath, ports: std::ops::Range<u16>| {
        for src_port in ports {
            switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK));
            let accepted = switch.decide(NOW, S3, &request(B, src_port, first + u64::from(src_port)));
            assert_eq!(accepted.dropped, None);
        }
    };
    flood(&mut switch, 1000..3000);
    // The connection of A, both directions, and 19 locked ones.
    assert_eq!((switch.tables().connections, switch.tables().confirmed), (21, 2));
    assert_eq!(ports(&switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK))), [3]);
    connect(&mut switch, 6);
    assert_eq!(switch.tables().confirmed, 4);
    // Copies of explorations whose entry has made room are late nevertheless.
    assert_eq!(switch.decide(NOW, S4, &request(B, 1000, first + 1000)).dropped, Some(DropCause::LateCopy));
    assert_eq!(switch.decide(NOW, S4, &request(B, 2999, first + 2999)).dropped, Some(DropCause::LateCopy));
    flood(&mut switch, 3000..3010);
}

#[test]
fn a_flood_of_broadcasts_or_of_frames_to_unknown_hosts_has_a_limit_of_its_own() {
    let mut switch = switch_with(Settings { broadcasts_per_s: 10, ..Settings::default() }, Selection::AllTcp);
    let flooded = |switch: &mut TcpPath, frame: &Frame| {
        let verdict = switch.decide(NOW, H1, frame);
        let queued = std::iter::from_fn(|| switch.poll_emission());
        verdict.emissions.into_iter().chain(queued).any(|out| matches!(out.frame.body, Body::Path(_)))
    };
    assert_eq!((0..50).filter(|_| flooded(&mut switch, &broadcast(mac_of(A)))).count(), 20);
    let to = |host: u8| {
        let dst = Address::new(10, 3, 0, host);
        let five_tuple = tuple(A, dst, 9).with_proto(17);
        Frame { src: mac_of(A), dst: mac_of(dst), body: Body::Ip(Headers::plain(five_tuple)) }
    };
    assert_eq!((0..50).filter(|&host| flooded(&mut switch, &to(host))).count(), 0, "they share the limit");
    let refused = switch.tables().refused;
    assert_eq!((refused[0].port, refused[0].frames, refused[0].last), (H1, 80, Some(DropCause::RateLimited)));
    assert!(flooded(&mut switch, &segment(A, FAR, 5, TCP_SYN)), "connections have their own limit");
    assert_eq!(switch.decide(NOW, H2, &broadcast(mac_of(B))).dropped, None, "other ports keep their share");
}

/// A switch with hosts at ports 1 to 20 and switches at 21 and 22.
fn wide_switch(settings: Settings) -> TcpPath {
    let role = |port: u32| if port <= 20 { PortRole::Host } else { PortRole::Switch { tier: None } };
    let roles = (1..=22).map(|port| (PortNo(port), role(port))).collect();
    let identity = Identity { mac: OWN, tier: None, boot: 1, roles };
    let mut switch = TcpPath::new(NOW, identity, Settings { quiet: Nanos::ZERO, ..settings }, Selection::AllTcp);
    (1..=22).for_each(|port| switch.set_port(NOW, PortNo(port), true));
    // The way to the remote host is known.
    let far = Conversation::hosts(mac_of(FAR), Mac::BROADCAST, FAR, A);
    let carried = Carried::from_body(broadcast(mac_of(FAR)).body).unwrap();
    switch.decide(NOW, PortNo(21), &message(PathKind::Request, far, 7, carried));
    while switch.poll_emission().is_some() {}
    switch
}

/// Whether a frame begins an exploration, a flood or a search.
fn begins(switch: &mut TcpPath, now: Nanos, port: u32, frame: &Frame) -> bool {
    let verdict = switch.decide(now, PortNo(port), frame);
    let queued: Vec<Outgoing> = std::iter::from_fn(|| switch.poll_emission()).collect();
    verdict.emissions.iter().chain(&queued).any(|out| matches!(out.frame.body, Body::Path(_)))
}

/// A flood at one port has the limit of this port. Floods at all ports but one must not cost other switches more than floods
/// at a few, and the last port must notice nothing.
#[test]
fn floods_at_many_ports_have_a_limit_together_and_leave_a_quiet_port_its_share() {
    let host = |port: u32| Address::new(10, 0, 1, port as u8);
    let broadcast_of = |port: u32, _: u32| {
        let arp = Arp {
            request: true,
            sender_mac: mac_of(host(port)),
            sender_ip: host(port),
            target_mac: Mac::ZERO,
            target_ip: FAR,
        };
        Frame { src: mac_of(host(port)), dst: Mac::BROADCAST, body: Body::Arp(arp) }
    };
    let syn = |port: u32, number: u32| segment(host(port), FAR, number as u16, TCP_SYN);
    let search = |port: u32, number: u32| {
        let dst = Address::from(0x0a04_0000 + number);
        let five_tuple = tuple(host(port), dst, 9).with_proto(17);
        Frame { src: mac_of(host(port)), dst: mac_of(dst), body: Body::Ip(Headers::plain(five_tuple)) }
    };
    let kinds: [&dyn Fn(u32, u32) -> Frame; 3] = [&broadcast_of, &syn, &search];
    for (kind, frame) in kinds.iter().enumerate() {
        let settings = Settings {
            explorations_per_s: 20,
            unused_explorations_per_s: 20,
            broadcasts_per_s: 20,
            busy_ports: 4,
            hello: None,
            ..Settings::default()
        };
        let mut switch = wide_switch(settings);
        let (mut begun, mut quiet, mut number) = (0, 0, 0);
        for ms in 0..10_000 {
            let now = NOW.saturating_add(Nanos::from_millis(ms));
            for port in 1..20 {
                number += 1;
                begun += usize::from(begins(&mut switch, now, port, &frame(port, number % 60_000)));
            }
            // Once per second.
            if ms % 1_000 == 999 {
                quiet += usize::from(begins(&mut switch, now, 20, &frame(20, 60_000 + ms as u32 / 1_000)));
            }
            switch.handle_timeout(now);
        }
        // The rate over 10 s, and twice as much at once at the beginning.
        assert!((800..=960).contains(&begun), "kind {kind}: {begun}");
        assert_eq!(quiet, 10, "kind {kind}");
    }
}

/// Addresses of many ports of other switches fill the table of hosts. A new host must find a place, and one in use keep it.
#[test]
fn a_full_table_of_hosts_has_room_for_new_ones_and_keeps_those_in_use() {
    let mut switch = switch_with(Settings { most_hosts: 20, ..Settings::default() }, Selection::AllTcp);
    let explore = |switch: &mut TcpPath, port: PortNo, host: Address, number: u64| {
        let conversation = Conversation::hosts(mac_of(host), Mac::BROADCAST, host, A);
        let carried = Carried::from_body(broadcast(mac_of(host)).body).unwrap();
        switch.decide(NOW, port, &message(PathKind::Request, conversation, number, carried)).dropped
    };
    let datagram = |from: Address, to: Address| {
        let five_tuple = tuple(from, to, 9).with_proto(17);
        Frame { src: mac_of(from), dst: mac_of(to), body: Body::Ip(Headers::plain(five_tuple)) }
    };
    let first = 2 * NOW.0;
    let busy = Address::new(10, 4, 0, 1);
    switch.decide(NOW, H1, &datagram(A, FAR));
    assert_eq!(explore(&mut switch, S3, busy, first + 1), None);
    assert_eq!(explore(&mut switch, S4, FAR, first + 2), None);
    for host in 0..200_u8 {
        let flooder = Address::new(10, 5, 0, host);
        assert_eq!(explore(&mut switch, S3, flooder, first + 10 + u64::from(host)), None, "{host}");
        // Frames that the driver forwards by itself keep an entry in use.
        let last = NOW.saturating_add(Nanos(u64::from(host) + 1));
        switch.decide(NOW, H1, &datagram(A, busy));
        switch.credit(tuple(A, busy, 9).with_proto(17), crate::Used { last, packets: 1, bytes: 66 });
    }
    assert_eq!(switch.tables().hosts, 20);
    for (host, port) in [(busy, 3), (FAR, 4), (Address::new(10, 5, 0, 199), 3)] {
        assert_eq!(ports(&switch.decide(NOW, H1, &datagram(A, host))), [port], "{host}");
    }
    assert_eq!(switch.decide(NOW, H2, &datagram(B, A)).dropped, None, "a new host of this switch");
    // Copies of explorations whose entry has made room are late nevertheless, and newer ones are not.
    let flooder = Address::new(10, 5, 0, 0);
    assert_eq!(explore(&mut switch, S4, flooder, first + 10), Some(DropCause::LateCopy));
    assert_eq!(explore(&mut switch, S4, flooder, first + 1_000), None);
    assert!(matches!(switch.take_stale(), crate::Stale::Nothing | crate::Stale::Flows(_)));
}

/// SYNs from many addresses, which nobody answers, displace each other and no connection that was answered.
#[test]
fn a_flood_of_syns_from_many_addresses_leaves_answered_connections_their_entries() {
    let settings = Settings { most_connections: 20, ..Settings::default() };
    let mut switch = switch_with(settings, Selection::AllTcp);
    (5..15).for_each(|src_port| _ = connect(&mut switch, src_port));
    let first = 2 * NOW.0 + 1_000;
    for host in 0..200_u8 {
        let from = Address::new(10, 5, 0, host);
        let syn = segment(from, A, 1, TCP_SYN);
        let conversation = Conversation::of(syn.src, syn.dst, tuple(from, A, 1));
        let carried = Carried::from_body(syn.body).unwrap();
        let request = message(PathKind::Request, conversation, first + u64::from(host), carried);
        assert_eq!(switch.decide(NOW, S3, &request).dropped, None, "{host}");
    }
    assert_eq!((switch.tables().connections, switch.tables().confirmed), (30, 20));
    connect(&mut switch, 15);
    assert_eq!(switch.tables().confirmed, 22);
}

#[test]
fn new_neighbours_at_one_port_are_limited() {
    let roles = [(H1, PortRole::Learn)].into();
    let identity = Identity { mac: OWN, tier: None, boot: 1, roles };
    let mut switch =
        TcpPath::new(NOW, identity, Settings { explorations_per_s: 10, ..Settings::default() }, Selection::AllTcp);
    switch.set_port(NOW, H1, true);
    let causes: Vec<Option<DropCause>> = (0..500)
        .map(|boot| {
            let hello = Hello { switch: Mac([6; 6]), port: H1, tier: None, boot, heard: None };
            switch.decide(NOW, H1, &Frame { src: hello.switch, dst: Mac::BROADCAST, body: Body::Hello(hello) }).dropped
        })
        .collect();
    let answered = std::iter::from_fn(|| switch.poll_emission()).count();
    let limited = causes.iter().filter(|&&why| why == Some(DropCause::RateLimited)).count();
    assert_eq!((answered, limited), (1 + 20, 480), "one Hello when the port came up");
}

#[test]
fn a_five_tuple_belongs_to_the_first_stations() {
    let mut switch = switch();
    let exploration = connect(&mut switch, 5);
    // Host B uses the address of A with its own network card.
    let mut syn = segment(A, FAR, 5, TCP_SYN);
    syn.src = mac_of(B);
    assert_eq!(switch.decide(NOW, H2, &syn).dropped, Some(DropCause::NoRoute), "it takes the default forwarding");
    let five_tuple = tuple(A, FAR, 5);
    let conversation = Conversation::of(mac_of(B), mac_of(FAR), five_tuple);
    let carried = Carried::from_body(segment(A, FAR, 5, TCP_SYN).body).unwrap();
    let frame = message(PathKind::Request, conversation, exploration + 100, carried);
    assert_eq!(switch.decide(NOW, S4, &frame).dropped, Some(DropCause::StolenAddress));
    assert_eq!(ports(&switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK))), [3]);
}

#[test]
fn contradictory_messages_are_dropped() {
    let mut switch = switch();
    let good = request(A, 5, 9);
    let Body::Path(inside) = good.body else { unreachable!() };
    let change = |change: &dyn Fn(&mut PathMessage)| {
        let mut message = inside;
        change(&mut message);
        Frame { body: Body::Path(message), ..good }
    };
    let wrong = [
        change(&|message| message.carried = Carried::Nothing),
        change(&|message| {
            let five_tuple = &mut message.conversation.five_tuple;
            *five_tuple = five_tuple.with_src_port(five_tuple.src_port() + 1);
        }),
        change(&|message| message.conversation.src = Mac::BROADCAST),
        change(&|message| message.conversation.dst = Mac::BROADCAST),
        change(&|message| message.conversation.five_tuple = message.conversation.five_tuple.with_proto(17)),
        change(&|message| message.carried = Carried::Ip(Headers::plain(message.conversation.five_tuple))),
    ];
    for frame in &wrong {
        assert_eq!(switch.decide(NOW, S3, frame).dropped, Some(DropCause::Invalid), "{frame:?}");
    }
    let tired = change(&|message| message.hops = 200);
    assert_eq!(switch.decide(NOW, S3, &tired).dropped, Some(DropCause::TooManyHops));
    switch.note_unreadable(S3);
    assert_eq!(switch.tables().unreadable, 1);
    assert!(switch.decide(NOW, S3, &good).dropped.is_none());
    assert_eq!(switch.decide(NOW, S4, &good).dropped, Some(DropCause::LateCopy));
    assert_eq!(switch.tables().connections, 1);
}

#[test]
fn the_higher_of_two_explorations_from_both_ends_wins() {
    let mut switch = switch();
    let verdict = switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_SYN));
    let Body::Path(own) = verdict.emissions[0].frame.body else { panic!("{verdict:?}") };
    // The far host opens the same connection from its end.
    let conversation = own.conversation.reverse();
    let headers = Headers { tcp_flags: TCP_SYN, ..Headers::plain(conversation.five_tuple) };
    let theirs = |exploration| message(PathKind::Request, conversation, exploration, Carried::Ip(headers));
    let lower = switch.decide(NOW, S3, &theirs(own.exploration - 1));
    assert_eq!(lower.dropped, Some(DropCause::LateCopy));
    assert_eq!(ports(&switch.decide(NOW, S3, &theirs(own.exploration + 1))), [1]);
    // The reply to the exploration with the lower number is refused.
    let reply = PathMessage { kind: PathKind::Reply, ..own };
    let late = Frame { body: Body::Path(reply), ..theirs(0) };
    assert_eq!(switch.decide(NOW, S4, &late).dropped, Some(DropCause::NoRoute));
}

#[test]
fn a_lost_port_breaks_its_paths_and_the_source_edge_explores_again() {
    let mut switch = switch();
    connect(&mut switch, 5);
    switch.set_port(NOW, S3, false);
    let out = switch.poll_emission().unwrap();
    let Body::Path(recovery) = out.frame.body else { panic!("{out:?}") };
    assert_eq!((out.port, recovery.kind), (S4, PathKind::RecoveryRequest));
    let reply = PathMessage { kind: PathKind::RecoveryReply, ..recovery };
    switch.decide(NOW, S4, &Frame { body: Body::Path(reply), ..out.frame });
    assert_eq!(ports(&switch.decide(NOW, H1, &segment(A, FAR, 5, TCP_ACK))), [4]);
    assert_eq!(switch.tables().recoveries, 1);
}

#[test]
fn a_link_that_works_in_one_direction_is_not_used() {
    let mut switch = switch();
    let heard = Heard { switch: OWN, port: S3, boot: 1 };
    let hello = |port, heard| Hello { switch: Mac([6; 6]), port, tier: None, boot: 4, heard };
    let frame = |hello: Hello| Frame { src: hello.switch, dst: Mac::BROADCAST, body: Body::Hello(hello) };
    switch.decide(NOW, S3, &frame(hello(H1, Some(heard))));
    // The neighbour at port 4 never hears this switch.
    switch.decide(NOW, S4, &frame(hello(H2, None)));
    switch.handle_timeout(NOW.saturating_add(Nanos::from_millis(200)));
    let now = NOW.saturating_add(Nanos::from_millis(201));
    assert_eq!(switch.decide(now, S4, &request(A, 9, 9)).dropped, Some(DropCause::PortNotReady));
    let verdict = switch.decide(now, H1, &segment(A, FAR, 5, TCP_SYN));
    assert_eq!(ports(&verdict), [3, 2]);
    // The neighbour hears this switch again.
    let heard = Heard { switch: OWN, port: S4, boot: 1 };
    switch.decide(now, S4, &frame(hello(H2, Some(heard))));
    assert!(switch.decide(now, S4, &request(A, 9, 9)).dropped.is_none());
}

#[test]
fn only_elephants_explore_by_source_port_or_dscp() {
    let settings = Settings::for_elephants();
    let mut switch = switch_with(settings, Selection::Elephants(Elephants::default()));
    let explores = |switch: &mut TcpPath, src_port: u16, dscp: u8| {
        let mut frame = segment(A, FAR, src_port, TCP_SYN);
        frame.body = Body::Ip(Headers { dscp, tcp_flags: TCP_SYN, ..Headers::plain(tuple(A, FAR, src_port)) });
        switch.decide(NOW, H1, &frame).emissions.iter().any(|out| matches!(out.frame.body, Body::Path(_)))
    };
    assert!(!explores(&mut switch, 3499, 0));
    assert!(explores(&mut switch, 3500, 0));
    assert!(explores(&mut switch, 4500, 0));
    assert!(!explores(&mut switch, 4501, 0));
    assert!(explores(&mut switch, 9, LONG_FLOW_DSCP));
    assert_eq!(switch.tables().connections, 3);
}

/// An aggregation switch sends an exploration from a higher tier to lower tiers only. A switch whose tier is unknown
/// sends it to all other switches.
#[test]
fn an_exploration_from_a_higher_tier_goes_only_down() {
    use pathloom_model::Tier;
    let flooded = |own: Option<Tier>, descend_only: bool| {
        let switch = |tier| PortRole::Switch { tier: Some(tier) };
        let roles =
            [(H1, switch(Tier::Core)), (H2, switch(Tier::Core)), (S3, switch(Tier::Tor)), (S4, switch(Tier::Tor))];
        let identity = Identity { mac: OWN, tier: own, boot: 1, roles: roles.into() };
        let settings = Settings { quiet: Nanos::ZERO, descend_only, ..Settings::default() };
        let mut aggregation = TcpPath::new(NOW, identity, settings, Selection::AllTcp);
        [H1, H2, S3, S4].into_iter().for_each(|port| aggregation.set_port(NOW, port, true));
        let from_above = ports(&aggregation.decide(NOW, H1, &request(A, 5, 9)));
        let from_below = ports(&aggregation.decide(NOW, S3, &request(A, 6, 9)));
        (from_above, from_below)
    };
    let everywhere = (vec![2, 3, 4], vec![1, 2, 4]);
    assert_eq!(flooded(Some(Tier::Aggregation), true), (vec![3, 4], vec![1, 2, 4]));
    assert_eq!(flooded(Some(Tier::Aggregation), false), everywhere);
    assert_eq!(flooded(None, true), everywhere);
}

#[test]
fn only_frames_of_local_hosts_are_forwarded_in_the_quiet_time() {
    let mut switch = switch_with(Settings::default(), Selection::AllTcp);
    let roles = [(H1, PortRole::Host), (S3, PortRole::Switch { tier: None })].into();
    let identity = Identity { mac: OWN, tier: None, boot: 2, roles };
    let mut again = TcpPath::new(NOW, identity, Settings::default(), Selection::AllTcp);
    [H1, S3].into_iter().for_each(|port| again.set_port(NOW, port, true));
    assert_eq!(again.decide(NOW, S3, &request(A, 5, 9)).dropped, Some(DropCause::Quiet));
    assert!(again.decide(NOW, H1, &segment(A, FAR, 5, TCP_SYN)).dropped.is_none());
    let later = NOW.saturating_add(Nanos::from_secs(1));
    assert!(again.decide(later, S3, &request(A, 5, 9)).dropped.is_none());
    assert!(switch.decide(NOW, S3, &request(A, 5, 9)).dropped.is_none());
}
