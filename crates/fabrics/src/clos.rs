//! Fabrics in tiers: FatTree, VL2, leaf-spine and the three-layer fabric of Facebook's Altoona.

use super::check_size;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

/// Largest number of hosts per ToR, and of anything else that is counted per switch.
const MOST_EACH: u64 = 100_000;

/// Adds `count` hosts to every ToR, numbered consecutively over all ToRs. Their cables come before all others, so
/// that the first ports of a ToR lead to hosts.
pub(super) fn add_hosts(builder: &mut FabricBuilder, tors: &[(NodeId, Option<u32>)], count: u64, keys: &LinkKeys) {
    let mut number = 0;
    for &(tor, pod) in tors {
        for _ in 0..count {
            let host = builder.host(format!("h{number}"), pod);
            builder.cable(tor, host, keys.host());
            number += 1;
        }
    }
}

/// Adds `count` switches called `<letter><pod>_<index>`.
fn pod_switches(builder: &mut FabricBuilder, letter: char, tier: Tier, pod: u64, count: u64) -> Vec<NodeId> {
    (0..count).map(|index| builder.switch(format!("{letter}{pod}_{index}"), tier, Some(pod as u32))).collect()
}

/// Adds `count` core switches `c0`, `c1`, …
pub(super) fn cores(builder: &mut FabricBuilder, count: u64) -> Vec<NodeId> {
    (0..count).map(|index| builder.switch(format!("c{index}"), Tier::Core, None)).collect()
}

/// The ToRs and aggregation switches, by pod.
struct Pods {
    tors: Vec<Vec<NodeId>>,
    aggregations: Vec<Vec<NodeId>>,
}

impl Pods {
    fn add(builder: &mut FabricBuilder, pods: u64, tors: u64, aggregations: u64) -> Pods {
        let tors = (0..pods).map(|pod| pod_switches(builder, 'e', Tier::Tor, pod, tors)).collect();
        let aggregations =
            (0..pods).map(|pod| pod_switches(builder, 'a', Tier::Aggregation, pod, aggregations)).collect();
        Pods { tors, aggregations }
    }

    fn tors_with_pod(&self) -> Vec<(NodeId, Option<u32>)> {
        let pods = self.tors.iter().enumerate();
        pods.flat_map(|(pod, tors)| tors.iter().map(move |&tor| (tor, Some(pod as u32)))).collect()
    }

    /// Connects every ToR to every aggregation switch of its pod.
    fn mesh(&self, builder: &mut FabricBuilder, keys: &LinkKeys) {
        for (tors, aggregations) in self.tors.iter().zip(&self.aggregations) {
            for &tor in tors {
                for &aggregation in aggregations {
                    builder.cable(tor, aggregation, keys.switch());
                }
            }
        }
    }
}

/// A k-ary FatTree (Al-Fares et al., SIGCOMM 2008). Aggregation switch `i` of every pod has cables to the cores
/// `i*k/2 .. (i+1)*k/2`, so the core determines the path.
pub(super) fn fat_tree(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let k = spec.count("k", 2, 1_000)?.unwrap_or(4);
    let half = k / 2;
    let hosts = spec.count("hosts", 1, MOST_EACH)?.unwrap_or(half);
    spec.finish()?;
    if k % 2 != 0 {
        return Err(spec.error(format!(
            "k: {k} is odd; a FatTree needs an even number, such as {} or {}",
            k - 1,
            k + 1
        )));
    }
    check_size(spec, k * half * (2 * half + hosts))?;
    let mut builder = FabricBuilder::new(spec.text());
    let pods = Pods::add(&mut builder, k, half, half);
    let cores = cores(&mut builder, half * half);
    add_hosts(&mut builder, &pods.tors_with_pod(), hosts, keys);
    pods.mesh(&mut builder, keys);
    for aggregations in &pods.aggregations {
        for (group, &aggregation) in cores.chunks(half as usize).zip(aggregations) {
            for &core in group {
                builder.cable(aggregation, core, keys.switch());
            }
        }
    }
    Ok(builder)
}

