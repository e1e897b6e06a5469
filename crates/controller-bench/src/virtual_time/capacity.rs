//! Switches that tell how many rules their tables hold.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_testnet::{Device, Faults, Timing};

/// The switch has room for fewer rules than the configuration allows. The controller sends no rule that would be refused,
/// and one host leaves room for its neighbour.
#[test]
fn a_small_table_is_shared_and_never_full() {
    let tor_rules = |lab: &Lab| lab.devices[&lab.node("e0_0")].tables.rules().len();
    let bare = tor_rules(&Lab::k4(QUIET, 1));
    let mut lab = Lab::bare(K4, QUIET, "", Timing::SLOW, 1);
    let tor = lab.node("e0_0");
    let faults = Faults { most_rules: Some(bare + 50), ..Faults::default() };
    *lab.devices.get_mut(&tor).unwrap() = Device::new(u64::from(tor.0) + 1, 4, faults);
    lab.connect_all();
    lab.run_for(s(5));
    assert_eq!(lab.logged(&["its table of paths holds fewer rules", "e0_0"]).len(), 1);
    let flows: Vec<_> = (0..60).map(|number| lab.packet(0, 4 + usize::from(number) % 12, 3000 + number)).collect();
    lab.flows.extend(flows);
    lab.traffic(s(3));
    assert_eq!(lab.logged(&["a switch refused a message"]), [""; 0]);
    assert!(tor_rules(&lab) > bare + 5 && tor_rules(&lab) < bare + 25, "{} of {bare}", tor_rules(&lab));
    let neighbour = lab.packet(1, 12, 5000);
    lab.flows = vec![neighbour];
    lab.traffic(ms(900));
    assert!(lab.view(&neighbour).is_some_and(|flow| flow.route.is_some()), "it has a path of its own");
    lab.nothing_is_lost();
}
