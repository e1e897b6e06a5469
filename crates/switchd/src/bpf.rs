//! Access to the kernel: loads the BPF program `bpf/switch.bpf.c`, attaches it to the ports, and reads and writes its
//! maps.
//!
//! Maps are pinned in a BPF file system, and the attachments belong to the interfaces. If the switch is killed, the
//! kernel continues to forward the flows that it knows. The next start reuses the maps and replaces the program without
//! a gap.

use crate::layout::{Flow, Path as KernelPath, Port, UpcallFrame};
use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::tc::{qdisc_add_clsact, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, Pod};
use pathloom_daemon_support::pins::{self, take_map, Pins};
use pathloom_daemon_support::report::one_line;
use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// The compiled BPF program. Empty if clang was missing.
static PROGRAM: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));
/// Maps that outlive the process.
const PINNED: [&str; 2] = ["paths", "ports"];
/// Prefix of the name of the folder for pins. The number changes with the layout of the maps.
const PIN_FOLDER: &str = "pathloom-switch-1";
/// Priority and handle of the program among the tc filters of an interface.
const PRIORITY: u16 = 1;
const HANDLE: TcHandle = TcHandle::new(0, 1);
/// Both, as numbers.
pub const PLACE: (u16, u32) = (PRIORITY, 1);

#[allow(unsafe_code)]
mod pod {
    use super::{Flow, KernelPath, Pod, Port};
    // SAFETY: all structures are `repr(C)`, consist of integers, and have no padding (tested in `layout.rs`).
    unsafe impl Pod for Flow {}
    unsafe impl Pod for KernelPath {}
    unsafe impl Pod for Port {}
}

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// The loaded BPF program and its maps.
pub struct Bpf {
    ebpf: Ebpf,
    paths: HashMap<MapData, Flow, KernelPath>,
    ports: HashMap<MapData, u32, Port>,
    frames: RingBuf<MapData>,
}

fn pins(bpf_fs: &Path, name: &str) -> Pins {
    Pins::new(bpf_fs, &format!("{PIN_FOLDER}-{name}"))
}

/// Fails if there is no compiled BPF program, because clang was missing.
pub fn require() -> Result<(), String> {
    pins::require(PROGRAM)
}

impl Bpf {
    /// Loads the program with the maps of an earlier start, if there are any.
    pub fn load(bpf_fs: &Path, name: &str) -> Result<Bpf, String> {
        Bpf::try_load(&pins(bpf_fs, name)).map_err(|problem| one_line(problem.as_ref()))
    }

    fn try_load(pins: &Pins) -> Anyhow<Bpf> {
        let mut ebpf = pins.load(PROGRAM, &PINNED)?;
        let mut map = |name: &str| take_map(&mut ebpf, name);
        let (paths, ports) = (HashMap::try_from(map("paths")?)?, HashMap::try_from(map("ports")?)?);
        let frames = RingBuf::try_from(map("frames")?)?;
        let program: &mut SchedClassifier =
            ebpf.program_mut("forward").ok_or("the BPF object has no program `forward`")?.try_into()?;
        program.load()?;
        Ok(Bpf { ebpf, paths, ports, frames })
    }

    /// Returns the identifier of the program in the kernel.
    pub fn program_id(&self) -> Result<u32, String> {
        let program = self.ebpf.program("forward").ok_or("the BPF object has no program `forward`")?;
        program.info().map(|info| info.id()).map_err(|problem| one_line(&problem))
    }

    /// Attaches the program to an interface, and replaces the program of an earlier start. `port` contains the number
    /// of the port and its limit.
    pub fn attach(&mut self, interface: &str, ifindex: u32, port: Port) -> Result<(), String> {
        let mut attach = || -> Anyhow<()> {
            // The counters of an earlier start continue.
            let before = self.ports.get(&ifindex, 0).unwrap_or_default();
            let now = Port { number: port.number, per_s: port.per_s, due_ns: 0, ..before };
            self.ports.insert(ifindex, now, 0)?;
            let program: &mut SchedClassifier =
                self.ebpf.program_mut("forward").ok_or("the BPF object has no program `forward`")?.try_into()?;
            // The queueing discipline may exist already. If it cannot be added, attaching the program fails below.
            let _ = qdisc_add_clsact(interface);
            let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
            let ingress = TcAttachType::Ingress;
            let id = match program.attach_with_options(interface, ingress, TcAttachOptions::Netlink(options)) {
                Ok(id) => id,
                Err(_) => {
                    let old = SchedClassifierLink::attached(interface, ingress, PRIORITY, HANDLE, None)?;
                    program.attach_to_link(old)?
                }
            };
            // The program must stay attached when this process ends.
            std::mem::forget(program.take_link(id)?);
            Ok(())
        };
        attach().map_err(|problem| format!("{interface}: {}", one_line(problem.as_ref())))
    }

