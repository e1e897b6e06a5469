//! Two ToRs and the switches between them: dumbbell, diamond, parallel paths.

use super::check_size;
use super::clos::{add_hosts, cores};
use super::settings::{parse_delay_ps, LinkKeys};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::parse_rate_bps;
use pathloom_model::{FabricBuilder, LinkSettings, NodeId, Tier};

const MOST_HOSTS: u64 = 1_000_000;

/// Creates two ToRs `e0` and `e1` that are not connected yet.
fn two_tors(spec: &Spec) -> (FabricBuilder, [NodeId; 2]) {
    let mut builder = FabricBuilder::new(spec.text());
    let tors = [builder.switch("e0", Tier::Tor, None), builder.switch("e1", Tier::Tor, None)];
    (builder, tors)
}

/// Two ToRs and one cable: the bottleneck of all flows between the two sides.
pub(super) fn dumbbell(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(2);
    spec.finish()?;
    check_size(spec, 2 * hosts + 1)?;
    let (mut builder, [left, right]) = two_tors(spec);
    add_hosts(&mut builder, &[(left, None), (right, None)], hosts, keys);
    builder.cable(left, right, keys.switch());
    Ok(builder)
}

/// Two ToRs and two switches between them (OFPT §6.2.5, Fig. 10: S1, S2 are `e0`, `e1`; S3, S4 are `c0`, `c1`).
pub(super) fn diamond(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(1);
    spec.finish()?;
    check_size(spec, 2 * hosts + 4)?;
    Ok(between(spec, hosts, keys, &[(keys.switch(), keys.switch()); 2]))
}

/// Two ToRs and one switch per path between them (Parallel TCP §4, topology A).
///
/// `rates=` and `delays=` are lists with `/` between their members, one member per path. A single member applies to
/// all paths. The delay is the one-way delay of the whole path; each of its two cables has half of it.
pub(super) fn parallel_paths(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(1);
    let rates = list(spec, "rates", |text| parse_rate_bps(text).map_err(|error| error.to_string()))?;
    let delays = list(spec, "delays", parse_delay_ps)?;
    spec.finish()?;
    let (members, others) = (rates.len().max(delays.len()), rates.len().min(delays.len()));
    if others > 1 && others != members {
        let problem = format!(
            "rates= has {} members and delays= has {}; expected equal numbers, or a single member in one of them",
            rates.len(),
            delays.len()
        );
        return Err(spec.error(problem));
    }
    let count = if members == 0 { 2 } else { members };
    check_size(spec, 2 * (hosts + count as u64))?;
    let pick = |values: &[u64], path: usize| values.get(path).or(values.first()).copied();
    let cables: Vec<(LinkSettings, LinkSettings)> = (0..count)
        .map(|path| {
            let mut settings = keys.switch();
            settings.rate_bps = pick(&rates, path).unwrap_or(settings.rate_bps);
            let Some(delay_ps) = pick(&delays, path) else { return (settings, settings) };
            let half = LinkSettings { delay_ps: delay_ps / 2, ..settings };
            (half, LinkSettings { delay_ps: delay_ps - half.delay_ps, ..settings })
        })
        .collect();
    Ok(between(spec, hosts, keys, &cables))
}

/// Two ToRs with one switch between them for every pair of cables.
fn between(spec: &Spec, hosts: u64, keys: &LinkKeys, cables: &[(LinkSettings, LinkSettings)]) -> FabricBuilder {
    let (mut builder, [left, right]) = two_tors(spec);
    let middles = cores(&mut builder, cables.len() as u64);
    add_hosts(&mut builder, &[(left, None), (right, None)], hosts, keys);
    for (&middle, &(near, far)) in middles.iter().zip(cables) {
        builder.cable(left, middle, near);
        builder.cable(middle, right, far);
    }
    builder
}

/// Parses a key as a list `a/b/c`; empty if the key is missing.
fn list(spec: &Spec, key: &'static str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<u64>, SpecError> {
    let Some(text) = spec.text_of(key) else { return Ok(Vec::new()) };
    text.split('/').map(|member| parse(member).map_err(|problem| spec.error(format!("{key}: {problem}")))).collect()
}
