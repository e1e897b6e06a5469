//! The links of a wheel's slots in blocks of one cache line, for fabrics whose links do not fit into the CPU's
//! caches.

#![allow(unsafe_code)]

use super::SLOTS;
use crate::trusted::{fetch, item, item_mut};

/// Some links of a slot. A key has the offset of a link's time from the slot's start in its upper half, and the link
/// in its lower half.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block {
    keys: [u64; Block::KEYS],
    /// Number of keys in use.
    count: u32,
    /// The next block of the slot, or the next free block; [`END`] if there is none.
    next: u32,
}

impl Block {
    const KEYS: usize = 7;
}

/// End of each chain of blocks: a block that never has room.
const END: u32 = 0;

/// The blocks of all slots. The number of a block in `slots`, in `free` or in [`Block::next`] is always below the number
/// of blocks: numbers come only from [`Blocks::extend`], and no block is ever removed.
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// First block of each slot.
    slots: Box<[u32; SLOTS]>,
    /// The first free block. It was used last, so it is probably still in the CPU's caches.
    free: u32,
}

impl Blocks {
    pub(super) fn new() -> Blocks {
        let end = Block { keys: [0; Block::KEYS], count: Block::KEYS as u32, next: END };
        Blocks { blocks: vec![end], slots: Box::new([END; SLOTS]), free: END }
    }

    /// Adds a key to a slot.
    #[inline(always)]
    pub(super) fn insert(&mut self, slot: usize, key: u64) {
        let mut block = self.slots[slot];
        // SAFETY: a number in `slots` is that of a block (see `Blocks`).
        if unsafe { item(&self.blocks, block as usize) }.count == Block::KEYS as u32 {
            block = self.extend(slot, block);
        }
        // SAFETY: the number is from `slots` or from `extend`, so it is that of a block.
        let block = unsafe { item_mut(&mut self.blocks, block as usize) };
        block.keys[block.count as usize] = key;
        block.count += 1;
    }

    /// Adds a block to a slot, in front of `next`.
    fn extend(&mut self, slot: usize, next: u32) -> u32 {
        let mut block = self.free;
        if block == END {
            block = self.blocks.len() as u32;
            self.blocks.push(Block { keys: [0; Block::KEYS], count: 0, next });
        } else {
            let place = &mut self.blocks[block as usize];
            self.free = std::mem::replace(&mut place.next, next);
            place.count = 0;
        }
        self.slots[slot] = block;
        block
    }

    /// Takes all keys out of a slot.
    #[inline(always)]
    pub(super) fn take(&mut self, slot: usize, mut give: impl FnMut(u64)) {
        let mut block = std::mem::replace(&mut self.slots[slot], END);
        while block != END {
            // SAFETY: a number in `slots` or `next` is that of a block (see `Blocks`).
            let of = unsafe { item_mut(&mut self.blocks, block as usize) };
            of.keys.iter().take(of.count as usize).for_each(|&key| give(key));
            let next = std::mem::replace(&mut of.next, self.free);
            self.free = std::mem::replace(&mut block, next);
        }
    }

    /// Prefetches the cache line of a slot's first block.
    #[inline(always)]
    pub(super) fn fetch(&self, slot: usize) {
        fetch(&self.blocks, self.slots[slot] as usize);
    }

    /// Removes a link, wherever it is. Returns whether it was here. Slow; may leave an empty block in a slot.
    pub(super) fn remove(&mut self, link: u32) -> bool {
        for &first in self.slots.iter() {
            let mut block = first;
            while block != END {
                let of = &mut self.blocks[block as usize];
                let used = of.count as usize;
                if let Some(place) = of.keys[..used].iter().position(|&key| key as u32 == link) {
                    of.keys.swap(place, used - 1);
                    of.count -= 1;
                    return true;
                }
                block = of.next;
            }
        }
        false
    }
}
