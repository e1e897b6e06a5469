//! Flows that run from the start to the end.

use crate::error::WorkloadError;
use crate::flow_spec::Draft;
use crate::generate::{Context, LONG_LIVED_JITTER};
use crate::pattern::Pattern;
use crate::quantity;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// Long-lived flows over a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LongLived {
    pattern: Pattern,
    /// Flows per pair; for random patterns, per host.
    flows: u32,
    jitter: Nanos,
}

impl LongLived {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<LongLived, SpecError> {
        Ok(LongLived {
            pattern: Pattern::take(spec, Pattern::Stride(None))?,
            flows: spec.count("flows", 1, 10_000)?.unwrap_or(1) as u32,
            jitter: spec.time("jitter")?.unwrap_or(LONG_LIVED_JITTER),
        })
    }

    /// The flows.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        self.pattern.check(&context.hosts).map_err(|problem| context.error(problem))?;
        let count = self.pattern.pair_count(&context.hosts, self.flows);
        context.refuse_too_many(count, "choose another pattern, lower flows= or take a smaller fabric")?;
        let pairs = self.pattern.pairs(&context.hosts, self.flows, &mut context.rng("pattern"));
        let mut jitter = context.rng("jitter");
        let flow = |pair| context.flow(context.jittered(Nanos::ZERO, self.jitter, &mut jitter), pair, None, None);
        let flows: Vec<_> = pairs.into_iter().map(flow).collect();
        let times = if self.flows == 1 { String::new() } else { format!(", {} flows each", self.flows) };
        let description = format!(
            "long-lived flows: {}{times}; {}; {}, starting at random within {}",
            self.pattern.describe(&context.hosts),
            context.hosts.describe(),
            quantity::count(flows.len(), "flow"),
            quantity::time(self.jitter.min(context.duration)),
        );
        Ok(Draft { flows, description, ..Draft::default() })
    }
}
