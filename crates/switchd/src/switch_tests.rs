use super::*;
use pathloom_model::{Conversation, Headers, Heard, Hello, PathKind, PathMessage, PROTO_TCP, TCP_ACK, TCP_SYN};
use pathloom_switching::programs::{Identity, PortRole, Selection, Settings, TcpPath};
use pathloom_switching::{SavedHost, SavedNeighbour};

const NOW: Nanos = Nanos::from_secs(100);
const OWN: Mac = Mac([6, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([6, 0, 0, 0, 0, 2]);
const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FAR: Mac = Mac([2, 0, 0, 0, 0, 9]);
const GROUP: Mac = Mac([3, 0x50, 0x41, 0x54, 0x48, 0]);
const H1: PortNo = PortNo(1);
const S2: PortNo = PortNo(2);

/// A fake kernel that records frames and flows.
#[derive(Default)]
struct Kernel {
    sent: Vec<(PortNo, Vec<u8>)>,
    flows: BTreeMap<Flow, (Way, Passed)>,
    full: bool,
}

impl System for Kernel {
    fn send(&mut self, port: PortNo, bytes: &[u8]) {
        self.sent.push((port, bytes.to_vec()));
    }

    fn remember(&mut self, flow: &Flow, way: &Way) -> bool {
        if !self.full {
            self.flows.insert(*flow, (*way, Passed { last: Nanos::ZERO, packets: 0, bytes: 0 }));
        }
        !self.full
    }

    fn forget(&mut self, flow: &Flow) {
        self.flows.remove(flow);
    }

    fn passed(&self, flow: &Flow) -> Option<Passed> {
        self.flows.get(flow).map(|(_, passed)| *passed)
    }

    fn flows(&self) -> Vec<(Flow, Way, Passed)> {
        self.flows.iter().map(|(&flow, &(way, passed))| (flow, way, passed)).collect()
    }
}

fn program(now: Nanos) -> Box<dyn Program> {
    let roles = [(H1, PortRole::Host), (S2, PortRole::Switch { tier: None })].into();
    let identity = Identity { mac: OWN, tier: None, boot: 7, roles };
    let settings = Settings { quiet: Nanos::ZERO, connection_age: Nanos::from_secs(4), ..Settings::default() };
    Box::new(TcpPath::new(now, identity, settings, Selection::AllTcp))
}

fn switch(most: usize) -> (Switch, Kernel) {
    let mut switch = Switch::new(program(NOW), [(H1, most), (S2, usize::MAX)].into_iter(), 1);
    let mut kernel = Kernel::default();
    [H1, S2].into_iter().for_each(|port| switch.port(NOW, port, true, &mut kernel));
    kernel.sent.clear();
    (switch, kernel)
}

fn tuple(src_port: u16) -> FiveTuple {
    FiveTuple::new(PROTO_TCP, ([10, 0, 0, 1].into(), src_port), ([10, 0, 0, 9].into(), 80))
}

fn segment(five_tuple: FiveTuple, tcp_flags: u8) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    ip.extend(five_tuple.src().low().to_be_bytes());
    ip.extend(five_tuple.dst().low().to_be_bytes());
    ip.extend(five_tuple.src_port().to_be_bytes());
    ip.extend(five_tuple.dst_port().to_be_bytes());
    ip.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, tcp_flags, 0, 0, 0, 0, 0, 0]);
    let forward = five_tuple.dst_port() == 80;
    let (src, dst) = if forward { (HOST, FAR) } else { (FAR, HOST) };
    let mut bytes = [dst.0, src.0].concat();
    bytes.extend([8, 0]);
    bytes.extend(ip);
    bytes
}

/// Opens a connection: the SYN of a host starts an exploration, and the reply of the remote switch confirms the path.
fn connect(switch: &mut Switch, kernel: &mut Kernel, src_port: u16) {
    let five_tuple = tuple(src_port);
    switch.frame(NOW, H1, None, &segment(five_tuple, TCP_SYN), kernel);
    let request = read(&kernel.sent.last().unwrap().1).unwrap().frame;
    let Body::Path(message) = request.body else { panic!("{request:?}") };
    assert_eq!((message.kind, message.conversation), (PathKind::Request, Conversation::of(HOST, FAR, five_tuple)));
    let reply = segment(five_tuple.reverse(), TCP_SYN | TCP_ACK);
    let headers = Headers { tcp_flags: TCP_SYN | TCP_ACK, ..Headers::plain(five_tuple.reverse()) };
    let carried = pathloom_model::Carried::Ip(headers);
    let body = Body::Path(PathMessage { kind: PathKind::Reply, carried, ..message });
    let mut bytes = Vec::new();
    emit(&Frame { src: OTHER, dst: GROUP, body }, &reply[14..], &mut bytes);
    switch.frame(NOW, S2, None, &bytes, kernel);
    // The host receives exactly the bytes that its peer has sent.
    assert_eq!(kernel.sent.last(), Some(&(H1, reply)));
}

