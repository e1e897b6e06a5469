//! Which specifications and files are accepted and which are refused, and that nothing panics.

use super::*;
use crate::traffic_names;
use std::collections::BTreeSet;

fn refusal(text: &str) -> String {
    TrafficSpec::parse(text).unwrap_err().to_string()
}

#[test]
fn loads_out_of_range_are_refused() {
    for name in ["web-search", "on-off", "mine.csv"] {
        for load in ["0", "-1", "nan", "inf", "1e9", "10.1", "x"] {
            let error = refusal(&format!("{name}:load={load}"));
            assert!(error.contains(&format!("load: `{load}` is not a number from 0.0001 to 10")), "{error}");
        }
        for load in ["0.1", "1", "1.5", "10"] {
            assert!(TrafficSpec::parse(&format!("{name}:load={load}")).is_ok());
        }
    }
}

#[test]
fn refusals_name_the_problem_and_the_nearest_name() {
    assert!(refusal("websearch").contains("did you mean `web-search`?"));
    assert!(refusal("web-search:laod=0.4").contains("unknown key `laod`; did you mean `load`?"));
    assert!(refusal("long-lived:load=0.4").contains("unknown key `load`"));
    assert!(refusal("on-off:sizes=web-serch").contains("did you mean `web-search`?"));
    assert!(refusal("on-off:on=0s").contains("on: 0 is too short"));
    assert!(refusal("on-off:sigma_gap=3.5").contains("is not a number from 0 to 3"));
    assert!(refusal("web-search:scale=0").contains("scale: `0`"));
    assert!(refusal("web-search:max_size=10").contains("expected a positive number with a unit of B"));
    assert!(refusal("all-reduce:size=0MB").contains("size: `0MB`"));
    assert!(refusal("").contains("is empty"));
}

#[test]
fn too_many_flows_are_refused_with_a_way_out() {
    let fabric = even(4, 4);
    let error = message("web-server:load=1", &fabric, 3600.0, None);
    assert!(error.contains("more than the 20000000 a run may have; lower load= or the duration"), "{error}");
    assert!(message("on-off:sizes=web-server,load=1", &fabric, 3600.0, None).contains("lower load="));
    assert!(message("on-off:on=1ns", &fabric, 1.0, None).contains("periods; raise them"));
    let spec = TrafficSpec::parse("web-search").unwrap();
    assert!(spec.generate(&fabric, Nanos::MAX, 1, None).is_err());
    let error = spec.generate(&fabric, Nanos::ZERO, 1, None).unwrap_err().to_string();
    assert!(error.contains("the duration is 0; expected a positive time such as 60s"), "{error}");
}

#[test]
fn a_workload_without_flows_has_a_note() {
    let workload = generate("data-mining:load=0.0001", &even(1, 2), 1e-6);
    assert!(workload.flows.is_empty());
    assert_eq!(workload.notes, ["no flow starts within 1 us"]);
}

#[test]
fn the_list_has_every_key_that_is_accepted() {
    for traffic in traffic_names() {
        let name = traffic.name.replace("FILE", "x");
        let has_file = traffic.keys.iter().any(|key| key.name == "file");
        let file = match has_file {
            true if name == "chakra" => ",file=x.0.et",
            true => ",file=x",
            false => "",
        };
        let error = refusal(&format!("{name}:zzzzzzzzzzzz=1{file}"));
        let known = error.split_once("(known: ").unwrap().1.trim_end_matches(')');
        let accepted: BTreeSet<&str> = known.split(", ").collect();
        let listed: BTreeSet<&str> = traffic.keys.iter().map(|key| key.name).collect();
        assert_eq!(accepted, listed, "{}", traffic.name);
        assert!(traffic.help.len() < 100 && traffic.keys.iter().all(|key| key.help.len() < 120));
    }
}

