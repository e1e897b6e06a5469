//! The registry: every scheme can be created, and errors name the problem.

use pathloom_model::Tier;
use pathloom_scheme::Needs;
use pathloom_schemes::{names, parse, Registry, SchemeSpec};
use pathloom_switching::deployment::Mark;
use proptest::prelude::*;
use std::ffi::OsStr;

#[test]
fn every_scheme_reads_its_own_defaults() {
    let registry = Registry::WithTestSchemes;
    let central = |spec: &SchemeSpec| spec.central(1).map(|scheme| (scheme.name(), scheme.needs()));
    for entry in registry.entries() {
        let plain = registry.parse(entry.name).unwrap();
        assert_eq!((plain.name, plain.label.as_str()), (entry.name, entry.name));
        assert!(!entry.summary.is_empty() && !entry.paper.is_empty());
        assert!(central(&plain).is_none_or(|(name, _)| name == entry.name));
        for (key, default, help) in entry.keys {
            assert!(!help.is_empty());
            let text = format!("{}:{key}={default}", entry.name);
            // A key that requires another key is refused without it, and the error names the missing key.
            let text = match registry.parse(&text).map_err(|error| error.to_string()) {
                Ok(_) => text,
                Err(refused) => {
                    let missing = refused.split_once("; add ").and_then(|(_, rest)| rest.split(' ').next());
                    format!("{text},{}", missing.unwrap_or_else(|| panic!("{refused}")))
                }
            };
            let spelled = registry.parse(&text).unwrap();
            assert_eq!(spelled.label, text);
            assert_eq!(central(&spelled), central(&plain), "{text}");
        }
    }
}

#[test]
fn live_controllers_refuse_schemes_of_switch_programs_and_of_sprayed_packets() {
    for name in names() {
        let spec = parse(name).unwrap();
        assert_eq!(spec.central(1).is_none(), spec.deployment().is_some(), "{name}");
        if let Err(refused) = spec.require_central(1) {
            let why = match spec.central(1) {
                None => "has no central part",
                Some(_) => "sends the packets of one flow over several paths",
            };
            assert!(refused.starts_with(&format!("{name} {why}")) && !refused.contains('\n'), "{refused}");
        }
    }
    for name in [
        "rps",
        "rps:order=round-robin",
        "letflow",
        "drill",
        "presto",
        "drb",
        "ethereal",
        "plb",
        "flowbender",
        "reps",
        "conga",
        "hula",
        "flowcut",
        "loom",
        "ofpt:defaults=drill",
        "hedera:defaults=flowcut,at=tor",
    ] {
        let Err(refused) = parse(name).unwrap().require_central(1) else { panic!("{name} is accepted") };
        assert!(refused.ends_with("use ecmp or mptcp"), "{refused}");
    }
    assert!(["tcp-path", "tfe", "arp-path"].iter().all(|name| parse(name).unwrap().deployment().is_some()));
}

#[test]
fn balancers_of_default_routes_say_where_they_can_be() {
    let needs = |text: &str| parse(text).unwrap().central(1).unwrap().needs();
    for scheme in ["hedera", "hedera-sa", "ofpt", "lessor"] {
        let plain = needs(scheme);
        let balanced = needs(&format!("{scheme}:defaults=drill,at=core"));
        assert_eq!(balanced, Needs { selection: needs("drill").selection, selection_tier: Some(Tier::Core), ..plain });
        assert_eq!(
            parse(&format!("{scheme}:defaults=drill")).unwrap().transport(),
            parse("drill").unwrap().transport()
        );
        assert_eq!(parse(&format!("{scheme}:defaults=hula")).unwrap().transport(), parse(scheme).unwrap().transport());
    }
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    assert!(refused("ofpt:at=tor").ends_with("at= says which switches choose by queues; add defaults=drill or omit it"));
    for text in ["ofpt:defaults=conga,at=tor", "hedera:defaults=hula,at=core"] {
        assert!(refused(text).ends_with("conga and hula need all switches for their feedback or probes; omit at="));
    }
    assert!(refused("drill:at=spine").contains("is not one of all, tor, aggregation, core"));
    assert!(refused("hedera:defaults=rps").contains("is not one of ecmp, drill, conga, hula, flowcut"));
}

#[test]
fn weights_of_next_hops_name_switches_of_the_fabric() {
    let fabric = pathloom_fabrics::fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1").unwrap();
    let check = |text: &str| parse(&format!("wcmp:weights={text}")).unwrap().check_fabric(&fabric);
    assert_eq!(check("capacity"), Ok(()));
    assert_eq!(check("e0-c0:3/e0-c1:0"), Ok(()));
    for (text, words) in [
        ("e0-c9:1", "no node is called `c9`"),
        ("e0-e1:1", "not neighbours"),
        ("h0-e0:1", "expected a switch and its next hop"),
        ("c0:1", "expected a switch and its next hop"),
    ] {
        let problem = check(text).unwrap_err();
        assert!(problem.starts_with("scheme wcmp: weights: ") && problem.contains(words), "{problem}");
    }
    for text in ["e0-c0", "e0-c0:61", "e0-c0:-1", "e0-c0:1/"] {
        let problem = parse(&format!("wcmp:weights={text}")).unwrap_err().to_string();
        assert!(problem.contains("expected SWITCH-NEIGHBOUR:WEIGHT"), "{problem}");
    }
}

