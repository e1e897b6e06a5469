//! Reads all rules, groups and meters of a switch; answers come in parts. Foreign rules are described here, because
//! `pathloom-control` cannot represent most of them.

use crate::hub::punts;
use pathloom_model::rules::{Group, Meter, Rule};
use pathloom_openflow::{convert, FlowCommand, FlowMod, FlowStats, Message};
use std::collections::BTreeSet;

/// Maximum number of foreign rules per switch that are described; further ones are only counted.
const MOST_NAMED: usize = 64;
/// Maximum number of the driver's own rules in a switch: one for each address, and some for each port.
const MOST_OWN: usize = 1 << 18;
/// Number of foreign rules that the log names at a time.
const NAMED_AT_ONCE: usize = 4;
/// The upper four bits of the cookies of `pathloom-control`.
const OUR_MARK: u64 = 0xa;

/// Why the rules of a switch are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Its session is new, or it refused a rule: the controller gets everything at once.
    Dump,
    /// A review with this number: the controller gets rules as they arrive, and groups and meters at the end.
    Review(u32),
}

/// The state of reading a switch.
#[derive(Debug)]
pub(crate) struct Reading {
    pub why: Why,
    /// Transaction identifiers of requests without a complete answer.
    pub waiting: Vec<u32>,
    /// Transaction identifier of the request for rules.
    pub rules_xid: u32,
    pub rules: Vec<Rule>,
    pub groups: Vec<Group>,
    pub meters: Vec<Meter>,
    /// Number of rows read: rules, groups and meters.
    pub rows: usize,
    /// Groups and meters that the switch was known to have when it was asked, without those found so far.
    pub before: [BTreeSet<u32>; 2],
    /// Rules of the driver that the switch has.
    pub own: Vec<FlowStats>,
    /// Whether rules for ARP were changed since the switch was asked. Then the rows may have them or not.
    pub arp_changed: bool,
    foreign: ForeignRules,
    /// Tables and cookies of foreign rules.
    marks: BTreeSet<(u8, u64)>,
}

/// Foreign rules of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ForeignRules {
    /// Their number.
    pub count: u64,
    /// Their descriptions, at most `MOST_NAMED`.
    pub names: BTreeSet<String>,
}

impl Reading {
    pub(crate) fn new(why: Why, before: [BTreeSet<u32>; 2]) -> Reading {
        let (rules, groups, meters) = (Vec::new(), Vec::new(), Vec::new());
        Reading {
            why,
            waiting: Vec::new(),
            rules_xid: 0,
            rules,
            groups,
            meters,
            rows: 0,
            before,
            own: Vec::new(),
            arp_changed: false,
            foreign: ForeignRules::default(),
            marks: BTreeSet::new(),
        }
    }

    /// Handles some rows; returns the rules among them that may be the controller's.
    pub(crate) fn take_rules(&mut self, rows: &[FlowStats]) -> Vec<Rule> {
        self.rows += rows.len();
        let mut rules = Vec::with_capacity(rows.len());
        for row in rows {
            let ours = row.cookie >> 60 == OUR_MARK;
            if punts::is_own(row.cookie) && self.own.len() < MOST_OWN {
                self.own.push(row.clone());
                continue;
            }
            match convert::read_rule(row) {
                Some(rule) if ours => rules.push(rule),
                rule => {
                    self.note_foreign(row, ours);
                    // The rule may have the table, priority and match of one of the controller's rules, so the
                    // controller gets it.
                    rules.extend(rule);
                }
            }
        }
        rules
    }

    fn note_foreign(&mut self, row: &FlowStats, ours: bool) {
        self.foreign.count += 1;
        if self.foreign.names.len() < MOST_NAMED {
            self.foreign.names.insert(in_words(row));
        }
        if !ours {
            // The controller replaces changed rules that have its mark.
            self.marks.insert((row.table, row.cookie));
        }
    }

