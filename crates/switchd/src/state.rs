//! The state file, which one start of the switch leaves for the next. It is written after each change, because a killed
//! process cannot write it.

use pathloom_switching::Saved;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The contents of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Boot identifier of the machine. After a reboot, the kernel does not forward the old flows any more.
    pub machine: String,
    /// Protocol and Ethernet address. If they differ, the file belongs to another switch.
    pub protocol: String,
    pub mac: String,
    /// Start number that the neighbours know.
    pub boot: u64,
    /// The tables.
    pub saved: Saved,
}

/// Returns the path of the file.
pub fn place(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// Returns the boot identifier of the machine.
pub fn machine() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Reads the state that an earlier start of this switch has left. `None` if there is no usable state.
pub fn load(directory: &Path, protocol: &str, mac: &str) -> Option<State> {
    let state: State = serde_json::from_str(&fs::read_to_string(place(directory)).ok()?).ok()?;
    (state.machine == machine() && state.protocol == protocol && state.mac == mac).then_some(state)
}

/// Writes the file atomically.
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
    fn state_of_another_switch_protocol_or_boot_is_ignored() {
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
