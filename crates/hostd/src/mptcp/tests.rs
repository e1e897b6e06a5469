use super::manager::{Counts, Denial, Denied, Manager, Pairs, Settings, MOST_CONNECTIONS, MOST_SUBFLOWS};
use super::wire::{self, Ends, Event, Request};
use pathloom_daemon_support::netlink::messages;
use pathloom_model::Nanos;
use std::net::{Ipv4Addr, SocketAddrV4};

const HERE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)];
const THERE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 1, 0, 2)];
const PORT: u16 = 5001;
const START: Nanos = Nanos::from_secs(100);

fn manager(subflows: u32, pairs: Pairs) -> Manager {
    Manager::new(Settings { subflows, pairs, own: HERE.to_vec() })
}

fn ends(local: Ipv4Addr, port: u16, remote: Ipv4Addr) -> Ends {
    Ends { local: SocketAddrV4::new(local, port), remote: SocketAddrV4::new(remote, PORT) }
}

fn begin(manager: &mut Manager, token: u32) {
    let ends = ends(HERE[0], 40_000, THERE[0]);
    manager.handle_event(START, Event::Established { token, accepted: false, is_first_only: false, ends });
}

fn create(token: u32, id: u8, remote: Ipv4Addr) -> Request {
    let own = if id == 0 { HERE[0] } else { HERE[usize::from(id) - 1] };
    Request::Create { token, local: (id, own), remote: SocketAddrV4::new(remote, PORT) }
}

fn requests(manager: &mut Manager) -> Vec<Request> {
    std::iter::from_fn(|| manager.poll_request()).collect()
}

#[test]
fn a_connection_gets_its_subflows_between_the_addresses_of_the_first() {
    let mut manager = manager(4, Pairs::Ndiffports);
    begin(&mut manager, 7);
    assert_eq!(requests(&mut manager), [create(7, 0, THERE[0]); 3]);
    let announced = Event::Announced { token: 7, id: 2, address: THERE[1], port: None };
    manager.handle_event(START, announced);
    for port in 1..=3 {
        let ends = ends(HERE[0], port, THERE[0]);
        manager.handle_event(START, Event::SubflowEstablished { token: 7, ends });
    }
    assert_eq!((requests(&mut manager), manager.poll_timeout()), (vec![], None));
    manager.handle_event(START, Event::Closed { token: 7 });
    assert_eq!(manager.connections(), 0);
    assert_eq!(manager.counts(), Counts { connections: 1, created: 3, established: 3, ..Counts::default() });
}

#[test]
fn a_full_mesh_has_the_same_number_of_subflows_for_each_pair() {
    let mut manager = manager(2, Pairs::Fullmesh);
    begin(&mut manager, 7);
    let (first, second) = (create(7, 0, THERE[0]), create(7, 2, THERE[0]));
    assert_eq!(requests(&mut manager), [second, first, second]);
    manager.handle_event(START, Event::Announced { token: 7, id: 2, address: THERE[1], port: None });
    let (third, fourth) = (create(7, 0, THERE[1]), create(7, 2, THERE[1]));
    assert_eq!(requests(&mut manager), [third, fourth, third, fourth]);
    // The same announcement again, and a withdrawn address.
    manager.handle_event(START, Event::Announced { token: 7, id: 2, address: THERE[1], port: None });
    manager.handle_event(START, Event::Removed { token: 7, id: 2 });
    manager.handle_event(START, Event::Removed { token: 7, id: 9 });
    manager.handle_event(START, Event::SubflowClosed { token: 7, ends: ends(HERE[0], 9, THERE[1]), reset: None });
    manager.handle_time(START.saturating_add(Nanos::from_secs(60)));
    assert_eq!(requests(&mut manager), []);
}

