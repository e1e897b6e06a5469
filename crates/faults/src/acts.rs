//! What whoever operates a fabric does to its controller, which must cost no packet either.

use crate::settings;
use pathloom_control::Target;
use pathloom_model::{Fabric, Fault, FaultKind, FaultTarget, LinkId, Nanos};
use rand::{Rng, RngExt};

/// Something that is done on purpose.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Another scheme, of this specification, is put in charge.
    Scheme(String),
    /// A switch or cable is taken out of service, or back into it.
    Drain {
        /// Which.
        target: Target,
        /// Out of service, or back.
        out: bool,
    },
}

/// Schemes that route by one tree for all.
const ONE_TREE: &str = "tree=one";

/// Whether no packet may be lost for an act under a scheme, among these faults. It is not promised
///
/// - where all packets follow one tree before or after: while some switches have its routes and others those of shortest
///   paths, or of another tree, packets can go in circles, and no order of changes prevents that;
/// - where something is out of service while a session is lost or a controller starts: a switch without a session goes on as
///   it was while its neighbours lead packets around, and a controller without a snapshot does not know of it.
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

/// Draws what is done between two moments. At the end nothing is out of service.
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
        // A controller that is dead does not hear of it: it is said again when all is repaired.
        acts.push((last + Nanos::from_millis(100), Act::Drain { target, out: false }));
    }
    acts.sort_by_key(|(at, _)| *at);
    acts
}
