//! Indexing without a check, for the few places that run once per packet-hop.
//!
//! Measured: checked indexing costs about 25 of 250 instructions a hop. Every index used here is a number that the fabric
//! or the simulator itself gave out (links, nodes, cache places, ring positions under a mask), never input; debug builds
//! and so all tests check each of them.
#![allow(unsafe_code)]

/// `items[index]`, where the caller has made sure that there is such an item.
#[inline(always)]
pub(crate) fn item<T>(items: &[T], index: usize) -> &T {
    debug_assert!(index < items.len(), "item {index} of {}", items.len());
    // SAFETY: see above; `index < items.len()` holds at each call.
    unsafe { items.get_unchecked(index) }
}

/// `items[index]` to be changed, where the caller has made sure that there is such an item.
#[inline(always)]
pub(crate) fn item_mut<T>(items: &mut [T], index: usize) -> &mut T {
    debug_assert!(index < items.len(), "item {index} of {}", items.len());
    // SAFETY: see above; `index < items.len()` holds at each call.
    unsafe { items.get_unchecked_mut(index) }
}
