//! Mixture of experts: each rank dispatches its tokens to the ranks of their experts, which send the results back.

use super::placed::Placed;
use super::{Repeated, Work};
use crate::error::WorkloadError;
use crate::flow_spec::{Draft, FlowSpec, Start};
use crate::generate::Context;
use crate::job::{Algorithm, Cost};
use crate::training::MOST_WAITS;
use crate::{quantity, random};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// Maximum number of tokens times experts of each, over all ranks and iterations: a few seconds.
const MOST_DRAWS: f64 = 2e8;
/// How often an expert is drawn again because the token has it already. Then the token gets the most popular expert that
/// it does not have.
const REDRAWS: u32 = 32;

/// Dispatch and combine of the tokens of all ranks (Lepikhin et al., GShard, ICLR 2021).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moe {
    tokens: u32,
    token_bytes: u64,
    combine_bytes: u64,
    experts: Option<u32>,
    top: u32,
    skew: f64,
    compute: Nanos,
    repeated: Repeated,
}

/// Number of tokens that each rank sends to each other rank, by sender, then by receiver.
type Routed = Vec<Vec<u64>>;

impl Moe {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<Moe, SpecError> {
        let most = u64::from(u32::MAX);
        let token_bytes = spec.size_bytes("token")?.unwrap_or(7168);
        Ok(Moe {
            tokens: spec.count("tokens", 1, most)?.unwrap_or(4096) as u32,
            token_bytes,
            combine_bytes: spec.size_bytes("combine")?.unwrap_or(token_bytes),
            experts: spec.count("experts", 2, most)?.map(|count| count as u32),
            top: spec.count("top", 1, most)?.unwrap_or(2) as u32,
            skew: spec.number("skew", 0.0, 3.0)?.unwrap_or(0.0),
            compute: spec.time("compute")?.unwrap_or(Nanos::ZERO),
            repeated: Repeated::take(spec)?,
        })
    }

    /// The flows. The coflow of each is 2 i for the dispatch of iteration i, and 2 i + 1 for its combine.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.repeated.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        let iterations = self.repeated.iterations;
        let experts = self.experts.unwrap_or(ranks);
        if !experts.is_multiple_of(ranks) {
            return Err(context.error(format!("experts: {experts} are not a multiple of the {ranks} ranks")));
        }
        if self.top > experts {
            return Err(context.error(format!("top={} is more than the {experts} experts", self.top)));
        }
        let draws = f64::from(self.tokens) * f64::from(ranks) * f64::from(self.top) * f64::from(iterations);
        if draws > MOST_DRAWS {
            let problem = format!("tokens: {draws:.1e} choices of an expert are more than 2e8; lower tokens=, top=");
            return Err(context.error(format!("{problem} or iterations=")));
        }
        let pairs = f64::from(ranks) * f64::from(ranks - 1);
        context.refuse_too_many(2.0 * pairs * f64::from(iterations), "lower iterations= or hosts=")?;
        if pairs * f64::from(ranks - 1) * 2.0 * f64::from(iterations) > MOST_WAITS as f64 {
            return Err(context.error("each transfer waits for one from every rank, which is too much; lower hosts="));
        }
        let router = Router::new(self, context, experts, ranks);
        let mut run = Run::new(self, context, &hosts);
        let mut busiest: f64 = 1.0;
        let placed = Placed::of(context, &hosts);
        let (mut cost, mut sent) = (Cost::default(), 0.0);
        for iteration in 0..iterations {
            let routed = router.route(&mut context.rng_of("tokens", u64::from(iteration)));
            busiest = busiest.max(imbalance(&routed));
            let most = busiest_port(&routed, placed.as_ref()) as f64;
            let bytes = (self.token_bytes + self.combine_bytes) as f64;
            cost = cost.then(Cost { steps: 2.0, bytes: most * bytes });
            sent += routed.iter().flatten().sum::<u64>() as f64 * bytes;
            run.iteration(&routed, iteration);
        }
        let flows = run.flows;
        let description = format!(
            "mixture of experts: {} tokens of {} on each of {}, {} experts, {} for each token, skew {}; {} of dispatch and \
             combine; the busiest rank gets {} times the mean; {}",
            self.tokens,
            quantity::bytes(self.token_bytes as f64),
            self.repeated.ranks.describe(hosts.len()),
            experts,
            self.top,
            quantity::number(self.skew),
            quantity::count(iterations as usize, "iteration"),
            quantity::number(busiest),
            quantity::count(flows.len(), "flow"),
        );
        let once = f64::from(iterations);
        let cost = Cost { steps: cost.steps / once, bytes: cost.bytes / once };
        let algorithm = Algorithm::flat("direct", cost);
        let size_bytes = sent / once / f64::from(ranks);
        let work = Work { collective: "moe", size_bytes, bus_factor: 1.0, algorithm, others: Vec::new() };
        let job = self.repeated.job(context, &hosts, 2, work);
        Ok(Draft { flows, description, jobs: vec![job], ..Draft::default() })
    }
}

/// The most tokens that a rank sends to others, or receives from them. Those within a server need no network card.
fn busiest_port(routed: &Routed, placed: Option<&Placed>) -> u64 {
    let counts = |one: usize, other: usize| placed.is_none_or(|placed| !placed.share_server(one as u32, other as u32));
    let port = |rank: usize| {
        let others = (0..routed.len()).filter(|&other| counts(rank, other));
        let (out, into) =
            others.fold((0, 0), |(out, into), other| (out + routed[rank][other], into + routed[other][rank]));
        out.max(into)
    };
    (0..routed.len()).map(port).max().unwrap_or(0)
}