#[test]
fn the_kernel_forwards_a_connection_from_its_first_data_until_it_expires() {
    let (mut switch, mut kernel) = switch(10);
    connect(&mut switch, &mut kernel, 5000);
    assert!(kernel.flows.is_empty(), "no frame without SYN has passed yet");
    let data = segment(tuple(5000), TCP_ACK);
    switch.frame(NOW, H1, None, &data, &mut kernel);
    assert_eq!(kernel.sent.last(), Some(&(S2, data)));
    let (&flow, &(way, _)) = kernel.flows.first_key_value().unwrap();
    assert_eq!((flow.in_port, flow.src, flow.dst, way.out_port), (H1, HOST, FAR, S2));
    assert!(matches!(way.reason, ForwardingReason::Connection { forward: true, .. }));
    // Frames that the kernel forwards renew the entry: they are credited before entries expire.
    let at = |seconds| NOW + Nanos::from_secs(seconds);
    kernel.flows.get_mut(&flow).unwrap().1 = Passed { last: at(3), packets: 3, bytes: 300 };
    switch.timeout(at(5), &mut kernel);
    assert_eq!(kernel.flows.len(), 1);
    switch.timeout(at(8), &mut kernel);
    assert_eq!((kernel.flows.len(), switch.tables().connections), (0, 0));
}

#[test]
fn a_tagged_frame_is_reassembled_and_never_forwarded_by_the_kernel() {
    let (mut switch, mut kernel) = switch(10);
    connect(&mut switch, &mut kernel, 5000);
    let before = kernel.sent.len();
    switch.frame(NOW, S2, Some(4094), &segment(tuple(5000).reverse(), TCP_ACK), &mut kernel);
    assert_eq!(kernel.sent.len(), before + 1);
    assert_eq!(kernel.sent.last().unwrap().0, H1, "the last switch removes the tag");
    assert_eq!(kernel.sent.last().unwrap().1, segment(tuple(5000).reverse(), TCP_ACK));
    assert!(kernel.flows.is_empty());
    // A tagged frame of a host is forged.
    switch.frame(NOW, H1, Some(4094), &segment(tuple(5000), TCP_ACK), &mut kernel);
    assert_eq!((kernel.sent.len(), switch.tables().refused[0].port), (before + 1, H1));
}

#[test]
fn flows_beyond_the_limit_of_a_port_or_map_stay_in_user_space() {
    let (mut switch, mut kernel) = switch(2);
    for port in 5000..5004 {
        connect(&mut switch, &mut kernel, port);
        switch.frame(NOW, H1, None, &segment(tuple(port), TCP_ACK), &mut kernel);
        // The same frame again is not counted twice.
        switch.frame(NOW, H1, None, &segment(tuple(port), TCP_ACK), &mut kernel);
    }
    assert_eq!((kernel.flows.len(), switch.shares()[&H1].flows), (2, 2));
    kernel.full = true;
    switch.frame(NOW, S2, None, &segment(tuple(5000).reverse(), TCP_ACK), &mut kernel);
    assert_eq!((kernel.flows.len(), switch.shares()[&S2].flows), (2, 0));
    assert_eq!(kernel.sent.last().unwrap().0, H1);
}

#[test]
fn a_five_tuple_takes_few_places_in_the_kernel_whatever_its_dscp() {
    let (mut switch, mut kernel) = switch(1000);
    connect(&mut switch, &mut kernel, 5000);
    for dscp in 0..64 {
        let mut data = segment(tuple(5000), TCP_ACK);
        data[15] = dscp << 2;
        switch.frame(NOW, H1, None, &data, &mut kernel);
        assert_eq!(kernel.sent.last(), Some(&(S2, data)));
    }
    assert_eq!((kernel.flows.len(), switch.shares()[&H1].flows), (4, 4));
}

#[test]
fn flows_of_a_port_that_goes_down_are_removed() {
    let (mut switch, mut kernel) = switch(10);
    connect(&mut switch, &mut kernel, 5000);
    switch.frame(NOW, H1, None, &segment(tuple(5000), TCP_ACK), &mut kernel);
    switch.port(NOW, S2, false, &mut kernel);
    assert!(kernel.flows.is_empty());
    assert_eq!(switch.shares()[&H1].flows, 0);
}

