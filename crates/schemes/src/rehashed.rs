//! What schemes share whose senders change the entropy of their flows.

use crate::entry::{KeyInfo, Parts};
use crate::sprayed;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_scheme::{Entropy, Rehash, Selection};
use pathloom_transport::TransportSpec;

pub(crate) const ROUNDS: &str = "congested rounds in a row after which a sender changes the path of its flow";
pub(crate) const THRESHOLD: &str = "share of marked bytes above which a round is congested, 0 to 1; 1: none is";
pub(crate) const ON_TIMEOUT: KeyInfo = ("rto", "on", "whether a sender also changes the path when its timer expires");
pub(crate) const SUSPENSION: &str =
    "time after an expired timer, and a random part of it more, in which marks change no path";

/// Reads `threshold`, `rounds`, `rto` and `suspend`; missing ones come from `usual`.
pub(crate) fn read(spec: &Spec, usual: Rehash) -> Result<Rehash, SpecError> {
    let permille = spec.number("threshold", 0.0, 1.0)?.map(|share| (share * 1000.0).round() as u16);
    Ok(Rehash {
        above_permille: permille.unwrap_or(usual.above_permille),
        rounds: spec.count("rounds", 1, 1_000_000)?.map_or(usual.rounds, |rounds| rounds as u32),
        on_timeout: spec.flag("rto")?.unwrap_or(usual.on_timeout),
        suspension: spec.time("suspend")?.unwrap_or(usual.suspension),
        ..usual
    })
}

/// Switches that hash the entropy, and hosts that run DCTCP: the law needs echoes of congestion marks.
pub(crate) fn parts(name: &'static str, law: Rehash) -> Result<Parts, SpecError> {
    let transport = TransportSpec::parse("dctcp")?;
    Ok(Parts { transport, ..sprayed::parts(name, Entropy::Rehashed(law), Selection::Hash) })
}
