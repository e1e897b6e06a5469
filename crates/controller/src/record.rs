//! The event log of a live controller: its inputs and outputs, as lines that can be replayed in a pure controller.
//!
//! The first line has what the configuration file does not: `{"start":{"epoch":7}}`. The other lines are [`Record`]s.
//! A change of scheme has its own line: `{"at":1,"scheme":{"spec":"ecmp","seed":1}}`.

use crate::config::CheckedConfig;
use pathloom_control::{read_log, Config, Controller, Record, ReplayError, SchemeChange};
use pathloom_scheme::Scheme;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The first line of a log.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    start: Start,
}

/// How the controller was started.
#[derive(Serialize, Deserialize)]
struct Start {
    epoch: u16,
}

/// A log that was read, and a controller in the state that the recorded one had at the start.
pub(crate) struct Recording {
    records: Vec<Record>,
    pub controller: Controller,
}

impl Recording {
    /// Reads a log. `checked` is the configuration of the recorded controller.
    pub(crate) fn open(checked: &CheckedConfig, text: &str) -> Result<Recording, String> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let FirstLine { start } = serde_json::from_str(first)
            .map_err(|problem| format!("line 1 does not tell how a live controller was started: {problem}"))?;
        let config = checked.control(start.epoch);
        let scheme = checked.scheme.require_central(checked.config.scheme.seed)?;
        let records = read_log(rest).map_err(|problem| format!("after line 1, {problem}"))?;
        Ok(Recording { records, controller: Controller::new(config, checked.fabric.clone(), scheme) })
    }

    /// Passes the inputs to the controller, and calls `observe` after each. Outputs may be missing at the end.
    pub(crate) fn replay_to_the_end(mut self, observe: impl FnMut(&mut Controller)) -> Result<(), String> {
        match pathloom_control::replay_observed(&self.records, &mut self.controller, make, observe) {
            Err(ReplayError::Divergence(divergence)) if divergence.record == self.records.len() => Ok(()),
            done => done.map(|_| ()).map_err(|problem| problem.to_string()),
        }
    }
}

/// Passes the inputs of a log to a new controller, as `checked` describes it. Returns the number of outputs that
/// agreed.
///
/// # Errors
/// The log cannot be read, or an output of the controller differs. The error says which output and where.
pub fn replay(checked: &CheckedConfig, text: &str) -> Result<usize, String> {
    let Recording { records, mut controller } = Recording::open(checked, text)?;
    pathloom_control::replay(&records, &mut controller, make).map_err(|problem| problem.to_string())
}

/// Creates the scheme of a recorded change.
fn make(change: &SchemeChange) -> Result<Box<dyn Scheme>, String> {
    let spec = crate::registry::registry().parse(&change.spec).map_err(|problem| problem.to_string())?;
    spec.require_central(change.seed)
}

/// Creates an empty file, or empties an existing one. Only its owner can read it, because a log shows who talks to whom.
fn create_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// A log that is being written.
pub(crate) struct Recorder {
    path: PathBuf,
    /// `None` after it could not be written.
    file: Option<BufWriter<File>>,
}

impl Recorder {
    /// Starts a log, replacing an existing file.
    pub(crate) fn create(path: &Path, config: &Config) -> io::Result<Recorder> {
        let mut file = BufWriter::new(create_private(path)?);
        let start = FirstLine { start: Start { epoch: config.epoch } };
        writeln!(file, "{}", serde_json::to_string(&start)?)?;
        Ok(Recorder { path: path.to_owned(), file: Some(file) })
    }

    /// Flushes the log to the system.
    pub(crate) fn flush(&mut self) {
        let done = self.file.as_mut().map(Write::flush);
        self.check(done);
    }

    /// Appends a line.
    pub(crate) fn write(&mut self, record: &Record) {
        let done = self.file.as_mut().map(|file| writeln!(file, "{}", record.to_line()));
        self.check(done);
    }

    /// Stops the log after a failure, because a log with gaps cannot be replayed.
    fn check(&mut self, done: Option<io::Result<()>>) {
        if let Some(Err(problem)) = done {
            tracing::error!(path = %self.path.display(), %problem, "the event log cannot be written, and ends here");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use pathloom_control::Input;
    use pathloom_model::Nanos;

    const CONFIG: &str = "[fabric]\nspec = \"fat-tree:k=4\"\n[scheme]\nspec = \"ofpt\"\n";

    #[test]
    fn only_the_owner_can_read_a_log_even_if_it_replaces_another() {
        let path = std::env::temp_dir().join(format!("pathloom-private-{}.jsonl", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(create_private(&path).unwrap());
        let metadata = std::fs::metadata(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 0));
    }

    #[test]
    fn a_recorded_log_can_be_replayed() {
        let checked = config::check(CONFIG, Path::new("")).unwrap();
        let path = std::env::temp_dir().join(format!("pathloom-record-{}.jsonl", std::process::id()));
        let config = checked.control(7);
        let mut controller =
            Controller::new(config.clone(), checked.fabric.clone(), checked.scheme.central(1).unwrap());
        let mut recorder = Recorder::create(&path, &config).unwrap();
        let switches = checked.fabric.switches().iter();
        let up = switches.map(|&switch| Input::SwitchUp { switch, ports_down: Vec::new() });
        for (at, input) in up.chain([Input::Timeout]).enumerate() {
            let at = Nanos(at as u64 * 1_000_000);
            recorder.write(&Record::input(at, input.clone()));
            controller.handle(at, input);
            while let Some(output) = controller.poll_output() {
                recorder.write(&Record::output(at, output));
            }
        }
        let (at, change) = (Nanos(1_000_000_000), SchemeChange { spec: "hedera:period=1s".into(), seed: 3 });
        recorder.write(&Record::scheme(at, change.clone()));
        controller.set_scheme(at, make(&change).unwrap());
        while let Some(output) = controller.poll_output() {
            recorder.write(&Record::output(at, output));
        }
        recorder.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(replay(&checked, &text).unwrap() >= 20);
        let unknown = replay(&checked, &text.replace("hedera:", "heder:")).unwrap_err();
        assert!(unknown.contains("did you mean `hedera`"), "{unknown}");
        // A missing line is detected.
        let mut lines: Vec<&str> = text.lines().collect();
        let output = lines.iter().position(|line| line.contains("\"output\"")).unwrap();
        lines.remove(output);
        assert!(replay(&checked, &lines.join("\n")).unwrap_err().contains("the log has"));
        for broken in ["", "{}", "{\"start\":{\"epoch\":1}}\nx"] {
            assert!(replay(&checked, broken).unwrap_err().contains("line 1"), "{broken}");
        }
    }
}
