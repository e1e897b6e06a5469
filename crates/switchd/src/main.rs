//! `pathloom-switch --config FILE`, `check FILE…`, `show FILE… [--json]` and `clean FILE…`.

use pathloom_daemon_support::report::start_log;
use pathloom_model::reasons::without_numbers;
use pathloom_switchd::{bpf, config, links, run, show, state};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: pathloom-switch --config FILE           run the switch that FILE describes, until SIGTERM
       pathloom-switch check FILE...           check each FILE; nothing else is opened
       pathloom-switch show FILE... [--json]   show the state and the counters of running switches
       pathloom-switch clean FILE...           remove what a stopped switch has left in the kernel
       pathloom-switch --version";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--config", file] => start(Path::new(file)),
        ["check", files @ ..] if !files.is_empty() => files.iter().try_for_each(|file| check(Path::new(file))),
        ["show", files @ .., "--json"] if !files.is_empty() => report(files, true),
        ["show", files @ ..] if !files.is_empty() => report(files, false),
        ["clean", files @ ..] if !files.is_empty() => files.iter().try_for_each(|file| clean(Path::new(file))),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["--version"] => {
            println!("pathloom-switch {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        [] => Err(format!("a command was expected\n{USAGE}")),
        [command @ ("--config" | "check" | "show" | "clean"), ..] => Err(format!("{command} needs a FILE\n{USAGE}")),
        _ => Err(format!("unknown command: {}\n{USAGE}", words.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("pathloom-switch: {}", without_numbers(&problem));
            ExitCode::from(2)
        }
    }
}

fn start(file: &Path) -> Result<(), String> {
    let config = config::read(file)?;
    start_log();
    run::run(config)
}

/// Checks a configuration, and that the BPF program was compiled in. Prints a missing namespace or missing interfaces,
/// which are no errors.
fn check(file: &Path) -> Result<(), String> {
    let config = config::read(file)?;
    bpf::require()?;
    println!("{}: {}, {} ports", config.name, config.protocol.name(), config.ports.len());
    match &config.namespace {
        Some(namespace) if namespace.exists() => {}
        Some(namespace) => println!("  there is no namespace {} yet", namespace.display()),
        None => {
            for port in config.ports.iter().filter(|port| links::index_of(&port.interface).is_none()) {
                println!("  port {}: there is no interface {} yet", port.number, port.interface);
            }
        }
    }
    Ok(())
}

fn report(files: &[&str], json: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    for file in files {
        let config = config::read(Path::new(file))?;
        match show::ask(&config.directory)? {
            Some(report) if json => {
                rows.push(serde_json::to_value(&report).map_err(|problem| problem.to_string())?);
            }
            Some(report) => print!("{}", report.text()),
            None => {
                let flows = bpf::remaining_flows(&config.bpf_fs, &config.name);
                if json {
                    rows.push(serde_json::json!({ "name": config.name, "process": null, "kernel_flows": flows }));
                } else {
                    let kernel = flows.map_or("the kernel forwards no flows for it".into(), |flows| {
                        format!("the kernel still forwards {flows} flows")
                    });
                    println!("{}: does not run; {kernel}", config.name);
                }
            }
        }
    }
    if json {
        println!("{}", serde_json::Value::Array(rows));
    }
    Ok(())
}

fn clean(file: &Path) -> Result<(), String> {
    let config = config::read(file)?;
    if show::ask(&config.directory)?.is_some() {
        return Err(format!("the switch `{}` is running; stop it first", config.name));
    }
    if let Some(namespace) = &config.namespace {
        links::enter(namespace).map_err(|problem| format!("{}: {problem}", namespace.display()))?;
    }
    let interfaces = config.ports.iter().map(|port| port.interface.as_str());
    let was = bpf::clean(&config.bpf_fs, &config.name, interfaces)
        .map_err(|problem| format!("{}: {problem}", config.bpf_fs.display()))?;
    for left in [state::place(&config.directory), show::socket(&config.directory)] {
        let _ = std::fs::remove_file(left);
    }
    println!("{}: {}", config.name, if was { "removed from the kernel" } else { "was not in the kernel" });
    Ok(())
}
