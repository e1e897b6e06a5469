//! Workload files of SimAI.

use super::{even, message, try_generate};
use crate::Start;
use pathloom_model::Nanos;

fn file(ranks: usize, tensor: usize, expert: usize, layers: &[&str]) -> String {
    let head = format!(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tensor} ep: {expert} pp: 1 vpp: 8 ga: 1 \
         all_gpus: {ranks} checkpoints: 0 checkpoint_initiates: 0\n{}\n",
        layers.len()
    );
    layers.iter().fold(head, |text, layer| text + layer + "\n")
}

const FORWARD: &str = "embedding -1 500 ALLREDUCE 4000 1 NONE 0 1 NONE 0 1";

#[test]
fn a_layer_computes_then_reduces_over_its_tensor_group() {
    let text = file(8, 4, 1, &[FORWARD]);
    let made = try_generate("simai:file=w.txt", &even(4, 4), 1.0, Some(&text)).unwrap();
    assert_eq!(made.flows.len(), 2 * 24, "two groups of four ranks, six steps each");
    assert!(made.flows.iter().all(|flow| flow.size_bytes == Some(1000)));
    let begins = made.flows.iter().filter(|flow| matches!(flow.start, Start::At(at) if at.0 == 500)).count();
    assert_eq!(begins, 8, "the first step of each rank follows its computation");
    let group = |node: pathloom_model::NodeId| even(4, 4).hosts().iter().position(|&host| host == node).unwrap() / 4;
    assert!(made.flows.iter().all(|flow| group(flow.src) == group(flow.dst)));
}

/// Computation after the last collective counts for none of the ranks.
#[test]
fn a_job_knows_how_long_its_ranks_compute_before_their_last_collective() {
    let text = file(8, 4, 1, &[FORWARD]);
    let job = |keys: &str| {
        let made = try_generate(&format!("simai:file=w.txt{keys}"), &even(4, 4), 1.0, Some(&text)).unwrap();
        made.jobs[0].clone()
    };
    let once = job("");
    assert_eq!((once.collective.as_str(), once.hosts.len(), once.iterations), ("training", 8, 1));
    // 500 ns forward; then the gradients take 1 ns each, and so does the update.
    assert_eq!(once.compute, [Nanos(500); 8]);
    // The second forward pass follows the gradients of the first iteration.
    let twice = job(",iterations=2");
    assert!(twice.compute.iter().all(|time| (1001..1010).contains(&time.0)), "{:?}", twice.compute);
    assert_eq!((twice.iterations, twice.coflows), (2, (0, 2 * once.coflows.1)));
    assert_eq!(job(",compute=off").compute, [Nanos::ZERO; 8]);
}

/// MockNcclGroup of SimAI divides the size of an all-gather by the number of ranks; Ring of ASTRA-sim does not.
#[test]
fn the_size_of_an_all_gather_is_total_in_simai_and_a_part_in_astra_sim() {
    let sent = |spec: &str, text: &str| {
        let made = try_generate(spec, &even(4, 2), 1.0, Some(text)).unwrap();
        assert_eq!(made.flows.len(), 8 * 7);
        made.flows.iter().filter_map(|flow| flow.size_bytes).sum::<u64>()
    };
    let layer = |pass: &str| {
        format!(
            "a -1 {}\n",
            ["forward", "input", "weight"]
                .map(|name| if name == pass { "0 ALLGATHER 8000000" } else { "0 NONE 0" })
                .join(" ")
                + " 0"
        )
    };
    let simai = file(8, 8, 1, &[&layer("forward")]);
    let micro = format!("MICRO\n1\n{}", layer("weight"));
    let data = format!("DATA\n1\n{}", layer("weight"));
    let model = format!("MODEL # inference\n1\n{}", layer("input"));
    for (spec, text, megabytes) in [
        ("simai:file=w.txt", &simai, 56),
        ("simai:file=w.txt,gather=part", &simai, 448),
        ("simai:file=w.txt", &micro, 56),
        ("simai:file=w.txt", &data, 448),
        ("simai:file=w.txt,gather=total", &data, 56),
        ("simai:file=w.txt", &model, 448),
    ] {
        assert_eq!(sent(spec, text), megabytes * 1_000_000, "{spec} {text}");
    }
}

