//! Chakra traces, written with the messages with which they are read.

use super::*;
use crate::PartFiles;
use crate::{TrafficSpec, Workload};
use pathloom_fabrics::fabric_from_spec;
use proptest::prelude::*;

fn number(name: &str, value: i64) -> Attribute {
    Attribute { name: name.into(), int64: Some(value), ..Attribute::default() }
}

fn node(id: u64, kind: i32, deps: &[u64], attributes: &[(&str, i64)]) -> Node {
    let attributes = attributes.iter().map(|&(name, value)| number(name, value)).collect();
    Node { id, name: format!("n{id}"), kind, data_deps: deps.to_vec(), attributes, ..Node::default() }
}

fn send(id: u64, to: i64, deps: &[u64]) -> Node {
    node(id, SEND, deps, &[("comm_dst", to), ("comm_size", 1000 + id as i64)])
}

fn receive(id: u64, from: i64, deps: &[u64]) -> Node {
    node(id, RECEIVE, deps, &[("comm_src", from), ("comm_size", 1000)])
}

fn compute(id: u64, duration_us: u64, deps: &[u64]) -> Node {
    Node { duration_us, ..node(id, 4, deps, &[]) }
}

fn tagged(node: Node, tag: i64) -> Node {
    let mut node = node;
    node.attributes.push(number("comm_tag", tag));
    node
}

