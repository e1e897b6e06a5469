//! Recorded cases under `tests/conformance/<scheme>` of the repository: the same events lead to the same actions.
//! `PATHLOOM_BLESS=1 cargo test -p pathloom-schemes --test all conformance` rewrites them. Read the difference before
//! you commit it.

use crate::support::record::{replay, scheme_of};
use pathloom_schemes::Registry;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

/// The folders and cases in a folder.
fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths
}

/// Lines with different values, with their numbers. The order of keys does not matter.
fn differences<'a>(was: &'a str, is: &'a str) -> Vec<(usize, &'a str, &'a str)> {
    let value = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let lines = was.lines().zip(is.lines()).enumerate().map(|(index, (was, is))| (index + 1, was, is));
    lines.filter(|(_, was, is)| value(was) != value(is)).collect()
}

#[test]
fn schemes_repeat_the_recorded_actions() {
    let bless = std::env::var_os("PATHLOOM_BLESS").is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    for name in Registry::WithTestSchemes.names() {
        let cases = sorted(&folder().join(name));
        let has_central = Registry::WithTestSchemes.parse(name).unwrap().central(1).is_some();
        assert_eq!(!cases.is_empty(), has_central, "{name}: a scheme has recorded cases if it has a central part");
        for case in cases {
            let text = fs::read_to_string(&case).unwrap();
            let played = replay(&text).unwrap_or_else(|problem| panic!("{}: {problem}", case.display()));
            let spec = scheme_of(&text).unwrap();
            assert_eq!(spec.split(':').next(), Some(name), "{} is in the wrong folder", case.display());
            let differences = differences(&text, &played);
            if bless && played != text {
                fs::write(&case, played).unwrap();
            } else if let Some((number, was, is)) = differences.first() {
                wrong.push(format!("{} line {number}:\n  recorded {was}\n  now      {is}", case.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "PATHLOOM_BLESS=1 rewrites the recorded cases\n{}", wrong.join("\n"));
}

#[test]
fn every_folder_of_records_belongs_to_a_scheme() {
    for path in sorted(&folder()).into_iter().filter(|path| path.is_dir()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let records = sorted(&path).into_iter().filter_map(|case| fs::read_to_string(case).ok());
        let of_schemes = records.filter(|text| scheme_of(text).is_ok()).count();
        assert!(
            of_schemes == 0 || Registry::WithTestSchemes.names().contains(&name.as_str()),
            "no scheme is called {name}"
        );
    }
}

#[test]
fn a_wrong_record_is_detected() {
    let setup = r#"{"setup":{"about":"x","scheme":"ecmp","fabric":"dumbbell","seed":1}}"#;
    let line = |routes: &str| {
        format!("{setup}\n{{\"now\":0,\"event\":\"started\",\"actions\":[{{\"set_defaults\":\"{routes}\"}}]}}\n")
    };
    assert_eq!(replay(&line("ecmp")), Ok(line("ecmp")));
    assert_eq!(replay(&line("single_path")), Ok(line("ecmp")));
    assert_eq!(differences(&line("ecmp"), &line("ecmp")), []);
    assert_eq!(differences(&line("single_path"), &line("ecmp"))[0].0, 2);
    for text in ["", "{}", "{\"now\":0,\"event\":\"started\"}"] {
        assert!(replay(text).is_err(), "{text}");
    }
    let error = replay(&format!("{setup}\n{{\"now\":1,\"solve\":null}}\n")).unwrap_err();
    assert_eq!(error, "line 2: no job is running");
}
