//! The web page. `pathloom show` serves the same files for results; `make web` builds them.

use super::handlers::Api;
use axum::http::{header, HeaderName};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;

const PAGE: &str = include_str!("../../../../python/pathloom/web/index.html");
const PROGRAM: &str = include_str!("../../../../python/pathloom/web/app.js");
const STYLE: &str = include_str!("../../../../python/pathloom/web/app.css");
/// The page loads nothing from other hosts, and no script that is written into the page runs.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router() -> Router<Api> {
    Router::new().route("/", get(page)).route("/app.js", get(program)).route("/app.css", get(style))
}

/// The web page: the fabric, its flows, switches and alarms, and the commands of operators.
#[utoipa::path(get, path = "/", responses((status = 200, content_type = "text/html", body = String)))]
pub(super) async fn page() -> Response {
    file("text/html; charset=utf-8", PAGE)
}

async fn program() -> Response {
    file("text/javascript; charset=utf-8", PROGRAM)
}

async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // After an upgrade of the controller, no part of the old page is used.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}
