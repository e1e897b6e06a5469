//! Access to the kernel: by BPF, or by the socket list if BPF is not available.

use crate::agent::Order;
use crate::bpf::{leftovers, pin_folder, Bpf, Seen, Setup};
use crate::changes::Watch;
use crate::config::{BpfUse, Config};
use crate::namespaces::Namespace;
use crate::sockets::{self, SocketList};
use pathloom_model::{FiveTuple, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// New events of flows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// The events.
    pub seen: Vec<Seen>,
    /// All long flows, if events were lost.
    pub all: Option<BTreeSet<FiveTuple>>,
}

/// Access to the kernel.
pub struct Kernel {
    namespaces: Vec<Namespace>,
    /// Namespace of each address.
    places: BTreeMap<Ipv4Addr, usize>,
    lists: Vec<SocketList>,
    bpf: Option<Bpf>,
    /// The newest election of a controller of which an agent knew.
    election: u64,
    threshold_bytes: u64,
    tos: u8,
    /// Long flows of the socket list.
    known: BTreeSet<FiveTuple>,
    /// Number of sockets of other processes that the agent has labelled or found labelled.
    labelled: u64,
    orders: BTreeSet<FiveTuple>,
    /// What was wrong when the kernel was last looked after.
    problems: BTreeSet<String>,
    /// Directories whose entries others can remove: pins, and those of the cgroup and of the namespaces.
    directories: BTreeSet<PathBuf>,
    /// Whether a namespace was opened again since the last call of [`Kernel::has_new_namespaces`].
    renewed: bool,
}

impl Kernel {
    /// Opens the namespaces and starts the BPF programs. `say` gets a line if BPF is not used,
    /// and about programs of other versions.
    pub fn start(config: &Config, say: impl Fn(&str)) -> Result<Kernel, String> {
        let (namespaces, places) = open_namespaces(config)?;
        let tos = config.flows.dscp << 2;
        let setup = Setup {
            cgroup: config.kernel.cgroup.clone(),
            pins: config.kernel.bpf_fs.clone(),
            threshold_bytes: config.flows.threshold_bytes,
            tos,
            prefixes: config.prefixes()?,
        };
        let pairs = cookies(&namespaces, &places);
        let bpf = match config.kernel.bpf {
            BpfUse::Off => {
                say("kernel.bpf = \"off\": flows are announced and labelled, but not paced or held");
                None
            }
            wanted => match Bpf::start(&setup, &pairs) {
                Ok(bpf) => Some(bpf),
                Err(why) if wanted == BpfUse::Required => return Err(format!("BPF is not available: {why}")),
                Err(why) => {
                    say(&format!(
                        "BPF is not available ({why}): the socket list is read, and flows are announced and labelled, \
                         but not paced or held"
                    ));
                    None
                }
            },
        };
        let lists = namespaces.iter().map(SocketList::open).collect::<Result<_, _>>();
        let lists = lists.map_err(|problem| format!("the socket list cannot be read: {problem}"))?;
        let threshold_bytes = setup.threshold_bytes;
        for other in leftovers(&setup.pins) {
            say(&format!(
                "{}: has BPF programs of another version of the agent, which also label and hold connections. If that \
                 agent does not run any more, `pathloom-hostd clean` removes them",
                other.display()
            ));
        }
        let (known, orders, problems) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut directories: BTreeSet<PathBuf> =
            namespaces.iter().filter_map(|namespace| Some(namespace.path.as_ref()?.parent()?.to_owned())).collect();
        if bpf.is_some() {
            directories.insert(pin_folder(&setup.pins));
            directories.extend(setup.cgroup.parent().map(Path::to_owned));
        }
        let mut kernel = Kernel {
            namespaces,
            places,
            lists,
            election: bpf.as_ref().map_or(0, Bpf::election),
            bpf,
            threshold_bytes,
            tos,
            known,
            labelled: 0,
            orders,
            problems,
            directories,
            renewed: false,
        };
        kernel.sweep_all()?;
        Ok(kernel)
    }

    /// Whether holds and paces are carried out.
    pub fn enforces(&self) -> bool {
        self.bpf.is_some()
    }

    /// Descriptor that is readable when there are events. `None` if [`Kernel::news`] must be called periodically.
    pub fn events_fd(&self) -> io::Result<Option<OwnedFd>> {
        self.bpf.as_ref().map(Bpf::events_fd).transpose()
    }

    /// Returns what an earlier agent has left: long flows, orders, and the time until which its paces are valid.
    pub fn inherited(&mut self) -> (Vec<FiveTuple>, Vec<(FiveTuple, Order)>, Nanos) {
        let Some(bpf) = &self.bpf else { return (Vec::new(), Vec::new(), Nanos::ZERO) };
        let (flows, orders) = (bpf.flows().into_iter().map(|(flow, _)| flow).collect(), bpf.orders());
        self.orders = orders.iter().map(|&(flow, _)| flow).collect();
        (flows, orders, bpf.inherited_until())
    }

