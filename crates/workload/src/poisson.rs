//! Poisson arrivals of flows with sizes from a table.

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::{payload_bytes, Context};
use crate::pattern::{Chooser, Pattern};
use crate::quantity;
use crate::random::{exponential, uniform};
use crate::size_spec::{take_load, SizeChoice, SizeSpec};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::NS_PER_S;
use pathloom_model::Nanos;
use rand_pcg::Pcg64;

/// What to change if there are too many flows.
pub(crate) const WAY_OUT: &str = "lower load= or the duration, or raise scale=";

/// One Poisson process over the whole network. The source of a flow is drawn in proportion to the offered loads of
/// the hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Poisson {
    pub sizes: SizeSpec,
    load: f64,
    pattern: Pattern,
}

impl Poisson {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec, choice: SizeChoice) -> Result<Poisson, SpecError> {
        let load = take_load(spec)?;
        Ok(Poisson { sizes: SizeSpec::take(spec, choice)?, load, pattern: Pattern::take(spec, Pattern::Random)? })
    }

    /// The flows.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let (table, mut notes) = self.sizes.table(context)?;
        self.pattern.check(&context.hosts).map_err(|problem| context.error(problem))?;
        let mut chooser = Chooser::new(self.pattern, &context.hosts, &mut context.rng("pattern"));
        let total_bps: f64 = chooser.offered_bps().iter().sum();
        let flows_per_s = self.load * total_bps / 8.0 / table.mean_bytes();
        context.refuse_too_many(flows_per_s * context.duration_s(), WAY_OUT)?;
        let sources = Sources::new(chooser.offered_bps());
        let (mut gaps, mut sizes) = (context.rng("gaps"), context.rng("sizes"));
        let (mut from, mut to) = (context.rng("sources"), context.rng("destinations"));
        let (mut flows, mut time_s) = (Vec::new(), 0.0);
        loop {
            time_s += exponential(&mut gaps) / flows_per_s;
            let time = nanos(time_s);
            if time >= context.duration {
                break;
            }
            let src = sources.draw(&mut from);
            let dst = chooser.next(src, &context.hosts, &mut to);
            flows.push(context.flow(Start::At(time), (src, dst), Some(table.draw(&mut sizes)), None));
        }
        notes.extend(note_on(self.pattern));
        let description = format!(
            "sizes {}, mean {}; Poisson arrivals over the whole network, {} flows/s at load {}; {}; {}; {}",
            table.name(),
            quantity::bytes(table.mean_bytes()),
            quantity::number(flows_per_s),
            self.load,
            self.pattern.describe(&context.hosts),
            context.hosts.describe(),
            achieved(payload_bytes(&flows), flows.len(), total_bps, context),
        );
        Ok(Draft { flows, description, notes, ..Draft::default() })
    }
}

/// A note on the meaning of load, for patterns where it is not obvious.
pub(crate) fn note_on(pattern: Pattern) -> Option<String> {
    match pattern {
        Pattern::Incast => Some("load is that of the receiver's access link; all senders share it".to_owned()),
        Pattern::Unconstrained => Some(
            "load is per pair: a host in n pairs offers n times the load, a host in no pair offers nothing".to_owned(),
        ),
        _ => None,
    }
}

/// The result as text, such as `1753 flows, 3 GB offered, load achieved 0.41`.
pub(crate) fn achieved(payload_bytes: f64, flows: usize, total_bps: f64, context: &Context) -> String {
    format!(
        "{} in {}, {} offered, load achieved {}",
        quantity::count(flows, "flow"),
        quantity::time(context.duration),
        quantity::bytes(payload_bytes),
        quantity::number(payload_bytes * 8.0 / (total_bps * context.duration_s())),
    )
}

/// Converts seconds to nanoseconds, rounded, at most [`Nanos::MAX`].
pub(crate) fn nanos(time_s: f64) -> Nanos {
    Nanos((time_s * NS_PER_S as f64).round() as u64)
}

/// Draws sources in proportion to their offered loads.
struct Sources {
    /// Sum of the offered loads of hosts 0 to i.
    cumulative: Vec<f64>,
}

impl Sources {
    fn new(offered_bps: &[f64]) -> Sources {
        let mut sum = 0.0;
        let add = |&offered: &f64| {
            sum += offered;
            sum
        };
        Sources { cumulative: offered_bps.iter().map(add).collect() }
    }

    /// A random host with an offered load.
    fn draw(&self, rng: &mut Pcg64) -> u32 {
        let total = self.cumulative[self.cumulative.len() - 1];
        let aim = uniform(rng) * total;
        // Because of rounding, the product may be the total itself. Then the last host with an offered load is
        // returned.
        let host = self.cumulative.partition_point(|&sum| sum <= aim);
        host.min(self.cumulative.partition_point(|&sum| sum < total)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::seeded;

    #[test]
    fn sources_are_drawn_in_proportion_to_their_loads() {
        let offered = [0.0, 3.0, 0.0, 1.0, 0.0];
        let sources = Sources::new(&offered);
        let mut rng = seeded(1, "test", 0);
        let mut counts = [0u32; 5];
        (0..40_000).for_each(|_| counts[sources.draw(&mut rng) as usize] += 1);
        assert_eq!((counts[0], counts[2], counts[4]), (0, 0, 0));
        assert!((f64::from(counts[1]) / 40_000.0 - 0.75).abs() < 0.01, "{counts:?}");
    }
}
