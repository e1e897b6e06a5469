use super::*;
use pathloom_model::LinkState;
use proptest::prelude::*;

fn zoo(nodes: &str, edges: &str) -> String {
    let keys = [("node", "label"), ("node", "Longitude"), ("node", "Latitude"), ("edge", "LinkSpeedRaw")]
        .map(|(domain, name)| format!(r#"<key attr.name="{name}" attr.type="string" for="{domain}" id="{name}" />"#));
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}
        <graph edgedefault="undirected">{nodes}{edges}</graph></graphml>"#,
        keys.concat()
    )
}

fn zoo_node(id: u32, label: &str, place: Option<(f64, f64)>) -> String {
    let place = place.map_or(String::new(), |(longitude, latitude)| {
        format!(r#"<data key="Longitude">{longitude}</data><data key="Latitude">{latitude}</data>"#)
    });
    format!(r#"<node id="{id}"><data key="label">{label}</data>{place}</node>"#)
}

fn zoo_edge(source: u32, target: u32, speed: &str) -> String {
    let speed = if speed.is_empty() { String::new() } else { format!(r#"<data key="LinkSpeedRaw">{speed}</data>"#) };
    format!(r#"<edge source="{source}" target="{target}">{speed}</edge>"#)
}

#[test]
fn finds_the_path_in_a_specification() {
    for (spec, path) in [
        ("a.graphml", Some("a.graphml")),
        (" ../x/B.GraphML:rate=1Gbps,hosts=2", Some("../x/B.GraphML")),
        ("odd:dir/a.json:hosts=1", Some("odd:dir/a.json")),
        ("a.json.graphml:x", Some("a.json.graphml")),
        ("fat-tree:k=4", None),
        ("a.jsonx", None),
        ("", None),
    ] {
        assert_eq!(fabric_file(spec), path, "{spec}");
    }
}

#[test]
fn reads_a_zoo_file() {
    let nodes = [
        zoo_node(0, "New York", Some((-74.005_97, 40.714_27))),
        zoo_node(1, "Los Angeles", Some((-118.243_68, 34.052_23))),
        zoo_node(2, "None", None),
        zoo_node(3, "New York", Some((-74.0, 40.7))),
        zoo_node(4, "Poti, Georgia", None),
    ]
    .concat();
    let edges = [
        zoo_edge(0, 1, "10000000000.0"),
        zoo_edge(0, 1, ""),
        zoo_edge(1, 2, "155520000"),
        zoo_edge(2, 2, ""),
        zoo_edge(3, 4, ""),
    ]
    .concat();
    let text = zoo(&nodes, &edges);
    let FileFabric { fabric, notes } = fabric_from_file_text("zoo.graphml", &text).unwrap();
    let names: Vec<&str> = fabric.nodes().iter().map(|node| node.name.as_str()).collect();
    let expected = ["New_York", "Los_Angeles", "n2", "New_York_n3", "Poti_Georgia", "h0", "h1", "h2", "h3", "h4"];
    assert_eq!(names, expected);
    assert_eq!(fabric.node(pathloom_model::NodeId(1)).position, Some((-118.243_68, 34.052_23)));
    let cables: Vec<_> = fabric.switch_cables().map(|link| fabric.link(link).settings).collect();
    assert_eq!(cables.len(), 4);
    assert_eq!(
        cables.iter().map(|link| link.rate_bps).collect::<Vec<_>>(),
        [10_000_000_000, 1_000_000_000, 155_520_000, 1_000_000_000]
    );
    // These cities are 3,936 km apart, within a few km.
    let us = cables[0].delay_ps / 1_000_000;
    assert!((19_650..19_710).contains(&us), "{us} us");
    assert_eq!(cables[2].delay_ps, DEFAULT_LINK.delay_ps);
    assert_eq!(notes.len(), 8, "{notes:?}");
    for (note, part) in notes.iter().zip([
        "nodes without a label, named by their id (as in n7): 1",
        "nodes with the label of an earlier one",
        "nodes with a single neighbour, taken as switches because nodes have coordinates: 2",
        "edges from a node to itself, left out: 1",
        "hosts at each node of the file: 1, on links of 1 Gbit/s; host_rate= sets it",
        "given 1 Gbit/s: 2, such as New_York - Los_Angeles",
        "given 1us: 2, such as Los_Angeles - n2",
        "in 2 parts without a cable between them; their switches: 3 (New_York, Los_Angeles, n2); 2 (New_York_n3, Poti_",
    ]) {
        assert!(note.contains(part), "{note}");
    }
    // The specification takes precedence over the file.
    let read = fabric_from_file_text("zoo.graphml:switch_rate=5Mbps,delay=1ms,hosts=3", &text).unwrap().fabric;
    assert_eq!(read.hosts().len(), 15);
    assert!(read.switch_cables().all(|link| read.link(link).settings.rate_bps == 5_000_000));
    assert!(read.links().iter().all(|link| link.settings.delay_ps == 1_000_000_000));
}

#[test]
fn host_names_never_collide_with_node_names() {
    let nodes = [zoo_node(0, "h0", None), zoo_node(1, "h0_host", None)].concat();
    let fabric = fabric_from_file_text("x.graphml:hosts=1", &zoo(&nodes, &zoo_edge(0, 1, ""))).unwrap().fabric;
    assert_eq!(fabric.hosts().len(), 2);
}

#[test]
fn reads_directed_node_link_json() {
    let text = r#"{"directed": true, "multigraph": false, "graph": {}, "nodes": [{"id": 0}, {"id": 1}, {"id": 2}],
        "links": [{"capacity": 5000.0, "source": 0, "target": 1}, {"capacity": 10, "source": 1, "target": 0},
                  {"source": 1, "target": 2, "rate": "3Mbps", "delay": "7ms", "buffer": 5}]}"#;
    let FileFabric { fabric, notes } = fabric_from_file_text("b4.json:hosts=1", text).unwrap();
    let links: Vec<_> = fabric.switch_cables().flat_map(|link| [link, link.reverse()]).collect();
    let rates: Vec<u64> = links.iter().map(|&link| fabric.link(link).settings.rate_bps).collect();
    assert_eq!(rates, [5_000_000_000, 10_000_000, 3_000_000, 3_000_000]);
    assert_eq!(fabric.link(links[3]).settings.delay_ps, 7_000_000_000);
    assert_eq!(fabric.link(links[3]).settings.buffer_packets, 5);
    assert_eq!(fabric.node(pathloom_model::NodeId(2)).name, "n2");
    assert!(
        notes.iter().any(|note| note.contains("edges without an opposite edge, used in both directions: 1")),
        "{notes:?}"
    );
}

/// Returns the rates forwards and backwards, and the notes, of a file with a single cable.
fn cable_of(path: &str, text: &str) -> (u64, u64, Vec<String>) {
    let FileFabric { fabric, notes } = fabric_from_file_text(path, text).unwrap();
    let link = fabric.switch_cables().next().unwrap();
    let rate_bps = |link: pathloom_model::LinkId| fabric.link(link).settings.rate_bps;
    (rate_bps(link), rate_bps(link.reverse()), notes)
}

#[test]
fn a_byte_order_mark_is_no_content() {
    let json = r#"{"nodes": [{"id": "a"}, {"id": "b"}], "links": [{"source": "a", "target": "b", "rate": "1Gbps"}]}"#;
    let topo = "Nodes 16\nTiers 2\nPodsize 16\nTier 0\nDownlink_speed_Gbps 1\nDownlink_Latency_ns 500\nRadix_Down 4\nRadix_Up 4\n\
                Tier 1\nDownlink_speed_Gbps 1\nDownlink_Latency_ns 500\nRadix_Down 4\n";
    for (path, text) in [("f.json", json), ("f.csv", "source,target,rate\na,b,1Gbps\n"), ("f.topo", topo)] {
        let marked = fabric_from_file_text(path, &format!("\u{feff}{text}")).unwrap();
        let plain = fabric_from_file_text(path, text).unwrap();
        assert_eq!(marked.fabric.links().len(), plain.fabric.links().len(), "{path}");
    }
}

#[test]
fn each_direction_of_a_directed_graph_keeps_its_rate() {
    let json = |there: &str, back: &str| {
        format!(
            r#"{{"directed": true, "graph": {{}}, "nodes": [{{"id": "a"}}, {{"id": "b"}}], "edges": [
            {{"source": "a", "target": "b"{there}}}, {{"source": "b", "target": "a"{back}}}]}}"#
        )
    };
    let graphml = |name: &str, there: &str, back: &str| {
        format!(
            r#"<graphml><key id="d0" for="edge" attr.name="{name}"/><graph edgedefault="directed">
            <node id="a"/><node id="b"/><edge source="a" target="b"><data key="d0">{there}</data></edge>
            <edge source="b" target="a"><data key="d0">{back}</data></edge></graph></graphml>"#
        )
    };
    let names = ["rate_bps", "rate", "capacity", "bandwidth", "bw", "speed", "LinkSpeed", "LinkSpeedRaw", "LinkLabel"];
    for name in names {
        let (ten, one) = match name {
            "rate_bps" | "LinkSpeedRaw" => ("10000000000", "1000000000"),
            _ => ("10 Gbps", "1 Gbps"),
        };
        let text = json(&format!(r#", "{name}": "{ten}""#), &format!(r#", "{name}": "{one}""#));
        for (path, text) in [("x.json", text), ("x.graphml", graphml(name, ten, one))] {
            let (there, back, notes) = cable_of(path, &text);
            assert_eq!((there, back), (10_000_000_000, 1_000_000_000), "{name} {path}");
            assert_eq!(notes.iter().any(|note| note.starts_with("rates read from labels")), name == "LinkLabel");
        }
    }
    // If one direction has no rate, it has that of the other direction, not a default.
    for (there, back) in [(r#", "rate": "10Gbps""#, ""), ("", r#", "rate": "10Gbps""#)] {
        let (there, back, notes) = cable_of("x.json", &json(there, back));
        assert_eq!((there, back), (10_000_000_000, 10_000_000_000));
        assert!(notes.iter().any(|note| note.contains("in one direction only, used in both: 1")), "{notes:?}");
    }
}

#[test]
fn every_guess_about_a_rate_has_a_note() {
    let json = |edge: &str| {
        format!(r#"{{"nodes": [{{"id": "a"}}, {{"id": "b"}}], "edges": [{{"source": "a", "target": "b"{edge}}}]}}"#)
    };
    for (edge, rate_bps, note) in [
        (
            r#", "LinkLabel": "OC-192c""#,
            9_953_280_000,
            "rates read from labels: 1, such as LinkLabel `OC-192c` of a - b, as 9.953 Gbit/s",
        ),
        (
            r#", "LinkLabel": "100-155 Mbit/s""#,
            100_000_000,
            "of which the least was used: 1, such as LinkLabel `100-155 Mbit/s` of a - b",
        ),
        (
            r#", "capacity": 5000.0"#,
            5_000_000_000,
            "rates without a unit, taken as Mbit/s: 1, such as capacity `5000.0` of a - b, as 5 Gbit/s",
        ),
        (r#", "LinkLabel": "Lit Fibre""#, 1_000_000_000, "given 1 Gbit/s: 1, such as a - b"),
        ("", 1_000_000_000, "cables without a rate (rate_bps, rate, capacity,"),
    ] {
        let (there, back, notes) = cable_of("x.json", &json(edge));
        assert_eq!((there, back), (rate_bps, rate_bps), "{edge}");
        assert!(notes.iter().any(|found| found.contains(note)), "{edge}: {notes:?}");
        // There is no note if the specification states the rates.
        let (there, _, notes) = cable_of("x.json:rate=3Mbps,delay=1ms", &json(edge));
        assert_eq!((there, notes), (3_000_000, Vec::new()), "{edge}");
    }
    let (_, _, notes) = cable_of("x.json:host_rate=1Gbps", &json(r#", "rate": "10Gbps", "delay": "1ms""#));
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn bad_files_give_a_one_line_error_with_the_place() {
    let edge = zoo_edge(0, 1, "");
    let nodes = [zoo_node(0, "a", None), zoo_node(1, "b", None)].concat();
    for (path, text, part) in [
        ("x.graphml", String::new(), "is not well-formed XML"),
        ("x.graphml", "{}".into(), "is not well-formed XML"),
        ("x.graphml", "<html></html>".into(), "its outermost element is <html>"),
        ("x.graphml", "<graphml></graphml>".into(), "without a <graph>"),
        ("x.graphml", zoo("", ""), "the file has no nodes"),
        ("x.graphml", zoo(&nodes, ""), "the file has no edges"),
        ("x.graphml", zoo(&nodes, "\n<edge source=\"0\" target=\"7\"/>"), "line 3: an edge's target is \"7\""),
        ("x.graphml", zoo(&nodes, "<edge source=\"0\"/>"), "line 2: <edge> has no target"),
        ("x.graphml", zoo("<node/>", &edge), "line 2: <node> has no id"),
        ("x.graphml", zoo(&format!("{nodes}{nodes}"), &edge), "two nodes have the id \"0\""),
        ("x.graphml", zoo(&nodes, &zoo_edge(0, 1, "fast")), "edge \"a\" - \"b\": LinkSpeedRaw: `fast` is not a rate"),
        ("x.graphml", zoo(&nodes, &zoo_edge(0, 1, "0")), "rate= overrides it"),
        ("x.graphml:hosts=0", zoo(&nodes, &edge), "hosts: `0` is not a whole number"),
        ("x.graphml:hosts=1e3", zoo(&nodes, &edge), "hosts: `1e3` is not a whole number"),
        ("x.graphml:rat=1Gbps", zoo(&nodes, &edge), "unknown key `rat`; did you mean `rate`?"),
        ("x.graphml:fail=1", zoo(&nodes, &edge), "fail: only 0 of the 1 cables"),
        ("x.graphml", "<!DOCTYPE x [<!ENTITY a \"b\">]><graphml>&a;</graphml>".into(), "XML"),
        ("x.json", String::new(), "is not JSON"),
        ("x.json", "[]".into(), "is not node-link JSON"),
        ("x.json", "{}".into(), "it has no list `nodes`"),
        ("x.json", r#"{"nodes": []}"#.into(), "it has no list `edges` or `links`"),
        ("x.json", r#"{"nodes": [1], "edges": []}"#.into(), "nodes[0] is not an object"),
        ("x.json", r#"{"nodes": [{}], "edges": []}"#.into(), "nodes[0] has no `id`"),
        ("x.json", r#"{"nodes": [{"id":1}], "edges": [{"source":1}]}"#.into(), "edge 0 has no `target`"),
        ("x.json", r#"{"nodes": [{"id":1}], "edges": [{"source":1,"target":2}]}"#.into(), "its target is \"2\""),
        (
            "x.json",
            r#"{"nodes": [{"id":1,"tier":"attic"}], "edges": [{"source":1,"target":1}]}"#.into(),
            "tier: \"attic\"",
        ),
    ] {
        let error = fabric_from_file_text(path, &text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn deep_nesting_is_refused_or_read_but_never_overflows_the_stack() {
    let deep = 200_000;
    let xml = format!("<graphml>{}{}</graphml>", "<a>".repeat(deep), "</a>".repeat(deep));
    let json = format!("{{\"nodes\": {}{}}}", "[".repeat(deep), "]".repeat(deep));
    assert!(fabric_from_file_text("x.graphml", &xml).is_err());
    assert!(fabric_from_file_text("x.json", &json).is_err());
}

#[test]
fn a_file_with_hosts_gets_no_further_hosts() {
    let text = super::super::to_graphml(&super::super::fabric_from_spec("dumbbell").unwrap());
    assert_eq!(fabric_from_file_text("x.graphml", &text).unwrap().fabric.hosts().len(), 4);
    let error = fabric_from_file_text("x.graphml:hosts=2", &text).unwrap_err().to_string();
    assert!(error.contains("the file already contains hosts"), "{error}");
    let fabric = fabric_from_file_text("x.graphml:host_rate=1Mbps,switch_delay=2ms", &text).unwrap().fabric;
    for link in fabric.links() {
        let touches_host = fabric.is_host(link.from) || fabric.is_host(link.to);
        let expected = if touches_host { (1_000_000, 1_000_000) } else { (1_000_000_000, 2_000_000_000) };
        assert_eq!((link.settings.rate_bps, link.settings.delay_ps), expected);
    }
}

/// Reads every available public topology file, and reads its export back.
#[test]
fn reads_every_available_topology() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/topologies");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("no {}: nothing to read", folder.display());
        return;
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy().into_owned();
        if fabric_file(&name) != Some(&name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let FileFabric { fabric, notes } = fabric_from_file_text(&name, &text).unwrap();
        eprintln!("{name}: {} switches, {notes:?}", fabric.switches().len());
        let expected = match path.file_name().and_then(|name| name.to_str()).unwrap() {
            "zoo_Abilene.graphml" => Some((11, 14)),
            "zoo_AttMpls.graphml" => Some((25, 57)),
            "zoo_Cogentco.graphml" => Some((197, 245)),
            "zoo_Geant2012.graphml" => Some((40, 61)),
            "zoo_GtsCe.graphml" => Some((149, 193)),
            "zoo_Uninett2010.graphml" => Some((74, 101)),
            "zoo_UsCarrier.graphml" => Some((158, 189)),
            "teal_B4.json" => Some((12, 19)),
            _ => None,
        };
        let found = (fabric.switches().len(), fabric.switch_cables().count());
        assert_eq!(expected.unwrap_or(found), found, "{name}");
        if path.extension().is_some_and(|kind| kind != "topo") {
            assert_eq!(fabric.hosts().len(), fabric.switches().len(), "{name}: one at every node");
        }
        assert_eq!(LinkState::of(&fabric).down().count(), 0);
        let again = super::super::to_graphml(&fabric);
        let as_graphml = path.with_extension("graphml").to_string_lossy().into_owned();
        assert_eq!(fabric_from_file_text(&as_graphml, &again).unwrap().fabric.links(), fabric.links());
    }
}

proptest! {
    #[test]
    fn no_contents_make_the_reader_panic(
        text in concat!(
            "(<graphml>)?(<graph>)?",
            "(<node id=\"[01]\"/>|<edge source=\"[01]\" target=\"[01]\"/>|[<>&a\"/]){0,12}",
            "(</graph></graphml>)?"
        ),
        json in concat!(
            r#"\{"nodes": \[(\{"id": [01]\}(, )?){0,3}\], "#,
            r#""edges": \[(\{"source": [01], "target": [01]\}(, )?){0,3}\]\}"#
        ),
    ) {
        for (path, contents) in [("x.graphml", &text), ("x.json", &json)] {
            if let Err(error) = fabric_from_file_text(path, contents) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
