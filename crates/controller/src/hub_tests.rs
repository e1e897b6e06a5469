//! The hub without sockets.

use crate::bench::fake::say;
use crate::config::{Limits, Sessions};
use crate::hub::{Brain, Hub, Received};
use pathloom_openflow::{Hello, Message};
use std::collections::BTreeMap;

fn hub() -> Hub {
    Hub::new(Brain::Nobody, None, BTreeMap::new(), (Sessions::default(), Limits::default()))
}

#[test]
fn the_name_of_a_connection_that_is_gone_is_nobody_elses() {
    let mut hub = hub();
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
