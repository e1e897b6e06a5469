//! Schemes, transports and control channels.

use pathloom_model::{Fabric, Nanos, NodeId};
use pathloom_schemes::{Registry, SchemeSpec};
use rand::{Rng, RngExt};

/// Keys of schemes that change the work of the controller, and values of these keys. A `period` is always given if
/// the scheme has one, so that schemes act several times during a schedule.
const KEYS: [(&str, &[&str]); 8] = [
    ("sizes", &["announced"]),
    ("migration", &["tagged", "sfmm"]),
    ("rules", &["path"]),
    ("enforce", &["none"]),
    ("defaults", &["ecmp", "per-host"]),
    ("acks", &["default", "path"]),
    ("tree", &["one"]),
    ("placement", &["sa"]),
];
/// Values from which a period is drawn.
const PERIODS: [&str; 4] = ["37ms", "80ms", "150ms", "400ms"];

/// Draws a scheme that a live controller can run from the registry, including those for tests. Schemes that spray packets
/// have the controller part of ecmp.
pub(crate) fn scheme(rng: &mut impl Rng) -> SchemeSpec {
    let sprays = |name| {
        let Ok(spec) = Registry::WithTestSchemes.parse(name) else { return false };
        spec.central(1).is_some() && spec.require_central(1).is_err()
    };
    let entries: Vec<_> = Registry::WithTestSchemes.entries().filter(|entry| !sprays(entry.name)).collect();
    loop {
        let entry = entries[rng.random_range(0..entries.len())];
        let has = |key: &str| entry.keys.iter().any(|(name, _, _)| *name == key);
        let mut text = entry.name.to_owned();
        let mut add = |key: &str, value: &str| {
            text.push(if text.contains(':') { ',' } else { ':' });
            text.push_str(&format!("{key}={value}"));
        };
        if has("period") {
            add("period", PERIODS[rng.random_range(0..PERIODS.len())]);
        }
        // Schemes that move flows again and again, whether these send or not, must stop at some time so that the
        // rules can expire.
        if has("times") {
            add("times", "30");
        }
        if has("min_period") {
            add("min_period", "30ms");
        }
        if has("iterations") && !has("placement") {
            add("iterations", "100");
        }
        for (key, values) in KEYS {
            if has(key) && rng.random_bool(0.4) {
                add(key, values[rng.random_range(0..values.len())]);
            }
        }
        // The registry refuses combinations that make no sense.
        let parsed = Registry::WithTestSchemes.parse(&text);
        if let Some(spec) = parsed.ok().filter(|spec| spec.central(1).is_some()) {
            return spec;
        }
    }
}

/// Senders that are never faster than links, and retry soon.
pub(crate) fn transport(rng: &mut impl Rng) -> String {
    let kind = ["newreno", "cubic", "newreno:sack=on"][rng.random_range(0..3)];
    let pace = ["1Mbps", "2Mbps", "4Mbps"][rng.random_range(0..3)];
    let join = if kind.contains(':') { ',' } else { ':' };
    format!("{kind}{join}pace={pace},min_rto=50ms,max_rto=200ms,initial_rto=100ms")
}

/// A control channel and a controller, slow or fast.
pub(crate) fn control(rng: &mut impl Rng) -> String {
    let mut one = |of: &[&'static str]| of[rng.random_range(0..of.len())];
    let (delay, service) = (one(&["100us", "500us", "3ms", "12ms"]), one(&["1us", "20us", "200us"]));
    let (install, batch) = (one(&["10us", "100us", "1ms", "4ms"]), one(&["1", "4", "64"]));
    let (snapshot, enforcement) = (one(&["15ms", "60ms", "250ms"]), one(&["host", "host", "host", "meter"]));
    format!("delay={delay},service={service},install={install},batch={batch},snapshot={snapshot},enforcement={enforcement},long=60KB")
}

/// Draws slow switches: three in ten take up to 20 ms for each change.
pub(crate) fn slow(rng: &mut impl Rng, fabric: &Fabric) -> Vec<(NodeId, Nanos)> {
    let mut slow = Vec::new();
    for &switch in fabric.switches() {
        if rng.random_bool(0.3) {
            slow.push((switch, Nanos::from_millis(rng.random_range(1..=20))));
        }
    }
    slow
}
