//! The program at its command line.

use std::process::Command;

#[test]
fn help_goes_to_standard_output_and_unknown_words_to_standard_error() {
    let said = |words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_pathloom-controller-bench")).args(words).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let help = said(&["--help"]);
    assert!(help.0 == Some(0) && help.1.starts_with("usage: pathloom-controller-bench [--work"), "{help:?}");
    let wrong = said(&["--speed", "1"]);
    assert!(wrong.0 == Some(2) && wrong.2.starts_with("pathloom-controller-bench: --speed is not known"), "{wrong:?}");
}
