//! Connection matrices of htsim (`.cm`): flows start at times in picoseconds, or when other flows end (triggers).
//!
//! Lines: `Nodes n`, `Connections n`, `Triggers n`; a flow, `src->dst [id n] start ps | trigger t [size bytes]
//! [send_done_trigger t] [recv_done_trigger t] [prio p]`; a trigger, `trigger id t oneshot | multishot | barrier
//! [count n]`. A flow without a size (or of size 0) is long-lived.

use crate::error::WorkloadError;
use crate::flow_csv::{check_pair, describe, read_size};
use crate::flow_spec::{Draft, FlowSpec, Start};
use crate::generate::Context;
use pathloom_model::spec::without_comment;
use pathloom_model::units::PS_PER_NS;
use pathloom_model::Nanos;
use std::collections::BTreeMap;
use std::str::{FromStr, SplitWhitespace};

/// The content of a file.
#[derive(Default)]
struct Matrix {
    connections: Vec<Connection>,
    triggers: BTreeMap<u64, Trigger>,
    /// By trigger: the flows that activate it.
    setters: BTreeMap<u64, Vec<u32>>,
    /// By trigger: number of flows that wait for it.
    waiting: BTreeMap<u64, usize>,
    announced: Option<u64>,
    /// Number of broken links, which are not read.
    failures: usize,
}

struct Trigger {
    line: usize,
    /// Number of flows that must activate it: one, except for a barrier. A barrier without a count waits for all
    /// flows.
    count: Option<u64>,
    /// Whether each activation starts the next waiting flow, instead of all of them (multishot).
    one_by_one: bool,
}

struct Connection {
    line: usize,
    pair: (u32, u32),
    begin: Begin,
    size_bytes: Option<u64>,
}

#[derive(Clone, Copy)]
enum Begin {
    At(Nanos),
    Trigger(u64),
}

/// Creates the flows of `text`. Flows that start at or after the end of the run are left out, and so are flows that
/// wait for them.
pub(crate) fn draft(file: &str, text: &str, context: &Context) -> Result<Draft, WorkloadError> {
    let mut matrix = Matrix::default();
    for (index, line) in text.lines().enumerate() {
        let wrong = |problem| WorkloadError::Line { file: file.to_owned(), line: index + 1, problem };
        matrix.add(index + 1, without_comment(line), context).map_err(wrong)?;
    }
    if matrix.connections.is_empty() {
        let problem = "holds no flows; expected lines such as `7->5 id 1 start 0 size 2000000`".to_owned();
        return Err(WorkloadError::File { file: file.to_owned(), problem });
    }
    let mut flows = Vec::with_capacity(matrix.connections.len());
    for connection in &matrix.connections {
        let wrong = |problem| WorkloadError::Line { file: file.to_owned(), line: connection.line, problem };
        let start = matrix.start(connection).map_err(wrong)?;
        flows.push(context.flow(start, connection.pair, connection.size_bytes, None));
    }
    let before = flows.len();
    let flows = without_late(flows, context.duration);
    let late = before - flows.len();
    let mut draft = describe(file, "htsim connection matrix", flows, late, context);
    if let Some(announced) = matrix.announced.filter(|&announced| announced != before as u64) {
        draft.notes.push(format!("{file}: announces {announced} connections; {before} follow"));
    }
    if matrix.failures > 0 {
        let failures = matrix.failures;
        draft.notes.push(format!("{file}: failures of links, left out: {failures}; --fault sets them"));
    }
    let undeclared = matrix.setters.keys().filter(|id| !matrix.triggers.contains_key(id)).count();
    if undeclared > 0 {
        let triggers = crate::quantity::count(undeclared, "trigger");
        draft.notes.push(format!("{file}: {triggers} not declared; each acts when all flows that activate it end"));
    }
    Ok(draft)
}

