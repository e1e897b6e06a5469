//! Access to the kernel by BPF: loads the programs of `bpf/hostd.bpf.c`, attaches them to a cgroup, and reads and
//! writes their maps.
//!
//! Maps and attachments are pinned in a BPF file system. If the agent is killed, the programs stay, but their orders
//! end: holds end with their leases, and all orders end at `alive_until_ns`, which no agent extends any more. The next
//! agent reuses the maps and replaces the programs.

use crate::agent::Order;
use crate::layout::{
    payload_rate, wire_rate, Event, Flow, KernelOrder, Key, LocalAddress, Settings, COUNTERS, MAX_PREFIXES, NO_PACE,
    UNTOLD,
};
use crate::namespaces::Namespace;
use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Iter, ProgramError, SockOps};
use aya::{Btf, Ebpf, Pod};
use pathloom_daemon_support::attached::{programs, Hook};
use pathloom_daemon_support::files;
use pathloom_daemon_support::pins::{self, take_map, Pins};
use pathloom_daemon_support::report::one_line;
use pathloom_model::{FiveTuple, Nanos};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The compiled BPF programs. Empty if clang was missing.
static PROGRAMS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/hostd.bpf.o"));
/// Maps that outlive the agent.
const PINNED: [&str; 7] = ["settings_map", "places", "orders", "limits", "flows", "counters", "election"];
/// Name of the folder for pins. The number changes with the layout of the maps.
const PIN_FOLDER: &str = "pathloom-hostd-1";
/// Beginning of the names of these folders, of all versions.
const PIN_FOLDERS: &str = "pathloom-hostd-";
const LINKS: [&str; 2] = ["link-connections", "link-hold"];

#[allow(unsafe_code)]
mod pod {
    use super::{Flow, KernelOrder, Key, LocalAddress, Pod, Settings};
    // SAFETY: all structures are `repr(C)`, consist of integers, and have no padding (tested in `layout.rs`).
    unsafe impl Pod for Key {}
    unsafe impl Pod for LocalAddress {}
    unsafe impl Pod for Settings {}
    unsafe impl Pod for KernelOrder {}
    unsafe impl Pod for Flow {}
}

/// Places and settings of the BPF programs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cgroup (version 2) whose connections the programs handle.
    pub cgroup: PathBuf,
    /// A mounted BPF file system.
    pub pins: PathBuf,
    /// A connection is long from this number of acknowledged bytes on.
    pub threshold_bytes: u64,
    /// The label as a TOS byte. 0: no label.
    pub tos: u8,
    /// Address and length of each prefix of the fabric.
    pub prefixes: Vec<(u32, u8)>,
}

/// An event that the programs have reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A connection has become long. The flag tells whether it is labelled.
    Long(FiveTuple, bool),
    /// A long connection is closed.
    Closed(FiveTuple),
}

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// The loaded programs and their maps.
pub struct Bpf {
    ebpf: Ebpf,
    settings: Array<MapData, Settings>,
    orders: HashMap<MapData, Key, KernelOrder>,
    flows: HashMap<MapData, Key, Flow>,
    counters: PerCpuArray<MapData, u64>,
    events: RingBuf<MapData>,
    election: Array<MapData, u64>,
    in_force: Settings,
    /// Time until which the orders of an earlier agent are valid.
    inherited_until: Nanos,
    untold: u64,
    places: HashMap<MapData, LocalAddress, u32>,
    cgroup: PathBuf,
    pins: Pins,
    _links: [FdLink; 2],
}

impl Bpf {
    /// Whether the BPF programs were compiled in.
    pub fn is_built() -> bool {
        pins::require(PROGRAMS).is_ok()
    }

    /// Loads the programs and attaches them in place of those of an earlier agent. The error is one line.
    pub fn start(setup: &Setup, places: &[(u64, u32)]) -> Result<Bpf, String> {
        Bpf::try_start(setup, places).map_err(|problem| one_line(problem.as_ref()))
    }