#[test]
fn data_and_model_parallel_files_take_all_hosts_and_their_own_collectives() {
    let text = "DATA\n1\na -1 0 ALLREDUCE 800 0 ALLREDUCE 800 0 ALLREDUCE 1600 0\n";
    let sizes = |spec: &str, text: &str| {
        let made = try_generate(spec, &even(4, 2), 1.0, Some(text)).unwrap();
        let mut sizes: Vec<u64> = made.flows.iter().filter_map(|flow| flow.size_bytes).collect();
        sizes.dedup();
        (made.flows.len(), sizes, made.notes.iter().any(|note| note.contains("does not say how many ranks")))
    };
    assert_eq!(sizes("simai:file=w.txt", text), (8 * 14, vec![200], true), "gradients of weights only");
    assert_eq!(sizes("simai:file=w.txt,hosts=4", text), (4 * 6, vec![400], true));
    let model = text.replace("DATA", "MODEL");
    assert_eq!(sizes("simai:file=w.txt", &model), (2 * 8 * 14, vec![100], true), "all but gradients of weights");
}

#[test]
fn layers_without_data_and_groups_of_one_are_left_out() {
    let text = file(8, 8, 1, &["a -1 0 ALLREDUCE 0 0 NONE 0 0 ALLREDUCE 80 0"]);
    let nothing = message("simai:file=w.txt", &even(4, 2), 1.0, Some(&text));
    let words = "no layer sends anything (transfers and collectives of 0 bytes, left out: 1; collectives of a single rank, left out: 8)";
    assert!(nothing.contains(words), "{nothing}");
    let text = file(8, 8, 1, &["a -1 0 ALLREDUCE 80 0 ALLGATHER 0 0 ALLREDUCE 80 0"]);
    let made = try_generate("simai:file=w.txt", &even(4, 2), 1.0, Some(&text)).unwrap();
    assert_eq!(made.flows.len(), 8 * 14);
    assert!(made.notes[0].ends_with("0 bytes, left out: 1") && made.notes[1].ends_with("single rank, left out: 8"));
}

#[test]
fn ranks_are_placed_by_list_by_rack_in_stripes_or_at_random() {
    let text = file(4, 4, 1, &[FORWARD]);
    let hosts = |keys: &str| {
        let fabric = even(2, 4);
        let made = try_generate(&format!("simai:file=w.txt{keys}"), &fabric, 1.0, Some(&text)).unwrap();
        let place = |node: pathloom_model::NodeId| fabric.hosts().iter().position(|&host| host == node).unwrap();
        let order: Vec<usize> = made.flows[..4].iter().map(|flow| place(flow.src)).collect();
        (order, made.notes.iter().any(|note| note.contains("all 4 ranks are in one rack")))
    };
    assert_eq!(hosts(""), (vec![0, 1, 2, 3], true));
    assert_eq!(hosts(",placement=rack"), (vec![0, 1, 2, 3], true));
    assert_eq!(hosts(",placement=striped"), (vec![0, 4, 1, 5], false));
    assert_eq!(hosts(",hosts=h7/h0/h3/5"), (vec![7, 0, 3, 5], false));
    let (random, _) = hosts(",placement=random");
    assert!(random != [0, 1, 2, 3] && hosts(",placement=random").0 == random, "{random:?}");
    let bad = |keys: &str| message(&format!("simai:file=w.txt{keys}"), &even(2, 4), 1.0, Some(&text));
    assert!(bad(",hosts=h0/h1").contains("hosts: 2 hosts for 4 ranks of the file; expected 4"));
    assert!(bad(",hosts=h0/h1/h2/h0").contains("h0 is named twice"));
    assert!(bad(",hosts=h0/h1/h2/h3,placement=striped").contains("placement=striped is invalid with hosts by name"));
    assert!(bad(",placement=near").contains("placement: `near` is not one of linear, rack, striped, rail, random"));
}

