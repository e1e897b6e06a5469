//! How switches choose among equal next hops for flows that have no path of their own, and at which tier they do so.

use crate::entry::KeyInfo;
use crate::sprayed;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Tier;
use pathloom_scheme::{Needs, Selection};
use pathloom_switching::balancing::{CongaSettings, HulaSettings};
use pathloom_transport::TransportSpec;

pub(crate) const AT_KEY: KeyInfo = (
    "at",
    "all",
    "all (switches of all tiers choose so), tor, aggregation or core (only those do; the others hash five-tuples)",
);

/// The ports that drill draws, and remembers, by default.
pub(crate) const DRILL: [u8; 2] = [2, 1];

/// Values of `defaults=` that let switches choose, with what they then do.
fn balancers() -> [(&'static str, Selection); 4] {
    let [drawn, remembered] = DRILL;
    let (conga, hula) = (CongaSettings::default(), HulaSettings::default());
    [
        ("drill", Selection::ShortestQueue { drawn, remembered }),
        ("conga", Selection::Conga { gap: conga.gap, tau: conga.tau }),
        ("hula", Selection::Hula { gap: hula.gap, probe: hula.probe }),
        ("flowcut", Selection::Flowcut),
    ]
}

/// How switches choose among the equal next hops of default routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NextHopChoice {
    selection: Selection,
    /// The only tier that chooses so; `None` if all do.
    tier: Option<Tier>,
}

impl NextHopChoice {
    /// All switches choose so.
    pub(crate) fn everywhere(selection: Selection) -> NextHopChoice {
        NextHopChoice { selection, tier: None }
    }

    /// Reads `at=` for switches that choose so.
    pub(crate) fn at(spec: &Spec, selection: Selection) -> Result<NextHopChoice, SpecError> {
        let tiers = [
            ("all", None),
            ("tor", Some(Tier::Tor)),
            ("aggregation", Some(Tier::Aggregation)),
            ("core", Some(Tier::Core)),
        ];
        let tier = spec.choice("at", &tiers)?.flatten();
        match (tier, selection) {
            (Some(_), Selection::Hash) => {
                Err(spec.error("at= says which switches choose by queues; add defaults=drill or omit it"))
            }
            (Some(_), Selection::Conga { .. } | Selection::Hula { .. }) => {
                Err(spec.error("conga and hula need all switches for their feedback or probes; omit at="))
            }
            _ => Ok(NextHopChoice { selection, tier }),
        }
    }

    /// Reads `defaults=`: one of these names, which mean that switches hash five-tuples, or the name of a load balancer, which
    /// chooses among the next hops of the first of them. Reads `at=` too.
    pub(crate) fn read<T: Copy>(spec: &Spec, hashed: &[(&'static str, T)]) -> Result<(T, NextHopChoice), SpecError> {
        let balanced = balancers().map(|(name, selection)| (name, (hashed[0].1, selection)));
        let hashing = hashed.iter().map(|&(name, routes)| (name, (routes, Selection::Hash)));
        let known: Vec<(&str, (T, Selection))> = hashing.chain(balanced).collect();
        let (routes, selection) = spec.choice("defaults", &known)?.unwrap_or((hashed[0].1, Selection::Hash));
        Ok((routes, NextHopChoice::at(spec, selection)?))
    }

    /// These needs with this choice.
    pub(crate) fn in_needs(self, needs: Needs) -> Needs {
        Needs { selection: self.selection, selection_tier: self.tier, ..needs }
    }

    /// The transport of hosts whose packets switches forward so. Only drill lets packets overtake others all the time.
    pub(crate) fn transport(self) -> TransportSpec {
        match self.selection {
            Selection::ShortestQueue { .. } => sprayed::tolerant_tcp(),
            _ => TransportSpec::default(),
        }
    }
}
