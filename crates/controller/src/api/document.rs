//! The part of the API description that is the same for all operations: authorisation and error responses.

use super::problem::Problem;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::openapi::{OpenApi, Response};
use utoipa::{Modify, ToSchema};

/// Statuses that any request may return.
const ANY: [(&str, &str); 7] = [
    ("400", "The request is invalid, or its path is not UTF-8."),
    ("401", "No token, or an unknown one."),
    ("404", "There is no such object, or this controller has no fabric."),
    ("408", "The body did not arrive in time."),
    ("413", "The body is too long."),
    ("429", "Too many requests with this token are in progress."),
    ("503", "The controller does not answer."),
];
/// Further statuses of requests that change something.
const CHANGES: (&str, &str) = ("403", "This token may only read, or it was sent as a password.");

/// Adds the common part to the description.
pub(super) struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        let http = |scheme| SecurityScheme::Http(HttpBuilder::new().scheme(scheme).build());
        components.add_security_scheme("token", http(HttpAuthScheme::Bearer));
        components.add_security_scheme("password", http(HttpAuthScheme::Basic));
        let mut parts = Vec::new();
        <Problem as ToSchema>::schemas(&mut parts);
        components.schemas.insert(Problem::name().into_owned(), <Problem as utoipa::PartialSchema>::schema());
        components.schemas.extend(parts);
        for (path, item) in &mut document.paths.paths {
            let looks = path.ends_with("/dry-run");
            let changing = [&mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
            changing.into_iter().flatten().for_each(|operation| describe(operation, !looks));
            item.get.iter_mut().for_each(|operation| describe(operation, false));
        }
    }
}

fn describe(operation: &mut Operation, changes: bool) {
    let all = &mut operation.responses.responses;
    for (status, what) in ANY.into_iter().chain(changes.then_some(CHANGES)) {
        all.entry(status.into()).or_insert_with(|| RefOr::T(Response::new(what)));
    }
    for (status, response) in all {
        let RefOr::T(response) = response else { continue };
        if status.starts_with(['4', '5']) {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name())));
            let described = ResponseBuilder::new().description(response.description.clone());
            *response = described.content("application/problem+json", content.build()).build();
        }
    }
    // A password only allows reading.
    let mut ways = vec![SecurityRequirement::new::<_, _, &str>("token", [])];
    if !changes {
        ways.push(SecurityRequirement::new::<_, _, &str>("password", []));
    }
    operation.security = Some(ways);
}
