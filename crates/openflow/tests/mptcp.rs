//! The options of MPTCP. Written options are read back; truncated or changed ones are refused or read as other
//! options; tshark reads the same values.

use etherparse::PacketBuilder;
use pathloom_openflow::packet::mptcp::{find, DataNumber, Dss, JoinStep, Key, Keys, Mapping, TcpOption};
use pathloom_openflow::packet::{headers, Ethernet};
use proptest::prelude::*;

fn written(option: &TcpOption) -> Vec<u8> {
    let mut out = Vec::new();
    option.emit(&mut out);
    out
}

fn keys() -> impl Strategy<Value = Keys> {
    let data = prop::option::of((any::<u16>(), prop::option::of(any::<u16>())));
    prop_oneof![
        Just(Keys::None),
        any::<u64>().prop_map(|key| Keys::Sender(Key(key))),
        (any::<u64>(), any::<u64>(), data).prop_map(|(sender, receiver, data)| Keys::Both {
            sender: Key(sender),
            receiver: Key(receiver),
            data
        }),
    ]
}

fn number() -> impl Strategy<Value = DataNumber> {
    prop_oneof![any::<u32>().prop_map(DataNumber::Short), any::<u64>().prop_map(DataNumber::Long)]
}

fn mapping() -> impl Strategy<Value = Mapping> {
    (number(), any::<u32>(), 1u16.., prop::option::of(any::<u16>()))
        .prop_map(|(data, subflow, length, checksum)| Mapping { data, subflow, length, checksum })
}

fn options() -> impl Strategy<Value = TcpOption> {
    let step = prop_oneof![
        any::<(u32, u32)>().prop_map(|(token, nonce)| JoinStep::Syn { token, nonce }),
        any::<(u64, u32)>().prop_map(|(hmac, nonce)| JoinStep::SynAck { hmac, nonce }),
    ];
    prop_oneof![
        (0u8..16, any::<u8>(), keys()).prop_map(|(version, flags, keys)| TcpOption::Capable { version, flags, keys }),
        (any::<bool>(), any::<u8>(), step).prop_map(|(backup, address, step)| TcpOption::Join {
            backup,
            address,
            step
        }),
        any::<[u8; 20]>().prop_map(|hmac| TcpOption::Join { backup: false, address: 0, step: JoinStep::Ack { hmac } }),
        (any::<bool>(), prop::option::of(number()), prop::option::of(mapping())).prop_map(|(fin, ack, mapping)| {
            TcpOption::Dss(Dss { data_fin: fin && mapping.is_some(), ack, mapping })
        }),
        (3u8..16).prop_map(TcpOption::Other),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn options_round_trip(option in options(), before in prop::collection::vec(Just(1u8), 0..4)) {
        let bytes = written(&option);
        prop_assert!(bytes.len() <= 28 && usize::from(bytes[1]) == bytes.len());
        prop_assert_eq!(TcpOption::parse(&bytes), Ok(option));
        let among = [&before[..], &[2, 4, 5, 168], &bytes[..], &[1, 0]].concat();
        prop_assert_eq!(find(&among), Some(Ok(option)));
    }

    #[test]
    fn truncated_options_are_refused(option in options(), cut in any::<prop::sample::Index>()) {
        let mut bytes = written(&option);
        let cut = cut.index(bytes.len());
        bytes.truncate(cut);
        prop_assert!(TcpOption::parse(&bytes).is_err());
        if cut > 1 {
            // A corrected length does not help: a shorter option is another option, never this one.
            bytes[1] = cut as u8;
            prop_assert!(TcpOption::parse(&bytes) != Ok(option) || matches!(option, TcpOption::Other(_)));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_round_trip(mut bytes in prop::collection::vec(any::<u8>(), 0..44), fit: bool) {
        if let (true, [kind, length, subtype, ..]) = (fit, &mut bytes[..]) {
            (*kind, *length, *subtype) = (30, 0, *subtype & 0x3f);
            bytes[1] = bytes.len() as u8;
        }
        if let Ok(option) = TcpOption::parse(&bytes) {
            if !matches!(option, TcpOption::Other(_)) {
                prop_assert_eq!(TcpOption::parse(&written(&option)), Ok(option));
                prop_assert_eq!(written(&option).len(), bytes.len());
            }
        }
        let _ = find(&bytes);
    }
}

#[test]
fn invalid_lengths_are_refused() {
    let with_length = |subtype: u8, length: u8| {
        let mut bytes = vec![0; usize::from(length)];
        bytes[..3].copy_from_slice(&[30, length, subtype << 4]);
        TcpOption::parse(&bytes)
    };
    let taken = |subtype| (3u8..=44).filter(|&length| with_length(subtype, length).is_ok()).collect::<Vec<_>>();
    assert_eq!((taken(0), taken(1), taken(2)), (vec![4, 12, 20, 22, 24], vec![12, 16, 24], vec![4]));
    // Acknowledgement of 8 bytes, mapping with a number of 8 bytes: 4 + 8 + 8 + 4 + 2, and 2 with a checksum.
    let dss = |length: usize| {
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&[30, length as u8, 0x20, 0x0f]);
        TcpOption::parse(&bytes).is_ok()
    };
    assert_eq!((4..=40).filter(|&length| dss(length)).collect::<Vec<_>>(), [26, 28]);
    // A DATA_FIN without a mapping.
    assert!(TcpOption::parse(&[30, 8, 0x20, 0x11, 0, 0, 0, 1]).is_err());
}

#[test]
fn a_token_derives_from_the_key() {
    // printf '\0\0\0\0\0\0\0*' | sha256sum
    assert_eq!(Key(42).token(), 0xa6bb_133c);
}

fn frame(flags: (bool, bool), option: &TcpOption) -> Vec<u8> {
    let mut options = written(option);
    options.resize(options.len().next_multiple_of(4), 1);
    let mut builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 1, 2], 64).tcp(1234, 80, 7, 1000);
    builder = if flags.0 { builder.syn() } else { builder };
    builder = if flags.1 { builder.ack(9) } else { builder };
    let mut out = Vec::new();
    builder.options_raw(&options).unwrap().write(&mut out, b"").unwrap();
    out
}

