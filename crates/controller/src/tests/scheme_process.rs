//! The process of a scheme beside a whole controller. A shell script stands for Python.

use crate::commands::greet_process;
use crate::config::check;
use crate::tests::loopback::{api, lab, wait, Directory, READ};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

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
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("pathloom_scheme_process_{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse::<f64>().unwrap()
    };
    assert_eq!(["up", "starts_total", "late_answers_total", "lost_events_total"].map(value), [1.0, 1.0, 0.0, 0.0]);
    assert!(value("answers_total") >= 1.0 && value("answer_seconds_count") == value("answers_total"), "{metrics}");
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

/// A process of somebody else at a socket. It greets each connection and answers its events. It closes the second one after an
/// event.
fn listen(socket: PathBuf) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            std::thread::spawn(move || serve(&stream, number == 1).ok());
        }
    });
}

fn serve(mut stream: &UnixStream, is_short: bool) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    lines.next();
    writeln!(stream, r#"{{"protocol":1,"needs":{{"detection":"label","subflows":false,"poll_period":null}}}}"#)?;
    for line in lines.take(if is_short { 1 } else { usize::MAX }) {
        let id = serde_json::from_str::<serde_json::Value>(&line?)?["id"].clone();
        writeln!(stream, r#"{{"id":{id},"reply":{{}}}}"#)?;
    }
    Ok(())
}

#[test]
fn a_process_at_a_socket_takes_charge_and_is_reached_again() {
    let directory = Directory::new();
    // The first connection only greets, the second one ends after an event.
    listen(directory.0.join("far.sock"));
    let text = "[scheme]\nspec = \"far.py:Far\"\nsocket = \"far.sock\"\n".to_owned();
    let lab = lab(directory, &(text + &api("")), true);
    wait("the process is reached again", || {
        let row = lab.get("/v1/state")["scheme_process"].clone();
        row["starts"] == 2 && row["state"] == "up" && row["waiting"] == 0
    });
    assert_eq!(lab.get("/v1/state")["scheme_process"]["problem"], "it ended");
}

#[test]
fn a_socket_of_another_user_is_refused() {
    let directory = Directory::new();
    listen(directory.0.join("far.sock"));
    let text = |socket: &str, more: &str| {
        format!("[fabric]\nspec = \"diamond\"\n[scheme]\nspec = \"far.py\"\nsocket = \"{socket}\"\n{more}\n")
    };
    let greeted = |text: &str| greet_process(&mut check(text, &directory.0).unwrap());
    assert_eq!(greeted(&text("far.sock", "")), Ok(()));
    let problem = greeted(&text("far.sock", "user = \"54321:1\"")).unwrap_err();
    assert!(problem.contains("expected user 54321 (scheme.user)"), "{problem}");
    let problem = greeted(&text("none.sock", "")).unwrap_err();
    assert!(problem.contains("none.sock"), "{problem}");
    let problem = check(&text("far.sock", "").replace("far.py", "ecmp"), &directory.0).unwrap_err();
    assert!(problem.contains("scheme.socket: ecmp is no scheme in a Python file"), "{problem}");
}
