//! Traffic as specified on the command line.

use crate::collectives::{AllToAll, Moe, Reduction, ReductionKind, SingleRoot, SingleRootKind};
use crate::error::WorkloadError;
use crate::flow_csv::FlowFile;
use crate::flow_spec::{Draft, Workload};
use crate::foreign::chakra::{file_of_rank, ChakraTrace, MOST_RANKS};
use crate::foreign::coflow_trace::CoflowTrace;
use crate::foreign::simai::SimaiWorkload;
use crate::foreign::wrong_file;
use crate::fork::Fork;
use crate::generate::Context;
use crate::hosts::Hosts;
use crate::incast::Incast;
use crate::long_lived::LongLived;
use crate::names::traffic_names;
use crate::on_off::OnOff;
use crate::poisson::Poisson;
use crate::random;
use crate::size_spec::SizeChoice;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, Nanos};
use std::fmt;

/// A parsed traffic specification, such as `web-search:load=0.4,pattern=random`; [`traffic_names`] lists all kinds.
///
/// Several specifications joined by `+` run beside each other: `all-reduce:hosts=8+web-search:load=0.2`.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSpec {
    text: String,
    parts: Vec<TrafficPart>,
}

/// One of the specifications that [`TrafficSpec`] joins.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPart {
    text: String,
    kind: Kind,
}

/// The content of the files that a part of a specification names.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartFiles<'a> {
    /// The text of [`TrafficPart::needs_file`].
    pub text: Option<&'a str>,
    /// The content of [`TrafficPart::needs_traces`].
    pub traces: &'a [Vec<u8>],
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Poisson(Poisson),
    OnOff(OnOff),
    LongLived(LongLived),
    Incast(Incast),
    Reduction(Reduction),
    SingleRoot(SingleRoot),
    AllToAll(AllToAll),
    Moe(Moe),
    Coflow(CoflowTrace),
    Flows(FlowFile),
    Fork(Fork),
    Chakra(ChakraTrace),
    Simai(SimaiWorkload),
}

impl TrafficSpec {
    /// Reads a specification. Files are only named here, not read.
    pub fn parse(text: &str) -> Result<TrafficSpec, SpecError> {
        let parts = split_parts(text).into_iter().map(TrafficPart::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(TrafficSpec { text: text.trim().to_owned(), parts })
    }

    /// The specification as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The specifications that are joined, at least one.
    pub fn parts(&self) -> &[TrafficPart] {
        &self.parts
    }

    /// Generates the flows on `fabric` during `duration`: no start time is at or beyond it. The same arguments give
    /// the same flows. `file_text` is the text of [`TrafficPart::needs_file`] of the first part.
    pub fn generate(
        &self,
        fabric: &Fabric,
        duration: Nanos,
        seed: u64,
        file_text: Option<&str>,
    ) -> Result<Workload, WorkloadError> {
        self.generate_from(fabric, duration, seed, &[PartFiles { text: file_text, traces: &[] }])
    }

    /// As [`TrafficSpec::generate`], with the files of each part.
    ///
    /// The flows of the first part are the same as without the others. Coflows of a part follow those of the parts
    /// before it.
    pub fn generate_from(
        &self,
        fabric: &Fabric,
        duration: Nanos,
        seed: u64,
        files: &[PartFiles],
    ) -> Result<Workload, WorkloadError> {
        if duration == Nanos::ZERO {
            return Err(WorkloadError::NoDuration { spec: self.text.clone() });
        }
        let mut all = Draft::default();
        for (number, part) in self.parts.iter().enumerate() {
            let PartFiles { text: file_text, traces } = files.get(number).copied().unwrap_or_default();
            let own_seed = if number == 0 { seed } else { random::seed_of_part(seed, number as u64) };
            let (text, hosts) = (&part.text, Hosts::of(fabric));
            let context = Context { text, hosts, duration, seed: own_seed, shared_seed: seed, file_text, traces };
            all.append(part.draft(&context)?);
            context.refuse_too_many(all.flows.len() as f64, "leave a part out")?;
        }
        let hosts = Hosts::of(fabric);
        let context =
            Context { text: &self.text, hosts, duration, seed, shared_seed: seed, file_text: None, traces: &[] };
        context.finish(all)
    }
}

/// Splits a text at each `+` before another specification. A `+` in the name of a file stays.
fn split_parts(text: &str) -> Vec<&str> {
    let begins = |(place, _): &(usize, &str)| {
        let rest = text[place + 1..].trim_start();
        let length = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-').unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        match after.trim_start().chars().next() {
            Some(':') => !name.is_empty(),
            Some('+') | None => traffic_names().iter().any(|known| known.name == name),
            Some(_) => false,
        }
    };
    let mut parts = Vec::new();
    let mut from = 0;
    for (place, _) in text.match_indices('+').filter(begins) {
        parts.push(&text[from..place]);
        from = place + 1;
    }
    parts.push(&text[from..]);
    parts
}

