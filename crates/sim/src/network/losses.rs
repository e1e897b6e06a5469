//! Links that lose packets.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6c6f_7373_6573;

/// The links that lose packets. Each has its own generator, so its losses do not depend on other links.
pub(super) struct Losses {
    seed: u64,
    links: BTreeMap<u32, Lossy>,
}

struct Lossy {
    per_billion: u32,
    rng: Pcg64,
}

impl Losses {
    pub(super) fn new(seed: u64) -> Losses {
        Losses { seed, links: BTreeMap::new() }
    }

    /// Sets the loss rate of a link. A link that has lost packets before keeps its generator.
    pub(super) fn set(&mut self, link: u32, per_billion: u32) {
        let seed = self.seed ^ STREAM ^ (u64::from(link) << 20);
        let of = self.links.entry(link).or_insert_with(|| Lossy { per_billion, rng: Pcg64::seed_from_u64(seed) });
        of.per_billion = per_billion;
    }

    /// Moves the generators of some links to a part of a network: the part in which these links end.
    pub(super) fn part(&mut self, is_in: impl Fn(u32) -> bool) -> Losses {
        let (part, rest) = std::mem::take(&mut self.links).into_iter().partition(|(link, _)| is_in(*link));
        self.links = rest;
        Losses { seed: self.seed, links: part }
    }

    /// Takes back the generators of a part.
    pub(super) fn join(&mut self, part: Losses) {
        self.links.extend(part.links);
    }

    /// Whether the packet that arrives now by a link is lost.
    pub(super) fn draw(&mut self, link: u32) -> bool {
        self.links.get_mut(&link).is_some_and(|of| of.rng.random_range(0..1_000_000_000u32) < of.per_billion)
    }
}
