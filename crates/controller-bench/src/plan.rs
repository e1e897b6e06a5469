//! The options of the command line.

use std::time::Duration;

pub(crate) const USAGE: &str = "\
usage: pathloom-controller-bench [--work answers|paths|claims|all] [--switches 1,16,80,320] [--outstanding 1,128]
                                 [--duration 2s] [--schemes spt,ofpt] [--no-rivals] [--json -]
Installed rivals are measured in the same run: ovs-testcontroller, and os-ken (in the Python that
PATHLOOM_OSKEN_PYTHON names, or that of judges/ beside this program, or python3).";

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub answers: bool,
    pub paths: bool,
    pub claims: bool,
    pub switches: Vec<usize>,
    pub outstanding: Vec<usize>,
    pub duration: Duration,
    pub schemes: Vec<String>,
    pub rivals: bool,
    pub json: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            answers: true,
            paths: true,
            claims: true,
            switches: vec![1, 16, 80, 320],
            outstanding: vec![1, 128],
            duration: Duration::from_secs(2),
            schemes: vec!["spt".into(), "ofpt".into()],
            rivals: true,
            json: false,
        }
    }
}

/// Reads the options of the command line.
///
/// # Errors
/// An unknown word.
pub(crate) fn read(words: &[&str]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut words = words.iter();
    let numbers = |key: &str, text: &str| -> Result<Vec<usize>, String> {
        let read = |part: &str| part.parse().ok().filter(|number| (1..=4096).contains(number));
        let all: Option<Vec<usize>> = text.split(',').map(read).collect();
        all.ok_or(format!("{key} {text}: numbers from 1 to 4096 were expected, with commas between them"))
    };
    while let Some(&key) = words.next() {
        if key == "--no-rivals" {
            plan.rivals = false;
            continue;
        }
        let value = *words.next().ok_or(format!("{key}: a value was expected\n{USAGE}"))?;
        match key {
            "--switches" => plan.switches = numbers(key, value)?,
            "--outstanding" => plan.outstanding = numbers(key, value)?,
            "--schemes" => plan.schemes = value.split(',').map(str::to_owned).collect(),
            "--json" if value == "-" => plan.json = true,
            "--duration" => {
                let time = pathloom_model::units::parse_time(value).map_err(|problem| format!("{key}: {problem}"))?;
                plan.duration = Duration::from_nanos(time.0);
            }
            "--work" => {
                (plan.answers, plan.paths, plan.claims) = match value {
                    "answers" => (true, false, false),
                    "paths" => (false, true, false),
                    "claims" => (false, false, true),
                    "all" => (true, true, true),
                    _ => return Err(format!("--work {value}: answers, paths, claims or all was expected")),
                }
            }
            _ => return Err(format!("{key} is not known here\n{USAGE}")),
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_named() {
        assert!(read(&["--switches", "1,x"]).unwrap_err().contains("1,x"));
        assert!(read(&["--speed", "1"]).unwrap_err().contains("--speed"));
        assert!(read(&["--json"]).unwrap_err().contains("--json"));
        assert_eq!(read(&["--switches", "3,4", "--no-rivals"]).unwrap().switches, [3, 4]);
    }
}