    fn try_start(setup: &Setup, places: &[(u64, u32)]) -> Anyhow<Bpf> {
        let pins = Pins::new(&setup.pins, PIN_FOLDER);
        let mut ebpf = pins.load(PROGRAMS, &PINNED)?;
        let mut map = |name: &str| take_map(&mut ebpf, name);
        let (settings, orders) = (Array::try_from(map("settings_map")?)?, HashMap::try_from(map("orders")?)?);
        let (flows, counters) = (HashMap::try_from(map("flows")?)?, PerCpuArray::try_from(map("counters")?)?);
        let (events, election) = (RingBuf::try_from(map("events")?)?, Array::try_from(map("election")?)?);
        let mut addresses = HashMap::try_from(map("places")?)?;
        write_addresses(&mut addresses, places)?;
        // The orders of an earlier agent remain valid without a gap.
        let before: Settings = settings.get(&0, 0)?;
        load(&mut ebpf)?;
        let links = attach(&mut ebpf, &setup.cgroup, &pins)?;
        let mut bpf = Bpf {
            ebpf,
            settings,
            orders,
            flows,
            counters,
            events,
            election,
            in_force: first_settings(setup, &before),
            inherited_until: Nanos(before.alive_until_ns),
            untold: 0,
            places: addresses,
            cgroup: setup.cgroup.clone(),
            pins,
            _links: links,
        };
        bpf.untold = bpf.counter(UNTOLD);
        bpf.settings.set(0, bpf.in_force, 0)?;
        Ok(bpf)
    }

    /// Replaces the addresses whose connections are handled, each with the cookie of its namespace.
    pub fn set_places(&mut self, places: &[(u64, u32)]) -> Result<(), String> {
        write_addresses(&mut self.places, places).map_err(|problem| one_line(problem.as_ref()))
    }

    /// Attaches the programs again if others have detached them, or have created the cgroup anew. Returns whether that
    /// was necessary.
    pub fn put_back(&mut self) -> Result<bool, String> {
        let mut put_back = || -> Anyhow<bool> {
            let group = open_cgroup(&self.cgroup)?;
            for (hook, name) in [(Hook::SockOps, "connections"), (Hook::Egress, "hold")] {
                let program = self.ebpf.program(name).ok_or("a BPF program is missing")?.info()?.id();
                if !programs(&group, hook)?.contains(&program) {
                    self._links = attach(&mut self.ebpf, &self.cgroup, &self.pins)?;
                    return Ok(true);
                }
            }
            Ok(false)
        };
        put_back().map_err(|problem| one_line(problem.as_ref()))
    }

    /// Whether the pins exist, by which the next agent finds flows and orders if this one is killed.
    pub fn is_pinned(&self) -> bool {
        self.pins.has(&PINNED) && self.pins.has(&LINKS)
    }

    /// Time until which the orders of an earlier agent are valid. Zero if there was none.
    pub fn inherited_until(&self) -> Nanos {
        self.inherited_until
    }

    /// Descriptor that is readable when there are events.
    pub fn events_fd(&self) -> io::Result<OwnedFd> {
        self.events.as_fd().try_clone_to_owned()
    }

    /// Reads all waiting events.
    pub fn take_events(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        while let Some(item) = self.events.next() {
            if let Some(event) = read_event(&item) {
                let flow = event.key.five_tuple();
                seen.push(match event.closed {
                    0 => Seen::Long(flow, event.flow.labelled != 0),
                    _ => Seen::Closed(flow),
                });
            }
        }
        seen
    }

    /// Whether events were lost since the last call.
    pub fn lost_events(&mut self) -> bool {
        let untold = self.counter(UNTOLD);
        std::mem::replace(&mut self.untold, untold) != untold
    }

    /// Returns all present long flows.
    pub fn flows(&self) -> Vec<(FiveTuple, Flow)> {
        self.flows.iter().flatten().map(|(key, flow)| (key.five_tuple(), flow)).collect()
    }

    /// Returns all present orders.
    pub fn orders(&self) -> Vec<(FiveTuple, Order)> {
        let order = |order: KernelOrder| Order {
            pace_bps: wire_rate(order.pace),
            hold_until: (order.hold_until_ns > 0).then_some(Nanos(order.hold_until_ns)),
            released: false,
        };
        self.orders.iter().flatten().map(|(key, kept)| (key.five_tuple(), order(kept))).collect()
    }

    /// Writes an order. A release, or a pace for a flow that gets no acknowledgements, needs a sweep afterwards.
    pub fn order(&mut self, flow: &FiveTuple, order: &Order) -> Result<(), String> {
        let key = Key::new(flow).ok_or_else(|| format!("{flow:?} is of IPv6; orders are for connections over IPv4"))?;
        let mss = self.flows.get(&key, 0).ok().map(|flow| flow.mss);
        let kernel = KernelOrder {
            hold_until_ns: order.hold_until.map_or(0, |until| until.0),
            pace: payload_rate(order.pace_bps, mss),
            kick: order.released.into(),
        };
        self.orders.insert(key, kernel, 0).map_err(|problem| one_line(&problem))
    }

