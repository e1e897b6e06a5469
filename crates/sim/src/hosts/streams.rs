//! Parallel streams in hosts: the sender of a transfer requests paths from the controller and claims one for each
//! stream. It opens a stream when its claim is answered, and releases the paths when all streams are closed. A host
//! that gets no answer opens its streams on the default routes.
//!
//! As with GridFTP, a stream that has sent all its bytes takes the next block of the transfer, so a fast path carries
//! more.

use super::Hosts;
use crate::agenda::{Agenda, Event};
use crate::network::Network;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_control::{AssignError, Assigned, AssignmentId, ClaimKey, Input, Owner, PathRequest, PathSearch};
use pathloom_model::{Fabric, Nanos, Path};
use pathloom_scheme::OptionU64;
use pathloom_transport::streams::{PathTraits, StreamSettings};
use std::collections::BTreeMap;

/// How long a host waits for answers of the controller before it opens its streams without them.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// Bytes that a stream takes at a time, before rounding down to full segments. This is GridFTP's default.
const BLOCK_BYTES: u64 = 256 << 10;
/// Numbers of requests of a transfer: the assignment, and the release. Claims are numbered from 1.
const ASSIGN: u32 = 0;
const RELEASE: u32 = u32::MAX;

/// Transfers over several streams that are under way.
#[derive(Default)]
pub(super) struct Streams {
    settings: Option<StreamSettings>,
    by_transfer: BTreeMap<u32, Transfer>,
}

/// What a host knows about the streams of a transfer.
#[derive(Default)]
struct Transfer {
    assignment: Option<AssignmentId>,
    streams: Vec<Stream>,
    /// Bytes that no stream has taken yet; `None` for a long-lived transfer, whose streams send without end.
    left: Option<u64>,
    closed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// The claim of the stream has not been answered.
    Waiting,
    /// The stream is open, in this slot, and has taken this many bytes.
    Open { slot: usize, taken: u64 },
    /// The stream takes no more bytes.
    Done,
}

impl Streams {
    /// Creates an empty table. It gets transfers only if hosts open parallel streams.
    pub(super) fn new(settings: Option<&StreamSettings>) -> Streams {
        Streams { settings: settings.cloned(), by_transfer: BTreeMap::new() }
    }
}

fn request(transfer: u32, number: u32) -> u64 {
    u64::from(transfer) << 32 | u64::from(number)
}

/// The bandwidth of a path between two hosts, and the round-trip propagation delay. The bandwidth is what the path has
/// left, or the rate of its slowest link if that is unknown.
fn traits(fabric: &Fabric, ends: &super::Ends, path: &Path, available_bps: Option<u64>) -> PathTraits {
    let access = [ends.src.uplink, ends.dst.uplink.reverse()];
    let links = || path.links().iter().chain(&access).map(|&link| fabric.link(link).settings);
    let delay_ps: u64 = links().map(|link| link.delay_ps).sum();
    let rate_bps = available_bps.or(links().map(|link| link.rate_bps).min()).unwrap_or(0);
    PathTraits { rate_bps, round_trip_ms: 2e-9 * delay_ps as f64 }
}

impl Hosts {
    /// Whether transfers have several streams, each with a path.
    pub(super) fn has_streams(&self) -> bool {
        self.streams.settings.is_some()
    }

    /// Starts a transfer by requesting its paths.
    pub(super) fn ask_for_paths(&mut self, now: Ps, agenda: &mut Agenda, transfer: u32) {
        let Some(settings) = &self.streams.settings else { return };
        let all = self.transfers.subflows(transfer);
        let (src, dst) = (all[0].src.address, all[0].dst.address);
        let search = if settings.disjoint { PathSearch::EdgeDisjoint } else { PathSearch::BreadthFirst };
        let paths = PathRequest { src, dst, count: settings.paths_wanted(), search, lifetime: None };
        let streams = vec![Stream::Waiting; all.len()];
        let left = self.transfers.spec(transfer).size_bytes;
        let owner = self.owner(transfer);
        self.transfers.begin(transfer, to_nanos(now));
        self.streams.by_transfer.insert(transfer, Transfer { streams, left, ..Transfer::default() });
        self.tell(now, agenda, Input::AssignPaths { request: request(transfer, ASSIGN), owner, paths });
        agenda.push(now + to_ps(PATIENCE), Event::PathsOverdue(transfer));
    }

    fn owner(&self, transfer: u32) -> Owner {
        Owner(format!("host {}", self.transfers.subflows(transfer)[0].src.address))
    }

