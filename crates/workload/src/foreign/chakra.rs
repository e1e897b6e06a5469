//! Execution traces of MLCommons Chakra (`.et`): computation, sends and receives of each rank, with their
//! dependencies.
//!
//! A trace has a file for each rank: `NAME.0.et`, `NAME.1.et` and so on. A file has length-delimited messages of
//! Protocol Buffers: first one with the metadata of the trace, then one for each node of the rank's graph
//! (`et_def.proto` of schema 0.0.4). Sends and receives of two ranks are matched by their tag, in the order of the
//! files. Collectives are matched by their order.

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::{payload_bytes, Context};
use crate::job::Computation;
use crate::quantity;
use crate::ranks::Ranks;
use crate::training::{Collective, Ready, Transfers};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A node of a rank's graph. The tags are those of `et_def.proto`.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    control_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    data_deps: Vec<u64>,
    #[prost(uint64, tag = "7")]
    duration_us: u64,
    #[prost(message, repeated, tag = "10")]
    attributes: Vec<Attribute>,
}

/// A named value. The tag of its field is its type.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, optional, tag = "7")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    uint64: Option<u64>,
    #[prost(string, optional, tag = "29")]
    text: Option<String>,
}

/// The metadata of the trace.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<Attribute>,
}

const SEND: i32 = 5;
const RECEIVE: i32 = 6;
const COLLECTIVE: i32 = 7;
/// The kind of a collective that only waits for all ranks, without data.
const BARRIER: i64 = 9;
/// The last type of a node. Types begin at 0: a node that does nothing.
const LAST_KIND: i32 = COLLECTIVE;
/// Maximum number of ranks in a trace.
pub(crate) const MOST_RANKS: usize = 100_000;

impl Node {
    fn number(&self, name: &str) -> Option<i64> {
        let found = self.attributes.iter().find(|attribute| attribute.name == name)?;
        let small = found.int32.map(i64::from).or(found.uint32.map(i64::from));
        let text = || found.text.as_ref().and_then(|text| text.parse().ok());
        small.or(found.int64).or(found.uint64.and_then(|value| value.try_into().ok())).or_else(text)
    }
}

/// The file of a rank, derived from the file of the first rank: `a/ring.0.et` and 3 give `a/ring.3.et`. `None` if
/// `first` is not the file of a first rank.
pub(crate) fn file_of_rank(first: &str, rank: usize) -> Option<String> {
    Some(format!("{}.{rank}.et", first.strip_suffix(".0.et").filter(|name| !name.is_empty() && !name.ends_with('/'))?))
}

/// The traffic `chakra:file=NAME.0.et`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChakraTrace {
    /// The file of the first rank.
    pub file: String,
    compute: bool,
    ranks: Ranks,
}

impl ChakraTrace {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<ChakraTrace, SpecError> {
        let missing = || spec.error("names no file; expected file=, such as chakra:file=ring.0.et");
        let file = spec.text_of("file").ok_or_else(missing)?.to_owned();
        if file_of_rank(&file, 0).is_none() {
            return Err(spec.error(format!("file: `{file}` is not the trace of the first rank; expected NAME.0.et")));
        }
        let compute = spec.choice("compute", &[("on", true), ("off", false)])?.unwrap_or(true);
        Ok(ChakraTrace { file, compute, ranks: Ranks::take(spec)? })
    }

