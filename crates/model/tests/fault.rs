//! Faults from texts, and what they do to links.

use pathloom_fabrics::{fabric_from_file_text, fabric_from_spec};
use pathloom_model::{Fabric, FailureState, Fault, FaultKind, LinkState, NodeId};

fn down(fabric: &Fabric, state: &LinkState) -> Vec<String> {
    let name = |node: NodeId| fabric.node(node).name.as_str();
    let cut = fabric.cables().filter(|&link| !state.is_up(link));
    cut.map(|link| format!("{}-{}", name(fabric.link(link).from), name(fabric.link(link).to))).collect()
}

#[test]
fn a_recovered_switch_does_not_repair_a_cut_cable() {
    let fabric = fabric_from_spec("diamond").unwrap();
    let text = "4s:up:c0, 1s:down:e0-c0,2s:down:c0,3s:up:e0-c0,5s:down:c0-e1,6s:down:c0,7s:up:c0";
    let faults = Fault::parse_schedule(&fabric, text).unwrap();
    let (mut failure_state, mut state) = (FailureState::of(&fabric), LinkState::of(&fabric));
    let mut seen = Vec::new();
    for fault in &faults {
        let changed = failure_state.apply(&fabric, fault, &mut state);
        seen.push((fault.at.as_secs_f64() as u32, changed.len(), down(&fabric, &state).join(" ")));
    }
    let expected = [
        (1, 1, "e0-c0"),
        (2, 1, "e0-c0 c0-e1"),
        (3, 0, "e0-c0 c0-e1"),
        (4, 2, ""),
        (5, 1, "c0-e1"),
        (6, 1, "e0-c0 c0-e1"),
        (7, 1, "c0-e1"),
    ];
    assert_eq!(seen, expected.map(|(at, changed, down)| (at, changed, down.to_owned())));
}

#[test]
fn cables_failed_by_the_specification_stay_down_when_a_switch_recovers() {
    let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1,fail=0.25").unwrap();
    let (mut failure_state, mut state) = (FailureState::of(&fabric), LinkState::of(&fabric));
    let before = state.clone();
    for text in ["1s:down:c0", "1s:down:c1", "2s:up:c0", "2s:up:c1"] {
        failure_state.apply(&fabric, &Fault::parse(&fabric, text).unwrap(), &mut state);
    }
    assert_eq!(down(&fabric, &state), down(&fabric, &before));
    assert_eq!(down(&fabric, &state).len(), 1);
}

#[test]
fn a_number_selects_one_of_parallel_cables() {
    let json = r#"{"nodes": [{"id": "a-1"}, {"id": "b"}], "multigraph": true,
        "edges": [{"source": "a-1", "target": "b"}, {"source": "b", "target": "a-1"}]}"#;
    let fabric = fabric_from_file_text("two.json", json).unwrap().fabric;
    let cables = |text: &str| {
        Fault::parse(&fabric, text).map(|fault| match fault.kind {
            FaultKind::Carrier { target, .. } => target.cables(&fabric).len(),
            _ => 0,
        })
    };
    assert_eq!(cables("1s:down:a-1-b"), Ok(2));
    assert_eq!(cables("1s:down:a-1-b#2"), Ok(1));
    assert_eq!(cables("1s:down:a-1"), Ok(3));
    assert!(cables("1s:down:a-1-b#3").unwrap_err().to_string().contains("expected #1 to #2"));
}

#[test]
fn fault_text_round_trips() {
    let fabric = fabric_from_spec("diamond").unwrap();
    for text in [
        "10us:down:c0",
        "0s:up:c0-e1",
        "5ns:down:e0-c0#1",
        "7ns:session-down:e0",
        "7ns:session-up:e0",
        "9ms:reboot:c1",
        "1001ms:controller-kill",
        "12s:controller-restart",
        "13ns:controller-restart:snapshot",
        "1s:degrade:e0-c0:100Mbps",
        "2s:loss:c0:0.001",
        "3s:restore:e0-c0#1",
    ] {
        let fault = Fault::parse(&fabric, text).unwrap();
        assert_eq!(fault.text(&fabric).to_string(), text);
    }
    let faults = Fault::parse_schedule(&fabric, "2s:controller-restart,1s:controller-kill").unwrap();
    assert_eq!((faults[0].kind, Fault::restarts(&faults)), (FaultKind::ControllerKill, 1));
}

