//! Error responses (RFC 9457).

use axum::http::{header, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A problem: what, where, what was expected, and the way out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Problem {
    /// HTTP status.
    pub status: u16,
    /// The kind of problem, in a few words.
    pub title: &'static str,
    /// What is wrong.
    pub detail: String,
    /// The faulty part of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What was expected there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

/// Why a request is refused before a handler sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Refusal {
    #[serde(flatten)]
    pub problem: Problem,
    /// Where another controller answers the request.
    #[serde(flatten)]
    pub moved: Option<Moved>,
    /// Whether another controller may answer, or this one in a moment. The response says so by `Retry-After` (RFC 9110
    /// §10.2.3). A request that may have been carried out already never gets it.
    #[serde(skip)]
    pub is_temporary: bool,
}

/// Where another controller answers a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Moved {
    /// The controller that leads.
    pub leader: String,
    /// The URL of the request there.
    pub location: String,
}

impl From<Problem> for Box<Refusal> {
    fn from(problem: Problem) -> Box<Refusal> {
        Box::new(Refusal { problem, moved: None, is_temporary: false })
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Problem {
        let status = status.as_u16();
        Problem { status, title, detail: detail.into(), place: None, expected: None, way_out: None }
    }

    pub(crate) fn at(self, place: impl Into<String>) -> Problem {
        Problem { place: Some(place.into()), ..self }
    }

    pub(crate) fn expected(self, expected: impl Into<String>) -> Problem {
        Problem { expected: Some(expected.into()), ..self }
    }

    pub(crate) fn way_out(self, way_out: impl Into<String>) -> Problem {
        Problem { way_out: Some(way_out.into()), ..self }
    }

    /// A problem for an invalid request.
    pub(crate) fn bad(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "the request makes no sense", detail)
    }

    /// A problem for an unknown object.
    pub(crate) fn unknown(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "there is no such thing", detail)
    }

    /// A problem for a conflict with the current state.
    pub(crate) fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "it cannot be done as things stand", detail)
    }

    /// A problem for a controller that does not answer.
    pub(crate) fn busy(detail: impl Into<String>) -> Problem {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the controller does not answer", detail);
        problem.way_out("ask again in a moment")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let refusal: Box<Refusal> = self.into();
        refusal.into_response()
    }
}

impl IntoResponse for Box<Refusal> {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let json = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, json)], body).into_response();
        let location = self.moved.as_ref().and_then(|moved| HeaderValue::from_str(&moved.location).ok());
        if let Some(location) = location {
            response.headers_mut().insert(header::LOCATION, location);
        }
        if self.is_temporary {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            // Makes a browser ask for a password, which is the token. Chromium reads only one challenge per header,
            // so each challenge has its own header.
            for way in ["Basic realm=\"Pathloom: any name, a token as password\"", "Bearer"] {
                response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(way));
            }
        }
        response
    }
}