    /// The flows. The coflow of a flow is the number of its collective or single transfer.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let ranks = context.traces.len();
        if ranks == 0 {
            return Err(WorkloadError::NoFileText { spec: context.text.to_owned(), file: self.file.clone() });
        }
        let hosts = self.ranks.hosts(context, Some(ranks))?;
        let placed = self.ranks.note(context, &hosts);
        let graphs = context
            .traces
            .iter()
            .enumerate()
            .map(|(rank, bytes)| Graph::read(bytes, ranks).map_err(|problem| self.wrong(rank, problem)));
        let graphs: Vec<Graph> = graphs.collect::<Result<_, _>>()?;
        let mut walk = Walk::new(self, Transfers::new(context, hosts), graphs);
        walk.run()?;
        let mut notes = walk.notes();
        let job = walk.transfers.job(1, std::mem::take(&mut walk.computation));
        let flows = walk.transfers.flows;
        if flows.is_empty() {
            let why = notes.iter().map(|note| format!("; {note}")).collect::<String>();
            return Err(self.wrong(0, format!("no rank of the trace sends anything{why}")));
        }
        notes.extend(placed);
        let late = flows.iter().find_map(|flow| match flow.start {
            Start::At(at) if at >= context.duration => Some(at),
            _ => None,
        });
        if let Some(at) = late {
            let (first, end) = (quantity::time(at), quantity::time(context.duration));
            return Err(context.error(format!(
                "a transfer starts at {first}, and arrivals end at {end}; raise --duration, or set compute=off"
            )));
        }
        let description = format!(
            "Chakra trace {}: ranks on {}, {}, {} offered; computation {}",
            self.file,
            self.ranks.describe(ranks),
            quantity::count(flows.len(), "flow"),
            quantity::bytes(payload_bytes(&flows)),
            if self.compute { "takes the time that the trace says" } else { "takes no time" },
        );
        Ok(Draft { flows, description, notes, jobs: vec![job] })
    }

    fn wrong(&self, rank: usize, problem: String) -> WorkloadError {
        WorkloadError::File { file: file_of_rank(&self.file, rank).unwrap_or_default(), problem }
    }
}

/// The graph of a rank.
struct Graph {
    nodes: Vec<Node>,
    /// By node: number of its dependencies that are not finished.
    missing: Vec<usize>,
    /// By node: the nodes that wait for it.
    waiters: Vec<Vec<usize>>,
    /// By node: its position among the collectives of its group, if it is a collective.
    turn: Vec<usize>,
}

impl Graph {
    /// Reads the trace of a rank. An error names the problem and the node.
    fn read(mut bytes: &[u8], ranks: usize) -> Result<Graph, String> {
        let all = bytes.len();
        let broken = |what: &str, rest: &[u8], error: &dyn std::fmt::Display| {
            format!("byte {}: is not {what} of a Chakra trace: {error}", all - rest.len())
        };
        let begin = bytes;
        Metadata::decode_length_delimited(&mut bytes).map_err(|error| broken("the metadata", begin, &error))?;
        let mut nodes = Vec::new();
        while !bytes.is_empty() {
            let begin = bytes;
            nodes.push(Node::decode_length_delimited(&mut bytes).map_err(|error| broken("a node", begin, &error))?);
        }
        let mut places = BTreeMap::new();
        for (place, node) in nodes.iter().enumerate() {
            let name = &node.name;
            if places.insert(node.id, place).is_some() {
                return Err(format!("node {} (`{name}`): another node has that id", node.id));
            }
            check(node, ranks).map_err(|problem| format!("node {} (`{name}`): {problem}", node.id))?;
        }
        let mut graph = Graph {
            missing: vec![0; nodes.len()],
            waiters: vec![Vec::new(); nodes.len()],
            turn: vec![0; nodes.len()],
            nodes,
        };
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        for &place in places.values() {
            let node = &graph.nodes[place];
            for needed in node.control_deps.iter().chain(&node.data_deps) {
                let unknown =
                    || format!("node {} (`{}`): waits for node {needed}, which does not exist", node.id, node.name);
                graph.waiters[*places.get(needed).ok_or_else(unknown)?].push(place);
                graph.missing[place] += 1;
            }
            if node.kind == COLLECTIVE {
                let turn = turns.entry(group_of(node)).or_default();
                graph.turn[place] = *turn;
                *turn += 1;
            }
        }
        Ok(graph)
    }
}

