//! What is known of the reviews of one switch ([`crate::review`]).

use pathloom_model::rules::{MeterId, Rule, RuleKey};
use pathloom_model::Nanos;
use pathloom_scheme::FlowId;
use rustc_hash::{FxHashMap, FxHashSet};

/// A rule of a flow at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlowRule {
    pub flow: FlowId,
    pub plan: u8,
    pub source: bool,
}

/// A review in progress.
#[derive(Debug, Default)]
pub(crate) struct Review {
    pub number: u32,
    /// Rules that were sent (true) or deleted (false) since it began.
    pub touched: FxHashMap<RuleKey, bool>,
    /// The same for rules and groups of no single flow, which are compared together.
    pub base_changed: bool,
    /// Whether the switch must be reviewed again soon, because of a notice or a request since this one began.
    pub again: bool,
    /// Whether a part of the answer arrived since the last turn of the switch.
    pub heard: bool,
    /// Found rules of no single flow.
    pub base: Vec<Rule>,
    pub labels: Vec<Rule>,
    /// Meters that found rules use.
    pub meters: FxHashSet<MeterId>,
    /// Rules of flows that were found unchanged.
    pub found: FxHashSet<FlowRule>,
    /// Number of found rules that [`crate::switches::Switch::flow_rules`] counts.
    pub counted: u32,
    /// Rules of flows that were not found and may have expired.
    pub suspects: FxHashSet<(FlowId, u8)>,
    pub restored: u64,
    pub surplus: u64,
    /// First flow of the next slice, when all parts have arrived.
    pub scan: Option<FlowId>,
}

/// Review state of one switch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub review: Option<Box<Review>>,
    /// When the last review began.
    pub begun: Nanos,
    /// When a timer will start a review.
    pub due: Option<Nanos>,
    /// Rules of flows that the last review did not find, or that the switch reported as deleted.
    pub suspects: FxHashSet<(FlowId, u8)>,
    /// Whether the switch reported deleted rules since the last review.
    pub reported: bool,
    /// Number of reviews in a row that found missing rules of which the switch reported nothing.
    pub unreported: u32,
    /// Number of turns that the switch skips.
    pub skip: u32,
}

impl Watch {
    /// A rule will be added or deleted.
    #[inline]
    pub(crate) fn touch(&mut self, key: impl FnOnce() -> RuleKey, added: bool) {
        if let Some(review) = &mut self.review {
            review.touched.insert(key(), added);
        }
    }

    /// Rules or groups of no single flow were added or deleted.
    pub(crate) fn base_changed(&mut self) {
        if let Some(review) = &mut self.review {
            review.base_changed = true;
        }
    }

    /// The session has ended.
    pub(crate) fn close(&mut self) {
        *self = Watch::default();
    }
}

impl Review {
    /// Whether the answer may be outdated for a rule.
    pub(crate) fn is_touched(&self, key: &RuleKey) -> bool {
        self.touched.contains_key(key)
    }

    /// Number of flow rules that were added since it began.
    pub(crate) fn added(&self) -> u32 {
        let of_flow = |key: &RuleKey| key.matches.src_port.is_some() || key.matches.tag.is_some();
        self.touched.iter().filter(|&(key, &added)| added && of_flow(key)).count() as u32
    }
}
