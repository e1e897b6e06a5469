//! Communication patterns: which host sends to which.

use crate::error::MOST_FLOWS;
use crate::hosts::Hosts;
use crate::random::{below, below_but, distinct};
use pathloom_model::spec::{nearest, Spec, SpecError};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// Which host sends to which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// To any other host.
    Random,
    /// To any host on another ToR (TCP-Path §V.B).
    InterLeaf,
    /// Host x to host (x + stride) mod N; N/2 if it is not given (OFPT §6.1 C, one-to-one).
    Stride(Option<u32>),
    /// Each host sends to one host and receives from one, none to itself (mptcp-aware, PT).
    Permutation,
    /// N random pairs; a host may be in any number of them (mptcp-aware, UT).
    Unconstrained,
    /// Each host to this many others (OFPT §6.1 C, one-to-multi).
    OneTo(u32),
    /// Each host to this many others, and from as many (OFPT §6.1 C, one-to-multi, as its worst flows suggest).
    OneToEven(u32),
    /// Each host to a random number of others, from one to all (LESSOR §5.1.3).
    OneToRandom,
    /// Each host to all others.
    AllToAll,
    /// All others to one random host.
    Incast,
}

/// Names for listings and errors.
pub(crate) const PATTERNS: &str =
    "random, inter-leaf, stride, permutation, unconstrained, one-to-N (one-to-2, one-to-4, …), one-to-N-even, one-to-random, \
     all-to-all, incast";

impl Pattern {
    /// Reads `pattern=` and `stride=` from a specification.
    pub fn take(spec: &Spec, default: Pattern) -> Result<Pattern, SpecError> {
        let stride = spec.count("stride", 1, u64::from(u32::MAX))?.map(|stride| stride as u32);
        let pattern = match spec.text_of("pattern") {
            None => default,
            Some(text) => Pattern::parse(text).map_err(|problem| spec.error(problem))?,
        };
        match (pattern, stride) {
            (Pattern::Stride(_), stride) => Ok(Pattern::Stride(stride)),
            (_, None) => Ok(pattern),
            (_, Some(_)) => Err(spec.error("stride= is only valid with pattern=stride")),
        }
    }

