//! The event log: all inputs and outputs of a controller as JSON lines. A log that was recorded in one world can be
//! replayed in the other.

use crate::controller::Controller;
use crate::io::{Input, Output};
use pathloom_model::Nanos;
use pathloom_scheme::Scheme;
use serde::{Deserialize, Serialize};

/// One line of a log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Time of the message.
    pub at: Nanos,
    /// The message.
    #[serde(flatten)]
    pub message: Message,
}

/// An input or output of a controller, or a change of its scheme.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The controller received this input.
    Input(Input),
    /// The controller returned this output.
    Output(Output),
    /// Another scheme was put in charge ([`Controller::set_scheme`]).
    Scheme(SchemeChange),
}

/// The scheme that was put in charge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemeChange {
    /// Specification of the scheme, as on the command line.
    pub spec: String,
    /// Seed of its random choices.
    pub seed: u64,
}

impl Record {
    /// Creates a record of an input.
    pub fn input(at: Nanos, input: Input) -> Record {
        Record { at, message: Message::Input(input) }
    }

    /// Creates a record of an output.
    pub fn output(at: Nanos, output: Output) -> Record {
        Record { at, message: Message::Output(output) }
    }

    /// Creates a record of a change of scheme.
    pub fn scheme(at: Nanos, change: SchemeChange) -> Record {
        Record { at, message: Message::Scheme(change) }
    }

    /// Returns the record as a line of JSON, without the line break.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("all maps in a record have text keys")
    }
}

/// Error for a line that is not a record.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the event log is not a record: {problem}; was it cut off?")]
pub struct LogError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The error of the JSON parser.
    pub problem: serde_json::Error,
}

/// Reads a whole log. Empty lines are skipped.
pub fn read_log(text: &str) -> Result<Vec<Record>, LogError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| serde_json::from_str(line).map_err(|problem| LogError { line: index + 1, problem }))
        .collect()
}

/// The first place where a controller returned another output than the log contains.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("at {at:?} (record {record}) the log has {logged:?}, but the controller returned {got:?}")]
pub struct Divergence {
    /// Number of the record, from 0.
    pub record: usize,
    /// Time of the record.
    pub at: Nanos,
    /// The output in the log; `None` if the log has no further output at this place.
    pub logged: Option<Box<Output>>,
    /// The output of the controller; `None` if it returned no further output.
    pub got: Option<Box<Output>>,
}

/// Why the replay of a log failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The controller returned another output than the log contains.
    #[error(transparent)]
    Divergence(#[from] Divergence),
    /// A scheme that the log puts in charge cannot be created here.
    #[error("record {record} puts `{spec}` in charge: {problem}")]
    Scheme {
        /// Number of the record, from 0.
        record: usize,
        /// Specification of the scheme.
        spec: String,
        /// The error.
        problem: String,
    },
}

/// Feeds the inputs of a log to a controller, and compares its outputs with the log. The controller must have the
/// state that the recorded one had at the start. `scheme` creates the schemes that the log puts in charge. Returns
/// the number of equal outputs.
///
/// Barriers come when the driver has fed all inputs that were ready ([`Controller::flush`]). The replay flushes at a
/// place where the log has more outputs than the inputs so far produced.
///
/// # Errors
/// The controller returned another output at some place, or a scheme could not be created.
pub fn replay(
    records: &[Record],
    controller: &mut Controller,
    scheme: impl FnMut(&SchemeChange) -> Result<Box<dyn Scheme>, String>,
) -> Result<usize, ReplayError> {
    replay_observed(records, controller, scheme, |_| {})
}

/// As [`replay`], and calls `observe` after each input and each change of scheme.
///
/// # Errors
/// As [`replay`].
pub fn replay_observed(
    records: &[Record],
    controller: &mut Controller,
    mut scheme: impl FnMut(&SchemeChange) -> Result<Box<dyn Scheme>, String>,
    mut observe: impl FnMut(&mut Controller),
) -> Result<usize, ReplayError> {
    let mut agreed = 0;
    let check = |record: usize, at: Nanos, logged: Option<&Output>, got: Option<Output>| {
        if logged == got.as_ref() {
            return Ok(());
        }
        let logged = logged.cloned().map(Box::new);
        Err(Divergence { record, at, logged, got: got.map(Box::new) })
    };
    let next = |controller: &mut Controller| {
        controller.poll_output().or_else(|| {
            controller.flush();
            controller.poll_output()
        })
    };
    for (index, record) in records.iter().enumerate() {
        match &record.message {
            Message::Input(input) => {
                check(index, record.at, None, controller.poll_output())?;
                controller.feed(record.at, input.clone());
                observe(controller);
            }
            Message::Output(output) => {
                check(index, record.at, Some(output), next(controller))?;
                agreed += 1;
            }
            Message::Scheme(change) => {
                check(index, record.at, None, controller.poll_output())?;
                let made = scheme(change).map_err(|problem| {
                    let spec = change.spec.clone();
                    ReplayError::Scheme { record: index, spec, problem }
                })?;
                controller.set_scheme(record.at, made);
                observe(controller);
            }
        }
    }
    let end = records.last().map_or(Nanos::ZERO, |record| record.at);
    check(records.len(), end, None, next(controller))?;
    Ok(agreed)
}
