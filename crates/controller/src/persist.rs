//! What survives a restart: the number of the start, and what the controller remembers.

use pathloom_control::Snapshot;
use pathloom_discovery::{KnownHost, Mac, Place};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A place for it.
#[derive(Clone, Debug)]
pub(crate) struct Persist {
    directory: Option<PathBuf>,
}

impl Persist {
    pub(crate) fn new(directory: Option<PathBuf>) -> Persist {
        Persist { directory }
    }

    /// Number of this start: one more than that of the last, or seconds where nothing is kept. Two starts in a row never
    /// have the same, unless one is just 65,536 s after the other and nothing is kept.
    pub(crate) fn next_epoch(&self) -> io::Result<u16> {
        let Some(directory) = &self.directory else {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Ok(since.as_secs() as u16);
        };
        std::fs::create_dir_all(directory)?;
        let path = directory.join("epoch");
        let last = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u16>().ok());
        let next = last.unwrap_or(0).wrapping_add(1);
        replace(&path, next.to_string().as_bytes())?;
        Ok(next)
    }

    /// What was kept. A file that cannot be read is none: what stands in the switches is adopted all the same.
    pub(crate) fn load(&self) -> Option<Snapshot> {
        let path = self.directory.as_ref()?.join("snapshot.json");
        let text = std::fs::read(&path).ok()?;
        match serde_json::from_slice(&text) {
            Ok(snapshot) => Some(snapshot),
            Err(problem) => {
                tracing::warn!(path = %path.display(), %problem, "what was kept cannot be read; going on without");
                None
            }
        }
    }

    /// Whether anything is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.directory.is_some()
    }

    /// Keeps a snapshot. A crash leaves the last one or this one.
    pub(crate) fn save(&self, snapshot: &Snapshot) {
        let Some(directory) = &self.directory else { return };
        write(&directory.join("snapshot.json"), snapshot);
    }

    /// Keeps the hosts that are there.
    pub(crate) fn save_hosts(&self, hosts: impl Iterator<Item = KnownHost>) {
        let Some(directory) = &self.directory else { return };
        let rows: Vec<Row> =
            hosts.map(|host| (host.address, host.mac.0, host.place.dpid.0, host.place.port.0)).collect();
        write(&directory.join("hosts.json"), &rows);
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

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(&fresh, path)
}
