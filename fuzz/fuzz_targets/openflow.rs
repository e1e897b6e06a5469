//! A stream of bytes from a switch, and the frames in its packet-ins: nothing may panic, and what was read and holds
//! nothing unsupported is written and read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_openflow::packet::{headers, Ethernet};
use pathloom_openflow::{convert, frame, Kind, Message, Reply};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((header, body, length))) = frame(rest) {
        rest = &rest[length..];
        let Ok(message) = Message::parse(header, body) else { continue };
        look_into(&message);
        let mut out = Vec::new();
        // Echoes and barriers hold nothing that could be unsupported.
        let plain = matches!(header.kind, Kind::ECHO_REQUEST | Kind::ECHO_REPLY | Kind::FEATURES_REPLY | Kind::ERROR);
        if message.emit(header.xid, &mut out).is_ok() && plain {
            let (again, body, _) = frame(&out).expect("a header").expect("a whole message");
            assert_eq!(Message::parse(again, body).as_ref(), Ok(&message));
        }
    }
});

/// What the controller makes of it.
fn look_into(message: &Message<'_>) {
    match message {
        Message::PacketIn(packet) => {
            let _ = convert::in_port(packet);
            if let Ok(frame) = Ethernet::parse(packet.data) {
                let _ = headers(&frame);
            }
        }
        Message::FlowRemoved(removed) => drop(convert::removed_key(removed)),
        Message::Error(error) => drop(convert::refusal(error)),
        Message::MultipartReply(reply) => match &reply.reply {
            Reply::Flows(rows) => rows.iter().for_each(|row| drop(convert::read_rule(row))),
            Reply::GroupDesc(rows) => rows.iter().for_each(|row| drop(convert::read_group(row))),
            Reply::MeterConfigs(rows) => {
                for row in rows {
                    let _ = convert::read_meter(row);
                }
            }
            _ => {}
        },
        _ => {}
    }
}
