//! Translation of port numbers. The controller and its rules use those of the fabric, a switch uses its own. They
//! differ only where cables are used at other ports than configured ([`pathloom_discovery::wiring`]). Rules and groups
//! are translated when they are sent or read.
//!
//! The controller's rules do not match input ports. The driver's own rules match only input ports of hosts, which keep
//! their numbers.

use pathloom_discovery::wiring::PortMap;
use pathloom_model::rules::{Actions, Bucket, Group, Rule, RuleAction};
use pathloom_model::PortNo;

/// Translates a rule of the controller for its switch.
pub(crate) fn rule_to_switch(map: &PortMap, rule: &Rule) -> Rule {
    Rule { actions: actions(&rule.actions, |port| map.own(port)), ..rule.clone() }
}

/// Translates a rule of a switch for the controller.
pub(crate) fn rule_to_fabric(map: &PortMap, rule: &mut Rule) {
    rule.actions = actions(&rule.actions, |port| map.fabric(port));
}

/// Translates a group of the controller for its switch.
pub(crate) fn group_to_switch(map: &PortMap, group: &Group) -> Group {
    renumbered(group, |port| map.own(port))
}

/// Translates a group of a switch for the controller.
pub(crate) fn group_to_fabric(map: &PortMap, group: &Group) -> Group {
    renumbered(group, |port| map.fabric(port))
}

fn renumbered(group: &Group, number: impl Fn(PortNo) -> PortNo) -> Group {
    let bucket = |bucket: &Bucket| Bucket {
        watch_port: bucket.watch_port.map(&number),
        actions: bucket.actions.iter().map(|&one| action(one, &number)).collect(),
        ..*bucket
    };
    Group { buckets: group.buckets.iter().map(bucket).collect(), ..*group }
}

fn actions(all: &Actions, number: impl Fn(PortNo) -> PortNo) -> Actions {
    let all: Vec<RuleAction> = all.as_slice().iter().map(|&one| action(one, &number)).collect();
    all.into()
}

fn action(one: RuleAction, number: impl Fn(PortNo) -> PortNo) -> RuleAction {
    match one {
        RuleAction::Output(port) => RuleAction::Output(number(port)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::{GroupId, GroupKind, Match};

    #[test]
    fn rules_and_groups_are_renumbered_in_both_directions() {
        let map = PortMap::new([(3, 4), (4, 5), (5, 3)].map(|(own, fabric)| (PortNo(own), PortNo(fabric)))).unwrap();
        let actions = |port: u32| [RuleAction::SetTag(7), RuleAction::Output(PortNo(port))];
        let rule = |port: u32| Rule {
            table: 1,
            priority: 1000,
            matches: Match::default(),
            actions: actions(port).into(),
            goto: None,
            meter: None,
            idle_timeout_s: 10,
            hard_timeout_s: 0,
            cookie: 1,
            notify_removal: true,
        };
        let bucket = |port: u32| Bucket { weight: 1, watch_port: Some(PortNo(port)), actions: actions(port).into() };
        let group =
            |ports: [u32; 3]| Group { id: GroupId(1), kind: GroupKind::Select, buckets: ports.map(bucket).into() };
        assert_eq!(rule_to_switch(&map, &rule(4)), rule(3));
        assert_eq!(rule_to_switch(&map, &rule(1)), rule(1), "a port of a host");
        let mut back = rule(3);
        rule_to_fabric(&map, &mut back);
        assert_eq!(back, rule(4));
        assert_eq!(group_to_switch(&map, &group([3, 4, 5])), group([5, 3, 4]));
        assert_eq!(group_to_fabric(&map, &group([5, 3, 4])), group([3, 4, 5]));
    }
}
