//! Probes: LLDP frames (IEEE 802.1AB-2016) that contain the sending port, the time, and a proof that the controller
//! sent them.
//!
//! Layout: Ethernet header to the nearest bridge; Chassis ID and Port ID, both "locally assigned" text; Time To Live;
//! and last an organizationally specific TLV (§8.6) defined by this project. Its value has 49 bytes:
//!
//! ```text
//! OUI 52-4c-4d | subtype 1 | version 1 | nonce 8 | sent 8 (ns of the controller's clock) | dpid 8 | port 4 | tag 16
//! ```
//!
//! The tag is HMAC-SHA-256 (RFC 2104), truncated to its first 16 bytes (RFC 2104 §5 allows half). It covers every byte
//! of the frame before the tag, from the destination address on. So no part of a probe can be changed, and no host can
//! forge one. The controller draws a new key at each start and never reveals it.

use crate::{Dpid, Mac, Place};
use hmac::{Hmac, KeyInit, Mac as _};
use pathloom_model::{Nanos, PortNo};
use sha2::Sha256;

/// Ethernet type of LLDP (IEEE 802.1AB-2016 §7.4).
pub const LLDP_ETHERTYPE: u16 = 0x88cc;
/// Group address of the nearest bridge. No bridge forwards it (IEEE 802.1AB-2016 §7.1).
pub const NEAREST_BRIDGE: Mac = Mac([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);

/// Organization identifier of the probes: locally administered (IEEE 802c-2017, AAI quadrant), so it differs from every
/// assigned one.
const PROBE_OUI: [u8; 3] = [0x52, b'L', b'M'];
const PROBE_SUBTYPE: u8 = 1;
const PROBE_VERSION: u8 = 1;
const PROBE_VALUE_BYTES: usize = 4 + 1 + 8 + 8 + 8 + 4 + TAG_BYTES;
const TAG_BYTES: usize = 16;

const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const ORGANIZATIONAL: u8 = 127;
/// Subtype of Chassis ID (§8.5.2.2) and of Port ID (§8.5.3.2): any text that the sender chooses.
const LOCALLY_ASSIGNED: u8 = 7;

/// Secret key that authenticates the probes of this controller: 32 bytes from a source of real randomness, new at each
/// start.
#[derive(Clone)]
pub struct ProbeKey(Hmac<Sha256>);

impl ProbeKey {
    /// Prepares the key for use.
    pub fn new(secret: [u8; 32]) -> ProbeKey {
        ProbeKey(Hmac::new_from_slice(&secret).expect("HMAC takes keys of any length"))
    }

    fn tag(&self, covered: &[u8]) -> [u8; TAG_BYTES] {
        let whole = self.0.clone().chain_update(covered).finalize().into_bytes();
        std::array::from_fn(|index| whole[index])
    }

    /// Compares the tag in constant time, so that the duration of a refusal reveals nothing about the key.
    fn verifies(&self, covered: &[u8], tag: &[u8]) -> bool {
        tag.len() == TAG_BYTES && self.0.clone().chain_update(covered).verify_truncated_left(tag).is_ok()
    }
}

/// Hides the secret from logs.
impl std::fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProbeKey(secret)")
    }
}

/// The content of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The port that sends the probe.
    pub from: Place,
    /// Number that no other probe has since this start of the controller.
    pub nonce: u64,
    /// Time at which the probe was sent, on the controller's clock.
    pub sent: Nanos,
}

/// The kind of an LLDP frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// A probe of this controller, with a valid tag.
    Own(Probe),
    /// A frame that claims to be a probe of this controller, but is not valid: forged, changed, or from an earlier
    /// start of the controller.
    Forged,
    /// Well-formed LLDP of another sender, such as the LLDP agent of a host.
    Foreign,
    /// Not valid LLDP according to IEEE 802.1AB-2016 §9.2.7.
    Malformed,
}

