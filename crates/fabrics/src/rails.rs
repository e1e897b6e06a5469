//! A rail-optimised fabric for GPUs: servers with a switch of their own for their GPUs, and one leaf for each rail.

use super::check_size;
use super::clos::cores;
use super::settings::{LinkKeys, PartialSettings};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_EACH: u64 = 100_000;
const MOST_PLANES: u64 = 16;
/// One direction of the links of a current GPU (450 GB/s).
const NVLINK_BPS: u64 = 3_600_000_000_000;

/// A rail-optimised fabric. Each GPU is a host with a network card of its own. GPU `i` of every server of a segment is
/// connected to the same leaf, rail `i` of the segment. All leaves have cables to all spines. Ranks are numbered server by
/// server.
///
/// With `planes=2`, each rail of a segment has a leaf in each plane, and each GPU a port at both of them (HPN, Qian et al. 2024,
/// §4 and §5). Leaves have cables to the spines of their own plane, `spines=` of them. Only servers join the planes.
///
/// The GPUs of a server also have links to a switch inside it (NVSwitch), which has no other cables. So traffic within a
/// server takes these links, and all other traffic takes the cards. `nvlink=off` leaves them out.
pub(super) fn rail_optimized(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let segments = spec.count("segments", 1, MOST_EACH)?.unwrap_or(1);
    let servers = spec.count("servers", 1, MOST_EACH)?.unwrap_or(8);
    let gpus = spec.count("gpus", 1, MOST_EACH)?.unwrap_or(8);
    let spines = spec.count("spines", 1, MOST_EACH)?.unwrap_or(servers);
    let planes = spec.count("planes", 1, MOST_PLANES)?.unwrap_or(1);
    let has_nvlink = spec.flag("nvlink")?.unwrap_or(true);
    let stated = PartialSettings {
        rate_bps: spec.rate_bps("nvlink_rate")?.or(Some(NVLINK_BPS)),
        delay_ps: spec.time_ps("nvlink_delay")?,
        buffer_packets: None,
    };
    spec.finish()?;
    let leaves = segments.saturating_mul(gpus);
    let hosts = leaves.saturating_mul(servers);
    let of_plane = hosts.saturating_add(leaves.saturating_mul(spines));
    check_size(spec, hosts.saturating_add(of_plane.saturating_mul(planes)))?;
    let mut builder = FabricBuilder::new(spec.text());
    let leaf = |builder: &mut FabricBuilder, segment: u64, rail: u64| -> Vec<NodeId> {
        let name = |plane: u64| match planes {
            1 => format!("e{segment}_{rail}"),
            _ => format!("e{segment}_{rail}_{plane}"),
        };
        (0..planes).map(|plane| builder.switch(name(plane), Tier::Tor, Some(segment as u32))).collect()
    };
    // By segment and rail: the leaves of all planes.
    let rails: Vec<Vec<Vec<NodeId>>> =
        (0..segments).map(|segment| (0..gpus).map(|rail| leaf(&mut builder, segment, rail)).collect()).collect();
    let all_spines = cores(&mut builder, spines * planes);
    for (segment, rails) in rails.iter().enumerate() {
        for server in 0..servers {
            let number = segment as u64 * servers + server;
            let pod = Some(segment as u32);
            let inside = has_nvlink.then(|| builder.switch(format!("n{number}"), Tier::Tor, pod));
            for (gpu, leaves) in rails.iter().enumerate() {
                let host = builder.host(format!("h{}", number * gpus + gpu as u64), pod);
                for &leaf in leaves {
                    builder.cable(leaf, host, keys.host());
                }
                if let Some(inside) = inside {
                    builder.cable(inside, host, stated.with_defaults(keys.host()));
                }
            }
        }
    }
    for leaves in rails.iter().flatten() {
        for (&leaf, spines) in leaves.iter().zip(all_spines.chunks(spines as usize)) {
            for &spine in spines {
                builder.cable(leaf, spine, keys.switch());
            }
        }
    }
    Ok(builder)
}