#[test]
fn needed_files_are_named() {
    let file = |text: &str| TrafficSpec::parse(text).unwrap().parts()[0].needs_file().map(str::to_owned);
    assert_eq!(file("dir/mine.csv:load=0.4"), Some("dir/mine.csv".into()));
    assert_eq!(file("on-off:sizes=mine.csv"), Some("mine.csv".into()));
    assert_eq!(file("coflow:file=fb.txt"), Some("fb.txt".into()));
    assert_eq!(file("flows:file=perm.cm"), Some("perm.cm".into()));
    for text in ["web-search", "on-off", "long-lived", "incast", "all-reduce", "all-to-all"] {
        assert_eq!(file(text), None);
    }
    let spec = TrafficSpec::parse(" long-lived:pattern=stride ").unwrap();
    assert!(spec.to_string() == "long-lived:pattern=stride" && spec.text() == spec.to_string());
}

#[test]
fn joined_specifications_run_beside_each_other() {
    let fabric = even(4, 4);
    let parts = |text: &str| -> Vec<String> {
        TrafficSpec::parse(text).unwrap().parts().iter().map(|part| part.text().to_owned()).collect()
    };
    assert_eq!(parts("all-reduce:hosts=8 + web-search:load=0.2"), ["all-reduce:hosts=8", "web-search:load=0.2"]);
    assert_eq!(parts("incast+hadoop+long-lived"), ["incast", "hadoop", "long-lived"]);
    assert_eq!(parts("flows:file=a+b.csv"), ["flows:file=a+b.csv"]);
    assert_eq!(parts("c++.csv:load=0.2"), ["c++.csv:load=0.2"]);
    assert!(refusal("incast+web-serch:load=0.2").contains("did you mean `web-search`?"));
    let alone = generate("all-reduce:hosts=8,size=1MB,iterations=2", &fabric, 1.0);
    let two = "all-reduce:hosts=8,size=1MB,iterations=2+all-gather:hosts=4,skip=8+long-lived:pattern=stride";
    let joined = generate(two, &fabric, 1.0);
    check(&joined, &fabric, Nanos::from_secs(1));
    let gather = generate("all-gather:hosts=4,skip=8", &fabric, 1.0);
    assert_eq!(joined.flows.len(), alone.flows.len() + gather.flows.len() + 16);
    let [reduce, gather] = &joined.jobs[..] else { panic!("{:?}", joined.jobs) };
    assert_eq!((reduce.coflows, gather.coflows), ((0, 28), (28, 3)));
    assert_eq!((reduce.spec.as_str(), gather.spec.as_str()), (&two[..40], "all-gather:hosts=4,skip=8"));
    // The flows of the first part are the same as alone.
    let of = |workload: &Workload, job: &crate::Job| -> Vec<(u32, usize, usize, u64)> {
        let range = job.coflows.0..job.coflows.0 + job.coflows.1;
        let own = workload.flows.iter().filter(|flow| flow.coflow.is_some_and(|coflow| range.contains(&coflow)));
        let row = |flow: &FlowSpec| {
            let (src, dst) = pair(flow, &fabric);
            (flow.coflow.unwrap(), src, dst, flow.size_bytes.unwrap())
        };
        let mut rows: Vec<_> = own.map(row).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(of(&joined, reduce), of(&alone, &alone.jobs[0]));
    let hosts = |job: &crate::Job| job.hosts.iter().map(|&host| fabric.node(host).name.clone()).collect::<Vec<_>>();
    assert_eq!(hosts(gather), ["h8", "h9", "h10", "h11"]);
    // Only transfers of the jobs use connections that stand.
    assert!(joined.flows.iter().all(|flow| flow.standing == flow.coflow.is_some()));
    for flow in &joined.flows {
        let Start::After { flows, .. } = &flow.start else { continue };
        let first = |coflow: Option<u32>| coflow.unwrap() < 28;
        assert!(flows.iter().all(|&needed| first(joined.flows[needed as usize].coflow) == first(flow.coflow)));
    }
}

#[test]
fn jobs_at_random_places_share_no_host() {
    let text = "all-gather:hosts=8,placement=random+all-gather:hosts=8,skip=8,placement=random";
    let joined = generate(text, &even(4, 4), 1.0);
    let mut hosts: Vec<_> = joined.jobs.iter().flat_map(|job| job.hosts.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), 16);
}

