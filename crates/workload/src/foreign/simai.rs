//! Workloads of SimAI, which are those of ASTRA-sim with the groups of Megatron: the computation of each layer and
//! the collective that follows it, forward and backward.
//!
//! The first line names the parallelism (`HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 …
//! all_gpus: 16`), the second one gives the number of layers. A layer has a name and a number that is not used. Then
//! come computation (ns), collective and its bytes, for the forward pass, for gradients of inputs and for gradients
//! of weights. The last word is the computation of the update.

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::{payload_bytes, Context};
use crate::quantity;
use crate::training::{Collective, Ready, Transfers};
use pathloom_model::spec::{nearest, Spec, SpecError};
use pathloom_model::Nanos;

/// The traffic `simai:file=FILE.txt`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimaiWorkload {
    pub file: String,
    compute: bool,
    iterations: u32,
}

/// The supported parallelism.
const POLICY: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD";
const MICRO: &str = "MICRO";
const COLLECTIVES: [(&str, Option<Collective>); 5] = [
    ("NONE", None),
    ("ALLREDUCE", Some(Collective::AllReduce)),
    ("ALLGATHER", Some(Collective::AllGather)),
    ("REDUCESCATTER", Some(Collective::ReduceScatter)),
    ("ALLTOALL", Some(Collective::AllToAll)),
];
/// Number of words of a layer.
const WORDS: usize = 12;

/// Ranks that take part in a collective together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    /// The ranks of one tensor-parallel group, which are neighbours.
    Tensor,
    /// The ranks at the same position of their tensor-parallel groups.
    Data,
    /// Data-parallel ranks that share the inputs of experts.
    Expert,
    /// Data-parallel ranks that hold the same experts.
    DataExpert,
}

/// A collective of a layer.
#[derive(Clone, Debug, PartialEq)]
struct Communication {
    what: Collective,
    group: Group,
    bytes: u64,
}

/// A computation, and the collective that follows it.
#[derive(Clone, Debug, PartialEq)]
struct Pass {
    compute: Nanos,
    communication: Option<Communication>,
}

/// A layer: forward pass, gradients of inputs, gradients of weights, and update.
struct Layer {
    forward: Pass,
    input: Pass,
    weight: Pass,
    update: Nanos,
}

/// Sizes of groups.
#[derive(Clone, Copy, Debug)]
struct Parallelism {
    ranks: usize,
    tensor: usize,
    expert: usize,
}

impl SimaiWorkload {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<SimaiWorkload, SpecError> {
        let missing = || spec.error("names no file; expected file=, such as simai:file=microAllReduce.txt");
        let file = spec.text_of("file").ok_or_else(missing)?.to_owned();
        let compute = spec.choice("compute", &[("on", true), ("off", false)])?.unwrap_or(true);
        let iterations = spec.count("iterations", 1, 1_000_000)?.unwrap_or(1) as u32;
        Ok(SimaiWorkload { file, compute, iterations })
    }

    /// The flows. The coflow of each is the number of its collective.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let text = context.text_of_file(&self.file)?;
        let wrong = |(line, problem)| WorkloadError::Line { file: self.file.clone(), line, problem };
        let (parallelism, layers) = read(text).map_err(wrong)?;
        let hosts = context.hosts.len() as usize;
        if parallelism.ranks > hosts {
            let ranks = parallelism.ranks;
            return Err(context.error(format!("file: the workload has {ranks} ranks; the fabric has {hosts} hosts")));
        }
        let mut run = Run {
            transfers: Transfers::new(context),
            now: vec![Ready::default(); parallelism.ranks],
            gradients: vec![Ready::default(); parallelism.ranks],
            compute: self.compute,
            of: parallelism,
        };
        for _ in 0..self.iterations {
            run.iteration(&layers)?;
        }
        let flows = run.transfers.flows;
        if flows.is_empty() {
            let problem = "no layer has a collective of several ranks".to_owned();
            return Err(WorkloadError::File { file: self.file.clone(), problem });
        }
        let first = flows.iter().filter_map(|flow| if let Start::At(at) = flow.start { Some(at) } else { None }).max();
        if let Some(at) = first.filter(|&at| at >= context.duration) {
            let (at, end) = (quantity::time(at), quantity::time(context.duration));
            return Err(context.error(format!(
                "the first transfer starts at {at}, and arrivals end at {end}; raise --duration, or set compute=off"
            )));
        }
        let description = format!(
            "SimAI workload {}: {} ranks in the fabric's order, {}, {}, {}, {} offered; computation {}",
            self.file,
            parallelism.ranks,
            quantity::count(layers.len(), "layer"),
            quantity::count(self.iterations as usize, "iteration"),
            quantity::count(flows.len(), "flow"),
            quantity::bytes(payload_bytes(&flows)),
            if self.compute { "takes the time that the file says" } else { "takes no time" },
        );
        let note =
            "a rank waits for all of its collectives before the next pass, except those of gradients of weights; \
             for these it waits at the end of an iteration";
        Ok(Draft { flows, description, notes: vec![note.to_owned()] })
    }
}

