//! Tori and meshes: switches on a grid with any number of dimensions.

use super::check_size;
use super::clos::add_hosts;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_HOSTS: u64 = 100_000;
const MOST_SWITCHES: u64 = 1_000_000;

/// A torus: switches at all points of the grid `dims`, as in `4x4x4`. Each has a cable to the next point in each dimension, and
/// the last one to the first. In a dimension of 2 that is one cable, not two. With `wrap=off`, a mesh, the last one has none to
/// the first.
pub(super) fn torus(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let dims = dimensions(spec)?;
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(1);
    let wrap = spec.flag("wrap")?.unwrap_or(true);
    spec.finish()?;
    let switches = dims.iter().fold(1u64, |product, &size| product.saturating_mul(size));
    check_size(spec, switches.saturating_mul(hosts + dims.len() as u64))?;
    let mut builder = FabricBuilder::new(spec.text());
    let tors: Vec<(NodeId, Option<u32>)> = (0..switches)
        .map(|index| {
            let name: Vec<String> = coordinates(index, &dims).iter().map(u64::to_string).collect();
            (builder.switch(format!("e{}", name.join("_")), Tier::Tor, None), None)
        })
        .collect();
    add_hosts(&mut builder, &tors, hosts, keys);
    for index in 0..switches {
        let mut stride = 1;
        // The last dimension varies fastest.
        for (&at, &size) in coordinates(index, &dims).iter().zip(&dims).rev() {
            let next = match at + 1 < size {
                true => Some(index + stride),
                false => (wrap && size > 2).then(|| index - at * stride),
            };
            if let Some(next) = next {
                builder.cable(tors[index as usize].0, tors[next as usize].0, keys.switch());
            }
            stride *= size;
        }
    }
    Ok(builder)
}

/// Returns the coordinates of a switch.
fn coordinates(index: u64, dims: &[u64]) -> Vec<u64> {
    let mut rest = index;
    let mut found: Vec<u64> = dims
        .iter()
        .rev()
        .map(|&size| {
            let at = rest % size;
            rest /= size;
            at
        })
        .collect();
    found.reverse();
    found
}

/// Reads the key `dims`.
fn dimensions(spec: &Spec) -> Result<Vec<u64>, SpecError> {
    let text = spec.text_of("dims").unwrap_or("4x4x4");
    let sizes: Option<Vec<u64>> =
        text.split('x').map(|size| size.parse().ok().filter(|size| (1..=MOST_SWITCHES).contains(size))).collect();
    sizes.ok_or_else(|| spec.error(format!("dims: `{text}` are not sizes with x between them, such as 4x4x4")))
}
