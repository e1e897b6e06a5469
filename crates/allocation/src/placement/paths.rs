//! The paths that a flow may take.

/// Paths by pair of ends. A pair is an index that the caller gives to two ToRs (or other ends). All flows of a pair
/// share its paths.
pub trait Paths {
    /// Number of paths of a pair; 0 if its ends are not connected.
    fn count(&self, pair: u32) -> u64;

    /// Appends the links of a path to `links`. `index` is less than [`Paths::count`].
    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>);
}

/// Paths that are listed explicitly.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathTable {
    pairs: Vec<Vec<Vec<u32>>>,
}

impl PathTable {
    /// Lists the paths of the next pair and returns its index.
    pub fn push(&mut self, paths: Vec<Vec<u32>>) -> u32 {
        self.pairs.push(paths);
        self.pairs.len() as u32 - 1
    }
}

impl Paths for PathTable {
    fn count(&self, pair: u32) -> u64 {
        self.pairs[pair as usize].len() as u64
    }

    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>) {
        links.extend_from_slice(&self.pairs[pair as usize][index as usize]);
    }
}
