//! What a controller remembers, in a form that survives it.

use crate::assignments::SavedAssignments;
use crate::config::Config;
use crate::controller::Controller;
use crate::counts::Counts;
use crate::drain::{Drains, OutOfService};
use crate::flows::Left;
use crate::io::Target;
use crate::links::{Cables, LONGEST_WAIT};
use crate::places::Places;
use crate::routes::{Drain, FlowRecord};
use crate::timers::Timer;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkState, Nanos};
use pathloom_scheme::{DefaultRoutes, Scheme, State, StateError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Number of the form below.
const FORM: u32 = 2;

/// What a controller remembers. A move under way is in it as if it had been given up at that moment.
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
    /// Single addresses that are elsewhere than the fabric lays them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<Attachment>,
    flows: Vec<FlowRecord>,
    draining: Vec<Drain>,
    #[serde(default)]
    assignments: SavedAssignments,
    counts: Counts,
}

/// Why a snapshot cannot be taken back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// Another version of the program made it.
    #[error("the snapshot has form {found}, this program reads form {FORM}; start without the snapshot: what stands in the switches is adopted all the same")]
    Form {
        /// Its form.
        found: u32,
    },
    /// It is of another fabric.
    #[error("the snapshot is of fabric `{found}` with {found_nodes} nodes, not of `{expected}` with {expected_nodes}")]
    OtherFabric {
        /// Specification of its fabric.
        found: String,
        /// Nodes of its fabric.
        found_nodes: usize,
        /// Specification of the fabric it is to be used on.
        expected: String,
        /// Nodes of that fabric.
        expected_nodes: usize,
    },
    /// Another scheme was in charge.
    #[error("the snapshot is of scheme {found}, not of {expected}; restore with {found} and change the scheme then")]
    OtherScheme {
        /// The scheme of the snapshot.
        found: String,
        /// The scheme that was given.
        expected: &'static str,
    },
    /// A flow of it has an address that the fabric has not.
    #[error("the snapshot has a flow {five_tuple:?}, but the fabric has no such address")]
    UnknownAddress {
        /// The flow.
        five_tuple: FiveTuple,
    },
    /// The scheme cannot read its part.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Controller {
    /// What it remembers.
    pub fn snapshot(&self) -> Snapshot {
        let (cx, routes) = (&self.context, &self.routes);
        let draining: Vec<_> =
            routes.draining.iter().map(|(&(tuple, plan), left)| (tuple, plan, left.rules.clone())).collect();
        let flows = routes.flows.iter().map(|(id, flow)| routes.flow_record(cx, id, flow)).collect();
        Snapshot {
            form: FORM,
            taken: cx.now,
            epoch: cx.config.epoch,
            serial: routes.flows.serial(),
            fabric: cx.fabric.spec().to_owned(),
            nodes: cx.fabric.nodes().len(),
            scheme: self.in_charge.scheme.name().to_owned(),
            state: self.in_charge.scheme.save(),
            defaults: cx.view.defaults,
            links: cx.view.links.clone(),
            cables: self.cables.clone(),
            drains: self.drains.out.clone(),
            places: cx.places.singles(),
            flows,
            draining,
            assignments: routes.assignments.save(),
            counts: cx.counts,
        }
    }

    /// A controller that remembers what another one did. Sessions have still to come up; what it then finds in the
    /// switches it compares with what it remembers. The clock must go on where it was when the snapshot was taken, and
    /// the epoch should be a new one.
    pub fn restore(
        config: Config,
        fabric: Arc<Fabric>,
        mut scheme: Box<dyn Scheme>,
        snapshot: Snapshot,
        now: Nanos,
    ) -> Result<Controller, RestoreError> {
        snapshot.check(&fabric, scheme.as_ref())?;
        scheme.restore(snapshot.state)?;
        let mut controller = Controller::new(config, fabric, scheme);
        controller.context.now = now.max(snapshot.taken);
        controller.context.counts = snapshot.counts;
        controller.context.view.defaults = snapshot.defaults;
        controller.context.view.links = snapshot.links;
        controller.cables = snapshot.cables;
        controller.drains = Drains::restored(snapshot.drains);
        controller.context.places = Places::restored(&controller.context.fabric, snapshot.places);
        // What was to be moved may not have been.
        controller.context.timers.set(controller.context.now, Timer::Drain);
        controller.hold_back_again();
        if controller.context.config.epoch == snapshot.epoch {
            controller.routes.flows.skip_to(snapshot.serial);
        }
        for record in snapshot.flows {
            let Controller { context, routes, .. } = &mut controller;
            routes.remember(context, record).map_err(|five_tuple| RestoreError::UnknownAddress { five_tuple })?;
        }
        for (five_tuple, plan, rules) in snapshot.draining {
            for (switch, key) in &rules {
                if !controller.routes.labels.claim_unknown(&mut controller.context, *switch, key) {
                    controller.context.count_rules(*switch, 1);
                }
            }
            let drain = controller.context.unknown_drain(&five_tuple);
            let Controller { context: cx, routes, .. } = &mut controller;
            let mut left = Left { rules, ..Left::default() };
            left.wait(&mut cx.timers, (five_tuple, plan), cx.now.saturating_add(drain));
            routes.draining.insert((five_tuple, plan), left);
        }
        controller.routes.restore_assignments(&mut controller.context, snapshot.assignments);
        Ok(controller)
    }

    /// Cables that had flapped are held back once more: the snapshot does not have until when they were to be.
    fn hold_back_again(&mut self) {
        let at = self.context.now.saturating_add(LONGEST_WAIT);
        for (link, changes) in self.cables.idle(&self.context.view.links) {
            self.context.timers.set(at, Timer::LinkQuiet { link, changes });
        }
    }
}

impl Snapshot {
    /// Name of the scheme that was in charge.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// When it was taken.
    pub fn taken(&self) -> Nanos {
        self.taken
    }

    /// Epoch of the controller that made it.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Whether it is of this fabric.
    pub fn is_of(&self, fabric: &Fabric) -> bool {
        let cables = fabric.links().len() / 2;
        self.nodes == fabric.nodes().len() && self.cables.len() == cables && self.fabric == fabric.spec()
    }

    /// What was out of service: where the rest is of no use any more, this is still to be told with
    /// [`crate::Input::Drain`], if it is of the same fabric.
    pub fn out_of_service(&self) -> Vec<Target> {
        self.drains.targets()
    }

    fn check(&self, fabric: &Fabric, scheme: &dyn Scheme) -> Result<(), RestoreError> {
        if self.form != FORM {
            return Err(RestoreError::Form { found: self.form });
        }
        if !self.is_of(fabric) {
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