/// Tokens that the busiest rank receives, over the mean of all ranks; 1 if no token leaves its rank.
fn imbalance(routed: &Routed) -> f64 {
    let into = |rank: usize| routed.iter().map(|row| row[rank]).sum::<u64>() as f64;
    let all: Vec<f64> = (0..routed.len()).map(into).collect();
    let total: f64 = all.iter().sum();
    if total == 0.0 {
        return 1.0;
    }
    all.iter().copied().fold(0.0, f64::max) * all.len() as f64 / total
}

/// Draws the experts of tokens. Their popularity is Zipf's: the i-th has the weight i^-skew.
struct Router<'a> {
    of: &'a Moe,
    ranks: u32,
    /// The expert at each place of the order by popularity. The order is random: popular experts are on any rank.
    by_popularity: Vec<u32>,
    /// By place, the sum of the weights up to this place.
    cumulative: Vec<f64>,
}

impl<'a> Router<'a> {
    fn new(of: &'a Moe, context: &Context, experts: u32, ranks: u32) -> Router<'a> {
        let mut by_popularity: Vec<u32> = (0..experts).collect();
        by_popularity.shuffle(&mut context.rng("popularity"));
        let mut sum = 0.0;
        let weight = |place: u32| libm::pow(f64::from(place + 1), -of.skew);
        let cumulative = (0..experts).map(|place| {
            sum += weight(place);
            sum
        });
        Router { of, ranks, cumulative: cumulative.collect(), by_popularity }
    }

    /// Number of tokens by sender and receiver. A token with several experts on one rank is sent there once.
    fn route(&self, rng: &mut Pcg64) -> Routed {
        let per_rank = self.by_popularity.len() as u32 / self.ranks;
        let mut routed: Routed = vec![vec![0; self.ranks as usize]; self.ranks as usize];
        let (mut places, mut to) = (Vec::new(), Vec::new());
        for (rank, row) in routed.iter_mut().enumerate() {
            for _ in 0..self.of.tokens {
                self.draw(rng, &mut places);
                to.clear();
                to.extend(places.iter().map(|&place: &usize| self.by_popularity[place] / per_rank));
                to.sort_unstable();
                to.dedup();
                to.iter().filter(|&&to| to as usize != rank).for_each(|&to| row[to as usize] += 1);
            }
        }
        routed
    }

    /// Draws the places of the different experts of one token.
    fn draw(&self, rng: &mut Pcg64, places: &mut Vec<usize>) {
        places.clear();
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        while places.len() < self.of.top as usize {
            let drawn = (0..REDRAWS).find_map(|_| {
                let at = random::uniform(rng) * total;
                let place = self.cumulative.partition_point(|&sum| sum <= at).min(self.cumulative.len() - 1);
                (!places.contains(&place)).then_some(place)
            });
            let next = || (0..self.cumulative.len()).find(|place| !places.contains(place)).unwrap_or(0);
            let place = drawn.unwrap_or_else(next);
            places.push(place);
        }
    }
}

/// The flows so far, and what each rank waits for.
struct Run<'a, 'b> {
    of: &'a Moe,
    context: &'a Context<'b>,
    hosts: &'a [u32],
    flows: Vec<FlowSpec>,
    /// By rank, the flows after which it begins the next iteration.
    ready: Vec<Vec<u32>>,
    jitter: Pcg64,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(of: &'a Moe, context: &'a Context<'b>, hosts: &'a [u32]) -> Run<'a, 'b> {
        let ready = vec![Vec::new(); hosts.len()];
        Run { of, context, hosts, flows: Vec::new(), ready, jitter: context.rng("jitter") }
    }

    /// A rank dispatches all its tokens at the same time. It combines when it has all tokens of its experts, and begins
    /// the next iteration when it has all results.
    fn iteration(&mut self, routed: &Routed, iteration: u32) {
        let ranks = self.hosts.len();
        let mut arrived: Vec<Vec<u32>> = vec![Vec::new(); ranks];
        let of = self.of;
        for (from, row) in routed.iter().enumerate() {
            let start = match self.ready[from].is_empty() {
                true => self.context.jittered(Nanos::ZERO, of.repeated.jitter, &mut self.jitter),
                false => Start::After { flows: self.ready[from].as_slice().into(), delay: of.repeated.gap },
            };
            for (to, &tokens) in row.iter().enumerate().filter(|(_, tokens)| **tokens > 0) {
                arrived[to].push(self.flows.len() as u32);
                self.send(start.clone(), (from, to), tokens.saturating_mul(of.token_bytes), 2 * iteration);
            }
        }
        let mut results: Vec<Vec<u32>> = vec![Vec::new(); ranks];
        for from in 0..ranks {
            let start = Start::After { flows: arrived[from].as_slice().into(), delay: of.compute };
            for to in (0..ranks).filter(|&to| routed[to][from] > 0) {
                results[to].push(self.flows.len() as u32);
                let bytes = routed[to][from].saturating_mul(of.combine_bytes);
                self.send(start.clone(), (from, to), bytes, 2 * iteration + 1);
            }
        }
        for (ready, results) in self.ready.iter_mut().zip(results).filter(|(_, results)| !results.is_empty()) {
            *ready = results;
        }
    }

    fn send(&mut self, start: Start, (from, to): (usize, usize), bytes: u64, coflow: u32) {
        let pair = (self.hosts[from], self.hosts[to]);
        self.flows.push(self.context.flow(start, pair, Some(bytes), Some(coflow)));
    }
}
