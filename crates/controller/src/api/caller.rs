//! Who sends a request, as far as path assignments depend on it.

use super::problem::Problem;
use crate::config::Role;
use crate::hub::assigning::owner_of;
use crate::hub::Hub;
use axum::http::StatusCode;
use pathloom_control::{AssignmentId, Owner};
use pathloom_model::Address;

/// Who sends a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// A host without a token. It may act only for its own address.
    Host(Address),
    /// A client with a token. It may act for any host.
    Token,
}

/// The token of a request.
#[derive(Clone, Debug)]
pub(super) struct Bearer {
    /// Its name in the file of tokens.
    pub name: String,
    /// The role in this request: a token that was sent as a password may only read.
    pub role: Role,
}

impl Caller {
    /// Returns the owner for requests from this address, or a problem if the caller must not act for it.
    pub(super) fn acts_for(self, src: Address) -> Result<Owner, Problem> {
        match self {
            Caller::Host(own) if own != src => {
                let detail = format!("{src} is not the address of the caller, {own}");
                let problem = Problem::new(StatusCode::FORBIDDEN, "this is another host's address", detail);
                Err(problem.at("src").expected(own.to_string()).way_out("a token of role operate allows any address"))
            }
            _ => Ok(owner_of(src)),
        }
    }

    /// The owner as which the caller uses an assignment. The controller checks whether it owns the assignment.
    pub(super) fn uses(self, hub: &mut Hub, id: AssignmentId) -> Option<Owner> {
        match self {
            Caller::Host(own) => Some(owner_of(own)),
            Caller::Token => hub.controller()?.assignments().get(id).map(|listed| listed.owner),
        }
    }

    /// The owner whose assignments it may see; `None` for all.
    pub(super) fn sees(self) -> Option<Owner> {
        match self {
            Caller::Host(own) => Some(owner_of(own)),
            Caller::Token => None,
        }
    }
}
