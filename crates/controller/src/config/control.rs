//! The table `[control]` of the configuration: how the controller treats flows, rules and path assignments.
//!
//! It has the settings that an operator decides. Values that follow from other tables, or from the scheme, are not in
//! it.

use pathloom_control::{AssignmentLimits, Config, Enforcement};
use pathloom_model::Nanos;
use serde::Deserialize;

/// Idle time-out, in seconds, of the rules that lead flows onto their own paths. Without a controller, TCP leaves a
/// dead path within four times this time.
const PATH_IDLE_S: u16 = 2;

/// Default of `rule_limit`: the size of large tables of switches. Smaller ones hold 2,000 rules.
const RULE_LIMIT: u32 = 16_384;

/// How the controller treats flows, rules and path assignments.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSettings {
    /// A flow that sent nothing for this number of seconds is over.
    pub idle_timeout_s: u16,
    /// The rule that leads a flow onto its own path times out after this number of seconds without a packet. The default
    /// is 2, or `idle_timeout_s` if that is less.
    pub path_idle_timeout_s: Option<u16>,
    /// Maximum number of flows of one host at a time.
    pub max_flows_per_host: u32,
    /// Maximum number of rules at a ToR that count flows which no host announced or labelled.
    pub max_counted_per_tor: u32,
    /// Maximum number of rules of a switch, which its hosts share.
    pub rule_limit: u32,
    /// How long the rules of a path stay after its flow has left it. Without it, as long as the buffers and delays of the
    /// path can hold a packet.
    #[serde(deserialize_with = "crate::config::duration::optional_nanos")]
    pub drain: Option<Nanos>,
    /// Who enforces the rates that a scheme gives to flows.
    pub enforcement: Enforcement,
    /// Limits of path assignments.
    #[serde(deserialize_with = "AssignmentsWithUnits::deserialize")]
    pub assignments: AssignmentLimits,
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        let Config { idle_timeout_s, max_flows_per_host, max_counted_per_tor, .. } = Config::default();
        ControlSettings {
            idle_timeout_s,
            path_idle_timeout_s: None,
            max_flows_per_host,
            max_counted_per_tor,
            rule_limit: RULE_LIMIT,
            drain: None,
            enforcement: Enforcement::Any,
            assignments: AssignmentLimits::default(),
        }
    }
}

/// The form of [`AssignmentLimits`] in the configuration: its times have units.
#[derive(Deserialize)]
#[serde(remote = "AssignmentLimits", deny_unknown_fields, default = "AssignmentLimits::default")]
struct AssignmentsWithUnits {
    most: u32,
    most_per_owner: u32,
    most_paths: u32,
    most_claims: u32,
    #[serde(deserialize_with = "crate::config::duration::nanos")]
    claim_timeout: Nanos,
    #[serde(deserialize_with = "crate::config::duration::nanos")]
    lifetime: Nanos,
    #[serde(deserialize_with = "crate::config::duration::nanos")]
    longest_lifetime: Nanos,
}

impl ControlSettings {
    /// Checks the settings. Returns the configuration of the controller's core.
    ///
    /// # Errors
    /// The error names the setting and what was expected.
    pub(crate) fn check(&self) -> Result<Config, String> {
        let longest_s = self.idle_timeout_s;
        if longest_s == 0 {
            return Err("control.idle_timeout_s: 1 or more was expected; with 0, flows would never end".into());
        }
        let path_idle_timeout_s = self.path_idle_timeout_s.unwrap_or(PATH_IDLE_S.min(longest_s));
        if !(1..=longest_s).contains(&path_idle_timeout_s) {
            return Err(format!(
                "control.path_idle_timeout_s: 1 to {longest_s}, which is idle_timeout_s, was expected"
            ));
        }
        if self.max_flows_per_host == 0 {
            return Err(
                "control.max_flows_per_host: 1 or more was expected; for default routes alone, use the scheme spt \
                        or ecmp"
                    .into(),
            );
        }
        if self.max_counted_per_tor == 0 {
            return Err(
                "control.max_counted_per_tor: 1 or more was expected; schemes that count no flows need none".into()
            );
        }
        if self.rule_limit == 0 {
            return Err("control.rule_limit: 1 or more was expected, the number of rules that a switch may have".into());
        }
        check_assignments(&self.assignments)?;
        Ok(Config {
            idle_timeout_s: longest_s,
            path_idle_timeout_s: Some(path_idle_timeout_s),
            max_flows_per_host: self.max_flows_per_host,
            max_counted_per_tor: self.max_counted_per_tor,
            rule_limit: Some(self.rule_limit),
            drain: self.drain,
            enforcement: Some(self.enforcement),
            assignments: self.assignments.clone(),
            ..Config::default()
        })
    }
}

