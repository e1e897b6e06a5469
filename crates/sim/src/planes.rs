//! Planes of a fabric: sets of switches that no cable between switches joins, as in HPN (Qian et al. 2024, §5). A host with a
//! port in each of them reaches another host only from a port to one in the same plane.

use pathloom_model::{Attachment, Fabric};

/// The plane of each switch.
pub(crate) struct Planes {
    /// By node: the number of its plane.
    numbers: Vec<u32>,
    /// Whether some host has ports in several planes. Switches inside servers do not count.
    several: bool,
}

const NONE: u32 = u32::MAX;

impl Planes {
    pub(crate) fn of(fabric: &Fabric) -> Planes {
        let mut numbers = vec![NONE; fabric.nodes().len()];
        for (number, &first) in fabric.switches().iter().enumerate() {
            let mut next = vec![first];
            while let Some(switch) = next.pop() {
                if numbers[switch.index()] == NONE {
                    numbers[switch.index()] = number as u32;
                    next.extend(fabric.switch_ports(switch).iter().map(|port| port.to));
                }
            }
        }
        // Attachments are sorted by ToR, so the first plane of each host is noted.
        let mut firsts = vec![NONE; fabric.nodes().len()];
        let several = fabric.attachments().iter().filter(|at| !fabric.is_inside_server(at.tor)).any(|at| {
            let (first, plane) = (&mut firsts[at.host.index()], numbers[at.tor.index()]);
            if *first == NONE {
                *first = plane;
            }
            *first != plane
        });
        Planes { numbers, several }
    }

    /// Whether some host has ports in several planes.
    pub(crate) fn are_several(&self) -> bool {
        self.several
    }

    /// Whether two interfaces are in the same plane, as far as it matters.
    pub(crate) fn join(&self, one: &Attachment, other: &Attachment) -> bool {
        !self.several || self.numbers[one.tor.index()] == self.numbers[other.tor.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn hosts_with_ports_in_two_planes_are_found_and_switches_inside_servers_are_no_planes() {
        for (spec, several) in [
            ("rail-optimized:servers=2,gpus=2,spines=2", false),
            ("rail-optimized:servers=2,gpus=2,spines=2,planes=2", true),
            ("jellyfish:switches=6,ports=6,hosts=6,homes=2", false),
            ("leaf-spine", false),
        ] {
            let fabric = fabric_from_spec(spec).unwrap();
            let planes = Planes::of(&fabric);
            assert_eq!(planes.are_several(), several, "{spec}");
            let outward = |at: &&Attachment| !fabric.is_inside_server(at.tor);
            let ports: Vec<&Attachment> = fabric.attachments().iter().filter(outward).collect();
            let apart = ports.iter().filter(|at| !planes.join(ports[0], at)).count();
            assert_eq!(apart, if several { ports.len() / 2 } else { 0 }, "{spec}");
        }
    }
}
