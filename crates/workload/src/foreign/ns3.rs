//! Flows of ns-3: `flow.txt` of HPCC and ConWeave, which states what is to be sent, and the XML of FlowMonitor, which
//! states what was sent.
//!
//! `flow.txt` begins with the number of flows. A line is `src dst priority [port] bytes start_s`, with hosts counted
//! from 0; HPCC has the port of the receiver, ConWeave has not. Both begin at 2 s.
//!
//! A flow of FlowMonitor is one direction of a five-tuple. Its bytes include the headers of IP and TCP or UDP. Times
//! are nanoseconds since the start of the simulation.

use crate::error::WorkloadError;
use crate::flow_csv::{check_pair, describe};
use crate::flow_spec::{Draft, Start};
use crate::generate::Context;
use crate::poisson;
use pathloom_model::spec::without_comment;
use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Bytes of the headers that a packet has: IPv4, and TCP with time stamps, which ns-3 sends, or UDP.
const TCP_HEADERS: u64 = 52;
const UDP_HEADERS: u64 = 28;
const TCP: &str = "6";

/// A flow of a file: start in seconds, source and destination by host number, payload.
struct Transfer {
    start_s: f64,
    pair: (u32, u32),
    bytes: u64,
}

/// Whether a text begins with a line that holds nothing but a whole number, as `flow.txt` does.
pub(crate) fn is_flow_list(text: &str) -> bool {
    let mut lines = text.lines().map(|line| without_comment(line).trim()).filter(|line| !line.is_empty());
    lines.next().is_some_and(|first| first.parse::<u64>().is_ok())
}

/// Creates the flows of a `flow.txt`. Only the announced number of lines is read, as in ns-3.
pub(crate) fn flow_list(file: &str, text: &str, context: &Context) -> Result<Draft, WorkloadError> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line).trim()));
    let mut lines = lines.filter(|line| !line.1.is_empty());
    let announced = lines.next().and_then(|(_, first)| first.parse::<usize>().ok()).unwrap_or(0);
    let mut transfers = Vec::new();
    let (mut read, mut more) = (0, 0usize);
    for (number, line) in lines {
        if read == announced {
            more += 1;
            continue;
        }
        read += 1;
        let wrong = |problem| WorkloadError::Line { file: file.to_owned(), line: number, problem };
        transfers.push(listed(line, context).map_err(wrong)?);
    }
    let mut draft = draft(file, "flow.txt of ns-3", transfers, context);
    if more > 0 {
        draft.notes.push(format!("lines after the {announced} flows that the first line announces, not read: {more}"));
    } else if read < announced {
        draft.notes.push(format!("{file}: the first line announces {announced} flows; {read} follow"));
    }
    Ok(draft)
}

fn listed(line: &str, context: &Context) -> Result<Transfer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (size, start) = match words.len() {
        5 => (words[3], words[4]),
        6 => (words[4], words[5]),
        count => {
            return Err(format!("has {count} words; expected `src dst priority [port] bytes start_s`, 5 or 6 of them"))
        }
    };
    let hosts = context.hosts.len();
    let host = |word: &str| {
        let host = word.parse::<u32>().ok().filter(|&host| host < hosts);
        host.ok_or_else(|| format!("node `{word}` is not a host; the fabric's hosts are 0 to {}", hosts - 1))
    };
    let pair = (host(words[0])?, host(words[1])?);
    check_pair(&context.hosts, pair)?;
    let bytes = size.parse::<u64>().ok().filter(|&bytes| bytes <= 1 << 60);
    let bytes = bytes.ok_or_else(|| format!("`{size}` is not a whole number of bytes"))?;
    let start_s = start.parse::<f64>().ok().filter(|start_s| (0.0..=1e9).contains(start_s));
    let start_s = start_s.ok_or_else(|| format!("start: `{start}` is not a number of seconds from 0 on"))?;
    Ok(Transfer { start_s, pair, bytes })
}

/// One direction of a five-tuple, as FlowMonitor saw it.
struct Monitored {
    start_s: f64,
    sent: u64,
    received: u64,
    received_packets: u64,
    sent_packets: u64,
}

/// Addresses, protocol and ports.
type FiveTuple = (IpAddr, IpAddr, String, String, String);

