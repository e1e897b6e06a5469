//! arp-path: switches flood ARP requests; all traffic between two hosts takes the path of the first copy.

use crate::entry::{Entry, EntryInfo};
use crate::program_settings::{parts, read_settings, HOST_KEYS};
use pathloom_switching::programs::{ArpPath, Settings};

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: "arp-path",
        summary: "switches flood ARP requests; all traffic to a host takes the path of the first copy; no controller",
        paper: "TCP-Path paper, §III and [6]",
        keys: &HOST_KEYS,
    },
    read: |spec| parts(spec, read_settings(spec, Settings::default(), false)?, None, ArpPath::new),
};
