//! Subflows that are parallel streams: they open as the controller answers, take blocks of their transfer and end
//! together. [`Streams`](super::streams::Streams) knows what each has taken.

use super::Tcp;
use crate::hosts::shared::Shared;
use crate::run::Run;
use crate::tap::Tap;
use pathloom_control::{AssignError, Assigned};
use pathloom_scheme::OptionU64;

impl Tcp {
    /// The controller has answered a request for paths. Without paths, all streams open at once.
    pub(in crate::hosts) fn assigned<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        request: u64,
        answer: Result<(Assigned, Vec<OptionU64>), AssignError>,
    ) {
        let transfer = (request >> 32) as u32;
        if self.streams.assigned(shared, run, transfer, answer) {
            self.open_all_streams(shared, run, transfer);
        }
    }

    /// The controller has answered a claim. Opens its stream, with or without a path.
    pub(in crate::hosts) fn claimed<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, request: u64) {
        let (transfer, number) = ((request >> 32) as u32, request as u32);
        self.open_stream(shared, run, transfer, number as usize - 1);
    }

    /// Opens all streams of a transfer that are not open yet.
    pub(in crate::hosts) fn open_all_streams<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        transfer: u32,
    ) {
        (0..self.streams.count(transfer)).for_each(|index| self.open_stream(shared, run, transfer, index));
    }

    fn open_stream<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32, index: usize) {
        if !self.streams.waits(transfer, index) {
            return;
        }
        let ends = shared.transfers.subflows(transfer)[index];
        let slot = self.open_subflow(shared, run, transfer, &ends, None);
        self.streams.opened(transfer, index, slot);
        self.pump(shared, run, slot);
    }

    /// A stream has sent all its bytes. Returns whether it takes a further block. When the last block is taken, the other
    /// streams are done.
    #[inline(never)]
    pub(super) fn take_block<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) -> bool {
        let mss_bytes = u64::from(self.settings.mss_bytes);
        let Some(is_last) = self.streams.take_block(&mut self.subflows, mss_bytes, slot) else { return false };
        if is_last {
            self.end_streams(shared, run, slot);
        }
        true
    }

    /// All blocks of a transfer are taken. The stream in slot `last` took the last one and still sends; the others
    /// end.
    fn end_streams<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, last: usize) {
        let transfer = self.subflows.get(last).transfer;
        for (slot, taken) in self.streams.end(&mut shared.transfers, transfer) {
            let subflow = self.subflows.get(slot);
            subflow.size = taken;
            subflow.sender.finish();
            if subflow.receiver.delivered_bytes() >= taken && !subflow.delivered {
                self.finish(shared, run, slot);
            }
            if slot != last && self.subflows.get(slot).sender.is_finished() {
                self.close(shared, run, slot);
            }
        }
    }
}
