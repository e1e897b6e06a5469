//! The hub without sockets.

use crate::bench::fake::say;
use crate::config::{Limits, Sessions};
use crate::hub::{Brain, Hub, Received};
use pathloom_openflow::{Hello, Message};
use std::collections::BTreeMap;

fn hub(limits: Limits) -> Hub {
    Hub::new(Brain::Nobody, None, BTreeMap::new(), (Sessions::default(), limits))
}

#[test]
fn the_name_of_a_connection_that_is_gone_is_nobody_elses() {
    let mut hub = hub(Limits::default());
    let gone = hub.connect("one".into()).unwrap();
    hub.disconnect(gone, "test");
    let next = hub.connect("another".into()).unwrap();
    assert_eq!(gone.slot(), next.slot(), "its place is used again");
    let mut hello = Vec::new();
    say(&Message::Hello(Hello::OURS), 1, &mut hello);
    assert_eq!(hub.received(gone, &hello), Received { used: 0, late: false });
    assert!(hub.link_mut(gone).is_none() && hub.take_output(gone).is_empty());
    hub.disconnect(gone, "test");
    assert!(!hub.take_output(next).is_empty(), "a hello of ours");
    assert_eq!(hub.received(next, &hello), Received { used: hello.len(), late: false });
}

#[test]
fn one_address_has_half_of_the_connections_and_this_machine_all() {
    let mut hub = hub(Limits { connections: 8, ..Limits::default() });
    let mut connect = |peer: &str| (1000..1020).filter_map(|port| hub.connect(format!("{peer}:{port}"))).count();
    assert_eq!([connect("192.0.2.1"), connect("192.0.2.2")], [4, 4]);
    for peer in ["127.0.0.1", "[::1]", "a local socket"] {
        let mut hub = self::hub(Limits { connections: 8, ..Limits::default() });
        let links: Vec<_> = (1000..1020).filter_map(|port| hub.connect(format!("{peer}:{port}"))).collect();
        assert_eq!(links.len(), 8, "{peer}");
        hub.disconnect(links[0], "test");
        assert!(hub.connect(format!("{peer}:1")).is_some(), "{peer}");
    }
}
