//! Snapshots: the state of a controller in a form that survives a restart.

use crate::assignments::SavedAssignments;
use crate::controller::Controller;
use crate::counts::Counts;
use crate::drain::{Drains, OutOfService};
use crate::flows::DrainingRules;
use crate::io::Target;
use crate::links::{Cables, LONGEST_WAIT};
use crate::places::Places;
use crate::routes::{Drain, FlowRecord};
use crate::timers::Timer;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkState, Nanos};
use pathloom_scheme::{DefaultRoutes, Scheme, State, StateError};
use serde::{Deserialize, Serialize};

/// Version number of the format below.
const FORM: u32 = 2;

/// The state of a controller. A move in progress is stored as if it had been given up at that moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    form: u32,
    taken: Nanos,
    epoch: u16,
    serial: u64,
    fabric: String,
    nodes: usize,
    scheme: String,
    state: State,
    defaults: DefaultRoutes,
    links: LinkState,
    cables: Cables,
    #[serde(default)]
    drains: OutOfService,
    /// Single addresses that are not where the fabric has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<Attachment>,
    flows: Vec<FlowRecord>,
    draining: Vec<Drain>,
    #[serde(default)]
    assignments: SavedAssignments,
    counts: Counts,
}

/// The part of a snapshot that keeps its format over all versions: what is out of service.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct StoredDrains {
    fabric: String,
    nodes: usize,
    #[serde(default)]
    drains: OutOfService,
}

impl StoredDrains {
    /// Whether the snapshot was taken on this fabric.
    pub fn is_of(&self, fabric: &Fabric) -> bool {
        self.nodes == fabric.nodes().len() && self.fabric == fabric.spec()
    }

    /// Returns the switches and cables that were out of service. If the snapshot cannot be restored but the fabric is the
    /// same, the driver should send them again with [`crate::Input::Drain`].
    pub fn targets(&self) -> Vec<Target> {
        self.drains.targets()
    }
}

