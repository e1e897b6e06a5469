//! Files that are written during a run. They have another name until they are complete.

use crate::errors::Error;
use pathloom_control::{Input, Output, Record};
use pathloom_model::Nanos;
use pathloom_sim::Journal;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A file with a temporary name until [`PartialFile::finish`]. It is removed if it is dropped before that. A device or pipe,
/// such as /dev/null, has its own name from the start and is not removed.
pub struct PartialFile {
    what: &'static str,
    path: String,
    /// The temporary name; `None` for a device or pipe.
    partial: Option<PathBuf>,
    finished: bool,
}

impl PartialFile {
    /// Creates the file beside its final place.
    pub fn create(what: &'static str, path: &str) -> Result<(PartialFile, BufWriter<File>), Error> {
        let fail = |source| Error::File { what, path: path.to_owned(), source };
        if std::path::Path::new(path).is_dir() {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let partial = (!is_device).then(|| PathBuf::from(format!("{path}.partial")));
        let file = match &partial {
            Some(partial) => File::create(partial),
            None => File::options().write(true).open(path),
        };
        let file = file.map_err(fail)?;
        Ok((PartialFile { what, path: path.to_owned(), partial, finished: false }, BufWriter::new(file)))
    }

    /// Gives the file its final name, if everything was written without an error.
    pub fn finish(&mut self, written: io::Result<()>) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        let renamed = written.and_then(|()| match &self.partial {
            Some(partial) => std::fs::rename(partial, &self.path),
            None => Ok(()),
        });
        renamed.map_err(|source| self.error(source))?;
        self.finished = true;
        Ok(())
    }

    /// An error of the file, with the name that was requested.
    pub fn error(&self, source: io::Error) -> Error {
        Error::File { what: self.what, path: self.path.clone(), source }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.as_ref().filter(|_| !self.finished) {
            // Only this run used the file, and nobody can be informed any more.
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// The event log: one record per line. Clones write to the same file.
#[derive(Clone)]
pub struct EventLog(Arc<Mutex<Lines>>);

struct Lines {
    out: BufWriter<File>,
    file: PartialFile,
    failed: Option<io::Error>,
}

impl EventLog {
    /// Starts a log.
    pub fn create(path: &str) -> Result<EventLog, Error> {
        let (file, out) = PartialFile::create("event log", path)?;
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