    /// The newest election of a controller of which an earlier agent knew; 0: none.
    pub fn election(&self) -> u64 {
        self.election
    }

    /// Notes the newest election of a controller for the next agent.
    pub fn set_election(&mut self, newest: u64) -> Result<(), String> {
        if newest == self.election {
            return Ok(());
        }
        self.election = newest;
        self.bpf.as_mut().map_or(Ok(()), |bpf| bpf.set_election(newest))
    }

    /// Returns the events of flows since the last call.
    pub fn news(&mut self) -> Result<News, String> {
        let Some(bpf) = &mut self.bpf else { return self.read_lists() };
        let seen = bpf.take_events();
        let all = bpf.lost_events().then(|| bpf.flows().into_iter().map(|(flow, _)| flow).collect());
        // BPF cannot label IPv4 connections of IPv6 sockets.
        let unlabelled = |seen: &Seen| match seen {
            Seen::Long(flow, false) if self.tos != 0 => Some(*flow),
            _ => None,
        };
        let unlabelled: Vec<_> = seen.iter().filter_map(unlabelled).collect();
        if !unlabelled.is_empty() {
            self.label(&unlabelled);
        }
        Ok(News { seen, all })
    }

    /// Carries out orders. For the BPF programs, paces and holds are valid until `alive_until`.
    pub fn carry_out(
        &mut self,
        orders: &[(FiveTuple, Order)],
        has_holds: bool,
        alive_until: Nanos,
    ) -> Result<(), String> {
        let Some(bpf) = &mut self.bpf else { return Ok(()) };
        let mut sweeps = BTreeSet::new();
        for (flow, order) in orders {
            bpf.order(flow, order)?;
            self.orders.insert(*flow);
            // A pace takes effect at the next acknowledgement. A held connection gets none, so sockets are visited.
            if order.released {
                sweeps.extend(place_of(&self.places, flow));
            }
        }
        bpf.settings(!self.orders.is_empty(), has_holds, alive_until)?;
        for index in sweeps {
            bpf.sweep(&self.namespaces[index])?;
        }
        for (flow, order) in orders.iter().filter(|(_, order)| order.pace_bps.is_none() && order.hold_until.is_none()) {
            bpf.order(flow, &Order { released: false, ..*order })?;
            bpf.forget(flow);
        }
        Ok(())
    }

    /// Forgets orders that the kernel has removed. Must be called periodically.
    pub fn tidy(&mut self) {
        if let Some(bpf) = &self.bpf {
            self.orders = bpf.orders().into_iter().map(|(flow, _)| flow).collect();
        }
    }

    /// Puts back what others have removed, and returns a line for each new event and problem. Must be called every few
    /// seconds.
    pub fn look_after(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        let mut problems = BTreeSet::new();
        if let Some(bpf) = &mut self.bpf {
            match bpf.put_back() {
                Ok(false) => {}
                Ok(true) => events.push(
                    "another program has detached the BPF programs of the agent, or has created their cgroup anew; they \
                     are attached again"
                        .to_owned(),
                ),
                Err(why) => drop(problems.insert(format!("the BPF programs are not attached: {why}"))),
            }
            if !bpf.is_pinned() {
                problems.insert(
                    "another program has removed pins of the agent from the BPF file system; restart the agent, so that \
                     the next one finds flows and orders if this one is killed"
                        .to_owned(),
                );
            }
        }
        for index in 0..self.namespaces.len() {
            match self.renew_namespace(index) {
                Ok(None) => {}
                Ok(Some(event)) => events.push(event),
                Err(why) => drop(problems.insert(why)),
            }
        }
        for (address, &index) in &self.places {
            let bound = self.namespaces[index].inside(|| UdpSocket::bind((*address, 0)));
            if bound.is_ok_and(|bound| bound.is_err_and(|why| why.kind() == io::ErrorKind::AddrNotAvailable)) {
                problems.insert(format!("{address}: no interface has this address of [[hosts]]"));
            }
        }
        events.extend(problems.difference(&self.problems).cloned());
        events.extend(self.problems.difference(&problems).map(|over| format!("no longer: {over}")));
        self.problems = problems;
        events
    }

    /// Opens the sources of events after which [`Kernel::look_after`] may find something.
    pub fn watches(&self) -> Vec<io::Result<Watch>> {
        let addresses = self.namespaces.iter().map(|namespace| namespace.inside(Watch::addresses)?);
        let directories = Watch::directories(self.directories.iter().map(PathBuf::as_path));
        addresses.chain([directories]).collect()
    }