#[test]
fn the_accepting_end_announces_its_other_addresses_and_opens_no_subflow() {
    let accepted =
        Event::Established { token: 7, accepted: true, is_first_only: false, ends: ends(HERE[1], PORT, THERE[0]) };
    let mut mesh = manager(2, Pairs::Fullmesh);
    mesh.handle_event(START, accepted);
    assert_eq!(requests(&mut mesh), [Request::Announce { token: 7, local: (1, HERE[0]) }]);
    let mut plain = manager(2, Pairs::Ndiffports);
    plain.handle_event(START, accepted);
    assert_eq!((requests(&mut plain), plain.connections()), (vec![], 0));
}

#[test]
fn a_failed_subflow_is_reopened_after_increasing_times() {
    let mut manager = manager(2, Pairs::Ndiffports);
    begin(&mut manager, 7);
    assert_eq!(requests(&mut manager).len(), 1);
    let ends = ends(HERE[0], 50_000, THERE[0]);
    manager.handle_event(START, Event::SubflowEstablished { token: 7, ends });
    let mut now = START;
    for wait_ms in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        manager.handle_event(now, Event::SubflowClosed { token: 7, ends, reset: None });
        let due = now.saturating_add(Nanos::from_millis(wait_ms));
        assert_eq!(manager.poll_timeout(), Some(due));
        manager.handle_time(due.saturating_sub(Nanos(1)));
        assert_eq!(requests(&mut manager), []);
        manager.handle_time(due);
        assert_eq!(requests(&mut manager), [create(7, 0, THERE[0])]);
        now = due;
    }
    // The subflow was established for long enough to reset the waiting time.
    manager.handle_event(now, Event::SubflowEstablished { token: 7, ends });
    now = now.saturating_add(Nanos::from_secs(10));
    manager.handle_event(now, Event::SubflowClosed { token: 7, ends, reset: None });
    assert_eq!(manager.poll_timeout(), Some(now.saturating_add(Nanos::from_millis(250))));
    // A connection that ends closes its subflows first.
    manager.handle_event(now, Event::Closed { token: 7 });
    manager.handle_time(now.saturating_add(Nanos::from_secs(1)));
    assert_eq!((requests(&mut manager), manager.poll_timeout()), (vec![], None));
}

#[test]
fn a_refused_request_is_repeated_unless_the_connection_has_ended() {
    let mut manager = manager(2, Pairs::Ndiffports);
    begin(&mut manager, 7);
    let request = requests(&mut manager)[0];
    manager.handle_refusal(START, &request, libc::EINVAL);
    manager.handle_time(manager.poll_timeout().unwrap());
    assert_eq!(requests(&mut manager), [request]);
    manager.handle_refusal(START, &request, libc::ESRCH);
    assert_eq!((manager.connections(), requests(&mut manager)), (0, vec![]));
    assert_eq!(manager.counts().failed, 2);
}

/// Flag C of MP_CAPABLE (RFC 8684 §3.1): only announced addresses get subflows.
#[test]
fn an_address_that_accepts_no_joins_gets_none() {
    let first = ends(HERE[0], 40_000, THERE[0]);
    let begun = Event::Established { token: 7, accepted: false, is_first_only: true, ends: first };
    for (pairs, missing) in [(Pairs::Ndiffports, 1), (Pairs::Fullmesh, 3)] {
        let mut manager = manager(2, pairs);
        manager.handle_event(START, begun);
        assert_eq!((requests(&mut manager), manager.counts().denied), (vec![], missing));
        let denied = Denied { remote: first.remote, subflows: missing, why: Denial::FirstOnly };
        assert_eq!((manager.poll_denied(), manager.poll_denied()), (Some(denied), None));
        manager.handle_event(START, Event::SubflowClosed { token: 7, ends: first, reset: None });
        manager.handle_time(START.saturating_add(Nanos::from_secs(60)));
        assert_eq!(requests(&mut manager), []);
        manager.handle_event(START, Event::Announced { token: 7, id: 2, address: THERE[1], port: None });
        assert_eq!(requests(&mut manager).len(), if pairs == Pairs::Fullmesh { 4 } else { 0 });
    }
}

