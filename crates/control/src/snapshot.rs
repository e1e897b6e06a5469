//! What a controller remembers, in a form that survives it.

use crate::assignments::SavedAssignments;
use crate::config::Config;
use crate::controller::Controller;
use crate::counts::Counts;
use crate::drain::Drains;
use crate::flows::{Flow, More, SourceRule};
use crate::io::Target;
use crate::links::{Cables, LONGEST_WAIT};
use crate::places::Places;
use crate::plan::{FlowKey, Version};
use crate::sfmm::Stage;
use crate::timers::Timer;
use pathloom_model::rules::{MeterId, RuleKey};
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkState, Nanos, NodeId};
use pathloom_scheme::{DefaultRoutes, FlowId, FlowView, Scheme, State, StateError};
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
    drains: Drains,
    /// Single addresses that are elsewhere than the fabric lays them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<Attachment>,
    flows: Vec<FlowRecord>,
    draining: Vec<Drain>,
    #[serde(default)]
    assignments: SavedAssignments,
    counts: Counts,
}

/// Rules of an abandoned plan of a five-tuple.
type Drain = (FiveTuple, u8, Vec<(NodeId, RuleKey)>);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct FlowRecord {
    id: FlowId,
    five_tuple: FiveTuple,
    /// `None` once the scheme was told that it ended.
    view: Option<FlowView>,
    sources: Vec<SourceRule>,
    versions: Vec<Version>,
    plans: u8,
    past_bytes: u64,
    held_until: Nanos,
    /// Whether the scheme waits for a path that was given up.
    interrupted: bool,
    /// What it may send, and the meter that sees to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pace_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meter: Option<MeterId>,
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
        let mut draining: Vec<_> =
            self.draining.iter().map(|(&(tuple, plan), rules)| (tuple, plan, rules.clone())).collect();
        let flows = self.flows.iter().map(|(id, flow)| self.flow_record(id, flow, &mut draining)).collect();
        Snapshot {
            form: FORM,
            taken: self.context.now,
            epoch: self.context.config.epoch,
            serial: self.flows.serial(),
            fabric: self.context.fabric.spec().to_owned(),
            nodes: self.context.fabric.nodes().len(),
            scheme: self.scheme.name().to_owned(),
            state: self.scheme.save(),
            defaults: self.context.view.defaults,
            links: self.context.view.links.clone(),
            cables: self.cables.clone(),
            drains: self.drains.clone(),
            places: self.context.places.singles(),
            flows,
            draining,
            assignments: self.assignments.save(),
            counts: self.context.counts,
        }
    }

    fn flow_record(&self, id: FlowId, flow: &Flow, draining: &mut Vec<Drain>) -> FlowRecord {
        let mut record = FlowRecord {
            id,
            five_tuple: flow.key.five_tuple,
            view: self.context.view.flows.get(&id).filter(|_| !flow.closed).cloned(),
            sources: flow.sources.to_vec(),
            versions: flow.versions.to_vec(),
            plans: flow.plans,
            past_bytes: flow.more().past_bytes,
            held_until: flow.more().held_until,
            interrupted: flow.interrupted,
            pace_bps: flow.more().pace_bps,
            meter: flow.key.meter,
        };
        let Some(moving) = &flow.moving else { return record };
        record.interrupted = true;
        if let Some(view) = &mut record.view {
            view.pending = None;
        }
        if moving.stage().is_some_and(|stage| stage != Stage::Before) {
            crate::sfmm::record_broken_off(moving, &mut record.sources, &mut record.versions, record.view.as_mut());
            return record;
        }
        let version = flow.version(moving.plan);
        if moving.phase == 0 {
            record.versions.retain(|version| version.plan != moving.plan);
            let hops = version.into_iter().flat_map(|version| self.rules_of(&flow.key, version));
            draining.push((flow.key.five_tuple, moving.plan, hops.collect()));
        } else if moving.phase == 1 {
            record.sources.iter_mut().filter(|rule| rule.plan == moving.plan).for_each(|rule| rule.leaving = true);
        } else if let Some(view) = &mut record.view {
            view.route = version.and_then(|version| version.path.clone());
        }
        record
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
        controller.drains = snapshot.drains;
        controller.context.places = Places::restored(&controller.context.fabric, snapshot.places);
        // What was to be moved may not have been.
        controller.context.timers.set(controller.context.now, Timer::Drain);
        controller.hold_back_again();
        if controller.context.config.epoch == snapshot.epoch {
            controller.flows.skip_to(snapshot.serial);
        }
        for record in snapshot.flows {
            controller.remember(record)?;
        }
        for (five_tuple, plan, rules) in snapshot.draining {
            for (switch, key) in &rules {
                if !controller.claim_unknown(*switch, key) {
                    controller.context.count_rules(*switch, 1);
                }
            }
            let drain = controller.context.unknown_drain(&five_tuple);
            controller.draining.insert((five_tuple, plan), rules);
            controller
                .context
                .timers
                .set(controller.context.now.saturating_add(drain), Timer::Drained { five_tuple, plan });
        }
        controller.restore_assignments(snapshot.assignments);
        Ok(controller)
    }

    /// Cables that had flapped are held back once more: the snapshot does not have until when they were to be.
    fn hold_back_again(&mut self) {
        let at = self.context.now.saturating_add(LONGEST_WAIT);
        for (link, changes) in self.cables.idle(&self.context.view.links) {
            self.context.timers.set(at, Timer::LinkQuiet { link, changes });
        }
    }

    fn remember(&mut self, record: FlowRecord) -> Result<(), RestoreError> {
        let FlowRecord { id, five_tuple, .. } = record;
        let attachments = (self.context.attachment(five_tuple.src), self.context.attachment(five_tuple.dst));
        let (Some(src), Some(dst)) = attachments else { return Err(RestoreError::UnknownAddress { five_tuple }) };
        let key = FlowKey { id, five_tuple, src, dst, meter: record.meter };
        record.meter.into_iter().for_each(|meter| self.context.switches[src.tor.index()].meters.mark(meter));
        for _ in record.sources.iter().filter(|source| !source.leaving) {
            self.context.count_rules(src.tor, 1);
        }
        let planner = self.context.planner();
        let hops: Vec<NodeId> = record
            .versions
            .iter()
            .flat_map(|version| planner.hops(&key, version).map(|(at, _)| at).collect::<Vec<_>>())
            .collect();
        for switch in hops {
            self.context.count_rules(switch, 1);
        }
        record.versions.iter().for_each(|version| self.claim_version(version));
        let FlowRecord { past_bytes, held_until, pace_bps, .. } = record;
        let more = More { past_bytes, held_until, silent_s: 0, pace_bps, before: None };
        self.flows.insert(Flow {
            closed: record.view.is_none(),
            sources: record.sources.into(),
            versions: record.versions.into(),
            plans: record.plans,
            measured_bytes: None.into(),
            interrupted: record.interrupted,
            more: (more != More::default()).then(|| Box::new(more)),
            unverified: true,
            ..Flow::new(key)
        });
        if let Some(view) = record.view {
            self.context.view.flows.insert(id, view);
        }
        Ok(())
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
