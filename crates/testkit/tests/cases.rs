//! Recorded cases of the controller, under `tests/conformance/control` of the repository. `PATHLOOM_BLESS=1 cargo
//! test -p pathloom-testkit --test all cases` rewrites them; read the difference before you commit it.

use pathloom_testkit::{check_folder, play_case};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/control")
}

#[test]
fn the_controller_does_what_is_recorded() {
    match check_folder(&folder()) {
        Ok(cases) => assert!(cases >= 2),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_case_that_differs_is_noticed() {
    let text = fs::read_to_string(folder().join("measured.jsonl")).unwrap();
    assert_eq!(play_case(&text).unwrap(), text);
    let changed = text.replacen("70000000", "7000000", 1);
    assert_ne!(play_case(&changed).unwrap(), changed, "a flow that sends less is not long");
    for (broken, complaint) in [
        ("", "the case is empty"),
        ("{}", "line 1: missing field"),
        (&text.replacen("leaf-spine", "leef-spine", 1), "leef-spine"),
        (&text.replacen("\"measure\"", "\"measur\"", 1), "line "),
        (&text.replacen("\"src\":\"10.0.0.1\"", "\"src\":\"10.9.9.9\"", 1), "10.9.9.9"),
    ] {
        let problem = play_case(broken).unwrap_err();
        assert!(problem.contains(complaint), "{problem}");
    }
}
