//! State that survives a restart: the number of the start, the controller's snapshot, known hosts and port numbers.

use pathloom_control::{Snapshot, StoredDrains, Target};
use pathloom_discovery::{KnownHost, Mac, Place};
use pathloom_model::Fabric;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const SNAPSHOT: &str = "snapshot.json";

/// Access to the directory of the stored state, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Persist {
    directory: Option<PathBuf>,
}

impl Persist {
    pub(crate) fn new(directory: Option<PathBuf>) -> Persist {
        Persist { directory }
    }

    /// Number of this start: the stored one plus 1. It is 1 at the first start in a directory, and a time in seconds
    /// if there is no directory or the stored number is unreadable. Without a directory, two starts have the same
    /// number only if they are a multiple of 65,536 s apart.
    pub(crate) fn next_epoch(&self) -> io::Result<u16> {
        let Some(directory) = &self.directory else { return Ok(seconds()) };
        std::fs::create_dir_all(directory)?;
        let path = directory.join("epoch");
        let last = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<u16>().ok();
        let next = match read_if_there(&path)? {
            None => 1,
            Some(bytes) => last(&bytes).map_or_else(
                || {
                    // Rules of flows of earlier starts may still exist, and their identifiers must not be reused.
                    tracing::warn!(path = %path.display(), "the number of the last start cannot be read");
                    seconds()
                },
                |last| last.wrapping_add(1),
            ),
        };
        replace(&path, next.to_string().as_bytes())?;
        Ok(next)
    }

    /// Returns the stored snapshot. An invalid one is renamed; rules in the switches are still adopted.
    ///
    /// # Errors
    /// There is a snapshot, but the system cannot read it.
    pub(crate) fn load(&self) -> io::Result<Stored> {
        let Some(directory) = &self.directory else { return Ok(Stored::default()) };
        let Some(bytes) = read_if_there(&directory.join(SNAPSHOT))? else { return Ok(Stored::default()) };
        Ok(match serde_json::from_slice::<Snapshot>(&bytes) {
            Ok(snapshot) => Stored { drains: Some(snapshot.drains()), snapshot: Some(snapshot) },
            Err(problem) => {
                self.rename_unusable(&problem);
                Stored { drains: serde_json::from_slice(&bytes).ok(), snapshot: None }
            }
        })
    }

    /// Renames an unusable snapshot, so that the next one does not replace it.
    pub(crate) fn rename_unusable(&self, problem: &dyn std::fmt::Display) {
        let Some(directory) = &self.directory else { return };
        let aside = directory.join("snapshot.refused.json");
        let moved = std::fs::rename(directory.join(SNAPSHOT), &aside);
        let place = moved.map_or_else(|why| why.to_string(), |()| aside.display().to_string());
        tracing::warn!(
            %problem,
            place,
            "the stored snapshot is unusable and was renamed; the controller starts without it"
        );
    }

    /// Whether state is stored.
    pub(crate) fn is_enabled(&self) -> bool {
        self.directory.is_some()
    }

    /// Stores a snapshot. After a crash, either the previous one or this one remains.
    pub(crate) fn save(&self, snapshot: &Snapshot) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join(SNAPSHOT), snapshot);
    }

    /// Stores the known hosts.
    pub(crate) fn save_hosts(&self, hosts: impl Iterator<Item = KnownHost>) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join("hosts.json"), &rows_of(hosts));
    }

    /// Stores the port numbers of switches that differ from the fabric's.
    pub(crate) fn save_wiring(&self, rows: &[(u64, u32, u32)]) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join("wiring.json"), &rows);
    }

    /// The stored port numbers: datapath identifier, the switch's number and the fabric's. Without them, discovery
    /// finds the numbers again.
    pub(crate) fn load_wiring(&self) -> Vec<(u64, u32, u32)> {
        let text = self.directory.as_ref().and_then(|directory| std::fs::read(directory.join("wiring.json")).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The stored hosts. Discovery checks whether they still exist, so an unreadable file does little harm.
    pub(crate) fn load_hosts(&self) -> Vec<KnownHost> {
        let text = self.directory.as_ref().and_then(|directory| std::fs::read(directory.join("hosts.json")).ok());
        let rows: Vec<Row> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        hosts_of(rows)
    }
}

/// Hosts as they are stored.
pub(crate) fn rows_of(hosts: impl Iterator<Item = KnownHost>) -> Vec<Row> {
    hosts.map(|host| (host.address, host.mac.0, host.place.dpid.0, host.place.port.0)).collect()
}

/// Stored hosts.
pub(crate) fn hosts_of(rows: Vec<Row>) -> Vec<KnownHost> {
    let host = |(address, mac, dpid, port)| KnownHost { address, mac: Mac(mac), place: Place::new(dpid, port) };
    rows.into_iter().map(host).collect()
}

/// What is left of an earlier start.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// The snapshot, if this version can read it.
    pub snapshot: Option<Snapshot>,
    /// What was out of service. Every version can read this part of a snapshot.
    pub drains: Option<StoredDrains>,
}

