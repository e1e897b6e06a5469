//! The buffers that the ports of a switch share, with dynamic thresholds: a queue may hold `alpha` times what is free
//! (Choudhury and Hahne 1998, §III). If k queues are always full, each holds `alpha / (1 + k alpha)` of the buffer.

use pathloom_model::{Fabric, LinkId, SharedBuffer};

/// Share of a common buffer that a queue may have now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Share {
    /// Bytes of the buffer that are free.
    pub(crate) free: u64,
    /// Bytes that a queue may hold in all.
    pub(crate) most: u64,
}

/// The buffers of all switches.
pub(crate) struct Pools {
    settings: SharedBuffer,
    /// By port: the number of its switch.
    switches: Vec<u32>,
    /// By node: the bytes that are in use.
    used: Vec<u64>,
}

impl Pools {
    /// Empty buffers of switches with ports at which these links begin.
    pub(crate) fn new(fabric: &Fabric, settings: SharedBuffer, links: &[u32]) -> Pools {
        let switches = links.iter().map(|&link| fabric.link(LinkId(link)).from.0).collect();
        Pools { settings, switches, used: vec![0; fabric.nodes().len()] }
    }

    /// What a queue of a port may hold now.
    pub(crate) fn share(&self, port: usize) -> Share {
        let free = self.settings.bytes.saturating_sub(self.used[self.switches[port] as usize]);
        Share { free, most: (self.settings.alpha * free as f64) as u64 }
    }

    /// The data queues of a port hold `after` bytes now; they held `before`.
    pub(crate) fn change(&mut self, port: usize, before: u64, after: u64) {
        let used = &mut self.used[self.switches[port] as usize];
        *used = (*used + after) - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn full_queues_hold_what_the_closed_form_says() {
        let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=8").unwrap();
        let (bytes, packet) = (1_000_000, 1000);
        let of_switch = |node| {
            let links = fabric.links().iter().enumerate().filter(move |(_, link)| link.from == node);
            links.map(|(number, _)| number as u32).collect::<Vec<u32>>()
        };
        let leaf = fabric.tors()[0];
        for alpha in [0.25, 1.0, 4.0] {
            for full in 1..=8 {
                let links = of_switch(leaf);
                let mut pools = Pools::new(&fabric, SharedBuffer { bytes, alpha }, &links);
                let mut queues = vec![0; full];
                let mut grows = true;
                while grows {
                    grows = false;
                    for (port, queue) in queues.iter_mut().enumerate() {
                        let share = pools.share(port);
                        if packet <= share.free && *queue + packet <= share.most {
                            pools.change(port, *queue, *queue + packet);
                            *queue += packet;
                            grows = true;
                        }
                    }
                }
                let expected = alpha * bytes as f64 / (1.0 + full as f64 * alpha);
                for held in queues {
                    assert!((held as f64 - expected).abs() <= (1.0 + alpha) * packet as f64, "{alpha} {full}: {held}");
                }
            }
        }
    }

    #[test]
    fn switches_do_not_share_with_each_other() {
        let fabric = fabric_from_spec("dumbbell:hosts=2").unwrap();
        let links: Vec<u32> = (0..fabric.links().len() as u32).collect();
        let mut pools = Pools::new(&fabric, SharedBuffer { bytes: 5000, alpha: 1.0 }, &links);
        let from = |port: usize| fabric.link(LinkId(port as u32)).from;
        let other = (0..links.len()).find(|&port| from(port) != from(0)).unwrap();
        pools.change(0, 0, 4000);
        assert_eq!(
            (pools.share(0), pools.share(other)),
            (Share { free: 1000, most: 1000 }, Share { free: 5000, most: 5000 })
        );
    }
}
