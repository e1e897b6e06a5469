//! Packets of one flow on several paths: a switch chooses among equal next hops for each packet ([`Selection`]).
//!
//! A switch looks up its rules once per lane, or once for all packets to a destination ([`super::destinations`]). If a
//! group chooses the port, the cache names the set of all ports of the group, and the switch chooses one of them for each
//! packet. By [`Selection::Hash`], a packet with an entropy of 0 takes
//! the port that the group chooses by the five-tuple alone, as with ecmp.

use super::balancers::Balancers;
use super::destinations::{Destinations, Known, Out};
use super::{Arrival, Network, Node};
use crate::cache::{kept_rules, Cache, Entry, Onward, Rules, ON_SLOW_LINK};
use crate::lanes::NO_CONNECTION;
use crate::next_hops::{NextHops, SetRef, Sets};
use crate::packet::{Packet, TagBits};
use crate::port::NOWHERE;
use crate::tap::Tap;
use crate::time::{to_nanos, Ps};
use pathloom_model::{FiveTuple, Headers, LinkId, NodeId, PortNo, Tier};
use pathloom_scheme::Selection;
use pathloom_switching::Decision;

impl<T: Tap> Network<T> {
    /// Packets of a flow will take several paths. Switches of this tier choose among them, or all do. To be called before the
    /// first packet.
    pub(crate) fn expect_several_paths(&mut self, selection: Selection, tier: Option<Tier>, seed: u64) {
        self.sprays = true;
        let chooses: Vec<bool> =
            self.fabric.nodes().iter().map(|node| tier.is_none_or(|tier| node.tier == tier)).collect();
        self.balancers = Balancers::new(&self.fabric, selection, &chooses, seed).map(Box::new);
        self.sets = Sets::new(selection, chooses, seed);
        if self.balancers.is_some() {
            self.links.take_slow_path(|link| !link.to_host());
        }
        // In a tree, a packet has as many paths as the square of the links up from a switch.
        let ports = self.fabric.switches().iter().map(|&node| self.fabric.node(node).ports.len()).max().unwrap_or(0);
        let cache = &mut self.switches.cache;
        *cache = cache.with_ways((ports / 2).pow(2));
        self.switches.destinations = Some(Destinations::new(&self.fabric));
    }

    /// As [`Network::forward`], in a run in which packets of a flow take several paths.
    #[inline(always)]
    pub(super) fn forward_sprayed(&mut self, now: Ps, in_link: u32, packet: Packet) -> Arrival {
        self.forward_among::<false>(now, in_link, packet)
    }

    /// The same, in a run with load balancers.
    pub(super) fn forward_balanced(&mut self, now: Ps, in_link: u32, packet: Packet) -> Arrival {
        self.forward_among::<true>(now, in_link, packet)
    }

    #[inline(always)]
    fn forward_among<const BALANCED: bool>(&mut self, now: Ps, in_link: u32, mut packet: Packet) -> Arrival {
        let Some(place) = self.switches.cache.place(&packet, in_link) else { return Arrival::Slow(packet) };
        let Some(entry) = self.switches.cache.entry_at(place) else { return Arrival::Slow(packet) };
        if !entry.matches(in_link, &packet) {
            return Arrival::Slow(packet);
        }
        let link = in_link & !ON_SLOW_LINK;
        let (out, tag) = match entry.pass(now, &packet) {
            Onward::Link(out, tag) => (out, tag),
            Onward::Among(set) if BALANCED => self.choose_balanced(now, link, set, &packet, |cache| cache.usual(place)),
            Onward::Among(set) => self.choose(now, set, &packet, |cache| cache.usual(place)),
        };
        packet.pass(tag);
        if BALANCED {
            packet = self.with_note(now, link, out, packet);
        }
        if self.links.enqueue(now, out, packet) {
            Arrival::Forwarded
        } else {
            Arrival::Dropped(packet.lane())
        }
    }

