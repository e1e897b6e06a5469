//! Why an assignment, a claim or a release is refused.

use super::AssignmentId;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Why an assignment, a claim or a release is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AssignError {
    /// An address is not on the fabric.
    #[error("no host of the fabric has the address {address}; name hosts that are on the fabric")]
    UnknownAddress {
        /// The address.
        address: Ipv4Addr,
    },
    /// Both ends are one host.
    #[error("{src} and {dst} are addresses of one host; name two hosts")]
    SameHost {
        /// The sender.
        src: Ipv4Addr,
        /// The receiver.
        dst: Ipv4Addr,
    },
    /// No path, or more than an assignment may have.
    #[error("{asked} paths were asked for; ask for 1 to {most}")]
    Count {
        /// Paths asked for.
        asked: u32,
        /// Most that an assignment may have.
        most: u32,
    },
    /// No time, or more than an assignment may have.
    #[error("a lifetime of {} s was asked for; ask for more than 0 s and at most {} s", .asked.as_secs_f64(), .longest.as_secs_f64())]
    Lifetime {
        /// Lifetime asked for.
        asked: Nanos,
        /// The longest.
        longest: Nanos,
    },
    /// The ends are not connected at the moment.
    #[error("no path from {src} to {dst} is up; try again when their links are back")]
    NoPath {
        /// The sender.
        src: Ipv4Addr,
        /// The receiver.
        dst: Ipv4Addr,
    },
    /// The owner has its share.
    #[error("the owner has {most} assignments, the most that one owner may have; release some first")]
    OwnerFull {
        /// Most that an owner may have.
        most: u32,
    },
    /// The controller has its share.
    #[error("there are {most} assignments, the most that the controller keeps; try again when some have expired")]
    Full {
        /// Most that the controller keeps.
        most: u32,
    },
    /// There is no such assignment.
    #[error("there is no assignment {0}; it has expired, was released or was never made: ask for a new one")]
    Unknown(AssignmentId),
    /// It belongs to somebody else.
    #[error("assignment {0} belongs to another owner; ask for one of your own")]
    NotYours(AssignmentId),
    /// It leads somewhere else.
    #[error("assignment {id} leads from {src} to {dst}; claim its paths for these addresses")]
    OtherEnds {
        /// The assignment.
        id: AssignmentId,
        /// Its sender.
        src: Ipv4Addr,
        /// Its receiver.
        dst: Ipv4Addr,
    },
    /// Port 0 names no connection.
    #[error("0 is no port; name the ports of the connection, 1 to 65535")]
    Port,
    /// The assignment has no path of this number.
    #[error(
        "assignment {id} has {paths} paths, and path {asked} was asked for, counted from 0; name one of them, or none"
    )]
    NoSuchPath {
        /// The assignment.
        id: AssignmentId,
        /// The number, from 0.
        asked: u32,
        /// Its paths.
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
    /// A connection that stands cannot be moved at the moment.
    #[error("the connection from port {src_port} cannot move now: a switch at its ends is away, or a host has too many flows; try again later")]
    NotNow {
        /// The port.
        src_port: u16,
    },
    /// The assignment has its share.
    #[error(
        "assignment {id} has {most} connections and claims, the most that one may have; wait until some have ended"
    )]
    TooManyClaims {
        /// The assignment.
        id: AssignmentId,
        /// Most that an assignment may have.
        most: u32,
    },
}