/// VL2 (Greenberg et al., SIGCOMM 2009), with the parameters of OFPT §6.1 and LESSOR §5.1.1: `d0`, `d1`, `d2` are the
/// switch-to-switch ports of a ToR, an aggregation and an intermediate ("spine") switch.
///
/// So there are d2 aggregation and d1/2 intermediate switches, with a cable from every aggregation switch to every
/// intermediate switch. There are d1*d2/(2*d0) ToRs, each with cables to d0 aggregation switches. Neighbouring ToRs
/// share these and form a pod (OFPT counts paths "in different pods"). d0=2, d1=4, d2=4 with 20 hosts per ToR gives
/// the papers' 10 switches and 80 servers. Two ToRs in different pods have 2 (up) * 2 (intermediate) * 2 (down) = 8
/// shortest paths, whereas the papers say 4.
pub(super) fn vl2(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let d0 = spec.count("d0", 1, MOST_EACH)?.unwrap_or(2);
    let d1 = spec.count("d1", 2, MOST_EACH)?.unwrap_or(4);
    let d2 = spec.count("d2", 1, MOST_EACH)?.unwrap_or(4);
    let hosts = spec.count("hosts", 1, MOST_EACH)?.unwrap_or(20);
    spec.finish()?;
    if d1 % 2 != 0 {
        let problem = format!("d1: {d1} is odd; half of the ports of an aggregation switch go up, half go down");
        return Err(spec.error(problem));
    }
    if d2 % d0 != 0 {
        let problem = format!("d2: {d2} is not a multiple of d0={d0}; each pod has d0 of the d2 aggregation switches");
        return Err(spec.error(problem));
    }
    let (pods, tors_each) = (d2 / d0, d1 / 2);
    let tors = pods * tors_each;
    check_size(spec, tors.saturating_mul(d0 + hosts).saturating_add(d2 * (d1 / 2)))?;
    let mut builder = FabricBuilder::new(spec.text());
    let pods = Pods::add(&mut builder, pods, tors_each, d0);
    let cores = cores(&mut builder, d1 / 2);
    add_hosts(&mut builder, &pods.tors_with_pod(), hosts, keys);
    pods.mesh(&mut builder, keys);
    for &aggregation in pods.aggregations.iter().flatten() {
        for &core in &cores {
            builder.cable(aggregation, core, keys.switch());
        }
    }
    Ok(builder)
}

/// Leaves and spines, fully meshed (TCP-Path §V-B calls the default "4-4-20").
pub(super) fn leaf_spine(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let spines = spec.count("spines", 1, MOST_EACH)?.unwrap_or(4);
    let leaves = spec.count("leaves", 1, MOST_EACH)?.unwrap_or(4);
    let hosts = spec.count("hosts", 1, MOST_EACH)?.unwrap_or(20);
    spec.finish()?;
    check_size(spec, leaves * (spines + hosts))?;
    let mut builder = FabricBuilder::new(spec.text());
    let tors: Vec<(NodeId, Option<u32>)> =
        (0..leaves).map(|index| (builder.switch(format!("e{index}"), Tier::Tor, None), None)).collect();
    let spines = cores(&mut builder, spines);
    add_hosts(&mut builder, &tors, hosts, keys);
    for &(tor, _) in &tors {
        for &spine in &spines {
            builder.cable(tor, spine, keys.switch());
        }
    }
    Ok(builder)
}

/// The three-layer fabric of TCP-Path §V-B, Fig. 5b, derived from Facebook's Altoona. Each pod has one aggregation
/// ("fabric") switch per plane, with cables to all ToRs of the pod and to all spines of the plane.
///
/// The paper only says "four disjoint paths (one traversing each top-layer switch) between any pair of ToR switches",
/// identical to its leaf-spine 4-4-20. The defaults are the fabric for which that is literally true: four pods of one
/// ToR, four planes of one spine. With `tors=` above 1, ToRs of one pod have four disjoint paths too, but below the
/// top layer.
pub(super) fn three_layer(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let pods = spec.count("pods", 1, MOST_EACH)?.unwrap_or(4);
    let tors = spec.count("tors", 1, MOST_EACH)?.unwrap_or(1);
    let planes = spec.count("planes", 1, MOST_EACH)?.unwrap_or(4);
    let spines = spec.count("spines", 1, MOST_EACH)?.unwrap_or(1);
    let hosts = spec.count("hosts", 1, MOST_EACH)?.unwrap_or(20);
    spec.finish()?;
    let per_pod = tors.saturating_mul(planes + hosts).saturating_add(planes * spines);
    check_size(spec, pods.saturating_mul(per_pod))?;
    let mut builder = FabricBuilder::new(spec.text());
    let pods = Pods::add(&mut builder, pods, tors, planes);
    // Spine s of plane p is c{p*spines+s}.
    let cores = cores(&mut builder, planes * spines);
    add_hosts(&mut builder, &pods.tors_with_pod(), hosts, keys);
    pods.mesh(&mut builder, keys);
    for aggregations in &pods.aggregations {
        for (plane, &aggregation) in cores.chunks(spines as usize).zip(aggregations) {
            for &spine in plane {
                builder.cable(aggregation, spine, keys.switch());
            }
        }
    }
    Ok(builder)
}
