//! Path assignments over XML-RPC. `AssignMultipath` and `MakePath` are those of the controller for parallel TCP
//! streams (parallel TCP §4). `ReleaseMultipath` is not in the paper.

use super::caller::Caller;
use super::handlers::Api;
use super::problem::Problem;
use super::xml_rpc::{read_call, write_answer, Call, Fault, Value, BAD_PARAMETERS, NO_METHOD};
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::Router;
use pathloom_control::{AssignmentId, ClaimKey, PathRequest};
use pathloom_model::Address;
use std::net::IpAddr;

/// Path at which XML-RPC is served. It is the default of clients.
pub(super) const PATH: &str = "/RPC2";

/// The methods and their parameters.
const METHODS: [(&str, &str); 3] = [
    ("AssignMultipath", "source address, source hardware address, destination address, number of paths"),
    ("MakePath", "assignment id, source address, destination address, source TCP port"),
    ("ReleaseMultipath", "assignment id"),
];

/// The route of XML-RPC.
pub(super) fn router() -> Router<Api> {
    Router::new().route(PATH, post(call))
}

/// Calls a method by XML-RPC.
///
/// `AssignMultipath(src_ip, src_mac, dst_ip, path_num)` answers with an array: paths found, assignment id.
/// `MakePath(id, src_ip, dst_ip, src_tcp_port)` and `ReleaseMultipath(id)` answer with true.
#[utoipa::path(post, path = "/RPC2", request_body(content = String, content_type = "text/xml"), responses((status = 200, content_type = "text/xml", body = String)))]
pub(super) async fn call(State(api): State<Api>, Extension(caller): Extension<Caller>, bytes: Bytes) -> Response {
    respond(&carry_out(&api, caller, &bytes).await)
}

/// A response that XML-RPC clients understand. Faults have status 200 too (xmlrpc.com/spec.md, "Response format").
fn respond(answer: &Result<Value, Fault>) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], write_answer(answer)).into_response()
}

/// A refused request, for XML-RPC clients.
pub(super) fn refuse(problem: &Problem) -> Response {
    respond(&Err(fault(problem)))
}

/// Converts a problem into a fault. Its code is the HTTP status of the problem.
fn fault(problem: &Problem) -> Fault {
    let Problem { status, detail, expected, way_out, .. } = problem;
    let expected = expected.iter().map(|expected| format!("; expected {expected}"));
    let way_out = way_out.iter().map(|way_out| format!("; {way_out}"));
    Fault::new(i32::from(*status), detail.clone() + &expected.chain(way_out).collect::<String>())
}

async fn carry_out(api: &Api, caller: Caller, bytes: &Bytes) -> Result<Value, Fault> {
    let Call { method, params } = read_call(bytes)?;
    let params = Params { method: &method, values: &params };
    let refused = |problem: Problem| fault(&problem);
    match method.as_str() {
        "AssignMultipath" => {
            params.count(4)?;
            let (src, dst) = (params.address(0)?, params.address(2)?);
            params.hardware_address(1)?;
            let count = params.number(3, "a number of paths")?;
            let request = PathRequest { src, dst, count, search: api.search, lifetime: None };
            let assigned = api.assign(caller, request).await.map_err(refused)?;
            let found = assigned.paths.len() as i64;
            Ok(Value::Array(vec![Value::Int(found), Value::Int(assigned.assignment.0.into())]))
        }
        "MakePath" => {
            params.count(4)?;
            let (src, dst) = (params.address(1)?, params.address(2)?);
            let (id, src_port) = (params.assignment(0)?, params.number(3, "a TCP port, 1 to 65535")?);
            api.claim(caller, id, ClaimKey::to_come(src, dst, src_port), (None, None)).await.map_err(refused)?;
            Ok(Value::Bool(true))
        }
        "ReleaseMultipath" => {
            params.count(1)?;
            let id = params.assignment(0)?;
            api.release(caller, id).await.map_err(refused)?;
            Ok(Value::Bool(true))
        }
        _ => {
            let known = METHODS.map(|(name, _)| name).join(", ");
            let method: String = method.chars().take(60).collect();
            Err(Fault::new(NO_METHOD, format!("there is no method `{method}`; the methods are {known}")))
        }
    }
}

/// Parameters of a call.
struct Params<'a> {
    method: &'a str,
    values: &'a [Value],
}

impl Params<'_> {
    fn fault(&self, problem: impl std::fmt::Display) -> Fault {
        let takes = METHODS.iter().find(|(name, _)| *name == self.method).map_or("", |(_, takes)| takes);
        Fault::new(BAD_PARAMETERS, format!("{}: {problem}; it takes {takes}", self.method))
    }

    fn count(&self, expected: usize) -> Result<(), Fault> {
        match self.values.len() {
            found if found == expected => Ok(()),
            found => Err(self.fault(format!("{found} parameters, expected {expected}"))),
        }
    }

    fn text(&self, index: usize) -> Result<&str, Fault> {
        match &self.values[index] {
            Value::Text(text) => Ok(text.trim()),
            other => Err(self.fault(format!("parameter {} is a {}, expected a string", index + 1, other.kind()))),
        }
    }

    fn address(&self, index: usize) -> Result<Address, Fault> {
        // Sockets of the family AF_INET6 have the address of an IPv4 host in the form ::ffff:10.0.0.1.
        match self.text(index)?.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) => Ok(address.into()),
            _ => Err(self.fault(format!("parameter {} is not an IPv4 address such as 10.0.0.1", index + 1))),
        }
    }

    /// Checks an address such as 02:00:00:00:00:01. It is not used, because the IP address identifies the host.
    fn hardware_address(&self, index: usize) -> Result<(), Fault> {
        let text = self.text(index)?;
        let byte = |part: &str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok() && !part.starts_with('+');
        let parts: Vec<&str> = text.split([':', '-']).collect();
        if parts.len() == 6 && parts.into_iter().all(byte) {
            return Ok(());
        }
        Err(self.fault(format!("parameter {} is not a hardware address such as 02:00:00:00:00:01", index + 1)))
    }

    fn number<T: TryFrom<i64>>(&self, index: usize, what: &str) -> Result<T, Fault> {
        match &self.values[index] {
            Value::Int(number) => T::try_from(*number)
                .map_err(|_| self.fault(format!("parameter {} is {number}, expected {what}", index + 1))),
            other => Err(self.fault(format!("parameter {} is a {}, expected an int", index + 1, other.kind()))),
        }
    }

    fn assignment(&self, index: usize) -> Result<AssignmentId, Fault> {
        self.number(index, "an assignment id, 1 to 2147483647").map(AssignmentId)
    }
}
