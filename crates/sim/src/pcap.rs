//! A tap that writes the packets that it sees to a pcapng file (draft-ietf-opsawg-pcapng). The file has one interface
//! per directed link, named after its ends, so that a reader can tell where a packet was seen.
//!
//! Of the bytes of a frame, only the headers exist in the simulator. They are written as they would be on the wire.
//! The payload is cut off, as by a snapshot length; SACK options follow it like padding, so they are cut off as well.
//! A packet that the link dropped has the option `epb_dropcount` with the value 1.

use crate::frames::mac_of;
use crate::tap::{Fate, SeenPacket, Tap};
use etherparse::{PacketBuilder, TcpOptionElement};
use pathloom_model::{Fabric, LinkId, PROTO_UDP, TCP_ACK, TCP_FIN, TCP_SYN};
use std::io::{self, Write};

/// Block types (§4.1, §4.2, §4.3) and options.
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const LINKTYPE_ETHERNET: u32 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_DROPCOUNT: u16 = 4;

/// Writes every packet offered to a link as pcapng.
pub struct PcapTap<W: Write> {
    out: W,
    packets: u64,
    failed: Option<io::Error>,
}

impl<W: Write> PcapTap<W> {
    /// Starts the file: a section, and an interface per directed link of `fabric`.
    ///
    /// # Errors
    /// An error of `out`.
    pub fn new(out: W, fabric: &Fabric) -> io::Result<PcapTap<W>> {
        let mut tap = PcapTap { out, packets: 0, failed: None };
        let mut body = BYTE_ORDER_MAGIC.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(u64::MAX.to_le_bytes()); // length not given
        tap.block(SECTION_HEADER, &body)?;
        for link in fabric.links() {
            let name = format!("{}>{}", fabric.node(link.from).name, fabric.node(link.to).name);
            let mut body = LINKTYPE_ETHERNET.to_le_bytes().to_vec();
            body.extend(0u32.to_le_bytes());
            option(&mut body, IF_NAME, name.as_bytes());
            option(&mut body, IF_TSRESOL, &[9]); // nanoseconds
            option(&mut body, 0, &[]);
            tap.block(INTERFACE_DESCRIPTION, &body)?;
        }
        Ok(tap)
    }

    /// Flushes the file; returns the number of packets written.
    ///
    /// # Errors
    /// The first error met while writing.
    pub fn finish(&mut self) -> io::Result<u64> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.packets),
        }
    }

    /// As [`PcapTap::finish`], and calls `look` with the output.
    ///
    /// # Errors
    /// The first error met while writing.
    pub fn finish_with<R>(&mut self, look: impl FnOnce(&W) -> R) -> io::Result<(u64, R)> {
        let packets = self.finish()?;
        Ok((packets, look(&self.out)))
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let padding = body.len().next_multiple_of(4) - body.len();
        let length = (12 + body.len() + padding) as u32;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(body)?;
        self.out.write_all(&[0; 3][..padding])?;
        self.out.write_all(&length.to_le_bytes())
    }

    fn write(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, fate: Fate) -> io::Result<()> {
        let headers = frame(now_ps, packet)?;
        let at = now_ps / 1000;
        let mut body = link.0.to_le_bytes().to_vec();
        body.extend(((at >> 32) as u32).to_le_bytes());
        body.extend((at as u32).to_le_bytes());
        body.extend((headers.len() as u32).to_le_bytes());
        let tag_bytes = if packet.headers.tag.is_some() { 4 } else { 0 };
        body.extend((u32::from(packet.wire) + tag_bytes).to_le_bytes());
        body.extend(&headers);
        body.resize(body.len().next_multiple_of(4), 0);
        if fate == Fate::Dropped {
            option(&mut body, EPB_DROPCOUNT, &1u64.to_le_bytes());
            option(&mut body, 0, &[]);
        }
        self.packets += 1;
        self.block(ENHANCED_PACKET, &body)
    }
}