fn trace(nodes: &[Node]) -> Vec<u8> {
    let mut bytes = Metadata::default().encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

fn generate(keys: &str, ranks: &[Vec<u8>]) -> Result<Workload, String> {
    let fabric = fabric_from_spec("leaf-spine:spines=1,leaves=2,hosts=2").unwrap();
    let spec = TrafficSpec::parse(&format!("chakra:file=t.0.et{keys}")).map_err(|error| error.to_string())?;
    let made = spec.generate_from(&fabric, Nanos::from_secs(1), 1, &[PartFiles { text: None, traces: ranks }]);
    made.map_err(|error| error.to_string())
}

fn starts(workload: &Workload) -> Vec<(u64, Vec<u32>, u64)> {
    let start = |start: &Start| match start {
        Start::At(at) => (Vec::new(), at.0),
        Start::After { flows, delay } => (flows.to_vec(), delay.0),
    };
    let row = |flow: &crate::FlowSpec| {
        let (flows, at) = start(&flow.start);
        (flow.size_bytes.unwrap(), flows, at)
    };
    workload.flows.iter().map(row).collect()
}

#[test]
fn transfers_wait_for_computations_and_receives_of_their_rank() {
    let first = trace(&[compute(0, 7, &[]), send(1, 1, &[0]), receive(2, 1, &[1]), send(3, 2, &[2])]);
    let second = trace(&[receive(10, 0, &[]), compute(11, 5, &[10]), send(12, 0, &[11])]);
    let third = trace(&[receive(20, 0, &[])]);
    let ranks = [first, second, third];
    let timed = generate("", &ranks).unwrap();
    // Rank 0 continues when it has received and its own send is done.
    assert_eq!(starts(&timed), [(1001, vec![], 7000), (1012, vec![0], 5000), (1003, vec![0, 1], 0)]);
    let pairs: Vec<(u32, u32)> = timed.flows.iter().map(|flow| (flow.src.0, flow.dst.0)).collect();
    assert!(pairs[0].0 == pairs[1].1 && pairs[2].0 == pairs[0].0, "{pairs:?}");
    let untimed = generate(",compute=off", &ranks).unwrap();
    assert_eq!(starts(&untimed), [(1001, vec![], 0), (1012, vec![0], 0), (1003, vec![0, 1], 0)]);
}

#[test]
fn collectives_of_all_ranks_become_their_transfers() {
    let all = |kind: i64| {
        let one = |rank: u64| {
            trace(&[compute(0, rank, &[]), node(1, COLLECTIVE, &[0], &[("comm_type", kind), ("comm_size", 4000)])])
        };
        let made = generate("", &(0..4).map(one).collect::<Vec<_>>()).unwrap();
        assert!(made.flows.iter().all(|flow| flow.coflow == Some(0)));
        (made.flows.len(), made.flows.iter().map(|flow| flow.size_bytes.unwrap()).sum::<u64>())
    };
    // Ring: 2(N-1) and N-1 steps. In an all-gather, each rank contributes the given number of bytes.
    assert_eq!([0, 2, 6, 7].map(all), [(24, 24_000), (12, 48_000), (12, 12_000), (12, 12_000)]);
}

#[test]
fn nodes_without_data_keep_their_order_and_barriers_wait_for_all() {
    let coll = |id: u64, kind: i64, bytes: i64, deps: &[u64]| {
        node(id, COLLECTIVE, deps, &[("comm_type", kind), ("comm_size", bytes)])
    };
    let empty = |mut node: Node| {
        node.attributes.iter_mut().filter(|one| one.name == "comm_size").for_each(|one| one.int64 = Some(0));
        node
    };
    // A send of nothing after 5 us, an all-reduce of nothing, a node that does nothing, then a barrier.
    let first = trace(&[compute(0, 5, &[]), empty(send(1, 1, &[0])), coll(2, 0, 0, &[1]), coll(3, BARRIER, 0, &[2])]);
    let second = trace(&[
        empty(receive(1, 0, &[])),
        node(2, 0, &[1], &[]),
        coll(3, 0, 0, &[2]),
        coll(4, BARRIER, 0, &[3]),
        send(5, 0, &[4]),
    ]);
    let made = generate("", &[first, second]).unwrap();
    assert_eq!(starts(&made), [(1005, vec![], 5000)]);
    let notes = made.notes.join("\n");
    assert!(notes.contains("transfers and collectives of 0 bytes, left out: 2"), "{notes}");
    assert!(
        notes.contains("sends that no rank receives, carried out all the same: 1, such as rank 1 to rank 0"),
        "{notes}"
    );
    let nothing = generate("", &[trace(&[empty(send(1, 1, &[]))]), trace(&[])]).unwrap_err();
    assert!(
        nothing.contains("t.0.et: no rank of the trace sends anything; transfers and collectives of 0 bytes"),
        "{nothing}"
    );
}

#[test]
fn a_receive_of_another_size_is_said() {
    let made = generate("", &[trace(&[send(7, 1, &[])]), trace(&[receive(2, 0, &[])])]).unwrap();
    let notes = made.notes.join("\n");
    let words =
        "receives of another size than their sends, which count: 1, such as node 2 (`n2`) of rank 1: 1000 B for 1007 B";
    assert!(notes.contains(words), "{notes}");
    assert_eq!(made.flows[0].size_bytes, Some(1007));
}

#[test]
fn errors_name_the_file_and_the_node() {
    let one = |nodes: &[Node]| generate("", &[trace(nodes), trace(&[])]).unwrap_err();
    let coll = |kind: i64| node(1, COLLECTIVE, &[], &[("comm_type", kind), ("comm_size", 10)]);
    let whole = trace(&[send(1, 1, &[])]);
    for (found, words) in [
        (generate("", &[]).unwrap_err(), "needs the text of t.0.et"),
        (generate("", &[b"not a trace".to_vec()]).unwrap_err(), "t.0.et: byte 0: is not the metadata"),
        (generate("", &[whole[..whole.len() - 3].to_vec()]).unwrap_err(), "t.0.et: byte 1: is not a node"),
        (generate("", &vec![trace(&[]); 5]).unwrap_err(), "the file has 5 ranks; the fabric has 4 hosts"),
        (one(&[send(1, 7, &[])]), "node 1 (`n1`): comm_dst: 7 is not a rank"),
        (one(&[send(1, -1, &[])]), "comm_dst: -1 is not a rank"),
        (one(&[node(1, SEND, &[], &[("comm_size", 5)])]), "has no comm_dst"),
        (one(&[node(1, SEND, &[], &[("comm_dst", 1)])]), "has no comm_size"),
        (one(&[node(1, SEND, &[], &[("comm_dst", 1), ("comm_size", -5)])]), "comm_size: -5 is not a number of bytes"),
        (one(&[receive(1, 1, &[])]), "node 1 (`n1`) is never done: rank 1 sends it no data with comm_tag 0"),
        (
            generate("", &[trace(&[receive(1, 1, &[])]), trace(&[tagged(send(1, 0, &[]), 7)])]).unwrap_err(),
            "rank 1 sends it no data with comm_tag 0; a send with comm_tag 7 is not received",
        ),
        (one(&[send(1, 1, &[2]), send(2, 1, &[1])]), "is never done: it waits, directly or through others, for itself"),
        (one(&[send(1, 1, &[9])]), "waits for node 9, which does not exist"),
        (one(&[send(1, 1, &[]), send(1, 1, &[])]), "another node has that id"),
        (one(&[node(1, 9, &[], &[])]), "type 9 is unknown; expected 0 to 7"),
        (one(&[coll(4)]), "comm_type: 4 is not supported"),
        (one(&[node(1, COLLECTIVE, &[], &[("comm_size", 5)])]), "has no comm_type"),
        (
            generate("", &[trace(&[coll(0)]), trace(&[coll(2)])]).unwrap_err(),
            "t.1.et: node 1 (`n1`): rank 0 has a collective of another type",
        ),
        (generate("", &[trace(&[coll(0), coll(0)])]).unwrap_err(), "another node has that id"),
        (one(&[compute(0, 2_000_000, &[]), send(1, 1, &[0])]), "raise --duration, or set compute=off"),
    ] {
        assert!(found.contains(words) && !found.contains('\n'), "{words}: {found}");
    }
    for (spec, words) in [
        ("chakra", "names no file"),
        ("chakra:file=t.et", "expected NAME.0.et"),
        ("chakra:file=.0.et", "expected NAME.0.et"),
        ("chakra:file=t.0.et,compute=maybe", "compute: `maybe` is not one of on, off"),
    ] {
        let found = TrafficSpec::parse(spec).unwrap_err().to_string();
        assert!(found.contains(words), "{spec}: {found}");
    }
}

proptest! {
    /// For any bytes, there is a result or an error.
    #[test]
    fn reading_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..60) {
        let _ = generate("", &[bytes.clone()]);
        let mut whole = trace(&[send(1, 1, &[]), coll_like(), compute(3, 1, &[1])]);
        let place = at % whole.len();
        whole[place] = bytes.pop().unwrap_or(255);
        let _ = generate("", &[whole.clone(), whole]);
    }
}

fn coll_like() -> Node {
    node(2, COLLECTIVE, &[1], &[("comm_type", 0), ("comm_size", 10)])
}