/// Checks that a node has all necessary attributes.
fn check(node: &Node, ranks: usize) -> Result<(), String> {
    let rank = |name: &str| match node.number(name) {
        Some(rank) if (0..ranks as i64).contains(&rank) => Ok(()),
        Some(rank) => Err(format!("{name}: {rank} is not a rank; the trace has {ranks} ranks, counted from 0")),
        None => Err(format!("has no {name}")),
    };
    match node.kind {
        SEND => rank("comm_dst")?,
        RECEIVE => rank("comm_src")?,
        COLLECTIVE if node.number("comm_type") == Some(BARRIER) => return Ok(()),
        COLLECTIVE => drop(collective_of(node)?),
        0..=LAST_KIND => return Ok(()),
        kind => return Err(format!("type {kind} is unknown; expected 0 to {LAST_KIND}")),
    }
    match node.number("comm_size") {
        Some(0..) => Ok(()),
        Some(bytes) => Err(format!("comm_size: {bytes} is not a number of bytes; expected 0 or more")),
        None => Err("has no comm_size".to_owned()),
    }
}

/// The kind of a collective, by its number in `et_def.proto`.
fn collective_of(node: &Node) -> Result<Collective, String> {
    match node.number("comm_type") {
        Some(0) => Ok(Collective::AllReduce),
        Some(2) => Ok(Collective::AllGather),
        Some(6) => Ok(Collective::AllToAll),
        Some(7) => Ok(Collective::ReduceScatter),
        Some(other) => Err(format!(
            "comm_type: {other} is not supported; expected 0 (all-reduce), 2 (all-gather), 6 (all-to-all), \
             7 (reduce-scatter) or 9 (barrier)"
        )),
        None => Err("has no comm_type".to_owned()),
    }
}

/// The process group that a collective names. Without a name it is the group of all ranks.
fn group_of(node: &Node) -> &str {
    let named = node.attributes.iter().find(|attribute| attribute.name == "pg_name");
    named.and_then(|attribute| attribute.text.as_deref()).unwrap_or_default()
}

/// Transfers from one rank to another with the same tag: sender, receiver, tag.
type Channel = (usize, usize, i64);

/// The ranks that have reached a collective, each with its node.
type Arrived = Vec<(usize, usize)>;

/// Follows all graphs at the same time, each as far as possible.
struct Walk<'a, 'b> {
    of: &'a ChakraTrace,
    graphs: Vec<Graph>,
    transfers: Transfers<'a, 'b>,
    /// By rank and node: when the node can start. Once it is finished: when it is done.
    done: Vec<Vec<Ready>>,
    /// Nodes without open dependencies in their own graph, in the order of ranks and nodes.
    ready: BTreeSet<(usize, usize)>,
    /// Sends without a receive so far: when each is done, and its bytes.
    sent: BTreeMap<Channel, VecDeque<(Ready, u64)>>,
    expected: BTreeMap<Channel, VecDeque<usize>>,
    /// Ranks of each group.
    groups: BTreeMap<String, Vec<usize>>,
    arrived: BTreeMap<(String, usize), Arrived>,
    left: usize,
    computation: Computation,
    /// Whether a computation depends on several flows.
    mixed: bool,
    /// Number of receives of another size than their sends, with the first of them.
    unequal: Option<(usize, String)>,
}

impl<'a, 'b> Walk<'a, 'b> {
    fn new(of: &'a ChakraTrace, transfers: Transfers<'a, 'b>, graphs: Vec<Graph>) -> Walk<'a, 'b> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut ready = BTreeSet::new();
        for (rank, graph) in graphs.iter().enumerate() {
            for (place, node) in graph.nodes.iter().enumerate() {
                if graph.missing[place] == 0 {
                    ready.insert((rank, place));
                }
                if node.kind == COLLECTIVE {
                    let ranks = groups.entry(group_of(node).to_owned()).or_default();
                    if ranks.last() != Some(&rank) {
                        ranks.push(rank);
                    }
                }
            }
        }
        let done = graphs.iter().map(|graph| vec![Ready::default(); graph.nodes.len()]).collect();
        let left = graphs.iter().map(|graph| graph.nodes.len()).sum();
        let (sent, expected, arrived) = Default::default();
        let computation = Computation::of(graphs.len());
        Walk {
            of,
            graphs,
            transfers,
            done,
            ready,
            sent,
            expected,
            groups,
            arrived,
            left,
            computation,
            mixed: false,
            unequal: None,
        }
    }