    /// Passes waiting frames to `act`, at most `most` of them. Returns whether there may be more.
    pub fn frames(&mut self, most: usize, mut act: impl FnMut(&mut FlowTable<'_>, UpcallFrame<'_>)) -> bool {
        for _ in 0..most {
            let Some(entry) = self.frames.next() else { return false };
            if let Some(frame) = UpcallFrame::read(&entry) {
                act(&mut FlowTable(&mut self.paths), frame);
            }
        }
        true
    }

    /// Access to the flows that the kernel forwards.
    pub fn flow_table(&mut self) -> FlowTable<'_> {
        FlowTable(&mut self.paths)
    }

    /// Returns the settings and counters of a port.
    pub fn port(&self, ifindex: u32) -> Port {
        self.ports.get(&ifindex, 0).unwrap_or_default()
    }

    /// Removes the entries of interfaces that are not in `wanted`. They are from an earlier start.
    pub fn keep_ports(&mut self, wanted: &[u32]) {
        let old: Vec<u32> = self.ports.keys().flatten().filter(|index| !wanted.contains(index)).collect();
        old.iter().for_each(|index| drop(self.ports.remove(index)));
    }
}

impl AsRawFd for Bpf {
    /// The descriptor is readable when frames wait.
    fn as_raw_fd(&self) -> RawFd {
        self.frames.as_raw_fd()
    }
}

/// Access to the flows that the kernel forwards.
pub struct FlowTable<'a>(&'a mut HashMap<MapData, Flow, KernelPath>);

impl FlowTable<'_> {
    /// Makes the kernel forward a flow. Returns false if the table is full.
    pub fn put(&mut self, flow: &Flow, path: &KernelPath) -> bool {
        self.0.insert(flow, path, 0).is_ok()
    }

    /// Makes the kernel stop forwarding a flow.
    pub fn remove(&mut self, flow: &Flow) {
        let _ = self.0.remove(flow);
    }

    /// Returns the path and the counters of a flow.
    pub fn get(&self, flow: &Flow) -> Option<KernelPath> {
        self.0.get(flow, 0).ok()
    }

    /// Returns all flows.
    pub fn all(&self) -> Vec<(Flow, KernelPath)> {
        self.0.iter().flatten().collect()
    }
}

/// Returns the tcx programs for incoming frames of an interface, in their order. They run before all tc filters. None before
/// Linux 6.6, which has no tcx.
pub fn preceding(interface: &str) -> Vec<String> {
    let programs = SchedClassifier::query_tcx(interface, TcAttachType::Ingress);
    let programs = programs.map(|(_, programs)| programs).unwrap_or_default();
    programs.iter().map(|one| format!("{} ({})", one.name_as_str().unwrap_or_default(), one.id())).collect()
}

/// Whether an earlier start has left pinned maps.
pub fn is_pinned(bpf_fs: &Path, name: &str) -> bool {
    pins(bpf_fs, name).has(&PINNED)
}

/// Returns the number of flows that the kernel forwards for a switch whose process does not run. `None` if there are no
/// maps.
pub fn remaining_flows(bpf_fs: &Path, name: &str) -> Option<usize> {
    let map = MapData::from_pin(pins(bpf_fs, name).place(PINNED[0])).ok()?;
    let paths: HashMap<MapData, Flow, KernelPath> = HashMap::try_from(aya::maps::Map::HashMap(map)).ok()?;
    Some(paths.keys().flatten().count())
}

/// Removes the program from interfaces, and the pins. Returns whether there were any pins.
pub fn clean<'a>(bpf_fs: &Path, name: &str, interfaces: impl Iterator<Item = &'a str>) -> io::Result<bool> {
    for interface in interfaces {
        if let Ok(link) = SchedClassifierLink::attached(interface, TcAttachType::Ingress, PRIORITY, HANDLE, None) {
            // Dropping the link detaches the program.
            drop(link);
        }
    }
    pins(bpf_fs, name).remove(&PINNED)
}
