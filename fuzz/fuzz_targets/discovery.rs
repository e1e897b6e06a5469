//! Discovery with two switches whose ports bring any frames, in any order with sessions and ports coming and going:
//! nothing may panic or grow without bound, no link is ever found between ports that no probe passed, and whatever is
//! sent goes to a port that is there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathloom_discovery::{Discovery, Dpid, HostSettings, Input, Mac, Output, Place, PortState, ProbeSettings};
use pathloom_model::{Nanos, PortNo};
use rand::SeedableRng;
use rand_pcg::Pcg64;

const SWITCHES: u64 = 2;
const PORTS: u32 = 3;

fn port(dpid: u64, number: u32, up: bool) -> PortState {
    PortState { port: PortNo(number), mac: Mac([2, 0, 0, 0, dpid as u8, number as u8]), up }
}

fuzz_target!(|bytes: &[u8]| {
    let rng = Pcg64::seed_from_u64(1);
    let mut discovery = Discovery::new(ProbeSettings::default(), HostSettings::default(), [7; 32], rng);
    let (mut now, mut rest) = (Nanos::from_secs(1), bytes);
    let mut outstanding: Vec<Vec<u8>> = Vec::new();
    let mut honest = false;
    while let [what, number, length, after @ ..] = rest {
        let dpid = 1 + u64::from(number >> 4) % SWITCHES;
        let place = Place::new(dpid, 1 + u32::from(number & 15) % PORTS);
        let (data, left) = after.split_at((*length as usize).min(after.len()));
        rest = left;
        now += Nanos(u64::from(*what) << 20);
        match what % 8 {
            0 => {
                let ports: Vec<PortState> = (1..=PORTS).map(|one| port(dpid, one, number & 1 << one == 0)).collect();
                discovery.handle(now, Input::SwitchUp { dpid: Dpid(dpid), ports: &ports });
            }
            1 => discovery.handle(now, Input::SwitchDown { dpid: Dpid(dpid) }),
            2 => {
                let state = port(dpid, place.port.0, length & 1 == 0);
                discovery.handle(now, Input::PortStatus { dpid: Dpid(dpid), state });
            }
            3 => discovery.handle(now, Input::PortRemoved { place }),
            4 => {
                // Somebody passes on a probe.
                if let Some(frame) = outstanding.pop() {
                    honest = true;
                    discovery.handle(now, Input::PacketIn { place, frame: &frame });
                }
            }
            5 => discovery.handle(now, Input::Timeout),
            6 => {
                let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, *number, 8, 6];
                frame.extend_from_slice(data);
                discovery.handle(now, Input::PacketIn { place, frame: &frame });
            }
            _ => discovery.handle(now, Input::PacketIn { place, frame: data }),
        }
        while let Some(output) = discovery.poll_output() {
            match output {
                Output::Send { place, frame } => {
                    assert!(place.dpid.0 <= SWITCHES && (1..=PORTS).contains(&place.port.0));
                    if frame[12..14] == [0x88, 0xcc] && outstanding.len() < 64 {
                        outstanding.push(frame);
                    }
                }
                Output::LinkUp { .. } => assert!(honest, "a link without a probe"),
                _ => {}
            }
        }
    }
    assert!(discovery.hosts().hosts().count() <= 64 * (SWITCHES as usize) * PORTS as usize);
});
