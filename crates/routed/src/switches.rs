//! Switches that exist only in memory: they take the controller's rules, and show where packets would go.

use pathloom_control::{Input, Output, PortStats, Removal, RuleStats, SOURCE_COOKIE, SOURCE_COOKIE_MASK, TABLES};
use pathloom_model::rules::{Refusal, Rule};
use pathloom_model::{Fabric, FiveTuple, Headers, LinkId, LinkState, Nanos, NodeId, PortNo};
use pathloom_switching::{Removed, RuleRef, Switch, SwitchSettings};
use std::sync::Arc;

/// A packet that has crossed more switches than this is in a loop.
const MOST_HOPS: usize = 64;

/// Where a packet goes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Walk {
    /// The links, from that of the sending host.
    pub(crate) links: Vec<LinkId>,
    /// Whether it reaches the address that it is for.
    pub(crate) arrives: bool,
    /// The switches on its way, with the rules that acted.
    rules: Vec<(NodeId, Vec<RuleRef>)>,
    /// Copies for the controller.
    pub(crate) copies: Vec<Input>,
}

/// All switches of a fabric.
pub(crate) struct Switches {
    fabric: Arc<Fabric>,
    /// By node; `None` for hosts.
    nodes: Vec<Option<Switch>>,
    links: LinkState,
    /// By link: bytes that it has sent.
    sent_bytes: Vec<u64>,
}

impl Switches {
    /// Switches without rules, with the hash that the simulator gives them.
    pub(crate) fn new(fabric: Arc<Fabric>) -> Switches {
        let make = |(number, node): (u64, &pathloom_model::Node)| SwitchSettings {
            ports: node.ports.len() as u32,
            tables: TABLES.len() as u8,
            rule_limit: None,
            salt: number + 1,
        };
        let settings = (0..).zip(fabric.nodes()).map(make);
        let mut nodes: Vec<Option<Switch>> = settings.map(|settings| Some(Switch::new(settings))).collect();
        fabric.hosts().iter().for_each(|host| nodes[host.index()] = None);
        let links = LinkState::of(&fabric);
        let mut switches = Switches { links, sent_bytes: vec![0; fabric.links().len()], nodes, fabric };
        let down: Vec<LinkId> = switches.links.down().collect();
        down.into_iter().for_each(|link| switches.set_carrier(link, false));
        switches
    }

    /// What each switch says when its session begins.
    pub(crate) fn sessions(&self) -> Vec<Input> {
        let ports_down = |switch: NodeId| {
            let links = self.fabric.node(switch).ports.iter().filter(|&&link| !self.links.is_up(link));
            links.map(|&link| self.fabric.link(link).from_port).collect()
        };
        let switches = self.fabric.switches().iter();
        switches.map(|&switch| Input::SwitchUp { switch, ports_down: ports_down(switch) }).collect()
    }

    fn set_carrier(&mut self, link: LinkId, up: bool) {
        for end in [link, link.reverse()] {
            let record = *self.fabric.link(end);
            if let Some(switch) = &mut self.nodes[record.from.index()] {
                switch.set_port(record.from_port, up);
            }
        }
    }

    /// Carries out a message of the controller. Returns the answer, if any. `standing` are packets of a connection that
    /// must not change its path: a rule that would move it is refused.
    pub(crate) fn carry_out(
        &mut self,
        now: Nanos,
        output: Output,
        standing: impl FnOnce(&FiveTuple) -> Option<(LinkId, Headers)>,
    ) -> Option<Input> {
        let switch = output.switch()?;
        let refused = |xid: u32| move |why| Input::Refused { switch, xid, why };
        if let Output::AddRule { xid, rule, .. } = output {
            let standing = rule.matches.only_five_tuple().and_then(|five_tuple| standing(&five_tuple));
            return self.add_rule(now, switch, rule, standing).err().map(refused(xid));
        }
        let node = self.nodes[switch.index()].as_mut()?;
        match output {
            Output::DeleteRule { key, .. } => {
                node.delete_rule(&key).and_then(|removed| notice(switch, removed, Removal::Deleted))
            }
            Output::AddGroup { xid, group, .. } => node.add_group(group).err().map(refused(xid)),
            Output::DeleteGroup { xid, group, .. } => node.delete_group(group).err().map(refused(xid)),
            Output::AddMeter { meter, .. } => {
                node.add_meter(now, meter);
                None
            }
            Output::DeleteMeter { xid, meter, .. } => node.delete_meter(meter).err().map(refused(xid)),
            Output::Barrier { xid, .. } => Some(Input::BarrierReply { switch, xid }),
            Output::FlowStatsRequest { .. } => Some(Input::FlowStats { switch, rows: flow_rows(node) }),
            Output::PortStatsRequest { .. } => Some(self.port_stats(switch)),
            Output::DumpRequest { .. } => Some(Input::RuleDump {
                switch,
                rules: node.rules().into_iter().map(|(rule, _)| rule.clone()).collect(),
                groups: node.groups().cloned().collect(),
                meters: node.meters().copied().collect(),
            }),
            _ => None,
        }
    }

