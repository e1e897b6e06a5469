//! What links carry, from the counters of the switches' ports, for schemes that ask for it
//! ([`pathloom_scheme::Needs::link_loads_every`]).

use crate::context::Context;
use crate::io::{Output, PortStats};
use pathloom_model::units::NS_PER_S;
use pathloom_model::{Fabric, LinkId, Nanos, NodeId};
use pathloom_scheme::Known;

/// Counters are not read more often than this, whatever a scheme asks for.
const LEAST_PERIOD: Nanos = Nanos::from_millis(1);

/// When the counters of ports were read, and will be.
#[derive(Debug)]
pub(crate) struct LinkLoads {
    period: Option<Nanos>,
    due: Option<Nanos>,
    /// By directed link: bytes counted at the last reading, and when that was.
    read: Vec<Option<(u64, Nanos)>>,
}

impl LinkLoads {
    pub(crate) fn new(fabric: &Fabric) -> LinkLoads {
        LinkLoads { period: None, due: None, read: vec![None; fabric.links().len()] }
    }

    /// When the controller must look after it.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due
    }

    /// What a link carries cannot be told from what was counted before.
    fn forget(&mut self, link: LinkId) {
        self.read.get_mut(link.index()).into_iter().for_each(|read| *read = None);
    }

    /// Takes a counter of a link; gives the rate since the one before. Nothing where it was never read before or began anew.
    fn take(&mut self, now: Nanos, link: usize, bytes: u64) -> Option<u64> {
        let (before, then) = self.read.get_mut(link)?.replace((bytes, now))?;
        let time = now.saturating_sub(then);
        let bits = u128::from(bytes.checked_sub(before)?) * 8;
        (time > Nanos::ZERO)
            .then(|| u64::try_from(bits * u128::from(NS_PER_S) / u128::from(time.0)).unwrap_or(u64::MAX))
    }

    /// Reads the counters of all ports every `period` from now on. What was read before is forgotten.
    pub(crate) fn read_every(&mut self, cx: &mut Context, period: Option<Nanos>) {
        let period = period.map(|period| period.max(LEAST_PERIOD));
        *self = LinkLoads { period, due: period.map(|_| cx.now), ..LinkLoads::new(&cx.fabric) };
        if cx.view.link_load_bps.iter().any(|load| load.get().is_some()) {
            cx.view.link_load_bps.fill(Known::NOTHING);
        }
    }

    /// A port has changed, or may have: it may be another interface now, which counted for itself before.
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

    /// A switch has told what its ports have sent; and, where a host is, what they have received: no other switch counts that.
    pub(crate) fn take_stats(&mut self, cx: &mut Context, switch: NodeId, rows: &[PortStats]) {
        if self.period.is_none() {
            // Asked for by somebody else.
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
    use pathloom_model::fabric_from_spec;

    #[test]
    fn a_rate_is_what_was_counted_since_the_last_reading() {
        let mut loads = LinkLoads::new(&fabric_from_spec("dumbbell").unwrap());
        let ms = Nanos::from_millis;
        assert_eq!(loads.take(ms(10), 0, 1_000), None, "there was none before");
        assert_eq!(loads.take(ms(20), 0, 2_000), Some(800_000));
        assert_eq!(loads.take(ms(20), 0, 3_000), None, "no time has passed");
        assert_eq!(loads.take(ms(30), 0, 500), None, "the switch began anew");
        assert_eq!(loads.take(ms(31), 0, u64::MAX), Some(u64::MAX), "nonsense stays within bounds");
        assert_eq!(loads.take(ms(40), 10_000, 1), None, "no such link");
        loads.forget(LinkId(0));
        assert_eq!(loads.take(ms(50), 0, u64::MAX), None, "the port may be another interface");
    }
}
