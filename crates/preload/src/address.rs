//! IPv4 addresses in the form of the C library.

use libc::{c_int, sockaddr, sockaddr_in, socklen_t};
use std::net::{Ipv4Addr, SocketAddrV4};

const LENGTH: socklen_t = size_of::<sockaddr_in>() as socklen_t;

/// Reads an address; `None` if it is not an IPv4 address.
///
/// # Safety
/// `address` must be null or point to `length` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddrV4> {
    if address.is_null() || length < LENGTH {
        return None;
    }
    // SAFETY: the address has the length of the type. It can be unaligned.
    let found = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    (c_int::from(found.sin_family) == libc::AF_INET)
        .then(|| SocketAddrV4::new(Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr)), u16::from_be(found.sin_port)))
}

fn written(address: SocketAddrV4) -> sockaddr_in {
    // SAFETY: all zeros are a valid value of this type.
    let mut made: sockaddr_in = unsafe { std::mem::zeroed() };
    made.sin_family = libc::AF_INET as libc::sa_family_t;
    made.sin_addr.s_addr = u32::from(*address.ip()).to_be();
    made.sin_port = address.port().to_be();
    made
}

/// Returns the address that a socket is bound to; 0.0.0.0:0 if it is not bound.
pub(crate) fn of(socket: c_int) -> Option<SocketAddrV4> {
    let (mut found, mut length) = (written(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)), LENGTH);
    // SAFETY: both pointers refer to local values of the given length.
    unsafe {
        let place = std::ptr::from_mut(&mut found).cast::<sockaddr>();
        (libc::getsockname(socket, place, &raw mut length) == 0).then(|| read(place, length)).flatten()
    }
}

/// Binds a socket, and returns whether that succeeded.
pub(crate) fn bind(socket: c_int, address: SocketAddrV4) -> bool {
    let address = written(address);
    // SAFETY: the address is a local value of the given length.
    unsafe { libc::bind(socket, std::ptr::from_ref(&address).cast(), LENGTH) == 0 }
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
