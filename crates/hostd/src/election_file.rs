//! The number of the newest election of a controller, in a file: an agent that starts anew then still refuses orders of earlier
//! leaders, also without BPF programs, after a stop in order, and after the machine has started again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The variable in which systemd names the directory of `StateDirectory=`.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// The file.
pub struct ElectionFile {
    place: Option<PathBuf>,
    /// What the file has.
    stored: u64,
}

impl ElectionFile {
    /// Reads the file of the configuration, or else `election` in the state directory that systemd gives. Without both there is
    /// no file. A damaged file counts as none; `say` gets a line then.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn open(configured: Option<&Path>, say: impl Fn(&str)) -> Result<ElectionFile, String> {
        let given = || std::env::var_os(STATE_DIRECTORY).map(|directory| PathBuf::from(directory).join("election"));
        let place = configured.map(Path::to_owned).or_else(given);
        let stored = place.as_deref().map_or(Ok(0), |place| read(place, say))?;
        Ok(ElectionFile { place, stored })
    }

    /// The number in the file; 0: none.
    pub fn newest(&self) -> u64 {
        self.stored
    }

    /// Stores a greater number. After a crash, the file has the old or the new one.
    ///
    /// # Errors
    /// It is not stored. The number is not tried again, because each order would try it; the next election is.
    pub fn store(&mut self, newest: u64) -> Result<(), String> {
        let Some(place) = self.place.as_ref().filter(|_| newest > self.stored) else { return Ok(()) };
        self.stored = newest;
        replace(place, newest).map_err(|problem| {
            format!("{}: the number of the election is not stored there: {problem}", place.display())
        })
    }
}

fn read(place: &Path, say: impl Fn(&str)) -> Result<u64, String> {
    let text = match fs::read_to_string(place) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(problem) => {
            return Err(format!("{}: {problem}; a file with the number of an election was expected", place.display()))
        }
        Ok(text) => text,
    };
    Ok(text.trim().parse().unwrap_or_else(|_| {
        let place = place.display();
        say(&format!(
            "{place}: has no number of an election; until a controller welcomes the agent, it obeys any leader"
        ));
        0
    }))
}

fn replace(place: &Path, newest: u64) -> io::Result<()> {
    let fresh = place.with_extension("new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{newest}")?;
    file.sync_data()?;
    fs::rename(fresh, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_knows_the_newest_election() {
        let place = std::env::temp_dir().join(format!("pathloom-election-{}", std::process::id()));
        let _ = fs::remove_file(&place);
        let silent = |line: &str| panic!("{line}");
        let mut file = ElectionFile::open(Some(&place), silent).unwrap();
        assert_eq!((file.newest(), place.exists()), (0, false));
        file.store(812).unwrap();
        // An order of an earlier leader changes nothing.
        file.store(811).unwrap();
        assert_eq!(ElectionFile::open(Some(&place), silent).unwrap().newest(), 812);
        fs::write(&place, "many").unwrap();
        let said = std::cell::Cell::new(0);
        assert_eq!(ElectionFile::open(Some(&place), |_| said.set(said.get() + 1)).unwrap().newest(), 0);
        assert_eq!(said.get(), 1);
        fs::remove_file(&place).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_or_written_is_named() {
        let problem = ElectionFile::open(Some(Path::new("/")), |_| ()).err().unwrap();
        assert!(problem.starts_with("/: ") && problem.contains("was expected"), "{problem}");
        let mut file = ElectionFile::open(Some(Path::new("/nowhere/election")), |_| ()).unwrap();
        assert!(file.store(1).unwrap_err().contains("/nowhere/election"));
        assert_eq!(file.store(1), Ok(()), "it is said once");
    }
}
