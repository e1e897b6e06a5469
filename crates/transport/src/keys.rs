//! The list of all transports with their keys.

use crate::listing::{key, TransportKey, TransportName};
use crate::window::laws;
use crate::{mptcp, roce, uec};

/// The keys of windows and time-outs that every TCP transport has.
const WINDOW_KEYS: &[TransportKey] = &[
    key("iw", "12KB", "initial congestion window", "RFC 5681 §3.1; the value of the OFPT and LESSOR papers"),
    key(
        "rwnd",
        "16MiB",
        "receive window, which limits the unacknowledged bytes: a size, or auto: 64 KiB at first, and up to 3 MiB if a \
         receiver reads more in a round trip; Linux: auto",
        "RFC 9293 §3.8; Fisk, Feng 2001",
    ),
    key("ssthresh", "none", "initial slow-start threshold, a size; none means no limit", "RFC 5681 §3.1"),
    key(
        "mss",
        "1448B",
        "payload of a full segment, 100 B or more",
        "Ethernet's 1500 B less IPv4 and TCP with time stamps",
    ),
    key(
        "min_rto",
        "200ms",
        "minimum retransmission time-out; simulator default: at most four times the longest round trip",
        "RFC 6298 §2.4; Linux's value",
    ),
    key("max_rto", "60s", "maximum retransmission time-out", "RFC 6298 §2.5"),
    key("initial_rto", "1s", "time-out before the first RTT sample, mainly for the SYN", "RFC 6298 §2.1"),
];

/// The keys of every TCP transport for what its hosts send, and when.
const HOST_KEYS: &[TransportKey] = &[
    key("acks", "2", "full segments per acknowledgement, 1 to 64; 1 acknowledges each", "RFC 5681 §4.2"),
    key("delayed_ack", "40ms", "longest delay of an acknowledgement", "RFC 5681 §4.2; Linux's value"),
    key(
        "handshake",
        "auto",
        "which transfers begin with a SYN exchange: auto all but those of collectives and training jobs, whose \
         connections stand; on all; off none",
        "RFC 9293 §3.5; NCCL connects when a job begins",
    ),
    key("limited_transmit", "on", "whether the first two duplicate acknowledgements allow new segments", "RFC 3042"),
    key(
        "impatient",
        "on",
        "whether only the first partial acknowledgement restarts the timer; Linux: off",
        "RFC 6582 §4",
    ),
    key("small_queues", "on", "at most two segments per connection in the network card", "Linux, TCP small queues"),
    key("byte_counting", "off", "whether slow start counts bytes instead of acknowledgements; Linux: on", "RFC 3465"),
    key(
        "jitter",
        "none",
        "a host whose card is idle delays a packet for up to this time, which avoids phase effects; none means \
         the time of a full frame at the rate of the card, 0s means exact times",
        "Floyd, Jacobson 1992",
    ),
    key(
        "timers",
        "coarse",
        "when a retransmission timer expires: coarse at the next tick of its host's clock, at most an eighth of the \
         time-out later; exact at once",
        "Linux, kernel/time/timer.c",
    ),
    key("pace", "none", "maximum rate of frames into the network card, a rate; none means no limit", "this project"),
];

/// Returns the keys of every TCP transport for how losses are detected, with the default of `sack`.
fn loss_keys(sack: bool) -> [TransportKey; 3] {
    [
        key(
            "sack",
            if sack { "on" } else { "off" },
            "whether recovery uses selective acknowledgements; off: duplicate ones (RFC 6582)",
            "RFC 2018, RFC 6675",
        ),
        key(
            "rack",
            "on",
            "whether losses are also detected by time, and the end of a flight is probed; needs sack, and no reordering",
            "RFC 8985; Linux's default",
        ),
        key(
            "reordering",
            "none",
            "segments that must arrive after a missing one before it counts as lost, or window: as many as are in \
             flight; none means 3, or what the scheme sets",
            "RFC 5681 §3.2; RFC 4653 §3.1",
        ),
    ]
}

/// Returns the keys of every TCP transport, with the default of `sack`.
fn tcp_keys(sack: bool) -> Vec<TransportKey> {
    [WINDOW_KEYS, HOST_KEYS, &loss_keys(sack)].concat()
}

/// The key that transports have if they react to congestion marks.
const MARK: TransportKey = key(
    "mark",
    "none",
    "queued packets at a port from which arrivals are marked; none means 20 up to 1 Gbit/s, 65 above, or \
     a seventh of the packets of the longest round trip if that is more; at most half of the buffer",
    "RFC 8257 §3.1; Alizadeh et al. 2010",
);

/// Returns all transports with their keys: TCP with each congestion control, MPTCP, and those that acknowledge packets.
pub fn transports() -> Vec<TransportName> {
    let tcp = laws::entries().map(|law| {
        let mark = law.reacts_to_marks.then_some(MARK);
        let keys = tcp_keys(law.sack).into_iter().chain(law.keys.iter().copied()).chain(mark).collect();
        TransportName { name: law.name, about: law.about, source: law.source, keys }
    });
    let mptcp = TransportName {
        name: mptcp::NAME,
        about: "MPTCP: each connection sends over several subflows, with coupled windows",
        source: "RFC 8684, RFC 6356",
        keys: [tcp_keys(true).as_slice(), mptcp::KEYS].concat(),
    };
    let packets = uec::laws::ENTRIES.iter().map(|entry| TransportName {
        name: entry.name,
        about: entry.about,
        source: entry.source,
        keys: uec::keys(entry),
    });
    let roce = TransportName { name: roce::NAME, about: roce::ABOUT, source: roce::SOURCE, keys: roce::keys() };
    let hpcc =
        TransportName { name: roce::HPCC, about: roce::HPCC_ABOUT, source: roce::HPCC_SOURCE, keys: roce::hpcc_keys() };
    tcp.chain([mptcp]).chain(packets).chain([roce, hpcc]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransportSpec;

    #[test]
    fn listed_defaults_match_the_parser() {
        for transport in transports() {
            let plain = TransportSpec::parse(transport.name).unwrap();
            assert_eq!(plain.name(), transport.name);
            for key in transport.keys.iter().filter(|key| key.default != "none") {
                let text = format!("{}:{}={}", transport.name, key.name, key.default);
                assert_eq!(TransportSpec::parse(&text).unwrap(), plain, "{text}");
            }
        }
    }

    #[test]
    fn every_key_is_listed() {
        for transport in transports() {
            let error = TransportSpec::parse(&format!("{}:no_such_key=1", transport.name)).unwrap_err().to_string();
            let known = error.split("(known: ").nth(1).and_then(|rest| rest.strip_suffix(')')).unwrap();
            let mut listed: Vec<&str> = transport.keys.iter().map(|key| key.name).collect();
            listed.sort_unstable();
            assert_eq!(known.split(", ").collect::<Vec<_>>(), listed);
        }
        let error = TransportSpec::parse("no-such-transport").unwrap_err().to_string();
        let names: Vec<&str> = transports().iter().map(|transport| transport.name).collect();
        assert!(error.ends_with(&format!("(known: {})", names.join(", "))), "{error}");
    }
}