/// Returns the frame of a probe. `source` is the hardware address of the sending port. `ttl_s` is the Time To Live, in
/// seconds: how long other LLDP agents may store the content.
pub fn emit(probe: &Probe, source: Mac, ttl_s: u16, key: &ProbeKey) -> Vec<u8> {
    let mut frame = Vec::with_capacity(112);
    frame.extend(NEAREST_BRIDGE.0);
    frame.extend(source.0);
    frame.extend(LLDP_ETHERTYPE.to_be_bytes());
    text(&mut frame, CHASSIS_ID, format_args!("{}", probe.from.dpid));
    text(&mut frame, PORT_ID, format_args!("{}", probe.from.port.0));
    head(&mut frame, TIME_TO_LIVE, 2);
    frame.extend(ttl_s.to_be_bytes());
    head(&mut frame, ORGANIZATIONAL, PROBE_VALUE_BYTES);
    frame.extend(PROBE_OUI);
    frame.extend([PROBE_SUBTYPE, PROBE_VERSION]);
    frame.extend(probe.nonce.to_be_bytes());
    frame.extend(probe.sent.0.to_be_bytes());
    frame.extend(probe.from.dpid.0.to_be_bytes());
    frame.extend(probe.from.port.0.to_be_bytes());
    let tag = key.tag(&frame);
    frame.extend(tag);
    head(&mut frame, END, 0);
    frame
}

/// Appends the type (7 bits) and length (9 bits) of a TLV, which share two bytes (§8.4).
fn head(frame: &mut Vec<u8>, kind: u8, bytes: usize) {
    frame.extend(((u16::from(kind) << 9) | bytes as u16).to_be_bytes());
}

fn text(frame: &mut Vec<u8>, kind: u8, value: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let start = frame.len();
    head(frame, kind, 0);
    frame.push(LOCALLY_ASSIGNED);
    write!(frame, "{value}").expect("a vector takes every byte");
    // At most 17 bytes, so the length never reaches the bits of the type.
    frame[start + 1] = (frame.len() - start - 2) as u8;
}

/// Parses a frame. Bytes after the end of the LLDPDU are padding (§9.2.7.4).
pub fn parse(frame: &[u8], key: &ProbeKey) -> Received {
    let Some(tlvs) = frame.get(14..).filter(|_| frame[12..14] == LLDP_ETHERTYPE.to_be_bytes()) else {
        return Received::Malformed;
    };
    let (mut rest, mut number, mut ours) = (tlvs, 0, None);
    loop {
        let Some((kind, value, after)) = split(rest) else { return Received::Malformed };
        // The first three are mandatory and come in this order (§8.2).
        let right = match number {
            0 => kind == CHASSIS_ID && (2..=256).contains(&value.len()),
            1 => kind == PORT_ID && (2..=256).contains(&value.len()),
            2 => kind == TIME_TO_LIVE && value.len() >= 2,
            _ if kind == END => value.is_empty(),
            _ => !(CHASSIS_ID..=TIME_TO_LIVE).contains(&kind),
        };
        if !right {
            return Received::Malformed;
        }
        if kind == END {
            break;
        }
        if ours.is_some() {
            // The TLV of this project must be the last one, so that the tag covers the whole frame.
            return Received::Forged;
        }
        if kind == ORGANIZATIONAL {
            if value.len() < 4 {
                return Received::Malformed;
            }
            if value[..3] == PROBE_OUI && value[3] == PROBE_SUBTYPE {
                ours = Some((value, frame.len() - after.len()));
            }
        }
        (rest, number) = (after, number + 1);
    }
    match ours {
        None => Received::Foreign,
        Some((value, end)) => check(value, &frame[..end], key).map_or(Received::Forged, Received::Own),
    }
}

/// Splits off the first TLV. Returns its type, its value, and the remaining bytes.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    let head = u16::from_be_bytes(*head);
    let (value, after) = rest.split_at_checked(usize::from(head & 0x1ff))?;
    Some(((head >> 9) as u8, value, after))
}