    fn parse(text: &str) -> Result<Pattern, String> {
        let words = [
            ("random", Pattern::Random),
            ("inter-leaf", Pattern::InterLeaf),
            ("stride", Pattern::Stride(None)),
            ("permutation", Pattern::Permutation),
            ("unconstrained", Pattern::Unconstrained),
            ("one-to-random", Pattern::OneToRandom),
            ("all-to-all", Pattern::AllToAll),
            ("incast", Pattern::Incast),
        ];
        if let Some(&(_, pattern)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(pattern);
        }
        if let Some(rest) = text.strip_prefix("one-to-") {
            let (number, even) = rest.strip_suffix("-even").map_or((rest, false), |number| (number, true));
            match number.parse::<u32>() {
                Ok(0) => return Err("pattern: one-to-0 sends to nobody; expected one-to-1 or more".to_owned()),
                Ok(others) if even => return Ok(Pattern::OneToEven(others)),
                Ok(others) => return Ok(Pattern::OneTo(others)),
                Err(_) => {}
            }
        }
        let mut names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        names.extend(["one-to-2", "one-to-2-even"]);
        let hint = nearest(text, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Err(format!("pattern: `{text}` is not one of {PATTERNS}{hint}"))
    }

    /// The pattern in words, for descriptions.
    pub fn describe(&self, hosts: &Hosts) -> String {
        match self {
            Pattern::Random => "to a random other host".to_owned(),
            Pattern::InterLeaf => "to a random host on another ToR".to_owned(),
            Pattern::Stride(stride) => {
                let by = stride.unwrap_or(hosts.len() / 2);
                format!("stride, host x to host (x + {by}) mod {}", hosts.len())
            }
            Pattern::Permutation => "permutation, each host to one and from one".to_owned(),
            Pattern::Unconstrained => format!("unconstrained, {} random pairs", hosts.len()),
            Pattern::OneTo(others) => format!("one-to-{others}, each host to {others} random others"),
            Pattern::OneToEven(others) => {
                format!("one-to-{others}-even, each host to {others} random others and from as many")
            }
            Pattern::OneToRandom => "one-to-random, each host to a random number of random others".to_owned(),
            Pattern::AllToAll => "all-to-all, each host to all others".to_owned(),
            Pattern::Incast => "incast, all hosts to one random host".to_owned(),
        }
    }

    /// Checks that this pattern fits this fabric. The error describes the problem.
    pub fn check(&self, hosts: &Hosts) -> Result<(), String> {
        let all = hosts.len();
        if let Some(host) = (0..all).find(|&host| hosts.rate_bps(host) == 0.0) {
            return Err(format!(
                "the access link of host {} has rate 0; it can neither send nor receive",
                hosts.name(host)
            ));
        }
        match *self {
            Pattern::InterLeaf => match (0..all).find(|&host| hosts.host_count_without_common_tor(host) == 0) {
                Some(host) => Err(format!(
                    "pattern=inter-leaf needs, for each host, another host without a common ToR, and host {} has none; \
                     use pattern=random, or a fabric with more ToRs",
                    hosts.name(host)
                )),
                None => Ok(()),
            },
            Pattern::Stride(Some(stride)) if stride % all == 0 => Err(format!(
                "stride={stride} makes each of the {all} hosts send to itself; expected a stride from 1 to {}",
                all - 1
            )),
            Pattern::OneTo(others) | Pattern::OneToEven(others) if others >= all => Err(format!(
                "pattern=one-to-{others} needs {others} other hosts; each of the {all} hosts has {}",
                all - 1
            )),
            Pattern::OneTo(others) | Pattern::OneToEven(others) if u64::from(others) * u64::from(all) > MOST_FLOWS => {
                Err(format!(
                    "pattern=one-to-{others} on {all} hosts exceeds the limit of {MOST_FLOWS} pairs; lower one-to-N"
                ))
            }
            Pattern::OneToRandom if u64::from(all - 1) * u64::from(all) > MOST_FLOWS => Err(format!(
                "pattern=one-to-random on {all} hosts may exceed the limit of {MOST_FLOWS} pairs; use one-to-N"
            )),
            _ => Ok(()),
        }
    }

    /// Maximum number of pairs that [`Pattern::pairs`] returns, if each is taken `times` times.
    pub fn pair_count(&self, hosts: &Hosts, times: u32) -> f64 {
        let all = f64::from(hosts.len());
        let pairs = match self {
            Pattern::OneTo(others) | Pattern::OneToEven(others) => all * f64::from(*others),
            Pattern::AllToAll | Pattern::OneToRandom => all * (all - 1.0),
            Pattern::Incast => all - 1.0,
            _ => all,
        };
        pairs * f64::from(times)
    }

    /// The pairs of long-lived flows, by source, `times` of each. Random patterns draw each of the `times`
    /// separately. The pattern must have passed [`Pattern::check`].
    pub fn pairs(&self, hosts: &Hosts, times: u32, rng: &mut Pcg64) -> Vec<(u32, u32)> {
        let all = hosts.len();
        let mut pairs = Vec::new();
        match self {
            Pattern::Random | Pattern::InterLeaf => {
                let mut chooser = Chooser::new(*self, hosts, rng);
                for src in 0..all {
                    (0..times).for_each(|_| pairs.push((src, chooser.next(src, hosts, rng))));
                }
            }
            Pattern::Unconstrained => {
                (0..times).for_each(|_| pairs.extend(random_pairs(all, rng)));
                pairs.sort_by_key(|pair| pair.0);
            }
            _ => {
                let repeat = |(src, dst)| (0..times).map(move |_| (src, dst));
                pairs.extend(self.fixed_pairs(hosts, rng).into_iter().flat_map(repeat));
            }
        }
        pairs
    }

    /// The pairs of a pattern that fixes them at the start, by source.
    fn fixed_pairs(&self, hosts: &Hosts, rng: &mut Pcg64) -> Vec<(u32, u32)> {
        let all = hosts.len();
        match *self {
            Pattern::Stride(stride) => {
                let by = u64::from(stride.unwrap_or(all / 2));
                (0..all).map(|src| (src, ((u64::from(src) + by) % u64::from(all)) as u32)).collect()
            }
            Pattern::Permutation => (0..all).zip(derangement(all, rng)).collect(),
            Pattern::OneTo(others) => (0..all).flat_map(|src| one_to(src, others, all, rng)).collect(),
            Pattern::OneToEven(others) => one_to_even(others, all, rng),
            Pattern::OneToRandom => {
                let mut pairs = Vec::new();
                for src in 0..all {
                    let others = 1 + below(rng, all - 1);
                    pairs.extend(one_to(src, others, all, rng));
                }
                pairs
            }
            Pattern::Incast => {
                let receiver = below(rng, all);
                (0..all).filter(|&src| src != receiver).map(|src| (src, receiver)).collect()
            }
            Pattern::AllToAll => (0..all).flat_map(|src| (1..all).map(move |by| (src, (src + by) % all))).collect(),
            Pattern::Random | Pattern::InterLeaf | Pattern::Unconstrained => random_pairs(all, rng),
        }
    }
}

/// The pairs of a host with this many distinct others.
fn one_to(src: u32, others: u32, all: u32, rng: &mut Pcg64) -> Vec<(u32, u32)> {
    let skip_self = |drawn: u32| (src, drawn + u32::from(drawn >= src));
    distinct(rng, others, all - 1).into_iter().map(skip_self).collect()
}

/// Pairs from each host to this many others and from as many, by source. The hosts are in a circle in random order,
/// and each sends to those at the same random distances.
fn one_to_even(others: u32, all: u32, rng: &mut Pcg64) -> Vec<(u32, u32)> {
    let mut circle: Vec<u32> = (0..all).collect();
    circle.shuffle(rng);
    let mut place = vec![0usize; all as usize];
    for (at, &host) in circle.iter().enumerate() {
        place[host as usize] = at;
    }
    let distances: Vec<usize> = distinct(rng, others, all - 1).into_iter().map(|drawn| drawn as usize + 1).collect();
    let receiver = |src: u32, distance: usize| circle[(place[src as usize] + distance) % circle.len()];
    (0..all)
        .flat_map(|src| distances.iter().map(move |&distance| (src, distance)))
        .map(|(src, distance)| (src, receiver(src, distance)))
        .collect()
}

/// As many random pairs as there are hosts, in the order of sources.
fn random_pairs(all: u32, rng: &mut Pcg64) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u32, u32)> = (0..all)
        .map(|_| {
            let src = below(rng, all);
            (src, below_but(rng, all, src))
        })
        .collect();
    pairs.sort_by_key(|pair| pair.0);
    pairs
}

