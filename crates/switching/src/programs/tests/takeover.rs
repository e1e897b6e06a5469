//! Tests of a program that continues with the tables of an earlier start: neighbours and connections are not affected.

use super::net::{mac_of, tuple};
use crate::program::{DropCause, Program};
use crate::programs::{Identity, PortRole, Selection, Settings, TcpPath};
use crate::{Saved, SavedConnection};
use pathloom_model::{
    Address, Body, Carried, Conversation, Frame, Headers, Heard, Hello, Mac, Nanos, PathKind, PathMessage, PortNo,
    TCP_ACK,
};

const NOW: Nanos = Nanos::from_secs(100);
const OWN: Mac = Mac([6, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([6, 0, 0, 0, 0, 2]);
const A: Address = Address::new(10, 0, 0, 1);
const FAR: Address = Address::new(10, 0, 9, 9);
const H1: PortNo = PortNo(1);
const S3: PortNo = PortNo(3);
const S4: PortNo = PortNo(4);
const BOOT: u64 = 7;

fn new(now: Nanos) -> TcpPath {
    let neighbour = PortRole::Switch { tier: None };
    let roles = [(H1, PortRole::Host), (S3, neighbour), (S4, neighbour)].into();
    TcpPath::new(now, Identity { mac: OWN, tier: None, boot: BOOT, roles }, Settings::default(), Selection::AllTcp)
}

fn start(now: Nanos, up: &[PortNo]) -> TcpPath {
    let mut switch = new(now);
    up.iter().for_each(|&port| switch.set_port(now, port, true));
    switch
}

fn hello(port: PortNo) -> Frame {
    let heard = Some(Heard { switch: OWN, port, boot: BOOT });
    let hello = Hello { switch: OTHER, port: PortNo(port.0 + 10), tier: None, boot: 1, heard };
    Frame { src: OTHER, dst: Mac([3, 0x50, 0x41, 0x54, 0x48, 0]), body: Body::Hello(hello) }
}

fn segment(src: Address, dst: Address, five_tuple: pathloom_model::FiveTuple) -> Frame {
    let headers = Headers { tcp_flags: TCP_ACK, ..Headers::plain(five_tuple) };
    Frame { src: mac_of(src), dst: mac_of(dst), body: Body::Ip(headers) }
}

fn emissions(switch: &mut TcpPath) -> Vec<(PortNo, Frame)> {
    std::iter::from_fn(|| switch.poll_emission()).map(|out| (out.port, out.frame)).collect()
}

/// Creates a switch with neighbours at ports 3 and 4, and a connection of the host at port 1 by port 3.
fn working() -> (TcpPath, SavedConnection) {
    let mut switch = start(NOW, &[H1, S3, S4]);
    for port in [S3, S4] {
        switch.decide(NOW, port, &hello(port));
    }
    let five_tuple = tuple(A, FAR, 5000);
    let conversation = Conversation::of(mac_of(A), mac_of(FAR), five_tuple);
    let connection = SavedConnection { conversation, exploration: 9, to_source: H1, to_destination: S3 };
    switch.restore(NOW, &Saved { connections: vec![connection], ..switch.save() });
    // The host sends a frame, so that its port is known.
    let verdict = switch.decide(NOW, H1, &segment(A, FAR, five_tuple));
    assert_eq!(verdict.emissions[0].port, S3);
    emissions(&mut switch);
    (switch, connection)
}

#[test]
fn the_next_start_lists_its_neighbours_in_hello_and_forwards_at_once() {
    let (old, connection) = working();
    let later = NOW + Nanos::from_secs(2);
    let mut next = start(later, &[H1, S3, S4]);
    next.restore(later, &old.save());
    assert_eq!(next.save(), old.save());
    let greetings = emissions(&mut next);
    assert_eq!(greetings.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [S3, S4]);
    for (port, frame) in greetings {
        let Body::Hello(hello) = frame.body else { panic!("{frame:?}") };
        // A neighbour that finds itself missing in a Hello takes the link for one-way, and removes its paths by it.
        assert_eq!(hello.heard, Some(Heard { switch: OTHER, port: PortNo(port.0 + 10), boot: 1 }));
        assert_eq!(hello.boot, BOOT);
    }
    let five_tuple = connection.conversation.five_tuple;
    for (port, frame, out) in [(H1, segment(A, FAR, five_tuple), S3), (S3, segment(FAR, A, five_tuple.reverse()), H1)] {
        let verdict = next.decide(later, port, &frame);
        assert_eq!(verdict.emissions.iter().map(|out| out.port).collect::<Vec<_>>(), [out]);
        assert_eq!(verdict.remember, Some(if out == S3 { five_tuple } else { five_tuple.reverse() }));
    }
    assert_eq!(emissions(&mut next), []);
}

#[test]
fn a_start_without_saved_tables_sends_path_fail() {
    let (_, connection) = working();
    let later = NOW + Nanos::from_secs(2);
    let mut next = start(later, &[H1, S3, S4]);
    emissions(&mut next);
    let frame = segment(FAR, A, connection.conversation.five_tuple.reverse());
    assert_eq!(next.decide(later, S3, &frame).dropped, Some(DropCause::NoRoute));
    let said = emissions(&mut next);
    let is_fail = |frame: &Frame| matches!(frame.body, Body::Path(PathMessage { kind: PathKind::Fail, .. }));
    assert!(said.iter().any(|(port, frame)| *port == S3 && is_fail(frame)), "{said:?}");
}

#[test]
fn a_path_by_a_port_that_went_down_during_the_restart_is_repaired() {
    let (old, connection) = working();
    let later = NOW + Nanos::from_secs(2);
    let mut next = start(later, &[H1, S4]);
    next.restore(later, &old.save());
    assert_eq!(next.connection(connection.conversation.five_tuple), None);
    let explores = emissions(&mut next).into_iter().find_map(|(port, frame)| match frame.body {
        Body::Path(message) => Some((port, message)),
        _ => None,
    });
    let (port, message) = explores.unwrap();
    assert_eq!((port, message.kind, message.carried), (S4, PathKind::RecoveryRequest, Carried::Nothing));
    assert_eq!(message.conversation, connection.conversation);
    assert!(message.exploration > connection.exploration);
}