/// The state of all ranks.
struct Run<'a, 'b> {
    transfers: Transfers<'a, 'b>,
    /// When each rank can continue.
    now: Vec<Ready>,
    /// When the gradients of weights of each rank are complete.
    gradients: Vec<Ready>,
    compute: bool,
    of: Parallelism,
}

impl Run<'_, '_> {
    /// Runs all layers forward, then backward: gradients of weights first. Their collectives run beside the passes
    /// that follow.
    fn iteration(&mut self, layers: &[Layer]) -> Result<(), WorkloadError> {
        for layer in layers {
            self.compute(layer.forward.compute);
            self.now = self.communicate(&layer.forward)?;
        }
        for layer in layers.iter().rev() {
            self.compute(layer.weight.compute);
            if layer.weight.communication.is_some() {
                let done = self.communicate(&layer.weight)?;
                self.gradients.iter_mut().zip(&done).for_each(|(all, one)| all.merge(one));
            }
            self.compute(layer.input.compute);
            self.now = self.communicate(&layer.input)?;
        }
        for (now, gradients) in self.now.iter_mut().zip(&mut self.gradients) {
            now.merge(&std::mem::take(gradients));
        }
        self.compute(Nanos(layers.iter().map(|layer| layer.update.0).fold(0, u64::saturating_add)));
        Ok(())
    }

    fn compute(&mut self, takes: Nanos) {
        if self.compute {
            self.now.iter_mut().for_each(|now| *now = std::mem::take(now).delayed_by(takes));
        }
    }

    /// Adds the collective of a pass. Returns when each rank has finished it.
    fn communicate(&mut self, pass: &Pass) -> Result<Vec<Ready>, WorkloadError> {
        let Some(of) = &pass.communication else { return Ok(self.now.clone()) };
        let mut done = self.now.clone();
        for ranks in self.of.groups(of.group) {
            let hosts: Vec<u32> = ranks.iter().map(|&rank| rank as u32).collect();
            let ready: Vec<Ready> = ranks.iter().map(|&rank| self.now[rank].clone()).collect();
            let after = self.transfers.collective(of.what, &hosts, &ready, of.bytes)?;
            ranks.into_iter().zip(after).for_each(|(rank, ready)| done[rank] = ready);
        }
        Ok(done)
    }
}

impl Parallelism {
    /// The ranks of each group of a kind. Tensor-parallel ranks are neighbours. An expert group has `expert`
    /// neighbouring data-parallel ranks.
    fn groups(&self, group: Group) -> Vec<Vec<usize>> {
        let data = self.ranks / self.tensor;
        let row = |place: usize, from: usize, step: usize, count: usize| {
            (0..count).map(|at| (from + at * step) * self.tensor + place).collect::<Vec<usize>>()
        };
        let places = 0..self.tensor;
        match group {
            Group::Tensor => {
                (0..data).map(|at| (0..self.tensor).map(|place| at * self.tensor + place).collect()).collect()
            }
            Group::Data => places.map(|place| row(place, 0, 1, data)).collect(),
            Group::Expert => {
                let each = |place| (0..data / self.expert).map(move |at| (place, at * self.expert));
                places.flat_map(each).map(|(place, from)| row(place, from, 1, self.expert)).collect()
            }
            Group::DataExpert => {
                let each = |place| (0..self.expert).map(move |from| (place, from));
                places.flat_map(each).map(|(place, from)| row(place, from, self.expert, data / self.expert)).collect()
            }
        }
    }
}

