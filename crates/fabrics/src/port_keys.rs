//! `queues=2,red=5/15,red_p=0.1,red_weight=0.002,red_ecn=on,queue_bytes=280KB,ecn=56KB/224KB,trim=on,pfc=on`: how switch
//! ports queue packets. `pfc_keys` and `buffer_keys` read the keys of pauses, of shared buffers and of weights.

use crate::{buffer_keys, pfc_keys};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::parse_size_bytes;
use pathloom_model::MOST_QUEUES;
use pathloom_model::{EcnSettings, Fabric, PortSettings, RedSettings};

/// Defaults of `max_p` and `w_q`: Floyd, RED: Discussions of Setting Parameters, 1997; Floyd and Jacobson 1993, §7.
const USUAL_PROBABILITY: f64 = 0.1;
const USUAL_WEIGHT: f64 = 0.002;

/// Parses the keys of ports.
pub(super) fn read(spec: &Spec) -> Result<PortSettings, SpecError> {
    let queues = spec.count("queues", 1, u64::from(MOST_QUEUES))?.map(|queues| queues as u8);
    let (queues, weights) = match buffer_keys::weights(spec, queues)? {
        Some((queues, weights)) => (queues, Some(weights)),
        None => (queues.unwrap_or(1), None),
    };
    let shared = buffer_keys::shared(spec)?;
    let (red, ecn, trim_bytes) = (red(spec)?, ecn(spec)?, trim_bytes(spec)?);
    if ecn.is_some() && red.is_some_and(|red| red.ecn) {
        return Err(spec.error("ecn and red_ecn both set when ports mark; give one of them"));
    }
    let control_queue = spec.flag("control_queue")?;
    if trim_bytes.is_some() && control_queue == Some(false) {
        return Err(spec.error("trim=on puts headers into the control queue; leave out control_queue=off"));
    }
    let queue_bytes = spec.size_bytes("queue_bytes")?;
    if let Some(bytes) = queue_bytes.filter(|bytes| !(LEAST_QUEUE_BYTES..=MOST_QUEUE_BYTES).contains(bytes)) {
        return Err(spec.error(format!("queue_bytes: {bytes} B is not from 1514 B to 1 TB")));
    }
    let scale_queues = spec.flag("scale_queues")?.unwrap_or(false);
    if scale_queues && queue_bytes.is_none() && ecn.is_none() {
        return Err(spec.error("scale_queues scales queue_bytes and ecn, but neither is given"));
    }
    let pfc = pfc_keys::read(spec)?;
    if pfc.is_some() && trim_bytes.is_some() {
        return Err(spec.error("trim=on cuts the packets that pfc= keeps from being lost; give one of them"));
    }
    // Acknowledgements that wait behind paused data could not resolve the congestion.
    let control_queue = control_queue.unwrap_or(trim_bytes.is_some() || pfc.is_some());
    Ok(PortSettings { queues, red, queue_bytes, ecn, scale_queues, control_queue, trim_bytes, pfc, weights, shared })
}

/// Sizes of queues: a full frame, and far more than any port holds.
const LEAST_QUEUE_BYTES: u64 = 1514;
const MOST_QUEUE_BYTES: u64 = 1_000_000_000_000;

fn red(spec: &Spec) -> Result<Option<RedSettings>, SpecError> {
    let thresholds =
        spec.text_of("red").map(|text| thresholds(text).map_err(|problem| spec.error(problem))).transpose()?;
    let (probability, weight) = (share(spec, "red_p")?, share(spec, "red_weight")?);
    let ecn = spec.flag("red_ecn")?;
    let Some((min_packets, max_packets)) = thresholds else {
        let orphans = [("red_p", probability.is_some()), ("red_weight", weight.is_some()), ("red_ecn", ecn.is_some())];
        return match orphans.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(spec.error(format!("{key} sets RED, but red= is missing; expected {EXAMPLE}"))),
            None => Ok(None),
        };
    };
    Ok(Some(RedSettings {
        min_packets,
        max_packets,
        most_probability: probability.unwrap_or(USUAL_PROBABILITY),
        weight: weight.unwrap_or(USUAL_WEIGHT),
        ecn: ecn.unwrap_or(false),
    }))
}

