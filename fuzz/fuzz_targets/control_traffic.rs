//! LLDP and ARP from hosts: nothing may panic, nothing is taken for a probe of ours, and what is read of ARP is written
//! again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_discovery::arp::Arp;
use pathloom_discovery::lldp::{parse, ProbeKey, Received};

fuzz_target!(|bytes: &[u8]| {
    let key = ProbeKey::new([7; 32]);
    assert!(!matches!(parse(bytes, &key), Received::Own(_)));
    if let Ok(arp) = Arp::parse(bytes) {
        assert_eq!(arp.emit()[..42], bytes[..42]);
    }
});
