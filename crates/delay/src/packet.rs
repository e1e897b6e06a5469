//! The tag of a received frame. The kernel removes VLAN tags, and reports them in a control message.

use libc::{c_int, msghdr};

/// Longest frame, with its tag.
pub(crate) const MOST_BYTES: usize = 9_222;
/// Bytes of a VLAN tag, and of the Ethernet addresses before it.
pub(crate) const TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;
const USUAL_TPID: u16 = 0x8100;
/// From struct tpacket_auxdata (linux/if_packet.h).
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
pub(crate) const PACKET_AUXDATA: c_int = 8;

/// Information that the kernel supplies with a frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct FrameMetadata {
    /// Time of arrival, in ns of the real-time clock.
    pub arrived_ns: Option<u64>,
    /// Tag of the frame: type and value.
    pub tag: Option<(u16, u16)>,
}

/// Reads the control messages of a received frame.
///
/// # Safety
/// `message` must be as `recvmsg` has left it.
pub(crate) unsafe fn read_metadata(message: &msghdr) -> FrameMetadata {
    let mut found = FrameMetadata::default();
    // SAFETY: the macros walk the control messages that the kernel wrote. Their data are read unaligned.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    found.arrived_ns = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
                }
                (libc::SOL_PACKET, PACKET_AUXDATA) => {
                    let status = data.cast::<u32>().read_unaligned();
                    let tci = data.add(16).cast::<u16>().read_unaligned();
                    let tpid = data.add(18).cast::<u16>().read_unaligned();
                    if status & TP_STATUS_VLAN_VALID != 0 {
                        let known = status & TP_STATUS_VLAN_TPID_VALID != 0;
                        found.tag = Some((if known { tpid } else { USUAL_TPID }, tci));
                    }
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    found
}

/// Inserts a tag into a frame of `length` bytes that begins at `TAG_BYTES` in the buffer. Returns the frame.
pub(crate) fn with_tag(buffer: &mut [u8], length: usize, tag: Option<(u16, u16)>) -> &[u8] {
    match tag {
        Some((tpid, tci)) if length >= ADDRESSES_BYTES => {
            buffer.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
            buffer[ADDRESSES_BYTES..ADDRESSES_BYTES + 2].copy_from_slice(&tpid.to_be_bytes());
            buffer[ADDRESSES_BYTES + 2..ADDRESSES_BYTES + 4].copy_from_slice(&tci.to_be_bytes());
            &buffer[..TAG_BYTES + length]
        }
        _ => &buffer[TAG_BYTES..TAG_BYTES + length],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_inserted_between_addresses_and_type() {
        let frame: Vec<u8> = (0..20).collect();
        let mut buffer = [vec![0xff; 4], frame.clone()].concat();
        assert_eq!(with_tag(&mut buffer.clone(), 20, None), frame);
        let tagged = with_tag(&mut buffer, 20, Some((0x8100, 0x0fab)));
        assert_eq!(tagged, [&frame[..12], &[0x81, 0x00, 0x0f, 0xab], &frame[12..]].concat());
    }
}
