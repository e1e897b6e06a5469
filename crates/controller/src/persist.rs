//! What survives a restart: the number of the start, and what the controller remembers.

use pathloom_control::Snapshot;
use pathloom_discovery::{KnownHost, Mac, Place};
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const SNAPSHOT: &str = "snapshot.json";

/// A place for it.
#[derive(Clone, Debug)]
pub(crate) struct Persist {
    directory: Option<PathBuf>,
}

impl Persist {
    pub(crate) fn new(directory: Option<PathBuf>) -> Persist {
        Persist { directory }
    }

    /// Number of this start: one more than that of the last, or seconds where none is kept. Two starts in a row never
    /// have the same, unless one is just 65,536 s after the other and none is kept.
    pub(crate) fn next_epoch(&self) -> io::Result<u16> {
        let Some(directory) = &self.directory else { return Ok(seconds()) };
        std::fs::create_dir_all(directory)?;
        let path = directory.join("epoch");
        let last = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<u16>().ok();
        let next = match read_if_there(&path)? {
            None => 1,
            Some(bytes) => last(&bytes).map_or_else(
                || {
                    // Flows of earlier starts may still stand by their names, which must not be given again.
                    tracing::warn!(path = %path.display(), "the number of the last start cannot be read");
                    seconds()
                },
                |last| last.wrapping_add(1),
            ),
        };
        replace(&path, next.to_string().as_bytes())?;
        Ok(next)
    }

    /// What was kept. What makes no sense is set aside: what stands in the switches is adopted all the same.
    ///
    /// # Errors
    /// There is something, and the system does not let it be read.
    pub(crate) fn load(&self) -> io::Result<Option<Snapshot>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let Some(bytes) = read_if_there(&directory.join(SNAPSHOT))? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        Ok(read.map_err(|problem| self.set_aside(&problem)).ok())
    }

    /// Puts a snapshot that is of no use where the next one does not replace it.
    pub(crate) fn set_aside(&self, problem: &dyn std::fmt::Display) {
        let Some(directory) = &self.directory else { return };
        let aside = directory.join("snapshot.refused.json");
        let moved = std::fs::rename(directory.join(SNAPSHOT), &aside);
        let place = moved.map_or_else(|why| why.to_string(), |()| aside.display().to_string());
        tracing::warn!(%problem, place, "what was kept is of no use and was set aside; going on without");
    }

    /// Whether anything is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.directory.is_some()
    }

    /// Keeps a snapshot. A crash leaves the last one or this one.
    pub(crate) fn save(&self, snapshot: &Snapshot) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join(SNAPSHOT), snapshot);
    }

    /// Keeps the hosts that are there.
    pub(crate) fn save_hosts(&self, hosts: impl Iterator<Item = KnownHost>) {
        let Some(directory) = &self.directory else { return };
        let rows: Vec<Row> =
            hosts.map(|host| (host.address, host.mac.0, host.place.dpid.0, host.place.port.0)).collect();
        write(&directory.join("hosts.json"), &rows);
    }

    /// Keeps the numbers of ports of switches that are not the fabric's.
    pub(crate) fn save_wiring(&self, rows: &[(u64, u32, u32)]) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join("wiring.json"), &rows);
    }

    /// These numbers: datapath identifier, the switch's number and the fabric's. They are found anew where there are
    /// none.
    pub(crate) fn load_wiring(&self) -> Vec<(u64, u32, u32)> {
        let text = self.directory.as_ref().and_then(|directory| std::fs::read(directory.join("wiring.json")).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The hosts that were there. They are asked whether they still are, so a file that cannot be read costs little.
    pub(crate) fn load_hosts(&self) -> Vec<KnownHost> {
        let text = self.directory.as_ref().and_then(|directory| std::fs::read(directory.join("hosts.json")).ok());
        let rows: Vec<Row> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let host = |(address, mac, dpid, port)| KnownHost { address, mac: Mac(mac), place: Place::new(dpid, port) };
        rows.into_iter().map(host).collect()
    }
}

/// A host: its address, hardware address, switch and port.
type Row = (Ipv4Addr, [u8; 6], u64, u32);

fn write(path: &Path, what: &impl serde::Serialize) {
    let done = serde_json::to_vec(what).map_err(io::Error::other).and_then(|bytes| replace(path, &bytes));
    if let Err(problem) = done {
        tracing::warn!(path = %path.display(), %problem, "the state was not kept");
    }
}

/// Seconds since 1970, as far as they go.
fn seconds() -> u16 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u16
}

/// What a file holds; `None` where there is none.
fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// A crash leaves what was there or what is new; so does a loss of power, because the bytes are there before the name
/// is.
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

    /// A place of the test's own, gone with it.
    struct Kept(Persist, PathBuf);

    impl Kept {
        fn new(what: &str) -> Kept {
            let place = std::env::temp_dir().join(format!("pathloom-kept-{what}-{}", std::process::id()));
            Kept(Persist::new(Some(place.clone())), place)
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.1);
        }
    }

    #[test]
    fn starts_are_numbered_and_a_number_that_is_lost_does_not_begin_again() {
        let kept = Kept::new("epoch");
        assert_eq!((kept.0.next_epoch().unwrap(), kept.0.next_epoch().unwrap()), (1, 2));
        std::fs::write(kept.1.join("epoch"), b"").unwrap();
        let before = seconds();
        let next = kept.0.next_epoch().unwrap();
        assert!(next.wrapping_sub(before) < 60, "{next} {before}");
        assert_eq!(kept.0.next_epoch().unwrap(), next.wrapping_add(1));
    }

    #[test]
    fn numbers_of_ports_are_kept() {
        let kept = Kept::new("wiring");
        assert_eq!((Persist::new(None).load_wiring(), kept.0.load_wiring()), (vec![], vec![]));
        kept.0.next_epoch().unwrap();
        kept.0.save_wiring(&[(7, 3, 4), (7, 4, 3)]);
        assert_eq!(kept.0.load_wiring(), [(7, 3, 4), (7, 4, 3)]);
        std::fs::write(kept.1.join("wiring.json"), b"[[7, 3").unwrap();
        assert_eq!(kept.0.load_wiring(), []);
    }

    #[test]
    fn what_cannot_be_read_is_set_aside_and_what_may_not_be_read_is_said() {
        let kept = Kept::new("snapshot");
        kept.0.next_epoch().unwrap();
        assert!(kept.0.load().unwrap().is_none());
        std::fs::write(kept.1.join(SNAPSHOT), b"{\"form\": 2").unwrap();
        assert!(kept.0.load().unwrap().is_none());
        assert!(!kept.1.join(SNAPSHOT).exists());
        assert_eq!(std::fs::read(kept.1.join("snapshot.refused.json")).unwrap(), b"{\"form\": 2");
        std::fs::create_dir(kept.1.join(SNAPSHOT)).unwrap();
        assert!(kept.0.load().is_err(), "a directory");
    }
}
