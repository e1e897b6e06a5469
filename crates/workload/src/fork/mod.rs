//! Traffic of a fork of the twin: flows that are under way continue, and new ones arrive as before the fork.
//!
//! What is not known of a flow under way is drawn: if nobody announced its size, the size is drawn from the sizes of all
//! flows that are larger than what it has sent. New flows arrive in batches. The number of flows in a batch is geometric,
//! so that the index of dispersion of counts is twice its mean, less 1 (Daley and Vere-Jones, An Introduction to the
//! Theory of Point Processes, 2003, §2.1: compound Poisson processes).

mod document;

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, FlowSpec, Start, UnderWay};
use crate::foreign::wrong_file::take_file;
use crate::generate::{payload_bytes, Context, LONG_LIVED_JITTER};
use crate::poisson::nanos;
use crate::quantity;
use crate::random::{exponential, uniform};
use crate::sizes::{SizeTable, MOST_BYTES};
use document::{pair, Document};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use rand_pcg::Pcg64;

/// A file of the twin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fork {
    pub file: String,
    load: f64,
}

impl Fork {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<Fork, SpecError> {
        let file = take_file(spec, "now.plf")?;
        Ok(Fork { file, load: spec.number("load", 0.0, 100.0)?.unwrap_or(1.0) })
    }

    /// The flows: first those under way, which start within the first millisecond, then the arrivals.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let wrong = |problem| WorkloadError::File { file: self.file.clone(), problem };
        let document = document::read(context.text_of_file(&self.file)?).map_err(wrong)?;
        let arrivals = document.arrivals.flows_per_s * self.load * context.duration_s();
        context.refuse_too_many(document.flows.len() as f64 + arrivals, "lower load= or the duration")?;
        let mut flows = under_way(&document, context).map_err(wrong)?;
        let count = flows.len();
        flows.extend(self.arrivals(&document, context).map_err(wrong)?);
        let description = format!(
            "fork {}: {} under way, {} arrive in {} at {} times the rate before the fork; {} left to send; {}",
            self.file,
            quantity::count(count, "flow"),
            flows.len() - count,
            quantity::time(context.duration),
            self.load,
            quantity::bytes(payload_bytes(&flows)),
            context.hosts.describe(),
        );
        Ok(Draft { flows, description, ..Draft::default() })
    }

    /// Flows that arrive after those under way have started.
    fn arrivals(&self, document: &Document, context: &Context) -> Result<Vec<FlowSpec>, String> {
        let arrivals = &document.arrivals;
        let mut flows = Vec::new();
        if arrivals.flows_per_s * self.load <= 0.0 {
            return Ok(flows);
        }
        let table = arrivals.table()?;
        let ends = [&arrivals.pairs.src[..], &arrivals.pairs.dst[..]];
        let all = 0..arrivals.pairs.src.len();
        let pairs =
            all.map(|place| pair("arrivals.pairs", place, ends, &context.hosts)).collect::<Result<Vec<_>, _>>()?;
        let cumulative = cumulative(&arrivals.pairs.share);
        let batches_per_s = arrivals.flows_per_s * self.load / arrivals.batch_flows;
        let (mut gaps, mut counts) = (context.rng("gaps"), context.rng("batches"));
        let (mut places, mut sizes, mut spread) = (context.rng("pairs"), context.rng("sizes"), context.rng("spread"));
        let mut time_s = LONG_LIVED_JITTER.as_secs_f64();
        loop {
            time_s += exponential(&mut gaps) / batches_per_s;
            if nanos(time_s) >= context.duration {
                return Ok(flows);
            }
            for _ in 0..geometric(arrivals.batch_flows, &mut counts) {
                let start = nanos(time_s + arrivals.batch_s * uniform(&mut spread));
                let (between, size) = (pairs[draw(&cumulative, &mut places)], table.draw(&mut sizes));
                if start < context.duration {
                    flows.push(context.flow(Start::At(start), between, Some(size), None));
                }
            }
        }
    }
}

/// The flows under way.
fn under_way(document: &Document, context: &Context) -> Result<Vec<FlowSpec>, String> {
    let flows = &document.flows;
    if flows.len() == 0 {
        return Ok(Vec::new());
    }
    let needs_table = (0..flows.len()).any(|place| flows.size_bytes[place].is_none() && !flows.endless[place]);
    let table = needs_table.then(|| document.arrivals.table()).transpose()?;
    let (mut jitter, mut rest) = (context.rng("jitter"), context.rng("rest"));
    let mut specs = Vec::with_capacity(flows.len());
    for place in 0..flows.len() {
        let between = pair("flows", place, [&flows.src, &flows.dst], &context.hosts)?;
        let start = context.jittered(Nanos::ZERO, LONG_LIVED_JITTER, &mut jitter);
        // Every flow takes one number, so that what is known of one flow changes no other.
        let (u, sent_bytes) = (uniform(&mut rest), flows.sent_bytes[place]);
        let whole_bytes = match (flows.size_bytes[place], &table) {
            (Some(size), _) => size,
            (None, Some(table)) => size_beyond(table, document.arrivals.sizes.tail_exponent, sent_bytes, u),
            (None, None) => u64::MAX,
        };
        let left_bytes = (!flows.endless[place]).then(|| whole_bytes.saturating_sub(sent_bytes).max(1));
        let state = UnderWay {
            window_bytes: flows.window_bytes[place].max(1),
            slow_start: flows.slow_start[place],
            rate_bps: flows.rate_bps[place].max(1),
            path: flows.path(place, context.hosts.fabric())?,
        };
        let flow = context.flow(start, between, left_bytes, None);
        specs.push(FlowSpec { under_way: Some(Box::new(state)), ..flow });
    }
    Ok(specs)
}

/// The size of a flow that has sent `sent_bytes` and goes on, at the quantile `u` of all larger flows.
fn size_beyond(table: &SizeTable, tail_exponent: f64, sent_bytes: u64, u: f64) -> u64 {
    let below = table.share_at_most(sent_bytes as f64);
    let size = if below < 1.0 {
        table.quantile_bytes(below + u * (1.0 - below)) as f64
    } else {
        // Pareto: beyond any size, the sizes have the same form again.
        sent_bytes as f64 * libm::pow(1.0 - u, -1.0 / tail_exponent)
    };
    (size.min(MOST_BYTES) as u64).max(sent_bytes.saturating_add(1))
}

/// Geometric from 1 on, with this mean.
fn geometric(mean: f64, rng: &mut Pcg64) -> u64 {
    let u = uniform(rng);
    if mean <= 1.0 {
        return 1;
    }
    1 + (libm::log(1.0 - u) / libm::log(1.0 - 1.0 / mean)) as u64
}

/// Sums of the weights up to each of them.
fn cumulative(weights: &[f64]) -> Vec<f64> {
    let add = |sum: &mut f64, weight: &f64| {
        *sum += weight;
        Some(*sum)
    };
    weights.iter().scan(0.0, add).collect()
}

/// The place of a weight, drawn in proportion to the weights. At least one is above 0.
fn draw(cumulative: &[f64], rng: &mut Pcg64) -> usize {
    let total = cumulative[cumulative.len() - 1];
    let aim = uniform(rng) * total;
    // Because of rounding, the product may be the total itself.
    cumulative.partition_point(|&sum| sum <= aim).min(cumulative.partition_point(|&sum| sum < total))
}

#[cfg(test)]
mod tests;
