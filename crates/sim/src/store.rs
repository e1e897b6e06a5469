//! Frames that do not fit into a packet. Each has the number that its packet carries.

use crate::trusted::ask_for_huge_pages;

/// Makes room for `len` items. Grows by at least a quarter, but not to twice the size, because subflows take most of
/// a large run's memory.
pub(crate) fn grow<T>(items: &mut Vec<T>, len: usize) {
    if items.capacity() < len {
        let room = len.max(items.len() + items.len() / 4);
        items.reserve_exact(room - items.len());
        ask_for_huge_pages(items);
    }
}

/// A store whose numbers are reused.
pub(crate) struct Store<F> {
    places: Vec<Option<F>>,
    free: Vec<u32>,
}

impl<F> Default for Store<F> {
    fn default() -> Store<F> {
        Store { places: Vec::new(), free: Vec::new() }
    }
}

impl<F> Store<F> {
    /// Stores a frame and returns its number.
    pub(crate) fn put(&mut self, frame: F) -> u64 {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.places.push(None);
                self.places.len() as u32 - 1
            }
        };
        self.places[number as usize] = Some(frame);
        u64::from(number)
    }

    /// Removes and returns the frame with this number. The number is then free.
    pub(crate) fn take(&mut self, number: u64) -> Option<F> {
        let frame = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number as u32);
        Some(frame)
    }

    /// Number of stored frames.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_grows_by_a_quarter() {
        let mut items: Vec<u32> = Vec::new();
        let mut moves = 0;
        for item in 0..100_000 {
            let before = items.capacity();
            grow(&mut items, item as usize + 1);
            items.push(item);
            moves += usize::from(items.capacity() != before);
            assert!(items.capacity() <= items.len() + items.len() / 4 + 1);
        }
        assert!(moves < 60, "{moves}");
    }

    #[test]
    fn numbers_are_reused_and_frames_are_taken_once() {
        let mut store = Store::default();
        let numbers = [store.put('a'), store.put('b'), store.put('c')];
        assert_eq!((store.len(), store.take(numbers[1])), (3, Some('b')));
        assert_eq!((store.len(), store.take(numbers[1]), store.take(99)), (2, None, None));
        assert_eq!(store.put('d'), numbers[1]);
        assert_eq!((store.take(numbers[1]), store.take(numbers[0]), store.len()), (Some('d'), Some('a'), 1));
    }
}