    /// The link and the tag with which a packet leaves, of this set of next hops.
    #[inline(always)]
    fn choose(&mut self, now: Ps, set: SetRef, packet: &Packet, usual: impl FnOnce(&Cache) -> u32) -> (u32, TagBits) {
        let (cache, around) = (&self.switches.cache, self.links.around(now));
        self.sets.choose(set, packet, || usual(cache), |of| around.ports(of))
    }

    /// The next hops among which a decision of a switch has chosen one, and the place of that one, if there are several.
    pub(super) fn next_hops(
        &mut self,
        switch: NodeId,
        in_port: PortNo,
        five_tuple: &FiveTuple,
        decision: &Decision,
    ) -> Option<(SetRef, u32)> {
        // A copy for the controller, or a meter, changes nothing about where the packet goes.
        let [emission] = decision.emissions[..] else { return None };
        let Node::Rules(rules) = &self.switches.nodes[switch.index()] else { return None };
        let link = |(port, weight)| Some((self.fabric.out_link(switch, port)?.0, weight));
        let links: Vec<(u32, u16)> = rules.equal_ports(in_port, decision).into_iter().filter_map(link).collect();
        let hops = (links.len() > 1).then(|| NextHops::new(&links, TagBits::of(emission.tag)))?;
        let usual = hops.place(self.fabric.out_link(switch, emission.port)?.0);
        let flow_hash = five_tuple.ecmp_hash(rules.salt());
        Some((SetRef { switch, number: self.sets.number(switch, hops, usual)?, flow_hash }, usual))
    }

    /// Forwards a packet that has arrived by `link` as the switch has forwarded others to its destination, if it has. Returns how
    /// many packets of the lane were lost.
    pub(super) fn decide_by_destination(
        &mut self,
        now: Ps,
        link: u32,
        packet: Packet,
        headers: &Headers,
    ) -> Option<i32> {
        let switch = self.fabric.link(LinkId(link)).to;
        let known = self.switches.destinations.as_ref()?.get(switch, headers)?;
        let Node::Rules(rules) = &mut self.switches.nodes[switch.index()] else { return None };
        // A switch does not send a packet back, and chooses among other next hops then.
        let back = LinkId(link).reverse().0;
        let (out, set) = match known.out {
            Out::Link(out) if out == back => return None,
            Out::Link(out) => (out, None),
            Out::Among(number) => {
                let set = SetRef { switch, number, flow_hash: headers.five_tuple.ecmp_hash(rules.salt()) };
                let (members, usual) = (self.sets.members(set).0, self.sets.usual(set));
                if members.contains(&back) {
                    return None;
                }
                (members[usual as usize], Some((set, usual)))
            }
        };
        for rule in known.rules.iter().flatten() {
            rules.credit(&[*rule], 1, packet.wire(), to_nanos(now));
        }
        self.switches.cache.count(packet.lane());
        let entry = Entry::new(self.links.in_link(link), &packet, true, out, known.tag);
        let remembered = self.switches.cache.place(&packet, link).map(|place| (place, entry, known.rules));
        if let Some(set) = set {
            return Some(self.spray(now, link, packet, remembered, set));
        }
        if let Some((place, entry, rules)) = remembered {
            self.switches.remember(&self.links.lanes, place, switch, (entry, rules));
        }
        Some(self.pass_on(now, link, packet, (out, known.tag)))
    }

    /// Keeps a decision, if it holds for all packets to the same destination. `set`: the next hops among which the switch
    /// chooses. Returns whether it does.
    pub(super) fn note_destination(
        &mut self,
        switch: NodeId,
        headers: &Headers,
        decision: &Decision,
        set: Option<SetRef>,
    ) -> bool {
        let Some(destinations) = &mut self.switches.destinations else { return false };
        let Some(emission) = decision.single().filter(|_| !decision.looked_at_more) else { return false };
        let out = match set {
            Some(set) => Some(Out::Among(set.number)),
            // The port depends on the five-tuple.
            None if decision.hashed => None,
            None => self.fabric.out_link(switch, emission.port).map(|link| Out::Link(link.0)),
        };
        let Some((out, rules)) = out.zip(kept_rules(&decision.rules)) else { return false };
        destinations.store(switch, headers, Known { out, tag: TagBits::of(emission.tag), rules });
        true
    }