/// Checks and decodes the TLV of this project. `value` is the last part of `signed`.
fn check(value: &[u8], signed: &[u8], key: &ProbeKey) -> Option<Probe> {
    if value.len() != PROBE_VALUE_BYTES || value[4] != PROBE_VERSION {
        return None;
    }
    let (covered, tag) = signed.split_at(signed.len() - TAG_BYTES);
    if !key.verifies(covered, tag) {
        return None;
    }
    let number = |at: usize| value[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    let port = value[29..33].try_into().map(u32::from_be_bytes).ok()?;
    let from = Place { dpid: Dpid(number(21)?), port: PortNo(port) };
    Some(Probe { from, nonce: number(5)?, sent: Nanos(number(13)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> ProbeKey {
        ProbeKey::new([byte; 32])
    }

    const PROBE: Probe = Probe { from: Place::new(17, 4), nonce: 9, sent: Nanos(12_345_678_901) };
    const SOURCE: Mac = Mac([2, 0, 0, 0, 17, 4]);

    #[test]
    fn a_probe_is_accepted_only_with_its_key() {
        let frame = emit(&PROBE, SOURCE, 4, &key(1));
        assert!((60..=1514).contains(&frame.len()), "{} bytes", frame.len());
        assert_eq!(parse(&frame, &key(1)), Received::Own(PROBE));
        assert_eq!(parse(&frame, &key(2)), Received::Forged);
        let padded = [&frame[..], &[0; 9]].concat();
        assert_eq!(parse(&padded, &key(1)), Received::Own(PROBE));
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let frame = emit(&PROBE, SOURCE, 4, &key(1));
        for bit in 0..8 * frame.len() {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(parse(&changed, &key(1)), Received::Own(_)), "bit {bit}");
        }
        for len in 0..frame.len() {
            assert!(!matches!(parse(&frame[..len], &key(1)), Received::Own(_)), "cut to {len}");
        }
    }

    #[test]
    fn other_lldp_is_foreign_and_invalid_lldp_is_malformed() {
        let mut frame = [&NEAREST_BRIDGE.0[..], &SOURCE.0, &LLDP_ETHERTYPE.to_be_bytes()].concat();
        frame.extend([2, 7, 4, 2, 0, 0, 0, 0, 1]); // chassis: hardware address
        frame.extend([4, 3, 5, b'e', b'0']); // port: interface name
        frame.extend([6, 2, 0, 120]);
        let ttl_end = frame.len();
        frame.extend([0, 0]);
        assert_eq!(parse(&frame, &key(1)), Received::Foreign);
        assert_eq!(parse(&frame[..ttl_end], &key(1)), Received::Malformed, "no end");
        let mut twice = frame[..ttl_end].to_vec();
        twice.extend([6, 2, 0, 120, 0, 0]);
        assert_eq!(parse(&twice, &key(1)), Received::Malformed, "two times to live");
        assert_eq!(parse(&[], &key(1)), Received::Malformed);
        assert_eq!(parse(&[0; 60], &key(1)), Received::Malformed);
    }

    /// Test vector of RFC 4231 §4.2.
    #[test]
    fn the_tag_is_hmac_sha_256() {
        let key = ProbeKey(Hmac::new_from_slice(&[0x0b; 20]).unwrap());
        let expected = [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b];
        assert_eq!(key.tag(b"Hi There"), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_bytes_are_never_accepted_as_a_probe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(parse(&bytes, &key(1)), Received::Own(_)));
            let framed = [&NEAREST_BRIDGE.0[..], &SOURCE.0, &LLDP_ETHERTYPE.to_be_bytes(), &bytes].concat();
            prop_assert!(!matches!(parse(&framed, &key(1)), Received::Own(_)));
        }

        #[test]
        fn every_probe_round_trips(dpid: u64, port: u32, nonce: u64, sent: u64, secret: [u8; 32]) {
            let (probe, key) = (Probe { from: Place::new(dpid, port), nonce, sent: Nanos(sent) }, ProbeKey::new(secret));
            prop_assert_eq!(parse(&emit(&probe, SOURCE, 4, &key), &key), Received::Own(probe));
        }

        /// Small mutations of a valid frame: bytes are changed, inserted, removed or repeated.
        #[test]
        fn no_mutation_changes_the_content_of_a_probe(
            edits in prop::collection::vec((0..4u8, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let original = emit(&PROBE, SOURCE, 4, &key(1));
            let mut frame = original.clone();
            for (kind, at, value) in edits {
                let at = at.index(frame.len());
                match kind {
                    0 => frame[at] = value,
                    1 => frame.insert(at, value),
                    2 => drop(frame.remove(at)),
                    _ => frame.extend_from_within(at..),
                }
            }
            if let Received::Own(read) = parse(&frame, &key(1)) {
                // Only bytes after the end of the LLDPDU may have changed.
                prop_assert_eq!(read, PROBE);
                prop_assert_eq!(&frame[..original.len()], &original[..]);
            }
        }
    }
}