/// Parses `ecn=56KB/224KB`, one size for both thresholds, or `ecn=5KB/200KB/0.01` with the probability at the second one.
fn ecn(spec: &Spec) -> Result<Option<EcnSettings>, SpecError> {
    let Some(text) = spec.text_of("ecn") else { return Ok(None) };
    let wrong = |_| {
        spec.error(format!(
            "ecn: `{text}` is neither a size nor two sizes; expected MIN/MAX, such as ecn=56KB/224KB, or one threshold"
        ))
    };
    let mut parts = text.splitn(3, '/');
    let min = parts.next().unwrap_or(text);
    let max = parts.next().unwrap_or(min);
    let most_probability = match parts.next().map(|text| (text, text.trim().parse::<f64>())) {
        None => 1.0,
        Some((_, Ok(probability))) if probability > 0.0 && probability <= 1.0 => probability,
        Some((text, _)) => {
            return Err(spec.error(format!("ecn: the probability `{text}` is not a number above 0 and at most 1")));
        }
    };
    let [min_bytes, max_bytes] =
        [parse_size_bytes(min.trim()).map_err(wrong)?, parse_size_bytes(max.trim()).map_err(wrong)?];
    if min_bytes > max_bytes {
        return Err(spec.error(format!("ecn: `{text}` has a first threshold above the second; expected MIN/MAX")));
    }
    Ok(Some(EcnSettings { min_bytes, max_bytes, most_probability }))
}

/// Parses `trim=on,trim_bytes=64B`.
fn trim_bytes(spec: &Spec) -> Result<Option<u16>, SpecError> {
    let trims = spec.flag("trim")?.unwrap_or(false);
    match spec.size_bytes("trim_bytes")? {
        Some(_) if !trims => Err(spec.error("trim_bytes sets the size of headers, but trim=on is missing")),
        Some(bytes) if !(64..=1514).contains(&bytes) => {
            Err(spec.error(format!("trim_bytes: {bytes} B is not from 64 B to 1514 B")))
        }
        given => Ok(trims.then_some(given.unwrap_or(64) as u16)),
    }
}

/// Returns the fabric with these port settings.
///
/// # Errors
/// RED could never act, because no switch port has a buffer larger than the lower threshold.
pub(super) fn apply(ports: PortSettings, spec: &Spec, fabric: Fabric) -> Result<Fabric, SpecError> {
    if let Some(red) = ports.red {
        let of_switches = fabric.links().iter().filter(|link| !fabric.is_host(link.from));
        let most = of_switches.map(|link| link.settings.buffer_packets).max().unwrap_or(0);
        if most <= red.min_packets {
            return Err(spec.error(format!(
                "red: RED acts when more than {} packets wait, but buffers hold {most}; expected a lower threshold or a \
                 greater buffer=",
                red.min_packets
            )));
        }
    }
    Ok(fabric.with_ports(ports))
}

const EXAMPLE: &str = "red=MIN/MAX in packets, such as red=5/15";

fn thresholds(text: &str) -> Result<(u32, u32), String> {
    let wrong = || {
        format!("red: `{text}` is not two numbers of packets, the first one less than the second; expected {EXAMPLE}")
    };
    let (min, max) = text.split_once('/').ok_or_else(wrong)?;
    let [min, max] = [min, max].map(|text| text.trim().parse::<u32>());
    match (min, max) {
        (Ok(min), Ok(max)) if min < max => Ok((min, max)),
        _ => Err(wrong()),
    }
}