#[test]
fn equal_parts_draw_different_flows() {
    let joined = generate("web-search:load=0.2+web-search:load=0.2", &even(4, 4), 1.0);
    let half = generate("web-search:load=0.2", &even(4, 4), 1.0);
    assert!(joined.flows.len() > half.flows.len() * 3 / 2);
    let starts: BTreeSet<_> =
        joined.flows.iter().map(|flow| if let Start::At(at) = flow.start { at } else { Nanos::MAX }).collect();
    assert!(starts.len() > joined.flows.len() * 9 / 10);
}

/// Values for any key, valid and invalid.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "7",
    "0.3",
    "1.5",
    "-1",
    "nan",
    "1e9",
    "18446744073709551616",
    "1KB",
    "3MB",
    "1B",
    "999PB",
    "1us",
    "5ms",
    "2s",
    "0s",
    "h0",
    "h1/h0",
    "h0/h0",
    "/",
    "random",
    "inter-leaf",
    "stride",
    "permutation",
    "unconstrained",
    "one-to-1",
    "one-to-3",
    "one-to-random",
    "one-to-99999999999",
    "all-to-all",
    "incast",
    "ring",
    "shift",
    "linear",
    "hadoop",
    "f.csv",
    "f.cm",
    "é",
    "",
];

/// A specification that is probably valid.
fn any_spec() -> impl Strategy<Value = String> {
    let names: Vec<&str> = traffic_names().iter().map(|traffic| traffic.name).chain(["f.csv", "zzz", ""]).collect();
    let keys: Vec<&str> = traffic_names().iter().flat_map(|traffic| traffic.keys).map(|key| key.name).collect();
    let fitting = prop::sample::select(traffic_names()).prop_flat_map(|traffic| {
        let keys: Vec<&str> = traffic.keys.iter().map(|key| key.name).collect();
        let pair = (prop::sample::select(keys), prop::sample::select(VALUES));
        (Just(traffic.name), prop::collection::vec(pair, 0..5))
    });
    let mixed = (
        prop::sample::select(names),
        prop::collection::vec((prop::sample::select(keys), prop::sample::select(VALUES)), 0..4),
    );
    let write = |(name, pairs): (&str, Vec<(&str, &str)>)| {
        let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{name}:{}", pairs.join(","))
    };
    prop_oneof![6 => fitting.prop_map(write), 2 => mixed.prop_map(write), 1 => "\\PC{0,30}"]
}

/// Texts of files, valid and invalid.
fn any_file() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[0-9.]{1,4},h?[0-9],h?[0-9],[0-9]{0,5}",
        "[0-9]{1,5},(0\\.[0-9]{1,3}|1)",
        "[0-9]->[0-9] (start|trigger) [0-9] size [0-9]{1,4}( send_done_trigger [0-9])?",
        "trigger id [0-9] (oneshot|barrier)",
        "[0-9]{1,2}( [0-9]{1,2}){1,6}( [0-9]:[0-9.]{1,3}){0,3}",
        Just("start_s,src,dst,size_bytes".to_owned()),
        "\\PC{0,20}",
    ];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_specification_and_no_file_panics(
        text in any_spec(),
        file in prop::option::of(any_file()),
        fabric in any_fabric(),
        seed in any::<u64>(),
    ) {
        let Ok(spec) = TrafficSpec::parse(&text) else { return Ok(()) };
        // Short, because there is up to one flow per byte at full load.
        let duration = Nanos::from_millis(1);
        match spec.generate(&fabric, duration, seed, file.as_deref()) {
            Ok(workload) => {
                check(&workload, &fabric, duration);
                prop_assert_eq!(&workload, &spec.generate(&fabric, duration, seed, file.as_deref()).unwrap());
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn invalid_texts_are_refused_in_one_line(text in "\\PC{0,60}") {
        if let Err(error) = TrafficSpec::parse(&text) {
            prop_assert!(error.to_string().lines().count() == 1);
        }
    }
}