#[test]
fn the_next_start_continues_with_the_flows_in_the_kernel() {
    let (mut old, mut kernel) = switch(10);
    let hello = Hello {
        switch: OTHER,
        port: PortNo(5),
        tier: None,
        boot: 3,
        heard: Some(Heard { switch: OWN, port: S2, boot: 7 }),
    };
    let mut bytes = Vec::new();
    emit(&Frame { src: OTHER, dst: GROUP, body: Body::Hello(hello) }, &[], &mut bytes);
    old.frame(NOW, S2, None, &bytes, &mut kernel);
    connect(&mut old, &mut kernel, 5000);
    old.frame(NOW, H1, None, &segment(tuple(5000), TCP_ACK), &mut kernel);
    old.frame(NOW, S2, None, &segment(tuple(5000).reverse(), TCP_ACK), &mut kernel);
    // A flow of the default forwarding to a host that is not known any more.
    let udp = tuple(1).with_proto(17);
    let stray = Flow { five_tuple: udp, in_port: H1, src: HOST, dst: Mac([2; 6]), dscp: 0 };
    kernel.remember(&stray, &Way { out_port: S2, reason: ForwardingReason::Default });
    let saved = old.save_tables();
    assert_eq!(saved.connections, [], "connections are in the kernel");
    let neighbour = SavedNeighbour { port: S2, switch: OTHER, its_port: PortNo(5), boot: 3, tier: None };
    assert_eq!(saved.neighbours, [neighbour]);
    assert!(saved.hosts.iter().any(|host| matches!(host, SavedHost { mac: HOST, port: H1, local: true, .. })));

    let mut next = Switch::new(program(NOW), [(H1, 10), (S2, 10)].into_iter(), 1);
    [H1, S2].into_iter().for_each(|port| next.prepare_port(NOW, port, true));
    kernel.sent.clear();
    next.take_over(NOW, saved, &mut kernel);
    assert_eq!(next.save().connections, old.save().connections);
    assert_eq!(kernel.flows.len(), 2, "the stray flow is removed, both directions remain: {:?}", kernel.flows);
    assert_eq!((next.shares()[&H1].flows, next.shares()[&S2].flows), (1, 1));
    let (port, bytes) = &kernel.sent[0];
    let Body::Hello(hello) = read(bytes).unwrap().frame.body else { panic!("{bytes:?}") };
    assert_eq!((*port, kernel.sent.len(), hello.heard.map(|heard| heard.boot)), (S2, 1, Some(3)));
}

#[test]
fn copies_of_an_exploration_leave_in_random_order() {
    let above = PortRole::Switch { tier: None };
    let roles = [(H1, PortRole::Host), (S2, above), (PortNo(3), above), (PortNo(4), above)].into();
    let identity = Identity { mac: OWN, tier: None, boot: 7, roles };
    let program = TcpPath::new(NOW, identity, Settings::default(), Selection::AllTcp);
    let mut switch = Switch::new(Box::new(program), std::iter::empty(), 1);
    let mut kernel = Kernel::default();
    (1..=4).for_each(|port| switch.port(NOW, PortNo(port), true, &mut kernel));
    let mut first = BTreeMap::new();
    for port in 5000..5300 {
        kernel.sent.clear();
        switch.frame(NOW, H1, None, &segment(tuple(port), TCP_SYN), &mut kernel);
        assert_eq!(kernel.sent.len(), 3);
        *first.entry(kernel.sent[0].0).or_insert(0) += 1;
    }
    // Otherwise, all connections of an idle fabric would take the same path.
    assert!(first.len() == 3 && first.values().all(|count| (70..130).contains(count)), "{first:?}");
}

#[test]
fn unreadable_frames_are_counted_per_port() {
    let (mut switch, mut kernel) = switch(10);
    let mut message = [GROUP.0, OTHER.0].concat();
    message.extend([0x88, 0xb5, 9, 1]);
    message.resize(60, 0);
    for bytes in [&message[..], &message[..13], &[], &segment(tuple(1), TCP_ACK)[..20]] {
        switch.frame(NOW, H1, None, bytes, &mut kernel);
    }
    switch.frame(NOW, H1, Some(1), &message[..11], &mut kernel);
    let tables = switch.tables();
    assert_eq!((tables.unreadable, tables.refused[0].frames, tables.refused[0].port), (5, 5, H1));
    assert!(kernel.sent.is_empty() && kernel.flows.is_empty());
}
