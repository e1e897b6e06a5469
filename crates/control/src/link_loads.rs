//! Measures the load of links with the port counters of switches, for schemes that need it
//! ([`pathloom_scheme::Needs::link_loads_every`]).

use crate::context::Context;
use crate::io::{Output, PortStats};
use pathloom_model::units::NS_PER_S;
use pathloom_model::{Fabric, LinkId, Nanos, NodeId};
use pathloom_scheme::OptionU64;

/// Shortest period between readings, whatever a scheme asks for.
const LEAST_PERIOD: Nanos = Nanos::from_millis(1);

/// State of the port counter readings.
#[derive(Debug)]
pub(crate) struct LinkLoads {
    period: Option<Nanos>,
    due: Option<Nanos>,
    /// By directed link: bytes at the last reading, and its time.
    read: Vec<Option<(u64, Nanos)>>,
}

impl LinkLoads {
    pub(crate) fn new(fabric: &Fabric) -> LinkLoads {
        LinkLoads { period: None, due: None, read: vec![None; fabric.links().len()] }
    }

    /// When [`LinkLoads::read_if_due`] has work to do.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due
    }

    /// Forgets the last reading of a link, so that no rate is computed from it.
    fn forget(&mut self, link: LinkId) {
        self.read.get_mut(link.index()).into_iter().for_each(|read| *read = None);
    }

    /// Stores a reading of a link, and returns the rate since the reading before. `None` if there was no reading
    /// before, the counter was reset, or no time has passed.
    fn take(&mut self, now: Nanos, link: usize, bytes: u64) -> Option<u64> {
        let (before, then) = self.read.get_mut(link)?.replace((bytes, now))?;
        let time = now.saturating_sub(then);
        let bits = u128::from(bytes.checked_sub(before)?) * 8;
        (time > Nanos::ZERO)
            .then(|| u64::try_from(bits * u128::from(NS_PER_S) / u128::from(time.0)).unwrap_or(u64::MAX))
    }

    /// Reads the counters of all ports every `period` from now on. Earlier readings are forgotten.
    pub(crate) fn read_every(&mut self, cx: &mut Context, period: Option<Nanos>) {
        let period = period.map(|period| period.max(LEAST_PERIOD));
        *self = LinkLoads { period, due: period.map(|_| cx.now), ..LinkLoads::new(&cx.fabric) };
        if cx.view.link_load_bps.iter().any(|load| load.get().is_some()) {
            cx.view.link_load_bps.fill(OptionU64::NONE);
        }
    }

    /// A port changed, or may have changed. It can be another interface now, whose counter had another value.
    pub(crate) fn port_changed(&mut self, cx: &Context, out: LinkId) {
        let from_host = cx.fabric.is_host(cx.fabric.link(out).to).then(|| out.reverse());
        for link in [Some(out), from_host].into_iter().flatten() {
            self.forget(link);
        }
    }

    pub(crate) fn read_if_due(&mut self, cx: &mut Context) {
        let Some(period) = self.period.filter(|_| self.due.is_some_and(|due| due <= cx.now)) else {
            return;
        };
        self.due = Some(cx.now.saturating_add(period));
        let fabric = cx.fabric.clone();
        for &switch in fabric.switches() {
            if cx.is_ready(switch) {
                cx.put(Output::PortStatsRequest { switch });
            }
        }
    }

    /// Handles the port counters of a switch. They give the bytes sent on each link, and for links from hosts the
    /// bytes received, which no other switch counts.
    pub(crate) fn take_stats(&mut self, cx: &mut Context, switch: NodeId, rows: &[PortStats]) {
        if self.period.is_none() {
            // The statistics were requested for another purpose.
            return;
        }
        for row in rows {
            let Some(out) = cx.fabric.out_link(switch, row.port) else { continue };
            let from_host = cx.fabric.is_host(cx.fabric.link(out).to).then(|| (out.reverse(), row.rx_bytes));
            for (link, bytes) in [(out, row.tx_bytes)].into_iter().chain(from_host) {
                let load_bps = self.take(cx.now, link.index(), bytes);
                if let Some(load_bps) = load_bps {
                    cx.view.link_load_bps[link.index()] = load_bps.into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn a_rate_covers_the_time_since_the_last_reading() {
        let mut loads = LinkLoads::new(&fabric_from_spec("dumbbell").unwrap());
        let ms = Nanos::from_millis;
        assert_eq!(loads.take(ms(10), 0, 1_000), None, "there was no reading before");
        assert_eq!(loads.take(ms(20), 0, 2_000), Some(800_000));
        assert_eq!(loads.take(ms(20), 0, 3_000), None, "no time has passed");
        assert_eq!(loads.take(ms(30), 0, 500), None, "the switch restarted");
        assert_eq!(loads.take(ms(31), 0, u64::MAX), Some(u64::MAX), "an impossible rate is limited");
        assert_eq!(loads.take(ms(40), 10_000, 1), None, "no such link");
        loads.forget(LinkId(0));
        assert_eq!(loads.take(ms(50), 0, u64::MAX), None, "the port may be another interface");
    }
}
