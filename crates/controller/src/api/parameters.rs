//! Parameters of requests: pages of lists, switches, links and flows.

use super::problem::Problem;
use super::queries::{Cut, FlowName};
use axum::extract::rejection::QueryRejection;
use axum::extract::Query;
use pathloom_model::{Address, FiveTuple, PROTO_TCP, PROTO_UDP};
use pathloom_scheme::FlowId;
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use utoipa::IntoParams;

/// Default number of items on a page.
const PAGE_ITEMS: usize = 100;
/// Maximum number of items on a page, which are collected between two messages of switches.
const MOST_ITEMS: usize = 1000;
/// Largest integer that every JSON implementation reads exactly (RFC 7493 §2.2).
pub(super) const MOST_INTEGER: u64 = (1 << 53) - 1;

/// A switch.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // Only describes the parameter.
pub(super) struct SwitchInPath {
    /// Name of the switch.
    #[param(example = "e0_0")]
    name: String,
}

/// A link.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // Only describes the parameter.
pub(super) struct LinkInPath {
    /// NODE:PORT of its start, or FROM,TO if there is only one link between the two.
    #[param(example = "e0_0:3")]
    id: String,
}

/// A flow.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // Only describes the parameter.
pub(super) struct FlowInPath {
    /// Id of the flow, or SRC:PORT,DST:PORT,PROTO.
    #[param(
        example = "10.0.0.1:4000,10.0.7.1:80,tcp",
        pattern = "^([0-9]{1,19}|((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]):(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4}),((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]):(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})(,(tcp|udp|(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])))?)$"
    )]
    flow: String,
}

/// Selects a page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// Maximum number of items; 100 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    #[param(pattern = "^[0-9]{1,19}$")]
    after: Option<String>,
}

impl Paging {
    fn cut(self) -> Result<Cut, Problem> {
        let limit = self.limit.unwrap_or(PAGE_ITEMS);
        if !(1..=MOST_ITEMS).contains(&limit) {
            return Err(Problem::bad(format!("a page cannot have {limit} items")).at("limit").expected("1 to 1000"));
        }
        let place = |text: &String| number(text).ok_or_else(|| not_a_place(text));
        Ok(Cut { limit, after: self.after.as_ref().map(place).transpose()? })
    }
}

fn not_a_place(text: &str) -> Problem {
    Problem::bad(format!("`{text}` is not a position in a list")).at("after").expected("`next` of the previous page")
}

/// Reads a number of up to 19 decimal digits: the id of a flow, or a position in a list.
fn number(text: &str) -> Option<u64> {
    let digits = (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Selects a page of the flows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FlowPaging {
    /// Maximum number of items; 100 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    #[param(pattern = "^[0-9]{1,19}$")]
    after: Option<String>,
    /// Only long flows (true), or only others (false).
    long: Option<bool>,
}

fn query<T>(query: Result<Query<T>, QueryRejection>, expected: &str) -> Result<T, Problem> {
    let Query(query) = query.map_err(|problem| Problem::bad(problem.body_text()).at("query").expected(expected))?;
    Ok(query)
}

/// The requested page of a list.
pub(super) fn paging(asked: Result<Query<Paging>, QueryRejection>) -> Result<Cut, Problem> {
    query(asked, "limit (1 to 1000) and after")?.cut()
}

/// The requested page of the flows, and whether only long ones or only others.
pub(super) fn flow_paging(asked: Result<Query<FlowPaging>, QueryRejection>) -> Result<(Cut, Option<bool>), Problem> {
    let FlowPaging { limit, after, long } = query(asked, "limit (1 to 1000), after, and long (true or false)")?;
    Ok((Paging { limit, after }.cut()?, long))
}

/// A flow by its number, or by `SRC:PORT,DST:PORT,PROTO` (tcp, udp or a number; the default is tcp).
pub(super) fn flow_name(text: &str) -> Result<FlowName, Problem> {
    let tuple = || {
        let words: Vec<&str> = text.split(',').collect();
        let proto = match words.get(2).copied() {
            None | Some("tcp") => PROTO_TCP,
            Some("udp") => PROTO_UDP,
            Some(number) => number.parse().ok()?,
        };
        let end = |index: usize| match words.get(index)?.parse::<SocketAddr>().ok()? {
            SocketAddr::V4(end) => Some(end),
            SocketAddr::V6(end) => Some(SocketAddrV4::new(end.ip().to_ipv4_mapped()?, end.port())),
        };
        let (src, dst) = (end(0)?, end(1).filter(|_| words.len() <= 3)?);
        Some(FiveTuple::new(proto, ((*src.ip()).into(), src.port()), ((*dst.ip()).into(), dst.port())))
    };
    let id = number(text).map(|id| FlowName::Id(FlowId(id)));
    id.or_else(|| tuple().map(FlowName::Tuple)).ok_or_else(|| {
        Problem::bad(format!("`{text}` does not name a flow"))
            .at("flow")
            .expected("its id, or SRC:PORT,DST:PORT,PROTO such as 10.0.0.2:4000,10.1.0.2:80,tcp")
    })
}

/// Reads the address of a host. Sockets of the family AF_INET6 have it in the form `::ffff:10.0.0.1`.
///
/// # Errors
/// It is not the address of an IPv4 host.
pub(super) fn host_address<'de, D: Deserializer<'de>>(input: D) -> Result<Address, D::Error> {
    let address = IpAddr::deserialize(input)?.to_canonical();
    match address {
        IpAddr::V4(address) => Ok(address.into()),
        IpAddr::V6(_) => Err(serde::de::Error::custom(format!("{address} is not the address of an IPv4 host"))),
    }
}

/// Reads an integer. JSON may also write it with a zero fraction, such as 80.0 (JSON Schema §6.1.1).
///
/// # Errors
/// It is not a number, not an integer, or out of the range of `T`.
pub(super) fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(input: D) -> Result<T, D::Error> {
    as_whole(&Number::deserialize(input)?)
}

/// Reads an optional integer.
///
/// # Errors
/// As [`whole`].
pub(super) fn whole_or_none<'de, D: Deserializer<'de>, T: TryFrom<u64>>(input: D) -> Result<Option<T>, D::Error> {
    Option::<Number>::deserialize(input)?.as_ref().map(as_whole).transpose()
}

fn as_whole<T: TryFrom<u64>, E: serde::de::Error>(number: &Number) -> Result<T, E> {
    let exact =
        |float: f64| (float.fract() == 0.0 && (0.0..=MOST_INTEGER as f64).contains(&float)).then_some(float as u64);
    let whole = number.as_u64().or_else(|| number.as_f64().and_then(exact));
    let fits = whole.and_then(|whole| T::try_from(whole).ok());
    fits.ok_or_else(|| E::custom(format!("{number} is not an integer in the expected range")))
}
