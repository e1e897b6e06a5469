//! The registry: every scheme can be asked for, and what is wrong is named.

use pathloom_schemes::{entries, names, parse, HostProgram, SwitchProgram};
use proptest::prelude::*;

#[test]
fn every_scheme_reads_its_own_defaults() {
    assert_eq!(names(), ["spt", "ecmp", "hedera", "hedera-sa", "ofpt", "lessor", "move"]);
    for entry in entries() {
        let plain = parse(entry.name).unwrap();
        assert_eq!((plain.name, plain.label.as_str()), (entry.name, entry.name));
        assert_eq!((plain.host_program(), plain.switch_program()), (HostProgram::NewReno, SwitchProgram::Rules));
        let scheme = plain.central(1).unwrap();
        assert_eq!(scheme.name(), entry.name);
        for (key, default, help) in entry.keys {
            assert!(!help.is_empty());
            // Settings of Simulated Annealing are refused where it is not asked for.
            let annealed =
                if entry.name == "hedera" && ["iterations", "cooling"].contains(key) { "placement=sa," } else { "" };
            let text = format!("{}:{annealed}{key}={default}", entry.name);
            let spelled = parse(&text).unwrap();
            assert_eq!(spelled.label, text);
            assert_eq!(spelled.central(1).unwrap().needs(), scheme.needs(), "{text}");
        }
    }
}

#[test]
fn settings_reach_the_scheme() {
    let needs = parse("hedera:elephant=0.25,period=1500ms").unwrap().central(0).unwrap().needs();
    assert_eq!(needs.detection, pathloom_scheme::Detection::Measured { nic_share: 0.25 });
    assert_eq!(needs.poll_period, Some(pathloom_model::Nanos::from_millis(1500)));
    assert!(!needs.subflows);
}

#[test]
fn what_is_wrong_is_named() {
    for (text, expected) in [
        ("", "is empty"),
        ("hadera", "did you mean `hedera`? (known: spt, ecmp, hedera, hedera-sa, ofpt, lessor, move)"),
        ("hedera_sa", "did you mean `hedera-sa`?"),
        ("ofpt:enforce=none,headroom=0.1", "leave it or enforce=none out"),
        ("ofpt:enforce=none,shares=equal", "leave it or enforce=none out"),
        ("ofpt:shares=even", "shares"),
        ("ofpt:defaults=per_host", "did you mean `per-host`?"),
        ("lessor:defaults=spt", "defaults"),
        ("ofpt:migration=seamless", "migration"),
        ("ofpt:period=0s", "period: expected 1ms to 1h"),
        ("ofpt:rules=all", "rules"),
        ("move:times=-1", "times: `-1` is not a whole number"),
        ("lesser", "did you mean `lessor`?"),
        ("lessor:lower=0.8", "lower is greater than upper"),
        ("lessor:period=100ms", "expected min_period <= period <= max_period"),
        ("lessor:min_period=0s", "min_period: expected 1ms to 1h"),
        ("lessor:alpha=0", "alpha: `0` is not a number from 0.01 to 0.5"),
        ("lessor:sizes=known", "did you mean `unknown`?"),
        ("lessor:gain=2", "gain: `2` is not a number from 0 to 1"),
        ("ecmp:period=5s", "unknown key `period`"),
        ("hedera:perod=5s", "did you mean `period`?"),
        ("hedera:period=5", "period: `5` is not a time"),
        ("hedera:period=0s", "expected 1ms to 1h"),
        ("hedera:period=100h", "expected 1ms to 1h"),
        ("hedera:elephant=nan", "elephant: `nan` is not a number from 0 to 1"),
        ("hedera:elephant=10", "elephant: `10` is not a number from 0 to 1"),
        ("hedera:placement=fff", "did you mean `gff`?"),
        ("hedera:iterations=5", "add placement=sa"),
        ("hedera-sa:placement=gff", "unknown key `placement`"),
        ("hedera-sa:iterations=0", "iterations: `0` is not a whole number"),
        ("hedera-sa:cooling=-1", "cooling: `-1` is not a number"),
        ("hedera:period", "`period` is not key=value"),
        ("hedera:period=5s,period=6s", "period is given twice"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.starts_with("scheme `") && !error.contains('\n'), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "(spt|ecmp|hedera|hedera-sa|ofpt|lessor|move|[a-z]{1,8})(:(elephant|period|lower|upper|sizes|enforce|schedule|headroom|placement|iterations|cooling|[a-z]{1,4})=[0-9a-z.+-]{0,8}){0,1}(,[a-z]{1,9}=[ -~]{0,8}){0,3}") {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
