//! Replays the event log of a live controller in a pure one.

use crate::config::{registry, CheckedConfig};
use crate::drivers::record::FirstLine;
use pathloom_control::{read_log, Controller, Record, ReplayError, SchemeChange};
use pathloom_scheme::Scheme;

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
    let spec = registry().parse(&change.spec).map_err(|problem| problem.to_string())?;
    spec.require_central(change.seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::drivers::record::Recorder;
    use pathloom_control::Input;
    use pathloom_model::Nanos;
    use std::path::Path;

    const CONFIG: &str = "[fabric]\nspec = \"fat-tree:k=4\"\n[scheme]\nspec = \"ofpt\"\n";

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