impl Matrix {
    /// Reads one line.
    fn add(&mut self, number: usize, line: &str, context: &Context) -> Result<(), String> {
        let mut words = line.split_whitespace();
        match words.next() {
            None => Ok(()),
            Some("Nodes") => {
                let nodes: u64 = value(&mut words, "Nodes")?;
                let hosts = context.hosts.len();
                match nodes <= u64::from(hosts) {
                    true => Ok(()),
                    false => Err(format!("the matrix is for {nodes} nodes; the fabric has {hosts} hosts")),
                }
            }
            Some("Connections") => {
                self.announced = Some(value(&mut words, "Connections")?);
                Ok(())
            }
            Some(header @ ("Triggers" | "Failures")) => value::<u64>(&mut words, header).map(|_| ()),
            Some("failure") => {
                self.failures += 1;
                Ok(())
            }
            Some("trigger") => self.add_trigger(number, &mut words),
            Some(pair) if pair.contains("->") => self.add_connection(number, pair, &mut words, context),
            Some(other) => Err(format!(
                "begins with `{other}`; expected Nodes, Connections, Triggers, trigger or a flow such as 7->5"
            )),
        }
    }

    fn add_trigger(&mut self, number: usize, words: &mut SplitWhitespace) -> Result<(), String> {
        let (mut id, mut barrier, mut count, mut one_by_one) = (None, None, None, false);
        while let Some(word) = words.next() {
            match word {
                "id" => id = Some(value::<u64>(words, "id")?),
                "oneshot" | "multishot" => {
                    barrier = Some(false);
                    one_by_one = word == "multishot";
                }
                "barrier" => barrier = Some(true),
                "count" => count = Some(value::<u64>(words, "count")?),
                _ => {
                    return Err(format!("`{word}` is unknown; a trigger has id, oneshot, multishot, barrier and count"))
                }
            }
        }
        let id = id.ok_or("the trigger has no id")?;
        let barrier = barrier.ok_or("the trigger has no type; expected oneshot, multishot or barrier")?;
        let trigger = Trigger { line: number, count: if barrier { count } else { Some(1) }, one_by_one };
        match self.triggers.insert(id, trigger) {
            None => Ok(()),
            Some(before) => Err(format!("trigger {id} is declared on line {} already", before.line)),
        }
    }

    fn add_connection(
        &mut self,
        number: usize,
        pair: &str,
        words: &mut SplitWhitespace,
        context: &Context,
    ) -> Result<(), String> {
        let hosts = context.hosts.len();
        let node = |text: &str| {
            let node = text.parse::<u32>().ok().filter(|&node| node < hosts);
            node.ok_or_else(|| format!("node `{text}` is not a host; the fabric's hosts are 0 to {}", hosts - 1))
        };
        let (src, dst) = pair.split_once("->").unwrap_or((pair, ""));
        let pair = (node(src)?, node(dst)?);
        check_pair(&context.hosts, pair)?;
        let (mut begin, mut size_bytes) = (None, None);
        let own = self.connections.len() as u32;
        while let Some(word) = words.next() {
            match word {
                "start" => {
                    let start_ps: f64 = value(words, word)?;
                    if !(0.0..=1e19).contains(&start_ps) {
                        return Err(format!("start {start_ps} is not a number of picoseconds of at least 0"));
                    }
                    set_once(&mut begin, Begin::At(Nanos(start_ps as u64 / PS_PER_NS)))?;
                }
                "trigger" => set_once(&mut begin, Begin::Trigger(value(words, word)?))?,
                "size" => match words.next().ok_or("ends after `size`")? {
                    "0" => size_bytes = None,
                    text => size_bytes = Some(read_size(text)?),
                },
                "send_done_trigger" | "recv_done_trigger" => {
                    self.setters.entry(value(words, word)?).or_default().push(own);
                }
                "id" | "prio" => drop(value::<u64>(words, word)?),
                _ => {
                    return Err(format!(
                        "`{word}` is unknown; a flow has id, start, trigger, size, send_done_trigger, \
                         recv_done_trigger and prio"
                    ))
                }
            }
        }
        let begin = begin.ok_or("the flow has neither start nor trigger")?;
        if let Begin::Trigger(id) = begin {
            *self.waiting.entry(id).or_default() += 1;
        }
        self.connections.push(Connection { line: number, pair, begin, size_bytes });
        Ok(())
    }

