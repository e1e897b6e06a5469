//! Traces and tables from files.

use super::*;
use std::path::PathBuf;

const COFLOWS: &str = "4 3\n1 0 2 0 3 2 1:3.0 2:1.5\n7 100 1 2 1 2:5\n9 5000 1 0 1 1:1.0\n";

#[test]
fn coflows_split_the_bytes_of_a_reducer_among_the_mappers() {
    let fabric = even(2, 2);
    let workload = try_generate("coflow:file=t.txt,jitter=0s", &fabric, 1.0, Some(COFLOWS)).unwrap();
    check(&workload, &fabric, Nanos::from_secs(1));
    let flows: Vec<_> = workload.flows.iter().map(|flow| (pair(flow, &fabric), flow.size_bytes, flow.coflow)).collect();
    // A megabyte of the coflow-benchmark is 2^20 bytes.
    let (half, quarter) = (Some(1_572_864), Some(786_432));
    assert_eq!(
        flows,
        [((0, 1), half, Some(1)), ((3, 1), half, Some(1)), ((0, 2), quarter, Some(1)), ((3, 2), quarter, Some(1))]
    );
    assert_eq!(workload.notes.len(), 2, "{:?}", workload.notes);
    assert!(workload.notes[0].starts_with("left out: 1 coflow of the trace"), "{:?}", workload.notes);
    assert!(workload.notes[1].starts_with("left out: 1 flow (5.243 MB) from a host to itself"), "{:?}", workload.notes);
    assert!(workload.description.contains("2 of 3 coflows over 4 ports"), "{}", workload.description);
}

#[test]
fn a_coflow_that_occurs_twice_is_refused() {
    let text = "4 2\n1 0 1 3 1 1:1\n1 9 1 3 1 2:1\n";
    let problem = try_generate("coflow:file=t.txt", &even(2, 2), 1.0, Some(text)).unwrap_err().to_string();
    assert!(problem.contains("line 3") && problem.contains("coflow 1 occurs twice"), "{problem}");
}

#[test]
fn coflow_times_and_sizes_scale_and_ports_spread() {
    let fabric = even(4, 4);
    let text = "coflow:file=t.txt,time_scale=0.1,scale=0.5,jitter=0s";
    let workload = try_generate(text, &fabric, 1.0, Some(COFLOWS)).unwrap();
    let last = workload.flows.last().unwrap();
    assert_eq!((&last.start, last.size_bytes), (&Start::At(Nanos::from_millis(500)), Some(524_288)));
    assert_eq!(pair(last, &fabric), (0, 4));
    // More ports than hosts: several ports share a host.
    let small = try_generate("coflow:file=t.txt", &even(1, 2), 1.0, Some(COFLOWS)).unwrap();
    check(&small, &even(1, 2), Nanos::from_secs(1));
    assert_eq!(small.flows.len(), 2);
    let odd = try_generate("coflow:file=t", &fabric, 1.0, Some("3 2\n0 0 2 0 1 1 2:0.000001 # little")).unwrap();
    assert!(odd.flows.iter().all(|flow| flow.size_bytes == Some(1)));
    assert!(odd.notes[0].contains("announces 2 coflows; 1 follow"), "{:?}", odd.notes);
}

#[test]
fn broken_coflow_traces_name_the_line() {
    let fabric = even(2, 2);
    let problem = |text: &str| message("coflow:file=t.txt", &fabric, 1.0, Some(text));
    assert_eq!(problem(""), "t.txt: is empty; expected a first line `ports coflows`");
    assert!(problem("4").starts_with("t.txt, line 1: ends where the number of coflows should be"));
    assert!(problem("0 1\n").contains("ports is 0"));
    assert!(problem("4 1\n\n1 0 1 4 1 0:1").starts_with("t.txt, line 3: port 4 does not exist; ports are 0 to 3"));
    assert!(problem("4 1\n1 0 999999999 1 2 3").contains("ends where the port of a mapper should be"));
    assert!(problem("4 1\n1 0 1 1 1 0=1").contains("`0=1` is not a reducer with its megabytes"));
    assert!(problem("4 1\n1 0 1 1 1 0:-1").contains("-1 MB is not a size"));
    assert!(problem("4 1\n1 0 1 1 1 0:nan").contains("NaN MB is not a size"));
    assert!(problem("4 1\n1 -5 1 1 1 0:1").contains("arrival at -5 ms"));
    assert!(problem("4 1\n1 0 1 1 1 0:1 2:1").contains("`2:1` and the words after it are too many"));
    assert!(message("coflow:file=t.txt", &fabric, 1.0, None).contains("needs the text of t.txt"));
    assert!(message("coflow", &fabric, 1.0, None).contains("such as coflow:file=FB2010-1Hr-150-0.txt"));
}

