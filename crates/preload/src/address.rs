//! Addresses in the form of the C library. IPv6 sockets can use IPv4, with addresses such as ::ffff:10.0.0.1 (RFC 4291
//! §2.5.5.2). They are read as IPv4 addresses here.

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const V4_BYTES: socklen_t = size_of::<sockaddr_in>() as socklen_t;
const V6_BYTES: socklen_t = size_of::<sockaddr_in6>() as socklen_t;

/// Reads an address; `None` if it is neither an IPv4 nor an IPv6 address.
///
/// # Safety
/// `address` must be null or point to `length` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || length < V4_BYTES {
        return None;
    }
    // SAFETY: the address has at least the length of the type. It can be unaligned.
    let found = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    match c_int::from(found.sin_family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(found.sin_port)))
        }
        libc::AF_INET6 if length >= V6_BYTES => {
            // SAFETY: as above.
            let found = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = IpAddr::from(found.sin6_addr.s6_addr).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(found.sin6_port)))
        }
        _ => None,
    }
}

/// Returns the address that a socket is bound to; an unspecified address and port 0 if it is not bound.
pub(crate) fn of(socket: c_int) -> Option<SocketAddr> {
    // SAFETY: all zeros are a valid value of this type.
    let (mut found, mut length): (sockaddr_in6, socklen_t) = (unsafe { std::mem::zeroed() }, V6_BYTES);
    // SAFETY: both pointers refer to local values of the given length.
    unsafe {
        let place = std::ptr::from_mut(&mut found).cast::<sockaddr>();
        (libc::getsockname(socket, place, &raw mut length) == 0).then(|| read(place, length)).flatten()
    }
}

/// Binds a socket, and returns whether that succeeded. IPv6 sockets are bound to mapped addresses for IPv4.
pub(crate) fn bind(socket: c_int, address: SocketAddr) -> bool {
    let port = address.port().to_be();
    let as_v6 = option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6);
    let ip: Ipv4Addr = match (address.ip(), as_v6) {
        (IpAddr::V4(ip), false) => ip,
        (IpAddr::V6(_), false) => return false,
        (ip, true) => {
            // SAFETY: all zeros are a valid value of this type.
            let mut made: sockaddr_in6 = unsafe { std::mem::zeroed() };
            made.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            made.sin6_addr.s6_addr = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            made.sin6_port = port;
            // SAFETY: the address is a local value of the given length.
            return unsafe { libc::bind(socket, std::ptr::from_ref(&made).cast(), V6_BYTES) == 0 };
        }
    };
    // SAFETY: all zeros are a valid value of this type.
    let mut made: sockaddr_in = unsafe { std::mem::zeroed() };
    made.sin_family = libc::AF_INET as libc::sa_family_t;
    made.sin_addr.s_addr = u32::from(ip).to_be();
    made.sin_port = port;
    // SAFETY: the address is a local value of the given length.
    unsafe { libc::bind(socket, std::ptr::from_ref(&made).cast(), V4_BYTES) == 0 }
}

/// Returns a numeric option of a socket; `None` if the socket does not have it.
pub(crate) fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: both pointers refer to local values of the given length.
    let done = unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut length) };
    (done == 0).then_some(value)
}

/// Sets a numeric option of a socket.
pub(crate) fn set_option(socket: c_int, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the value is local and has the given length. Nothing depends on the result.
    unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), size_of::<c_int>() as socklen_t) };
}