fn check_assignments(limits: &AssignmentLimits) -> Result<(), String> {
    let AssignmentLimits { most, most_per_owner, most_paths, most_claims, claim_timeout, lifetime, longest_lifetime } =
        *limits;
    let numbers =
        [("most", most), ("most_per_owner", most_per_owner), ("most_paths", most_paths), ("most_claims", most_claims)];
    if let Some((name, _)) = numbers.iter().find(|(_, number)| *number == 0) {
        return Err(format!("control.assignments.{name}: 1 or more was expected"));
    }
    let times = [("claim_timeout", claim_timeout), ("lifetime", lifetime), ("longest_lifetime", longest_lifetime)];
    if let Some((name, _)) = times.iter().find(|(_, time)| *time == Nanos::ZERO) {
        return Err(format!("control.assignments.{name}: more than 0s was expected"));
    }
    if lifetime > longest_lifetime {
        return Err("control.assignments.lifetime: no more than longest_lifetime was expected".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::{check, CheckedConfig};
    use pathloom_model::Nanos;
    use std::path::Path;

    const LEAST: &str = "[fabric]\nspec = \"fat-tree:k=4\"\n";

    fn with(text: &str) -> Result<CheckedConfig, String> {
        check(&format!("{LEAST}{text}"), Path::new(""))
    }

    #[test]
    fn invalid_settings_are_named_with_their_place() {
        let cases = [
            ("[control]\nepok = 1", ["epok", "line"]),
            ("[control]\npath_idle_timeout_s = 11", ["control.path_idle_timeout_s", "1 to 10"]),
            ("[control]\nmax_counted_per_tor = 0", ["control.max_counted_per_tor", "1 or more"]),
            ("[control]\nidle_timeout_s = 0", ["control.idle_timeout_s", "1 or more"]),
            ("[control]\nmax_flows_per_host = 0", ["control.max_flows_per_host", "1 or more"]),
            ("[control]\nrule_limit = 0", ["control.rule_limit", "1 or more"]),
            ("[control]\ndrain = 5", ["line 4", "string"]),
            ("[control]\nenforcement = \"hosts\"", ["`hosts`", "meter"]),
            ("[control]\nepoch = 3", ["epoch", "line 4"]),
            ("[control]\npriorities = { flow = 65535 }", ["priorities", "line 4"]),
            ("[control.assignments]\nmost_paths = 0", ["control.assignments.most_paths", "1 or more"]),
            ("[control.assignments]\nclaim_timeout = \"0s\"", ["claim_timeout", "more than 0s"]),
            ("[control.assignments]\nlifetime = \"48h\"", ["lifetime", "longest_lifetime"]),
        ];
        for (text, words) in cases {
            let found = with(text).unwrap_err();
            assert!(words.iter().all(|word| found.contains(word)), "{text}: {found}");
            assert!(!found.contains('\n'), "{found}");
        }
    }

    /// Every line of the example is a valid setting, also those behind a `#`. The lines without `#` are the defaults.
    #[test]
    fn the_example_has_the_defaults_of_the_control_table() {
        let example = include_str!("../../../../docs/controller.example.toml");
        let (_, from) = example.split_once("\n[control]\n").unwrap();
        let (control, _) = from.split_once("\n[flows]\n").unwrap();
        let given = |text: &str| with(&format!("[control]\n{text}")).unwrap().control(1);
        assert_eq!(given(control), with("").unwrap().control(1));
        let settings: String = control
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line))
            .map(|line| format!("{line}\n"))
            .collect();
        let given = given(&settings);
        assert_eq!(given.drain, Some(Nanos::from_millis(500)));
    }
}