    /// The controller has assigned paths and told the bandwidth that each of them has left, or has refused. Claims a
    /// path for each stream; without paths, opens all streams.
    pub(crate) fn assigned<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        request_number: u64,
        answer: Result<(Assigned, Vec<OptionU64>), AssignError>,
    ) {
        let transfer = (request_number >> 32) as u32;
        let Ok((Assigned { assignment, paths }, available_bps)) = answer else {
            return self.open_all_streams(now, network, agenda, transfer);
        };
        let owner = self.owner(transfer);
        let Some(settings) = &self.streams.settings else { return };
        let Some(known) = self.streams.by_transfer.get_mut(&transfer) else {
            // All streams are over already.
            let request = request(transfer, RELEASE);
            return self.tell(now, agenda, Input::ReleasePaths { request, owner, assignment });
        };
        known.assignment = Some(assignment);
        let all = self.transfers.subflows(transfer);
        let available_bps = |index: usize| available_bps.get(index).and_then(|left| left.get());
        let known = paths.iter().enumerate().map(|(index, path)| {
            let left = if settings.available { available_bps(index) } else { None };
            traits(&self.fabric, &all[0], path, left)
        });
        let known: Vec<PathTraits> = known.collect();
        let spread = settings.spread(&known);
        let claims: Vec<Input> = (0u32..)
            .zip(all.iter().zip(spread))
            .map(|(index, (ends, path))| {
                let connection = ClaimKey::to_come(ends.src.address, ends.dst.address, ends.src_port);
                let (request, path) = (request(transfer, index + 1), Some(path as u32));
                Input::ClaimPath { request, owner: owner.clone(), assignment, connection, path, opens_to: None }
            })
            .collect();
        claims.into_iter().for_each(|claim| self.tell(now, agenda, claim));
    }

    /// The controller has answered a claim. Opens its stream, with or without a path.
    pub(crate) fn claimed<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        request_number: u64,
    ) {
        let (transfer, number) = ((request_number >> 32) as u32, request_number as u32);
        self.open_stream(now, network, agenda, transfer, number as usize - 1);
    }

    /// Opens all streams of a transfer that are not open yet.
    pub(crate) fn open_all_streams<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
    ) {
        let streams = self.streams.by_transfer.get(&transfer).map_or(0, |known| known.streams.len());
        (0..streams).for_each(|index| self.open_stream(now, network, agenda, transfer, index));
    }

    fn open_stream<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
        index: usize,
    ) {
        let known = self.streams.by_transfer.get(&transfer);
        if known.is_none_or(|known| known.streams.get(index) != Some(&Stream::Waiting)) {
            return;
        }
        let ends = self.transfers.subflows(transfer)[index];
        let slot = self.open_subflow(now, network, agenda, transfer, &ends, None);
        if let Some(known) = self.streams.by_transfer.get_mut(&transfer) {
            known.streams[index] = Stream::Open { slot, taken: 0 };
        }
        self.pump(now, network, agenda, slot);
    }

    /// A stream has sent all its bytes. It takes the next block if it has room for more, and `true` is returned. When
    /// the last block is taken, the other streams are done.
    #[inline(never)]
    pub(super) fn take_block<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        slot: usize,
    ) -> bool {
        let subflow = self.subflows.get(slot);
        let transfer = subflow.transfer;
        let Some(known) = self.streams.by_transfer.get_mut(&transfer) else { return false };
        let Some(left) = &mut known.left else { return false };
        if subflow.sender.room_bytes() == 0 {
            return false;
        }
        let mss = u64::from(self.transport.mss_bytes);
        let block = (BLOCK_BYTES - BLOCK_BYTES % mss).max(mss).min(*left);
        *left -= block;
        let is_last = *left == 0;
        for stream in &mut known.streams {
            if let Stream::Open { slot: of, taken } = stream {
                *taken += if *of == slot { block } else { 0 };
            }
        }
        subflow.sender.extend(block);
        if is_last {
            self.end_streams(now, network, agenda, transfer, slot);
        }
        true
    }

    /// All blocks of a transfer are taken. The stream in slot `last` took the last one and still sends; the others
    /// end.
    fn end_streams<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
        last: usize,
    ) {
        let Some(known) = self.streams.by_transfer.get_mut(&transfer) else { return };
        let waiting = known.streams.iter().filter(|&&stream| stream == Stream::Waiting).count();
        let is_open = |stream: &Stream| match *stream {
            Stream::Open { slot, taken } => Some((slot, taken)),
            Stream::Waiting | Stream::Done => None,
        };
        let open: Vec<(usize, u64)> = known.streams.iter().filter_map(is_open).collect();
        known.streams.fill(Stream::Done);
        known.closed += waiting;
        self.transfers.skip(transfer, waiting as u32);
        for (slot, taken) in open {
            let subflow = self.subflows.get(slot);
            subflow.size = taken;
            subflow.sender.finish();
            if subflow.receiver.delivered_bytes() >= taken && !subflow.delivered {
                self.finish(now, agenda, slot);
            }
            if slot != last && self.subflows.get(slot).sender.is_finished() {
                self.close(now, network, agenda, slot);
            }
        }
    }

    /// A stream is closed. After the last one of its transfer, the paths are released.
    pub(super) fn stream_closed(&mut self, now: Ps, agenda: &mut Agenda, transfer: u32) {
        let Some(known) = self.streams.by_transfer.get_mut(&transfer) else { return };
        known.closed += 1;
        if known.closed < known.streams.len() {
            return;
        }
        let assignment = known.assignment;
        self.streams.by_transfer.remove(&transfer);
        if let Some(assignment) = assignment {
            let (request, owner) = (request(transfer, RELEASE), self.owner(transfer));
            self.tell(now, agenda, Input::ReleasePaths { request, owner, assignment });
        }
    }
}