/// Returns what must be taken out of service again, because its snapshot was not restored.
pub(crate) fn out_of_service(drains: &StoredDrains, fabric: &Fabric) -> Vec<Target> {
    let targets = drains.targets();
    if drains.is_of(fabric) {
        let exists = |target: &Target| match target {
            Target::Switch(switch) => switch.index() < fabric.nodes().len(),
            Target::Cable(link) => link.index() < fabric.links().len(),
        };
        return targets.into_iter().filter(exists).collect();
    }
    if !targets.is_empty() {
        let lost = targets.len();
        tracing::warn!(lost, "links and switches of another fabric were out of service: drain those of this one");
    }
    Vec::new()
}

/// A host: its address, hardware address, switch and port.
pub(crate) type Row = (Ipv4Addr, [u8; 6], u64, u32);

fn write(path: &Path, what: &impl serde::Serialize) {
    let done = serde_json::to_vec(what).map_err(io::Error::other).and_then(|bytes| replace(path, &bytes));
    if let Err(problem) = done {
        tracing::warn!(path = %path.display(), %problem, "the state was not stored");
    }
}

/// The low bits of the seconds since 1970.
fn seconds() -> u16 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u16
}

/// The content of a file; `None` if there is none.
fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Replaces a file. After a crash or loss of power, either the old or the new content remains, because the bytes are on
/// disk before the file is renamed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_control::Target;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::{LinkId, NodeId};

    /// A directory for one test. Dropping it deletes the directory.
    struct TestDirectory(Persist, PathBuf);

    impl TestDirectory {
        fn new(what: &str) -> TestDirectory {
            let place = std::env::temp_dir().join(format!("pathloom-kept-{what}-{}", std::process::id()));
            TestDirectory(Persist::new(Some(place.clone())), place)
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.1);
        }
    }

    #[test]
    fn starts_are_numbered_and_an_unreadable_number_is_not_reset_to_1() {
        let directory = TestDirectory::new("epoch");
        assert_eq!((directory.0.next_epoch().unwrap(), directory.0.next_epoch().unwrap()), (1, 2));
        std::fs::write(directory.1.join("epoch"), b"").unwrap();
        let before = seconds();
        let next = directory.0.next_epoch().unwrap();
        assert!(next.wrapping_sub(before) < 60, "{next} {before}");
        assert_eq!(directory.0.next_epoch().unwrap(), next.wrapping_add(1));
    }

    #[test]
    fn port_numbers_are_stored() {
        let directory = TestDirectory::new("wiring");
        assert_eq!((Persist::new(None).load_wiring(), directory.0.load_wiring()), (vec![], vec![]));
        directory.0.next_epoch().unwrap();
        directory.0.save_wiring(&[(7, 3, 4), (7, 4, 3)]);
        assert_eq!(directory.0.load_wiring(), [(7, 3, 4), (7, 4, 3)]);
        std::fs::write(directory.1.join("wiring.json"), b"[[7, 3").unwrap();
        assert_eq!(directory.0.load_wiring(), []);
    }

    #[test]
    fn unreadable_snapshot_is_renamed_and_read_errors_are_returned() {
        let kept = TestDirectory::new("snapshot");
        let is_empty = |stored: Stored| stored.snapshot.is_none() && stored.drains.is_none();
        kept.0.next_epoch().unwrap();
        assert!(is_empty(kept.0.load().unwrap()));
        std::fs::write(kept.1.join(SNAPSHOT), b"{\"form\": 2").unwrap();
        assert!(is_empty(kept.0.load().unwrap()));
        assert!(!kept.1.join(SNAPSHOT).exists());
        assert_eq!(std::fs::read(kept.1.join("snapshot.refused.json")).unwrap(), b"{\"form\": 2");
        std::fs::create_dir(kept.1.join(SNAPSHOT)).unwrap();
        assert!(kept.0.load().is_err(), "a directory");
    }

    #[test]
    fn drains_survive_a_snapshot_of_another_version() {
        let (kept, fabric) = (TestDirectory::new("drains"), fabric_from_spec("diamond").unwrap());
        kept.0.next_epoch().unwrap();
        let (spec, nodes) = (fabric.spec(), fabric.nodes().len());
        let text = |spec: &str, last: u64| {
            format!(
                r#"{{"form":9,"fabric":"{spec}","nodes":{nodes},"news":[],"drains":{{"switches":[2],"cables":[4,{last}]}}}}"#
            )
        };
        let load = |text: String| {
            std::fs::write(kept.1.join(SNAPSHOT), text).unwrap();
            let stored = kept.0.load().unwrap();
            assert!(stored.snapshot.is_none(), "this version cannot read it");
            out_of_service(&stored.drains.unwrap(), &fabric)
        };
        let expected = [Target::Switch(NodeId(2)), Target::Cable(LinkId(4))];
        assert_eq!(load(text(spec, 4_000_000)), expected, "the other cable does not exist");
        assert_eq!(load(text("fat-tree", 6)), []);
    }
}