    /// Whether namespaces were created anew since the last call. Their events need other sources.
    pub fn has_new_namespaces(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// Opens a namespace again if its file has been created anew. Returns a line if so.
    fn renew_namespace(&mut self, index: usize) -> Result<Option<String>, String> {
        let Some(path) = self.namespaces[index].path.clone() else { return Ok(None) };
        let plain = |why: String| format!("namespace {}: {why}", path.display());
        let now = Namespace::open(Some(&path)).map_err(|why| plain(why.to_string()))?;
        if now.cookie == self.namespaces[index].cookie {
            return Ok(None);
        }
        self.lists[index] = SocketList::open(&now).map_err(|why| plain(why.to_string()))?;
        self.namespaces[index] = now;
        self.renewed = true;
        let pairs = cookies(&self.namespaces, &self.places);
        if let Some(bpf) = &mut self.bpf {
            bpf.set_places(&pairs).map_err(plain)?;
        }
        Ok(Some(format!("namespace {}: was created anew; the agent serves its hosts there", path.display())))
    }

    /// Visits all sockets of all namespaces.
    pub fn sweep_all(&mut self) -> Result<(), String> {
        let Some(bpf) = &mut self.bpf else { return Ok(()) };
        self.namespaces.iter().try_for_each(|namespace| bpf.sweep(namespace))
    }

    /// Ends all paces and holds, and removes the BPF programs.
    pub fn stop(mut self, config: &Config) -> Result<(), String> {
        let Some(bpf) = &mut self.bpf else { return Ok(()) };
        for (flow, order) in bpf.orders() {
            bpf.order(&flow, &Order { released: order.hold_until.is_some(), ..Order::default() })?;
        }
        bpf.settings(true, false, Nanos::ZERO)?;
        self.sweep_all()?;
        let pins = &config.kernel.bpf_fs;
        crate::bpf::clean(pins).map(drop).map_err(|problem| format!("{}: {problem}", pins.display()))
    }

    /// Returns the counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.bpf.as_ref().map(Bpf::counters).unwrap_or_default();
        counters.push(("labelled_from_outside", self.labelled));
        counters
    }

    fn read_lists(&mut self) -> Result<News, String> {
        let mut now = BTreeMap::new();
        for list in &self.lists {
            now.extend(list.read().map_err(|problem| format!("the socket list cannot be read: {problem}"))?);
        }
        now.retain(|flow, listed| {
            listed.acked_bytes >= self.threshold_bytes
                && flow.src() != flow.dst()
                && flow.src().v4().is_some_and(|src| self.places.contains_key(&src))
        });
        let over = self.known.iter().filter(|flow| !now.contains_key(flow)).map(|&flow| Seen::Closed(flow));
        let mut seen: Vec<_> = over.collect();
        let fresh: Vec<FiveTuple> = now.keys().filter(|flow| !self.known.contains(flow)).copied().collect();
        if self.tos != 0 && !fresh.is_empty() {
            let inodes: Vec<_> = fresh.iter().map(|flow| now[flow].inode).collect();
            self.labelled += sockets::label(&inodes, self.tos) as u64;
        }
        seen.extend(fresh.iter().map(|&flow| Seen::Long(flow, true)));
        self.known = now.into_keys().collect();
        Ok(News { seen, all: None })
    }

    /// Labels connections that BPF could not label.
    fn label(&mut self, flows: &[FiveTuple]) {
        let places: BTreeSet<usize> = flows.iter().filter_map(|flow| place_of(&self.places, flow)).collect();
        let mut inodes = Vec::new();
        for index in places {
            if let Ok(listed) = self.lists[index].read() {
                inodes.extend(flows.iter().filter_map(|flow| Some(listed.get(flow)?.inode)));
            }
        }
        self.labelled += sockets::label(&inodes, self.tos) as u64;
    }
}

/// The namespace where a flow begins.
fn place_of(places: &BTreeMap<Ipv4Addr, usize>, flow: &FiveTuple) -> Option<usize> {
    places.get(&flow.src().v4()?).copied()
}

/// Returns each address with the cookie of its namespace.
fn cookies(namespaces: &[Namespace], places: &BTreeMap<Ipv4Addr, usize>) -> Vec<(u64, u32)> {
    places.iter().map(|(&address, &index)| (namespaces[index].cookie, u32::from(address))).collect()
}

type Places = (Vec<Namespace>, BTreeMap<Ipv4Addr, usize>);

fn open_namespaces(config: &Config) -> Result<Places, String> {
    let mut namespaces: Vec<Namespace> = Vec::new();
    let mut places = BTreeMap::new();
    for host in &config.hosts {
        let path = host.namespace.as_deref();
        let index = match namespaces.iter().position(|one| one.path.as_deref() == path) {
            Some(index) => index,
            None => {
                let opened = Namespace::open(path).map_err(|problem| match path {
                    Some(path) => format!("namespace {}: {problem}", path.display()),
                    None => format!("the agent's namespace: {problem}"),
                })?;
                namespaces.push(opened);
                namespaces.len() - 1
            }
        };
        places.extend(host.addresses.iter().map(|&address| (address, index)));
    }
    Ok((namespaces, places))
}