impl TrafficPart {
    fn parse(text: &str) -> Result<TrafficPart, SpecError> {
        let spec = Spec::parse("traffic", text)?;
        let kind = match spec.name() {
            "on-off" => Kind::OnOff(OnOff::take(&spec)?),
            "long-lived" => Kind::LongLived(LongLived::take(&spec)?),
            "incast" => Kind::Incast(Incast::take(&spec)?),
            "all-reduce" => Kind::Reduction(Reduction::take(&spec, ReductionKind::AllReduce)?),
            "all-gather" => Kind::Reduction(Reduction::take(&spec, ReductionKind::AllGather)?),
            "reduce-scatter" => Kind::Reduction(Reduction::take(&spec, ReductionKind::ReduceScatter)?),
            "broadcast" => Kind::SingleRoot(SingleRoot::take(&spec, SingleRootKind::Broadcast)?),
            "reduce" => Kind::SingleRoot(SingleRoot::take(&spec, SingleRootKind::Reduce)?),
            "all-to-all" => Kind::AllToAll(AllToAll::take(&spec)?),
            "moe" => Kind::Moe(Moe::take(&spec)?),
            "coflow" => Kind::Coflow(CoflowTrace::take(&spec)?),
            "flows" => Kind::Flows(FlowFile::take(&spec)?),
            "fork" => Kind::Fork(Fork::take(&spec)?),
            "chakra" => Kind::Chakra(ChakraTrace::take(&spec)?),
            "simai" => Kind::Simai(SimaiWorkload::take(&spec)?),
            name => match SizeChoice::named(name) {
                Some(choice) => Kind::Poisson(Poisson::take(&spec, choice)?),
                None => {
                    if let Some(error) = wrong_file::file_as_name(&spec) {
                        return Err(error);
                    }
                    let names: Vec<&str> = traffic_names().iter().map(|traffic| traffic.name).collect();
                    return Err(spec.unknown_name(&names));
                }
            },
        };
        spec.finish()?;
        Ok(TrafficPart { text: spec.text().to_owned(), kind })
    }

    /// The specification as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file whose text [`TrafficSpec::generate_from`] needs, if there is one.
    pub fn needs_file(&self) -> Option<&str> {
        match &self.kind {
            Kind::Poisson(poisson) => poisson.sizes.file(),
            Kind::OnOff(on_off) => on_off.sizes.file(),
            Kind::Coflow(trace) => Some(&trace.file),
            Kind::Flows(flows) => Some(&flows.file),
            Kind::Fork(fork) => Some(&fork.file),
            Kind::Simai(workload) => Some(&workload.file),
            _ => None,
        }
    }

    /// The files whose content [`TrafficSpec::generate_from`] needs, in this order, up to the first file that does
    /// not exist. Empty except for traces with one file per rank.
    pub fn needs_traces(&self) -> impl Iterator<Item = String> + '_ {
        let first = if let Kind::Chakra(trace) = &self.kind { Some(&trace.file) } else { None };
        (0..MOST_RANKS).map_while(move |rank| file_of_rank(first?, rank))
    }

    /// The flows, which may refer to each other by their places in the draft.
    fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let mut draft = match &self.kind {
            Kind::Poisson(poisson) => poisson.draft(context),
            Kind::OnOff(on_off) => on_off.draft(context),
            Kind::LongLived(long_lived) => long_lived.draft(context),
            Kind::Incast(incast) => incast.draft(context),
            Kind::Reduction(reduction) => reduction.draft(context),
            Kind::SingleRoot(single_root) => single_root.draft(context),
            Kind::AllToAll(all_to_all) => all_to_all.draft(context),
            Kind::Moe(moe) => moe.draft(context),
            Kind::Coflow(trace) => trace.draft(context),
            Kind::Flows(flows) => flows.draft(context),
            Kind::Fork(fork) => fork.draft(context),
            Kind::Chakra(trace) => trace.draft(context),
            Kind::Simai(workload) => workload.draft(context),
        }?;
        if self.is_job() {
            draft.flows.iter_mut().for_each(|flow| flow.standing = true);
        }
        Ok(draft)
    }

    /// Whether the flows belong to one job whose hosts keep their connections ([`crate::FlowSpec::standing`]):
    /// collectives, traces of training, and connection matrices of htsim, whose connections stand from the start.
    fn is_job(&self) -> bool {
        match &self.kind {
            Kind::Reduction(_) | Kind::SingleRoot(_) | Kind::AllToAll(_) | Kind::Moe(_) => true,
            Kind::Chakra(_) | Kind::Simai(_) => true,
            Kind::Flows(flows) => flows.is_htsim_matrix(),
            Kind::Poisson(_)
            | Kind::OnOff(_)
            | Kind::LongLived(_)
            | Kind::Incast(_)
            | Kind::Coflow(_)
            | Kind::Fork(_) => false,
        }
    }
}

impl fmt::Display for TrafficSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
