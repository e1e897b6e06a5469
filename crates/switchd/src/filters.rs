//! The tc filters of interfaces (tc(8)), which others can remove or replace at any time.

use pathloom_daemon_support::netlink::{
    attributes, find, message, messages, number32, Message, Socket, SocketFlags, DUMP, ROUTE,
};
use std::io;
use std::time::Duration;

/// Parent of the filters for incoming frames: TC_H_CLSACT with TC_H_MIN_INGRESS (linux/pkt_sched.h).
const INGRESS: u32 = 0xffff_fff2;
/// Bytes of struct tcmsg (linux/rtnetlink.h).
const HEADER_BYTES: usize = 20;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Identifier of the program of a filter (TCA_BPF_ID, linux/pkt_cls.h).
const PROGRAM: u16 = 11;

/// A socket for questions about filters.
#[derive(Debug)]
pub struct Filters {
    socket: Socket,
    sequence: u32,
}

impl Filters {
    pub fn open() -> io::Result<Filters> {
        let socket = Socket::open(ROUTE, SocketFlags::empty(), 0)?;
        socket.set_receive_timeout(Duration::from_secs(2))?;
        Ok(Filters { socket, sequence: 0 })
    }

    /// Returns the identifier of the BPF program for incoming frames at this preference and handle of an interface.
    pub fn program_at(&mut self, ifindex: u32, (preference, handle): (u16, u32)) -> io::Result<Option<u32>> {
        self.sequence = self.sequence.wrapping_add(1);
        let words = [0, ifindex, 0, INGRESS, 0];
        let body: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        self.socket.send(&message(libc::RTM_GETTFILTER, DUMP, self.sequence, &body))?;
        let mut buffer = vec![0; 1 << 16];
        let mut found = None;
        loop {
            let datagram = self.socket.receive(&mut buffer)?;
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                match (i32::from(message.kind), message.answer()) {
                    (libc::NLMSG_DONE, _) => return Ok(found),
                    (_, Some(Err(number))) => return Err(io::Error::from_raw_os_error(number)),
                    _ => found = found.or_else(|| program(&message, (preference, handle))),
                }
            }
        }
    }
}

/// Returns the identifier of the BPF program of a filter with this preference and handle.
fn program(message: &Message<'_>, (preference, handle): (u16, u32)) -> Option<u32> {
    let word = |at: usize| message.body.get(at..).and_then(number32);
    let rest = message.body.get(HEADER_BYTES..)?;
    let is_wanted = message.kind == libc::RTM_NEWTFILTER
        && word(8) == Some(handle)
        && word(16).map(|info| info >> 16) == Some(u32::from(preference))
        && find(rest, KIND) == Some(b"bpf\0");
    let options = attributes(rest).find(|(kind, _)| *kind == OPTIONS).filter(|_| is_wanted)?.1;
    number32(find(options, PROGRAM)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_daemon_support::netlink::put;

    #[test]
    fn the_program_of_a_filter_is_found_by_its_preference_and_handle() {
        let mut options = Vec::new();
        put(&mut options, PROGRAM, &77_u32.to_ne_bytes());
        let words = [0_u32, 5, 1, INGRESS, 1 << 16 | 3];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        put(&mut body, KIND, b"bpf\0");
        put(&mut body, OPTIONS, &options);
        let of = |body: &[u8], place| program(&Message { kind: libc::RTM_NEWTFILTER, sequence: 1, body }, place);
        assert_eq!(of(&body, (1, 1)), Some(77));
        assert_eq!([(2, 1), (1, 2)].map(|place| of(&body, place)), [None; 2]);
        for cut in 0..body.len() {
            assert_eq!(of(&body[..cut], (1, 1)), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_interface_without_the_program_has_none() {
        let mut filters = Filters::open().unwrap();
        // The loopback.
        assert_eq!(filters.program_at(1, (1, 0xfff0)).unwrap(), None);
    }
}