#[test]
fn schemes_that_react_to_marks_refuse_a_transport_without_them() {
    let transport = |scheme: &str, text: &str| {
        let given = pathloom_transport::TransportSpec::parse(text).unwrap();
        parse(scheme).unwrap().transport_with(Some(given)).map(|spec| spec.name())
    };
    for scheme in ["plb", "flowbender"] {
        assert_eq!(parse(scheme).unwrap().transport().name(), "dctcp");
        assert_eq!(transport(scheme, "dctcp:gain=0.1"), Ok("dctcp"));
        assert_eq!(transport(scheme, "roce"), Ok("roce"));
        for other in ["newreno", "cubic", "mptcp", "uec"] {
            let refused = transport(scheme, other).unwrap_err();
            let expected = format!("--transport with scheme {scheme}: expected dctcp:…");
            assert!(refused.starts_with(&expected), "{refused}");
        }
    }
}

#[test]
fn schemes_over_ultra_ethernet_keep_it_with_any_transport() {
    for scheme in ["oblivious", "bitmap", "reps", "mixed"] {
        let spec = parse(scheme).unwrap();
        let with = |text: &str| {
            let given = pathloom_transport::TransportSpec::parse(text).unwrap();
            spec.transport_with(Some(given)).unwrap().uec().cloned().unwrap()
        };
        let own = pathloom_transport::TransportSpec::parse(&format!("uec:entropy={scheme}")).unwrap();
        assert_eq!(Some(&with("dctcp:min_rto=1ms")), own.uec(), "{scheme}");
        assert_eq!(Some(&with("mptcp")), own.uec(), "{scheme}");
        let refined = with("uec:paths=16");
        assert_eq!((refined.paths, refined.entropy), (16, own.uec().unwrap().entropy), "{scheme}");
        let other = pathloom_transport::TransportSpec::parse("uec:entropy=single").unwrap();
        let refused = spec.transport_with(Some(other)).unwrap_err();
        assert!(refused.contains(&format!("the scheme sets entropy={scheme}")), "{refused}");
    }
}

#[test]
fn hosts_mark_elephants_as_tfe_expects() {
    let marking = |text: &str| parse(text).unwrap().deployment().unwrap().elephants.unwrap();
    let plain = marking("tfe");
    assert_eq!((plain.above_bytes, plain.mark), (10_000_000, Mark::SourcePorts(3500..=4500)));
    assert_eq!(marking("tfe:mark=dscp,elephant=1MB").mark, Mark::Dscp(pathloom_model::LONG_FLOW_DSCP));
    for (bad, expected) in [
        ("tfe:ports=3500", "expected two numbers"),
        ("tfe:ports=4500-3500", "expected two numbers"),
        ("tfe:ports=30000-40000", "from 1024 to 32767"),
        ("tfe:ports=5000-5002", "without 5001"),
        ("tfe:ports=3000-3100,mark=dscp", "no meaning with mark=dscp"),
        ("tcp-path:jitter=1s", "jitter is over 10ms"),
        ("arp-path:age=10s", "age"),
        ("conga:tau=0s", "tau is 0"),
        ("hula:probe=0s", "probe is 0"),
    ] {
        let refused = parse(bad).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn names_are_unique() {
    let mut names = Registry::WithTestSchemes.names();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
}

#[test]
fn schemes_for_tests_are_only_in_the_registry_for_tests() {
    let tests: Vec<&str> = Registry::WithTestSchemes.names().split_off(names().len());
    assert_eq!(tests, ["move"]);
    let refused = parse("move").unwrap_err().to_string();
    assert!(!refused.contains("move,") && refused.ends_with(&format!("(known: {})", names().join(", "))), "{refused}");
    for (value, registry) in
        [(None, Registry::Shipped), (Some("0"), Registry::Shipped), (Some("1"), Registry::WithTestSchemes)]
    {
        assert_eq!(Registry::of_variable(value.map(OsStr::new)), registry);
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
fn errors_name_the_problem() {
    let known = format!("did you mean `hedera`? (known: {})", Registry::WithTestSchemes.names().join(", "));
    for (text, expected) in [
        ("", "is empty"),
        ("hadera", known.as_str()),
        ("hedera_sa", "did you mean `hedera-sa`?"),
        ("ofpt:enforce=none,headroom=0.1", "omit enforce=none"),
        ("ofpt:enforce=none,shares=equal", "omit enforce=none"),
        ("ofpt:shares=even", "shares"),
        ("ofpt:sizes=learned,enforce=none", "omit sizes=learned"),
        ("ofpt:rounding=random", "add allocation=fractional"),
        ("lessor:clamp=off,min_period=1ms", "omit them, or clamp=off"),
        ("lessor:allocation=fractional,epsilon=0", "more than 0 and less than 1"),
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
        ("drill:d=0", "d: `0` is not a whole number from 1 to 255"),
        ("drill:m=256", "m: `256` is not a whole number from 0 to 255"),
        ("presto:cell=0KB", "cell: `0KB` is not"),
        ("rps:order=robin", "order: `robin` is not one of random, round-robin"),
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
        let error = Registry::WithTestSchemes.parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.starts_with("scheme `") && !error.contains('\n'), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_never_panics(text in texts()) {
        if let Err(error) = Registry::WithTestSchemes.parse(&text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

/// Texts that are nearly specifications: names and keys of the registry, and others.
fn texts() -> impl Strategy<Value = String> {
    let names = Registry::WithTestSchemes.names().join("|");
    let keys = Registry::WithTestSchemes.entries().flat_map(|entry| entry.keys.iter().map(|(key, _, _)| *key));
    let keys = keys.collect::<Vec<_>>().join("|");
    let text = format!(
        "({names}|[a-z]{{1,8}})(:({keys}|[a-z]{{1,4}})=[0-9a-z.+-]{{0,8}}){{0,1}}(,({keys}|[a-z]{{1,9}})=[ -~]{{0,8}}){{0,3}}"
    );
    proptest::string::string_regex(&text).unwrap()
}
