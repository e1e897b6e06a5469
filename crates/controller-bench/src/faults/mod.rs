//! Random schedules of faults over hub and codec, in virtual time: for `pathloom bench faults --over-openflow`.

pub(crate) mod driven;
mod run;
mod schedule;
mod shrink;
pub(crate) mod world;

use run::{BareStates, Sabotage};
use schedule::Schedule;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs schedules with these seeds, and writes a line of JSON for each: `{"seed":1,"broken":[]}`. The words are the first
/// seed, the number of schedules and, in tests, the name of what is broken on purpose. If there is one schedule, and it
/// breaks a promise, the line has its smallest form: `"smallest"`.
pub(super) fn run(words: &[&str]) -> Result<(), String> {
    let Some((first, count, sabotage)) = read(words) else {
        return Err(format!(
            "faults {}: a seed, a number of schedules and perhaps one of {} were expected",
            words.join(" "),
            Sabotage::ALL.map(Sabotage::name).join(", ")
        ));
    };
    let (mut out, mut bare) = (std::io::stdout().lock(), BareStates::default());
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let schedule = Schedule::draw(seed)?;
        let broken = broken_promises(&schedule, sabotage, &mut bare);
        let smallest = (count == 1 && !broken.is_empty()).then(|| shrink::shrink(&schedule, sabotage, &mut bare));
        let line = serde_json::json!({ "seed": seed, "broken": broken, "smallest": smallest });
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

/// Promises that a schedule breaks. A panic is one.
fn broken_promises(schedule: &Schedule, sabotage: Option<Sabotage>, bare: &mut BareStates) -> Vec<String> {
    // A state is added when it is complete.
    let run = AssertUnwindSafe(|| run::run(schedule, sabotage, bare));
    let done = catch_unwind(run).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        Err(text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned())
    });
    match done {
        Ok(outcome) => outcome.broken,
        Err(why) => vec![format!("the controller or the network failed: {why}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Number of schedules of the test. `pathloom bench faults --over-openflow` runs more.
    const SCHEDULES: u64 = 60;

    #[test]
    fn schedules_of_faults_break_no_promise() {
        let mut bare = BareStates::default();
        for seed in 0..SCHEDULES {
            assert_eq!(broken_promises(&Schedule::draw(seed).unwrap(), None, &mut bare), [""; 0], "seed {seed}");
        }
    }

    /// Schedules that have shown defects, in their smallest form.
    #[test]
    fn repaired_defects_do_not_return() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/faults/regressions");
        let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            let schedule: Schedule = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(broken_promises(&schedule, None, &mut BareStates::default()), [""; 0], "{}", file.display());
        }
    }

    #[test]
    fn a_seed_gives_the_same_bytes_each_time() {
        // Neither the seed nor the order of schedules matters for the states.
        let mut bare = BareStates::default();
        for seed in 0..4 {
            let schedule = Schedule::draw(seed).unwrap();
            let again: Schedule = serde_json::from_str(&serde_json::to_string(&schedule).unwrap()).unwrap();
            assert_eq!(schedule, again);
            assert_eq!(
                run::run(&schedule, None, &mut bare),
                run::run(&again, None, &mut BareStates::default()),
                "seed {seed}"
            );
        }
    }

    /// Promises that are broken by the first schedule that breaks any, of schedules with this fault.
    fn found(sabotage: Sabotage) -> Vec<String> {
        let mut bare = BareStates::default();
        let drawn = (0..SCHEDULES).map(|seed| Schedule::draw(seed).unwrap());
        let broken = drawn.map(|one| broken_promises(&one, Some(sabotage), &mut bare));
        broken.into_iter().find(|broken| !broken.is_empty()).unwrap_or_default()
    }

    #[test]
    fn what_is_broken_on_purpose_is_found() {
        let hasty = found(Sabotage::HastyBarriers);
        assert!(hasty.iter().any(|what| what.contains("packets did not arrive as they should")), "{hasty:?}");
        let lasting = found(Sabotage::LastingRules);
        assert!(lasting.iter().any(|what| what.contains("rules are left over or missing")), "{lasting:?}");
        assert!(lasting.iter().any(|what| what.contains("flows are left")), "{lasting:?}");
        let held = found(Sabotage::LastingHolds);
        assert!(held.iter().any(|what| what.contains("are still held")), "{held:?}");
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
