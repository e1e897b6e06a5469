//! Hierarchical all-reduce: inside groups of ranks first, then across the groups.

use super::reduction::{ring_all_gather, ring_both, ring_reduce_scatter};
use super::schedule::{Buffer, Schedule};
use crate::error::WorkloadError;
use crate::generate::Context;
use pathloom_model::spec::{Spec, SpecError};
use std::collections::BTreeMap;

/// What makes a group: `groups=`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Groups {
    /// Servers if all ranks are in servers with a switch of their own, otherwise racks.
    #[default]
    Auto,
    /// The ranks of a server.
    Server,
    /// The ranks of a rack.
    Rack,
    /// This many ranks, one after the other.
    Of(u32),
}

/// Groups of equal size.
pub(crate) struct Grouped {
    /// The ranks of each.
    groups: Vec<Vec<u32>>,
    /// Whether they are servers, so that messages inside a group need no network card.
    pub are_servers: bool,
}

impl Groups {
    /// Reads `groups=`; `None` if it is not given.
    pub fn take(spec: &Spec) -> Result<Option<Groups>, SpecError> {
        match spec.text_of("groups") {
            None => Ok(None),
            Some("server") => Ok(Some(Groups::Server)),
            Some("rack") => Ok(Some(Groups::Rack)),
            Some(text) => match text.parse::<u32>() {
                Ok(size) if size > 0 => Ok(Some(Groups::Of(size))),
                _ => Err(spec.error(format!("groups: `{text}` is not server, rack or a number of ranks"))),
            },
        }
    }

    pub fn describe(self) -> String {
        match self {
            Groups::Auto => "groups are servers, or racks if hosts have no server in common".to_owned(),
            Groups::Server => "groups are servers".to_owned(),
            Groups::Rack => "groups are racks".to_owned(),
            Groups::Of(size) => format!("groups of {size} ranks"),
        }
    }

    /// The groups of ranks on these hosts. All must have the same size.
    pub fn of(self, context: &Context, hosts: &[u32]) -> Result<Grouped, WorkloadError> {
        let ranks = hosts.len() as u32;
        let groups: Vec<Vec<u32>> = match self {
            Groups::Of(size) if ranks.is_multiple_of(size) => {
                (0..ranks / size).map(|group| (group * size..(group + 1) * size).collect()).collect()
            }
            Groups::Of(size) => {
                return Err(context.error(format!("groups: {ranks} ranks are not a multiple of {size}")));
            }
            Groups::Rack => by_key(hosts, &numbers(&context.hosts.racks())),
            Groups::Server | Groups::Auto => {
                let servers = numbers(&context.hosts.servers());
                match hosts.iter().find(|host| !servers.contains_key(host)) {
                    None => by_key(hosts, &servers),
                    Some(_) if self == Groups::Auto => by_key(hosts, &numbers(&context.hosts.racks())),
                    Some(&host) => {
                        let name = context.hosts.name(host);
                        return Err(context.error(format!(
                            "groups=server: host {name} is in no server with a switch of its own (as those of \
                             rail-optimized:); set groups=rack or a number of ranks"
                        )));
                    }
                }
            }
        };
        let servers = numbers(&context.hosts.servers());
        let server = |rank: u32| servers.get(&hosts[rank as usize]);
        let is_server =
            |group: &Vec<u32>| group.iter().all(|&rank| server(rank).is_some() && server(rank) == server(group[0]));
        let are_servers = groups.iter().all(is_server);
        let least = groups.iter().map(Vec::len).min().unwrap_or(0);
        let most = groups.iter().map(Vec::len).max().unwrap_or(0);
        match least == most {
            true => Ok(Grouped { groups, are_servers }),
            false => Err(context.error(format!(
                "groups: they have {least} to {most} ranks; a hierarchical all-reduce needs groups of equal size; set hosts= or \
                 groups=NUMBER"
            ))),
        }
    }
}

impl Grouped {
    /// Number of ranks of a group.
    pub fn size(&self) -> u32 {
        self.groups[0].len() as u32
    }

    /// Reduce-scatter in each group, all-reduce across groups among the ranks with the same place, all-gather in each
    /// group; rings everywhere. The buffer has a part for each rank.
    pub fn all_reduce(&self, buffer: Buffer) -> Schedule {
        let (count, size) = (self.groups.len() as u32, self.size());
        let block = |place: u32| (place * count, count);
        let groups = || self.groups.iter().filter(|_| size > 1);
        let before = Schedule::beside(groups().map(|group| ring_reduce_scatter(buffer, group, block)).collect());
        let after = Schedule::beside(groups().map(|group| ring_all_gather(buffer, group, block)).collect());
        let across = |place: u32| {
            let members: Vec<u32> = self.groups.iter().map(|group| group[place as usize]).collect();
            ring_both(buffer, &members, |part| (place * count + part, 1))
        };
        let across = match count {
            1 => Schedule::default(),
            _ => Schedule::beside((0..size).map(across).collect()),
        };
        before.then(across).then(after)
    }
}

/// The number of the set of each host.
fn numbers(sets: &[Vec<u32>]) -> BTreeMap<u32, usize> {
    let numbered = sets.iter().enumerate();
    numbered.flat_map(|(number, hosts)| hosts.iter().map(move |&host| (host, number))).collect()
}

/// The ranks of each key, in the order of the first rank of each.
fn by_key(hosts: &[u32], keys: &BTreeMap<u32, usize>) -> Vec<Vec<u32>> {
    let mut place: BTreeMap<usize, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for (rank, host) in hosts.iter().enumerate() {
        let next = groups.len();
        let at = *place.entry(keys[host]).or_insert(next);
        if at == next {
            groups.push(Vec::new());
        }
        groups[at].push(rank as u32);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::{carry_out, own_values};
    use super::*;

    #[test]
    fn every_rank_gets_the_whole_sum() {
        for (count, size) in [(1, 4), (4, 1), (2, 2), (3, 2), (2, 3), (4, 4)] {
            let ranks = count * size;
            // Groups whose ranks are not neighbours.
            let groups = (0..count).map(|group| (0..size).map(|place| place * count + group).collect()).collect();
            let groups = Grouped { groups, are_servers: false };
            let schedule = groups.all_reduce(Buffer { size_bytes: 10_007, parts: ranks });
            assert_eq!(schedule.rounds.len() as u32, 2 * (size - 1) + 2 * (count - 1));
            let mut held = own_values(ranks, ranks);
            carry_out(&schedule, &mut held);
            assert!(held.iter().flatten().all(|&part| part == (1 << ranks) - 1), "{count}x{size}: {held:?}");
        }
    }
}
