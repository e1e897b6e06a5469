//! Errors of assignments, claims and releases.

use crate::path_requests::AssignmentId;
use pathloom_model::{Address, Nanos};
use serde::{Deserialize, Serialize};

/// Why an assignment, a claim or a release is refused. A refused request changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AssignError {
    /// An address does not exist on the fabric.
    #[error("no host of the fabric has the address {address}; name hosts that are on the fabric")]
    UnknownAddress {
        /// The address.
        address: Address,
    },
    /// Both ends are the same host.
    #[error("{src} and {dst} are addresses of one host; name two hosts")]
    SameHost {
        /// The sender.
        src: Address,
        /// The receiver.
        dst: Address,
    },
    /// The requested number of paths is 0, or more than an assignment may have.
    #[error("{asked} paths were asked for; ask for 1 to {most}")]
    Count {
        /// Number of paths requested.
        asked: u32,
        /// Maximum number of paths of an assignment.
        most: u32,
    },
    /// The requested lifetime is 0, or longer than an assignment may have.
    #[error("a lifetime of {} s was asked for; ask for more than 0 s and at most {} s", .asked.as_secs_f64(), .longest.as_secs_f64())]
    Lifetime {
        /// Lifetime requested.
        asked: Nanos,
        /// The longest lifetime.
        longest: Nanos,
    },
    /// No path between the ends is up at the moment.
    #[error("no path from {src} to {dst} is up; try again when their links are back")]
    NoPath {
        /// The sender.
        src: Address,
        /// The receiver.
        dst: Address,
    },
    /// The owner has the maximum number of assignments.
    #[error("the owner has {most} assignments, the most that one owner may have; release some first")]
    OwnerFull {
        /// Maximum number of assignments of one owner.
        most: u32,
    },
    /// The controller has the maximum number of assignments.
    #[error("there are {most} assignments, the most that the controller keeps; try again when some have expired")]
    Full {
        /// Maximum number of assignments.
        most: u32,
    },
    /// There is no such assignment.
    #[error("there is no assignment {0}; it has expired, was released or was never made: ask for a new one")]
    Unknown(AssignmentId),
    /// The assignment belongs to another owner.
    #[error("assignment {0} belongs to another owner; ask for one of your own")]
    NotYours(AssignmentId),
    /// The assignment is for other addresses.
    #[error("assignment {id} leads from {src} to {dst}; claim its paths for these addresses")]
    OtherEnds {
        /// The assignment.
        id: AssignmentId,
        /// Its sender.
        src: Address,
        /// Its receiver.
        dst: Address,
    },
    /// Port 0 is not valid.
    #[error("port 0 is not valid; name the ports of the connection, 1 to 65535")]
    Port,
    /// The assignment has no path with this number.
    #[error(
        "assignment {id} has {paths} paths, and path {asked} was asked for, counted from 0; name one of them, or none"
    )]
    NoSuchPath {
        /// The assignment.
        id: AssignmentId,
        /// The requested number, counted from 0.
        asked: u32,
        /// Number of its paths.
        paths: u32,
    },
    /// The connection has a path of another assignment.
    #[error("source port {src_port} has a path of assignment {id}; use another port, or wait until that connection has ended")]
    PortTaken {
        /// The port.
        src_port: u16,
        /// The assignment.
        id: AssignmentId,
    },
    /// An open connection cannot be moved at the moment.
    #[error("the connection from port {src_port} cannot be moved now: a switch at one of its ends has no session, or a host has too many flows; try again later")]
    NotNow {
        /// The port.
        src_port: u16,
    },
    /// The assignment has the maximum number of claims and connections.
    #[error(
        "assignment {id} has {most} connections and claims, the most that one may have; wait until some have ended"
    )]
    TooManyClaims {
        /// The assignment.
        id: AssignmentId,
        /// Maximum number of claims and connections of an assignment.
        most: u32,
    },
}