/// A permanent reset (RFC 8684 §3.6) ends the attempts for its pair of addresses. Subflows that stand are replaced.
#[test]
fn a_permanent_refusal_is_respected_and_a_transient_one_is_not_final() {
    let (accepted, refused) = (ends(HERE[0], 1, THERE[0]), ends(HERE[0], 2, THERE[0]));
    let later = START.saturating_add(Nanos::from_secs(60));
    for (reason, is_transient, again) in [(3, false, 0), (2, true, 1), (0, false, 1)] {
        let mut manager = manager(3, Pairs::Ndiffports);
        begin(&mut manager, 7);
        assert_eq!(requests(&mut manager).len(), 2);
        let reset = Some(wire::Reset { reason, is_transient });
        manager.handle_event(START, Event::SubflowClosed { token: 7, ends: refused, reset });
        manager.handle_event(START, Event::SubflowEstablished { token: 7, ends: accepted });
        manager.handle_time(later);
        assert_eq!(requests(&mut manager).len(), again, "{reason}");
        assert_eq!(manager.counts().denied, 1 - again as u64);
        let named = manager.poll_denied().map(|denied| denied.why.to_string());
        assert_eq!(named.is_some_and(|why| why.contains("administratively prohibited")), again == 0);
        manager.handle_event(later, Event::SubflowClosed { token: 7, ends: accepted, reset: None });
        manager.handle_time(later.saturating_add(Nanos::from_secs(60)));
        assert_eq!(requests(&mut manager), [create(7, 0, THERE[0])]);
    }
}

/// A Linux host with `ip mptcp limits set subflows 2` takes two subflows, and closes all others after the handshake.
#[test]
fn a_limit_of_the_other_end_is_found_and_respected() {
    let mut manager = manager(6, Pairs::Ndiffports);
    begin(&mut manager, 7);
    assert_eq!(requests(&mut manager).len(), 5);
    let subflow = |port| ends(HERE[0], port, THERE[0]);
    for port in 1..=5 {
        manager.handle_event(START, Event::SubflowEstablished { token: 7, ends: subflow(port) });
    }
    let soon = START.saturating_add(Nanos::from_millis(20));
    for port in 3..=5 {
        manager.handle_event(soon, Event::SubflowClosed { token: 7, ends: subflow(port), reset: None });
    }
    manager.handle_time(soon.saturating_add(Nanos::from_secs(60)));
    assert_eq!(requests(&mut manager), []);
    let denied = Denied { remote: subflow(1).remote, subflows: 3, why: Denial::Limit };
    assert_eq!((manager.poll_denied(), manager.counts().denied), (Some(denied), 3));
    // A subflow that was accepted is replaced.
    let later = START.saturating_add(Nanos::from_secs(600));
    manager.handle_event(later, Event::SubflowClosed { token: 7, ends: subflow(1), reset: None });
    manager.handle_time(later.saturating_add(Nanos::from_secs(60)));
    assert_eq!(requests(&mut manager), [create(7, 0, THERE[0])]);
    // A connection that ends closes its subflows first.
    manager.handle_event(START, Event::Closed { token: 7 });
    begin(&mut manager, 8);
    for port in 1..=5 {
        manager.handle_event(START, Event::SubflowEstablished { token: 8, ends: subflow(port) });
    }
    for port in 1..=5 {
        manager.handle_event(soon, Event::SubflowClosed { token: 8, ends: subflow(port), reset: None });
    }
    manager.handle_event(soon, Event::Closed { token: 8 });
    manager.handle_time(later);
    assert_eq!(manager.counts().denied, 3);
}

