//! The BPF programs of a daemon, and the directory in a BPF file system that keeps their maps while no process uses
//! them.

use crate::files::remove_file;
use aya::maps::Map;
use aya::{Ebpf, EbpfLoader};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory of pins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pins {
    folder: PathBuf,
}

/// Returns an error if a program is missing, because clang was missing when the daemon was built.
pub fn require(program: &[u8]) -> Result<(), String> {
    if program.is_empty() {
        return Err("this program was built without clang, so it has no BPF programs; build it again with clang".into());
    }
    Ok(())
}

/// Takes a map out of the loaded programs.
pub fn take_map(programs: &mut Ebpf, name: &str) -> Result<Map, String> {
    programs.take_map(name).ok_or_else(|| format!("the BPF programs have no map {name}"))
}

impl Pins {
    /// Returns the directory of this name in a mounted BPF file system. Nothing is created yet.
    pub fn new(bpf_fs: &Path, name: &str) -> Pins {
        Pins { folder: bpf_fs.join(name) }
    }

    /// Returns the path of a pin.
    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether all these pins exist.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.place(name).exists())
    }

    /// Loads compiled programs. They share the maps with these names with earlier and later processes.
    pub fn load(&self, programs: &[u8], maps: &[&str]) -> Result<Ebpf, Box<dyn Error>> {
        require(programs)?;
        fs::create_dir_all(&self.folder).map_err(|problem| format!("{}: {problem}", self.folder.display()))?;
        let mut loader = EbpfLoader::new();
        for name in maps {
            loader.map_pin_path(name, self.place(name));
        }
        Ok(loader.load(programs)?)
    }

    /// Removes these pins and the directory. Returns whether the directory existed.
    pub fn remove<'a>(&self, names: impl IntoIterator<Item = &'a &'a str>) -> io::Result<bool> {
        names.into_iter().try_for_each(|name| remove_file(&self.place(name)))?;
        match fs::remove_dir(&self.folder) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
            done => done.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_removed_and_other_files_stay() {
        let beside = std::env::temp_dir().join(format!("pathloom-pins-{}", std::process::id()));
        let pins = Pins::new(&beside, "switch-1");
        assert!(!pins.remove(&["paths", "ports"]).unwrap(), "there was none");
        fs::create_dir_all(beside.join("switch-1")).unwrap();
        fs::write(pins.place("paths"), b"").unwrap();
        assert!(pins.has(&["paths"]) && !pins.has(&["paths", "ports"]));
        assert!(pins.remove(&["paths", "ports"]).unwrap());
        assert!(!pins.has(&["paths"]) && beside.exists());
        fs::create_dir_all(beside.join("switch-1")).unwrap();
        fs::write(pins.place("other"), b"").unwrap();
        assert!(pins.remove(&["paths"]).is_err());
        fs::remove_dir_all(&beside).unwrap();
    }

    #[test]
    fn loading_without_programs_fails_and_creates_nothing() {
        let pins = Pins::new(&std::env::temp_dir(), "pathloom-never");
        let problem = pins.load(b"", &["paths"]).unwrap_err().to_string();
        assert!(problem.contains("without clang") && problem.contains("no BPF programs"), "{problem}");
        assert!(!pins.place("").exists());
    }
}