    /// Removes an order, if it has no effect any more.
    pub fn forget(&mut self, flow: &FiveTuple) {
        let Some(key) = Key::new(flow) else { return };
        let idle = |order: KernelOrder| order.pace == NO_PACE && order.hold_until_ns == 0 && order.kick == 0;
        // A connection that had a pace needs the order to restore the former limit. The order is removed at its close.
        if self.orders.get(&key, 0).is_ok_and(idle) && self.flows.get(&key, 0).is_err() {
            let _ = self.orders.remove(&key);
        }
    }

    /// Tells the programs whether there are orders and holds, and until when these are valid.
    pub fn settings(&mut self, orders: bool, holds: bool, alive_until: Nanos) -> Result<(), String> {
        let wanted =
            Settings { orders: orders.into(), holds: holds.into(), alive_until_ns: alive_until.0, ..self.in_force };
        if wanted != self.in_force {
            self.settings.set(0, wanted, 0).map_err(|problem| one_line(&problem))?;
            self.in_force = wanted;
        }
        Ok(())
    }

    /// The newest election of a controller of which this agent or an earlier one knew; 0: none.
    pub fn election(&self) -> u64 {
        self.election.get(&0, 0).unwrap_or_default()
    }

    /// Notes the newest election of a controller for the next agent.
    pub fn set_election(&mut self, newest: u64) -> Result<(), String> {
        self.election.set(0, newest, 0).map_err(|problem| one_line(&problem))
    }

    /// Visits all TCP sockets of a namespace. From now on, the programs also handle sockets that are older than them.
    /// Orders also take effect at sockets without traffic.
    pub fn sweep(&mut self, namespace: &Namespace) -> Result<(), String> {
        let mut walk = || -> Anyhow<()> {
            let program: &mut Iter = self.ebpf.program_mut("sweep").ok_or("no BPF program `sweep`")?.try_into()?;
            let id = program.attach()?;
            let link = program.take_link(id)?;
            let mut file = namespace.inside(|| link.into_file())??;
            // The program writes nothing. Reading to the end runs it.
            file.read_to_end(&mut Vec::new())?;
            Ok(())
        };
        walk().map_err(|problem| one_line(problem.as_ref()))
    }

    /// The counters of the programs by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        COUNTERS.iter().zip(0..).map(|(&name, index)| (name, self.counter(index))).collect()
    }

    fn counter(&self, index: u32) -> u64 {
        self.counters.get(&index, 0).map_or(0, |values| values.iter().sum())
    }
}

/// The folder with the pins of this version, in a BPF file system.
pub(crate) fn pin_folder(pins: &Path) -> PathBuf {
    pins.join(PIN_FOLDER)
}

/// Removes the pins of an earlier agent, and with them its programs. Also those of other versions. Returns whether there
/// were any.
pub fn clean(pins: &Path) -> io::Result<bool> {
    let others = leftovers(pins);
    others.iter().try_for_each(fs::remove_dir_all)?;
    let own = Pins::new(pins, PIN_FOLDER).remove(LINKS.iter().chain(&PINNED))?;
    Ok(own || !others.is_empty())
}

/// Returns the folders with pins of agents of other versions. Their programs also label and hold connections.
pub fn leftovers(pins: &Path) -> Vec<PathBuf> {
    let is_other = |name: &str| {
        let version = name.strip_prefix(PIN_FOLDERS);
        name != PIN_FOLDER && version.is_some_and(|version| version.parse::<u32>().is_ok())
    };
    let found = fs::read_dir(pins).into_iter().flatten().flatten();
    let others = found.filter(|one| one.file_name().to_str().is_some_and(is_other)).map(|one| one.path());
    let mut others: Vec<PathBuf> = others.collect();
    others.sort();
    others
}

fn first_settings(setup: &Setup, before: &Settings) -> Settings {
    let mut prefixes = [[0; 2]; MAX_PREFIXES];
    for (slot, &(address, length)) in prefixes.iter_mut().zip(&setup.prefixes) {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        *slot = [(address & mask).to_be(), mask.to_be()];
    }
    Settings {
        threshold_bytes: setup.threshold_bytes,
        alive_until_ns: before.alive_until_ns,
        tos: setup.tos.into(),
        orders: before.orders,
        holds: before.holds,
        prefix_count: setup.prefixes.len().min(MAX_PREFIXES) as u32,
        prefixes,
    }
}

