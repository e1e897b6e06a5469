//! Workloads of SimAI, which are those of ASTRA-sim with the groups of Megatron: the computation of each layer and
//! the collective that follows it, forward and backward.
//!
//! The first line names the parallelism (`HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 …
//! all_gpus: 16`), the second one gives the number of layers. A layer has a name and a number that is not used. Then
//! come computation (ns), collective and its bytes, for the forward pass, for gradients of inputs and for gradients
//! of weights. The last word is the computation of the update.
//!
//! The bytes of a collective are the buffer of a rank. Of an all-gather, SimAI states the whole result (AICB writes
//! it, MockNcclGroup divides it by the number of ranks), and ASTRA-sim the part of a rank (its Ring sends it whole).

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::{payload_bytes, Context};
use crate::job::Computation;
use crate::quantity;
use crate::ranks::Ranks;
use crate::training::{Collective, Ready, Transfers};
use pathloom_model::spec::{nearest, without_comment, Spec, SpecError};
use pathloom_model::Nanos;

/// The traffic `simai:file=FILE.txt`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimaiWorkload {
    pub file: String,
    compute: bool,
    iterations: u32,
    ranks: Ranks,
    /// Whether the size of an all-gather is the whole result or the part of a rank; `None` if the file decides.
    gather_total: Option<bool>,
}

/// Which collectives of a file are carried out, and among which ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    /// Those of tensor-parallel groups, and those of gradients among data-parallel ranks.
    Hybrid,
    /// Those of gradients of weights, among all ranks.
    Data,
    /// Those of the forward pass and of gradients of inputs, among all ranks.
    Model,
}

/// Names of the parallelism, and whether the size of an all-gather is the whole result, as SimAI reads it.
const POLICIES: [(&str, Policy, bool); 5] = [
    ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", Policy::Hybrid, true),
    ("HYBRID_TRANSFORMER", Policy::Hybrid, false),
    ("MICRO", Policy::Data, true),
    ("DATA", Policy::Data, false),
    ("MODEL", Policy::Model, false),
];
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

/// What the first line says.
#[derive(Clone, Copy, Debug)]
struct Head {
    policy: Policy,
    gather_total: bool,
    tensor: Option<usize>,
    expert: usize,
    ranks: Option<usize>,
    has_checkpoints: bool,
}

/// Sizes of groups.
#[derive(Clone, Copy, Debug)]
struct Parallelism {
    policy: Policy,
    gather_total: bool,
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
        let gather_total = spec.choice("gather", &[("total", true), ("part", false)])?;
        Ok(SimaiWorkload { file, compute, iterations, ranks: Ranks::take(spec)?, gather_total })
    }

    /// The flows. The coflow of each is the number of its collective.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let text = context.text_of_file(&self.file)?;
        let wrong = |(line, problem)| WorkloadError::Line { file: self.file.clone(), line, problem };
        let (head, layers) = read(text).map_err(wrong)?;
        let hosts = self.ranks.hosts(context, head.ranks)?;
        let placed = self.ranks.note(context, &hosts);
        let parallelism = head.parallelism(hosts.len()).map_err(|problem| wrong((1, problem)))?;
        let of = Parallelism { gather_total: self.gather_total.unwrap_or(parallelism.gather_total), ..parallelism };
        let mut run = Run {
            transfers: Transfers::new(context, hosts),
            now: vec![Ready::default(); of.ranks],
            gradients: vec![Ready::default(); of.ranks],
            compute: self.compute,
            computation: Computation::of(of.ranks),
            of,
        };
        for _ in 0..self.iterations {
            run.iteration(&layers)?;
        }
        let job = run.transfers.job(self.iterations, std::mem::take(&mut run.computation));
        let mut notes = run.transfers.notes();
        let flows = run.transfers.flows;
        if flows.is_empty() {
            let problem = format!("no layer sends anything ({})", notes.join("; "));
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
            "SimAI workload {}: ranks on {}, {}, {}, {}, {} offered; computation {}",
            self.file,
            self.ranks.describe(of.ranks),
            quantity::count(layers.len(), "layer"),
            quantity::count(self.iterations as usize, "iteration"),
            quantity::count(flows.len(), "flow"),
            quantity::bytes(payload_bytes(&flows)),
            if self.compute { "takes the time that the file says" } else { "takes no time" },
        );
        notes.extend(placed);
        notes.extend(self.notes(&head, of, &layers));
        Ok(Draft { flows, description, notes, jobs: vec![job] })
    }

    /// What the reader of a result should know about the reading of the file.
    fn notes(&self, head: &Head, of: Parallelism, layers: &[Layer]) -> Vec<String> {
        let mut notes = vec![
            "a rank waits for all of its collectives before the next pass, except those of gradients of weights; \
             for these it waits at the end of an iteration"
                .to_owned(),
        ];
        if head.ranks.is_none() {
            notes.push(format!("the file does not say how many ranks it has; taken: {}; hosts= sets it", of.ranks));
        }
        if head.has_checkpoints {
            notes.push("the forward passes that checkpoints repeat are left out".to_owned());
        }
        let gathers = |pass: &Pass| pass.communication.as_ref().is_some_and(|it| it.what == Collective::AllGather);
        if layers.iter().any(|layer| [&layer.forward, &layer.input, &layer.weight].into_iter().any(gathers)) {
            let (means, other) =
                if of.gather_total { ("the whole result", "part") } else { ("the part of each rank", "total") };
            notes.push(format!("the size of an all-gather is taken as {means}; gather={other} is the other reading"));
        }
        notes
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
    computation: Computation,
    of: Parallelism,
}

