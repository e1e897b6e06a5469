//! Small fabrics of every kind.

use rand::{Rng, RngExt};

/// Draws the specification of a fabric of 2 to 20 switches. Its queues have room for all that paced flows can send.
pub(crate) fn draw(rng: &mut impl Rng) -> String {
    let kind = match rng.random_range(0..12) {
        0 => format!("diamond:hosts={}", rng.random_range(1..=2)),
        1 => format!(
            "parallel-paths:rates={},hosts=2",
            ["20Mbps/20Mbps", "20Mbps/10Mbps/20Mbps"][rng.random_range(0..2)]
        ),
        2..=4 => {
            let (spines, leaves) = (rng.random_range(2..=3), rng.random_range(2..=4));
            format!("leaf-spine:spines={spines},leaves={leaves},hosts={}", rng.random_range(1..=2))
        }
        5..=6 => format!("fat-tree:k=4,hosts={}", rng.random_range(1..=2)),
        7 => "vl2:d0=2,d1=2,d2=4,hosts=1".to_owned(),
        8 => "three-layer:pods=2,tors=2,planes=2,spines=2,hosts=1".to_owned(),
        9..=10 => {
            let (switches, homes) = (rng.random_range(4..=8), rng.random_range(1..=2));
            format!("jellyfish:switches={switches},ports=5,hosts=6,homes={homes},seed={}", rng.random_range(0..100))
        }
        _ => "dumbbell:hosts=2".to_owned(),
    };
    let delay = ["1us", "50us", "1ms"][rng.random_range(0..3)];
    let rate = if kind.starts_with("parallel") { "" } else { ",rate=20Mbps" };
    let delay = if kind.starts_with("parallel") { format!(",delays={delay}") } else { format!(",delay={delay}") };
    format!("{kind}{rate}{delay},buffer=2000")
}
