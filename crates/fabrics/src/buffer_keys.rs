//! `shared_buffer=4MB,alpha=1` and `queue_weights=1/3`: how the queues of a switch share its buffer and its ports.

use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{SharedBuffer, MOST_QUEUES};

/// The least and the most that a switch may share: a full frame, and far more than any switch has.
const BYTES: std::ops::RangeInclusive<u64> = 1514..=1_000_000_000_000;
const MOST_ALPHA: f64 = 1e6;

/// Parses the keys of the shared buffer; `None` if each queue has its own.
pub(super) fn shared(spec: &Spec) -> Result<Option<SharedBuffer>, SpecError> {
    let alpha = spec.number("alpha", 0.0, MOST_ALPHA)?;
    let Some(bytes) = spec.size_bytes("shared_buffer")? else {
        return match alpha {
            Some(_) => Err(spec.error("alpha divides a shared buffer, but shared_buffer= is missing")),
            None => Ok(None),
        };
    };
    if !BYTES.contains(&bytes) {
        return Err(spec.error(format!("shared_buffer: {bytes} B is not from 1514 B to 1 TB")));
    }
    let alpha = alpha.unwrap_or(1.0);
    if alpha <= 0.0 {
        return Err(spec.error("alpha: expected more than 0, such as alpha=1"));
    }
    for key in ["queue_bytes", "pfc"] {
        if spec.text_of(key).is_some_and(|text| text != "off") {
            return Err(spec.error(format!("shared_buffer takes the place of {key}=; give one of them")));
        }
    }
    Ok(Some(SharedBuffer { bytes, alpha }))
}

/// Parses the weights of queues, the lowest queue first, with their number; `None` for strict priorities.
pub(super) fn weights(spec: &Spec, queues: Option<u8>) -> Result<Option<(u8, [u8; MOST_QUEUES as usize])>, SpecError> {
    let Some(text) = spec.text_of("queue_weights") else { return Ok(None) };
    let wrong = || {
        let expected = "expected one from 1 to 255 for each queue, the lowest queue first, such as queue_weights=1/3";
        spec.error(format!("queue_weights: `{text}` is not a list of weights; {expected}"))
    };
    let given: Vec<u8> =
        text.split('/').map(|one| one.trim().parse::<u8>()).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let mut weights = [1; MOST_QUEUES as usize];
    if given.len() < 2 || given.len() > weights.len() || given.contains(&0) {
        return Err(wrong());
    }
    if queues.is_some_and(|queues| usize::from(queues) != given.len()) {
        let count = given.len();
        return Err(
            spec.error(format!("queue_weights has {count} weights, but queues= is another number; leave it out"))
        );
    }
    weights[..given.len()].copy_from_slice(&given);
    Ok(Some((given.len() as u8, weights)))
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::{PortSettings, SharedBuffer};

    #[test]
    fn buffers_and_weights_are_settings_of_ports() {
        let ports = |keys: &str| fabric_from_spec(&format!("diamond:{keys}")).unwrap().ports();
        let shared =
            |bytes, alpha| PortSettings { shared: Some(SharedBuffer { bytes, alpha }), ..PortSettings::DROP_TAIL };
        assert_eq!(ports("shared_buffer=4MB"), shared(4_000_000, 1.0));
        assert_eq!(ports("shared_buffer=1MB,alpha=0.5"), shared(1_000_000, 0.5));
        let weights = Some([1, 3, 1, 1, 1, 1, 1, 1]);
        assert_eq!(ports("queue_weights=1/3"), PortSettings { queues: 2, weights, ..PortSettings::DROP_TAIL });
        assert_eq!(ports("queue_weights=1/3,queues=2"), ports("queue_weights=1/3"));
    }

    #[test]
    fn wrong_buffers_and_weights_say_what_was_expected() {
        for (keys, expected) in [
            ("alpha=1", "alpha divides a shared buffer, but shared_buffer= is missing"),
            ("shared_buffer=1KB", "shared_buffer: 1000 B is not from 1514 B to 1 TB"),
            ("shared_buffer=1MB,alpha=0", "alpha: expected more than 0"),
            ("shared_buffer=1MB,queue_bytes=10KB", "shared_buffer takes the place of queue_bytes=; give one of them"),
            ("shared_buffer=1MB,pfc=on", "shared_buffer takes the place of pfc=; give one of them"),
            ("queue_weights=1", "`1` is not a list of weights"),
            ("queue_weights=1/0", "`1/0` is not a list of weights"),
            ("queue_weights=1/x", "`1/x` is not a list of weights"),
            ("queue_weights=1/2,queues=3", "queue_weights has 2 weights, but queues= is another number"),
            ("queue_weights=1/1/1/1/1/1/1/1/1", "is not a list of weights"),
        ] {
            let message = fabric_from_spec(&format!("diamond:{keys}")).unwrap_err().to_string();
            assert!(message.contains(expected), "{keys}: {message}");
        }
    }
}