/// Creates the flows of a FlowMonitor file. The addresses are given to the hosts in their order.
pub(crate) fn flow_monitor(file: &str, text: &str, context: &Context) -> Result<Draft, WorkloadError> {
    let wrong = |problem: String| WorkloadError::File { file: file.to_owned(), problem };
    let document = Document::parse(text).map_err(|error| wrong(format!("is not well-formed XML: {error}")))?;
    let flows = monitored(document.root_element()).map_err(wrong)?;
    let ends = flows.keys().flat_map(|tuple| [tuple.0, tuple.1]);
    let hosts: BTreeMap<IpAddr, u32> = ends.map(|address| (address, 0)).collect();
    let hosts: BTreeMap<IpAddr, u32> = hosts.into_keys().zip(0..).collect();
    if hosts.len() > context.hosts.len() as usize {
        let (found, most) = (hosts.len(), context.hosts.len());
        return Err(wrong(format!("has flows of {found} addresses; the fabric has {most} hosts")));
    }
    let (mut transfers, mut answers) = (Vec::new(), 0);
    for (tuple, flow) in &flows {
        let (source, target, protocol, from, to) = tuple.clone();
        let back = (target, source, protocol, to, from);
        if flows.get(&back).is_some_and(|back| back.sent > flow.sent) {
            answers += 1;
            continue;
        }
        let bytes = match tuple.2.as_str() {
            TCP => flow.received.saturating_sub(flow.received_packets.saturating_mul(TCP_HEADERS)),
            _ => flow.sent.saturating_sub(flow.sent_packets.saturating_mul(UDP_HEADERS)),
        };
        let pair = (hosts[&tuple.0], hosts[&tuple.1]);
        if pair.0 != pair.1 {
            transfers.push(Transfer { start_s: flow.start_s, pair, bytes });
        }
    }
    let mut draft = draft(file, "FlowMonitor", transfers, context);
    draft.notes.push(format!(
        "FlowMonitor has no sizes: a flow of TCP sends what was received, less {TCP_HEADERS} bytes of headers a packet; \
         others send what was sent, less {UDP_HEADERS}"
    ));
    if let Some((first, _)) = hosts.first_key_value() {
        let (count, name) = (hosts.len(), context.hosts.name(0));
        draft
            .notes
            .push(format!("its {count} addresses are the first hosts of the fabric in order: {first} is {name}"));
    }
    if answers > 0 {
        draft.notes.push(format!("directions with acknowledgements, left out: {answers}"));
    }
    Ok(draft)
}

/// The flows of the file by their five-tuples.
fn monitored(root: Node) -> Result<BTreeMap<FiveTuple, Monitored>, String> {
    let flows = |part: &'static str| {
        let parts = root.children().filter(move |node| node.has_tag_name(part));
        parts.flat_map(|part| part.children().filter(|node| node.has_tag_name("Flow")))
    };
    if !root.has_tag_name("FlowMonitor") {
        return Err(format!("is not a file of FlowMonitor: its outermost element is <{}>", root.tag_name().name()));
    }
    let mut tuples = BTreeMap::new();
    for flow in flows("Ipv4FlowClassifier").chain(flows("Ipv6FlowClassifier")) {
        let id = flow.attribute("flowId").unwrap_or_default();
        let text = |name: &str| flow.attribute(name).unwrap_or_default().to_owned();
        let address = |name: &str| {
            let text = flow.attribute(name).unwrap_or_default();
            text.parse::<IpAddr>().map_err(|_| format!("flow {id}: {name}: `{text}` is not an address"))
        };
        let ends = (address("sourceAddress")?, address("destinationAddress")?);
        let tuple = (ends.0, ends.1, text("protocol"), text("sourcePort"), text("destinationPort"));
        tuples.insert(id, tuple);
    }
    let mut found = BTreeMap::new();
    for flow in flows("FlowStats") {
        let id = flow.attribute("flowId").unwrap_or_default();
        let tuple = tuples.remove(id).ok_or_else(|| {
            format!("flow {id}: no classifier of the file has its five-tuple; expected Ipv4FlowClassifier")
        })?;
        let count = |name: &str| {
            let text = flow.attribute(name).unwrap_or_default();
            let count = text.parse::<u64>().ok().filter(|&count| count <= 1 << 60);
            count.ok_or_else(|| format!("flow {id}: {name}: `{text}` is not a whole number"))
        };
        let begin = flow.attribute("timeFirstTxPacket").unwrap_or_default();
        let ns = begin.strip_suffix("ns").and_then(|number| number.parse::<f64>().ok());
        let ns = ns.filter(|ns| (0.0..=1e18).contains(ns));
        let ns =
            ns.ok_or_else(|| format!("flow {id}: timeFirstTxPacket: `{begin}` is not a time such as +1.5e+09ns"))?;
        let flow = Monitored {
            start_s: ns / 1e9,
            sent: count("txBytes")?,
            received: count("rxBytes")?,
            received_packets: count("rxPackets")?,
            sent_packets: count("txPackets")?,
        };
        found.insert(tuple, flow);
    }
    match found.is_empty() {
        true => Err("holds no flows; expected <Flow> in <FlowStats>".to_owned()),
        false => Ok(found),
    }
}

/// The draft of these transfers. Time begins with the first of them.
fn draft(file: &str, what: &str, mut transfers: Vec<Transfer>, context: &Context) -> Draft {
    let all = transfers.len();
    transfers.retain(|transfer| transfer.bytes > 0);
    let empty = all - transfers.len();
    let first_s = transfers.iter().map(|transfer| transfer.start_s).fold(f64::INFINITY, f64::min);
    let mut flows = Vec::with_capacity(transfers.len());
    for Transfer { start_s, pair, bytes } in transfers {
        let start = poisson::nanos(start_s - first_s);
        if start < context.duration {
            flows.push(context.flow(Start::At(start), pair, Some(bytes), None));
        }
    }
    let late = all - empty - flows.len();
    let mut draft = describe(file, what, flows, late, context);
    if first_s.is_finite() && first_s > 0.0 {
        draft.notes.push(format!("times count from the first flow of the file, which starts at {first_s} s there"));
    }
    if empty > 0 {
        draft.notes.push(format!("flows of 0 bytes, left out: {empty}"));
    }
    draft
}
