//! Which code is in which program.

use std::process::Command;

const PRODUCTION: &str = env!("CARGO_BIN_EXE_pathloom-controller");
const BENCH: &str = env!("CARGO_BIN_EXE_pathloom-controller-bench");

fn has(program: &str, text: &str) -> bool {
    let bytes = std::fs::read(program).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn the_load_generator_is_only_in_the_bench_program() {
    // Texts of its options, of the rivals and of the schedules of faults.
    for text in ["--outstanding", "ovs-testcontroller", "PATHLOOM_OSKEN_PYTHON", "rules are left over or missing"] {
        assert!(has(BENCH, text), "{text}");
        assert!(!has(PRODUCTION, text), "{text}");
    }
}

#[test]
fn the_bench_command_runs_the_bench_program() {
    let said = |program: &str, words: &[&str]| {
        let done = Command::new(program).args(words).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let help = said(BENCH, &["--help"]);
    assert!(help.0 == Some(0) && help.1.starts_with("usage: pathloom-controller-bench [--work"), "{help:?}");
    assert_eq!(said(PRODUCTION, &["bench", "--help"]), help);
    let wrong = said(PRODUCTION, &["bench", "--speed", "1"]);
    assert!(wrong.0 == Some(2) && wrong.2.starts_with("pathloom-controller-bench: --speed is not known"), "{wrong:?}");
}
