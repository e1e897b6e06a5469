//! Fabrics from specifications (`fat-tree:k=8,rate=1Gbps`) and from the text of graph files, their export, and the numbers
//! that describe them. The types of a fabric are in `pathloom-model`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod bisection;
mod buffer_keys;
mod clos;
mod degrade;
mod dragonfly;
mod edge_csv;
mod export;
mod failures;
mod file;
mod graph;
mod graphml;
mod guesses;
mod hamming_mesh;
mod htsim_topo;
mod jellyfish;
mod losses;
mod min_rto;
mod node_link;
mod pfc_keys;
mod port_keys;
mod rails;
mod rates;
mod roles;
mod settings;
mod slim_fly;
mod small;
mod summary;
mod torus;

pub use bisection::{Bisection, BisectionKind, BisectionProof};
pub use export::{to_graphml, to_node_link_json};
pub use failures::{draw_failures, TooManyFailures};
pub use file::{fabric_file, fabric_from_file_text, FileFabric, FILE_KINDS};
pub use min_rto::fitting_min_rto;
pub use summary::{round_trip_of, round_trip_ps, FabricSummary, PathCounts, TierCount};

use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, FabricBuilder, FabricError};
use settings::LinkKeys;

/// A fabric that can be requested by name.
#[derive(Clone, Copy, Debug)]
pub struct FabricKind {
    /// The name that a specification begins with.
    pub name: &'static str,
    /// A specification with all keys of this kind at their defaults.
    pub example: &'static str,
    /// Description of the fabric in one line.
    pub about: &'static str,
    build: fn(&Spec, &LinkKeys) -> Result<FabricBuilder, SpecError>,
}

/// Keys that every fabric takes, with their defaults, for help texts.
pub const COMMON_KEYS: &str = "rate=1Gbps (host_rate=, switch_rate=)  delay=1us (host_delay=, switch_delay=)  \
     buffer=100 packets (host_buffer=, switch_buffer=)  fail=0 (share of switch-switch cables), fail_seed=1  \
     degrade=CABLE:RATE (slower cables, as in a0_0-c0:1Gbps/c3:100Mbps; RATE+RATE for from and to the first node)  \
     loss=0.001 or CABLE:SHARE (packets lost on their way, as in a0_0-c0:0.01/c3:0.001)  queues=1 (strict priorities at ports of switches, by DSCP)  red=MIN/MAX (RED there, \
     in packets), red_p=0.1, red_weight=0.002, red_ecn=off (mark instead of drop)  queue_bytes=280KB (size of each queue \
     there, in place of buffer=)  ecn=MIN/MAX[/P] (marks there by the bytes that a packet leaves behind, as in 56KB/224KB; P at MAX)  \
     scale_queues=off (less of both at slower ports)  control_queue=off (acknowledgements first)  trim=off (a full queue \
     cuts packets to headers), trim_bytes=64B  pfc=on or XOFF/XON (pauses senders instead of dropping), pfc_headroom=SIZE  \
     queue_weights=1/3 (queues share a port by weight, the lowest first, instead of strict priorities)  shared_buffer=SIZE of \
     each switch in place of buffer=, alpha=1 (a queue may hold alpha times what is free)  addresses=ipv4 (or ipv6, in simulations)";