#[test]
fn tshark_reads_the_same() {
    let capable = |keys| TcpOption::Capable { version: 1, flags: 0x01, keys };
    let join = |step| TcpOption::Join { backup: false, address: 3, step };
    let both = Keys::Both { sender: Key(0x1122_3344_5566_7788), receiver: Key(42), data: None };
    let data = DataNumber::Long(0x0102_0304_0506_0708);
    let mapping = Mapping { data, subflow: 77, length: 1428, checksum: None };
    let frames = [
        frame((true, false), &capable(Keys::None)),
        frame((true, true), &capable(Keys::Sender(Key(42)))),
        frame((false, true), &capable(both)),
        frame((true, false), &join(JoinStep::Syn { token: Key(42).token(), nonce: 0x0a0b_0c0d })),
        frame((true, true), &join(JoinStep::SynAck { hmac: 0x99, nonce: 5 })),
        frame(
            (false, true),
            &TcpOption::Dss(Dss { data_fin: true, ack: Some(DataNumber::Short(12)), mapping: Some(mapping) }),
        ),
    ];
    let names = [
        "subtype",
        "version",
        "sendkey",
        "recvkey",
        "recvtok",
        "sendrand",
        "addrid",
        "rawdataack",
        "rawdataseqno",
        "subflowseqno",
        "datalvllen",
        "datafin.flag",
    ];
    let names: Vec<String> = names.iter().map(|name| format!("tcp.options.mptcp.{name}")).collect();
    let mut fields: Vec<&str> = names.iter().map(String::as_str).collect();
    fields.push("_ws.malformed");
    let Some(lines) = pathloom_testkit::tshark::dissect(&frames, &fields) else { return };
    let read: Vec<Vec<&str>> = lines.iter().map(|line| line.trim_end().split('\t').collect()).collect();
    let token = Key(42).token().to_string();
    assert_eq!(read[0], ["0", "1"]);
    assert_eq!(read[1], ["0", "1", "42"]);
    assert_eq!(read[2], ["0", "1", "1234605616436508552", "42"]);
    assert_eq!(read[3], ["1", "", "", "", &token, "168496141", "3"]);
    assert_eq!(read[4], ["1", "", "", "", "", "5", "3"]);
    assert_eq!(read[5][..11], ["2", "", "", "", "", "", "", "12", "72623859790382856", "77", "1428"]);
    assert!(matches!(read[5][11..], ["1" | "True"]), "DATA_FIN, and nothing malformed: {:?}", read[5]);
}

#[test]
fn headers_contain_the_mptcp_token() {
    use pathloom_model::MptcpOption;
    let of = |option| headers(&Ethernet::parse(&frame((true, false), &option)).unwrap()).unwrap().unwrap().mptcp;
    let step = JoinStep::Syn { token: 7, nonce: 1 };
    assert_eq!(of(TcpOption::Join { backup: false, address: 1, step }), Some(MptcpOption::Join { token: 7 }));
    let keys = Keys::Both { sender: Key(1), receiver: Key(42), data: None };
    let token = Key(42).token();
    assert_eq!(
        of(TcpOption::Capable { version: 1, flags: 1, keys }),
        Some(MptcpOption::Capable { token: Some(token) })
    );
    let first = |syn_ack: bool, keys| {
        let option = TcpOption::Capable { version: 1, flags: 1, keys };
        headers(&Ethernet::parse(&frame((true, syn_ack), &option)).unwrap()).unwrap().unwrap().mptcp
    };
    assert_eq!(first(false, Keys::None), Some(MptcpOption::Capable { token: None }));
    assert_eq!(first(true, Keys::Sender(Key(42))), Some(MptcpOption::Capable { token: Some(token) }));
    assert_eq!(of(TcpOption::Dss(Dss::default())), None);
}
