//! Common parts of the schemes without a controller: the keys of their switch programs, and how a fabric runs them.

use crate::entry::{KeyInfo, Parts};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use pathloom_switching::deployment::{Deployment, Marking};
use pathloom_switching::programs::{Identity, Settings};
use pathloom_switching::Program;
use pathloom_transport::TransportSpec;
use std::sync::Arc;

pub(crate) const HELLO: KeyInfo =
    ("hello", "5s", "time between two Hellos of a switch; after three missing Hellos, a neighbour counts as lost");
pub(crate) const LOCK: KeyInfo =
    ("lock", "3s", "life of an unconfirmed entry; late copies of a broadcast are recognised for the same time");
pub(crate) const HOST_AGE: KeyInfo = ("host_age", "300s", "life of an unused entry of a host");
pub(crate) const RECOVERY: KeyInfo = ("recovery", "1s", "time between two recoveries of one path");
pub(crate) const EXPLORATIONS: KeyInfo = (
    "explorations",
    "1000",
    "explorations of connections, and as many broadcasts and repairs, that the port of a host may begin per second",
);
pub(crate) const ARP: KeyInfo =
    ("arp", "60s", "time for which hosts keep resolved addresses; with 0s each connection sends an ARP request");
pub(crate) const ARP_RETRY: KeyInfo =
    ("arp_retry", "1s", "time after which hosts repeat an ARP request without an answer");
pub(crate) const AGE: KeyInfo = ("age", "10s", "life of an unused entry of a connection");
pub(crate) const TABLE: KeyInfo = ("table", "65536", "maximum number of connections in the table of a switch");

pub(crate) const FLOOD: KeyInfo = (
    "flood",
    "all",
    "how switches forward an exploration: all (to every other switch) or down (if from above, to lower tiers only)",
);

pub(crate) const JITTER: KeyInfo =
    ("jitter", "1us", "maximum random delay of a switch for each message to another switch");

/// The keys of ARP-Path.
pub(crate) const HOST_KEYS: [KeyInfo; 9] =
    [HELLO, LOCK, HOST_AGE, RECOVERY, FLOOD, EXPLORATIONS, ARP, ARP_RETRY, JITTER];

/// A neighbour counts as lost after this many missing Hellos.
const MISSED_HELLOS: u64 = 3;
/// Upper limit of the jitter. No switch takes longer for a frame.
const MOST_JITTER: Nanos = Nanos::from_millis(10);
/// Upper limit of connections and of explorations. No switch has more.
const MOST: u64 = 1 << 24;

/// Reads timers and limits; missing ones come from `defaults`. `connections` says whether the program has entries for
/// connections.
pub(crate) fn read_settings(spec: &Spec, defaults: Settings, connections: bool) -> Result<Settings, SpecError> {
    let mut settings = defaults;
    if let Some(hello) = positive(spec, "hello")? {
        settings.hello = Some(hello);
        settings.neighbour_age = Nanos(hello.0.saturating_mul(MISSED_HELLOS));
    }
    settings.lock = positive(spec, "lock")?.unwrap_or(settings.lock);
    settings.host_age = positive(spec, "host_age")?.unwrap_or(settings.host_age);
    settings.recovery_retry = positive(spec, "recovery")?.unwrap_or(settings.recovery_retry);
    let flood = spec.choice("flood", &[("all", false), ("down", true)])?;
    settings.descend_only = flood.unwrap_or(settings.descend_only);
    if let Some(count) = spec.count("explorations", 1, MOST)? {
        (settings.explorations_per_s, settings.broadcasts_per_s) = (count as u32, count as u32);
        settings.unused_explorations_per_s = count as u32;
    }
    if connections {
        settings.connection_age = positive(spec, "age")?.unwrap_or(settings.connection_age);
        if let Some(count) = spec.count("table", 1, MOST)? {
            settings.most_connections = count as usize;
            settings.most_connections_per_port = settings.most_connections_per_port.min(count as usize);
        }
    }
    Ok(settings)
}

fn positive(spec: &Spec, key: &'static str) -> Result<Option<Nanos>, SpecError> {
    match spec.time(key)? {
        Some(Nanos::ZERO) => Err(spec.error(format!("{key} is 0; expected a time, such as 1s"))),
        time => Ok(time),
    }
}

/// A scheme without a central part: its switches run the program that `make` creates, and its hosts run plain TCP.
pub(crate) fn parts<P: Program + Send + 'static>(
    spec: &Spec,
    settings: Settings,
    elephants: Option<Marking>,
    make: impl Fn(Nanos, Identity, Settings) -> P + Send + Sync + 'static,
) -> Result<Parts, SpecError> {
    let arp_age = spec.time("arp")?.unwrap_or(Nanos::from_secs(60));
    let arp_retry = positive(spec, "arp_retry")?.unwrap_or(Nanos::from_secs(1));
    let jitter = spec.time("jitter")?.unwrap_or(Nanos::from_micros(1));
    if jitter > MOST_JITTER {
        return Err(spec.error("jitter is over 10ms; expected a short time, such as 1us"));
    }
    let make = move |now, identity| {
        let mut settings = settings.clone();
        // If the whole fabric starts at once, no older frame is in transit that a switch could mistake for a new one.
        if now == Nanos::ZERO {
            settings.quiet = Nanos::ZERO;
        }
        Box::new(make(now, identity, settings)) as Box<dyn Program + Send>
    };
    let deployment = Some(Deployment { make: Arc::new(make), arp_age, arp_retry, jitter, elephants });
    Ok(Parts { central: None, transport: TransportSpec::default(), deployment, check: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_switching::programs::ArpPath;

    #[test]
    fn documented_defaults_match_the_settings() {
        for (connections, keys) in [(false, HOST_KEYS.to_vec()), (true, [&HOST_KEYS[..], &[AGE, TABLE]].concat())] {
            let text: Vec<String> = keys.iter().map(|(key, default, _)| format!("{key}={default}")).collect();
            let spec = Spec::parse("scheme", &format!("x:{}", text.join(","))).unwrap();
            let read = read_settings(&spec, Settings::default(), connections).unwrap();
            assert_eq!(read, Settings::default());
            let deployment = parts(&spec, read, None, ArpPath::new).unwrap().deployment.unwrap();
            assert_eq!((deployment.arp_age, deployment.arp_retry), (Nanos::from_secs(60), Nanos::from_secs(1)));
            assert_eq!(deployment.jitter, Nanos::from_micros(1));
            assert_eq!(spec.finish(), Ok(()));
        }
    }

    #[test]
    fn timers_of_zero_are_refused() {
        for key in ["hello", "lock", "host_age", "recovery", "age"] {
            let spec = Spec::parse("scheme", &format!("tcp-path:{key}=0s")).unwrap();
            let refused = read_settings(&spec, Settings::default(), true).unwrap_err().to_string();
            assert!(refused.contains(&format!("{key} is 0")), "{refused}");
        }
    }

    #[test]
    fn a_small_table_bounds_each_port() {
        let spec = Spec::parse("scheme", "tcp-path:table=100,hello=2s").unwrap();
        let settings = read_settings(&spec, Settings::default(), true).unwrap();
        assert_eq!((settings.most_connections, settings.most_connections_per_port), (100, 100));
        assert_eq!(settings.neighbour_age, Nanos::from_secs(6));
    }
}
