//! What one start leaves to the next, as a file. It is written whenever it changes, because a process that is killed has no
//! time to do so.

use pathloom_switching::Saved;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The contents of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Start of the machine: what the kernel forwards does not outlive it.
    pub machine: String,
    /// Protocol and address, by which another switch would be told apart.
    pub protocol: String,
    pub mac: String,
    /// Number of the start that neighbours know.
    pub boot: u64,
    /// The tables.
    pub saved: Saved,
}

/// Where the file is.
pub fn place(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// Names this start of the machine.
pub fn machine() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// What an earlier start of this switch has left; `None` if there is nothing that can be used.
pub fn load(directory: &Path, protocol: &str, mac: &str) -> Option<State> {
    let state: State = serde_json::from_str(&fs::read_to_string(place(directory)).ok()?).ok()?;
    (state.machine == machine() && state.protocol == protocol && state.mac == mac).then_some(state)
}

/// Writes the file: wholly, or not at all.
pub fn store(directory: &Path, state: &State) -> io::Result<()> {
    let partial = directory.join("state.json.partial");
    fs::write(&partial, serde_json::to_vec(state)?)?;
    fs::rename(partial, place(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{Mac, PortNo, Tier};
    use pathloom_switching::{SavedHost, SavedNeighbour};

    #[test]
    fn another_switch_protocol_or_machine_takes_nothing_over() {
        let directory = std::env::temp_dir().join(format!("pathloom-switch-state-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let neighbour = SavedNeighbour {
            port: PortNo(3),
            switch: Mac([6; 6]),
            its_port: PortNo(1),
            boot: 9,
            tier: Some(Tier::Core),
        };
        let host = SavedHost { mac: Mac([2; 6]), port: PortNo(1), number: 77, local: true };
        let saved = Saved { last_number: 78, neighbours: vec![neighbour], hosts: vec![host], ..Saved::default() };
        let state = State { machine: machine(), protocol: "tcp-path".into(), mac: "02".into(), boot: u64::MAX, saved };
        store(&directory, &state).unwrap();
        assert_eq!(load(&directory, "tcp-path", "02"), Some(state.clone()));
        assert_eq!(load(&directory, "arp-path", "02"), None);
        assert_eq!(load(&directory, "tcp-path", "04"), None);
        store(&directory, &State { machine: "another".into(), ..state }).unwrap();
        assert_eq!(load(&directory, "tcp-path", "02"), None);
        fs::write(place(&directory), "{\"machine\":").unwrap();
        assert_eq!(load(&directory, "tcp-path", "02"), None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