/// Why a snapshot cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot has the format of another version of the program.
    #[error("the snapshot has format {found}, but this program reads format {FORM}; start without the snapshot: flows whose rules are in the switches are adopted")]
    Form {
        /// Version number of its format.
        found: u32,
    },
    /// The snapshot was taken on another fabric.
    #[error("the snapshot was taken on fabric `{found}` with {found_nodes} nodes, not on `{expected}` with {expected_nodes} nodes")]
    OtherFabric {
        /// Specification of its fabric.
        found: String,
        /// Nodes of its fabric.
        found_nodes: usize,
        /// Specification of the fabric on which it must be restored.
        expected: String,
        /// Nodes of the fabric on which it must be restored.
        expected_nodes: usize,
    },
    /// Another scheme was in charge when the snapshot was taken.
    #[error("the snapshot was taken with scheme {found}, not {expected}; restore it with {found} and change the scheme afterwards")]
    OtherScheme {
        /// The scheme of the snapshot.
        found: String,
        /// The scheme with which it must be restored.
        expected: &'static str,
    },
    /// The scheme cannot read its part of the snapshot.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Snapshot {
    /// Takes a snapshot of a controller.
    pub(crate) fn of(controller: &Controller) -> Snapshot {
        let (cx, routes) = (&controller.context, &controller.routes);
        let scheme = &controller.active_scheme.scheme;
        let draining: Vec<_> =
            routes.rules.draining.iter().map(|(&(tuple, plan), left)| (tuple, plan, left.rules.clone())).collect();
        let flows = routes.rules.flows.iter().map(|(id, flow)| FlowRecord::of(cx, id, flow)).collect();
        Snapshot {
            form: FORM,
            taken: cx.now,
            epoch: cx.config.epoch,
            serial: routes.rules.flows.serial(),
            fabric: cx.fabric.spec().to_owned(),
            nodes: cx.fabric.nodes().len(),
            scheme: scheme.name().to_owned(),
            state: scheme.save(),
            defaults: cx.view.defaults,
            links: cx.view.links.clone(),
            cables: controller.cables.clone(),
            drains: controller.drains.out.clone(),
            places: cx.places.singles(),
            flows,
            draining,
            assignments: routes.assignments.save(),
            counts: cx.counts,
        }
    }

    /// Gives its state to a new controller, whose scheme has restored its part ([`Snapshot::restore_scheme`]).
    pub(crate) fn restore(self, controller: &mut Controller, now: Nanos) {
        let Controller { context: cx, routes, .. } = controller;
        cx.now = now.max(self.taken);
        cx.counts = self.counts;
        cx.view.defaults = self.defaults;
        cx.view.links = self.links;
        cx.places = Places::restored(&cx.fabric, self.places);
        controller.cables = self.cables;
        controller.drains = Drains::restored(self.drains);
        // Flows may still be on paths that are out of service.
        cx.timers.set(cx.now, Timer::Drain);
        // Cables that had flapped are held back once more, because the snapshot does not contain the end of their wait.
        let at = cx.now.saturating_add(LONGEST_WAIT);
        for (link, changes) in controller.cables.idle(&cx.view.links) {
            cx.timers.set(at, Timer::LinkQuiet { link, changes });
        }
        if cx.config.epoch == self.epoch {
            routes.rules.flows.skip_to(self.serial);
        }
        for record in self.flows {
            record.restore(cx, &mut routes.rules);
        }
        for (five_tuple, plan, rules) in self.draining {
            for (switch, key) in &rules {
                if !routes.rules.labels.claim_unknown(cx, *switch, key) {
                    cx.count_rules(*switch, 1);
                }
            }
            let drain = cx.unknown_drain(&five_tuple);
            let mut left = DrainingRules { rules, ..DrainingRules::default() };
            left.wait(&mut cx.timers, (five_tuple, plan), cx.now.saturating_add(drain));
            routes.rules.draining.insert((five_tuple, plan), left);
        }
        routes.restore_assignments(cx, self.assignments);
    }

    /// Restores the state of the scheme, if the snapshot is of this fabric and this scheme.
    pub(crate) fn restore_scheme(&self, fabric: &Fabric, scheme: &mut dyn Scheme) -> Result<(), RestoreError> {
        self.check(fabric, scheme)?;
        Ok(scheme.restore(self.state.clone())?)
    }

    /// Name of the scheme that was in charge.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Time of the snapshot.
    pub fn taken(&self) -> Nanos {
        self.taken
    }

    /// Returns the flows that cannot be restored on a fabric, because one of their addresses has no place there.
    pub fn homeless(&self, fabric: &Fabric) -> Vec<FiveTuple> {
        let places = Places::restored(fabric, self.places.clone());
        let exists = |address| places.attachment(fabric, address).is_some();
        let tuples = self.flows.iter().map(FlowRecord::five_tuple);
        tuples.filter(|tuple| !exists(tuple.src()) || !exists(tuple.dst())).collect()
    }

    /// Epoch of the controller that took it.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns what was out of service.
    pub fn drains(&self) -> StoredDrains {
        StoredDrains { fabric: self.fabric.clone(), nodes: self.nodes, drains: self.drains.clone() }
    }

    fn check(&self, fabric: &Fabric, scheme: &dyn Scheme) -> Result<(), RestoreError> {
        if self.form != FORM {
            return Err(RestoreError::Form { found: self.form });
        }
        if !self.drains().is_of(fabric) || self.cables.len() != fabric.links().len() / 2 {
            return Err(RestoreError::OtherFabric {
                found: self.fabric.clone(),
                found_nodes: self.nodes,
                expected: fabric.spec().to_owned(),
                expected_nodes: fabric.nodes().len(),
            });
        }
        if self.scheme != scheme.name() {
            return Err(RestoreError::OtherScheme { found: self.scheme.clone(), expected: scheme.name() });
        }
        Ok(())
    }
}
