//! Lines between the agent and programs on the host. docs/controller.md describes them. Each line is a JSON object with
//! one key, the verb. Those of the controller that concern the flows of a program are passed on ([`crate::protocol`]).

pub use crate::protocol::{LINE_BYTES, VERSION};

use pathloom_model::FiveTuple;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

/// A line of a program on the host.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramMessage {
    /// The first line.
    Hello {
        /// Version of the protocol.
        version: u32,
    },
    /// A transfer is about to start.
    Announce {
        /// Connection of the transfer.
        #[serde(deserialize_with = "either_family")]
        flow: FiveTuple,
        /// Payload bytes, if known.
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    /// A transfer has ended.
    Finish {
        /// Connection of the transfer.
        #[serde(deserialize_with = "either_family")]
        flow: FiveTuple,
    },
}

/// Reads a connection. A socket of the family AF_INET6 has the address of an IPv4 host in the form `::ffff:10.0.0.1`.
pub(crate) fn either_family<'de, D: Deserializer<'de>>(input: D) -> Result<FiveTuple, D::Error> {
    #[derive(Deserialize)]
    struct Written {
        src: IpAddr,
        dst: IpAddr,
        proto: u8,
        src_port: u16,
        dst_port: u16,
    }
    let Written { src, dst, proto, src_port, dst_port } = Written::deserialize(input)?;
    let plain = |address: IpAddr| -> Result<Ipv4Addr, D::Error> {
        match address.to_canonical() {
            IpAddr::V4(address) => Ok(address),
            IpAddr::V6(address) => Err(serde::de::Error::custom(format!(
                "{address} is not the address of an IPv4 host; the fabric forwards other flows by its default routes"
            ))),
        }
    };
    Ok(FiveTuple::new(proto, (plain(src)?.into(), src_port), (plain(dst)?.into(), dst_port)))
}

/// Returns the answer to the hello of a program. `enforced` tells whether the agent itself holds and paces flows.
pub fn welcome(announce: bool, enforced: bool) -> String {
    json!({"welcome": {"version": VERSION, "announce": announce, "enforced": enforced}}).to_string()
}

/// Returns the line that tells a program whether the scheme that is now active wants announcements.
pub fn wants(announce: bool) -> String {
    json!({"wants": {"announce": announce}}).to_string()
}

/// Returns the line that tells a program why its line was refused.
pub fn refused(why: &str) -> String {
    json!({"refused": {"why": why}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_write_addresses_as_its_sockets_have_them() {
        let read = |src: &str| {
            let flow = format!(r#"{{"src":"{src}","dst":"::ffff:10.0.7.2","proto":6,"src_port":1,"dst_port":2}}"#);
            serde_json::from_str::<ProgramMessage>(&format!(r#"{{"finish":{{"flow":{flow}}}}}"#))
        };
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 7, 2].into());
        let flow = FiveTuple::new(6, (src, 1), (dst, 2));
        for written in ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"] {
            assert_eq!(read(written).unwrap(), ProgramMessage::Finish { flow }, "{written}");
        }
        assert!(read("2001:db8::1")
            .unwrap_err()
            .to_string()
            .contains("2001:db8::1 is not the address of an IPv4 host"));
    }
}
