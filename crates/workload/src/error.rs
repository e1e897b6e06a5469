//! Reasons why a specification cannot be turned into flows.

use pathloom_model::spec::SpecError;

/// Maximum number of flows of one workload: about 1.2 GB of [`crate::FlowSpec`].
pub(crate) const MOST_FLOWS: u64 = 20_000_000;

/// A traffic specification that is well formed, but does not fit its fabric, its duration or its file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A value of the specification does not fit the fabric. The message names the key, the value, what was expected
    /// and the way out.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The specification names a file, but its text was not given.
    #[error("traffic `{spec}` needs the text of {file}, which was not given")]
    NoFileText {
        /// The specification as given.
        spec: String,
        /// The file that it names.
        file: String,
    },
    /// One line of a file is wrong.
    #[error("{file}, line {line}: {problem}")]
    Line {
        /// The file, as the specification names it.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file is wrong as a whole.
    #[error("{file}: {problem}")]
    File {
        /// The file, as the specification names it.
        file: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// The duration is zero.
    #[error("traffic `{spec}`: the duration is 0; expected a positive time such as 60s")]
    NoDuration {
        /// The specification as given.
        spec: String,
    },
    /// More flows than a run may have.
    #[error("traffic `{spec}` makes about {flows:.3e} flows, more than the {most} a run may have; {way_out}")]
    TooManyFlows {
        /// The specification as given.
        spec: String,
        /// The number of flows that it would make.
        flows: f64,
        /// The maximum number of flows.
        most: u64,
        /// What to change.
        way_out: &'static str,
    },
}
