//! Parallel streams in hosts: the sender of a transfer requests paths from the controller and claims one for each
//! stream. It opens a stream when its claim is answered, and releases the paths when all streams are closed. A host
//! that gets no answer opens its streams on the default routes.
//!
//! As with GridFTP, a stream that has sent all its bytes takes the next block of the transfer, so a fast path carries
//! more.

use crate::agenda::Event;
use crate::hosts::shared::Shared;
use crate::plan::Ends;
use crate::run::Run;
use crate::subflow::Subflows;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps};
use crate::transfers::Transfers;
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

    /// Whether transfers have several streams, each with a path.
    pub(super) fn are_used(&self) -> bool {
        self.settings.is_some()
    }

    /// Starts a transfer by requesting its paths.
    pub(super) fn ask_for_paths<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let Some(settings) = &self.settings else { return };
        let all = shared.transfers.subflows(transfer);
        let (src, dst) = (all[0].src.address, all[0].dst.address);
        let search = if settings.disjoint { PathSearch::EdgeDisjoint } else { PathSearch::BreadthFirst };
        let paths = PathRequest { src, dst, count: settings.paths_wanted(), search, lifetime: None };
        let streams = vec![Stream::Waiting; all.len()];
        let left = shared.transfers.spec(transfer).size_bytes;
        let owner = owner(&shared.transfers, transfer);
        shared.transfers.begin(transfer, to_nanos(run.now));
        self.by_transfer.insert(transfer, Transfer { streams, left, ..Transfer::default() });
        shared.tell(run.now, run.agenda, Input::AssignPaths { request: request(transfer, ASSIGN), owner, paths });
        run.agenda.push(run.now + to_ps(PATIENCE), Event::PathsOverdue(transfer));
    }

    /// The controller has assigned paths to a transfer and told the bandwidth that each of them has left, or has refused.
    /// Claims a path for each stream. Returns whether the streams must open without paths.
    pub(super) fn assigned<T: Tap>(
        &mut self,
        shared: &Shared,
        run: &mut Run<'_, T>,
        transfer: u32,
        answer: Result<(Assigned, Vec<OptionU64>), AssignError>,
    ) -> bool {
        let Ok((Assigned { assignment, paths }, available_bps)) = answer else { return true };
        let owner = owner(&shared.transfers, transfer);
        let Some(settings) = &self.settings else { return false };
        let Some(known) = self.by_transfer.get_mut(&transfer) else {
            // All streams are over already.
            let request = request(transfer, RELEASE);
            shared.tell(run.now, run.agenda, Input::ReleasePaths { request, owner, assignment });
            return false;
        };
        known.assignment = Some(assignment);
        let all = shared.transfers.subflows(transfer);
        let available_bps = |index: usize| available_bps.get(index).and_then(|left| left.get());
        let known = paths.iter().enumerate().map(|(index, path)| {
            let left = if settings.available { available_bps(index) } else { None };
            traits(&shared.fabric, &all[0], path, left)
        });
        let known: Vec<PathTraits> = known.collect();
        for (index, (ends, path)) in (0u32..).zip(all.iter().zip(settings.spread(&known))) {
            let connection = ClaimKey::to_come(ends.src.address, ends.dst.address, ends.src_port);
            let (request, path, owner) = (request(transfer, index + 1), Some(path as u32), owner.clone());
            let claim = Input::ClaimPath { request, owner, assignment, connection, path, opens_to: None };
            shared.tell(run.now, run.agenda, claim);
        }
        false
    }

    /// Number of streams of a transfer; 0 if it is over.
    pub(super) fn count(&self, transfer: u32) -> usize {
        self.by_transfer.get(&transfer).map_or(0, |known| known.streams.len())
    }

    /// Whether a stream is not open yet.
    pub(super) fn waits(&self, transfer: u32, index: usize) -> bool {
        self.by_transfer.get(&transfer).is_some_and(|known| known.streams.get(index) == Some(&Stream::Waiting))
    }

    /// A stream is open, in this slot.
    pub(super) fn opened(&mut self, transfer: u32, index: usize, slot: usize) {
        if let Some(known) = self.by_transfer.get_mut(&transfer) {
            known.streams[index] = Stream::Open { slot, taken: 0 };
        }
    }

    /// A stream has sent all its bytes. It takes the next block if it has room for more. Returns whether it took the last
    /// one; `None` if it took none.
    pub(super) fn take_block(&mut self, subflows: &mut Subflows, mss_bytes: u64, slot: usize) -> Option<bool> {
        let subflow = subflows.get(slot);
        let known = self.by_transfer.get_mut(&subflow.transfer)?;
        let left = known.left.as_mut()?;
        if subflow.sender.room_bytes() == 0 {
            return None;
        }
        let block = (BLOCK_BYTES - BLOCK_BYTES % mss_bytes).max(mss_bytes).min(*left);
        *left -= block;
        let is_last = *left == 0;
        for stream in &mut known.streams {
            if let Stream::Open { slot: of, taken } = stream {
                *taken += if *of == slot { block } else { 0 };
            }
        }
        subflow.sender.extend(block);
        Some(is_last)
    }

    /// All blocks of a transfer are taken. Returns the streams that are open: slots, and the bytes that each took. Those
    /// that are not open will never be.
    pub(super) fn end(&mut self, transfers: &mut Transfers, transfer: u32) -> Vec<(usize, u64)> {
        let Some(known) = self.by_transfer.get_mut(&transfer) else { return Vec::new() };
        let waiting = known.streams.iter().filter(|&&stream| stream == Stream::Waiting).count();
        let is_open = |stream: &Stream| match *stream {
            Stream::Open { slot, taken } => Some((slot, taken)),
            Stream::Waiting | Stream::Done => None,
        };
        let open = known.streams.iter().filter_map(is_open).collect();
        known.streams.fill(Stream::Done);
        known.closed += waiting;
        transfers.skip(transfer, waiting as u32);
        open
    }

    /// A stream is closed. After the last one of its transfer, the paths are released.
    pub(super) fn closed<T: Tap>(&mut self, shared: &Shared, run: &mut Run<'_, T>, transfer: u32) {
        let Some(known) = self.by_transfer.get_mut(&transfer) else { return };
        known.closed += 1;
        if known.closed < known.streams.len() {
            return;
        }
        let assignment = known.assignment;
        self.by_transfer.remove(&transfer);
        if let Some(assignment) = assignment {
            let (request, owner) = (request(transfer, RELEASE), owner(&shared.transfers, transfer));
            shared.tell(run.now, run.agenda, Input::ReleasePaths { request, owner, assignment });
        }
    }
}

/// Who owns the paths of a transfer.
fn owner(transfers: &Transfers, transfer: u32) -> Owner {
    Owner(format!("host {}", transfers.subflows(transfer)[0].src.address))
}

fn request(transfer: u32, number: u32) -> u64 {
    u64::from(transfer) << 32 | u64::from(number)
}

/// The bandwidth of a path between two hosts, and the round-trip propagation delay. The bandwidth is what the path has
/// left, or the rate of its slowest link if that is unknown.
fn traits(fabric: &Fabric, ends: &Ends, path: &Path, available_bps: Option<u64>) -> PathTraits {
    let access = [ends.src.uplink, ends.dst.uplink.reverse()];
    let links = || path.links().iter().chain(&access).map(|&link| fabric.link(link).settings);
    let delay_ps: u64 = links().map(|link| link.delay_ps).sum();
    let rate_bps = available_bps.or(links().map(|link| link.rate_bps).min()).unwrap_or(0);
    PathTraits { rate_bps, round_trip_ms: 2e-9 * delay_ps as f64 }
}
