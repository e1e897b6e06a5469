//! Whether rates have settled, from readings of two windows that follow each other.

use super::readings::{FlowReading, Reading, WINDOW};
use crate::link::LinkCounts;
use crate::subflow::Subflow;
use crate::time::{to_ps, Ps};
use crate::transfers::Work;
use pathloom_model::Nanos;
use std::collections::BTreeMap;

/// Largest standard error of the rate of a flow, as a share of it. It follows from the rates in quarters of both windows.
const MOST_ERROR: f64 = 0.03;
/// The same for the mean over all flows, weighted by their bytes.
const MOST_MEAN_ERROR: f64 = 0.01;
/// Most by which the bytes of all flows may differ between the windows, as a share. The noise of flows cancels out, so more
/// than this is a trend.
const MOST_OF_SUM: f64 = 0.005;
/// The same for a link, whose noise does not cancel out.
const MOST_OF_LINK: f64 = 0.05;
/// Readings from one quarter to the next.
const QUARTER: usize = WINDOW / 2;
/// Most by which the mean congestion window of a flow may differ between the windows, as a share.
const MOST_OF_WINDOW: f64 = 0.25;
/// Least number of time-outs of a flow in each window, if it has waited for them for more than [`MOST_MEAN_ERROR`] of the
/// time: fewer say little of how often they come.
const LEAST_TIMEOUTS: u32 = 3;
/// Least number of falls of a congestion window in each window, unless it does not move at all. The window of a flow that
/// only grows has not settled, even if its rate has.
const LEAST_FALLS: usize = 2;
/// A congestion window that moves by less than this many bytes does not move.
const STILL_BYTES: u64 = 1500;
/// Room in a congestion window, in bytes, from which on something else limits the flow: its card, or the receive window.
const ROOM_BYTES: u64 = 3000;
/// Bytes by which a link may differ between the windows beside its share: some frames more or less at the ends.
const FRAMES_BYTES: f64 = 16.0 * 1514.0;

/// What a flow does in the time of [`Steady::span`].
pub(super) struct FlowRate {
    pub(super) slot: u32,
    pub(super) use_count: u32,
    pub(super) provided_bps: Option<u64>,
    pub(super) bytes: u64,
    pub(super) work: Work,
}

impl FlowRate {
    /// Whether this is what the subflow in its slot still does, as far as nothing but packets changes it.
    pub(super) fn still_holds(&self, subflow: &Subflow) -> bool {
        subflow.use_count == self.use_count && !subflow.closed && subflow.sender.provided_bps() == self.provided_bps
    }

    /// Frames of data and their bytes, and frames of acknowledgements and theirs, in `work` with headers of this length. A
    /// segment that was sent again has the mean length, and acknowledgements have no options.
    pub(super) fn frames(work: &Work, header_bytes: u32) -> [[u64; 2]; 2] {
        let (header, segments, again) =
            (u64::from(header_bytes), u64::from(work.segments), u64::from(work.retransmits));
        let data = segments + again;
        let acks = work.packets.saturating_sub(data);
        let payload = work.delivered_bytes + again * (work.delivered_bytes / segments.max(1));
        [[data, payload + data * header], [acks, acks * header]]
    }
}

/// Settled rates of all flows and links.
pub(super) struct Steady {
    /// Time in which the counts were made: both windows.
    pub(super) span: Ps,
    pub(super) flows: Vec<FlowRate>,
    /// Bytes of connections of several subflows, by transfer.
    pub(super) connections: Vec<(u32, u64)>,
    /// By link of the fabric.
    pub(super) links: Vec<LinkCounts>,
}

