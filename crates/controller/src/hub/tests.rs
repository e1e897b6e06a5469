//! The hub without sockets.

use crate::config::{Limits, Sessions};
use crate::hub::connection::{ConnectionId, Stage};
use crate::hub::{Hub, Received, Responder};
use crate::tests::loopback::Idle;
use pathloom_fake_switch::{append_message, Common, Fake};
use pathloom_model::Nanos;
use pathloom_openflow::{Hello, Message};
use std::collections::BTreeMap;

fn hub(limits: Limits) -> Hub {
    Hub::new(Responder::SurveyOnly, None, BTreeMap::new(), (Sessions::default(), limits))
}

/// The bytes to be written to a connection.
fn written(hub: &mut Hub, id: ConnectionId) -> Vec<u8> {
    let mut bytes = Vec::new();
    hub.transmit(id, &mut bytes);
    bytes
}

#[test]
fn the_identifier_of_a_closed_connection_is_not_reused() {
    let mut hub = hub(Limits::default());
    let gone = hub.connect(Nanos::ZERO, "one".into(), None).unwrap();
    hub.disconnect(Nanos::ZERO, gone, "test");
    let next = hub.connect(Nanos::ZERO, "another".into(), None).unwrap();
    assert_eq!(gone.slot(), next.slot(), "its place is used again");
    let mut hello = Vec::new();
    append_message(&Message::Hello(Hello::OPENFLOW_1_3), 1, &mut hello);
    assert_eq!(hub.received(Nanos::ZERO, gone, &hello, usize::MAX), Received { used: 0, late: false });
    assert!(hub.connection_mut(gone).is_none() && written(&mut hub, gone).is_empty());
    hub.disconnect(Nanos::ZERO, gone, "test");
    assert!(!written(&mut hub, next).is_empty(), "the hello of the controller");
    assert_eq!(hub.received(Nanos::ZERO, next, &hello, usize::MAX), Received { used: hello.len(), late: false });
}

/// Opens connections from an address, one after another. Returns the number of open connections of all addresses.
fn connect(hub: &mut Hub, peer: &str, ports: std::ops::Range<u16>) -> usize {
    ports.for_each(|port| assert!(hub.connect(Nanos::ZERO, format!("{peer}:{port}"), None).is_some(), "{peer}:{port}"));
    hub.connections.iter().count()
}

#[test]
fn one_address_may_have_half_of_the_connections_and_this_machine_all() {
    let mut hub = hub(Limits { connections: 8, ..Limits::default() });
    assert_eq!(connect(&mut hub, "192.0.2.1", 1000..1020), 4);
    assert_eq!(connect(&mut hub, "192.0.2.2", 1000..1020), 8);
    assert_eq!(hub.counts.crowded, 32);
    for peer in ["127.0.0.1", "[::1]", "a local socket"] {
        let mut hub = self::hub(Limits { connections: 8, ..Limits::default() });
        assert_eq!(connect(&mut hub, peer, 1000..1020), 8, "{peer}");
    }
}

#[test]
fn silent_connections_are_closed_for_new_ones_but_sessions_are_not() {
    let mut hub = hub(Limits { connections: 4, ..Limits::default() });
    let session = |hub: &mut Hub, peer: &str, dpid: u64| {
        let id = hub.connect(Nanos::ZERO, peer.into(), None)?;
        let mut said = Vec::new();
        let mut fake = Fake::new(dpid, 2, Common::default());
        fake.hello(&mut said);
        while !said.is_empty() {
            let received = hub.received(Nanos::ZERO, id, &said, usize::MAX);
            said.drain(..received.used);
            let told = written(hub, id);
            fake.read(&told, &mut said, &mut Idle).unwrap();
        }
        Some(id)
    };
    // Thirty connections stay silent. A connection that identifies its switch at once is not closed.
    connect(&mut hub, "127.0.0.1", 1000..1030);
    for dpid in 1..=4 {
        let id = session(&mut hub, &format!("127.0.0.1:{dpid}"), dpid).unwrap();
        assert!(matches!(hub.connection_mut(id).unwrap().stage, Stage::Up { .. }), "switch {dpid}");
    }
    assert_eq!((hub.session_count(), hub.connections.iter().count()), (4, 4));
    assert!(hub.connect(Nanos::ZERO, "127.0.0.1:99".into(), None).is_none(), "all places belong to sessions");
    assert_eq!(hub.counts.crowded, 26 + 4 + 1);
}