/// Parses a number above 0 and at most 1.
fn share(spec: &Spec, key: &'static str) -> Result<Option<f64>, SpecError> {
    match spec.number(key, 0.0, 1.0)? {
        Some(number) if number <= 0.0 => Err(spec.error(format!("{key}: expected more than 0, and at most 1"))),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::{EcnSettings, PortSettings, RedSettings};

    #[test]
    fn port_settings_follow_the_keys() {
        let ports = |keys: &str| fabric_from_spec(&format!("diamond{keys}")).unwrap().ports();
        assert_eq!(ports(""), PortSettings::DROP_TAIL);
        let none = PortSettings::DROP_TAIL;
        assert_eq!(ports(":queues=2"), PortSettings { queues: 2, ..none });
        let red = RedSettings { min_packets: 5, max_packets: 15, most_probability: 0.1, weight: 0.002, ecn: false };
        assert_eq!(ports(":red=5/15"), PortSettings { red: Some(red), ..none });
        let other = RedSettings { min_packets: 0, max_packets: 90, most_probability: 1.0, weight: 0.5, ecn: true };
        assert_eq!(
            ports(":red=0/90,red_p=1,red_weight=0.5,red_ecn=on,queues=8"),
            PortSettings { queues: 8, red: Some(other), ..none }
        );
        assert_eq!(ports(":control_queue=on"), PortSettings { control_queue: true, ..none });
        let trims = PortSettings { control_queue: true, trim_bytes: Some(64), ..none };
        assert_eq!((ports(":trim=off"), ports(":trim=on")), (none, trims));
        assert_eq!(ports(":trim=on,trim_bytes=128B"), PortSettings { trim_bytes: Some(128), ..trims });
        let ecn = |min_bytes, max_bytes| Some(EcnSettings { min_bytes, max_bytes, most_probability: 1.0 });
        assert_eq!(ports(":ecn=30KB"), PortSettings { ecn: ecn(30_000, 30_000), ..none });
        assert_eq!(
            ports(":ecn=56KB/224KB,queue_bytes=280KB"),
            PortSettings { ecn: ecn(56_000, 224_000), queue_bytes: Some(280_000), ..none }
        );
        let rare = EcnSettings { min_bytes: 5_000, max_bytes: 200_000, most_probability: 0.01 };
        assert_eq!(ports(":ecn=5KB/200KB/0.01"), PortSettings { ecn: Some(rare), ..none });
        let scaled = ports(":ecn=56KB/224KB,queue_bytes=280KB,scale_queues=on");
        let quarter = PortSettings { ecn: ecn(14_000, 56_000), queue_bytes: Some(70_000), ..scaled };
        assert_eq!((scaled.at_rate(4, 4), scaled.at_rate(1, 4)), (scaled, quarter));
        assert_eq!(ports(":ecn=56KB").at_rate(1, 4), PortSettings { ecn: ecn(56_000, 56_000), ..none });
    }

    #[test]
    fn errors_name_the_problem() {
        for (keys, words) in [
            ("queues=0", "`0` is not a whole number from 1 to 8"),
            ("queues=9", "`9` is not a whole number from 1 to 8"),
            ("queue=2", "did you mean `queues`?"),
            ("red=5", "expected red=MIN/MAX"),
            ("red=15/5", "the first one less than the second"),
            ("red=5/5", "the first one less than the second"),
            ("red=-5/5", "`-5/5` is not two numbers of packets"),
            ("red=5/15/25", "is not two numbers of packets"),
            ("red=5/15,red_p=0", "red_p: expected more than 0"),
            ("red=5/15,red_p=1.1", "`1.1` is not a number from 0 to 1"),
            ("red=5/15,red_weight=0", "red_weight: expected more than 0"),
            ("red=5/15,red_ecn=perhaps", "red_ecn"),
            ("red_p=0.1", "red_p sets RED, but red= is missing"),
            ("red_weight=0.1", "red_weight sets RED"),
            ("red_ecn=on", "red_ecn sets RED"),
            ("red=100/200", "buffers hold 100"),
            ("ecn=20%", "expected MIN/MAX, such as ecn=56KB/224KB"),
            ("ecn=2KB/1KB", "a first threshold above the second"),
            ("ecn=1KB/2KB/0", "`0` is not a number above 0 and at most 1"),
            ("ecn=1KB/2KB/0.1/1", "`0.1/1` is not a number above 0"),
            ("ecn=2KB,red=5/15,red_ecn=on", "ecn and red_ecn both set when ports mark"),
            ("trim=on,control_queue=off", "leave out control_queue=off"),
            ("trim_bytes=64B", "but trim=on is missing"),
            ("trim=on,trim_bytes=63B", "63 B is not from 64 B to 1514 B"),
            ("scale_queues=on", "neither is given"),
            ("queue_bytes=1KB", "1000 B is not from 1514 B to 1 TB"),
            ("red=5/15,switch_buffer=4,host_buffer=5", "buffers hold 5"),
        ] {
            let problem = fabric_from_spec(&format!("diamond:{keys}")).unwrap_err().to_string();
            assert!(problem.contains(words) && !problem.contains('\n'), "{keys}: {problem}");
        }
    }
}
