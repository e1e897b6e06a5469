//! Contents of the tables of all switches, in a form that allows two networks to be compared.

use pathloom_model::rules::{Bucket, Group, GroupId, RuleAction};
use pathloom_model::Fabric;
use pathloom_sim::{Simulation, SwitchTables, Tap};
use std::collections::BTreeMap;

/// Rules of every switch as text, with their number. Cookies are left out, and groups are written out in place of
/// their numbers, because two controllers may choose different ones.
pub(crate) type Tables = BTreeMap<String, usize>;

/// Contents of the tables of all switches.
pub(crate) fn of<T: Tap>(simulation: &mut Simulation<T>, fabric: &Fabric) -> Tables {
    let mut tables = Tables::new();
    for switch in simulation.switch_tables() {
        for line in lines(&switch) {
            *tables.entry(format!("{}: {line}", fabric.node(switch.switch).name)).or_default() += 1;
        }
    }
    tables
}

fn lines(switch: &SwitchTables) -> impl Iterator<Item = String> + '_ {
    let rules = switch.rules.iter().map(|rule| {
        let actions: Vec<String> = rule.actions.iter().map(|action| in_words(action, &switch.groups)).collect();
        let (table, priority, goto) = (rule.table, rule.priority, rule.goto);
        format!("table {table} priority {priority} {:?} does {} then {goto:?}", rule.matches, actions.join(" "))
    });
    let named = |id: GroupId| {
        let names = |actions: &[RuleAction]| actions.contains(&RuleAction::Group(id));
        switch.rules.iter().any(|rule| names(&rule.actions))
    };
    let idle = switch
        .groups
        .iter()
        .filter(move |group| !named(group.id))
        .map(|group| format!("idle group {:?}", group.buckets));
    rules.chain(idle).chain(switch.meters.iter().map(|meter| format!("{meter:?}")))
}

fn in_words(action: &RuleAction, groups: &[Group]) -> String {
    match action {
        RuleAction::Group(id) => match groups.iter().find(|group| group.id == *id) {
            Some(Group { kind, buckets, .. }) => {
                let of = |bucket: &Bucket| format!("{}x{:?}", bucket.weight, bucket.actions);
                format!("{kind:?} of {}", buckets.iter().map(of).collect::<Vec<_>>().join(" "))
            }
            None => "a group that does not exist".to_owned(),
        },
        other => format!("{other:?}"),
    }
}

/// Rules that one network has and the other lacks: the first lines of the list, or `None` if the networks are the
/// same.
pub(crate) fn difference(found: &Tables, expected: &Tables) -> Option<String> {
    let more = |a: &Tables, b: &Tables, what: &str| -> Vec<String> {
        let beyond = a.iter().filter(|(line, count)| b.get(*line).unwrap_or(&0) < count);
        beyond.map(|(line, _)| format!("{what} {line}")).collect()
    };
    let lines = [more(found, expected, "left over:"), more(expected, found, "missing:")].concat();
    let count = lines.len();
    (count > 0)
        .then(|| format!("{count} rules differ, such as {}", lines.into_iter().take(3).collect::<Vec<_>>().join("; ")))
}
