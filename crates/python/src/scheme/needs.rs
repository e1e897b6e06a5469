//! Needs of a scheme in Python, read and checked.

use super::fields::{choice, field, text_of};
use pathloom_model::{Nanos, Tier, MOST_QUEUES};
use pathloom_scheme::{Ageing, Detection, Entropy, Migration, Needs, Rehash, RuleSharing, Selection};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::num::NonZeroU16;

const MIGRATIONS: [(&str, Migration); 2] = [("tagged", Migration::Tagged), ("sfmm", Migration::Sfmm)];
const SHARINGS: [(&str, RuleSharing); 2] = [("per_flow", RuleSharing::PerFlow), ("per_path", RuleSharing::PerPath)];

const TIERS: [(&str, Option<Tier>); 4] =
    [("all", None), ("tor", Some(Tier::Tor)), ("aggregation", Some(Tier::Aggregation)), ("core", Some(Tier::Core))];

/// Needs of the object. Without a method `needs`, they are long flows by their label.
pub fn needs_of(object: &Bound<'_, PyAny>) -> PyResult<Needs> {
    let Some(method) = object.getattr_opt("needs")? else {
        return Ok(Needs { detection: Detection::Label, ..Needs::NOTHING });
    };
    let given = method.call0()?;
    read_needs(&given)
        .map_err(|problem| PyValueError::new_err(format!("needs returned {}: {problem}", text_of(&given))))
}

fn read_needs(given: &Bound<'_, PyAny>) -> Result<Needs, String> {
    let nic_share: f64 = field(given, "nic_share")?;
    if !(0.0..=1.0).contains(&nic_share) {
        return Err("nic_share: expected a share of the access rate, 0 to 1".to_owned());
    }
    let poll_period: Option<u64> = field(given, "poll_period_ns")?;
    if poll_period == Some(0) {
        return Err("poll_period_ns: expected a time above 0, or None".to_owned());
    }
    let idle_timeout_s: Option<u16> = field(given, "idle_timeout_s")?;
    let idle_timeout_s = idle_timeout_s
        .map(|seconds| NonZeroU16::new(seconds).ok_or("idle_timeout_s: expected 1 or more, or None"))
        .transpose()?;
    let link_loads_every: Option<u64> = field(given, "link_loads_every_ns")?;
    if link_loads_every == Some(0) {
        return Err("link_loads_every_ns: expected a time above 0, or None".to_owned());
    }
    let (measured, any) = (Detection::Measured { nic_share }, Detection::Any { nic_share });
    let (nothing, label, announced) = (Detection::Nothing, Detection::Label, Detection::Announced);
    let known =
        [("nothing", nothing), ("label", label), ("announced", announced), ("measured", measured), ("any", any)];
    let detection = choice(given, "detection", &known)?;
    if matches!(detection, Detection::Measured { .. }) && poll_period.is_none() {
        return Err("detection: `measured` needs a poll_period_ns".to_owned());
    }
    let needs = Needs {
        detection,
        subflows: field(given, "subflows")?,
        poll_period: poll_period.map(Nanos),
        migration: choice(given, "migration", &MIGRATIONS)?,
        rules: choice(given, "rules", &SHARINGS)?,
        paces: field(given, "paces")?,
        both_directions: field(given, "both_directions")?,
        idle_timeout_s,
        link_loads_every: link_loads_every.map(Nanos),
        entropy: entropy_of(given)?,
        selection: selection_of(given)?,
        selection_tier: choice(given, "selection_tier", &TIERS)?,
        ageing: field::<Option<Bound<'_, PyAny>>>(given, "ageing")?.map(|ageing| ageing_of(&ageing)).transpose()?,
    };
    Ok(needs)
}

/// Which packets of a flow have the same entropy.
fn entropy_of(given: &Bound<'_, PyAny>) -> Result<Entropy, String> {
    let entropy: Bound<'_, PyAny> = field(given, "entropy")?;
    match class_of(&entropy).as_str() {
        "str" => choice(given, "entropy", &[("flow", Entropy::Flow), ("packet", Entropy::Packet)]),
        "Flowlets" => Ok(Entropy::Flowlet { gap: Nanos(field(&entropy, "gap_ns")?) }),
        "Cells" => Ok(Entropy::Cell { bytes: at_least_1(&entropy, "size_bytes")? }),
        "Rehash" => Ok(Entropy::Rehashed(rehash_of(&entropy)?)),
        other => Err(format!("entropy: expected flow, packet, Flowlets, Cells or Rehash, not {other}")),
    }
}

fn rehash_of(given: &Bound<'_, PyAny>) -> Result<Rehash, String> {
    let share: f64 = field(given, "marked_share")?;
    if !(0.0..=1.0).contains(&share) {
        return Err("marked_share: expected a share of bytes, 0 to 1".to_owned());
    }
    Ok(Rehash {
        above_permille: (share * 1000.0).round() as u16,
        rounds: at_least_1(given, "rounds")?,
        idle_rounds: field(given, "idle_rounds")?,
        on_timeout: field(given, "on_timeout")?,
        suspension: Nanos(field(given, "suspension_ns")?),
    })
}

/// How switches choose where default routes spread flows.
fn selection_of(given: &Bound<'_, PyAny>) -> Result<Selection, String> {
    let known = [("hash", Selection::Hash), ("numbered", Selection::Numbered), ("round_robin", Selection::RoundRobin)];
    let selection: Bound<'_, PyAny> = field(given, "selection")?;
    match class_of(&selection).as_str() {
        "str" => choice(given, "selection", &known),
        "ShortestQueue" => Ok(Selection::ShortestQueue {
            drawn: at_least_1(&selection, "drawn")?,
            remembered: field(&selection, "remembered")?,
        }),
        other => Err(format!("selection: expected hash, numbered, round_robin or ShortestQueue, not {other}")),
    }
}

fn ageing_of(given: &Bound<'_, PyAny>) -> Result<Ageing, String> {
    let (first_bytes, factor, levels) =
        (at_least_1(given, "first_bytes")?, field(given, "factor")?, field(given, "levels")?);
    if factor < 2 {
        return Err("factor: expected 2 or more".to_owned());
    }
    if !(1..=MOST_QUEUES).contains(&levels) {
        return Err(format!("levels: expected 1 to {MOST_QUEUES}, the queues of a port"));
    }
    let announced: f64 = field(given, "announced")?;
    if !(0.0..=1.0).contains(&announced) {
        return Err("announced: expected a share from 0 to 1".to_owned());
    }
    Ok(Ageing { first_bytes, factor, levels, announced_percent: (announced * 100.0).round() as u8 })
}

fn at_least_1<'py, T>(given: &Bound<'py, PyAny>, name: &'static str) -> Result<T, String>
where
    T: FromPyObjectOwned<'py> + Default + PartialEq,
{
    let value: T = field(given, name)?;
    if value == T::default() {
        Err(format!("{name}: expected 1 or more"))
    } else {
        Ok(value)
    }
}

fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string())
}
