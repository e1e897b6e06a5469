//! What can be wrong, as codes and messages of one line.

use crate::matching::Key;
use pathloom_model::spec::SpecError;
use pathloom_model::FabricError;
use pathloom_sim::SimError;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, CString};

/// An error of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// A pointer that must not be null.
    #[error("{0} is a null pointer; expected {1}")]
    Null(&'static str, &'static str),
    /// Text that is not UTF-8.
    #[error("{0}: is not UTF-8 text")]
    NotText(&'static str),
    /// The program was compiled for another version.
    #[error("settings: abi is {0}, and this library has {expected}; compile the program with the header of this library", expected = crate::ABI)]
    Version(u32),
    /// A file that cannot be read.
    #[error("fabric `{0}`: {1}")]
    File(String, std::io::Error),
    /// A specification of a scheme, transport, fault or control channel.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A transport that the hosts of a scheme cannot run.
    #[error("{0}")]
    Transport(String),
    /// A run that cannot be set up.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A rank beyond the last one.
    #[error("{what} is rank {rank}; expected a rank below {ranks}, the number of hosts of the fabric")]
    Rank {
        /// Name of the argument.
        what: &'static str,
        rank: u32,
        ranks: usize,
    },
    /// A callback that runs or frees its own network.
    #[error("{0} was called by a callback of the same network; call it after the run has returned")]
    Busy(&'static str),
    /// Receives wait, and nothing is left to happen.
    #[error(
        "{count} receives wait for messages that nobody has sent; the first one is rank {dst} from rank {src}, {bytes} bytes, \
         tag {tag}{hint}", dst = .key.dst, src = .key.src, bytes = .key.bytes, tag = .key.tag, hint = hint(.similar)
    )]
    Stalled { count: usize, key: Key, similar: Option<Key> },
    /// The end of the clock.
    #[error(
        "the simulated clock has ended at {end_ns} ns; {messages} messages have not arrived, and {events} events are scheduled; \
         check whether faults cut hosts off, or raise end_ns"
    )]
    Over { end_ns: u64, messages: usize, events: usize },
    /// A panic.
    #[error("an error of the library itself: {0}; please report it with the settings")]
    Failed(String),
}

/// What may be wrong if a receive waits, although a similar message was sent.
fn hint(similar: &Option<Key>) -> String {
    similar.map_or(String::new(), |key| {
        format!(
            "; a message between them with {} bytes and tag {} was sent, and nobody receives it",
            key.bytes, key.tag
        )
    })
}

impl NetError {
    /// The code in `pathloom_net.h`.
    fn code(&self) -> c_int {
        match self {
            NetError::Busy(_) => 2,
            NetError::Stalled { .. } => 3,
            NetError::Over { .. } => 4,
            NetError::Failed(_) => 5,
            _ => 1,
        }
    }
}

thread_local! {
    /// The message of the last error of this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the message of an error for [`last`]. Returns the code of the result.
pub(crate) fn report(result: Result<(), NetError>) -> c_int {
    let Err(error) = result else { return 0 };
    let line: String = error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    LAST.with_borrow_mut(|last| *last = CString::new(line).unwrap_or_default());
    error.code()
}

/// The message of the last error of this thread. It is valid until the next error.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}
