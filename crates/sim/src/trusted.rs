//! Indexing without a bounds check, for the few places that run once per packet-hop; and advice about memory to the
//! CPU and the kernel.
//!
//! Checked indexing costs about 25 of 250 instructions per hop. Every index used here is a number that the fabric or
//! the simulator itself has assigned (links, blocks, ring positions under a mask), never input. Each call says why the
//! item exists, and debug builds, and so all tests, check it.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Returns `items[index]`.
///
/// # Safety
/// `index` must be less than the number of items.
#[inline(always)]
pub(crate) unsafe fn item<T>(items: &[T], index: usize) -> &T {
    debug_assert!(index < items.len(), "item {index} of {}", items.len());
    // SAFETY: the caller makes sure of this.
    unsafe { items.get_unchecked(index) }
}

/// Returns `items[index]` for changes.
///
/// # Safety
/// `index` must be less than the number of items.
#[inline(always)]
pub(crate) unsafe fn item_mut<T>(items: &mut [T], index: usize) -> &mut T {
    debug_assert!(index < items.len(), "item {index} of {}", items.len());
    // SAFETY: the caller makes sure of this.
    unsafe { items.get_unchecked_mut(index) }
}

/// Prefetches the cache line of `items[index]`. Affects only speed; any index is allowed.
#[inline(always)]
pub(crate) fn fetch<T>(items: &[T], index: usize) {
    fetch_byte(items, index, 0);
}

/// Prefetches the cache line that contains the `offset`-th byte of `items[index]`.
#[inline(always)]
pub(crate) fn fetch_byte<T>(items: &[T], index: usize, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address, and the address is only computed, not read.
    unsafe {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().wrapping_add(index).cast::<i8>().wrapping_add(offset));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index, offset);
}

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Asks the kernel for huge pages for the memory of these items; does nothing for less than one page. On a large
/// fabric, nearly every access is to another page, and the CPU remembers the addresses of only a few pages. Affects
/// only speed.
pub(crate) fn ask_for_huge_pages<T>(items: &mut Vec<T>) {
    let from = (items.as_mut_ptr() as usize).next_multiple_of(HUGE_PAGE);
    let to = (items.as_ptr() as usize + items.capacity() * size_of::<T>()) / HUGE_PAGE * HUGE_PAGE;
    #[cfg(target_os = "linux")]
    if from < to {
        // SAFETY: the pages are within memory that the vector owns, and this advice changes no content.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (from, to);
}