impl Run<'_, '_> {
    /// Runs all layers forward, then backward. The collectives of gradients of weights run beside the passes that
    /// follow. SimAI and ASTRA-sim begin a layer with the gradients of inputs, unless ranks are only data-parallel.
    fn iteration(&mut self, layers: &[Layer]) -> Result<(), WorkloadError> {
        for layer in layers {
            self.pass(&layer.forward)?;
        }
        for layer in layers.iter().rev() {
            if self.of.policy != Policy::Data {
                self.pass(&layer.input)?;
            }
            self.compute(layer.weight.compute);
            if layer.weight.communication.is_some() {
                let done = self.communicate(&layer.weight)?;
                let ranks = self.gradients.iter_mut().zip(&done).zip(&self.now);
                // A rank without a collective has nothing to wait for.
                ranks.filter(|((_, one), now)| one != now).for_each(|((all, one), _)| all.merge(one));
            }
            if self.of.policy == Policy::Data {
                self.pass(&layer.input)?;
            }
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
            (0..self.of.ranks).for_each(|rank| self.computation.compute(rank, takes));
        }
    }

    fn pass(&mut self, pass: &Pass) -> Result<(), WorkloadError> {
        self.compute(pass.compute);
        self.now = self.communicate(pass)?;
        Ok(())
    }

    /// Adds the collective of a pass. Returns when each rank has finished it.
    fn communicate(&mut self, pass: &Pass) -> Result<Vec<Ready>, WorkloadError> {
        let Some(of) = &pass.communication else { return Ok(self.now.clone()) };
        let mut done = self.now.clone();
        for ranks in self.of.groups(of.group) {
            let members: Vec<u32> = ranks.iter().map(|&rank| rank as u32).collect();
            if of.bytes > 0 && ranks.len() > 1 {
                ranks.iter().for_each(|&rank| self.computation.transfer(rank));
            }
            let ready: Vec<Ready> = ranks.iter().map(|&rank| self.now[rank].clone()).collect();
            let is_total = of.what == Collective::AllGather && self.of.gather_total;
            let bytes = if is_total { of.bytes.div_ceil(ranks.len() as u64) } else { of.bytes };
            let after = self.transfers.collective(of.what, &members, &ready, bytes)?;
            ranks.into_iter().zip(after).for_each(|(rank, ready)| done[rank] = ready);
        }
        Ok(done)
    }
}

impl Head {
    /// The sizes of all groups, with this number of ranks.
    fn parallelism(self, ranks: usize) -> Result<Parallelism, String> {
        let Head { policy, gather_total, expert, .. } = self;
        let tensor = match policy {
            Policy::Hybrid => self.tensor.ok_or("has no `model_parallel_NPU_group:`")?,
            Policy::Data => 1,
            Policy::Model => ranks,
        };
        if !ranks.is_multiple_of(tensor * expert) {
            return Err(format!("{ranks} ranks are not a multiple of {tensor} (tensor) times {expert} (ep)"));
        }
        Ok(Parallelism { policy, gather_total, ranks, tensor, expert })
    }
}

impl Parallelism {
    /// The ranks of each group of a kind. Tensor-parallel ranks are neighbours. An expert group has `expert`
    /// neighbouring data-parallel ranks. There are none for a collective that the policy does not carry out.
    fn groups(&self, group: Group) -> Vec<Vec<usize>> {
        let is_carried_out = match self.policy {
            Policy::Hybrid => true,
            Policy::Data => group != Group::Tensor,
            Policy::Model => group != Group::Data,
        };
        if !is_carried_out {
            return Vec::new();
        }
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
fn read(text: &str) -> Result<(Head, Vec<Layer>), (usize, String)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line).trim()));
    let mut lines = lines.filter(|line| !line.1.is_empty());
    let (number, first) = lines.next().ok_or((1, "is empty; expected a workload of SimAI".to_owned()))?;
    let head = head(first).map_err(|problem| (number, problem))?;
    let (number, second) =
        lines.next().ok_or((number, "ends after the first line; expected the number of layers".to_owned()))?;
    let count = second.parse::<usize>().ok().filter(|&count| count <= 1_000_000);
    let count = count.ok_or_else(|| (number, format!("`{second}` is not a number of layers up to 1000000")))?;
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
        true => Ok((head, layers)),
        false => Err((last, format!("the file announces {count} layers and ends after {}", layers.len()))),
    }
}

fn head(line: &str) -> Result<Head, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = words.first().copied().unwrap_or_default();
    let known = POLICIES.map(|(known, ..)| known);
    let &(_, policy, gather_total) = POLICIES
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| format!("the parallelism `{name}` is not supported; expected {}", known.join(", ")))?;
    let value = |key: &str, least: usize| {
        let Some(place) = words.iter().position(|word| *word == key) else { return Ok(None) };
        let value = words.get(place + 1).ok_or_else(|| format!("ends after `{key}`"))?;
        let whole = value.parse::<usize>().ok().filter(|value| (least..=1_000_000).contains(value));
        whole.map(Some).ok_or_else(|| format!("{key} `{value}` is not a whole number from {least} to 1000000"))
    };
    let pipeline = value("pp:", 1)?.unwrap_or(1);
    if pipeline != 1 {
        return Err(format!("pp: {pipeline}: pipelines of several stages are not supported; expected pp: 1"));
    }
    Ok(Head {
        policy,
        gather_total,
        tensor: value("model_parallel_NPU_group:", 1)?,
        expert: value("ep:", 1)?.unwrap_or(1),
        ranks: value("all_gpus:", 1)?,
        has_checkpoints: value("checkpoints:", 0)?.unwrap_or(0) > 0,
    })
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
        Some(_) if bytes > 1 << 60 => Err(format!("{word} of {bytes} bytes; expected at most 2^60")),
        Some(what) => Ok(Some(Communication { what, group, bytes })),
        None => Ok(None),
    }
}
