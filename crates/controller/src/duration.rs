//! Times in the configuration: `5s`, `300ms`.

use pathloom_model::units::parse_time;
use pathloom_model::Nanos;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// Reads a time with its unit.
pub(crate) fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(reader)?;
    let Nanos(nanos) = parse_time(&text).map_err(serde::de::Error::custom)?;
    Ok(Duration::from_nanos(nanos))
}
