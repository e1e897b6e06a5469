//! Traffic as specified on the command line.

use crate::collective::{AllReduce, AllToAll};
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
use crate::size_csv;
use crate::sizes::SizeTable;
use crate::tables::PUBLISHED;
use pathloom_model::spec::{nearest, Spec, SpecError};
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
    AllReduce(AllReduce),
    AllToAll(AllToAll),
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
            "all-reduce" => Kind::AllReduce(AllReduce::take(&spec)?),
            "all-to-all" => Kind::AllToAll(AllToAll::take(&spec)?),
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
            Kind::LongLived(_) | Kind::Incast(_) | Kind::AllReduce(_) | Kind::AllToAll(_) | Kind::Chakra(_) => None,
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
            Kind::AllReduce(all_reduce) => all_reduce.draft(&context),
            Kind::AllToAll(all_to_all) => all_to_all.draft(&context),
            Kind::Coflow(trace) => trace.draft(&context),
            Kind::Flows(flows) => flows.draft(&context),
            Kind::Chakra(trace) => trace.draft(&context),
            Kind::Simai(workload) => workload.draft(&context),
        }?;
        context.finish(draft)
    }
}

impl fmt::Display for TrafficSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The flow sizes of a specification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SizeSpec {
    choice: SizeChoice,
    scale: f64,
    most_bytes: Option<u64>,
}

/// A published table by name, or a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SizeChoice {
    Published(&'static str),
    File(String),
}

impl SizeChoice {
    /// A published table or a name that ends in `.csv`.
    pub fn named(name: &str) -> Option<SizeChoice> {
        let file = || name.to_ascii_lowercase().ends_with(".csv").then(|| SizeChoice::File(name.to_owned()));
        let published = PUBLISHED.iter().find(|table| table.name == name);
        published.map(|table| SizeChoice::Published(table.name)).or_else(file)
    }

    /// Reads `sizes=` from a specification; the default is web search.
    pub fn take(spec: &Spec) -> Result<SizeChoice, SpecError> {
        let Some(text) = spec.text_of("sizes") else { return Ok(SizeChoice::Published(PUBLISHED[0].name)) };
        SizeChoice::named(text).ok_or_else(|| {
            let names = PUBLISHED.map(|table| table.name);
            let hint = nearest(text, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            spec.error(format!("sizes: `{text}` is not one of {} or a FILE.csv{hint}", names.join(", ")))
        })
    }
}

impl SizeSpec {
    /// Reads `scale=` and `max_size=` from a specification.
    pub fn take(spec: &Spec, choice: SizeChoice) -> Result<SizeSpec, SpecError> {
        let scale = spec.number("scale", 1e-6, 1e6)?.unwrap_or(1.0);
        Ok(SizeSpec { choice, scale, most_bytes: spec.size_bytes("max_size")? })
    }

    fn file(&self) -> Option<&str> {
        match &self.choice {
            SizeChoice::Published(_) => None,
            SizeChoice::File(file) => Some(file),
        }
    }

    /// The table, and notes on it.
    pub fn table(&self, context: &Context) -> Result<(SizeTable, Vec<String>), WorkloadError> {
        let (table, note) = match &self.choice {
            SizeChoice::File(file) => size_csv::parse(file, context.text_of_file(file)?)?,
            SizeChoice::Published(name) => match SizeTable::published(name) {
                Some(table) => (table, None),
                None => return Err(context.error(format!("no size table is called `{name}`"))),
            },
        };
        let table = if self.scale == 1.0 { table } else { table.scaled(self.scale) };
        let table = self.most_bytes.into_iter().fold(table, SizeTable::cut_at);
        Ok((table, note.into_iter().collect()))
    }
}

/// Reads `load=` from a specification: offered payload per host / access rate.
pub(crate) fn take_load(spec: &Spec) -> Result<f64, SpecError> {
    Ok(spec.number("load", 0.0001, 10.0)?.unwrap_or(0.4))
}

/// Reads `file=`, which is required, from a specification. Unsupported files of other tools are refused.
pub(crate) fn take_file(spec: &Spec, example: &str) -> Result<String, SpecError> {
    let missing = || spec.error(format!("names no file; expected file=, such as {}:file={example}", spec.name()));
    let file = spec.text_of("file").ok_or_else(missing)?;
    wrong_file::check_file(spec, file)?;
    Ok(file.to_owned())
}
