//! `pathloom-controller`: the controller of a live fabric.

use pathloom_controller::commands::{self, Ended};
use pathloom_controller::config::{self, CheckedConfig};
use pathloom_model::reasons::without_numbers;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: pathloom-controller --config FILE   control the fabric that FILE describes, until SIGTERM
       pathloom-controller check FILE      check FILE and the files that it names; nothing else is opened
       pathloom-controller survey ADDRESS [link:rate=10Mbps,delay=1us,buffer=150]
                                           discover the switches that connect to ADDRESS, and print their fabric as JSON
       pathloom-controller replay FILE LOG replay LOG ([log] events) and compare the controller's outputs
       pathloom-controller paths FILE LOG  print from LOG when and why flows changed their paths, as lines of JSON
       pathloom-controller restored FILE ELECTION
                                           after etcd was restored from a backup: make the next election greater than ELECTION
       pathloom-controller bench [...]     run pathloom-controller-bench, which loads a controller and measures it
       pathloom-controller --version";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check", file] => check(file),
        ["--config", file] => run(file),
        ["survey", address] => survey_at(address, None),
        ["survey", address, links] => survey_at(address, Some(links)),
        ["replay", file, log] => replay(file, log),
        ["paths", file, log] => paths(file, log),
        ["restored", file, above] => restored(file, above),
        ["bench", ref rest @ ..] => become_bench(rest),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["--version"] => {
            println!("pathloom-controller {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        [] => Err(format!("a command was expected\n{USAGE}")),
        ["check" | "--config", ..] => Err(format!("{} takes one FILE", words[0])),
        ["survey", ..] => {
            Err("survey takes the ADDRESS to which switches connect, and the settings of their links".into())
        }
        ["replay" | "paths", ..] => Err(format!("{} takes the FILE and the LOG of a run", words[0])),
        ["restored", ..] => Err("restored takes the FILE of a controller and the number of the last ELECTION".into()),
        _ => Err(format!("unknown command: {}\n{USAGE}", words.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("pathloom-controller: {}", without_numbers(&problem));
            ExitCode::from(2)
        }
    }
}

/// Replaces this process by the program that loads and measures controllers, which is in the same directory.
fn become_bench(words: &[&str]) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|problem| problem.to_string())?;
    let program = own.with_file_name("pathloom-controller-bench");
    let problem = Command::new(&program).args(words).exec();
    Err(format!("{}: {problem}; `make build` puts it there", program.display()))
}

fn check(file: &str) -> Result<(), String> {
    let checked = config::read(Path::new(file)).map_err(|problem| problem.to_string())?;
    let switches = checked.fabric.switches().len();
    println!(
        "{file}: good; fabric {} with {switches} switches, scheme {}",
        checked.fabric.spec(),
        checked.scheme.label
    );
    checked.warnings().iter().for_each(|warning| println!("{file}: warning: {warning}"));
    Ok(())
}

fn survey_at(address: &str, links: Option<&str>) -> Result<(), String> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    commands::survey(address, links).map(|fabric| print!("{fabric}"))
}

/// Makes a restored etcd fit for the controllers.
fn restored(file: &str, above: &str) -> Result<(), String> {
    let above = above
        .parse()
        .map_err(|_| format!("`{above}`: the number of the last election was expected, which `pathloom controller status` and the log show"))?;
    let checked = config::read(Path::new(file)).map_err(|problem| problem.to_string())?;
    let say = |revision| eprintln!("pathloom-controller: etcd's revision is {revision} of {above}");
    let done = commands::restored(&checked, above, say).map_err(|problem| format!("{file}: {problem}"))?;
    println!("etcd's revision is {}, and the next start has the number {}", done.revision, done.epoch.wrapping_add(1));
    Ok(())
}

/// Reads the configuration and the event log of a controller.
fn read_recording(file: &str, log: &str) -> Result<(CheckedConfig, String), String> {
    let mut checked = config::read(Path::new(file)).map_err(|problem| problem.to_string())?;
    commands::greet_process(&mut checked)?;
    let text = std::fs::read_to_string(log).map_err(|problem| format!("{log}: {problem}"))?;
    Ok((checked, text))
}

fn replay(file: &str, log: &str) -> Result<(), String> {
    let (checked, text) = read_recording(file, log)?;
    let agreed = commands::replay(&checked, &text).map_err(|problem| format!("{log}: {problem}"))?;
    println!("{log}: the controller's outputs are the same: {agreed} outputs agree");
    Ok(())
}

fn paths(file: &str, log: &str) -> Result<(), String> {
    let (checked, text) = read_recording(file, log)?;
    let mut lines = BufWriter::new(std::io::stdout().lock());
    commands::path_history(&checked, &text, |change| {
        let written = serde_json::to_writer(&mut lines, &change).map_err(io::Error::from);
        end_if_unwritten(written.and_then(|()| lines.write_all(b"\n")));
    })
    .map_err(|problem| format!("{log}: {problem}"))?;
    end_if_unwritten(lines.flush());
    Ok(())
}

/// Ends the process if standard output takes no more lines; without an error if its reader wanted no more.
fn end_if_unwritten(written: io::Result<()>) {
    let Err(problem) = written else { return };
    if problem.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("pathloom-controller: standard output: {problem}");
    std::process::exit(2);
}

fn run(file: &str) -> Result<(), String> {
    let mut checked = config::read(Path::new(file)).map_err(|problem| problem.to_string())?;
    let filter = tracing_subscriber::EnvFilter::new(&checked.config.log.level);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if checked.config.log.json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
    commands::greet_process(&mut checked)?;
    match commands::serve(checked, Path::new(file)).map_err(|problem| problem.to_string())? {
        Ended::Stopped => Ok(()),
        Ended::Deposed => start_again(),
    }
}

/// Replaces this process by a new one with the same arguments, which follows the controller that leads now. So nothing of
/// the time as the leader is left.
fn start_again() -> Result<(), String> {
    tracing::warn!("another controller leads; this one starts again and follows");
    let own = std::env::current_exe().map_err(|problem| problem.to_string())?;
    let problem = Command::new(&own).args(std::env::args().skip(1)).exec();
    Err(format!("{}: {problem}; start it again", own.display()))
}