/// Every fabric that has a name.
pub const FABRICS: [FabricKind; 13] = [
    FabricKind {
        name: "fat-tree",
        example: "fat-tree:k=4,hosts=2",
        about: "k pods of k/2 ToRs and k/2 aggregation switches, k*k/4 cores; hosts per ToR, k/2 by default",
        build: clos::fat_tree,
    },
    FabricKind {
        name: "vl2",
        example: "vl2:d0=2,d1=4,d2=4,hosts=20",
        about: "switch-to-switch ports per ToR (d0), aggregation (d1) and intermediate switch (d2); hosts per ToR",
        build: clos::vl2,
    },
    FabricKind {
        name: "leaf-spine",
        example: "leaf-spine:spines=4,leaves=4,hosts=20",
        about: "every leaf cabled to every spine; hosts per leaf",
        build: clos::leaf_spine,
    },
    FabricKind {
        name: "three-layer",
        example: "three-layer:pods=4,tors=1,planes=4,spines=1,hosts=20",
        about: "planes of spines as in Facebook's Altoona: one aggregation switch per pod and plane; hosts per ToR",
        build: clos::three_layer,
    },
    FabricKind {
        name: "jellyfish",
        example: "jellyfish:switches=60,ports=8,hosts=120,homes=1,seed=1",
        about: "a random regular graph of switches; hosts in all, each on one or two switches (homes)",
        build: jellyfish::jellyfish,
    },
    FabricKind {
        name: "rail-optimized",
        example: "rail-optimized:segments=1,servers=8,gpus=8,spines=8,planes=1,nvlink=on,nvlink_rate=3.6Tbps",
        about: "GPUs as hosts: those of a server share a switch inside it, and GPU i of all servers of a segment shares leaf i, one in each plane (planes=2 as in HPN)",
        build: rails::rail_optimized,
    },
    FabricKind {
        name: "dragonfly",
        example: "dragonfly:groups=9,routers=4,global=2,hosts=2",
        about: "groups of fully meshed switches (routers each) with cables (global per switch) to all groups; hosts per switch",
        build: dragonfly::dragonfly,
    },
    FabricKind {
        name: "slim-fly",
        example: "slim-fly:q=5,hosts=4",
        about: "2*q*q switches, at most two hops apart; q is an odd prime; hosts per switch",
        build: slim_fly::slim_fly,
    },
    FabricKind {
        name: "torus",
        example: "torus:dims=4x4x4,hosts=1",
        about: "a grid of switches with cables to the next one in each dimension, around the ends too (wrap=on); hosts per switch",
        build: torus::torus,
    },
    FabricKind {
        name: "hammingmesh",
        example: "hammingmesh:board=2x2,boards=4x4,hosts=1",
        about: "boards of switches in a mesh, whose edges are joined by one switch for each row and column of the machine; hosts per \
                switch of a board",
        build: hamming_mesh::hamming_mesh,
    },
    FabricKind {
        name: "dumbbell",
        example: "dumbbell:hosts=2",
        about: "two ToRs with one cable between them (switch_rate= is the bottleneck); hosts per side",
        build: small::dumbbell,
    },
    FabricKind {
        name: "diamond",
        example: "diamond:hosts=1",
        about: "two ToRs with two switches between them, so two paths; hosts per side",
        build: small::diamond,
    },
    FabricKind {
        name: "parallel-paths",
        example: "parallel-paths:rates=1Gbps/1Gbps,delays=2us,hosts=1",
        about: "two ToRs with one switch per path between them; rate and one-way delay of each path, or one for all",
        build: small::parallel_paths,
    },
];

/// Largest number of cables that a specification can request: k=108 in a FatTree.
const MOST_CABLES: u64 = 1_000_000;

/// Builds the fabric that `text` names: `name:key=value,key=value`, with a name from [`FABRICS`].
///
/// A specification that names a file (see [`fabric_file`]) is refused here. Read the text of the file first, and pass
/// it to [`fabric_from_file_text`].
pub fn fabric_from_spec(text: &str) -> Result<Fabric, FabricError> {
    let text = text.trim();
    if let Some(path) = fabric_file(text) {
        let spec = Spec::parse_named("fabric", text, path)?;
        return Err(spec.error(format!("{path} is a file; expected the name of a fabric")).into());
    }
    let spec = Spec::parse("fabric", text)?;
    let kind = FABRICS.iter().find(|kind| kind.name == spec.name()).ok_or_else(|| {
        if let Some(problem) = unsupported(spec.name()) {
            return spec.error(problem);
        }
        let files = ["FILE.graphml", "FILE.json", "FILE.csv", "FILE.topo"];
        let names: Vec<&str> = FABRICS.iter().map(|kind| kind.name).chain(files).collect();
        spec.unknown_name(&names)
    })?;
    let keys = LinkKeys::read(&spec)?;
    let fabric = (kind.build)(&spec, &keys)?.build()?;
    keys.apply(&spec, fabric)
}

/// Returns the formats to use instead of a file of another format; `None` if `name` is not the name of a file.
fn unsupported(name: &str) -> Option<String> {
    let known =
        "FILE.graphml or FILE.json (node-link; networkx writes both), FILE.csv (a line per cable) or FILE.topo (htsim)";
    Some(match pathloom_model::spec::extension(name)?.as_str() {
        "cm" | "et" => format!("{name} is not a fabric; expected {known}"),
        _ => format!("unsupported format: a fabric is read from {known}"),
    })
}

/// Returns an error if a fabric needs too many cables. The caller computes `cables` with saturating arithmetic.
fn check_size(spec: &Spec, cables: u64) -> Result<(), SpecError> {
    if cables > MOST_CABLES {
        return Err(
            spec.error(format!("needs {cables} cables; at most {MOST_CABLES} can be built, so make it smaller"))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
