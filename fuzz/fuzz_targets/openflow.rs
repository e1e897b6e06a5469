//! A stream of bytes from a switch, and the frames in its packet-ins: nothing may panic, and what was read and holds nothing
//! foreign is written and read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_openflow::packet::{arp::Arp, headers, lldp::Lldp, Ethernet};
use pathloom_openflow::{frame, Kind, Message};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((header, body, length))) = frame(rest) {
        rest = &rest[length..];
        let Ok(message) = Message::parse(header, body) else { continue };
        if let Message::PacketIn(packet) = &message {
            if let Ok(frame) = Ethernet::parse(packet.data) {
                let _ = (headers(&frame), Arp::parse(frame.payload), Lldp::parse(frame.payload));
            }
        }
        let mut out = Vec::new();
        // Echoes and barriers hold nothing that could be foreign.
        let plain = matches!(header.kind, Kind::ECHO_REQUEST | Kind::ECHO_REPLY | Kind::FEATURES_REPLY | Kind::ERROR);
        if message.emit(header.xid, &mut out).is_ok() && plain {
            let (again, body, _) = frame(&out).expect("a header").expect("a whole message");
            assert_eq!(Message::parse(again, body).as_ref(), Ok(&message));
        }
    }
});
