//! The process of a scheme beside a whole controller. A shell script stands for Python.

use crate::commands::greet_process;
use crate::config::check;
use crate::tests::loopback::{api, lab, wait, Directory};

/// Greets, answers each event without an action, and does `more` for the number of the event.
fn script(more: &str) -> String {
    format!(
        r#"#!/bin/sh
read hello
echo '{{"protocol":1,"needs":{{"detection":"label","subflows":false,"poll_period":null}}}}'
while read line; do
  id=${{line#*:}}; id=${{id%%,*}}
  {more}
  echo "{{\"id\":$id,\"reply\":{{\"actions\":[{{\"set_defaults\":\"per_host\"}}]}}}}"
done
"#
    )
}

/// A directory with such a script, and the section `[scheme]` for it.
fn with_script(more: &str, settings: &str) -> (Directory, String) {
    let directory = Directory::new();
    directory.write("far.py", 0o644, "");
    directory.write("python", 0o755, &script(more));
    (directory, format!("[scheme]\nspec = \"far.py:Far\"\npython = \"./python\"\n{settings}\n"))
}

#[test]
fn a_process_takes_charge_and_is_shown() {
    let (directory, text) = with_script("", "");
    let lab = lab(directory, &(text + &api("")), true);
    wait("the process answers", || {
        let row = lab.get("/v1/state")["scheme_process"].clone();
        row["state"] == "up" && row["waiting"] == 0
    });
    let state = lab.get("/v1/state");
    assert_eq!((&state["scheme"], &state["scheme_process"]["starts"]), (&"far.py:Far".into(), &1.into()));
    assert_eq!(state["scheme_process"]["problem"], serde_json::Value::Null);
    // An operator can put another scheme in charge.
    let (status, row) = lab.change("POST", "/v1/scheme/fall-back", "");
    assert_eq!((status, &row["scheme"]), (200, &"ecmp".into()));
}

#[test]
fn a_process_that_ends_or_hangs_is_started_again() {
    for (more, settings, words) in
        [("exit", "", "it ended"), ("sleep 600", "answer_within = \"200ms\"", "within 0.2 s")]
    {
        let (directory, text) = with_script(more, settings);
        let lab = lab(directory, &(text + &api("")), true);
        wait("the process is started again", || {
            lab.get("/v1/state")["scheme_process"]["starts"].as_u64().is_some_and(|starts| starts >= 2)
        });
        // The controller serves its switches all the time.
        let state = lab.get("/v1/state");
        assert_eq!(state["sessions"], state["switches"]);
        let problem = state["scheme_process"]["problem"].as_str().unwrap();
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn a_scheme_that_cannot_run_is_refused_at_the_start() {
    let (directory, text) = with_script("", "");
    let mut checked = check(&format!("[fabric]\nspec = \"diamond\"\n{text}"), &directory.0).unwrap();
    directory.write("python", 0o755, "#!/bin/sh\nread hello\n");
    let problem = greet_process(&mut checked).unwrap_err();
    assert!(problem.contains("far.py:Far") && problem.contains("ended before its greeting"), "{problem}");
    let sprayed = script("").replace("\"subflows\"", "\"entropy\":\"packet\",\"subflows\"");
    directory.write("python", 0o755, &sprayed);
    let problem = greet_process(&mut checked).unwrap_err();
    assert!(problem.contains("only in the simulator"), "{problem}");
    let missing = text.replace("far.py:Far", "near.py");
    let problem = check(&format!("[fabric]\nspec = \"diamond\"\n{missing}"), &directory.0).unwrap_err();
    assert!(problem.contains("near.py: no such file"), "{problem}");
}
