//! The program `pathloom-controller-bench`: fake switches load a controller, and the measurement is made on their side.
//!
//! The controller under test is a process of its own (this program again, or a rival). The fake switches use OpenFlow
//! 1.3 on the loopback. An answer counts once, when the packet that a packet-in carried comes back. A path counts
//! when the last of its rules has arrived. Times are those of the generator, so they include both ways through the
//! kernel.

mod answers;
mod claims;
mod etcd;
mod faults;
mod in_cluster;
mod inside;
mod learning;
mod path_per_flow;
mod paths;
mod plan;
mod process;
mod report;
mod served;
mod target;
#[cfg(test)]
mod virtual_time;

use plan::USAGE;
use report::Row;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("pathloom-controller-bench: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Measures, and prints a table or JSON.
///
/// # Errors
/// An unknown word, or a controller that does not answer.
fn run(words: &[&str]) -> Result<(), String> {
    match words {
        ["serve", what] => return served::run(what, None),
        ["serve", what, endpoint] => return served::run(what, Some(endpoint)),
        ["cluster", endpoint, ref rest @ ..] => return in_cluster::run(endpoint, rest),
        ["faults", ref rest @ ..] => return faults::run(rest),
        ["etcd", endpoint, ref rest @ ..] => return etcd::run(endpoint, rest),
        ["inside", ref rest @ ..] => return inside::run(rest),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return Ok(());
        }
        _ => {}
    }
    let plan = plan::read(words)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Plan;
    use std::time::Duration;

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
