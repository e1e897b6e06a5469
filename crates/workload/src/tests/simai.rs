//! Workload files of SimAI.

use super::{even, message, try_generate};
use crate::Start;

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
    assert!(waits.into_iter().all(|waits| waits.0 == 4 && waits.1 >= 10), "the second iteration follows both");
}

#[test]
fn errors_name_the_line() {
    let bad = |text: &str| message("simai:file=w.txt", &even(4, 4), 1.0, Some(text));
    let layer = |layer: &str| bad(&file(8, 4, 1, &[layer]));
    let head = |from: &str, to: &str| bad(&file(8, 4, 1, &[FORWARD]).replace(from, to));
    for (found, words) in [
        (bad(""), "w.txt, line 1: is empty"),
        (bad("DATA\n1\n"), "line 1: the parallelism `DATA` is not supported"),
        (head("all_gpus: 8", ""), "line 1: has no `all_gpus:`"),
        (head("all_gpus: 8", "all_gpus: 7"), "all_gpus: 7 is not a multiple of 4"),
        (head("all_gpus: 8", "all_gpus: 800"), "the workload has 800 ranks; the fabric has 16 hosts"),
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
        (layer(&FORWARD.replace("4000", "0")), "ALLREDUCE of 0 bytes"),
        (layer(&FORWARD.replace("4000", "-4")), "`-4` after ALLREDUCE is not a number of bytes"),
        (layer(&FORWARD.replace("ALLREDUCE", "NONE")), "no layer has a collective of several ranks"),
        (layer(&FORWARD.replace("500", "2000000000")), "raise --duration, or set compute=off"),
    ] {
        assert!(found.contains(words) && !found.contains('\n'), "{words}: {found}");
    }
}
