//! Incast: many hosts answer one host at the same time.

use crate::error::WorkloadError;
use crate::flow_spec::Draft;
use crate::generate::{Context, SYNCHRONISED_JITTER};
use crate::quantity;
use crate::random::{below, distinct};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// Default number of senders. If there are fewer other hosts, all of them send.
const SENDERS: u32 = 16;

/// Default number of bytes from each sender: the server request unit of the incast literature (Phanishayee et al.,
/// FAST 2008).
const SIZE_BYTES: u64 = 256_000;

/// One incast, or one per period.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Incast {
    senders: Option<u32>,
    size_bytes: u64,
    period: Option<Nanos>,
    receiver: Option<String>,
    jitter: Nanos,
}

impl Incast {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<Incast, SpecError> {
        let period = spec.time("period")?;
        if period == Some(Nanos::ZERO) {
            return Err(spec.error("period: 0 is too short; expected a time such as 100ms"));
        }
        Ok(Incast {
            senders: spec.count("senders", 1, u64::from(u32::MAX))?.map(|senders| senders as u32),
            size_bytes: spec.size_bytes("size")?.unwrap_or(SIZE_BYTES),
            period,
            receiver: spec.text_of("receiver").map(str::to_owned),
            jitter: spec.time("jitter")?.unwrap_or(SYNCHRONISED_JITTER),
        })
    }

    /// The flows. The coflow of each is the number of its incast.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let others = context.hosts.len() - 1;
        let senders = match self.senders {
            None => SENDERS.min(others),
            Some(senders) if senders <= others => senders,
            Some(senders) => {
                return Err(
                    context.error(format!("senders={senders} is more than the {others} hosts beside the receiver"))
                )
            }
        };
        let receiver = match &self.receiver {
            None => None,
            Some(name) => {
                Some(context.hosts.find(name).map_err(|problem| context.error(format!("receiver: {problem}")))?)
            }
        };
        let events = self.period.map_or(1, |period| context.duration.0.div_ceil(period.0));
        context
            .refuse_too_many(events as f64 * f64::from(senders), "raise period=, or lower senders= or the duration")?;
        let mut flows = Vec::new();
        for event in 0..events {
            let mut rng = context.rng_of("incast", event);
            let dst = receiver.unwrap_or_else(|| below(&mut rng, context.hosts.len()));
            let from = Nanos(event * self.period.map_or(0, |period| period.0));
            for drawn in distinct(&mut rng, senders, others) {
                let src = drawn + u32::from(drawn >= dst);
                let start = context.jittered(from, self.jitter, &mut rng);
                flows.push(context.flow(start, (src, dst), Some(self.size_bytes), Some(event as u32)));
            }
        }
        let description = format!(
            "incast of {senders} random senders, {} each, to {}, {}, starting at random within {}; {}; {}",
            quantity::bytes(self.size_bytes as f64),
            receiver.map_or("a random host".to_owned(), |receiver| context.hosts.name(receiver).to_owned()),
            self.period.map_or("once".to_owned(), |period| format!("every {}", quantity::time(period))),
            quantity::time(self.jitter),
            context.hosts.describe(),
            quantity::count(flows.len(), "flow"),
        );
        Ok(Draft { flows, description, ..Draft::default() })
    }
}