#[test]
fn flow_lists_accept_names_numbers_headers_and_long_lived_flows() {
    let fabric = even(2, 2);
    let plain = "0.5,h1,h2,1000\n0,0,3,\n0.3,h3,h0,2e6\n1.5,h0,h1,5\n";
    let workload = try_generate("flows:file=f.csv", &fabric, 1.0, Some(plain)).unwrap();
    check(&workload, &fabric, Nanos::from_secs(1));
    let flows: Vec<_> = workload.flows.iter().map(|flow| (pair(flow, &fabric), flow.size_bytes)).collect();
    assert_eq!(flows, [((0, 3), None), ((3, 0), Some(2_000_000)), ((1, 2), Some(1000))]);
    assert_eq!(workload.flows[1].start, Start::At(Nanos::from_millis(300)));
    assert_eq!(workload.notes, ["left out: 1 flow of the file, starting after the end of the run"]);
    let header = "# ours\r\ncoflow,Size_Bytes,dst,src,start_s\r\n4,1000,h2,\"h1\",0.5\r\n,,3,0,0\r\n";
    let workload = try_generate("flows:file=f.csv", &fabric, 1.0, Some(header)).unwrap();
    let flows: Vec<_> = workload.flows.iter().map(|flow| (pair(flow, &fabric), flow.size_bytes, flow.coflow)).collect();
    assert_eq!(flows, [((0, 3), None, None), ((1, 2), Some(1000), Some(4))]);
    assert!(workload.description.contains("2 flows, 1 of them long-lived, 1 KB offered"), "{}", workload.description);
    let coflow = try_generate("flows:file=f.csv", &fabric, 1.0, Some("0,h0,h1,5,8")).unwrap();
    assert_eq!(coflow.flows[0].coflow, Some(8));
}

#[test]
fn broken_flow_lists_name_the_line() {
    let fabric = even(2, 2);
    let problem = |text: &str| message("flows:file=f.csv", &fabric, 1.0, Some(text));
    assert!(problem("").starts_with("f.csv: holds no flows; expected lines of start_s,src,dst,size_bytes"));
    assert!(problem("start_s,src,dst,size_bytes\n").contains("holds no flows"));
    assert!(problem("start_s,src,dst\n").contains("a header with a column size_bytes"));
    assert!(problem("soon,h0,h1,5").contains("neither a flow nor a header with a column start_s"));
    assert!(problem("0,h0,h1").starts_with("f.csv, line 1: has no size_bytes"));
    assert!(
        problem("0,h0,h9,5").contains("dst: `h9` is not a host of the fabric; hosts are h0 to h3, or 0 to 3 by number")
    );
    assert!(problem("0,h0,h1,5\n-1,h0,h1,5").starts_with("f.csv, line 2: start_s: `-1` is not a number of seconds"));
    assert!(problem("0,h0,h1,-1").contains("`-1` is not a number of bytes from 1"));
    assert!(problem("0,h0,h1,nan").contains("`nan` is not a number of bytes"));
    assert!(problem("0,h1,h1,5").contains("h1 sends to itself"));
    assert!(problem("0,h0,h1,5,x").contains("coflow: `x` is not a whole number"));
    assert!(message("flows", &fabric, 1.0, None).contains("such as flows:file=flows.csv"));
}

