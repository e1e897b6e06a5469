//! Messages of switches and lines of host agents, passed to the controller.

use crate::config::Foreign;
use crate::hub::connection::{Connection, ConnectionId, Pending, Stage};
use crate::hub::hosts::AgentId;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::log_limiter::subject;
use crate::hub::numbers;
use crate::hub::own_rules;
use crate::hub::punts;
use crate::hub::reading::Why;
use crate::hub::refused;
use crate::hub::{Hub, Responder};
use pathloom_control::{Input, PortStats, Removal, RuleStats, LONG_FLOWS};
use pathloom_discovery::wiring::PortMap;
use pathloom_discovery::Place;
use pathloom_model::rules::RuleCounters;
use pathloom_model::{Headers, Nanos, NodeId, PortNo};
use pathloom_openflow::packet::{headers, Ethernet};
use pathloom_openflow::{
    convert, ErrorMessage, Features, FlowRemoved, FlowStats, Message, MultipartReply, MultipartRequest, PacketIn, Port,
    PortReason, PortStatus, RemovedReason, Reply, Request, BAD_REQUEST, FLOW_MOD_FAILED, HELLO_FAILED, PORT_MAX,
};

impl Hub {
    /// Handles bytes of an agent. Returns the time until which nothing more is to be read from it, if it sends more
    /// lines than it may: it is read more slowly, and no line is lost.
    pub fn agent_received(&mut self, now: Nanos, id: AgentId, bytes: &[u8]) -> Option<Nanos> {
        let now = self.advance(now);
        let mut buffer = self.hosts.take_partial_line(id)?;
        buffer.extend_from_slice(bytes);
        let (mut from, mut lines) = (0, 0);
        while let Some(length) = buffer[from..].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[from..from + length];
            from += length + 1;
            if !line.trim_ascii().is_empty() {
                lines += 1;
                if let Some(input) = self.hosts.line(id, line) {
                    self.handle(now, input);
                }
            }
        }
        buffer.drain(..from);
        self.hosts.set_partial_line(id, buffer);
        self.hosts.slow_down(id, lines)
    }

    pub(crate) fn message(&mut self, now: Nanos, id: ConnectionId, xid: u32, message: Message<'_>) {
        match message {
            Message::PacketIn(packet) => self.packet_in(now, id, xid, &packet),
            Message::BarrierReply => self.up(now, id, |switch| Input::BarrierReply { switch, xid }),
            Message::Hello(hello) => self.hello(id, hello.agrees(), hello.highest),
            Message::EchoRequest(bytes) => self.reply(id, &Message::EchoReply(bytes), xid),
            Message::EchoReply(bytes) => self.echo_reply(now, id, bytes),
            Message::FeaturesReply(features) => self.features(now, id, &features),
            Message::MultipartReply(reply) => self.part(now, id, xid, reply),
            Message::PortStatus(status) => self.port_status(now, id, &status),
            Message::FlowRemoved(removed) => self.flow_removed(now, id, &removed),
            Message::Error(error) => self.error(now, id, xid, &error),
            Message::RoleReply(granted) => self.role_granted(now, id, xid, granted),
            Message::GetConfigReply(_) | Message::BundleControl(_) => {}
            Message::Unsupported { kind, .. } => tracing::debug!(kind, "a message of an unknown kind"),
            other => {
                let kind = other.kind();
                self.misread(id, kind, xid, "switches do not send messages of this kind");
            }
        }
    }

    /// Handles an unreadable message in a valid frame. A session answers it with an error and continues; a connection
    /// without a session is closed.
    pub(crate) fn misread(&mut self, id: ConnectionId, kind: u8, xid: u32, problem: &str) {
        let Some(connection) = self.connection_mut(id) else { return };
        if !matches!(connection.stage, Stage::Up { .. }) {
            return self.offence(id, problem);
        }
        if let Some(count) = connection.complain() {
            tracing::warn!(peer = %connection.peer, kind, problem, count, "a message cannot be read");
        }
        if kind != pathloom_openflow::Kind::ERROR {
            self.reply(id, &Message::Error(ErrorMessage { kind: BAD_REQUEST, code: 1, data: &[] }), xid);
        }
    }

    pub(crate) fn reply(&mut self, id: ConnectionId, message: &Message<'_>, xid: u32) {
        if let Some(connection) = self.connection_mut(id) {
            connection.answer(message, xid);
            self.mark(id);
        }
    }

    /// Passes an input to the controller, if the connection has a session.
    #[inline]
    fn up(&mut self, now: Nanos, id: ConnectionId, input: impl FnOnce(NodeId) -> Input) {
        let Some(Connection { stage: Stage::Up { .. }, node: Some(node), .. }) = self.connection_mut(id) else {
            return;
        };
        let input = input(*node);
        self.handle_now(now, input);
    }

    /// Passes an input to the controller at once, so that inputs need no queue. The next [`Hub::settle`] sends the
    /// resulting messages.
    #[inline]
    fn handle_now(&mut self, now: Nanos, input: Input) {
        while let Some(earlier) = self.queued.pop_front() {
            self.handle_input(now, earlier);
        }
        self.handle_input(now, input);
    }

    #[inline]
    fn packet_in(&mut self, now: Nanos, id: ConnectionId, xid: u32, packet: &PacketIn<'_>) {
        let Some(Connection { stage: Stage::Up { dpid }, node, .. }) = self.connection_mut(id) else { return };
        let (dpid, node) = (*dpid, *node);
        let Some(in_port) = convert::in_port(packet) else { return };
        let place = Place::new(dpid, in_port.0);
        if LiveDiscovery::is_discovery_frame(packet.data) {
            // Discovery has its own limits, so that its frames pass even if a port is flooded with others.
            if let Some(discovery) = &mut self.discovery {
                return discovery.frame(now, place, packet.data);
            }
        }
        // Ports that the switch has not reported share one limit.
        let told_of = self.connection_mut(id).is_some_and(|connection| connection.has_port(in_port.0));
        let payer = if told_of { place } else { Place::new(dpid, 0) };
        if let Some(refused) = self.limiter.as_mut().and_then(|limiter| limiter.admit_or_count(now, payer).err()) {
            self.counts.limited += 1;
            if refused.is_power_of_two() {
                tracing::warn!(switch = %place.dpid, port = in_port.0, refused, "a port sends too many packets");
            }
            return;
        }
        let Some(switch) = node else {
            return self.answer_packet(id, xid, packet);
        };
        let read = Ethernet::parse(packet.data).and_then(|frame| headers(&frame));
        match read {
            // A later fragment, or not a flow.
            Ok(Some(Headers { five_tuple, .. })) if (five_tuple.src_port(), five_tuple.dst_port()) == (0, 0) => {}
            Ok(Some(headers)) => self.handle_now(now, Input::PacketIn { switch, in_port, headers }),
            Ok(None) => {}
            Err(problem) => tracing::debug!(switch = %place.dpid, port = in_port.0, %problem, "an unreadable packet"),
        }
    }

    /// Answers a packet of a switch that belongs to no fabric.
    #[inline]
    fn answer_packet(&mut self, id: ConnectionId, xid: u32, packet: &PacketIn<'_>) {
        let Hub { responder: Responder::Packets(answers), connections, .. } = self else { return };
        let Some(connection) = connections.get_mut(id) else { return };
        if let Err(problem) = answers.packet_in(id, packet, xid, &mut connection.out) {
            tracing::error!(peer = %connection.peer, %problem, "an answer was not sent");
        }
        self.mark(id);
    }

    fn hello(&mut self, id: ConnectionId, agrees: bool, highest: u8) {
        let Some(connection) = self.connection_mut(id).filter(|connection| connection.stage == Stage::Hello) else {
            return;
        };
        if agrees {
            connection.stage = Stage::Features;
            connection.queue(&Message::FeaturesRequest);
        } else {
            let data = b"this controller supports OpenFlow 1.3 (wire version 4)";
            connection.queue(&Message::Error(ErrorMessage { kind: HELLO_FAILED, code: 0, data }));
            self.offence(id, &format!("it does not support OpenFlow 1.3; its highest wire version is {highest}"));
        }
        self.mark(id);
    }

    fn features(&mut self, now: Nanos, id: ConnectionId, features: &Features) {
        let dpid = features.datapath_id;
        let Some(connection) = self.connection_mut(id).filter(|connection| connection.stage == Stage::Features) else {
            return;
        };
        if features.auxiliary != 0 {
            return self.offence(id, "auxiliary connections are not supported");
        }
        connection.stage = Stage::Duplicate { dpid, since: now };
        if self.switches.node(dpid).is_err() {
            let why = format!("the fabric has no switch {dpid:016x}; name it under fabric.datapaths");
            return self.offence(id, &why);
        }
        if let Err(why) = self.check_certificate(id, dpid) {
            return self.offence(id, &why);
        }
        match self.switches.owner(dpid) {
            // The answer to an echo request shows whether the other connection is still alive.
            Some(owner) => self.echo(now, owner),
            None => self.admit(id, dpid),
        }
    }

    /// Whether a connection's certificate is valid for a switch.
    fn check_certificate(&mut self, id: ConnectionId, dpid: u64) -> Result<(), String> {
        let borne = self.connection_mut(id).and_then(|connection| connection.certificate.clone());
        let node = self.switches.node(dpid).ok().flatten();
        let name = node.zip(self.fabric.as_ref()).map_or("", |(node, fabric)| &fabric.node(node).name);
        self.binding.check(borne.as_deref(), name, dpid)
    }

    /// Continues the handshake: the datapath identifier belongs to this connection.
    pub(crate) fn admit(&mut self, id: ConnectionId, dpid: u64) {
        let node = self.switches.node(dpid).unwrap_or_default();
        self.switches.set_owner(dpid, id);
        let Some(connection) = self.connection_mut(id) else { return };
        connection.node = node;
        self.begin(id, dpid);
    }

    /// Two connections claim one datapath identifier. The existing session stays if it has sent anything since.
    pub(crate) fn resolve_duplicate(&mut self, now: Nanos, id: ConnectionId, dpid: u64, since: Nanos) {
        let owner = self.switches.owner(dpid).and_then(|owner| {
            let connection = self.connection_mut(owner)?;
            Some((owner, connection.peer.clone(), connection.last_heard, connection.is_closed()))
        });
        match owner {
            Some((_, peer, heard, false)) if heard > since => {
                let why = format!(
                    "switch {dpid:016x} is connected from {peer} already; give one of them another datapath identifier"
                );
                self.offence(id, &why);
            }
            Some((owner, ..)) => {
                self.close(owner, "another connection of the same switch took its place");
                self.disconnect(now, owner, "replaced");
                self.admit(id, dpid);
            }
            None => self.admit(id, dpid),
        }
    }

    fn echo_reply(&mut self, now: Nanos, id: ConnectionId, bytes: &[u8]) {
        let Ok(sent) = <[u8; 8]>::try_from(bytes) else { return };
        let rtt = now.saturating_sub(Nanos(u64::from_be_bytes(sent)));
        self.up(now, id, |switch| Input::Rtt { switch, rtt });
    }

    fn ports_known(&mut self, now: Nanos, id: ConnectionId, ports: &[Port]) {
        let Some(connection) = self.connection_mut(id) else { return };
        let Stage::Ports { dpid } = connection.stage else { return };
        let (node, peer) = (connection.node, connection.peer.clone());
        if self.discovery.as_ref().is_some_and(|discovery| discovery.is_duplicate(dpid, ports)) {
            return self.offence(id, "a connected switch has this datapath identifier; give each its own");
        }
        if let Some(connection) = self.connection_mut(id) {
            connection.stage = Stage::Up { dpid };
            ports.iter().for_each(|port| connection.note_port(port.number));
        }
        self.counts.sessions += 1;
        if let Some(discovery) = &mut self.discovery {
            discovery.switch_up(now, dpid, ports);
            self.connection_mut(id).into_iter().for_each(|connection| connection.discovered_dpid = Some(dpid));
        }
        if self.discovery.is_some() || node.is_some() {
            own_rules::write_own_rules(self, id);
        }
        let Some((switch, fabric)) = node.zip(self.fabric.clone()) else { return };
        let map = self.port_map(switch);
        let own = |wanted: u32| map.map_or(wanted, |map| map.own(PortNo(wanted)).0);
        let is_up = |wanted: u32| ports.iter().any(|port| port.number == own(wanted) && port.is_up());
        let all = 1..=fabric.node(switch).ports.len() as u32;
        let is_dead =
            |port: u32| self.discovery.as_ref().is_some_and(|discovery| discovery.is_dead(switch, PortNo(port)));
        let ports_down: Vec<PortNo> = all.filter(|&port| !is_up(port) || is_dead(port)).map(PortNo).collect();
        let name = &fabric.node(switch).name;
        tracing::info!(switch = format!("{dpid:016x}"), name, %peer, ports_down = ports_down.len(), "a session is up");
        self.switches.begin_session(switch, id);
        self.gauges.switch_changed(&fabric, switch);
        self.handle_now(now, Input::SwitchUp { switch, ports_down });
        // The answer may be long, so what the session needs at once goes first.
        if let Some(connection) = self.connection_mut(id) {
            ask(connection, Request::TableFeatures, Pending::Capacity(0, 0));
        }
        self.mark(id);
    }

    /// Handles the number of rules that the table of paths of a switch can hold; 0 if the switch has not told.
    fn capacity_known(&mut self, now: Nanos, id: ConnectionId, rules: u32) {
        let own = own_rules::all_own_rules(self, id).len();
        let Some(connection) = self.connection_mut(id) else { return };
        let rules = connection.room.of(rules, own);
        let limit = self.controller().and_then(|controller| controller.config().rule_limit);
        if rules > 0 && limit.is_some_and(|limit| rules < limit) {
            let switch = self.name_of(id);
            tracing::info!(switch, rules, limit, "its table of paths holds fewer rules than control.rule_limit");
        }
        self.up(now, id, |switch| Input::Capacity { switch, rules });
    }

    fn port_status(&mut self, now: Nanos, id: ConnectionId, status: &PortStatus) {
        let port = status.port.number;
        if port > PORT_MAX {
            return;
        }
        let gone = status.reason == PortReason::Deleted;
        let Some(connection) = self.connection_mut(id) else { return };
        if matches!(connection.stage, Stage::Ports { .. }) {
            return connection.keep_for_later(status);
        }
        let (Stage::Up { dpid }, node) = (connection.stage, connection.node) else { return };
        let news = !connection.has_port(port);
        connection.note_port(port);
        if news {
            own_rules::refuse_unknown_port(self, id, port);
        }
        let mut up = !gone && status.port.is_up();
        let in_fabric = node.map_or(PortNo(port), |switch| self.fabric_port(switch, PortNo(port)));
        if let Some((switch, fabric)) = node.zip(self.fabric.clone()) {
            self.gauges.port_changed(&fabric, switch, in_fabric);
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.port_status(now, dpid, &status.port, gone);
            up &= node.is_none_or(|switch| !discovery.is_dead(switch, in_fabric));
        }
        self.up(now, id, |switch| Input::PortStatus { switch, port: in_fabric, up });
    }

    fn flow_removed(&mut self, now: Nanos, id: ConnectionId, removed: &FlowRemoved) {
        if punts::is_own(removed.cookie) {
            if matches!(removed.reason, RemovedReason::Deleted | RemovedReason::GroupDeleted) {
                // This causes a review, which restores the rule if the switch should have it.
                self.up(now, id, |switch| Input::Resync { switch: Some(switch) });
            }
            return;
        }
        let Some(key) = convert::removed_key(removed) else { return };
        let counters = RuleCounters { packets: removed.packets, bytes: removed.bytes };
        let why = match removed.reason {
            RemovedReason::Idle => Removal::Idle,
            RemovedReason::Hard => Removal::Hard,
            RemovedReason::Deleted | RemovedReason::GroupDeleted => Removal::Deleted,
        };
        self.up(now, id, |switch| Input::RuleRemoved { switch, key, cookie: removed.cookie, counters, why });
    }

    fn error(&mut self, now: Nanos, id: ConnectionId, xid: u32, error: &ErrorMessage<'_>) {
        self.counts.errors += 1;
        if self.is_role_refused(now, id, xid, error) {
            return;
        }
        let ErrorMessage { kind, code, .. } = *error;
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.pending.contains_key(&xid) {
            let reading = connection.reading.as_ref().filter(|reading| reading.waiting.contains(&xid));
            let is_rules = reading.is_some_and(|reading| reading.rules_xid == xid);
            let is_list = is_rules || reading.is_some() && convert::may_succeed_later(error);
            let unread = connection.pending.get(&xid).and_then(|pending| pending.unread(is_list, is_rules));
            if let Some(what) = unread {
                connection.pending.remove(&xid);
                if is_list {
                    connection.note_refused_reading(now);
                }
                let why = convert::refusal(error);
                if let Some(count) = connection.complain() {
                    tracing::warn!(peer = %connection.peer, node = ?connection.node, xid, kind, code, %why, count, "a switch refused {what}");
                }
                return;
            }
            // A switch without meters answers the request for meters with an error. It has none.
            return self.answered(now, id, xid);
        }
        if kind == FLOW_MOD_FAILED {
            connection.note_refused_rule(now, xid);
        }
        connection.note_absent(error);
        let why = convert::refusal(error);
        if let Some(count) = connection.complain() {
            tracing::warn!(peer = %connection.peer, node = ?connection.node, xid, kind, code, %why, count, "a switch refused a message");
        }
        self.up(now, id, |switch| Input::Refused { switch, xid, why });
    }

    /// Handles a part of an answer.
    fn part(&mut self, now: Nanos, id: ConnectionId, xid: u32, reply: MultipartReply) {
        let map = self.map_of(id);
        let Hub { connections, hash_steps, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(pending) = connection.pending.get_mut(&xid) else {
            tracing::debug!(peer = %connection.peer, xid, "an answer without a request");
            return;
        };
        match (pending, reply.reply) {
            (Pending::Description, Reply::Description(about)) => {
                tracing::debug!(peer = %connection.peer, maker = about.maker, software = about.software, "a switch");
                if let Some(node) = connection.node {
                    connection.hash_step = hash_steps.of(node, &about);
                }
            }
            (Pending::Ports(known), Reply::PortDesc(ports)) => known.extend(ports),
            (Pending::FlowStats { rows, .. }, Reply::Flows(found)) => rows.extend(found.iter().filter_map(row)),
            (Pending::PortStats(rows), Reply::Ports(found)) => rows.extend(found.iter().map(|port| PortStats {
                port: map.as_ref().map_or(PortNo(port.port), |map| map.fabric(PortNo(port.port))),
                tx_bytes: port.bytes[1],
                rx_bytes: port.bytes[0],
                tx_dropped: Some(port.dropped[1]).filter(|&count| count != u64::MAX).unwrap_or(0),
            })),
            (Pending::Refused(rows), Reply::Flows(found)) => rows.extend(found.iter().filter_map(refused::row)),
            (Pending::Reading, Reply::Flows(found)) => return self.rules_read(now, id, (xid, reply.more), &found),
            (Pending::Reading, Reply::GroupDesc(found)) => {
                connection.groups.extend(found.iter().map(|group| group.id));
                if let Some(reading) = &mut connection.reading {
                    reading.rows += found.len();
                    reading.before[0].retain(|&id| found.iter().all(|group| group.id != id));
                    let step = connection.hash_step;
                    let read = found.iter().filter_map(convert::read_group).map(|group| step.to_fabric(group));
                    reading.groups.extend(read.map(|group| match &map {
                        None => group,
                        Some(map) => numbers::group_to_fabric(map, &group),
                    }));
                }
            }
            (Pending::Reading, Reply::MeterConfigs(found)) => {
                connection.meters.extend(found.iter().map(|meter| meter.id));
                if let Some(reading) = &mut connection.reading {
                    reading.rows += found.len();
                    reading.before[1].retain(|&id| found.iter().all(|meter| meter.id != id));
                    reading.meters.extend(found.iter().filter_map(convert::read_meter));
                }
            }
            (Pending::Capacity(most, tables), Reply::TableFeatures(found)) => {
                *tables += found.len();
                let paths = found.iter().find(|one| one.table == LONG_FLOWS);
                *most = paths.map_or(*most, |one| one.max_entries);
            }
            (pending, _) => {
                let pending = format!("{pending:?}");
                return self.offence(id, &format!("its answer does not match the request: {pending:.20}"));
            }
        }
        self.part_read(now, id, (xid, reply.more));
    }

    /// Handles the end of a part. Closes the connection if its answer has too many rows.
    fn part_read(&mut self, now: Nanos, id: ConnectionId, (xid, more): (u32, bool)) {
        let Some(connection) = self.connection_mut(id) else { return };
        let endless =
            connection.pending.get(&xid).is_some_and(|pending| pending.is_endless(connection.reading.as_ref()));
        match (more, endless) {
            (true, true) => self.offence(id, "its answer has more rows than any switch has, and does not end"),
            (true, false) => {}
            (false, _) => self.answered(now, id, xid),
        }
    }

    /// Handles some rules of a switch. Rules of a review are passed on at once.
    fn rules_read(&mut self, now: Nanos, id: ConnectionId, (xid, more): (u32, bool), rows: &[FlowStats]) {
        let map = self.map_of(id);
        let Some(reading) = self.connection_mut(id).and_then(|connection| connection.reading.as_mut()) else { return };
        let mut rules = reading.take_rules(rows);
        if let Some(map) = map {
            rules.iter_mut().for_each(|rule| numbers::rule_to_fabric(&map, rule));
        }
        match reading.why {
            Why::Dump => reading.rules.extend(rules),
            Why::Review(number) => {
                let (groups, meters, last) = (Vec::new(), Vec::new(), false);
                self.up(now, id, |switch| Input::Reviewed { switch, number, rules, groups, meters, last });
            }
        }
        self.part_read(now, id, (xid, more));
    }

    /// Handles a switch whose rules, groups and meters have all been read.
    fn all_read(&mut self, now: Nanos, id: ConnectionId) {
        let foreign = self.foreign;
        let Some(connection) = self.connection_mut(id) else { return };
        let Some(mut reading) = connection.reading.take() else { return };
        // Groups and meters that have disappeared must be added again, not modified.
        connection.groups.retain(|group| !reading.before[0].contains(group));
        connection.meters.retain(|meter| !reading.before[1].contains(meter));
        if foreign == Foreign::Remove && reading.has_unmarked() {
            for deletion in reading.deletions() {
                connection.queue(&deletion);
            }
            self.counts.foreign_removed += 1;
            self.mark(id);
        }
        let (rules, groups) = (std::mem::take(&mut reading.rules), std::mem::take(&mut reading.groups));
        let meters = std::mem::take(&mut reading.meters);
        let (why, own, arp_changed) = (reading.why, std::mem::take(&mut reading.own), reading.arp_changed);
        let foreign_rules = reading.into_foreign_rules();
        let name = self.name_of(id);
        if let Some(connection) = self.connection_mut(id) {
            foreign_rules.log_new(&connection.foreign_rules, &name);
            connection.foreign_rules = foreign_rules;
        }
        match why {
            Why::Dump => {
                self.up(now, id, |switch| Input::RuleDump { switch, rules, groups, meters });
                own_rules::add_arp_routes(self, id, &own);
            }
            Why::Review(number) => {
                own_rules::restore_own_rules(self, id, &own, arp_changed);
                self.up(now, id, |switch| Input::Reviewed { switch, number, rules, groups, meters, last: true });
            }
        }
    }

    /// The fabric's port numbers for the switch of a session; `None` if the switch has the same numbers.
    fn map_of(&mut self, id: ConnectionId) -> Option<PortMap> {
        let node = self.connection_mut(id)?.node?;
        self.port_map(node).cloned()
    }

    /// The name of the switch of a session.
    pub(crate) fn name_of(&mut self, id: ConnectionId) -> String {
        let node = self.connection_mut(id).and_then(|connection| connection.node);
        node.zip(self.fabric.as_ref()).map_or_else(String::new, |(node, fabric)| fabric.node(node).name.clone())
    }

    /// Handles an answer that is complete or will not come.
    fn answered(&mut self, now: Nanos, id: ConnectionId, xid: u32) {
        let Some(pending) = self.connection_mut(id).and_then(|connection| connection.pending.remove(&xid)) else {
            return;
        };
        match pending {
            Pending::Description => {}
            Pending::Ports(mut ports) => {
                self.connection_mut(id).into_iter().for_each(|connection| connection.update(&mut ports));
                self.ports_known(now, id, &ports);
            }
            Pending::FlowStats { asked, rows } => {
                self.up(now, id, |switch| Input::FlowStats { switch, rows });
                self.up(now, id, |switch| Input::Rtt { switch, rtt: now.saturating_sub(asked) });
            }
            Pending::PortStats(rows) => {
                let switch = self.connection_mut(id).and_then(|connection| connection.node);
                if let Some((switch, fabric)) = switch.zip(self.fabric.clone()) {
                    self.gauges.ports(now, &fabric, switch, &rows);
                }
                self.up(now, id, |switch| Input::PortStats { switch, rows });
            }
            Pending::Refused(rows) => self.count_refused(now, id, &rows),
            Pending::Capacity(rules, _) => self.capacity_known(now, id, rules),
            Pending::Reading => {
                let Some(reading) = self.connection_mut(id).and_then(|connection| connection.reading.as_mut()) else {
                    return;
                };
                reading.waiting.retain(|&waiting| waiting != xid);
                if reading.waiting.is_empty() {
                    self.all_read(now, id);
                }
            }
        }
    }

    /// Counts a TLS handshake that was ended because there were too many at a time.
    pub fn handshake_refused(&mut self, now: Nanos, peer: &str, why: &str, what: &str) {
        self.advance(now);
        self.counts.handshakes += 1;
        self.complain(peer, why, what);
    }

    /// Counts a peer whose TLS handshake failed.
    pub fn handshake_failed(&mut self, now: Nanos, peer: &str, why: &str, what: &str) {
        self.counts.offences += 1;
        self.handshake_refused(now, peer, why, what);
    }

    /// Logs an offence of a peer: one line, and then a count.
    pub(crate) fn complain(&mut self, peer: &str, why: &str, what: &str) {
        let now = self.now;
        if let Some(times) = self.log_limiter.count_to_log(now, &subject(peer, why)) {
            tracing::warn!(peer, why, times, "{what}");
        }
    }
}

/// Sends a multipart request and notes what its answer is for. Returns its transaction identifier.
pub(crate) fn ask(connection: &mut Connection, request: Request, pending: Pending) -> u32 {
    let xid = connection.queue(&Message::MultipartRequest(MultipartRequest { more: false, request }));
    connection.pending.insert(xid, pending);
    xid
}

fn row(stats: &FlowStats) -> Option<RuleStats> {
    let key = convert::read_key(stats.table, stats.priority, &stats.matches)?;
    let counters = RuleCounters { packets: stats.packets, bytes: stats.bytes };
    Some(RuleStats { key, cookie: stats.cookie, counters })
}
