//! `pfc=on`, `pfc=XOFF`, `pfc=XOFF/XON` and `pfc_headroom=SIZE`: when switches pause the senders of their links.

use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::parse_size_bytes;
use pathloom_model::PfcSettings;

/// The most that a threshold may be, far more than any switch holds.
const MOST_BYTES: u64 = 1_000_000_000_000;

/// Parses the keys of flow control; `None` if it is off.
pub(super) fn read(spec: &Spec) -> Result<Option<PfcSettings>, SpecError> {
    let headroom_bytes = spec.size_bytes("pfc_headroom")?;
    let thresholds = spec.text_of("pfc").map(|text| thresholds(spec, text)).transpose()?.flatten();
    let Some(thresholds) = thresholds else {
        return match headroom_bytes {
            Some(_) => Err(spec.error("pfc_headroom sets room for paused links, but pfc=on is missing")),
            None => Ok(None),
        };
    };
    if headroom_bytes.is_some_and(|bytes| bytes > MOST_BYTES) {
        return Err(spec.error("pfc_headroom: more than 1 TB; expected a size such as 50KB"));
    }
    Ok(Some(PfcSettings { headroom_bytes, ..thresholds }))
}

fn thresholds(spec: &Spec, text: &str) -> Result<Option<PfcSettings>, SpecError> {
    match text.trim() {
        "on" | "true" | "yes" => return Ok(Some(PfcSettings::default())),
        "off" | "false" | "no" => return Ok(None),
        _ => {}
    }
    let wrong = || {
        spec.error(format!(
            "pfc: `{text}` is neither on, off, a size nor two sizes; expected XOFF or XOFF/XON, such as pfc=100KB/97KB"
        ))
    };
    let size = |text: &str| {
        let bytes = parse_size_bytes(text.trim()).map_err(|_| wrong())?;
        match bytes > MOST_BYTES {
            true => Err(spec.error(format!("pfc: {bytes} B is more than 1 TB"))),
            false => Ok(bytes),
        }
    };
    let (xoff, xon) = match text.split_once('/') {
        Some((xoff, xon)) => (size(xoff)?, Some(size(xon)?)),
        None => (size(text)?, None),
    };
    if xon.is_some_and(|xon| xon > xoff) {
        return Err(spec.error(format!("pfc: `{text}` resumes above where it pauses; expected XOFF/XON, XOFF first")));
    }
    Ok(Some(PfcSettings { xoff_bytes: Some(xoff), xon_bytes: xon, headroom_bytes: None }))
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::{PfcSettings, PortSettings};

    #[test]
    fn flow_control_follows_its_keys_and_adds_a_control_queue() {
        let ports = |keys: &str| fabric_from_spec(&format!("diamond:{keys}")).unwrap().ports();
        let with = |pfc| PortSettings { pfc: Some(pfc), control_queue: true, ..PortSettings::DROP_TAIL };
        let computed = PfcSettings::default();
        assert_eq!((ports("pfc=off"), ports("pfc=on")), (PortSettings::DROP_TAIL, with(computed)));
        let xoff = PfcSettings { xoff_bytes: Some(100_000), ..computed };
        assert_eq!(ports("pfc=100KB"), with(xoff));
        assert_eq!(ports("pfc=100KB/90KB"), with(PfcSettings { xon_bytes: Some(90_000), ..xoff }));
        assert_eq!(
            ports("pfc=100KB,pfc_headroom=30KB,control_queue=off"),
            PortSettings { control_queue: false, ..with(PfcSettings { headroom_bytes: Some(30_000), ..xoff }) }
        );
    }

    #[test]
    fn errors_name_the_problem() {
        for (keys, words) in [
            ("pfc=often", "expected XOFF or XOFF/XON"),
            ("pfc=1KB/x", "expected XOFF or XOFF/XON"),
            ("pfc=0B", "expected XOFF or XOFF/XON"),
            ("pfc=2TB", "more than 1 TB"),
            ("pfc=1KB/2KB", "resumes above where it pauses"),
            ("pfc_headroom=1KB", "pfc=on is missing"),
            ("pfc=off,pfc_headroom=1KB", "pfc=on is missing"),
            ("pfc=on,pfc_headroom=2TB", "more than 1 TB"),
            ("pfc=on,trim=on", "give one of them"),
        ] {
            let problem = fabric_from_spec(&format!("diamond:{keys}")).unwrap_err().to_string();
            assert!(problem.contains(words) && !problem.contains('\n'), "{keys}: {problem}");
        }
    }
}
