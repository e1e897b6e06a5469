//! Files that a run writes while it runs. They bear another name until they are whole.

use crate::errors::Error;
use pathloom_control::{Input, Output, Record};
use pathloom_model::Nanos;
use pathloom_sim::Journal;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A file under a name of its own until [`Partial::finish`]; dropped before that, it is removed.
pub struct Partial {
    what: &'static str,
    path: String,
    partial: PathBuf,
    finished: bool,
}

impl Partial {
    /// Creates the file beside where it will stand.
    pub fn create(what: &'static str, path: &str) -> Result<(Partial, BufWriter<File>), Error> {
        let fail = |source| Error::File { what, path: path.to_owned(), source };
        if std::path::Path::new(path).is_dir() {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let partial = PathBuf::from(format!("{path}.partial"));
        let file = File::create(&partial).map_err(fail)?;
        Ok((Partial { what, path: path.to_owned(), partial, finished: false }, BufWriter::new(file)))
    }

    /// Gives the file its name, if all that was written to it went well.
    pub fn finish(&mut self, written: io::Result<()>) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        let renamed = written.and_then(|()| std::fs::rename(&self.partial, &self.path));
        renamed.map_err(|source| self.error(source))?;
        self.finished = true;
        Ok(())
    }

    /// What went wrong with the file, under the name that was asked for.
    pub fn error(&self, source: io::Error) -> Error {
        Error::File { what: self.what, path: self.path.clone(), source }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // It was ours alone, and there is nobody left to tell.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// The event log: one record per line. Clones write to the same file.
#[derive(Clone)]
pub struct EventLog(Arc<Mutex<Lines>>);

struct Lines {
    out: BufWriter<File>,
    file: Partial,
    failed: Option<io::Error>,
}

impl EventLog {
    /// Starts a log.
    pub fn create(path: &str) -> Result<EventLog, Error> {
        let (file, out) = Partial::create("event log", path)?;
        Ok(EventLog(Arc::new(Mutex::new(Lines { out, file, failed: None }))))
    }

    /// Completes the file.
    pub fn finish(&self) -> Result<(), Error> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Lines { out, file, failed } = &mut *lines;
        let written = failed.take().map_or_else(|| out.flush(), Err);
        file.finish(written)
    }

    fn write(&self, record: &Record) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.failed.is_none() {
            lines.failed = writeln!(lines.out, "{}", record.to_line()).err();
        }
    }
}

impl Journal for EventLog {
    fn input(&mut self, at: Nanos, input: &Input) {
        self.write(&Record::input(at, input.clone()));
    }

    fn output(&mut self, at: Nanos, output: &Output) {
        self.write(&Record::output(at, output.clone()));
    }
}