#[test]
fn htsim_matrices_keep_their_triggers() {
    let fabric = even(2, 2);
    let text =
        "Nodes 4 # hosts\nConnections 4\nTriggers 2\nFailures 1\nfailure switch_type TOR switch_id 0 link_id 0\n\
                1->2 id 4 trigger 2 size 9\n\
                0->1 id 1 start 2000000 size 1000 send_done_trigger 1\n\
                2->3 id 2 start 0 size 7 prio 3 recv_done_trigger 2\n\
                3->0 id 3 trigger 1 size 8 send_done_trigger 2\n\
                trigger id 1 oneshot\ntrigger id 2 barrier count 2\n";
    let workload = try_generate("flows:file=a.cm", &fabric, 1.0, Some(text)).unwrap();
    check(&workload, &fabric, Nanos::from_secs(1));
    let sizes: Vec<_> = workload.flows.iter().filter_map(|flow| flow.size_bytes).collect();
    assert_eq!(sizes, [7, 1000, 8, 9]);
    assert_eq!(workload.flows[1].start, Start::At(Nanos(2000)));
    assert_eq!(workload.flows[2].start, Start::After { flows: [1].into(), delay: Nanos::ZERO });
    assert_eq!(workload.flows[3].start, Start::After { flows: [0, 2].into(), delay: Nanos::ZERO });
    assert_eq!(workload.notes, ["a.cm: failures of links, left out: 1; --fault sets them"]);
    // A flow that waits for one that starts too late is left out as well.
    let short = try_generate("flows:file=a.cm", &fabric, 1e-6, Some(text)).unwrap();
    check(&short, &fabric, Nanos(1000));
    assert_eq!((short.flows.len(), short.flows[0].size_bytes), (1, Some(7)));
    assert!(short.notes[0].starts_with("left out: 3 flows of the file"));
    let undeclared = "0->1 start 0 size 5 send_done_trigger 1\n2->3 trigger 1 size 6";
    let undeclared = try_generate("flows:file=a.cm", &fabric, 1.0, Some(undeclared)).unwrap();
    assert_eq!(undeclared.flows[1].start, Start::After { flows: [0].into(), delay: Nanos::ZERO });
    assert!(undeclared.notes[0].contains("1 trigger not declared"), "{:?}", undeclared.notes);
    let endless = try_generate("flows:file=a.cm", &fabric, 1.0, Some("0->1 start 0\n2->3 start 0 size 0")).unwrap();
    assert!(endless.flows.iter().all(|flow| flow.size_bytes.is_none()));
}

#[test]
fn broken_htsim_matrices_name_the_line() {
    let fabric = even(2, 2);
    let problem = |text: &str| message("flows:file=a.cm", &fabric, 1.0, Some(text));
    assert!(problem("").contains("holds no flows"));
    assert!(problem("Nodes 5\n").starts_with("a.cm, line 1: the matrix is for 5 nodes; the fabric has 4 hosts"));
    assert!(problem("hello").contains("begins with `hello`"));
    assert!(problem("0->9 start 0").contains("node `9` is not a host"));
    assert!(problem("0->0 start 0").contains("h0 sends to itself"));
    assert!(problem("0->1 size 5").contains("neither start nor trigger"));
    assert!(problem("0->1 start 0 trigger 1").contains("two starts"));
    assert!(problem("0->1 start -5").contains("start -5 is not"));
    assert!(problem("0->1 start 0 size").contains("ends after `size`"));
    assert!(problem("0->1 start 0 weight 5").contains("`weight` is unknown"));
    assert!(problem("0->1 trigger 1 size 5\ntrigger id 1 oneshot").contains("no flow activates trigger 1"));
    assert!(problem("0->1 trigger 1 size 5").contains("no flow activates trigger 1"));
    assert!(problem("trigger id 1 oneshot\ntrigger id 1 oneshot").contains("declared on line 1 already"));
    let two =
        "0->1 start 0 size 5 send_done_trigger 1\n1->2 start 0 size 5 send_done_trigger 1\n2->3 trigger 1 size 5\n";
    assert!(
        problem(&format!("{two}trigger id 1 oneshot")).contains("a.cm, line 3: trigger 1 (line 4) acts when 1 of 2")
    );
    let multishot =
        "0->1 start 0 size 5 send_done_trigger 1\n1->2 trigger 1 size 5\n2->3 trigger 1 size 5\ntrigger id 1 multishot";
    assert!(problem(multishot).contains("trigger 1 (line 4) is multishot: it starts one of its 2 flows at a time"));
    let endless = "0->1 start 0 send_done_trigger 1\n1->2 trigger 1 size 5\ntrigger id 1 oneshot";
    assert!(problem(endless).contains("waits for the flow of line 1, which has no size and never ends"));
    let circle = "0->1 trigger 1 size 5 send_done_trigger 1\ntrigger id 1 oneshot";
    assert!(problem(circle).contains("depends on itself"));
}

#[test]
fn elements_without_data_are_left_out_with_a_note() {
    let fabric = even(2, 2);
    let made = |spec: &str, text: &str| try_generate(spec, &fabric, 1.0, Some(text)).unwrap();
    let coflows = made("coflow:file=t.txt", "4 3\n1 0 0 1 0:1\n2 0 1 0 0\n3 0 1 0 2 1:1 2:0\n");
    assert_eq!((coflows.flows.len(), coflows.notes.len()), (1, 1), "{:?}", coflows.notes);
    assert_eq!(coflows.notes[0], "coflows and reducers without data, left out: 3");
    let flows = made("flows:file=f.csv", "0,h0,h1,0\n0,h1,h2,5 # a comment\n");
    assert_eq!((flows.flows.len(), flows.notes), (1, vec!["flows of 0 bytes, left out: 1".to_owned()]));
    let none = made("flows:file=f.csv", "0,h0,h1,0\n");
    assert_eq!((none.flows.len(), none.notes.len()), (0, 2));
}