#[test]
fn connections_are_forgotten_when_events_were_lost() {
    let mut manager = manager(2, Pairs::Ndiffports);
    begin(&mut manager, 7);
    let ends = ends(HERE[0], 40_000, THERE[0]);
    manager.handle_event(START, Event::SubflowClosed { token: 7, ends, reset: None });
    manager.handle_loss();
    assert_eq!((manager.connections(), manager.poll_timeout(), requests(&mut manager)), (0, None, vec![]));
    manager.handle_event(START, Event::SubflowClosed { token: 7, ends, reset: None });
    begin(&mut manager, 7);
    assert_eq!(requests(&mut manager), [create(7, 0, THERE[0])]);
}

#[test]
fn subflows_addresses_and_connections_are_limited() {
    let mut mesh = manager(64, Pairs::Fullmesh);
    begin(&mut mesh, 7);
    assert_eq!(requests(&mut mesh).len() as u32, MOST_SUBFLOWS - 1);
    for id in 2..20 {
        let address = Ipv4Addr::new(10, 9, 0, id);
        mesh.handle_event(START, Event::Announced { token: 7, id, address, port: Some(9) });
    }
    assert_eq!((requests(&mut mesh), mesh.counts().refused), (vec![], 11));
    let mut plain = manager(1, Pairs::Ndiffports);
    for token in 0..MOST_CONNECTIONS as u32 + 3 {
        begin(&mut plain, token);
    }
    assert_eq!((plain.connections(), plain.counts().refused), (MOST_CONNECTIONS, 3));
    // A connection whose token is used again replaces the old one.
    begin(&mut plain, 5);
    assert_eq!((plain.connections(), plain.counts().refused), (MOST_CONNECTIONS, 3));
}

#[test]
fn events_of_unknown_connections_change_nothing() {
    let mut manager = manager(4, Pairs::Fullmesh);
    let ends = ends(THERE[0], 1, HERE[0]);
    manager.handle_event(START, Event::Established { token: 1, accepted: false, is_first_only: false, ends });
    manager.handle_event(START, Event::Established { token: 1, accepted: true, is_first_only: false, ends });
    for event in [
        Event::SubflowEstablished { token: 9, ends },
        Event::SubflowClosed { token: 9, ends, reset: None },
        Event::Closed { token: 9 },
        Event::Announced { token: 9, id: 1, address: HERE[0], port: None },
        Event::Removed { token: 9, id: 1 },
    ] {
        manager.handle_event(START, event);
    }
    assert_eq!((manager.connections(), requests(&mut manager), manager.poll_timeout()), (0, vec![], None));
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = (16 + body.len() as u32).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend([0; 2]);
    out.extend(5_u32.to_ne_bytes());
    out.extend([0; 4]);
    out.extend(body);
    out
}

fn established() -> Vec<u8> {
    let mut body = vec![2, 1, 0, 0];
    for (kind, value) in [
        (1, &7_u32.to_ne_bytes()[..]),
        (18, &[1]),
        (2, &2_u16.to_ne_bytes()),
        (5, &HERE[0].octets()),
        (7, &THERE[0].octets()),
        (9, &40_000_u16.to_be_bytes()),
        (10, &PORT.to_be_bytes()),
    ] {
        body.extend(attribute(kind, value));
    }
    body
}

#[test]
fn events_of_the_kernel_are_read() {
    let ends = ends(HERE[0], 40_000, THERE[0]);
    assert_eq!(
        wire::event(&established()),
        Some(Event::Established { token: 7, accepted: true, is_first_only: false, ends })
    );
    let with = |command: u8| {
        let mut body = established();
        body[0] = command;
        body.extend(attribute(4, &[3]));
        wire::event(&body)
    };
    assert_eq!(with(3), Some(Event::Closed { token: 7 }));
    let announced = Event::Announced { token: 7, id: 3, address: THERE[0], port: Some(PORT) };
    assert_eq!(with(6), Some(announced));
    assert_eq!(with(7), Some(Event::Removed { token: 7, id: 3 }));
    assert_eq!(with(10), Some(Event::SubflowEstablished { token: 7, ends }));
    assert_eq!(with(11), Some(Event::SubflowClosed { token: 7, ends, reset: None }));
    let mut flagged = established();
    flagged.extend(attribute(13, &1_u16.to_ne_bytes()));
    assert!(matches!(wire::event(&flagged), Some(Event::Established { is_first_only: true, .. })));
    let mut refused = established();
    refused[0] = 11;
    refused.extend([attribute(16, &3_u32.to_ne_bytes()), attribute(17, &0_u32.to_ne_bytes())].concat());
    let reset = Some(wire::Reset { reason: 3, is_transient: false });
    assert_eq!(wire::event(&refused), Some(Event::SubflowClosed { token: 7, ends, reset }));
    // Events that are not used: created, priority, listeners.
    assert_eq!([1, 13, 15, 16, 0, 255].map(with), [None; 6]);
}

