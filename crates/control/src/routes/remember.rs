//! Flows in snapshots: how they are stored and restored.

use crate::budget::payer_of;
use crate::context::Context;
use crate::flow_rules::FlowRules;
use crate::flows::{Extras, Flow, SourceRule};
use crate::plan::{FlowKey, Version};
use pathloom_model::rules::{MeterId, RuleKey};
use pathloom_model::{FiveTuple, Nanos, NodeId};
use pathloom_scheme::{FlowId, FlowView};
use serde::{Deserialize, Serialize};

/// Rules of an abandoned plan of a five-tuple.
pub(crate) type Drain = (FiveTuple, u8, Vec<(NodeId, RuleKey)>);

/// A flow in a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FlowRecord {
    id: FlowId,
    five_tuple: FiveTuple,
    /// View of the flow; `None` if the flow has ended.
    view: Option<FlowView>,
    sources: Vec<SourceRule>,
    versions: Vec<Version>,
    plans: u8,
    past_bytes: u64,
    held_until: Nanos,
    /// Whether it was released after its last hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    released: bool,
    /// Whether the scheme waits for a path whose set-up ended.
    interrupted: bool,
    /// Its rate limit. The meter that enforces it is in `meter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pace_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meter: Option<MeterId>,
}

impl FlowRecord {
    pub(crate) fn five_tuple(&self) -> FiveTuple {
        self.five_tuple
    }

    /// Returns the record of a flow for a snapshot.
    pub(crate) fn of(cx: &Context, id: FlowId, flow: &Flow) -> FlowRecord {
        let mut record = FlowRecord {
            id,
            five_tuple: flow.key.five_tuple,
            view: cx.view.flows.get(&id).filter(|_| !flow.closed).cloned(),
            sources: flow.sources.to_vec(),
            versions: flow.versions.to_vec(),
            plans: flow.plans,
            past_bytes: flow.extras().past_bytes,
            held_until: flow.extras().held_until,
            released: flow.extras().released,
            interrupted: flow.interrupted,
            pace_bps: flow.extras().pace_bps,
            meter: flow.key.meter,
        };
        if flow.current_move.is_some() {
            // At the next start, the move has probably continued. The rules that are found then show its progress.
            record.interrupted = true;
            record.sources.clear();
            record.versions.clear();
            if let Some(view) = &mut record.view {
                (view.route, view.pending) = (None, None);
            }
        }
        record
    }

    /// Restores a flow of a snapshot, unless one of its addresses has no place on the fabric.
    pub(crate) fn restore(self, cx: &mut Context, rules: &mut FlowRules) {
        let record = self;
        let FlowRecord { id, five_tuple, .. } = record;
        let attachments = (cx.attachment(five_tuple.src()), cx.attachment(five_tuple.dst()));
        let (Some(src), Some(dst)) = attachments else { return };
        let key = FlowKey { id, five_tuple, src, dst, meter: record.meter };
        record.meter.into_iter().for_each(|meter| rules.limits.mark(src.tor, meter));
        for _ in record.sources.iter().filter(|source| !source.leaving) {
            cx.count_rules(src.tor, 1);
        }
        let planner = cx.planner();
        let hops: Vec<NodeId> = record
            .versions
            .iter()
            .flat_map(|version| planner.hops(&key, version).map(|(at, _)| at).collect::<Vec<_>>())
            .collect();
        for switch in hops {
            cx.count_rules(switch, 1);
        }
        record.versions.iter().for_each(|version| rules.labels.claim_version(cx, version, payer_of(&key)));
        let FlowRecord { past_bytes, held_until, released, pace_bps, .. } = record;
        let extras = Extras { past_bytes, held_until, released, silent_s: 0, pace_bps, before: None };
        rules.flows.insert(Flow {
            closed: record.view.is_none(),
            sources: record.sources.into(),
            versions: record.versions.into(),
            plans: record.plans,
            measured_bytes: None.into(),
            interrupted: record.interrupted,
            extras: (extras != Extras::default()).then(|| Box::new(extras)),
            unverified: true,
            ..Flow::new(key)
        });
        if let Some(view) = record.view {
            cx.view.flows.insert(id, view);
        }
    }
}