    /// When a connection starts.
    fn start(&self, connection: &Connection) -> Result<Start, String> {
        let id = match connection.begin {
            Begin::At(time) => return Ok(Start::At(time)),
            Begin::Trigger(id) => id,
        };
        let setters = self.setters.get(&id).ok_or_else(|| format!("no flow activates trigger {id}"))?;
        let waiting = self.waiting.get(&id).copied().unwrap_or(0);
        if let Some(trigger) = self.triggers.get(&id).filter(|trigger| trigger.one_by_one && waiting > 1) {
            return Err(format!(
                "trigger {id} (line {}) is multishot: it starts one of its {waiting} flows at a time; only oneshot and \
                 barrier may start several flows",
                trigger.line
            ));
        }
        let too_few = self.triggers.get(&id).and_then(|trigger| {
            trigger.count.filter(|&count| count != setters.len() as u64).map(|count| (trigger.line, count))
        });
        if let Some((line, count)) = too_few {
            return Err(format!(
                "trigger {id} (line {line}) acts when {count} of {} flows are done; only triggers that wait for all of \
                 their flows are supported",
                setters.len()
            ));
        }
        let endless = setters.iter().find(|&&setter| self.connections[setter as usize].size_bytes.is_none());
        if let Some(&setter) = endless {
            let line = self.connections[setter as usize].line;
            return Err(format!("waits for the flow of line {line}, which has no size and never ends"));
        }
        Ok(Start::After { flows: setters.as_slice().into(), delay: Nanos::ZERO })
    }
}

/// The word after `name`, as a number.
fn value<T: FromStr>(words: &mut SplitWhitespace, name: &str) -> Result<T, String> {
    let word = words.next().ok_or_else(|| format!("ends after `{name}`"))?;
    word.parse().map_err(|_| format!("`{word}` after `{name}` is not a number"))
}

fn set_once(begin: &mut Option<Begin>, new: Begin) -> Result<(), String> {
    match begin.replace(new) {
        None => Ok(()),
        Some(_) => Err("the flow has two starts; expected one start or trigger".to_owned()),
    }
}

/// Drops flows that start at `end` or later, flows that wait for them, and so on.
fn without_late(flows: Vec<FlowSpec>, end: Nanos) -> Vec<FlowSpec> {
    let mut waiters: Vec<Vec<u32>> = vec![Vec::new(); flows.len()];
    let mut drop_list = Vec::new();
    for (index, flow) in flows.iter().enumerate() {
        match &flow.start {
            Start::At(time) if *time >= end => drop_list.push(index as u32),
            Start::At(_) => {}
            Start::After { flows, .. } => flows.iter().for_each(|&needed| waiters[needed as usize].push(index as u32)),
        }
    }
    let mut dropped = vec![false; flows.len()];
    while let Some(index) = drop_list.pop() {
        if !std::mem::replace(&mut dropped[index as usize], true) {
            drop_list.extend(&waiters[index as usize]);
        }
    }
    let mut kept = 0;
    let place: Vec<u32> = dropped
        .iter()
        .map(|&dropped| {
            kept += u32::from(!dropped);
            kept.saturating_sub(1)
        })
        .collect();
    let keep = flows.into_iter().zip(&dropped).filter(|(_, &dropped)| !dropped);
    keep.map(|(mut flow, _)| {
        if let Start::After { flows, .. } = &mut flow.start {
            flows.iter_mut().for_each(|index| *index = place[*index as usize]);
        }
        flow
    })
    .collect()
}
