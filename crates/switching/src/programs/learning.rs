//! A learning switch. It floods frames to unknown stations and has no protection against loops, so it is only for
//! trees.

use super::check_queue::CheckQueue;
use super::counts::Counts;
use super::decision_cache::DecisionCache;
use super::fair_share::FairShare;
use super::settings::Settings;
use crate::program::{DropCause, Outgoing, Program, Tables, Used, Verdict};
use crate::{Saved, SavedHost, Stale};
use pathloom_model::{Body, FiveTuple, Frame, Mac, Nanos, PortNo};
use std::collections::{BTreeMap, BTreeSet};

/// A transparent bridge without a spanning tree (IEEE 802.1D-2004 §7.7 to §7.9). It learns the source of a frame at the
/// input port. A frame to a known station leaves by the port of this station, other frames leave by all other ports.
/// **On a fabric with a cycle of cables, a broadcast circulates forever.** It is the baseline for trees, and the
/// simplest [`Program`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearningSwitch {
    age: Nanos,
    most: usize,
    up: BTreeSet<PortNo>,
    stations: BTreeMap<Mac, (PortNo, Nanos)>,
    /// The stations of each port. If the table is full, the port with the most stations loses the one that was heard
    /// longest ago.
    shares: FairShare<PortNo, Mac>,
    due: CheckQueue<Mac>,
    decisions: DecisionCache,
    counts: Counts,
}

impl LearningSwitch {
    /// Creates a switch that knows no station. It uses only the settings [`Settings::host_age`],
    /// [`Settings::most_hosts`] and [`Settings::most_remembered`].
    pub fn new(settings: &Settings) -> LearningSwitch {
        LearningSwitch {
            age: settings.host_age,
            most: settings.most_hosts,
            up: BTreeSet::new(),
            stations: BTreeMap::new(),
            shares: FairShare::new(),
            due: CheckQueue::new(),
            decisions: DecisionCache::new(settings.most_remembered),
            counts: Counts::default(),
        }
    }

    fn learn(&mut self, now: Nanos, src: Mac, port: PortNo) {
        let expires = now.saturating_add(self.age);
        if self.stations.len() >= self.most && !self.stations.contains_key(&src) {
            self.make_room();
        }
        let before = self.stations.insert(src, (port, expires));
        self.shares.touch(port, src);
        if before.is_none() {
            self.due.watch(expires, src);
        }
        if before.is_some_and(|(old, _)| old != port) {
            self.decisions.forget_destination(src);
        }
    }

    fn make_room(&mut self) {
        if let Some(mac) = self.shares.take_surplus() {
            self.stations.remove(&mac);
            self.decisions.forget_destination(mac);
        }
    }

    fn result(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Verdict, DropCause> {
        if !self.up.contains(&in_port) {
            return Err(DropCause::PortNotReady);
        }
        if !frame.src.is_station() {
            return Err(DropCause::Invalid);
        }
        self.learn(now, frame.src, in_port);
        let known = self.stations.get(&frame.dst).filter(|(_, expires)| now < *expires).map(|&(port, _)| port);
        match known {
            Some(port) if port == in_port => Err(DropCause::WrongPort),
            Some(port) => {
                let mut verdict = Verdict::one(port, *frame);
                if let Body::Ip(headers) = frame.body {
                    self.decisions.note(headers.five_tuple, frame.src, frame.dst);
                    verdict.remember = Some(headers.five_tuple);
                }
                Ok(verdict)
            }
            None => {
                let others = self.up.iter().filter(|&&port| port != in_port);
                let emissions: Vec<Outgoing> = others.map(|&port| Outgoing { port, frame: *frame }).collect();
                if emissions.is_empty() {
                    return Err(DropCause::NoPort);
                }
                Ok(Verdict::all(emissions))
            }
        }
    }
}

impl Program for LearningSwitch {
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        self.result(now, in_port, frame).unwrap_or_else(|why| {
            self.counts.dropped(in_port, why);
            Verdict::drop(why)
        })
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(mac) = self.due.pop_due(now) {
            match self.stations.get(&mac) {
                Some(&(_, expires)) if now < expires => self.due.watch(expires, mac),
                _ => {
                    self.stations.remove(&mac);
                    self.shares.remove(&mac);
                    self.decisions.forget_destination(mac);
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.due.next()
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        None
    }

    fn set_port(&mut self, _now: Nanos, port: PortNo, up: bool) {
        if up {
            self.up.insert(port);
        } else if self.up.remove(&port) {
            let shares = &mut self.shares;
            self.stations.retain(|mac, (its, _)| {
                let stays = *its != port;
                if !stays {
                    shares.remove(mac);
                }
                stays
            });
            self.decisions.forget_all();
        }
    }

    fn take_stale(&mut self) -> Stale {
        self.decisions.take_stale()
    }

    fn credit(&mut self, five_tuple: FiveTuple, used: Used) {
        if let Some((src, _)) = self.decisions.ends(&five_tuple) {
            let expires = used.last.saturating_add(self.age);
            self.stations.entry(src).and_modify(|(_, its)| *its = (*its).max(expires));
        }
    }

    fn note_unreadable(&mut self, in_port: PortNo) {
        self.counts.unreadable(in_port);
    }

    fn tables(&self) -> Tables {
        Tables { hosts: self.stations.len(), ..self.counts.tables() }
    }

    fn save(&self) -> Saved {
        let hosts = self.stations.iter().map(|(&mac, &(port, _))| SavedHost { mac, port, number: 0, local: true });
        Saved { hosts: hosts.collect(), ..Saved::default() }
    }

    fn save_tables(&self) -> Saved {
        self.save()
    }

    fn restore(&mut self, now: Nanos, saved: &Saved) {
        for host in &saved.hosts {
            if self.up.contains(&host.port) {
                self.learn(now, host.mac, host.port);
            }
        }
        saved.remembered.iter().for_each(|&(five_tuple, src, dst)| self.decisions.note(five_tuple, src, dst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_many_addresses_displaces_only_its_own() {
        let mut switch = LearningSwitch::new(&Settings { most_hosts: 8, ..Settings::default() });
        let (quiet, flooder) = (PortNo(1), PortNo(2));
        [quiet, flooder].into_iter().for_each(|port| switch.set_port(Nanos::ZERO, port, true));
        let station = |number: u8| Mac([2, 0, 0, 0, 0, number]);
        let mut send = |port, src, dst| {
            let frame = Frame { src: station(src), dst: station(dst), body: Body::Other { ether_type: 0x0800 } };
            switch.decide(Nanos::ZERO, port, &frame)
        };
        send(quiet, 1, 99);
        send(quiet, 2, 99);
        (10..200).for_each(|number| drop(send(flooder, number, 99)));
        // Known stations get frames by one port, unknown ones by all. The quiet port is the only other one.
        for known in [1, 2] {
            assert_eq!(send(flooder, 199, known).emissions.len(), 1);
            assert_eq!(send(quiet, known, 3 - known).dropped, Some(DropCause::WrongPort), "it is known to be here");
        }
        assert_eq!(switch.tables().hosts, 8);
        for number in (0..8).rev() {
            switch.handle_timeout(Settings::default().host_age + Nanos(number));
        }
        assert_eq!((switch.tables().hosts, switch.shares.take_surplus()), (0, None));
    }
}
