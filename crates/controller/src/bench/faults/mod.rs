//! Random schedules of faults over hub and codec, in virtual time: for `pathloom bench faults --over-openflow`.

pub(crate) mod driven;
mod schedules;
pub(crate) mod world;

use schedules::Sabotage;
use std::io::Write;

/// Runs schedules with these seeds, and writes a line of JSON for each: `{"seed":1,"broken":[]}`. The words are the first
/// seed, the number of schedules and, in tests, the name of what is broken on purpose.
pub(super) fn run(words: &[&str]) -> Result<(), String> {
    let Some((first, count, sabotage)) = read(words) else {
        return Err(format!(
            "faults {}: a seed, a number of schedules and perhaps one of {} were expected",
            words.join(" "),
            Sabotage::ALL.map(Sabotage::name).join(", ")
        ));
    };
    let mut out = std::io::stdout().lock();
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let line = serde_json::json!({ "seed": seed, "broken": broken_promises(seed, sabotage) });
        writeln!(out, "{line}").map_err(|problem| format!("cannot write a result: {problem}"))?;
    }
    Ok(())
}

fn read(words: &[&str]) -> Option<(u64, u64, Option<Sabotage>)> {
    let (first, count, sabotage) = match *words {
        [first, count] => (first, count, None),
        [first, count, name] => (first, count, Some(Sabotage::ALL.into_iter().find(|one| one.name() == name)?)),
        _ => return None,
    };
    Some((first.parse().ok()?, count.parse().ok()?, sabotage))
}

/// Promises that the schedule of a seed breaks. A panic is one.
fn broken_promises(seed: u64, sabotage: Option<Sabotage>) -> Vec<String> {
    let done = std::panic::catch_unwind(|| schedules::run(seed, sabotage)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        Err(text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned())
    });
    done.unwrap_or_else(|why| vec![format!("the controller or the network failed: {why}")])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of schedules of the test. `pathloom bench faults --over-openflow` runs more.
    const SCHEDULES: u64 = 60;

    #[test]
    fn schedules_of_faults_break_no_promise() {
        for seed in 0..SCHEDULES {
            assert_eq!(broken_promises(seed, None), [""; 0], "seed {seed}");
        }
    }

    /// In schedule 196, a switch gets a group again, with another number.
    #[test]
    fn rules_that_were_added_again_are_the_same_rules() {
        assert_eq!(broken_promises(196, None), [""; 0]);
    }

    /// In schedule 1400, a switch restarts and refuses the rule for probes of links.
    #[test]
    fn a_switch_that_refuses_the_rule_for_probes_is_used_again() {
        assert_eq!(broken_promises(1400, None), [""; 0]);
    }

    /// Promises that are broken by the first schedule that breaks any, of schedules with this fault.
    fn found(sabotage: Sabotage) -> Vec<String> {
        let broken = (0..SCHEDULES).map(|seed| broken_promises(seed, Some(sabotage)));
        broken.into_iter().find(|broken| !broken.is_empty()).unwrap_or_default()
    }

    #[test]
    fn what_is_broken_on_purpose_is_found() {
        let hasty = found(Sabotage::HastyBarriers);
        assert!(hasty.iter().any(|what| what.contains("packets did not arrive as they should")), "{hasty:?}");
        let lasting = found(Sabotage::LastingRules);
        assert!(lasting.iter().any(|what| what.contains("rules are left over or missing")), "{lasting:?}");
        assert!(lasting.iter().any(|what| what.contains("flows are left")), "{lasting:?}");
    }

    #[test]
    fn a_seed_and_a_number_are_expected() {
        for words in [&["1"][..], &["1", "x"], &["1", "2", "nothing"], &["1", "2", "hasty-barriers", "3"]] {
            let said = run(words).unwrap_err();
            assert!(said.starts_with(&format!("faults {}: a seed, a number of schedules", words.join(" "))), "{said}");
        }
        assert!(run(&["1", "0", "lasting-rules"]).is_ok());
    }
}
