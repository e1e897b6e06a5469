//! Five-tuples of both families: text, JSON, directions, and the hash of switches.

use pathloom_model::{Address, FiveTuple, PROTO_TCP, PROTO_UDP};
use proptest::prelude::*;
use std::net::Ipv6Addr;

fn v4() -> impl Strategy<Value = FiveTuple> {
    any::<(u8, u32, u16, u32, u16)>().prop_map(|(proto, src, src_port, dst, dst_port)| {
        FiveTuple::new(proto, (src.into(), src_port), (dst.into(), dst_port))
    })
}

fn v6() -> impl Strategy<Value = FiveTuple> {
    any::<(u8, u128, u16, u128, u16, u32)>().prop_map(|(proto, src, src_port, dst, dst_port, label)| {
        let address = |bits: u128| Address::from(Ipv6Addr::from_bits(bits | 1 << 127));
        FiveTuple::new(proto, (address(src), src_port), (address(dst), dst_port)).with_flow_label(label)
    })
}

/// The addresses that hosts of one ToR have differ in a few bits only.
fn neighbours() -> (FiveTuple, FiveTuple) {
    let [src, dst] = ["fd70:6c:0:a::a00:1", "fd70:6c:0:a::a00:101"].map(|text| text.parse::<Address>().unwrap());
    let one = FiveTuple::new(PROTO_UDP, (src, 4791), (dst, 4791));
    (one, one.with_src(src.with_low(src.low() + 1)))
}

proptest! {
    #[test]
    fn a_five_tuple_survives_json_and_is_the_reverse_of_its_reverse(tuple in prop_oneof![v4(), v6()]) {
        let json = serde_json::to_string(&tuple).unwrap();
        prop_assert_eq!(serde_json::from_str::<FiveTuple>(&json).unwrap(), tuple);
        prop_assert_eq!(json.contains("flow_label"), tuple.flow_label() != 0);
        prop_assert_eq!(tuple.reverse().reverse(), tuple);
        let back = tuple.reverse();
        prop_assert_eq!((back.src(), back.src_port()), (tuple.dst(), tuple.dst_port()));
        prop_assert_eq!((back.proto(), back.flow_label()), (tuple.proto(), tuple.flow_label()));
    }

    /// Recorded results depend on this hash.
    #[test]
    fn ipv4_is_hashed_by_two_words(tuple in v4(), salt in any::<u64>()) {
        fn mix(mut x: u64) -> u64 {
            x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            x ^ (x >> 33)
        }
        let (src, dst) = tuple.v4().unwrap();
        let addresses = u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst));
        let ports = u64::from(tuple.proto()) << 32 | u64::from(tuple.src_port()) << 16 | u64::from(tuple.dst_port());
        let expected = mix(mix(addresses ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ ports) >> 32;
        prop_assert_eq!(u64::from(tuple.ecmp_hash(salt)), expected);
        prop_assert_eq!(tuple.with_flow_label(7), tuple, "IPv4 has no flow label");
    }

    /// Each of the 276 bits of addresses and flow label counts.
    #[test]
    fn each_bit_of_ipv6_changes_the_hash(tuple in v6(), bit in 0..127u32, salt in any::<u64>()) {
        let flip = |address: Address| Address::from_bits(address.to_bits() ^ 1 << bit);
        let others = [
            tuple.with_src(flip(tuple.src())),
            tuple.with_dst(flip(tuple.dst())),
            tuple.with_flow_label(tuple.flow_label() ^ 1 << (bit % 20)),
        ];
        for other in others {
            prop_assert_ne!(other.address_bits(), tuple.address_bits(), "{:?}", other);
        }
        prop_assert_eq!(tuple.ecmp_hash(salt), tuple.ecmp_hash(salt));
    }
}

#[test]
fn json_and_text_of_ipv4_are_those_of_earlier_versions() {
    let tuple = FiveTuple::new(PROTO_TCP, ([10, 0, 0, 1].into(), 1234), ([10, 0, 1, 2].into(), 80));
    let json = r#"{"src":"10.0.0.1","dst":"10.0.1.2","proto":6,"src_port":1234,"dst_port":80}"#;
    assert_eq!(serde_json::to_string(&tuple).unwrap(), json);
    assert_eq!(format!("{tuple:?}"), "10.0.0.1:1234>10.0.1.2:80/6");
    // The hash of a flow in recorded results.
    assert_eq!([0, 1, 7].map(|salt| tuple.ecmp_hash(salt)), [375_457_351, 1_461_486_026, 4_237_004_597]);
}

#[test]
fn ipv6_is_written_with_brackets_and_its_flow_label() {
    let (tuple, _) = neighbours();
    assert_eq!(format!("{tuple:?}"), "[fd70:6c:0:a::a00:1]:4791>[fd70:6c:0:a::a00:101]:4791/17");
    let labelled = tuple.with_flow_label(0xABCD_1234);
    assert_eq!(format!("{labelled:?}"), "[fd70:6c:0:a::a00:1]:4791>[fd70:6c:0:a::a00:101]:4791/17#d1234");
    assert!(labelled > tuple && labelled.flow_label() == 0xD_1234, "20 bits");
}

/// Of 4,096 flows, each of `members` next hops gets its share, within five standard deviations.
fn is_even(members: u64, flows: impl Iterator<Item = FiveTuple>) {
    let mut counts = vec![0u64; members as usize];
    let mut all = 0;
    for flow in flows {
        counts[((u64::from(flow.ecmp_hash(5)) * members) >> 32) as usize] += 1;
        all += 1;
    }
    let share = all as f64 / members as f64;
    let bound = 5.0 * (share * (1.0 - 1.0 / members as f64)).sqrt();
    assert!(counts.iter().all(|&count| (count as f64 - share).abs() < bound), "{counts:?}");
}

#[test]
fn flows_of_ipv6_spread_evenly_by_address_by_port_and_by_flow_label() {
    let (one, _) = neighbours();
    for members in [2, 3, 8, 64] {
        is_even(members, (0..4096).map(|number| one.with_src(one.src().with_low(number))));
        is_even(
            members,
            (0..4096).map(|number| one.with_dst(Address::from_bits(one.dst().to_bits() ^ (number as u128) << 64))),
        );
        is_even(members, (0..4096).map(|number| one.with_src_port(number)));
        is_even(members, (0..4096).map(|number| one.with_flow_label(number)));
    }
}

#[test]
fn a_flow_label_changes_the_path_and_not_the_flow() {
    let (one, other) = neighbours();
    let paths = |tuple: FiveTuple| {
        (0..32u64)
            .map(|label| tuple.with_flow_label(label as u32).ecmp_hash(3) >> 30)
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((paths(one).len(), paths(other).len()), (4, 4), "32 labels take all four next hops");
    let labelled = one.with_flow_label(9);
    assert_eq!(labelled.with_flow_label(0), one);
    assert_eq!((labelled.src(), labelled.dst(), labelled.src_port()), (one.src(), one.dst(), one.src_port()));
}