/// Adds an option (§3.5), padded to 32 bits.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// The headers of a frame: Ethernet (with VLAN tag), IPv4 or IPv6 with the length of the whole packet, TCP with timestamps, or UDP.
/// Sequence numbers count the SYN, as on the wire; both initial ones are 0.
fn frame(now_ps: u64, packet: &SeenPacket) -> io::Result<Vec<u8>> {
    let tuple = &packet.headers.five_tuple;
    // The SYN flag of data only tells switches that a transfer begins.
    let is = |flag| packet.headers.tcp_flags & flag != 0 && (flag != TCP_SYN || packet.payload == 0);
    let number = if is(TCP_SYN) { 0 } else { (packet.seq as u32).wrapping_add(1) };
    let (seq, ack) = if packet.is_ack { (u32::from(!is(TCP_SYN)), number.max(1)) } else { (number, 1) };
    let ethernet = PacketBuilder::ethernet2(mac_of(tuple.src()).0, mac_of(tuple.dst()).0);
    let ip = ip_headers(packet)?;
    let step = match packet.headers.tag.and_then(|tag| etherparse::VlanId::try_new(tag).ok()) {
        Some(tag) => ethernet.single_vlan(tag).ip(ip),
        None => ethernet.ip(ip),
    };
    if tuple.proto() == PROTO_UDP {
        let udp = step.udp(tuple.src_port(), tuple.dst_port());
        return without_payload(packet, |payload, bytes| udp.write(bytes, payload).map_err(io::Error::other));
    }
    let stamp = (now_ps / 1_000_000_000) as u32;
    let mut tcp = step
        .tcp(tuple.src_port(), tuple.dst_port(), seq, u16::MAX)
        .options(&[TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(stamp, 0)])
        .map_err(|_| io::Error::other("the TCP options do not fit their header"))?;
    if is(TCP_SYN) {
        tcp = tcp.syn();
    }
    if is(TCP_FIN) {
        tcp = tcp.fin();
    }
    if is(TCP_ACK) || !is(TCP_SYN) {
        tcp = tcp.ack(ack);
    }
    if packet.marked && packet.is_ack {
        tcp = tcp.ece();
    }
    without_payload(packet, |payload, bytes| tcp.write(bytes, payload).map_err(io::Error::other))
}

/// The IP header of a packet: IPv4 (RFC 791), or IPv6 with its flow label (RFC 8200 §3).
fn ip_headers(packet: &SeenPacket) -> io::Result<etherparse::IpHeaders> {
    let tuple = &packet.headers.five_tuple;
    let (proto, dscp) = (etherparse::IpNumber(tuple.proto()), etherparse::IpDscp::try_new(packet.headers.dscp));
    let (dscp, experienced) = (dscp.unwrap_or_default(), packet.marked && !packet.is_ack);
    let ecn = if experienced { etherparse::IpEcn::CongestionExperienced } else { etherparse::IpEcn::NotEct };
    let Some((src, dst)) = tuple.v4() else {
        let header = etherparse::Ipv6Header {
            traffic_class: dscp.value() << 2 | ecn.value(),
            flow_label: etherparse::Ipv6FlowLabel::try_new(tuple.flow_label()).unwrap_or_default(),
            payload_length: 0,
            next_header: proto,
            hop_limit: 64,
            source: tuple.src().to_bits().to_be_bytes(),
            destination: tuple.dst().to_bits().to_be_bytes(),
        };
        return Ok(etherparse::IpHeaders::Ipv6(header, Default::default()));
    };
    let mut ip = etherparse::Ipv4Header::new(0, 64, proto, src.octets(), dst.octets()).map_err(io::Error::other)?;
    (ip.dscp, ip.ecn, ip.dont_fragment) = (dscp, ecn, true);
    Ok(etherparse::IpHeaders::Ipv4(ip, Default::default()))
}

/// The bytes that `write` writes for a payload of zeros, without the payload itself.
fn without_payload(
    packet: &SeenPacket,
    write: impl FnOnce(&[u8], &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let payload = vec![0; usize::from(packet.payload)];
    let mut bytes = Vec::new();
    write(&payload, &mut bytes)?;
    bytes.truncate(bytes.len() - payload.len());
    Ok(bytes)
}

impl<W: Write> Tap for PcapTap<W> {
    const ON: bool = true;

    fn seen(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, fate: Fate) {
        if self.failed.is_none() {
            self.failed = self.write(now_ps, link, packet, fate).err();
        }
    }
}
