//! Slim Fly (Besta and Hoefler, SC 2014): a graph of diameter 2 with almost as many switches as any can have.

use super::check_size;
use super::clos::add_hosts;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_HOSTS: u64 = 100_000;
/// Largest q: 2*q*q switches with about 3*q/2 cables each.
const MOST_Q: u64 = 200;

/// A Slim Fly on the MMS graph of §II-B1: 2*q*q switches, each with (3*q - δ)/2 cables to others, where q = 4*w + δ and δ is 1
/// or -1. By default a switch has half as many hosts as such cables, rounded up (§II-B2).
///
/// Only primes are taken for q. The paper also has powers of primes, whose arithmetic is another one.
pub(super) fn slim_fly(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let q = spec.count("q", 3, MOST_Q)?.unwrap_or(5);
    let degree = if q % 4 == 1 { 3 * q / 2 } else { (3 * q).div_ceil(2) };
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(degree.div_ceil(2));
    spec.finish()?;
    if !is_odd_prime(q) {
        let (below, above) = ((3..q).rev().find(|&n| is_odd_prime(n)), (q..=MOST_Q).find(|&n| is_odd_prime(n)));
        let both: Vec<String> = below.into_iter().chain(above).map(|number| number.to_string()).collect();
        return Err(spec.error(format!("q: {q} is not an odd prime; expected a number such as {}", both.join(" or "))));
    }
    check_size(spec, 2 * q * q * (degree + hosts))?;
    let mut builder = FabricBuilder::new(spec.text());
    let tors: Vec<(NodeId, Option<u32>)> =
        (0..2 * q * q).map(|index| (builder.switch(format!("e{index}"), Tier::Tor, None), None)).collect();
    add_hosts(&mut builder, &tors, hosts, keys);
    for (a, b) in cables(q) {
        builder.cable(tors[a as usize].0, tors[b as usize].0, keys.switch());
    }
    Ok(builder)
}

fn is_odd_prime(number: u64) -> bool {
    number > 2
        && (2..number).take_while(|divisor| divisor * divisor <= number).all(|divisor| !number.is_multiple_of(divisor))
}

/// Returns both ends of every cable. Switch (0, x, y) has the number x*q + y, switch (1, m, c) the number q*q + m*q + c.
fn cables(q: u64) -> Vec<(u64, u64)> {
    let [own, others] = generators(q);
    let mut cables = Vec::new();
    for (half, differences) in [(0, &own), (q * q, &others)] {
        for row in 0..q {
            // (0, x, y) and (0, x, y') if y - y' is in the first set; (1, m, c) and (1, m, c') likewise with the second.
            let pairs = (0..q).flat_map(|y| (y + 1..q).map(move |z| (y, z)));
            let joined = pairs.filter(|(y, z)| differences.contains(&(z - y)));
            cables.extend(joined.map(|(y, z)| (half + row * q + y, half + row * q + z)));
        }
    }
    for x in 0..q {
        // (0, x, y) and (1, m, c) if y = m*x + c.
        let pairs = (0..q).flat_map(|m| (0..q).map(move |c| (m, c)));
        cables.extend(pairs.map(|(m, c)| (x * q + (m * x + c) % q, q * q + m * q + c)));
    }
    cables
}

/// Returns the two sets of differences within rows: powers of a primitive element of the field of `q` elements (§II-B1). Each
/// contains the negative of each of its members.
fn generators(q: u64) -> [Vec<u64>; 2] {
    let powers = powers_of_primitive_element(q);
    let at =
        |exponents: Vec<u64>| exponents.into_iter().map(|exponent| powers[(exponent % (q - 1)) as usize]).collect();
    if q % 4 == 1 {
        let from = |first: u64| (first..q - 1).step_by(2).collect();
        return [at(from(0)), at(from(1))];
    }
    let half = q.div_ceil(4) * 2; // 2*w of q = 4*w - 1
    let set = |first: u64, middle: u64| (first..half).step_by(2).chain((middle..middle + half).step_by(2)).collect();
    [at(set(0, half - 1)), at(set(1, half))]
}

/// Returns the powers 0 to q - 2 of the smallest number whose powers are all of 1 to q - 1.
fn powers_of_primitive_element(q: u64) -> Vec<u64> {
    let powers = |base: u64| -> Vec<u64> {
        std::iter::successors(Some(1), |power| Some(power * base % q)).take(q as usize - 1).collect()
    };
    // Its first power that is 1 again has the exponent q - 1.
    let is_primitive = |powers: &Vec<u64>| powers[1..].iter().all(|&power| power != 1);
    (2..q).map(powers).find(is_primitive).unwrap_or_default()
}