impl Steady {
    /// The rates of two windows, whose readings these are: twice [`WINDOW`] and one more, of the same flows.
    ///
    /// # Errors
    /// What has not settled.
    pub(super) fn find(readings: &[Reading]) -> Result<Steady, &'static str> {
        let [first, middle, last] = [0, WINDOW, 2 * WINDOW].map(|place| &readings[place]);
        if first.rare != last.rare {
            return Err("switches drop or copy packets");
        }
        let mut transfers: BTreeMap<u32, [f64; 4]> = BTreeMap::new();
        for place in 0..last.flows.len() {
            let history: Vec<&FlowReading> = readings.iter().map(|reading| &reading.flows[place]).collect();
            check_flow(&history, last.at - first.at)?;
            let sums = transfers.entry(last.flows[place].transfer).or_default();
            sums.iter_mut().zip(bytes_of(&history)).for_each(|(sum, bytes)| *sum += bytes);
        }
        check_rates(&transfers)?;
        let mut links = Vec::with_capacity(last.links.len());
        for ((one, two), three) in first.links.iter().zip(&middle.links).zip(&last.links) {
            let [before, after] = [(two.bytes - one.bytes) as f64, (three.bytes - two.bytes) as f64];
            if (after - before).abs() > MOST_OF_LINK * before.max(after) + FRAMES_BYTES {
                return Err("the rates of links had not settled");
            }
            links.push(three.since(one));
        }
        let rate = |(one, three): (&FlowReading, &FlowReading)| FlowRate {
            slot: three.slot,
            use_count: three.use_count,
            provided_bps: three.provided_bps,
            bytes: three.acked_bytes - one.acked_bytes,
            work: three.work.combine(&one.work, u64::saturating_sub),
        };
        let flows = first.flows.iter().zip(&last.flows).map(rate).collect();
        let known: BTreeMap<u32, u64> = first.connections.iter().copied().collect();
        let grown = |&(transfer, bytes): &(u32, u64)| Some((transfer, bytes.checked_sub(*known.get(&transfer)?)?));
        let connections: Option<Vec<(u32, u64)>> = last.connections.iter().map(grown).collect();
        let connections = connections.ok_or("connections still began")?;
        Ok(Steady { span: last.at - first.at, flows, connections, links })
    }

    /// A count of the span, scaled to `time` and rounded down.
    pub(super) fn scaled(&self, count: u64, time: Ps) -> u64 {
        let scaled = u128::from(count) * u128::from(time) / u128::from(self.span.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// The mean of some independent numbers, and its standard error.
fn mean_and_error(of: &[f64; 4]) -> [f64; 2] {
    let count = of.len() as f64;
    let mean = of.iter().sum::<f64>() / count;
    let squares: f64 = of.iter().map(|one| (one - mean) * (one - mean)).sum();
    [mean, (squares / (count - 1.0) / count).sqrt()]
}

/// Time-outs of a flow, and the time that it waited for them.
struct TimeOuts {
    count: u32,
    waited: Nanos,
}

impl TimeOuts {
    fn between(from: &Work, to: &Work) -> TimeOuts {
        let all = |work: &Work| work.timeout_wait.initial + work.timeout_wait.sampled;
        TimeOuts { count: to.timeouts - from.timeouts, waited: all(to).saturating_sub(all(from)) }
    }
}

/// The bytes of a flow in the quarters of the two windows.
fn bytes_of(history: &[&FlowReading]) -> [f64; 4] {
    [0, 1, 2, 3].map(|quarter| {
        let [from, to] = [quarter, quarter + 1].map(|place| history[place * QUARTER].acked_bytes);
        (to - from) as f64
    })
}

/// Checks the bytes of transfers in the quarters of the two windows.
fn check_rates(transfers: &BTreeMap<u32, [f64; 4]>) -> Result<(), &'static str> {
    let (mut error, mut sum, mut whole) = (0.0, 0.0, 0.0);
    for bytes in transfers.values() {
        if bytes.contains(&0.0) {
            return Err("some flows got nothing for a while");
        }
        let [mean, error_of_one] = mean_and_error(bytes);
        if error_of_one > MOST_ERROR * mean {
            return Err("the rates of flows had not settled");
        }
        error += error_of_one;
        sum += (bytes[2] + bytes[3] - bytes[0] - bytes[1]) / 2.0;
        whole += mean;
    }
    if error > MOST_MEAN_ERROR * whole || sum.abs() > MOST_OF_SUM * whole {
        return Err("the rates of flows had not settled");
    }
    Ok(())
}

/// Checks that nothing but its rate speaks against a flow that has settled.
fn check_flow(history: &[&FlowReading], span: Ps) -> Result<(), &'static str> {
    let [first, middle, last] = [0, WINDOW, 2 * WINDOW].map(|place| history[place]);
    let waits = [[first, middle], [middle, last]].map(|[from, to]| TimeOuts::between(&from.work, &to.work));
    let waited_ps: Ps = waits.iter().map(|one| to_ps(one.waited)).sum();
    let is_rare = waits.iter().any(|one| one.count < LEAST_TIMEOUTS);
    if is_rare && waited_ps as f64 > MOST_MEAN_ERROR * span as f64 {
        return Err("time-outs were too rare to know how often they come");
    }
    check_window(history)
}

/// Checks that a flow's congestion window stands still, or goes up and down around the same mean. If there is room in the
/// window all the time, it checks the bytes in flight instead.
fn check_window(history: &[&FlowReading]) -> Result<(), &'static str> {
    let is_free = history.iter().all(|reading| reading.window_bytes >= reading.flight_bytes + ROOM_BYTES);
    let limit = |reading: &&FlowReading| if is_free { reading.flight_bytes } else { reading.window_bytes };
    let windows: Vec<u64> = history.iter().map(limit).collect();
    let (least, most) = (windows.iter().min(), windows.iter().max());
    if most.zip(least).is_none_or(|(most, least)| most - least < STILL_BYTES) {
        return Ok(());
    }
    let halves = [&windows[..=WINDOW], &windows[WINDOW..]];
    if !is_free && halves.iter().any(|half| half.windows(2).filter(|pair| pair[1] < pair[0]).count() < LEAST_FALLS) {
        return Err("congestion windows still grew");
    }
    let [before, after] = halves.map(|half| half.iter().sum::<u64>() as f64);
    if (after - before).abs() > MOST_OF_WINDOW * before.min(after) {
        return Err("congestion windows had not settled");
    }
    Ok(())
}

impl LinkCounts {
    /// What was counted since `earlier`.
    fn since(&self, earlier: &LinkCounts) -> LinkCounts {
        self.combine(earlier, u64::saturating_sub)
    }

    /// Each count of this and of `other`, combined by `f`.
    pub(super) fn combine(&self, other: &LinkCounts, f: impl Fn(u64, u64) -> u64) -> LinkCounts {
        LinkCounts {
            passed: f(self.passed, other.passed),
            bytes: f(self.bytes, other.bytes),
            refused: f(self.refused, other.refused),
            lost: f(self.lost, other.lost),
            waited: f(self.waited, other.waited),
        }
    }
}
