//! `pathloom-hostd --config FILE`, `check [FILE]`, `clean [FILE]` and `opened PID`.

use pathloom_daemon_support::report::start_log;
use pathloom_hostd::{bpf, check, config, opened, run};
use pathloom_model::reasons::without_numbers;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: pathloom-hostd --config FILE   run the agent that FILE describes, until SIGTERM
       pathloom-hostd check [FILE]    check FILE, and try what this machine permits
       pathloom-hostd clean [FILE]    remove BPF programs that a killed agent has left
       pathloom-hostd opened PID      print the connections of programs that process PID starts
       pathloom-hostd --version";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--config", file] => start(Path::new(file)),
        ["check"] => Ok(report(&config::Kernel::default())),
        ["check", file] => config::read(Path::new(file)).map(|config| report(&config.kernel)),
        ["clean"] => clean(&config::Kernel::default().bpf_fs),
        ["clean", file] => config::read(Path::new(file)).and_then(|config| clean(&config.kernel.bpf_fs)),
        ["opened", pid] => match pid.parse() {
            Ok(pid) => block_on(opened::report(pid)),
            Err(_) => Err(format!("opened {pid}: expected the number of a process")),
        },
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        ["--version"] => {
            println!("pathloom-hostd {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        [] => Err(format!("a command was expected\n{USAGE}")),
        _ => Err(format!("unknown command: {}\n{USAGE}", words.join(" "))),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("pathloom-hostd: {}", without_numbers(&problem));
        ExitCode::from(2)
    })
}

fn start(file: &Path) -> Result<ExitCode, String> {
    let config = config::read(file)?;
    start_log();
    block_on(run::run(config))
}

fn block_on(work: impl Future<Output = Result<(), String>>) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    let done = tokio::task::LocalSet::new().block_on(&runtime, work);
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

fn report(kernel: &config::Kernel) -> ExitCode {
    let findings = check::check(&kernel.cgroup, &kernel.bpf_fs);
    for check::Finding { what, answer } in &findings {
        let (word, why) = match answer {
            Ok(why) => ("yes", why),
            Err(why) => ("no", why),
        };
        let why = without_numbers(why);
        println!("{word:3}  {what}{}{why}", if why.is_empty() { "" } else { ": " });
    }
    // The last two findings are BPF and the socket list. The agent works with either of them.
    let works = findings.iter().rev().take(2).any(|finding| finding.answer.is_ok());
    ExitCode::from(u8::from(!works))
}

fn clean(bpf_fs: &Path) -> Result<ExitCode, String> {
    let was = bpf::clean(bpf_fs).map_err(|problem| format!("{}: {problem}", bpf_fs.display()))?;
    println!("{}", if was { "the BPF programs were removed" } else { "there were no BPF programs" });
    Ok(ExitCode::SUCCESS)
}
