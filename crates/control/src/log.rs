//! The event log: everything a controller was told and said, as JSON lines. A log recorded in one world replays in the
//! other.

use crate::controller::Controller;
use crate::io::{Input, Output};
use pathloom_model::Nanos;
use pathloom_scheme::Scheme;
use serde::{Deserialize, Serialize};

/// One line of a log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub at: Nanos,
    /// What.
    #[serde(flatten)]
    pub message: Message,
}

/// What a controller was told, or what it said.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// It was told this.
    Input(Input),
    /// It wanted this.
    Output(Output),
    /// Another scheme was put in charge ([`Controller::set_scheme`]).
    Scheme(SchemeChange),
}

/// The scheme that was put in charge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemeChange {
    /// Its specification, as on the command line.
    pub spec: String,
    /// What its random choices come from.
    pub seed: u64,
}

impl Record {
    /// The controller was told this.
    pub fn input(at: Nanos, input: Input) -> Record {
        Record { at, message: Message::Input(input) }
    }

    /// The controller wanted this.
    pub fn output(at: Nanos, output: Output) -> Record {
        Record { at, message: Message::Output(output) }
    }

    /// Another scheme was put in charge.
    pub fn scheme(at: Nanos, change: SchemeChange) -> Record {
        Record { at, message: Message::Scheme(change) }
    }

    /// As a line of JSON, without the line's end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps with keys that are not text")
    }
}

/// A line that is no record.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the event log is not a record: {problem}; was it cut off?")]
pub struct LogError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: serde_json::Error,
}

/// Reads a whole log. Empty lines are skipped.
pub fn read_log(text: &str) -> Result<Vec<Record>, LogError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| serde_json::from_str(line).map_err(|problem| LogError { line: index + 1, problem }))
        .collect()
}

/// Where a controller did something else than the log says.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("at {at:?} (record {record}) the log has {logged:?}, the controller {got:?}")]
pub struct Divergence {
    /// Number of the record, from 0.
    pub record: usize,
    /// Its time.
    pub at: Nanos,
    /// What the log has; `None` if it has no further output there.
    pub logged: Option<Box<Output>>,
    /// What the controller wants; `None` if it wants nothing more.
    pub got: Option<Box<Output>>,
}

/// Why a log does not replay.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The controller did something else.
    #[error(transparent)]
    Divergence(#[from] Divergence),
    /// A scheme that was put in charge cannot be made here.
    #[error("record {record} puts `{spec}` in charge: {problem}")]
    Scheme {
        /// Number of the record, from 0.
        record: usize,
        /// The scheme.
        spec: String,
        /// Why not.
        problem: String,
    },
}

/// Feeds a controller, which must be in the state that the recorded one was in, the inputs of a log, and compares what
/// it says. `scheme` makes those that were put in charge meanwhile. Returns the number of outputs that agreed.
///
/// Barriers come when the driver has given all inputs that were at hand ([`Controller::flush`]): where the log has more
/// outputs than the inputs so far lead to, that is when.
///
/// # Errors
/// The controller wants something else at some place, or a scheme cannot be made.
pub fn replay(
    records: &[Record],
    controller: &mut Controller,
    mut scheme: impl FnMut(&SchemeChange) -> Result<Box<dyn Scheme>, String>,
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
            }
        }
    }
    let end = records.last().map_or(Nanos::ZERO, |record| record.at);
    check(records.len(), end, None, next(controller))?;
    Ok(agreed)
}
