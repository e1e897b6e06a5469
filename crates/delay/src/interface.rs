//! One end of a cable: a packet socket on an interface.

use crate::packet::{read_metadata, with_tag, MOST_BYTES, PACKET_AUXDATA, TAG_BYTES};
use crate::sleep;
use libc::{c_int, c_void, socklen_t};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Buffer for packets that arrive while this process waits for a processor, and for packets to send.
const BUFFER_BYTES: c_int = 1 << 26;
/// An arrival longer ago than this is attributed to a change of the clock.
const MOST_AGE_NS: u64 = 1_000_000_000;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const PACKET_QDISC_BYPASS: c_int = 20;
const ETH_P_ALL: u16 = 3;

/// A network interface with its packet socket.
pub(crate) struct Interface {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Interface {
    pub(crate) fn open(name: &str) -> io::Result<Interface> {
        let text = CString::new(name)?;
        if text.as_bytes_with_nul().len() > libc::IFNAMSIZ {
            return Err(io::Error::other("is not the name of an interface"));
        }
        let mut own = [0; libc::IFNAMSIZ];
        own.iter_mut().zip(text.as_bytes()).for_each(|(place, &byte)| *place = byte as libc::c_char);
        // SAFETY: the name ends with 0; the address is a local value; the socket has no other owner.
        unsafe {
            let index = libc::if_nametoindex(text.as_ptr());
            if index == 0 {
                return Err(io::Error::last_os_error());
            }
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // The socket receives nothing before it is bound.
            let socket = libc::socket(libc::AF_PACKET, kind, 0);
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(socket);
            let made = Interface { socket, name: own };
            made.set_option(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
            made.set_option(libc::SOL_PACKET, PACKET_AUXDATA, 1)?;
            made.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
            // Without these options, the socket is slower or loses packets in bursts.
            let _ = made.set_option(libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1);
            let _ = made.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES);
            let _ = made.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES);
            let mut place: libc::sockaddr_ll = std::mem::zeroed();
            place.sll_family = libc::AF_PACKET as u16;
            place.sll_protocol = ETH_P_ALL.to_be();
            place.sll_ifindex = index as c_int;
            let length = size_of::<libc::sockaddr_ll>() as socklen_t;
            if libc::bind(made.socket(), (&raw const place).cast(), length) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(made)
        }
    }

    pub(crate) fn socket(&self) -> c_int {
        self.socket.as_raw_fd()
    }

    /// Returns the next frame, and its time of arrival in ns of [`sleep::now_ns`].
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8; MOST_BYTES]) -> Option<(u64, &'a [u8])> {
        let mut control = [0_u64; 16];
        let rest = &mut buffer[TAG_BYTES..];
        let mut part = libc::iovec { iov_base: rest.as_mut_ptr().cast::<c_void>(), iov_len: rest.len() };
        // SAFETY: the message points to local values and to the buffer, with their correct lengths.
        let (length, metadata) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let length = libc::recvmsg(self.socket(), &raw mut message, 0);
            if length < 0 {
                return None;
            }
            (length as usize, read_metadata(&message))
        };
        let age = metadata.arrived_ns.map_or(0, |at| sleep::read(libc::CLOCK_REALTIME).saturating_sub(at));
        let arrived = sleep::now_ns() - if age > MOST_AGE_NS { 0 } else { age };
        Some((arrived, with_tag(buffer, length, metadata.tag)))
    }

    /// Sends a frame. A frame without room in the send buffer is lost, as on a cable that is down.
    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the frame has the given length.
        unsafe { libc::send(self.socket(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
    }

    /// Whether the other end of the interface pair is up.
    pub(crate) fn has_carrier(&self) -> bool {
        self.flags().is_some_and(|flags| flags & libc::IFF_RUNNING != 0)
    }

    /// Sets the interface up or down.
    pub(crate) fn set(&self, up: bool) {
        let Some(flags) = self.flags() else { return };
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = (if up { flags | libc::IFF_UP } else { flags & !libc::IFF_UP }) as libc::c_short;
        // SAFETY: the request is a local value.
        unsafe { libc::ioctl(self.socket(), libc::SIOCSIFFLAGS, &raw mut request) };
    }

    fn flags(&self) -> Option<c_int> {
        let mut request = self.request();
        // SAFETY: the request is a local value, and the kernel has written its flags.
        unsafe {
            (libc::ioctl(self.socket(), libc::SIOCGIFFLAGS, &raw mut request) == 0)
                .then(|| c_int::from(request.ifr_ifru.ifru_flags))
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeros are a valid value of this type.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn set_option(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: the value is local and has the given length.
        let done = unsafe {
            let length = size_of::<c_int>() as socklen_t;
            libc::setsockopt(self.socket(), level, name, (&raw const value).cast(), length)
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