    fn run(&mut self) -> Result<(), WorkloadError> {
        while let Some((rank, place)) = self.ready.pop_first() {
            self.visit(rank, place)?;
        }
        if self.left == 0 {
            return Ok(());
        }
        let stuck = |(rank, graph): (usize, &Graph)| {
            let place = graph.missing.iter().position(|&missing| missing != usize::MAX)?;
            Some((rank, place))
        };
        let Some((rank, place)) = self.graphs.iter().enumerate().find_map(stuck) else { return Ok(()) };
        let node = &self.graphs[rank].nodes[place];
        let why = match node.kind {
            RECEIVE if self.graphs[rank].missing[place] == 0 => self.no_send(rank, node),
            COLLECTIVE if self.graphs[rank].missing[place] == 0 => {
                "other ranks of its group never reach this collective".to_owned()
            }
            _ => "it waits, directly or through others, for itself or for a node that is never done".to_owned(),
        };
        Err(self.of.wrong(rank, format!("node {} (`{}`) is never done: {why}", node.id, node.name)))
    }

    /// Why a receive of a rank is never done.
    fn no_send(&self, rank: usize, node: &Node) -> String {
        let (peer, tag) = (node.number("comm_src").unwrap_or(0) as usize, node.number("comm_tag").unwrap_or(0));
        let others = self.sent.range((peer, rank, i64::MIN)..=(peer, rank, i64::MAX));
        let other = others.filter(|(_, sends)| !sends.is_empty()).map(|((.., tag), _)| tag).next();
        let hint = other.map(|tag| format!("; a send with comm_tag {tag} is not received")).unwrap_or_default();
        format!("rank {peer} sends it no data with comm_tag {tag}{hint}")
    }