#[test]
fn gradients_of_weights_go_over_data_groups_and_end_the_iteration() {
    let text = file(
        8,
        4,
        2,
        &["a -1 0 NONE 0 10 ALLGATHER 8 20 REDUCESCATTER 40 5", "b -1 0 NONE 0 0 ALLTOALL_EP 30 0 ALLREDUCE_DP_EP 9 5"],
    );
    let once = try_generate("simai:file=w.txt", &even(4, 4), 1.0, Some(&text)).unwrap();
    // Layer b: all-to-all in 4 groups of 2 (a group of 1 reduces nothing). Layer a: reduce-scatter in 4 groups of 2,
    // all-gather in 2 groups of 4.
    assert_eq!(once.flows.len(), 4 * 2 + 4 * 2 + 2 * 12);
    let twice = try_generate("simai:file=w.txt,iterations=2", &even(4, 4), 1.0, Some(&text)).unwrap();
    assert_eq!(twice.flows.len(), 2 * once.flows.len());
    let second = twice.flows[once.flows.len()..].iter().filter(|flow| flow.size_bytes == Some(15));
    let waits =
        second
            .map(|flow| if let Start::After { flows, delay } = &flow.start { (flows.len(), delay.0) } else { (0, 0) });
    // The last step of the all-gather and the gradients have two flows each. Both updates follow.
    let waits: Vec<_> = waits.collect();
    assert!(waits.iter().all(|waits| waits.0 == 4 && waits.1 >= 10), "the second iteration follows both: {waits:?}");
}

#[test]
fn errors_name_the_line() {
    let bad = |text: &str| message("simai:file=w.txt", &even(4, 4), 1.0, Some(text));
    let layer = |layer: &str| bad(&file(8, 4, 1, &[layer]));
    let head = |from: &str, to: &str| bad(&file(8, 4, 1, &[FORWARD]).replace(from, to));
    for (found, words) in [
        (bad(""), "w.txt, line 1: is empty"),
        (
            bad("HYBRID_DLRM\n1\n"),
            "line 1: the parallelism `HYBRID_DLRM` is not supported; expected HYBRID_TRANSFORMER",
        ),
        (head("model_parallel_NPU_group: 4", ""), "line 1: has no `model_parallel_NPU_group:`"),
        (head("all_gpus: 8", "all_gpus: 7"), "line 1: 7 ranks are not a multiple of 4"),
        (head("all_gpus: 8", "all_gpus: 800"), "the file has 800 ranks; the fabric has 16 hosts"),
        (head("pp: 1", "pp: 4"), "pp: 4: pipelines of several stages are not supported"),
        (head("ep: 1", "ep: one"), "line 1: ep: `one` is not a whole number"),
        (head("\n1\n", "\nmany\n"), "line 2: `many` is not a number of layers"),
        (head("\n1\n", "\n2\n"), "line 3: the file announces 2 layers and ends after 1"),
        (bad(&(file(8, 4, 1, &[FORWARD]) + FORWARD)), "line 4: a layer follows the 1 that the file announces"),
        (layer("a -1 5"), "line 3: a layer has 12 words; this one has 3"),
        (layer(&FORWARD.replace("500", "soon")), "word 3: `soon` is not a time in ns"),
        (
            layer(&FORWARD.replace("ALLREDUCE", "ALREDUCE")),
            "word 4: `ALREDUCE` is not a collective; did you mean `ALLREDUCE`?",
        ),
        (layer(&FORWARD.replace("4000", "9999999999999999999")), "ALLREDUCE of 9999999999999999999 bytes"),
        (layer(&FORWARD.replace("4000", "-4")), "`-4` after ALLREDUCE is not a number of bytes"),
        (layer(&FORWARD.replace("500", "2000000000")), "raise --duration, or set compute=off"),
    ] {
        assert!(found.contains(words) && !found.contains('\n'), "{words}: {found}");
    }
}
