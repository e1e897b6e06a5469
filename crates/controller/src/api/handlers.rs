//! What all handlers of the API share: their state, and how they ask the hub and read a body.

use super::ask::Asker;
use super::authorise::RequestCounts;
use super::problem::Problem;
use crate::drivers::session::Shared;
use crate::drivers::storing::{Storing, ToBeStored};
use crate::hub::Hub;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::Json;
use pathloom_control::PathSearch;
use pathloom_model::{Fabric, Nanos};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits until its change is stored. Long enough for an election among the machines of etcd, with the lease
/// of a busy machine.
const STORED_WITHIN: Duration = Duration::from_secs(20);

/// Shared state of handlers.
#[derive(Clone)]
pub(super) struct Api {
    pub asker: Asker,
    pub counts: Arc<RequestCounts>,
    /// How paths are searched if a request does not say.
    pub search: PathSearch,
}

/// What a handler returns.
pub(super) type Answer<T> = Result<Json<T>, Problem>;

fn nobody() -> Problem {
    Problem::unknown("this controller has no fabric")
}

impl Api {
    /// Asks the hub. A hub without a fabric has no answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Hub, Nanos) -> Option<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.asker.ask(question).await?.ok_or_else(nobody)
    }

    /// As [`Api::ask`], for a change that must be stored.
    pub(super) async fn ask_and_store<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Hub, Nanos, &Storing) -> Option<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let question = |shared: &Shared| shared.drive(|hub, now| question(hub, now, &shared.tasks.storing));
        self.asker.ask_driver(question).await?.ok_or_else(nobody)
    }

    /// The fabric that is controlled.
    pub(super) async fn fabric(&self) -> Result<Arc<Fabric>, Problem> {
        self.ask(|hub, _| hub.fabric.clone()).await
    }
}

/// Waits until a change is stored, so that the next controller knows of it.
///
/// # Errors
/// It is in force, but was not stored in time.
pub(super) async fn wait_for(stored: Option<ToBeStored>) -> Result<(), Problem> {
    let Some(stored) = stored else { return Ok(()) };
    if tokio::time::timeout(STORED_WITHIN, stored.wait()).await.is_ok() {
        return Ok(());
    }
    let detail = format!("it is in force, but was not stored within {} s", STORED_WITHIN.as_secs());
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the change is not stored yet", detail);
    Err(problem.way_out("look whether etcd answers, and repeat the request if another controller has taken over since"))
}

/// Reads the body of a request, an object in JSON.
pub(super) fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    let wrong = |problem: String| {
        let problem = Problem::bad(format!("the body cannot be read: {problem}")).at("body");
        problem.expected("a JSON object").way_out("/openapi.json describes it")
    };
    // Otherwise, the values of an array would be read as the fields, in order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(wrong("it is an array".into()));
    }
    serde_json::from_slice(bytes).map_err(|problem| wrong(problem.to_string()))
}
