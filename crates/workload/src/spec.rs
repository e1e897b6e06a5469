//! Traffic as specified on the command line.

use crate::collectives::{AllToAll, Moe, Reduction, ReductionKind, SingleRoot, SingleRootKind};
use crate::error::WorkloadError;
use crate::flow_csv::FlowFile;
use crate::flow_spec::Workload;
use crate::foreign::chakra::{file_of_rank, ChakraTrace, MOST_RANKS};
use crate::foreign::coflow_trace::CoflowTrace;
use crate::foreign::simai::SimaiWorkload;
use crate::foreign::wrong_file;
use crate::generate::Context;
use crate::hosts::Hosts;
use crate::incast::Incast;
use crate::long_lived::LongLived;
use crate::names::traffic_names;
use crate::on_off::OnOff;
use crate::poisson::Poisson;
use crate::size_spec::SizeChoice;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, Nanos};
use std::fmt;

/// A parsed traffic specification, such as `web-search:load=0.4,pattern=random`; [`traffic_names`] lists all kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSpec {
    text: String,
    kind: Kind,
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
    Chakra(ChakraTrace),
    Simai(SimaiWorkload),
}

impl TrafficSpec {
    /// Reads a specification. Files are only named here, not read.
    pub fn parse(text: &str) -> Result<TrafficSpec, SpecError> {
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
        Ok(TrafficSpec { text: spec.text().to_owned(), kind })
    }

    /// The specification as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file whose text [`TrafficSpec::generate`] needs, if there is one.
    pub fn needs_file(&self) -> Option<&str> {
        match &self.kind {
            Kind::Poisson(poisson) => poisson.sizes.file(),
            Kind::OnOff(on_off) => on_off.sizes.file(),
            Kind::Coflow(trace) => Some(&trace.file),
            Kind::Flows(flows) => Some(&flows.file),
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

    /// Whether all flows run to the end of the run (`long-lived:`). A `flows:` file may also have such flows; only
    /// the flows themselves show it.
    pub fn is_long_lived(&self) -> bool {
        matches!(self.kind, Kind::LongLived(_))
    }

    /// Generates the flows on `fabric` during `duration`: no start time is at or beyond it. The same arguments give
    /// the same flows. `file_text` is the text of [`TrafficSpec::needs_file`].
    pub fn generate(
        &self,
        fabric: &Fabric,
        duration: Nanos,
        seed: u64,
        file_text: Option<&str>,
    ) -> Result<Workload, WorkloadError> {
        self.generate_from(fabric, duration, seed, (file_text, &[]))
    }

    /// As [`TrafficSpec::generate`], also with the content of [`TrafficSpec::needs_traces`].
    pub fn generate_from(
        &self,
        fabric: &Fabric,
        duration: Nanos,
        seed: u64,
        (file_text, traces): (Option<&str>, &[Vec<u8>]),
    ) -> Result<Workload, WorkloadError> {
        if duration == Nanos::ZERO {
            return Err(WorkloadError::NoDuration { spec: self.text.clone() });
        }
        let context = Context { text: &self.text, hosts: Hosts::of(fabric), duration, seed, file_text, traces };
        let draft = match &self.kind {
            Kind::Poisson(poisson) => poisson.draft(&context),
            Kind::OnOff(on_off) => on_off.draft(&context),
            Kind::LongLived(long_lived) => long_lived.draft(&context),
            Kind::Incast(incast) => incast.draft(&context),
            Kind::Reduction(reduction) => reduction.draft(&context),
            Kind::SingleRoot(single_root) => single_root.draft(&context),
            Kind::AllToAll(all_to_all) => all_to_all.draft(&context),
            Kind::Moe(moe) => moe.draft(&context),
            Kind::Coflow(trace) => trace.draft(&context),
            Kind::Flows(flows) => flows.draft(&context),
            Kind::Chakra(trace) => trace.draft(&context),
            Kind::Simai(workload) => workload.draft(&context),
        }?;
        let mut workload = context.finish(draft)?;
        if self.is_job() {
            workload.flows.iter_mut().for_each(|flow| flow.standing = true);
        }
        Ok(workload)
    }

    /// Whether the flows belong to one job whose hosts keep their connections ([`crate::FlowSpec::standing`]):
    /// collectives, traces of training, and connection matrices of htsim, whose connections stand from the start.
    fn is_job(&self) -> bool {
        match &self.kind {
            Kind::Reduction(_) | Kind::SingleRoot(_) | Kind::AllToAll(_) | Kind::Moe(_) => true,
            Kind::Chakra(_) | Kind::Simai(_) => true,
            Kind::Flows(flows) => flows.is_htsim_matrix(),
            Kind::Poisson(_) | Kind::OnOff(_) | Kind::LongLived(_) | Kind::Incast(_) | Kind::Coflow(_) => false,
        }
    }
}

impl fmt::Display for TrafficSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
