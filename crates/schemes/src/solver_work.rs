//! The work of a solver's job, and the modelled time that it takes.

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Work done. An operation is one access to one link of one path, or to one flow in one pass of demand estimation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SolverWork {
    pub operations: u64,
    pub flows: u64,
}

impl SolverWork {
    /// An operation takes 20 ns: one or two memory accesses that miss the caches. The example `scale` of
    /// `pathloom-allocation` measures this for Hedera's placements at k=48. `placer cost` measures 12 ns (k=16, 10,000
    /// flows) to 35 ns (k=48, 100,000 flows) for rounds of the placer, with flows and links counted as in
    /// `router/job.rs`.
    const NS_PER_OPERATION: u64 = 20;
    /// Operations per flow that are assumed before the first job: some passes of estimation, a dozen paths of four
    /// links.
    const FIRST_GUESS: u64 = 64;

    /// Modelled time of a job for this many flows, with as many operations per flow as in the previous job. The work is
    /// known only when it is done, but the time must be charged when it begins.
    pub(crate) fn predicted_time(self, flows: u64) -> Nanos {
        let operations = match self.flows {
            0 => SolverWork::FIRST_GUESS.saturating_mul(flows),
            before => {
                let operations = u128::from(self.operations) * u128::from(flows) / u128::from(before);
                u64::try_from(operations).unwrap_or(u64::MAX)
            }
        };
        Nanos(operations.saturating_mul(SolverWork::NS_PER_OPERATION))
    }
}