#[test]
fn requests_have_the_format_of_the_kernel() {
    let bytes = create(7, 2, THERE[0]).emit(33, 5);
    let found: Vec<_> = messages(&bytes).collect();
    assert_eq!((found.len(), found[0].kind, found[0].sequence), (1, 33, 5));
    let local = [attribute(1, &2_u16.to_ne_bytes()), attribute(3, &HERE[1].octets()), attribute(2, &[2])].concat();
    let port = attribute(5, &PORT.to_ne_bytes());
    let remote = [attribute(1, &2_u16.to_ne_bytes()), attribute(3, &THERE[0].octets()), port].concat();
    let wanted = [attribute(4, &7_u32.to_ne_bytes()), attribute(0x8001, &local), attribute(0x8006, &remote)].concat();
    assert_eq!(found[0].body, [&[10, 1, 0, 0], &wanted[..]].concat());
}

#[test]
fn answers_and_families_are_read() {
    let error = |number: i32| message(2, &number.to_ne_bytes());
    let answer = |bytes: &[u8]| messages(bytes).next().unwrap().answer();
    assert_eq!(answer(&error(0)), Some(Ok(())));
    assert_eq!(answer(&error(-libc::ESRCH)), Some(Err(libc::ESRCH)));
    assert_eq!(answer(&error(i32::MIN)), Some(Err(i32::MIN)));
    assert_eq!((answer(&message(2, &[1])), answer(&message(3, &[0; 4]))), (None, None));
    let group = |name: &[u8], number: u32| [attribute(1, name), attribute(2, &number.to_ne_bytes())].concat();
    let groups = [attribute(1, &group(b"other\0", 1)), attribute(2, &group(b"mptcp_pm_events\0", 9))].concat();
    let body = [vec![1, 2, 0, 0], attribute(1, &30_u16.to_ne_bytes()), attribute(0x8007, &groups)].concat();
    assert_eq!(wire::family(&body, wire::EVENTS), Some((30, 9)));
    assert_eq!((wire::family(&body, "none"), wire::family(&body[..20], wire::EVENTS)), (None, None));
}

/// Returns a pseudo-random sequence that is always the same for a seed.
fn bytes(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

#[test]
fn invalid_bytes_are_harmless() {
    let good = message(30, &established());
    let read = |datagram: &[u8]| {
        messages(datagram).for_each(|message| {
            wire::event(message.body);
            message.answer();
            wire::family(message.body, wire::EVENTS);
        });
    };
    // Truncation at every position, every change of one byte, and random bytes.
    for length in 0..good.len() {
        read(&good[..length]);
        assert_eq!(messages(&good[..length]).count(), 0);
        for value in 0..=255 {
            let mut changed = good.clone();
            changed[length] = value;
            read(&changed);
        }
    }
    // The last two bytes are padding.
    for cut in 4..established().len() - 2 {
        assert_eq!(wire::event(&established()[..cut]), None, "{cut} bytes");
    }
    for seed in 0..20_000 {
        let noise: Vec<u8> = bytes(seed).take(seed as usize % 90).collect();
        read(&noise);
        wire::event(&noise);
        wire::family(&noise, wire::EVENTS);
    }
}
