//! ON-OFF sources, as in the OFPT (§6.1 B) and LESSOR (§5.1.2) papers.
//!
//! According to the papers, ON periods, OFF periods and intervals within ON periods follow three different log-normal
//! distributions, and flow sizes follow web search. They publish no parameter and no scale, so Pathloom chooses them.
//! Every host is a separate source. The standard deviation of each logarithm is [`SIGMA`]. The mean interval follows
//! from the load. The mean ON period has [`BURST_FLOWS`] intervals, and the mean OFF period is as long. So the
//! process keeps its shape if rates or sizes are scaled. The clock of intervals stops during OFF periods. Every host
//! starts at a random moment of a process that has always been running. This makes the expected load exact for any
//! duration.

use crate::error::{WorkloadError, MOST_FLOWS};
use crate::flow_spec::{Draft, Start};
use crate::generate::{payload_bytes, Context};
use crate::pattern::{Chooser, Pattern};
use crate::poisson::{achieved, nanos, note_on, WAY_OUT};
use crate::quantity;
use crate::random::{uniform, LogNormal};
use crate::size_spec::{take_load, SizeChoice, SizeSpec};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// Default standard deviation of the logarithms of ON period, OFF period and gap.
pub(crate) const SIGMA: f64 = 1.0;

/// Mean number of flows in an ON period, if `on=` is not given.
pub(crate) const BURST_FLOWS: f64 = 5.0;

/// Maximum number of periods over all hosts. More would take minutes to draw.
const MOST_PERIODS: f64 = 1e8;

/// Independent ON-OFF sources, one per host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OnOff {
    pub sizes: SizeSpec,
    load: f64,
    pattern: Pattern,
    on: Option<Nanos>,
    off: Option<Nanos>,
    sigma_on: f64,
    sigma_off: f64,
    sigma_gap: f64,
}

/// The distributions of one host.
struct Laws {
    on_s: f64,
    off_s: f64,
    gap_s: f64,
    on: LogNormal,
    off: LogNormal,
    gap: LogNormal,
}

