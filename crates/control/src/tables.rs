//! The flow tables of a switch, with the tables that each can continue to. Every rule is built with this data.

use pathloom_model::rules::{Actions, Match, Rule};

/// A table, and the tables to which its rules may continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its number.
    pub id: u8,
    /// Name that describes its purpose.
    pub name: &'static str,
    /// Numbers of the tables to which its rules may continue.
    pub edges: &'static [u8],
}

/// Control traffic, and detection by copies of first and last packets.
pub const CONTROL: u8 = 0;
/// Long flows, by exact five-tuple.
pub const LONG_FLOWS: u8 = 1;
/// Default routes.
pub const DEFAULTS: u8 = 2;

/// All tables, by number.
pub const TABLES: [Table; 3] = [
    Table { id: CONTROL, name: "control", edges: &[LONG_FLOWS] },
    Table { id: LONG_FLOWS, name: "long-flows", edges: &[DEFAULTS] },
    Table { id: DEFAULTS, name: "defaults", edges: &[] },
];

/// Creates a rule of `table` without time-outs, meter, cookie and removal notice.
pub(crate) fn rule(table: u8, priority: u16, matches: Match, actions: Actions, goto: Option<u8>) -> Rule {
    debug_assert!(goto.is_none_or(|next| TABLES[table as usize].edges.contains(&next)), "no edge from table {table}");
    Rule {
        table,
        priority,
        matches,
        actions,
        goto,
        meter: None,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        cookie: 0,
        notify_removal: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lead_to_later_tables_that_exist() {
        for (index, table) in TABLES.iter().enumerate() {
            assert_eq!(usize::from(table.id), index, "{}", table.name);
            assert!(table.edges.iter().all(|&next| next > table.id && usize::from(next) < TABLES.len()));
        }
    }
}
