//! Random draws. Every draw comes from the seed of the run, so that the same seed leads to the same run.

use rand::RngExt;
use rand_pcg::Pcg64;

/// A generator of random numbers. `stream` separates draws under one seed: for example the number of a round, or of a
/// flow (`FlowId.0`). With a new generator for each of them, no state needs to survive a restart.
pub fn generator(seed: u64, stream: u64) -> Pcg64 {
    Pcg64::new(u128::from(seed), u128::from(stream))
}

/// A number below `count`, each with the same probability; 0 if `count` is 0.
pub fn below(generator: &mut Pcg64, count: u128) -> u128 {
    match count {
        0 => 0,
        _ => generator.random_range(0..count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_and_stream_alone_and_spread_evenly() {
        let draw = |seed, stream| below(&mut generator(seed, stream), 4);
        let drawn: Vec<u128> = (0..4000).map(|stream| draw(7, stream)).collect();
        assert_eq!(drawn, (0..4000).map(|stream| draw(7, stream)).collect::<Vec<_>>());
        assert_ne!(drawn, (0..4000).map(|stream| draw(8, stream)).collect::<Vec<_>>());
        for value in 0..4 {
            let count = drawn.iter().filter(|&&one| one == value).count();
            assert!((900..1100).contains(&count), "{value}: {count} of 4000");
        }
        assert_eq!(below(&mut generator(1, 1), 0), 0);
    }
}