impl OnOff {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<OnOff, SpecError> {
        let sizes = SizeSpec::take(spec, SizeChoice::take(spec)?)?;
        let period = |key: &'static str| match spec.time(key)? {
            Some(Nanos::ZERO) => Err(spec.error(format!("{key}: 0 is too short; expected a time such as 100ms"))),
            period => Ok(period),
        };
        // Above 3, values that are too rare for any run dominate the mean.
        let sigma = |key: &'static str| Ok::<f64, SpecError>(spec.number(key, 0.0, 3.0)?.unwrap_or(SIGMA));
        Ok(OnOff {
            sizes,
            load: take_load(spec)?,
            pattern: Pattern::take(spec, Pattern::Random)?,
            on: period("on")?,
            off: period("off")?,
            sigma_on: sigma("sigma_on")?,
            sigma_off: sigma("sigma_off")?,
            sigma_gap: sigma("sigma_gap")?,
        })
    }

    /// The flows.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let (table, mut notes) = self.sizes.table(context)?;
        self.pattern.check(&context.hosts).map_err(|problem| context.error(problem))?;
        let mut chooser = Chooser::new(self.pattern, &context.hosts, &mut context.rng("pattern"));
        let offered_bps = chooser.offered_bps().to_vec();
        let total_bps: f64 = offered_bps.iter().sum();
        let per_s = |bps: f64| self.load * bps / 8.0 / table.mean_bytes();
        context.refuse_too_many(per_s(total_bps) * context.duration_s(), WAY_OUT)?;
        let active = |&(_, &bps): &(usize, &f64)| bps > 0.0;
        let sources: Vec<(u32, Laws)> = offered_bps
            .iter()
            .enumerate()
            .filter(active)
            .map(|(src, &bps)| (src as u32, self.laws(per_s(bps))))
            .collect();
        let periods: f64 = sources.iter().map(|(_, laws)| context.duration_s() / (laws.on_s + laws.off_s)).sum();
        if periods > MOST_PERIODS {
            return Err(context.error(format!("on= and off= make about {periods:.1e} periods; raise them")));
        }
        let mut flows = Vec::new();
        for (src, laws) in &sources {
            let mut sizes = context.rng_of("on-off sizes", u64::from(*src));
            let mut to = context.rng_of("on-off destinations", u64::from(*src));
            for time in starts(laws, *src, context)? {
                let dst = chooser.next(*src, &context.hosts, &mut to);
                flows.push(context.flow(Start::At(time), (*src, dst), Some(table.draw(&mut sizes)), None));
            }
            context.refuse_too_many(flows.len() as f64, WAY_OUT)?;
        }
        notes.extend(note_on(self.pattern));
        notes.push("the papers publish no parameters of their ON-OFF sources; Pathloom chose these".to_owned());
        let description = format!(
            "sizes {}, mean {}; {} at load {}; {}; {}; {}",
            table.name(),
            quantity::bytes(table.mean_bytes()),
            self.describe(&sources),
            self.load,
            self.pattern.describe(&context.hosts),
            context.hosts.describe(),
            achieved(payload_bytes(&flows), flows.len(), total_bps, context),
        );
        Ok(Draft { flows, description, notes, ..Draft::default() })
    }

    fn describe(&self, sources: &[(u32, Laws)]) -> String {
        let range = |value: fn(&Laws) -> f64| {
            let values = || sources.iter().map(|(_, laws)| value(laws));
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            let [low_text, high_text] = [low, high].map(quantity::seconds);
            if high - low <= low * 1e-9 {
                low_text
            } else {
                format!("{low_text} to {high_text}")
            }
        };
        format!(
            "an ON-OFF source per host with log-normal ON periods (mean {}, sigma {}), OFF periods (mean {}, sigma {}) and \
             gaps between flows in ON time (mean {}, sigma {})",
            range(|laws| laws.on_s),
            self.sigma_on,
            range(|laws| laws.off_s),
            self.sigma_off,
            range(|laws| laws.gap_s),
            self.sigma_gap,
        )
    }

    /// The distributions of a host that starts `flows_per_s` flows per second on average.
    fn laws(&self, flows_per_s: f64) -> Laws {
        let given = |period: Option<Nanos>| period.map(Nanos::as_secs_f64);
        let half_s = BURST_FLOWS / 2.0 / flows_per_s;
        // If only one period is given, the other one is as long.
        let on_s = given(self.on.or(self.off)).unwrap_or(half_s);
        let off_s = given(self.off.or(self.on)).unwrap_or(half_s);
        let gap_s = on_s / (on_s + off_s) / flows_per_s;
        Laws {
            on_s,
            off_s,
            gap_s,
            on: LogNormal::with_mean(on_s, self.sigma_on),
            off: LogNormal::with_mean(off_s, self.sigma_off),
            gap: LogNormal::with_mean(gap_s, self.sigma_gap),
        }
    }
}

/// The times at which the flows of one host start.
fn starts(laws: &Laws, src: u32, context: &Context) -> Result<Vec<Nanos>, WorkloadError> {
    let mut rng = context.rng_of("on-off times", u64::from(src));
    let mut starts = Vec::new();
    let mut on = uniform(&mut rng) < laws.on_s / (laws.on_s + laws.off_s);
    let mut period = if on { laws.on.draw_rest(&mut rng) } else { laws.off.draw_rest(&mut rng) };
    let mut gap = laws.gap.draw_rest(&mut rng);
    let mut time_s = 0.0;
    loop {
        while on && gap <= period {
            time_s += gap;
            period -= gap;
            gap = laws.gap.draw(&mut rng);
            if nanos(time_s) >= context.duration {
                return Ok(starts);
            }
            starts.push(nanos(time_s));
            if starts.len() as u64 > MOST_FLOWS {
                context.refuse_too_many(starts.len() as f64, WAY_OUT)?;
            }
        }
        if on {
            gap -= period;
        }
        time_s += period;
        if nanos(time_s) >= context.duration {
            return Ok(starts);
        }
        on = !on;
        period = if on { laws.on.draw(&mut rng) } else { laws.off.draw(&mut rng) };
    }
}