/// Makes the map `places` contain exactly these addresses. Namespaces of earlier hosts may not exist any more.
fn write_addresses(map: &mut HashMap<MapData, LocalAddress, u32>, addresses: &[(u64, u32)]) -> Anyhow<()> {
    let wanted: Vec<_> =
        addresses.iter().map(|&(netns, address)| LocalAddress { netns, address: address.to_be(), zero: 0 }).collect();
    let old: Vec<LocalAddress> = map.keys().flatten().filter(|one| !wanted.contains(one)).collect();
    old.iter().for_each(|one| drop(map.remove(one)));
    Ok(wanted.iter().try_for_each(|one| map.insert(one, 1, 0))?)
}

fn load(ebpf: &mut Ebpf) -> Anyhow<()> {
    let btf = Btf::from_sys_fs()?;
    let sweep: &mut Iter = ebpf.program_mut("sweep").ok_or("no BPF program `sweep`")?.try_into()?;
    sweep.load("tcp", &btf)?;
    let hold: &mut CgroupSkb = ebpf.program_mut("hold").ok_or("no BPF program `hold`")?.try_into()?;
    hold.load()?;
    let seen: &mut SockOps = ebpf.program_mut("connections").ok_or("no BPF program `connections`")?.try_into()?;
    Ok(seen.load()?)
}

fn open_cgroup(cgroup: &Path) -> Anyhow<File> {
    Ok(File::open(cgroup).map_err(|problem| format!("cgroup {}: {problem}", cgroup.display()))?)
}

/// Attaches the loaded programs. Other programs stay attached beside them, because links allow several programs. The
/// attachments of an earlier agent are removed afterwards, so no connection is missed.
fn attach(ebpf: &mut Ebpf, cgroup: &Path, pins: &Pins) -> Anyhow<[FdLink; 2]> {
    let group = open_cgroup(cgroup)?;
    let exclusive = |problem| explain_attach(problem, cgroup);
    let hold: &mut CgroupSkb = ebpf.program_mut("hold").ok_or("no BPF program `hold`")?.try_into()?;
    let id = hold.attach(&group, CgroupSkbAttachType::Egress, CgroupAttachMode::Single).map_err(exclusive)?;
    let hold = FdLink::try_from(hold.take_link(id)?)?;
    let seen: &mut SockOps = ebpf.program_mut("connections").ok_or("no BPF program `connections`")?.try_into()?;
    let id = seen.attach(&group, CgroupAttachMode::Single).map_err(exclusive)?;
    let seen = FdLink::try_from(seen.take_link(id)?)?;
    Ok([pin(seen, &pins.place(LINKS[0]))?, pin(hold, &pins.place(LINKS[1]))?])
}

/// Names the way out if another program has the cgroup, or one above it, for itself (bpf(2): without BPF_F_ALLOW_MULTI).
fn explain_attach(problem: ProgramError, cgroup: &Path) -> Box<dyn Error> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&problem);
    while let Some(one) = cause {
        let number = one.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if number == Some(libc::EPERM) {
            let place = cgroup.display();
            return format!(
                "cgroup {place}: the kernel does not let the agent attach its programs. Run the agent as root. Otherwise \
                 another program has this cgroup or one above it for itself: `bpftool cgroup tree` shows it. Detach it, \
                 or set `cgroup` to one that has none"
            )
            .into();
        }
        cause = one.source();
    }
    problem.into()
}

fn pin(link: FdLink, place: &Path) -> Anyhow<FdLink> {
    files::remove_file(place)?;
    Ok(link.pin(place)?.into())
}

#[allow(unsafe_code)]
fn read_event(bytes: &[u8]) -> Option<Event> {
    if bytes.len() < size_of::<Event>() {
        return None;
    }
    // SAFETY: the length was checked, any bytes are a valid `Event`, and the read needs no alignment.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_other_versions_are_found_and_removed() {
        let pins = std::env::temp_dir().join(format!("pathloom-hostd-pins-{}", std::process::id()));
        for name in ["pathloom-hostd-0", "pathloom-hostd-12", "pathloom-hostd-check-7", "pathloom-switch-1-s1"] {
            fs::create_dir_all(pins.join(name)).unwrap();
            fs::write(pins.join(name).join("link-hold"), b"").unwrap();
        }
        assert_eq!(leftovers(&pins), ["pathloom-hostd-0", "pathloom-hostd-12"].map(|name| pins.join(name)));
        assert!(clean(&pins).unwrap());
        assert!(leftovers(&pins).is_empty() && !clean(&pins).unwrap());
        assert!(pins.join("pathloom-switch-1-s1").exists());
        fs::remove_dir_all(&pins).unwrap();
    }
}
