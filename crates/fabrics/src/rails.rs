//! A rail-optimised fabric for GPUs: servers with a switch of their own for their GPUs, and one leaf for each rail.

use super::check_size;
use super::clos::cores;
use super::settings::{LinkKeys, PartialSettings};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_EACH: u64 = 100_000;
/// One direction of the links of a current GPU (450 GB/s).
const NVLINK_BPS: u64 = 3_600_000_000_000;

/// A rail-optimised fabric. Each GPU is a host with a network card of its own. GPU `i` of every server of a segment is
/// connected to the same leaf, rail `i` of the segment. All leaves have cables to all spines. Ranks are numbered server by
/// server.
///
/// The GPUs of a server also have links to a switch inside it (NVSwitch), which has no other cables. So traffic within a
/// server takes these links, and all other traffic takes the cards. `nvlink=off` leaves them out.
pub(super) fn rail_optimized(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let segments = spec.count("segments", 1, MOST_EACH)?.unwrap_or(1);
    let servers = spec.count("servers", 1, MOST_EACH)?.unwrap_or(8);
    let gpus = spec.count("gpus", 1, MOST_EACH)?.unwrap_or(8);
    let spines = spec.count("spines", 1, MOST_EACH)?.unwrap_or(servers);
    let has_nvlink = spec.flag("nvlink")?.unwrap_or(true);
    let stated = PartialSettings {
        rate_bps: spec.rate_bps("nvlink_rate")?.or(Some(NVLINK_BPS)),
        delay_ps: spec.time_ps("nvlink_delay")?,
        buffer_packets: None,
    };
    spec.finish()?;
    let leaves = segments.saturating_mul(gpus);
    let hosts = leaves.saturating_mul(servers);
    check_size(spec, hosts.saturating_mul(2).saturating_add(leaves.saturating_mul(spines)))?;
    let mut builder = FabricBuilder::new(spec.text());
    let leaf = |builder: &mut FabricBuilder, segment: u64, rail: u64| {
        builder.switch(format!("e{segment}_{rail}"), Tier::Tor, Some(segment as u32))
    };
    let rails: Vec<Vec<NodeId>> =
        (0..segments).map(|segment| (0..gpus).map(|rail| leaf(&mut builder, segment, rail)).collect()).collect();
    let spines = cores(&mut builder, spines);
    for (segment, rails) in rails.iter().enumerate() {
        for server in 0..servers {
            let number = segment as u64 * servers + server;
            let pod = Some(segment as u32);
            let inside = has_nvlink.then(|| builder.switch(format!("n{number}"), Tier::Tor, pod));
            for (gpu, &rail) in rails.iter().enumerate() {
                let host = builder.host(format!("h{}", number * gpus + gpu as u64), pod);
                builder.cable(rail, host, keys.host());
                if let Some(inside) = inside {
                    builder.cable(inside, host, stated.with_defaults(keys.host()));
                }
            }
        }
    }
    for &rail in rails.iter().flatten() {
        for &spine in &spines {
            builder.cable(rail, spine, keys.switch());
        }
    }
    Ok(builder)
}
