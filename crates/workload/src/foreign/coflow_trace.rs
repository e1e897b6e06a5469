//! Coflow traces in the text format of the coflow-benchmark (github.com/coflow/coflow-benchmark).
//!
//! The first line is `ports coflows`. Every further line is a coflow: `id arrival_ms mappers mapper… reducers
//! reducer:megabytes…`. Ports count from 0. A reducer receives equal parts from all mappers of its coflow. A
//! megabyte is 2^20 bytes, as CoflowSim reads it.

use crate::error::WorkloadError;
use crate::flow_spec::Draft;
use crate::foreign::wrong_file::foreign_text;
use crate::foreign::wrong_file::take_file;
use crate::generate::{payload_bytes, Context, SYNCHRONISED_JITTER};
use crate::quantity;
use pathloom_model::spec::{without_comment, Spec, SpecError};
use pathloom_model::Nanos;
use std::collections::BTreeSet;
use std::str::FromStr;

const MEGABYTE: f64 = 1_048_576.0;

/// A trace from a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoflowTrace {
    pub file: String,
    scale: f64,
    time_scale: f64,
    jitter: Nanos,
}

/// One line of a trace.
#[derive(Debug, PartialEq)]
struct Coflow {
    id: u32,
    arrival_ms: f64,
    mappers: Vec<u32>,
    /// Port and megabytes.
    reducers: Vec<(u32, f64)>,
}

/// Numbers of coflows and flows that are left out.
#[derive(Default)]
struct LeftOut {
    late: usize,
    local: usize,
    local_bytes: f64,
    /// Coflows without mappers or reducers, and reducers of 0 bytes.
    empty: usize,
}

impl CoflowTrace {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<CoflowTrace, SpecError> {
        Ok(CoflowTrace {
            file: take_file(spec, "FB2010-1Hr-150-0.txt")?,
            scale: spec.number("scale", 1e-6, 1e6)?.unwrap_or(1.0),
            time_scale: spec.number("time_scale", 1e-9, 1e6)?.unwrap_or(1.0),
            jitter: spec.time("jitter")?.unwrap_or(SYNCHRONISED_JITTER),
        })
    }

    /// The flows. The coflow of each is its identifier in the trace.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let text = context.text_of_file(&self.file)?;
        if let Some(problem) = foreign_text(text) {
            return Err(WorkloadError::File { file: self.file.clone(), problem });
        }
        let (ports, coflows, mut notes) = self.parse(text)?;
        let arrival = |coflow: &Coflow| crate::poisson::nanos(coflow.arrival_ms * self.time_scale / 1e3);
        let (in_time, late): (Vec<&Coflow>, Vec<&Coflow>) =
            coflows.iter().partition(|coflow| arrival(coflow) < context.duration);
        let count: f64 = in_time.iter().map(|coflow| coflow.mappers.len() as f64 * coflow.reducers.len() as f64).sum();
        context.refuse_too_many(count, "lower the duration or raise time_scale=")?;
        let mut left_out = LeftOut { late: late.len(), ..LeftOut::default() };
        let hosts = u64::from(context.hosts.len());
        // Ports are spread evenly over the hosts, so that a small trace uses the whole fabric.
        let host_of = |port: u32| (u64::from(port) * hosts / u64::from(ports)) as u32;
        let mut jitter = context.rng("jitter");
        let mut flows = Vec::new();
        for coflow in in_time {
            left_out.empty += usize::from(coflow.mappers.is_empty() || coflow.reducers.is_empty());
            for &(reducer, megabytes) in &coflow.reducers {
                if megabytes == 0.0 {
                    left_out.empty += 1;
                    continue;
                }
                let bytes = (megabytes * MEGABYTE * self.scale).round().max(1.0) as u64;
                let parts = coflow.mappers.len() as u64;
                for (part, &mapper) in (0..parts).zip(&coflow.mappers) {
                    let size = (bytes / parts + u64::from(part < bytes % parts)).max(1);
                    let pair = (host_of(mapper), host_of(reducer));
                    if pair.0 == pair.1 {
                        left_out.local += 1;
                        left_out.local_bytes += size as f64;
                        continue;
                    }
                    let start = context.jittered(arrival(coflow), self.jitter, &mut jitter);
                    flows.push(context.flow(start, pair, Some(size), Some(coflow.id)));
                }
            }
        }
        if u64::from(ports) > hosts {
            notes.push(format!(
                "the {ports} ports of the trace share {hosts} hosts: port p is host p x {hosts} / {ports}, rounded down"
            ));
        }
        left_out.note(&mut notes);
        let description = format!(
            "coflows of {} ({} of {} over {ports} ports, sizes x {}, times x {}), port p on host p x {hosts} / {ports}; \
             {}; {}, {} offered",
            self.file,
            coflows.len() - left_out.late,
            quantity::count(coflows.len(), "coflow"),
            self.scale,
            self.time_scale,
            context.hosts.describe(),
            quantity::count(flows.len(), "flow"),
            quantity::bytes(payload_bytes(&flows)),
        );
        Ok(Draft { flows, description, notes, ..Draft::default() })
    }

    /// Reads the number of ports, the coflows, and notes.
    fn parse(&self, text: &str) -> Result<(u32, Vec<Coflow>, Vec<String>), WorkloadError> {
        let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let mut lines =
            lines.map(|(index, line)| (index + 1, without_comment(line).trim())).filter(|(_, line)| !line.is_empty());
        let wrong = |line: usize, problem: String| WorkloadError::Line { file: self.file.clone(), line, problem };
        let (number, header) = lines.next().ok_or_else(|| WorkloadError::File {
            file: self.file.clone(),
            problem: "is empty; expected a first line `ports coflows`".to_owned(),
        })?;
        let mut words = Words { line: header, words: header.split_whitespace() };
        let header = words.next::<u32>("the number of ports").and_then(|ports| {
            let announced = words.next::<usize>("the number of coflows")?;
            words.finish()?;
            if ports == 0 {
                Err("the number of ports is 0; expected at least 1".to_owned())
            } else {
                Ok((ports, announced))
            }
        });
        let (ports, announced) = header.map_err(|problem| wrong(number, problem))?;
        let mut coflows = Vec::new();
        let mut known = BTreeSet::new();
        for (number, line) in lines {
            let coflow = Coflow::parse(line, ports).map_err(|problem| wrong(number, problem))?;
            if !known.insert(coflow.id) {
                return Err(wrong(number, format!("coflow {} occurs twice; expected each identity once", coflow.id)));
            }
            coflows.push(coflow);
        }
        let mut notes = Vec::new();
        if coflows.len() != announced {
            let file = &self.file;
            notes.push(format!("{file}: the first line announces {announced} coflows; {} follow", coflows.len()));
        }
        Ok((ports, coflows, notes))
    }
}

