//! The available transports and their keys, for listings.

/// A key of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportKey {
    /// Name of the key, before the `=`.
    pub name: &'static str,
    /// Default as text. `none` means that the default applies only if the key is left out.
    pub default: &'static str,
    /// What the key sets, in one line.
    pub about: &'static str,
    /// Source of the key or of its default.
    pub source: &'static str,
}

/// A transport that hosts can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportName {
    /// Name of the transport, before the `:`.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Where the transport is published.
    pub source: &'static str,
    /// Keys of the transport.
    pub keys: &'static [TransportKey],
}

const fn key(name: &'static str, default: &'static str, about: &'static str, source: &'static str) -> TransportKey {
    TransportKey { name, default, about, source }
}

/// The keys of every TCP transport, with the default of `sack`, and the transport's additional keys.
macro_rules! keys_of_tcp {
    ($sack:literal $(, $own:expr)*) => {
        &[
            key("iw", "12KB", "initial congestion window", "RFC 5681 §3.1; the value of the OFPT and LESSOR papers"),
            key("rwnd", "16MiB", "receive window, which limits the unacknowledged bytes", "RFC 9293 §3.8"),
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
            key(
                "pace",
                "none",
                "maximum rate of frames into the network card, a rate; none means no limit",
                "this project",
            ),
            key(
                "sack",
                $sack,
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
            $($own,)*
        ]
    };
}

const TRANSPORTS: [TransportName; 5] = [
    TransportName {
        name: "newreno",
        about: "TCP with NewReno congestion control and loss recovery",
        source: "RFC 5681, RFC 6582, RFC 6298",
        keys: keys_of_tcp!("off"),
    },
    TransportName {
        name: "cubic",
        about: "TCP with CUBIC congestion control, Linux's default, without HyStart",
        source: "RFC 9438, RFC 6675, RFC 6298",
        keys: keys_of_tcp!("on"),
    },
    TransportName {
        name: "dctcp",
        about: "Data Center TCP: links mark packets above a threshold; the window falls by the share of marks",
        source: "RFC 8257, RFC 6675, RFC 6298",
        keys: keys_of_tcp!(
            "on",
            key("gain", "0.0625", "weight of a new sample in the estimated share of marks, 0 to 1", "RFC 8257 §4.2"),
            key(
                "mark",
                "none",
                "queued packets at a port from which arrivals are marked; none means 20 up to 1 Gbit/s, 65 above, or \
                 a seventh of the packets of the longest round trip if that is more; at most half of the buffer",
                "RFC 8257 §3.1; Alizadeh et al. 2010",
            )
        ),
    },
    TransportName {
        name: "mptcp",
        about: "MPTCP: each connection sends over several subflows, with coupled windows",
        source: "RFC 8684, RFC 6356",
        keys: keys_of_tcp!(
            "on",
            key("subflows", "4", "subflows per pair of addresses, 1 to 64", "RFC 8684 §2"),
            key(
                "cc",
                "lia",
                "how windows grow: lia or olia coupled; uncoupled (NewReno) or cubic independently",
                "RFC 6356; Khalili et al. 2012; RFC 5681; RFC 9438",
            ),
            key(
                "manager",
                "ndiffports",
                "addresses of subflows: ndiffports the first two, with other ports; fullmesh every pair of the two hosts",
                "RFC 8684 §3.2; the path managers of the Linux MPTCP project",
            ),
            key(
                "scheduler",
                "lowest-rtt",
                "which subflow with room sends next: lowest-rtt or round-robin",
                "Linux's default; Paasch et al. 2014",
            )
        ),
    },
    TransportName {
        name: "uec",
        about: "Ultra Ethernet: packets take any path in any order and are acknowledged one by one; full queues may trim \
                them (trim=on of the fabric); NSCC controls the window by delay and marks",
        source: "uet-htsim, the simulator of the Ultra Ethernet Consortium",
        keys: &[
            key("mtu", "4150B", "bytes of a full packet, 64 B of headers included; 164 B to 32831 B", "uet-htsim"),
            key(
                "entropy",
                "mixed",
                "how a sender chooses the entropy of each packet, and so its path: single always the same; oblivious all in \
                 turn; bitmap all in turn without those that had marks or trimming; reps and mixed those of unmarked \
                 acknowledgements again, otherwise at random or as bitmap",
                "uet-htsim; Bonato et al. 2024 (REPS)",
            ),
            key("paths", "64", "number of different entropies, a power of two up to 65536", "uet-htsim"),
            key(
                "ack_bytes",
                "none",
                "bytes of packets that arrive between two acknowledgements, a size; none means 1B (each packet) for reps and \
                 mixed, which learn from them, and 16384B for the others",
                "uet-htsim",
            ),
            key(
                "iw",
                "none",
                "initial window, a size; none means the maximum window, 1.5 times the product of rate and round trip",
                "uet-htsim",
            ),
            key(
                "target_delay",
                "none",
                "queueing delay that NSCC aims at, a time; none means three quarters of the round trip with trimming, \
                 otherwise a round trip",
                "uet-htsim",
            ),
            key(
                "rto",
                "none",
                "retransmission time-out, a time; none means 15us and six times the time that a full queue takes to drain",
                "uet-htsim",
            ),
            key("jitter", "0s", "a host whose card is idle delays a packet for up to this time", "Floyd, Jacobson 1992"),
        ],
    },
];

/// Returns all transports with their keys.
pub fn transports() -> &'static [TransportName] {
    &TRANSPORTS
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
