//! Options of a TCP header: nothing may panic, and an option of MPTCP that was read is written with the same length and read
//! again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_openflow::packet::mptcp::{find, TcpOption};

fuzz_target!(|bytes: &[u8]| {
    let _ = find(bytes);
    if let Ok(option) = TcpOption::parse(bytes) {
        let mut out = Vec::new();
        option.emit(&mut out);
        assert_eq!(TcpOption::parse(&out), Ok(option));
        assert!(out.len() == bytes.len() || matches!(option, TcpOption::Other(_)));
    }
});