#[test]
fn many_racks_of_a_coflow_trace_share_few_hosts() {
    let shared = try_generate("coflow:file=t.txt", &even(4, 4), 1.0, Some("150 1\n1 0 1 149 2 0:1 9:1\n")).unwrap();
    let pairs: Vec<_> = shared.flows.iter().map(|flow| pair(flow, &even(4, 4))).collect();
    assert_eq!(pairs, [(15, 0), (15, 0)]);
    assert!(shared.notes[0].contains("the 150 ports of the trace share 16 hosts"), "{:?}", shared.notes);
}

/// `flow.txt` as HPCC and ConWeave generate it: bytes, seconds, hosts from 0.
#[test]
fn flow_lists_of_ns3_have_bytes_seconds_and_hosts_from_0() {
    let fabric = even(2, 2);
    for text in [
        "3\n2 1 3 100 200000 2\n0 1 3 100 1000 2.25\n3 0 3 100 0 2.0\n",
        "3 \n2 1 3 200000 2\n0 1 3 1000 2.25\n3 0 3 0 2 #\n",
    ] {
        let made = try_generate("flows:file=flow.txt", &fabric, 1.0, Some(text)).unwrap();
        let flows: Vec<_> = made.flows.iter().map(|flow| (pair(flow, &fabric), flow.size_bytes, &flow.start)).collect();
        let at = |ms: u64| Start::At(Nanos::from_millis(ms));
        assert_eq!(flows, [((2, 1), Some(200_000), &at(0)), ((0, 1), Some(1000), &at(250))]);
        assert!(made.notes[0].contains("starts at 2 s there") && made.notes[1].contains("flows of 0 bytes"));
    }
    let more = try_generate("flows:file=flow.txt", &fabric, 1.0, Some("1\n0 1 3 9 0\n1 2 3 9 0\n")).unwrap();
    assert_eq!(more.flows.len(), 1, "ns-3 reads what the first line announces");
    assert!(more.notes[0].contains("not read: 1"), "{:?}", more.notes);
    let problem = |text: &str| message("flows:file=flow.txt", &fabric, 1.0, Some(text));
    assert!(problem("1\n0 4 3 9 0\n")
        .starts_with("flow.txt, line 2: node `4` is not a host; the fabric's hosts are 0 to 3"));
    assert!(problem("1\n0 1 3 9\n").contains("has 4 words; expected `src dst priority [port] bytes start_s`"));
    assert!(problem("1\n0 1 3 9.5 0\n").contains("`9.5` is not a whole number of bytes"));
    assert!(problem("1\n0 1 3 9 soon\n").contains("start: `soon`"));
    assert!(problem("1\n1 1 3 9 0\n").contains("h1 sends to itself"));
}

const MONITORED: &str = r#"<?xml version="1.0" ?><FlowMonitor><FlowStats>
<Flow flowId="1" timeFirstTxPacket="+1e+09ns" txBytes="3200" rxBytes="3104" txPackets="3" rxPackets="2" />
<Flow flowId="2" timeFirstTxPacket="+1.001e+09ns" txBytes="104" rxBytes="104" txPackets="2" rxPackets="2" />
<Flow flowId="3" timeFirstTxPacket="+1.5e+09ns" txBytes="1056" rxBytes="0" txPackets="2" rxPackets="0" />
</FlowStats><Ipv4FlowClassifier>
<Flow flowId="1" sourceAddress="10.0.0.10" destinationAddress="10.0.0.2" protocol="6" sourcePort="9" destinationPort="8" />
<Flow flowId="2" sourceAddress="10.0.0.2" destinationAddress="10.0.0.10" protocol="6" sourcePort="8" destinationPort="9" />
<Flow flowId="3" sourceAddress="10.0.0.9" destinationAddress="10.0.0.2" protocol="17" sourcePort="9" destinationPort="8" />
</Ipv4FlowClassifier></FlowMonitor>"#;

