//! The scheme, and the process in which it runs if it is a Python file.

use crate::config::registry;
use pathloom_fabrics::to_node_link_json;
use pathloom_model::{Fabric, Nanos};
use pathloom_scheme::remote::{Hello, PROTOCOL};
use pathloom_scheme::Needs;
use pathloom_schemes::SchemeSpec;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The scheme that decides on paths.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheme {
    /// As on the command line: `hedera:period=1s`, or `FILE.py:CLASS:key=value`, relative to the configuration file.
    pub spec: String,
    /// Seed of its random choices.
    pub seed: u64,
    /// The Python that runs a file, with Pathloom installed.
    pub python: PathBuf,
    /// The user whose rights the process of a file has: a name, or numbers of user and group; `None` for those of the
    /// controller.
    pub user: Option<String>,
    /// The socket at which the process of a file listens, if something else starts it, such as systemd; `None` if the
    /// controller does. Relative to the configuration file.
    pub socket: Option<PathBuf>,
    /// A process that has not answered an event after this time is started again.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub answer_within: Duration,
}

impl Default for Scheme {
    fn default() -> Scheme {
        let answer_within = Duration::from_secs(5);
        Scheme { spec: "ecmp".into(), seed: 1, python: "python3".into(), user: None, socket: None, answer_within }
    }
}

/// The scheme, and the process that runs it if it is a Python file.
pub(super) fn scheme_of(
    config: &Scheme,
    fabric: &Fabric,
    base_dir: &Path,
) -> Result<(SchemeSpec, Option<CheckedProcess>), String> {
    if config.socket.is_some() && !is_of_process(&config.spec) {
        return Err(format!("scheme.socket: {} is no scheme in a Python file", config.spec));
    }
    if is_of_process(&config.spec) {
        let process = CheckedProcess::new(config, base_dir)?;
        return Ok((process.spec(), Some(process)));
    }
    let scheme = registry().parse(&config.spec).map_err(|problem| format!("scheme.spec: {problem}"))?;
    scheme.require_central(config.seed).map_err(|problem| format!("scheme.spec: {problem}"))?;
    scheme.check_fabric(fabric).map_err(|problem| format!("scheme.spec: {problem}"))?;
    Ok((scheme, None))
}

/// A command for the process of a scheme.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProcessCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The user and the group that it runs as; `None` for those of the controller.
    pub user: Option<(u32, u32)>,
}

/// How the controller gets a process for a scheme.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Launch {
    /// It starts one.
    Start(ProcessCommand),
    /// It connects to a socket. Who listens there has this user, if one is named.
    Connect { socket: PathBuf, user: Option<u32> },
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Launch::Start(command) => command.program.display().fmt(f),
            Launch::Connect { socket, .. } => socket.display().fmt(f),
        }
    }
}

/// Whether a specification names a Python file: `FILE.py:CLASS:key=value`.
pub(crate) fn is_of_process(spec: &str) -> bool {
    spec.split(':').next().is_some_and(|file| file.ends_with(".py"))
}

/// The process that the configuration names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CheckedProcess {
    pub launch: Launch,
    pub label: String,
    seed: u64,
    pub answer_within: Nanos,
    /// What the scheme needs, once its process has told it.
    needs: Option<Needs>,
}

impl CheckedProcess {
    /// Checks the settings. Nothing is started. Files are relative to `base_dir`.
    ///
    /// # Errors
    /// The file does not exist, or the user is unknown.
    pub(crate) fn new(scheme: &Scheme, base_dir: &Path) -> Result<CheckedProcess, String> {
        let user =
            scheme.user.as_deref().map(user_of).transpose().map_err(|problem| format!("scheme.user: {problem}"))?;
        if scheme.answer_within.is_zero() {
            return Err("scheme.answer_within: more than 0s was expected".to_owned());
        }
        let launch = match &scheme.socket {
            Some(socket) => {
                Launch::Connect { socket: absolute(&base_dir.join(socket)), user: user.map(|(user, _)| user) }
            }
            None => Launch::Start(command_of(scheme, user, base_dir)?),
        };
        let answer_within = Nanos(u64::try_from(scheme.answer_within.as_nanos()).unwrap_or(u64::MAX));
        Ok(CheckedProcess { launch, label: scheme.spec.clone(), seed: scheme.seed, answer_within, needs: None })
    }

