//! Rules that somebody else has deleted, changed or added.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_control::Input;
use pathloom_model::Nanos;
use pathloom_openflow::flow_match::{FlowMatch, ETH_IPV4};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{FlowCommand, FlowMod, FlowStatsRequest, Message, TABLE_ALL};
use pathloom_testnet::Timing;

/// Somebody else sends a switch this message.
fn by_another(lab: &mut Lab, switch: &str, message: &Message<'_>) {
    let node = lab.node(switch);
    lab.meddle(node, message);
}

fn delete_all() -> Message<'static> {
    Message::FlowMod(FlowMod { command: FlowCommand::Delete, table: TABLE_ALL, ..FlowMod::NOTHING })
}

/// Runs with traffic until all rules are back. Returns how long that took.
fn back(lab: &mut Lab, before: &crate::faults::world::State) -> Nanos {
    let begun = lab.now();
    while !lab.changed_since(before).is_empty() {
        assert!(lab.now() - begun < s(120), "still changed: {:?}", lab.changed_since(before));
        lab.traffic(ms(10));
    }
    lab.now() - begun
}

#[test]
fn deleted_rules_of_a_switch_are_restored_at_once() {
    for switch in ["e0_0", "a0_0", "c0"] {
        // With the longest period, rules that are restored sooner are not restored by the periodic reading.
        let mut lab = Lab::with(K4, QUIET, "[reconcile]\nperiod = \"30s\"\n", Timing::SLOW, 1);
        lab.begin_flows(8);
        lab.traffic(s(3));
        let before = lab.state();
        // Without the rules of the controller, some of which it adds and deletes all the time.
        let own_rules = FlowStatsRequest { cookie: 0xb << 60, cookie_mask: 0xf << 60, ..FlowStatsRequest::ALL };
        let own = |lab: &Lab| lab.devices[&lab.node(switch)].tables.rows(&own_rules).len();
        let rows = own(&lab);
        by_another(&mut lab, switch, &delete_all());
        assert!(!lab.changed_since(&before).is_empty(), "{switch}");
        let took = back(&mut lab, &before);
        assert!(took < s(5), "{switch}: {took:?}");
        lab.run_for(s(1));
        assert_eq!(own(&lab), rows, "{switch}: rules for control traffic come back as well");
        assert_eq!(lab.logged(&["the controller restored them"]).len(), 1, "{switch}");
        // Packets are lost only while the rules are missing.
        let restored = lab.now();
        lab.traffic(s(1));
        lab.run_for(ms(200));
        assert!(lab.delivery_errors().iter().all(|report| report.sent < restored), "{switch}");
    }
}

#[test]
fn groups_and_changed_rules_come_back_within_the_period() {
    let mut lab = Lab::with(K4, "ecmp", "[reconcile]\nperiod = \"5s\"\n", Timing::SLOW, 1);
    let before = lab.state();
    let (edge, aggregation) = (lab.node("e0_0"), lab.node("a0_0"));
    // The rule that leads to the group is deleted with it; the switch does not report that.
    lab.devices.get_mut(&edge).unwrap().clear();
    for rule in lab.devices[&aggregation].tables.rules().into_iter().filter(|rule| rule.table == 2) {
        let matches = pathloom_openflow::convert::match_of(&rule.matches).unwrap();
        let (cookie, priority, table) = (rule.cookie, rule.priority, rule.table);
        let change = FlowMod { cookie, priority, table, matches, ..FlowMod::NOTHING };
        lab.meddle(aggregation, &Message::FlowMod(change));
    }
    assert_eq!(lab.changed_since(&before).len(), 2);
    let took = back(&mut lab, &before);
    assert!(took < s(7), "{took:?}");
}

#[test]
fn a_request_makes_the_controller_read_all_switches_at_once() {
    let mut lab = Lab::with(K4, "ecmp", "[reconcile]\nperiod = \"30s\"\n", Timing::SLOW, 1);
    let before = lab.state();
    for switch in ["a0_0", "a1_1", "a3_0"] {
        let node = lab.node(switch);
        lab.devices.get_mut(&node).unwrap().clear();
    }
    lab.give(Input::Resync { switch: None });
    let took = back(&mut lab, &before);
    assert!(took < s(5), "{took:?}");
}

#[test]
fn rules_of_others_are_named_once_and_removed_if_configured() {
    let everything = (std::net::Ipv4Addr::new(10, 0, 0, 0), std::net::Ipv4Addr::new(255, 0, 0, 0));
    let matches = FlowMatch { eth_type: Some(ETH_IPV4), ipv4_dst: Some(everything), ..FlowMatch::default() };
    let instructions = Instructions::default();
    let stranger =
        Message::FlowMod(FlowMod { cookie: 0x77, priority: 60_000, matches, instructions, ..FlowMod::NOTHING });
    for removes in [false, true] {
        let foreign = if removes { "remove" } else { "keep" };
        let more = format!("[reconcile]\nperiod = \"5s\"\nforeign = \"{foreign}\"\n");
        let mut lab = Lab::with(K4, "ecmp", &more, Timing::SLOW, 1);
        let before = lab.state();
        by_another(&mut lab, "e0_0", &stranger);
        lab.run_for(s(20));
        let named = lab.logged(&["a rule that is not the controller's", "priority 60000", "0x77", "10.0.0.0"]);
        assert_eq!(named.len(), 1, "the rule is named once");
        assert_eq!(lab.changed_since(&before).is_empty(), removes);
    }
}