/// A random permutation without fixed points, all equally likely. About one permutation in e has no fixed point.
fn derangement(all: u32, rng: &mut Pcg64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..all).collect();
    loop {
        order.shuffle(rng);
        if order.iter().zip(0..).all(|(&dst, src)| dst != src) {
            return order;
        }
    }
}

/// Chooses the destination of one flow after the other, and gives the offered load of each host.
pub(crate) struct Chooser {
    rule: Rule,
    /// The offered load of each host at load 1.
    offered_bps: Vec<f64>,
}

enum Rule {
    Random,
    InterLeaf,
    /// Each host sends to all others in turn. By host, the number of others that it has passed in this turn.
    InTurn(Vec<u32>),
    /// Destinations of each host: `of[first[src]..first[src + 1]]`.
    Fixed {
        first: Vec<usize>,
        of: Vec<u32>,
    },
}

impl Chooser {
    /// Creates a chooser for a pattern that has passed [`Pattern::check`].
    ///
    /// At load 1 every source fills its access link, however many destinations it has. With `unconstrained`, it fills
    /// the link once per pair, so that the network as a whole carries load 1. With `incast`, all sources together
    /// fill the access link of the receiver.
    pub fn new(pattern: Pattern, hosts: &Hosts, rng: &mut Pcg64) -> Chooser {
        let all = hosts.len();
        let mut offered_bps: Vec<f64> = (0..all).map(|host| hosts.rate_bps(host)).collect();
        let rule = match pattern {
            Pattern::Random => Rule::Random,
            Pattern::InterLeaf => Rule::InterLeaf,
            // Each host begins at a random position. Otherwise all would send to neighbours at first.
            Pattern::AllToAll => Rule::InTurn((0..all).map(|_| below(rng, all - 1)).collect()),
            _ => {
                let pairs = pattern.fixed_pairs(hosts, rng);
                let mut first = vec![0usize; all as usize + 1];
                pairs.iter().for_each(|pair| first[pair.0 as usize + 1] += 1);
                (0..all as usize).for_each(|src| first[src + 1] += first[src]);
                for src in 0..all {
                    let own = first[src as usize + 1] - first[src as usize];
                    offered_bps[src as usize] *= match pattern {
                        Pattern::Unconstrained => own as f64,
                        _ => f64::from(u8::from(own > 0)),
                    };
                }
                if let (Pattern::Incast, Some(&(_, receiver))) = (pattern, pairs.first()) {
                    let share = hosts.rate_bps(receiver) / f64::from(all - 1);
                    offered_bps.iter_mut().filter(|offered| **offered > 0.0).for_each(|offered| *offered = share);
                }
                Rule::Fixed { first, of: pairs.into_iter().map(|pair| pair.1).collect() }
            }
        };
        Chooser { rule, offered_bps }
    }

    /// The offered load of each host at load 1, in bits per second, by host number.
    pub fn offered_bps(&self) -> &[f64] {
        &self.offered_bps
    }

    /// The destination of the next flow of `src`, which must be a host with an offered load.
    pub fn next(&mut self, src: u32, hosts: &Hosts, rng: &mut Pcg64) -> u32 {
        let all = hosts.len();
        match &mut self.rule {
            Rule::Random => below_but(rng, all, src),
            Rule::InterLeaf => {
                hosts.nth_host_without_common_tor(src, below(rng, hosts.host_count_without_common_tor(src)))
            }
            Rule::InTurn(turns) => {
                let turn = &mut turns[src as usize];
                let by = 1 + *turn;
                *turn = (*turn + 1) % (all - 1);
                (src + by) % all
            }
            Rule::Fixed { first, of } => {
                let own = &of[first[src as usize]..first[src as usize + 1]];
                own[below(rng, own.len() as u32) as usize]
            }
        }
    }
}