#[test]
fn flow_monitor_counts_headers_and_both_directions() {
    let fabric = even(2, 2);
    let made = try_generate("flows:file=m.xml", &fabric, 1.0, Some(MONITORED)).unwrap();
    let flows: Vec<_> = made.flows.iter().map(|flow| (pair(flow, &fabric), flow.size_bytes, &flow.start)).collect();
    // TCP: 3104 received in two packets with 52 bytes of headers. UDP: 1056 sent in two with 28.
    let at = |ms: u64| Start::At(Nanos::from_millis(ms));
    assert_eq!(flows, [((2, 0), Some(3000), &at(0)), ((1, 0), Some(1000), &at(500))]);
    let notes = made.notes.join("\n");
    assert!(notes.contains("3 addresses") && notes.contains("10.0.0.2 is h0"), "{notes}");
    assert!(notes.contains("acknowledgements, left out: 1"), "{notes}");
    let problem = |from: &str, to: &str| message("flows:file=m.xml", &fabric, 1.0, Some(&MONITORED.replace(from, to)));
    assert!(problem("</FlowMonitor>", "").contains("is not well-formed XML"));
    assert!(problem("FlowMonitor>", "Monitor>").contains("outermost element is <Monitor>"));
    assert!(problem("+1e+09ns", "soon").contains("flow 1: timeFirstTxPacket: `soon` is not a time"));
    assert!(problem("txBytes=\"104\"", "txBytes=\"-1\"").contains("flow 2: txBytes: `-1`"));
    assert!(problem("10.0.0.9", "here").contains("flow 3: sourceAddress: `here` is not an address"));
    assert!(problem("<Flow flowId=\"3\" source", "<Flow flowId=\"4\" source").contains("flow 3: no classifier"));
}

#[test]
fn errors_for_files_of_other_tools_say_what_to_use() {
    for (spec, part) in [
        ("dir/ring.0.et", "a Chakra trace is named by the file of its first rank: chakra:file=NAME.0.et"),
        ("flows:file=ring.0.et", "file: a Chakra trace is named by the file of its first rank"),
        ("coflow:file=ring.0.ET", "file: a Chakra trace is named by the file of its first rank"),
        ("microAllReduce.txt", "unsupported format: flow sizes are FILE.csv, flows are flows:file=FILE.csv, FILE.cm"),
        ("dir/perm.cm", "an htsim matrix is a list of flows: flows:file=dir/perm.cm"),
        ("fat_tree.topo", "fat_tree.topo is a fabric, not traffic; use it with --fabric"),
        ("flows:file=zoo.graphml", "zoo.graphml is a fabric"),
        ("web-serach", "did you mean `web-search`?"),
    ] {
        let error = crate::TrafficSpec::parse(spec).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{spec}: {error}");
    }
    let fabric = even(2, 2);
    let workload = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1\n2\nembedding_layer -1 5\n";
    for spec in ["flows:file=w.txt", "coflow:file=w.txt", "flows:file=w.csv"] {
        let problem = message(spec, &fabric, 1.0, Some(workload));
        assert!(problem.contains("is a workload of SimAI or ASTRA-sim; simai:file= reads those"), "{problem}");
    }
}

/// Texts of the public files under `shared/data` beside the repository; none if they are absent.
fn shared(folder: &str, ending: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(folder);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("{} is absent: its files are not tested", folder.display());
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn public_size_tables_are_read() {
    for (name, text) in shared("cdf", ".csv") {
        let (table, note) = crate::size_csv::parse(&name, &text).unwrap();
        assert_eq!(note, None);
        assert_eq!(table.points().len(), text.lines().count());
        let fabric = even(4, 4);
        let workload = try_generate(&format!("{name}:load=0.3"), &fabric, 1.0, Some(&text)).unwrap();
        check(&workload, &fabric, Nanos::from_secs(1));
        assert!(workload.flows.len() > 50);
        let expected = match name.as_str() {
            "opera_websearch.csv" => 1.0e6..2.0e6,
            "opera_datamining.csv" => 5e6..15e6,
            _ => 1e6..5e6,
        };
        assert!(expected.contains(&table.mean_bytes()), "{name}: {}", table.mean_bytes());
    }
}

#[test]
fn public_connection_matrices_are_read() {
    let fabric = even(32, 32);
    for (name, text) in shared("collectives", ".cm") {
        let workload = try_generate(&format!("flows:file={name}"), &fabric, 1.0, Some(&text)).unwrap();
        check(&workload, &fabric, Nanos::from_secs(1));
        let lines = text.lines().filter(|line| line.contains("->")).count();
        assert_eq!(workload.flows.len(), lines, "{name}");
        let waiting = workload.flows.iter().filter(|flow| matches!(flow.start, Start::After { .. })).count();
        assert_eq!(waiting, text.lines().filter(|line| line.contains(" trigger ")).count(), "{name}");
    }
}
