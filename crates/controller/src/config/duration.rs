//! Times in the configuration: `5s`, `300ms`.

use pathloom_model::units::parse_time;
use pathloom_model::Nanos;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// Reads a time with its unit.
pub(crate) fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Duration, D::Error> {
    let Nanos(nanos) = nanos(reader)?;
    Ok(Duration::from_nanos(nanos))
}

/// Reads a time with its unit, for a setting of the core.
pub(crate) fn nanos<'de, D: Deserializer<'de>>(reader: D) -> Result<Nanos, D::Error> {
    parse_time(&String::deserialize(reader)?).map_err(serde::de::Error::custom)
}

/// Reads a time with its unit, for an optional setting of the core.
pub(crate) fn optional_nanos<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Nanos>, D::Error> {
    nanos(reader).map(Some)
}