    /// What was left out or does not match.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.transfers.notes();
        if self.mixed {
            notes.push(
                "where a flow waits for computation and for several flows, the computation begins after the last of them"
                    .to_owned(),
            );
        }
        if let Some((count, first)) = &self.unequal {
            notes.push(format!("receives of another size than their sends, which count: {count}, such as {first}"));
        }
        let lost: usize = self.sent.values().map(VecDeque::len).sum();
        if let Some(((from, to, tag), _)) = self.sent.iter().find(|(_, sends)| !sends.is_empty()) {
            let example = format!("rank {from} to rank {to} with comm_tag {tag}");
            notes.push(format!("sends that no rank receives, carried out all the same: {lost}, such as {example}"));
        }
        notes
    }

    /// Handles a node whose dependencies are finished.
    fn visit(&mut self, rank: usize, place: usize) -> Result<(), WorkloadError> {
        let (kind, peer, tag, bytes, duration_us) = {
            let node = &self.graphs[rank].nodes[place];
            let peer = node.number(if node.kind == SEND { "comm_dst" } else { "comm_src" }).unwrap_or(0) as usize;
            let bytes = node.number("comm_size").unwrap_or(1) as u64;
            (node.kind, peer, node.number("comm_tag").unwrap_or(0), bytes, node.duration_us)
        };
        let base = self.done[rank][place].clone();
        let is_barrier = self.graphs[rank].nodes[place].number("comm_type") == Some(BARRIER);
        if matches!(kind, SEND | RECEIVE | COLLECTIVE) && bytes > 0 && !is_barrier {
            self.computation.transfer(rank);
        }
        match kind {
            SEND if peer == rank => self.finish(rank, place, base),
            SEND => {
                let done = if bytes == 0 {
                    self.transfers.leave_out();
                    base
                } else {
                    let own = self.transfers.own_step();
                    Ready::after(self.transfers.send(&base, (rank as u32, peer as u32), bytes, own)?)
                };
                let channel = (rank, peer, tag);
                match self.expected.get_mut(&channel).and_then(VecDeque::pop_front) {
                    Some(waiting) => self.receive(peer, waiting, (&done, bytes)),
                    None => self.sent.entry(channel).or_default().push_back((done.clone(), bytes)),
                }
                self.finish(rank, place, done);
            }
            RECEIVE if peer == rank => self.finish(rank, place, base),
            RECEIVE => {
                let channel = (peer, rank, tag);
                match self.sent.get_mut(&channel).and_then(VecDeque::pop_front) {
                    Some((sent, size)) => self.receive(rank, place, (&sent, size)),
                    None => self.expected.entry(channel).or_default().push_back(place),
                }
            }
            COLLECTIVE => return self.arrive(rank, place, bytes),
            _ => {
                let takes = if self.of.compute { Nanos::from_micros(duration_us) } else { Nanos::ZERO };
                self.computation.compute(rank, takes);
                self.mixed |= takes > Nanos::ZERO && base.flows.len() > 1;
                self.finish(rank, place, base.delayed_by(takes));
            }
        }
        Ok(())
    }

    /// Handles a receive whose send is known: when that is done, and its bytes.
    fn receive(&mut self, rank: usize, place: usize, (sent, bytes): (&Ready, u64)) {
        let node = &self.graphs[rank].nodes[place];
        let expected = node.number("comm_size").unwrap_or(0);
        if expected != bytes as i64 {
            let example = || format!("node {} (`{}`) of rank {rank}: {expected} B for {bytes} B", node.id, node.name);
            self.unequal.get_or_insert_with(|| (0, example())).0 += 1;
        }
        let mut done = self.done[rank][place].clone();
        done.merge(sent);
        self.finish(rank, place, done);
    }

    /// Handles a rank that reaches a collective. The last rank starts the collective.
    fn arrive(&mut self, rank: usize, place: usize, bytes: u64) -> Result<(), WorkloadError> {
        let graph = &self.graphs[rank];
        let group = group_of(&graph.nodes[place]).to_owned();
        let ranks = self.groups[&group].clone();
        let key = (group, graph.turn[place]);
        let arrived = self.arrived.entry(key.clone()).or_default();
        arrived.push((rank, place));
        if arrived.len() < ranks.len() {
            return Ok(());
        }
        let mut all = self.arrived.remove(&key).unwrap_or_default();
        all.sort_unstable();
        let what = |&(rank, place): &(usize, usize)| {
            let node = &self.graphs[rank].nodes[place];
            (node.number("comm_type"), node.number("comm_size").unwrap_or(0))
        };
        if let Some(other) = all.iter().find(|one| what(one) != what(&all[0])) {
            let node = &self.graphs[other.0].nodes[other.1];
            let problem = format!(
                "node {} (`{}`): rank {} has a collective of another type or size at this position",
                node.id, node.name, all[0].0
            );
            return Err(self.of.wrong(other.0, problem));
        }
        let members: Vec<u32> = all.iter().map(|&(rank, _)| rank as u32).collect();
        let ready: Vec<Ready> = all.iter().map(|&(rank, place)| self.done[rank][place].clone()).collect();
        let done = match collective_of(&self.graphs[rank].nodes[place]) {
            Ok(kind) => self.transfers.collective(kind, &members, &ready, bytes)?,
            // A barrier: nobody continues before all are here.
            Err(_) => {
                let mut last = Ready::default();
                ready.iter().for_each(|one| last.merge(one));
                vec![last; ready.len()]
            }
        };
        for ((rank, place), ready) in all.into_iter().zip(done) {
            self.finish(rank, place, ready);
        }
        Ok(())
    }

    /// Finishes a node. Nodes that wait for it may become ready.
    fn finish(&mut self, rank: usize, place: usize, ready: Ready) {
        self.left -= 1;
        let graph = &mut self.graphs[rank];
        graph.missing[place] = usize::MAX;
        for waiter in std::mem::take(&mut graph.waiters[place]) {
            self.done[rank][waiter].merge(&ready);
            graph.missing[waiter] -= 1;
            if graph.missing[waiter] == 0 {
                self.ready.insert((rank, waiter));
            }
        }
        self.done[rank][place] = ready;
    }
}

#[cfg(test)]
#[path = "../tests/chakra.rs"]
mod tests;
