//! The event log of a live controller: its inputs and outputs, as lines that can be replayed in a pure controller.
//!
//! The first line has what the configuration file does not: `{"start":{"epoch":7}}`. The other lines are [`Record`]s.
//! A change of scheme has its own line: `{"at":1,"scheme":{"spec":"ecmp","seed":1}}`.

use pathloom_control::{Config, Record};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The first line of a log.
#[derive(Serialize, Deserialize)]
pub(crate) struct FirstLine {
    pub start: Start,
}

/// How the controller was started.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub epoch: u16,
}

/// Creates an empty file, or empties an existing one. Only its owner can read it, because a log shows who talks to whom.
fn create_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// A log that is being written.
pub(crate) struct Recorder {
    path: PathBuf,
    /// `None` after it could not be written.
    file: Option<BufWriter<File>>,
}

impl Recorder {
    /// Starts a log, replacing an existing file.
    pub(crate) fn create(path: &Path, config: &Config) -> io::Result<Recorder> {
        let mut file = BufWriter::new(create_private(path)?);
        let start = FirstLine { start: Start { epoch: config.epoch } };
        writeln!(file, "{}", serde_json::to_string(&start)?)?;
        Ok(Recorder { path: path.to_owned(), file: Some(file) })
    }

    /// Flushes the log to the system.
    pub(crate) fn flush(&mut self) {
        let done = self.file.as_mut().map(Write::flush);
        self.check(done);
    }

    /// Appends a line.
    pub(crate) fn write(&mut self, record: &Record) {
        let done = self.file.as_mut().map(|file| writeln!(file, "{}", record.to_line()));
        self.check(done);
    }

    /// Stops the log after a failure, because a log with gaps cannot be replayed.
    fn check(&mut self, done: Option<io::Result<()>>) {
        if let Some(Err(problem)) = done {
            tracing::error!(path = %self.path.display(), %problem, "the event log cannot be written, and ends here");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_can_read_a_log_even_if_it_replaces_another() {
        let path = std::env::temp_dir().join(format!("pathloom-private-{}.jsonl", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(create_private(&path).unwrap());
        let metadata = std::fs::metadata(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 0));
    }
}