    /// Sends a packet to one of these next hops, and remembers them. Returns how many packets of the lane were lost.
    pub(super) fn spray(
        &mut self,
        now: Ps,
        link: u32,
        packet: Packet,
        remembered: Option<(usize, Entry, Rules)>,
        (set, usual): (SetRef, u32),
    ) -> i32 {
        if let Some((place, entry, rules)) = remembered {
            self.switches.remember(&self.links.lanes, place, set.switch, (entry.among(set), rules));
            self.switches.cache.set_usual(place, usual);
        }
        let (out, tag) = match self.balancers.is_some() {
            true => self.choose_balanced(now, link, set, &packet, |_| usual),
            false => self.choose(now, set, &packet, |_| usual),
        };
        self.pass_on(now, link, packet, (out, tag))
    }

    /// Sends a packet that has arrived by `in_link` into another link, with this tag. Returns how many packets of the lane were
    /// lost.
    pub(super) fn pass_on(&mut self, now: Ps, in_link: u32, mut packet: Packet, (out, tag): (u32, TagBits)) -> i32 {
        packet.pass(tag);
        let packet = self.with_note(now, in_link, out, packet);
        i32::from(!self.links.enqueue(now, out, packet))
    }

    /// As [`Network::choose`], by the balancer of the switch.
    fn choose_balanced(
        &mut self,
        now: Ps,
        in_link: u32,
        set: SetRef,
        packet: &Packet,
        usual: impl FnOnce(&Cache) -> u32,
    ) -> (u32, TagBits) {
        let (of, tag) = self.sets.members(set);
        let around = self.links.around(now);
        let balancers = self.balancers.as_mut();
        let chosen = balancers.and_then(|balancers| balancers.choose(around, in_link, set.switch, of, packet));
        (of[chosen.unwrap_or_else(|| usual(&self.switches.cache) as usize)], tag)
    }

    /// The packet with the note of the switch at which it has arrived by `in_link` and that it leaves by `out`, if that has a
    /// balancer.
    pub(super) fn with_note(&mut self, now: Ps, in_link: u32, out: u32, packet: Packet) -> Packet {
        let around = self.links.around(now);
        let balancers = self.balancers.as_mut();
        balancers.map_or(packet, |balancers| balancers.with_note(around, in_link, out, packet))
    }

    /// Whether the packet is a probe. If so, the switch at the end of `link` handles it.
    pub(super) fn receive_probe(&mut self, now: Ps, link: u32, packet: &Packet) -> bool {
        let around = self.links.around(now);
        let Some(balancers) = self.balancers.as_mut().filter(|_| packet.slot() == NO_CONNECTION) else { return false };
        let probes = balancers.handle_probe(around, link, packet);
        self.send_probes(now, probes);
        true
    }

    /// Sends the probes of a switch that are due. `has_power` says whether it works.
    pub(crate) fn probe(&mut self, now: Ps, switch: NodeId, has_power: bool) {
        super::pfc::note_arriving(&mut self.links, NOWHERE);
        let probes = self.balancers.as_mut().map(|balancers| balancers.due_probes(now, switch));
        if let Some(probes) = probes.filter(|_| has_power) {
            self.send_probes(now, probes);
        }
    }

    /// Sends probes by these links. Those that are down take none.
    fn send_probes(&mut self, now: Ps, probes: Vec<(u32, Packet)>) {
        for (link, probe) in probes {
            if self.links[link as usize].is_up() {
                self.totals.sent += 1;
                self.links.enqueue(now, link, probe);
            }
        }
    }

    /// When a switch sends its next probes; `None` if it sends none.
    pub(crate) fn next_probe(&self, switch: NodeId) -> Option<Ps> {
        self.balancers.as_ref()?.next_probe(switch)
    }
}