/// Reads a workload. An error has the number of the line.
fn read(text: &str) -> Result<(Parallelism, Vec<Layer>), (usize, String)> {
    let mut lines =
        text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())).filter(|line| !line.1.is_empty());
    let (number, first) = lines.next().ok_or((1, "is empty; expected a workload of SimAI".to_owned()))?;
    let parallelism = parallelism(first).map_err(|problem| (number, problem))?;
    let (number, second) =
        lines.next().ok_or((number, "ends after the first line; expected the number of layers".to_owned()))?;
    let count = second.parse::<usize>().ok().filter(|&count| (1..=1_000_000).contains(&count));
    let count = count.ok_or_else(|| (number, format!("`{second}` is not a number of layers from 1 to 1000000")))?;
    let mut layers = Vec::new();
    let mut last = number;
    for (number, line) in lines {
        if layers.len() == count {
            return Err((number, format!("a layer follows the {count} that the file announces")));
        }
        layers.push(layer(line).map_err(|problem| (number, problem))?);
        last = number;
    }
    match layers.len() == count {
        true => Ok((parallelism, layers)),
        false => Err((last, format!("the file announces {count} layers and ends after {}", layers.len()))),
    }
}

fn parallelism(line: &str) -> Result<Parallelism, String> {
    let mut words = line.split_whitespace();
    let policy = words.next().unwrap_or_default();
    if policy != POLICY && policy != MICRO {
        return Err(format!("the parallelism `{policy}` is not supported; expected {POLICY}"));
    }
    let (mut tensor, mut expert, mut pipeline, mut all) = (None, 1, 1, None);
    while let Some(key) = words.next() {
        let value = words.next().ok_or_else(|| format!("ends after `{key}`"))?;
        let whole = || {
            let whole = value.parse::<usize>().ok().filter(|value| (1..=1_000_000).contains(value));
            whole.ok_or_else(|| format!("{key} `{value}` is not a whole number from 1 to 1000000"))
        };
        match key {
            "model_parallel_NPU_group:" => tensor = Some(whole()?),
            "ep:" => expert = whole()?,
            "pp:" => pipeline = whole()?,
            "all_gpus:" => all = Some(whole()?),
            _ => {}
        }
    }
    let tensor = tensor.ok_or("has no `model_parallel_NPU_group:`")?;
    let ranks = all.ok_or("has no `all_gpus:`")?;
    if pipeline != 1 {
        return Err(format!("pp: {pipeline}: pipelines of several stages are not supported; expected pp: 1"));
    }
    if ranks % (tensor * expert) != 0 {
        return Err(format!("all_gpus: {ranks} is not a multiple of {tensor} (tensor) times {expert} (ep)"));
    }
    Ok(Parallelism { ranks, tensor, expert })
}

fn layer(line: &str) -> Result<Layer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() != WORDS {
        return Err(format!("a layer has {WORDS} words; this one has {}", words.len()));
    }
    let time = |place: usize| {
        let time = words[place].parse::<u64>().ok().filter(|&ns| ns <= 1_000_000_000_000_000);
        time.map(Nanos).ok_or_else(|| format!("word {}: `{}` is not a time in ns", place + 1, words[place]))
    };
    let pass = |place: usize, group: Group| {
        let communication = communication(words[place + 1], words[place + 2], group);
        let communication = communication.map_err(|problem| format!("word {}: {problem}", place + 2))?;
        Ok::<Pass, String>(Pass { compute: time(place)?, communication })
    };
    Ok(Layer {
        forward: pass(2, Group::Tensor)?,
        input: pass(5, Group::Tensor)?,
        weight: pass(8, Group::Data)?,
        update: time(11)?,
    })
}

fn communication(word: &str, bytes: &str, usual: Group) -> Result<Option<Communication>, String> {
    let (name, group) = match (word.strip_suffix("_DP_EP"), word.strip_suffix("_EP")) {
        (Some(name), _) => (name, Group::DataExpert),
        (None, Some(name)) => (name, Group::Expert),
        (None, None) => (word, usual),
    };
    let known = COLLECTIVES.map(|(known, _)| known);
    let what = COLLECTIVES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let hint = nearest(name, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        format!("`{word}` is not a collective{hint} (known: {})", known.join(", "))
    })?;
    let bytes = bytes.parse::<u64>().map_err(|_| format!("`{bytes}` after {word} is not a number of bytes"))?;
    match what.1 {
        Some(_) if bytes == 0 || bytes > 1 << 60 => Err(format!("{word} of {bytes} bytes; expected 1 to 2^60")),
        Some(what) => Ok(Some(Communication { what, group, bytes })),
        None => Ok(None),
    }
}
