//! All errors in input, and the one Python exception that they become.

use pathloom_model::spec::SpecError;
use pathloom_model::units::UnitError;
use pathloom_model::FabricError;
use pathloom_sim::{PacketTotals, SimError};
use pathloom_workload::WorkloadError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::PyErr;
use std::fs::File;
use std::io::{self, Read};

pyo3::create_exception!(
    pathloom._core,
    PathloomError,
    PyValueError,
    "Bad input. Its text is one line: what is wrong and where, what was expected, the nearest valid name."
);

/// Everything that can be wrong in input. Each of these messages is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A specification of a scheme, transport, fault or control channel.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Traffic.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Demands.
    #[error(transparent)]
    Fractional(#[from] pathloom_allocation::fractional::FractionalError),
    /// Max-min rates.
    #[error(transparent)]
    Allocation(#[from] pathloom_allocation::AllocationError),
    /// A flow that cannot be placed.
    #[error(transparent)]
    Place(#[from] pathloom_allocation::placement::PlaceError),
    /// A flow between nodes that are not both hosts.
    #[error("flow from node {0} to node {1}: both must be hosts of the fabric")]
    NoHosts(u32, u32),
    /// A file that cannot be read or written.
    #[error("{what} `{path}`: {}", reason(.source))]
    File {
        /// Kind of its content.
        what: &'static str,
        /// Its path.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A run that cannot be simulated.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A transport that the hosts of a scheme cannot run.
    #[error("{0}")]
    Transport(String),
    /// An error of the simulator itself: its packet counts do not match.
    #[error("the simulator lost count of its packets: {0:?}; please report it with the settings")]
    Unbalanced(PacketTotals),
    /// An operation that a running controller cannot carry out.
    #[error("{0}")]
    Operation(String),
    /// A node that is not in the fabric.
    #[error("path: no node is called `{0}`{hint}", hint = .1.as_ref().map_or(String::new(), |near| format!("; did you mean `{near}`?")))]
    Node(String, Option<String>),
    /// An unknown choice of paths.
    #[error("path: `{0}` is not one of shortest, k-shortest, k-edge-disjoint, simple:N")]
    PathChoice(String),
    /// A scheme written in Python that cannot be used.
    #[error("scheme `{0}`: {1}")]
    PyScheme(String, String),
    /// Settings in another form than the Python side should send.
    #[error("settings: {0}")]
    Settings(#[from] serde_json::Error),
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::Unbalanced(_) => PyRuntimeError::new_err(error.to_string()),
            input => PathloomError::new_err(one_line(&input.to_string())),
        }
    }
}

/// Text with escaped line breaks and other control characters, which input may contain.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Message of an error. That of the operating system comes without its number, in lower case.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(_) => text.split(" (os error").next().unwrap_or(&text).to_lowercase(),
        None => text,
    }
}

/// Longest file that is read, in bytes. Some devices have no end.
const MOST_FILE_BYTES: u64 = 2_000_000_000;

/// Reads the text of a file, without its byte-order mark.
pub fn read_file(what: &'static str, path: &str) -> Result<String, Error> {
    let wrong = |source| Error::File { what, path: path.to_owned(), source };
    let not_text = |_| wrong(io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text"));
    let text = String::from_utf8(read_bytes(path).map_err(wrong)?).map_err(not_text)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads a file. Fails if it has more than [`MOST_FILE_BYTES`].
pub fn read_bytes(path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MOST_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "is longer than 2 GB"));
    }
    Ok(content)
}
