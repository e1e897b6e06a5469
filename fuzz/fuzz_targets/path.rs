//! Frames of switch programs: any bytes are an error or a frame that is written and read back as it was, and a switch that
//! decides on such frames never panics, answers only by ports that it has, and keeps its tables within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_model::{Mac, Nanos, PortNo};
use pathloom_openflow::packet::path::{emit, read};
use pathloom_switching::programs::{Identity, PortRole, Selection, Settings, TcpPath};
use pathloom_switching::Program;

const PORTS: u32 = 4;
const MOST: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let roles = (1..=2).map(|port| (PortNo(port), PortRole::Host));
    let roles = roles.chain([(PortNo(3), PortRole::Switch { tier: None })]).collect();
    let identity = Identity { mac: Mac([6, 0, 0, 0, 0, 1]), tier: None, boot: 1, roles };
    let limits = Settings { most_connections: MOST, most_hosts: MOST, quiet: Nanos::ZERO, ..Settings::default() };
    let mut now = Nanos::from_secs(1);
    let mut switch = TcpPath::new(now, identity, limits, Selection::AllTcp);
    (1..=PORTS).for_each(|port| switch.set_port(now, PortNo(port), true));
    let mut rest = bytes;
    while let [what, length, after @ ..] = rest {
        let (data, left) = after.split_at(usize::from(*length).min(after.len()));
        rest = left;
        now += Nanos(u64::from(*what) << 20);
        let port = PortNo(1 + u32::from(*what) % PORTS);
        match read(data) {
            Ok(found) => {
                let mut again = Vec::new();
                emit(&found.frame, found.packet, &mut again);
                assert_eq!(read(&again).map(|read| read.frame), Ok(found.frame));
                let verdict = switch.decide(now, port, &found.frame);
                assert_eq!(verdict.emissions.is_empty(), verdict.dropped.is_some());
                assert!(verdict.emissions.iter().all(|out| (1..=PORTS).contains(&out.port.0)));
            }
            Err(_) => switch.note_unreadable(port),
        }
        if what % 16 == 0 {
            switch.set_port(now, port, what % 32 == 0);
        }
        if switch.poll_timeout().is_some_and(|at| at <= now) {
            switch.handle_timeout(now);
        }
        while switch.poll_emission().is_some() {}
        switch.take_stale();
        let tables = switch.tables();
        assert!(tables.connections <= 2 * MOST && tables.hosts <= MOST);
    }
});
