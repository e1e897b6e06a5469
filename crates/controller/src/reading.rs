//! Reading all that a switch has: answers come in parts. Rules of others are named here, for the controller proper has
//! no words for most of them.

use crate::punts;
use pathloom_model::rules::{Group, Meter, Rule};
use pathloom_openflow::{convert, FlowCommand, FlowMod, FlowStats, Message};
use std::collections::BTreeSet;

/// Rules of others that are told apart per switch; the rest is counted.
const MOST_NAMED: usize = 64;
/// More rules of the driver's own than any switch should have: two for each of 2,000 ports.
const MOST_OWN: usize = 4096;
/// Rules of others that the log names at a time.
const NAMED_AT_ONCE: usize = 4;
/// What the cookies of the controller proper begin with, in the upper four bits.
const OUR_MARK: u64 = 0xa;

/// What becomes of rules that are not the controller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Foreign {
    /// They are named and counted.
    #[default]
    Keep,
    /// They are deleted as well.
    Remove,
}

/// Why a switch is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Its session has come to stand, or it refused a rule: all is told at once.
    Dump,
    /// A review of this number: parts are told as they come.
    Review(u32),
}

/// What has been read so far.
#[derive(Debug)]
pub(crate) struct Reading {
    pub why: Why,
    /// Requests that are still to be answered.
    pub waiting: Vec<u32>,
    /// The one for rules.
    pub rules_xid: u32,
    pub rules: Vec<Rule>,
    pub groups: Vec<Group>,
    pub meters: Vec<Meter>,
    /// Rows read.
    pub rows: usize,
    /// Groups and meters that the switch had when it was asked, as far as is known.
    pub before: [BTreeSet<u32>; 2],
    /// Rules of the driver's own.
    pub own: Vec<FlowStats>,
    foreign: Strangers,
    /// Tables and cookies of rules of others.
    marks: BTreeSet<(u8, u64)>,
}

/// Rules of others at a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Strangers {
    /// Their number.
    pub count: u64,
    /// What they are, in words, as far as they are told apart.
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
            foreign: Strangers::default(),
            marks: BTreeSet::new(),
        }
    }

    /// Takes some rows; returns the rules among them that may be the controller's.
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
                    // For what stands in the place of one of the controller's, as ever.
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
            // What has the controller's mark and was changed is replaced by the controller.
            self.marks.insert((row.table, row.cookie));
        }
    }

    /// The messages that delete the rules of others that were found: by cookie, for no rule of the controller has
    /// theirs.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = Message<'static>> + '_ {
        self.marks.iter().map(|&(table, cookie)| {
            let command = FlowCommand::Delete;
            Message::FlowMod(FlowMod { cookie, cookie_mask: u64::MAX, table, command, ..FlowMod::NOTHING })
        })
    }

    /// Number of different tables and cookies among them.
    pub(crate) fn has_strangers(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The rules of others.
    pub(crate) fn into_strangers(self) -> Strangers {
        self.foreign
    }
}

impl Strangers {
    /// Names those in the log that were not there `before`; a switch with many is named with their number.
    pub(crate) fn name_new(&self, before: &Strangers, switch: &str) {
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
            tracing::info!(switch, "no rule of others is left");
        }
    }
}

/// What a rule is, in one line.
fn in_words(row: &FlowStats) -> String {
    let matches = format!("{:?}", row.matches);
    // What is `None` matches everything, and is not said.
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
    fn rules_of_others_are_told_from_ours() {
        let mut reading = Reading::new(Why::Review(1), Default::default());
        let normal: &[Action] = &[Action::Output { port: 0xffff_fffa, max_len: 0 }];
        let ours = 0xa << 60;
        let rules = reading.take_rules(&[row(ours, 0, &[]), row(5, 0, &[]), row(5, 0, normal), row(ours, 1, normal)]);
        // A drop may stand in the place of one of ours; what no rule of ours could do is named alone.
        assert_eq!(rules.iter().map(|rule| rule.cookie).collect::<Vec<_>>(), [ours, 5]);
        assert_eq!(reading.deletions().count(), 1, "ours are replaced, not deleted by their cookie");
        let strangers = reading.into_strangers();
        assert_eq!((strangers.count, strangers.names.len()), (3, 3));
        let name = strangers.names.first().unwrap();
        assert_eq!(
            name,
            "table 0, priority 40000, cookie 0x5: everything -> [Output { port: 4294967290, max_len: 0 }]"
        );
    }

    #[test]
    fn so_many_rules_of_others_are_counted_and_not_all_named() {
        let mut reading = Reading::new(Why::Dump, Default::default());
        for cookie in 1..=1000 {
            reading.take_rules(&[row(cookie, 0, &[])]);
        }
        let strangers = reading.into_strangers();
        assert_eq!((strangers.count, strangers.names.len()), (1000, MOST_NAMED));
    }
}
