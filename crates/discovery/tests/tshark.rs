//! Independent check: the dissectors of tshark decode the frames as intended. Without tshark, the tests print a message
//! and pass.

use pathloom_discovery::arp::Arp;
use pathloom_discovery::lldp::{emit, Probe, ProbeKey};
use pathloom_discovery::{Mac, Place};
use pathloom_model::Nanos;
use pathloom_testkit::tshark::dissect;
use std::net::Ipv4Addr;

#[test]
fn tshark_reads_our_probes() {
    let probe = Probe { from: Place::new(0x2a, 17), nonce: 1, sent: Nanos::from_secs(3) };
    let frame = emit(&probe, Mac([2, 0, 0, 0, 0x2a, 17]), 4, &ProbeKey::new([5; 32]));
    let fields = [
        "eth.dst",
        "lldp.chassis.subtype",
        "lldp.chassis.id",
        "lldp.port.subtype",
        "lldp.port.id",
        "lldp.time_to_live",
        "lldp.orgtlv.oui",
        "_ws.malformed",
        "_ws.expert.message",
    ];
    let Some(lines) = dissect(&[frame], &fields) else { return };
    let read: Vec<&str> = lines[0].split('\t').collect();
    assert_eq!(read[..2], ["01:80:c2:00:00:0e", "7"]);
    // tshark prints locally assigned text as hexadecimal bytes.
    let hex: String = "000000000000002a".bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(read[2].replace(':', ""), hex);
    assert_eq!(read[3], "7");
    assert_eq!(read[4], "17");
    assert_eq!(read[5], "4");
    assert!(read[6].to_lowercase().contains("524c4d") || read[6].contains("5393485"), "{read:?}");
    assert_eq!(read[7..].join(""), "", "no complaint");
}

#[test]
fn tshark_reads_our_arp() {
    let (a, b) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let (ip_a, ip_b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1));
    let request = Arp::request(a, ip_a, ip_b, Mac::BROADCAST);
    let announcement = Arp::request(a, ip_a, ip_a, Mac::BROADCAST);
    let probe = Arp::request(a, Ipv4Addr::UNSPECIFIED, ip_b, b);
    let frames: Vec<Vec<u8>> = [request, request.answer(b), announcement, probe].iter().map(Arp::emit).collect();
    let fields = [
        "arp.opcode",
        "arp.src.hw_mac",
        "arp.src.proto_ipv4",
        "arp.dst.hw_mac",
        "arp.dst.proto_ipv4",
        "arp.isgratuitous",
        "arp.isprobe",
        "_ws.malformed",
    ];
    let Some(lines) = dissect(&frames, &fields) else { return };
    let read: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
    let (mac_a, mac_b) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
    assert_eq!(read[0][..5], ["1", mac_a, "10.0.0.1", "00:00:00:00:00:00", "10.0.1.1"]);
    assert_eq!(read[1][..5], ["2", mac_b, "10.0.1.1", mac_a, "10.0.0.1"]);
    assert!(["1", "True"].contains(&read[2][5]), "an announcement: {:?}", read[2]);
    assert!(["1", "True"].contains(&read[3][6]), "a probe: {:?}", read[3]);
    assert!(read.iter().all(|line| line.get(7).is_none_or(|malformed| malformed.is_empty())));
}
