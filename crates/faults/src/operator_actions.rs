//! Operations of a fabric's operator on its controller. They must not cost a packet either.

use crate::settings;
use pathloom_control::Target;
use pathloom_model::{Fabric, Fault, FaultKind, FaultTarget, LinkId, Nanos};
use rand::{Rng, RngExt};

/// An operation of the operator.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Another scheme, with this specification, is put in charge.
    Scheme(String),
    /// A switch or cable is taken out of service, or put back into service.
    Drain {
        /// The switch or cable.
        target: Target,
        /// Whether it is taken out of service, not put back.
        out: bool,
    },
}

/// Key and value of schemes that use one tree for all packets.
const ONE_TREE: &str = "tree=one";

/// Whether it is promised that an operation under a scheme costs no packet, among these other operations and faults.
/// It is not promised
///
/// - if all packets follow one tree before or after it: while some switches have the routes of this tree and others
///   those of shortest paths, or of another tree, packets can loop, and no order of changes prevents that;
/// - if something is out of service while a session is lost or a controller starts: a switch without a session keeps
///   its rules while its neighbours send packets around it, and a controller without a snapshot does not know of it.
pub(crate) fn is_promised(act: &Act, scheme: &str, others: &[(Nanos, Act)], faults: &[Fault]) -> bool {
    let one_tree = |act: &Act| matches!(act, Act::Scheme(next) if next.contains(ONE_TREE));
    if scheme.contains(ONE_TREE) || others.iter().any(|(_, other)| one_tree(other)) {
        return false;
    }
    let cables_alone = |fault: &Fault| match fault.kind {
        FaultKind::Carrier { target, .. } => !matches!(target, FaultTarget::Node(_)),
        _ => false,
    };
    matches!(act, Act::Scheme(_)) || faults.iter().all(cables_alone)
}

/// Draws operations between two times. At the end nothing is out of service.
pub(crate) fn draw(rng: &mut impl Rng, fabric: &Fabric, first: Nanos, last: Nanos) -> Vec<(Nanos, Act)> {
    let mut acts = Vec::new();
    let next = settings::scheme(rng).label;
    let at = |rng: &mut _| first + Nanos::from_micros(RngExt::random_range(rng, 0..=(last - first).0 / 1000));
    if rng.random_bool(0.25) {
        acts.push((at(rng), Act::Scheme(next)));
    }
    if rng.random_bool(0.25) {
        let cables: Vec<LinkId> = fabric.switch_cables().collect();
        let target = match rng.random_bool(0.5) {
            true => Target::Cable(cables[rng.random_range(0..cables.len())]),
            false => Target::Switch(fabric.switches()[rng.random_range(0..fabric.switches().len())]),
        };
        acts.push((at(rng), Act::Drain { target, out: true }));
        // A controller that is down misses an operation, so the drain ends after everything is repaired.
        acts.push((last + Nanos::from_millis(100), Act::Drain { target, out: false }));
    }
    acts.sort_by_key(|(at, _)| *at);
    acts
}