    /// The scheme in the controller. Before [`CheckedProcess::take_needs`], it has no needs.
    pub(crate) fn spec(&self) -> SchemeSpec {
        SchemeSpec::of_process(&self.label, self.needs())
    }

    /// Takes what the process has told. Returns the scheme with these needs.
    ///
    /// # Errors
    /// It needs what live switches and hosts cannot do. The message names the scheme.
    pub(crate) fn take_needs(&mut self, needs: Needs) -> Result<SchemeSpec, String> {
        if needs.ageing.is_some() {
            return Err(format!("scheme {}: its hosts mark packets by age, which only simulated hosts do", self.label));
        }
        self.needs = Some(needs);
        let spec = self.spec();
        spec.require_central(self.seed).map(|_| spec)
    }

    /// What the scheme needs, once its process has told it.
    pub(crate) fn needs(&self) -> Needs {
        self.needs.unwrap_or(Needs::NOTHING)
    }

    /// The first line for the process.
    pub(crate) fn hello(&self, fabric: &Fabric) -> String {
        let fabric = serde_json::from_str(&to_node_link_json(fabric)).unwrap_or_default();
        serde_json::to_string(&Hello { protocol: PROTOCOL, fabric, seed: self.seed }).unwrap_or_default()
    }

    /// A warning if the process has the rights of root, or may be anybody's.
    pub(crate) fn warning(&self) -> Option<String> {
        let root = "scheme.user: the process of the scheme runs as root; name a user who may only read its file";
        let anybody =
            "scheme.user: whoever can listen at scheme.socket decides on paths; name the user who listens there";
        match &self.launch {
            Launch::Start(command) => {
                let is_root = command.user.map_or(rustix::process::geteuid().is_root(), |(user, _)| user == 0);
                is_root.then(|| root.to_owned())
            }
            Launch::Connect { user, .. } => user.is_none().then(|| anybody.to_owned()),
        }
    }
}

/// The command that starts the process of a file.
fn command_of(scheme: &Scheme, user: Option<(u32, u32)>, base_dir: &Path) -> Result<ProcessCommand, String> {
    let (file, rest) =
        scheme.spec.split_once(':').map_or((scheme.spec.as_str(), None), |(file, rest)| (file, Some(rest)));
    let file = absolute(&base_dir.join(file));
    if !file.is_file() {
        return Err(format!("scheme.spec: {}: no such file; a Python file was expected", file.display()));
    }
    // A program without a slash is looked up in PATH, another one is relative to the configuration.
    let is_word = scheme.python.components().count() == 1;
    let program = if is_word { scheme.python.clone() } else { absolute(&base_dir.join(&scheme.python)) };
    let spec = file.display().to_string() + &rest.map(|rest| format!(":{rest}")).unwrap_or_default();
    let arguments = ["-m", "pathloom.scheme_process", &spec].map(str::to_owned).to_vec();
    Ok(ProcessCommand { program, arguments, user })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The numbers of a user and its group: `NAME` as in /etc/passwd, or `USER:GROUP` in digits.
fn user_of(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
    if let Some(numbers) = numbers {
        return Ok(numbers);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|problem| format!("/etc/passwd: {problem}"))?;
    let line = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|words| words[0] == text);
    line.and_then(|words| Some((words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?)))
        .ok_or_else(|| format!("no user {text} in /etc/passwd; expected its name there, or USER:GROUP in digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(user_of("root"), Ok((0, 0)));
        assert_eq!(user_of("1000:100"), Ok((1000, 100)));
        assert!(user_of("no such user").unwrap_err().contains("/etc/passwd"));
    }

    #[test]
    fn only_python_files_run_in_a_process() {
        let all = ["a/b.py:Greedy:paths=8", "b.py", "hedera:period=1s", "pyre"].map(is_of_process);
        assert_eq!(all, [true, true, false, false]);
    }
}
