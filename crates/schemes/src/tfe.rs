//! tfe: tcp-path for elephants only, which hosts mark; arp-path forwards all other traffic.

use crate::entry::{Entry, EntryInfo};
use crate::program_settings::{
    parts, read_settings, AGE, ARP, ARP_RETRY, EXPLORATIONS, FLOOD, HELLO, HOST_AGE, JITTER, LOCK, RECOVERY, TABLE,
};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::LONG_FLOW_DSCP;
use pathloom_switching::deployment::{Mark, Marking};
use pathloom_switching::programs::{Elephants, Settings, TcpPath};
use std::ops::RangeInclusive;

/// Transfers of more than this many bytes are elephants (tcp-path.txt §IV).
const ABOVE_BYTES: u64 = 10_000_000;
/// Source ports of elephants, as in the ns-3 model by the authors.
const PORTS: RangeInclusive<u16> = 3500..=4500;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: "tfe",
        summary: "tcp-path for connections that hosts mark as elephants; arp-path for all others; no controller",
        paper: "TCP-Path paper, §IV",
        keys: &[
            ("elephant", "10MB", "hosts mark transfers that are larger than this size"),
            ("mark", "ports", "how hosts mark them: ports (by source port) or dscp (by the code point of long flows)"),
            ("ports", "3500-4500", "source ports of elephants, which other transfers must not use; with mark=ports"),
            HELLO,
            LOCK,
            AGE,
            HOST_AGE,
            RECOVERY,
            (FLOOD.0, "down", FLOOD.2),
            TABLE,
            EXPLORATIONS,
            ARP,
            ARP_RETRY,
            JITTER,
        ],
    },
    read: |spec| {
        let above_bytes = spec.size_bytes("elephant")?.unwrap_or(ABOVE_BYTES);
        let by_dscp = spec.choice("mark", &[("ports", false), ("dscp", true)])?.unwrap_or(false);
        let ports = source_ports(spec)?;
        if by_dscp && ports.is_some() {
            return Err(spec.error("ports has no meaning with mark=dscp; leave out one of them"));
        }
        let (elephants, mark) = match by_dscp {
            true => (Elephants { source_ports: None, dscp: Some(LONG_FLOW_DSCP) }, Mark::Dscp(LONG_FLOW_DSCP)),
            false => {
                let ports = ports.unwrap_or(PORTS);
                (Elephants { source_ports: Some(ports.clone()), dscp: None }, Mark::SourcePorts(ports))
            }
        };
        let settings = read_settings(spec, Settings::for_elephants(), true)?;
        parts(spec, settings, Some(Marking { above_bytes, mark }), move |now, identity, settings| {
            TcpPath::elephants(now, identity, settings, elephants.clone())
        })
    },
};

/// Reads the key `ports`: two port numbers below the ephemeral ones, from which hosts draw the ports of other
/// transfers.
fn source_ports(spec: &Spec) -> Result<Option<RangeInclusive<u16>>, SpecError> {
    let Some(text) = spec.text_of("ports") else { return Ok(None) };
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| (1024..32_768).contains(port) && *port != 5001);
    let ends = text.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?)));
    match ends {
        Some((first, last)) if first <= last && !(first..=last).contains(&5001) => Ok(Some(first..=last)),
        _ => Err(spec.error(format!(
            "ports: `{text}` is not a range of source ports; expected two numbers from 1024 to 32767 without 5001, \
             the port on which hosts listen, such as 3500-4500"
        ))),
    }
}