    /// Adds a rule, unless it would change the path of a standing connection.
    fn add_rule(
        &mut self,
        now: Nanos,
        switch: NodeId,
        rule: Rule,
        standing: Option<(LinkId, Headers)>,
    ) -> Result<(), Refusal> {
        let Some((uplink, headers)) = standing else {
            return self.nodes[switch.index()].as_mut().map_or(Ok(()), |node| node.add_rule(now, rule));
        };
        let before = self.walk(uplink, headers);
        // The rule goes in, and out again if it moves the connection: only all rules together say where packets go.
        let saved = self.nodes[switch.index()].clone();
        self.nodes[switch.index()].as_mut().map_or(Ok(()), |node| node.add_rule(now, rule))?;
        let after = self.walk(uplink, headers);
        if after.links != before.links || after.arrives != before.arrives {
            self.nodes[switch.index()] = saved;
            return Err(Refusal::Unsupported);
        }
        Ok(())
    }

    fn port_stats(&self, switch: NodeId) -> Input {
        let ports = self.fabric.node(switch).ports.iter();
        let rows = ports.map(|&link| PortStats {
            port: self.fabric.link(link).from_port,
            tx_bytes: self.sent_bytes[link.index()],
            rx_bytes: self.sent_bytes[link.reverse().index()],
            tx_dropped: 0,
        });
        Input::PortStats { switch, rows: rows.collect() }
    }

    /// Where packets with these headers go, from the link of their host on.
    pub(crate) fn walk(&self, uplink: LinkId, mut headers: Headers) -> Walk {
        let goal = self.fabric.attachment(headers.five_tuple.dst()).map(|at| at.uplink.reverse());
        let (mut walk, mut link) = (Walk::default(), uplink);
        while walk.links.len() <= MOST_HOPS {
            walk.links.push(link);
            let record = self.fabric.link(link);
            let (switch, in_port) = (record.to, record.to_port);
            let Some(node) = &self.nodes[switch.index()] else {
                walk.arrives = Some(link) == goal;
                break;
            };
            let decision = node.decide(in_port, &headers);
            if decision.copied {
                walk.copies.push(Input::PacketIn { switch, in_port, headers });
            }
            let [emission] = decision.emissions[..] else { break };
            walk.rules.push((switch, decision.rules));
            let Some(next) = self.next_link(switch, emission.port) else { break };
            (headers.tag, link) = (emission.tag, next);
        }
        walk
    }

    fn next_link(&self, switch: NodeId, port: PortNo) -> Option<LinkId> {
        self.fabric.out_link(switch, port).filter(|&link| self.links.is_up(link))
    }

    /// Counts packets where the rules have sent them.
    pub(crate) fn credit(&mut self, now: Nanos, walk: &Walk, (packets, bytes): (u64, u64)) {
        for (switch, rules) in &walk.rules {
            if let Some(node) = &mut self.nodes[switch.index()] {
                node.credit(rules, packets, bytes, now);
            }
        }
    }

    /// Counts bytes at the links that have carried them.
    pub(crate) fn credit_links(&mut self, links: &[LinkId], bytes: u64) {
        for link in links {
            if let Some(sent) = self.sent_bytes.get_mut(link.index()) {
                *sent += bytes;
            }
        }
    }

    /// When rules time out next.
    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        self.nodes.iter().flatten().filter_map(Switch::poll_timeout).min()
    }

    /// Removes the rules that have timed out, and returns what the switches report.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Input> {
        let mut reports = Vec::new();
        for &switch in self.fabric.switches() {
            let Some(node) = &mut self.nodes[switch.index()] else { continue };
            for removed in node.expire(now) {
                let why = if removed.hard { Removal::Hard } else { Removal::Idle };
                reports.extend(notice(switch, removed, why));
            }
        }
        reports
    }
}

fn notice(switch: NodeId, removed: Removed, why: Removal) -> Option<Input> {
    let Removed { rule, counters, .. } = removed;
    rule.notify_removal.then(|| Input::RuleRemoved { switch, key: rule.key(), cookie: rule.cookie, counters, why })
}

/// The rules that count flows, with their counters.
fn flow_rows(node: &Switch) -> Vec<RuleStats> {
    let counting = node.rules().into_iter().filter(|(rule, _)| rule.cookie & SOURCE_COOKIE_MASK == SOURCE_COOKIE);
    counting.map(|(rule, counters)| RuleStats { key: rule.key(), cookie: rule.cookie, counters }).collect()
}