impl LeftOut {
    fn note(&self, notes: &mut Vec<String>) {
        if self.late > 0 {
            let coflows = quantity::count(self.late, "coflow");
            notes.push(format!("left out: {coflows} of the trace, arriving after the end of the run"));
        }
        if self.local > 0 {
            let (flows, bytes) = (quantity::count(self.local, "flow"), quantity::bytes(self.local_bytes));
            notes.push(format!("left out: {flows} ({bytes}) from a host to itself, off the network"));
        }
        if self.empty > 0 {
            notes.push(format!("coflows and reducers without data, left out: {}", self.empty));
        }
    }
}

impl Coflow {
    fn parse(line: &str, ports: u32) -> Result<Coflow, String> {
        let mut words = Words { line, words: line.split_whitespace() };
        let in_range = |port: u32| match port < ports {
            true => Ok(port),
            false => Err(format!("port {port} does not exist; ports are 0 to {}", ports - 1)),
        };
        let id = words.next::<u32>("the identity of the coflow")?;
        let arrival_ms = words.next::<f64>("the time of arrival in milliseconds")?;
        if !(0.0..=1e12).contains(&arrival_ms) {
            return Err(format!("arrival at {arrival_ms} ms; expected a time of at least 0"));
        }
        let count = words.next::<usize>("the number of mappers")?;
        let mut mappers = Vec::new();
        for _ in 0..count {
            mappers.push(in_range(words.next::<u32>("the port of a mapper")?)?);
        }
        let count = words.next::<usize>("the number of reducers")?;
        let mut reducers = Vec::new();
        for _ in 0..count {
            let word = words.next::<String>("a reducer with its megabytes, such as 65:1.0")?;
            let pair =
                word.split_once(':').and_then(|(port, size)| Some((port.parse().ok()?, size.parse::<f64>().ok()?)));
            let (port, megabytes) =
                pair.ok_or_else(|| format!("`{word}` is not a reducer with its megabytes, such as 65:1.0"))?;
            if !(0.0..=1e9).contains(&megabytes) {
                return Err(format!("reducer {word}: {megabytes} MB is not a size; expected 0 to 1e9"));
            }
            reducers.push((in_range(port)?, megabytes));
        }
        words.finish()?;
        Ok(Coflow { id, arrival_ms, mappers, reducers })
    }
}

/// The words of a line, read one after the other.
struct Words<'a> {
    line: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl Words<'_> {
    fn next<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.words.next().ok_or_else(|| format!("ends where {what} should be"))?;
        word.parse().map_err(|_| format!("`{word}` is not {what}"))
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => {
                let count = self.line.split_whitespace().count();
                Err(format!(
                    "`{word}` and the words after it are too many: the line has {count} words, more than its counts say"
                ))
            }
        }
    }
}
