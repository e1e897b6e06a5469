//! The schemes of the registry, with the facts that tests of all schemes need.
//!
//! Each scheme has these facts in `tests/conformance/NAME/common.json`, beside its recorded cases:
//!
//! - `settings`: the specifications with which the tests of the contract run it;
//! - `fast`: the specifications with which it acts several times a second, for whole runs of a few seconds;
//! - `balances`: whether it puts two flows on two paths if there are two;
//! - `settles`: whether rounds without news move nothing in the end; false for schemes that draw anew in each round.

use pathloom_scheme::Detection;
use pathloom_schemes::Registry;
use serde::Deserialize;
use std::path::Path;
use std::sync::OnceLock;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    settings: Vec<String>,
    fast: Vec<String>,
    balances: bool,
    settles: bool,
}

/// A scheme with a central part, in one of its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tested {
    /// The specification.
    pub spec: String,
    /// The name in the registry.
    pub name: &'static str,
    /// Whether the controller knows flows. It has rules that count them.
    pub finds: bool,
    /// Whether it gives flows paths of their own.
    pub places: bool,
    /// Whether it puts two flows on two paths if there are two.
    pub balances: bool,
    /// Whether rounds without news move nothing in the end.
    pub settles: bool,
    fast: bool,
}

/// Every scheme with a central part, in all settings for tests of the contract.
pub fn central() -> impl Iterator<Item = &'static Tested> {
    all().iter().filter(|tested| !tested.fast)
}

/// Every scheme with a central part, in all settings for short runs of the simulator.
pub fn fast() -> impl Iterator<Item = &'static Tested> {
    all().iter().filter(|tested| tested.fast)
}

fn all() -> &'static [Tested] {
    static ALL: OnceLock<Vec<Tested>> = OnceLock::new();
    ALL.get_or_init(|| Registry::WithTestSchemes.names().into_iter().flat_map(of).collect())
}

fn of(name: &'static str) -> Vec<Tested> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance").join(name).join("common.json");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let common: Common = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let settings = common.settings.iter().map(|spec| (spec, false));
    let all = settings.chain(common.fast.iter().map(|spec| (spec, true)));
    let tested = all.filter_map(|(spec, fast)| {
        let parsed = Registry::WithTestSchemes.parse(spec);
        let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(parsed.name, name, "{}: `{spec}` is another scheme", file.display());
        let needs = parsed.central(1)?.needs();
        // The flows of short runs are not subflows.
        // Schemes that spread each flow over several paths give none a path of its own.
        let finds = needs.detection != Detection::Nothing || needs.subflows && !fast;
        let places = finds && !needs.takes_several_paths();
        let (balances, settles) = (common.balances, common.settles);
        Some(Tested { spec: spec.clone(), name, finds, places, balances, settles, fast })
    });
    let tested: Vec<Tested> = tested.collect();
    for fast in [false, true] {
        assert!(tested.iter().any(|one| one.fast == fast) || tested.is_empty(), "{}: a list is empty", file.display());
    }
    tested
}
