//! The agent of a host. It finds the long TCP connections of all programs on the host, labels them, and announces them
//! to the controller. It makes the kernel pace and hold them as ordered by the controller. No program needs to be
//! changed.
//!
//! [`agent`] is the state machine, a crate without sockets, files or a clock. The other modules are drivers: [`kernel`] with
//! [`bpf`] and [`sockets`], [`session`] to the controller, and [`programs`] for programs that announce their own
//! transfers. In addition, [`mptcp`] manages the subflows of MPTCP connections. docs/hostd.md is the documentation for
//! operators.

pub mod announcement_socket;
pub mod bpf;
pub mod changes;
pub mod check;
pub mod config;
mod election_file;
pub mod kernel;
#[allow(missing_docs)]
pub mod layout;
pub mod mptcp;
pub mod namespaces;
mod notify;
pub mod opened;
pub mod run;
pub mod session;
pub mod sockets;
mod token;

pub use pathloom_host_agent::{agent, messages};