    /// Returns the messages that delete the foreign rules found. They select by table and cookie, because no rule of
    /// the controller has one of these cookies.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = Message<'static>> + '_ {
        self.marks.iter().map(|&(table, cookie)| {
            let command = FlowCommand::Delete;
            Message::FlowMod(FlowMod { cookie, cookie_mask: u64::MAX, table, command, ..FlowMod::NOTHING })
        })
    }

    /// Whether a foreign rule without the controller's mark was found.
    pub(crate) fn has_unmarked(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The foreign rules.
    pub(crate) fn into_foreign_rules(self) -> ForeignRules {
        self.foreign
    }
}

impl ForeignRules {
    /// Logs the foreign rules that were not there `before`. If a switch has many, also logs their number.
    pub(crate) fn log_new(&self, before: &ForeignRules, switch: &str) {
        let new: Vec<&String> = self.names.difference(&before.names).collect();
        for rule in new.iter().take(NAMED_AT_ONCE) {
            tracing::warn!(switch, %rule, "a rule that is not the controller's");
        }
        let count = self.count;
        if new.len() > NAMED_AT_ONCE {
            tracing::warn!(
                switch,
                count,
                "there are more rules that are not the controller's; GET /v1/switches counts them"
            );
        } else if count == 0 && before.count > 0 {
            tracing::info!(switch, "no foreign rule is left");
        }
    }
}

/// Describes a rule in one line.
fn in_words(row: &FlowStats) -> String {
    let matches = format!("{:?}", row.matches);
    // Fields that are `None` match everything and are omitted.
    let fields = matches.trim_start_matches("FlowMatch { ").trim_end_matches(" }").split(", ");
    let fields: Vec<&str> = fields.filter(|field| !field.ends_with("None") && !field.ends_with("false")).collect();
    let does = match (&row.instructions.apply[..], row.instructions.goto_table) {
        ([], None) => "drop".to_owned(),
        ([], Some(table)) => format!("go to table {table}"),
        (actions, _) => format!("{actions:?}"),
    };
    let matches = if fields.is_empty() { "everything".to_owned() } else { fields.join(", ") };
    format!("table {}, priority {}, cookie {:#x}: {matches} -> {does}", row.table, row.priority, row.cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_openflow::action::Action;
    use pathloom_openflow::instruction::Instructions;

    fn row(cookie: u64, table: u8, actions: &'static [Action]) -> FlowStats {
        FlowStats {
            table,
            duration_s: 0,
            duration_ns: 0,
            priority: 40_000,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            flags: 0,
            cookie,
            packets: 0,
            bytes: 0,
            matches: Default::default(),
            instructions: Instructions { apply: actions.into(), ..Instructions::default() },
        }
    }

    #[test]
    fn foreign_rules_are_distinguished_from_the_controllers() {
        let mut reading = Reading::new(Why::Review(1), Default::default());
        let normal: &[Action] = &[Action::Output { port: 0xffff_fffa, max_len: 0 }];
        let ours = 0xa << 60;
        let rules = reading.take_rules(&[row(ours, 0, &[]), row(5, 0, &[]), row(5, 0, normal), row(ours, 1, normal)]);
        // A rule that drops may replace one of the controller's rules. A rule that the controller cannot have is only
        // named.
        assert_eq!(rules.iter().map(|rule| rule.cookie).collect::<Vec<_>>(), [ours, 5]);
        assert_eq!(reading.deletions().count(), 1, "the controller's rules are replaced, not deleted by cookie");
        let foreign_rules = reading.into_foreign_rules();
        assert_eq!((foreign_rules.count, foreign_rules.names.len()), (3, 3));
        let name = foreign_rules.names.first().unwrap();
        assert_eq!(
            name,
            "table 0, priority 40000, cookie 0x5: everything -> [Output { port: 4294967290, max_len: 0 }]"
        );
    }

    #[test]
    fn many_foreign_rules_are_counted_and_not_all_named() {
        let mut reading = Reading::new(Why::Dump, Default::default());
        for cookie in 1..=1000 {
            reading.take_rules(&[row(cookie, 0, &[])]);
        }
        let foreign_rules = reading.into_foreign_rules();
        assert_eq!((foreign_rules.count, foreign_rules.names.len()), (1000, MOST_NAMED));
    }
}
