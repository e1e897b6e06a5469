//! The program `pathloom-controller-bench`: fake switches load a controller, and the measurement is made on their side.
//! None of this is in `pathloom-controller` itself.
//!
//! The controller under test is a process of its own (this program again, or a rival). The fake switches use OpenFlow
//! 1.3 on the loopback. An answer counts once, when the packet that a packet-in carried comes back. A path counts
//! when the last of its rules has arrived. Times are those of the generator, so they include both ways through the
//! kernel.

mod answers;
mod claims;
mod etcd;
pub(crate) mod fake;
pub(crate) mod faults;
mod inside;
mod learning;
pub(crate) mod load_generator;
mod path_per_flow;
pub(crate) mod paths;
mod report;
mod served;
mod target;

use report::Row;
use std::time::Duration;

const USAGE: &str = "\
usage: pathloom-controller-bench [--work answers|paths|claims|all] [--switches 1,16,80,320] [--outstanding 1,128]
                                 [--duration 2s] [--schemes spt,ofpt] [--no-rivals] [--json -]
Installed rivals are measured in the same run: ovs-testcontroller, and os-ken (in the Python that
PATHLOOM_OSKEN_PYTHON names, or that of judges/ beside this program, or python3).";

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    answers: bool,
    paths: bool,
    claims: bool,
    switches: Vec<usize>,
    outstanding: Vec<usize>,
    duration: Duration,
    schemes: Vec<String>,
    rivals: bool,
    json: bool,
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

/// Measures, and prints a table or JSON.
///
/// # Errors
/// An unknown word, or a controller that does not answer.
pub fn run(words: &[&str]) -> Result<(), String> {
    match words {
        ["serve", what] => return served::run(what),
        ["faults", ref rest @ ..] => return faults::run(rest),
        ["etcd", endpoint, ref rest @ ..] => return etcd::run(endpoint, rest),
        ["inside", ref rest @ ..] => return inside::run(rest),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return Ok(());
        }
        _ => {}
    }
    let plan = read(words)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut done = |row: Row| {
        if !plan.json {
            row.print(rows.is_empty());
        }
        rows.push(row);
    };
    if plan.answers {
        answers::measure(&plan, &mut done)?;
    }
    if plan.paths {
        paths::measure(&plan, &mut done)?;
    }
    if plan.claims {
        claims::measure(&plan, &mut done)?;
    }
    if plan.json {
        println!("{}", serde_json::json!({ "schema": 1, "rows": rows }));
    }
    Ok(())
}

fn read(words: &[&str]) -> Result<Plan, String> {
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

    /// A small run of everything: this program's controllers answer and set up paths.
    #[test]
    fn a_learning_switch_answers_and_a_fabric_gets_its_paths() {
        // Long enough even if the machine stalls for a while.
        let plan = Plan { duration: Duration::from_secs(2), ..Plan::default() };
        let port = served::on_a_thread("learning");
        let measured = answers::run((port, std::process::id()), 3, 16, plan.duration).unwrap();
        assert!(measured.count > 100, "{measured:?}");
        let port = served::on_a_thread("fabric:spt:fat-tree:k=4");
        let measured =
            paths::run((port, std::process::id()), "fat-tree:k=4", (50, 200), (8, Duration::from_secs(60))).unwrap();
        assert_eq!(measured.count, 200);
        let (p50_us, p99_us) = measured.p50_us.zip(measured.p99_us).unwrap();
        assert!(p50_us > 0.0 && p99_us >= p50_us, "{measured:?}");
    }
}