#[test]
fn one_text_can_describe_several_faults() {
    let fabric = fabric_from_spec("diamond").unwrap();
    let texts = |text: &str| -> Vec<String> {
        let faults = Fault::parse_schedule(&fabric, text).unwrap();
        faults.iter().map(|fault| fault.text(&fabric).to_string()).collect()
    };
    assert_eq!(texts("1s:down:e0-c0+c1"), ["1s:down:e0-c0", "1s:down:c1"]);
    let flaps = ["1s:down:c0", "1100ms:up:c0", "1500ms:down:c0", "1600ms:up:c0"];
    assert_eq!(texts("1s:flap:c0:100ms/400ms/2"), flaps);
    assert_eq!(texts("2s:loss:c0+c1:0.5").len(), 2);
}

#[test]
fn errors_name_the_problem() {
    let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
    for (text, part) in [
        ("", "expected TIME:down:WHAT"),
        ("10s", "TIME:controller-restart:snapshot"),
        ("10s:down", "expected TIME:down:WHAT"),
        ("10s:degrade", "expected TIME:degrade:WHAT:RATE"),
        ("10s:degrade:c3", "the value is missing"),
        ("10s:degrade:c3:fast", "`fast`"),
        ("10s:degrade:c3:2Gbps", "2Gbps is more than the 1 Gbit/s that c3 has"),
        ("10s:degrade:c3:0bps", "`0bps`"),
        ("10s:loss:c3", "the value is missing"),
        ("10s:loss:c3:1.5", "`1.5` is not a share of packets from 0 to 1"),
        ("10s:loss:c3:nan", "`nan` is not a share"),
        ("10s:loss:c33:0.1", "no node is called `c33`; did you mean `c3`?"),
        ("10s:restore", "expected TIME:restore:WHAT"),
        ("10s:flap", "expected TIME:flap:WHAT:DOWN/UP/TIMES"),
        ("10s:flap:c3:1s", "`1s` is not DOWN/UP/TIMES"),
        ("10s:flap:c3:1s/0s/3", "`0s` must be more than 0s"),
        ("10s:flap:c3:1s/soon/3", "`soon`"),
        ("10s:flap:c3:1s/1s/0", "`0` is not a number of times"),
        ("10s:flap:c3:1s/1s/9999999", "is not a number of times from 1 to 500000"),
        ("10s:down:c3+c9", "no node is called `c9`"),
        ("10s:down:c3+c2", "describes several faults"),
        ("10s:reboot", "expected TIME:reboot:WHAT"),
        ("10:down:c3", "`10` is not a time"),
        ("-1s:down:c3", "is not a time"),
        ("10s:cut:c3", "`cut` is not one of down, up, degrade, loss, restore, flap, session-down,"),
        ("10s:controller-killed", "did you mean `controller-kill`?"),
        ("10s:controller-kill:c0", "controller-kill has no target; remove `c0`"),
        ("10s:controller-restart:empty", "followed by `snapshot` or nothing, not `empty`"),
        ("10s:reboot:h0", "h0 is a host; expected a switch"),
        ("10s:session-down:e0_0-a0_0", "no node is called `e0_0-a0_0`"),
        ("10s:down:c9", "no node is called `c9`; did you mean `c0`?"),
        ("10s:down:e0_0-a9_1", "no node is called `a9_1`; did you mean `a0_1`?"),
        ("10s:down:e0_0-c0", "e0_0 and c0 are not neighbours; e0_0 has cables to a0_1, a0_0, h1, h0"),
        ("10s:down:-", "no node is called ``"),
    ] {
        let error = Fault::parse(&fabric, text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert_eq!(Fault::parse_schedule(&fabric, " "), Ok(Vec::new()));
    assert!(Fault::parse_schedule(&fabric, "1s:down:c0,").is_err());
}
