//! A configuration with keys that nobody knows: refused at the start with its place, and at a reload (SIGHUP), where
//! everything goes on as it was.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

const GOOD: &str = "fabric = { spec = \"diamond:hosts=2,rate=10Mbps\" }\nlisten = { unix = \"openflow\" }\n";
const BAD: &str =
    "fabric = { spec = \"diamond:hosts=2,rate=10Mbps\" }\nlisten = { unix = \"openflow\" }\nsesions = 1\n";

/// A directory of the test's own, gone with it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A controller, and the lines of its log.
struct Running {
    process: Child,
    log: Receiver<String>,
}

impl Running {
    fn start(place: &Path) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pathloom-controller"));
        command.args(["--config", "controller.toml"]).current_dir(place).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Running { process, log }
    }

    /// The next line of the log with these words.
    fn says(&self, words: &str) -> String {
        let mut heard = Vec::new();
        loop {
            match self.log.recv_timeout(Duration::from_secs(20)) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => heard.push(line),
                Err(problem) => panic!("{words}: {problem}; {heard:#?}"),
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn unknown_keys_are_named_and_change_nothing() {
    let place = Directory(std::env::temp_dir().join(format!("pathloom-reload-{}", std::process::id())));
    std::fs::create_dir_all(&place.0).unwrap();
    let write = |text: &str| std::fs::write(place.0.join("controller.toml"), text).unwrap();
    write(BAD);
    let refused = Command::new(env!("CARGO_BIN_EXE_pathloom-controller"))
        .args(["--config", "controller.toml"])
        .current_dir(&place.0)
        .output()
        .unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("sesions") && why.contains("line 3") && why.lines().count() == 1, "{why}");

    write(GOOD);
    let mut running = Running::start(&place.0);
    running.says("the controller runs");
    write(BAD);
    running.signal("-HUP");
    let line = running.says("going on with the old one");
    assert!(line.contains("sesions") && line.contains("line 3") && line.contains("ERROR"), "{line}");
    // It goes on, and takes what makes sense.
    assert!(running.process.try_wait().unwrap().is_none());
    write(&format!("{GOOD}[scheme]\nspec = \"lessor\"\n"));
    running.signal("-HUP");
    let line = running.says("another scheme is in charge");
    assert!(line.contains("ecmp") && line.contains("lessor"), "{line}");
    running.signal("-TERM");
    running.says("the rules stay in the switches");
    assert!(running.process.wait().unwrap().success());
}
