//! `pathloom-controller-bench`: loads a controller with fake switches and measures it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match pathloom_controller::bench::run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("pathloom-controller-bench: {problem}");
            ExitCode::from(2)
        }
    }
}
