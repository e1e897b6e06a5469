//! tcp-path: switches flood the SYN of each connection, and the connection takes the path of the first copy.

use crate::entry::{Entry, EntryInfo};
use crate::program_settings::{
    parts, read_settings, AGE, ARP, ARP_RETRY, EXPLORATIONS, FLOOD, HELLO, HOST_AGE, JITTER, LOCK, RECOVERY, TABLE,
};
use pathloom_switching::programs::{Selection, Settings, TcpPath};

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: "tcp-path",
        summary: "switches flood the SYN of each connection, which takes the path of the first copy; no controller",
        paper: "TCP-Path paper, §III",
        keys: &[HELLO, LOCK, AGE, HOST_AGE, RECOVERY, FLOOD, TABLE, EXPLORATIONS, ARP, ARP_RETRY, JITTER],
    },
    read: |spec| {
        let settings = read_settings(spec, Settings::default(), true)?;
        parts(spec, settings, None, |now, identity, settings| TcpPath::new(now, identity, settings, Selection::AllTcp))
    },
};
