//! wcmp: as ecmp, but each next hop has a weight: by the capacity behind it, or as given.

use crate::entry::{Entry, EntryInfo, Parts};
use pathloom_model::fault::cables_named;
use pathloom_model::search::RouteTable;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, LinkId, LinkState, Nanos, NodeId};
use pathloom_scheme::{Action, DefaultRoutes, Event, HopWeights, Needs, Scheme, View};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "wcmp";
/// The greatest weight that can be given. Groups of switches hold weights up to 60.
const MOST_WEIGHT: u64 = 60;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "as ecmp, but each next hop has a weight by the capacity behind it",
        paper: "Zhou et al. 2014, WCMP: Weighted Cost Multipathing for Improved Fairness in Data Centers (EuroSys)",
        keys: &[(
            "weights",
            "capacity",
            "capacity, or weights of next hops from 0 to 60: e0_0-a0_0:3/e0_0-a0_1:1; the other next hops of such a \
             switch have the weight 1",
        )],
    },
    read: |spec| {
        let given = Arc::new(GivenWeights::read(spec)?);
        let checked = given.clone();
        let central = Parts::central(move |_| Box::new(Wcmp { given: given.clone() }));
        Ok(Parts { check: Some(Arc::new(move |fabric| checked.resolve(fabric).map(drop))), ..central })
    },
};

/// Weights of next hops by name: a switch and its neighbour as `e0_0-a0_0`, and the weight.
#[derive(Default)]
struct GivenWeights(Vec<(String, u16)>);

impl GivenWeights {
    fn read(spec: &Spec) -> Result<GivenWeights, SpecError> {
        let Some(text) = spec.text_of("weights").filter(|text| *text != "capacity") else {
            return Ok(GivenWeights::default());
        };
        let entry = |entry: &str| {
            let read = entry.rsplit_once(':').and_then(|(hop, weight)| {
                let weight = weight.trim().parse::<u64>().ok().filter(|weight| *weight <= MOST_WEIGHT)?;
                Some((hop.trim().to_owned(), weight as u16))
            });
            read.ok_or_else(|| {
                spec.error(format!(
                    "weights: `{entry}`: expected SWITCH-NEIGHBOUR:WEIGHT with a weight from 0 to {MOST_WEIGHT}, several with \
                     / between them, such as e0_0-a0_0:3/e0_0-a0_1:1"
                ))
            })
        };
        text.split('/').map(|part| entry(part.trim())).collect::<Result<_, _>>().map(GivenWeights)
    }

    /// The weights that are given, by switch and link. Where a link is named twice, the later weight applies.
    ///
    /// # Errors
    /// A name is not that of a switch and its neighbour.
    fn resolve(&self, fabric: &Fabric) -> Result<BTreeMap<NodeId, BTreeMap<LinkId, u16>>, String> {
        let mut found: BTreeMap<NodeId, BTreeMap<LinkId, u16>> = BTreeMap::new();
        for (name, weight) in &self.0 {
            let problem = |problem: String| format!("scheme {NAME}: weights: {problem}");
            let cables = cables_named(fabric, name).map_err(problem)?;
            let leaves = |link: &LinkId| {
                let from = &fabric.node(fabric.link(*link).from).name;
                name.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('-'))
            };
            let links: Vec<LinkId> = cables.into_iter().flat_map(|one| [one, one.reverse()]).filter(leaves).collect();
            let from = links.first().map(|&link| fabric.link(link).from).filter(|&from| !fabric.is_host(from));
            let Some(from) = from else {
                return Err(problem(format!("`{name}`: expected a switch and its next hop, such as e0_0-a0_0")));
            };
            found.entry(from).or_default().extend(links.into_iter().map(|link| (link, *weight)));
        }
        Ok(found)
    }

    /// The weights for each switch that is named and each other ToR: those that are given, and 1 for the other next hops on shortest
    /// paths.
    fn actions(&self, fabric: &Fabric, links: &LinkState) -> Vec<HopWeights> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let (table, tors) = (RouteTable::new(fabric, links), fabric.tors());
        let to_tors = |(switch, given): (NodeId, BTreeMap<LinkId, u16>)| {
            let weights = |tor: usize| {
                let hops = table.next_hops(switch, tor).iter();
                hops.map(|link| (*link, given.get(link).copied().unwrap_or(1))).collect()
            };
            let others = tors.iter().enumerate().filter(|&(_, &tor)| tor != switch);
            others.map(|(number, &tor)| HopWeights { switch, tor, weights: weights(number) }).collect::<Vec<_>>()
        };
        self.resolve(fabric).unwrap_or_default().into_iter().flat_map(to_tors).collect()
    }
}

struct Wcmp {
    given: Arc<GivenWeights>,
}

impl Scheme for Wcmp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match *event {
            Event::Started => {
                actions.push(Action::SetDefaults(DefaultRoutes::Weighted));
                let weights = self.given.actions(&view.fabric, &view.links);
                // The scheme of before may have set others.
                if !weights.is_empty() || !view.weights.is_empty() {
                    actions.push(Action::SetWeights(weights));
                }
            }
            // Other links may be on shortest paths now.
            Event::LinkChanged { .. } if !self.given.0.is_empty() => {
                actions.push(Action::SetWeights(self.given.actions(&view.fabric, &view.links)));
            }
            // The previous scheme left the flow on a path of its own.
            Event::FlowAdopted { flow } if view.flows.get(&flow).is_some_and(|f| f.intended_route().is_some()) => {
                actions.push(Action::Unroute { flow });
            }
            _ => {}
        }
    }
}
