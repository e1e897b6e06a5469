//! The path set-ups of `paths`, with the controller and its fake switches in one thread and without sockets, for
//! profilers.
//!
//! `valgrind --tool=callgrind --toggle-collect='*Hub*received*' --toggle-collect='*Hub*settle*'
//! pathloom-controller-bench inside spt 2000 10000` counts the instructions of the controller, without those of the
//! switches.

use super::paths::{switches, Counts, FABRIC, FLOWS};
use super::served;
use pathloom_control::Input;
use pathloom_fabrics::fabric_from_spec;
use pathloom_fake_switch::{Common, Work};
use pathloom_model::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// All flows are measured, however long it takes.
const FAR: Duration = Duration::from_secs(1 << 30);
/// Packets on their way per ToR.
const OUTSTANDING: usize = 128;
/// Number of rounds without a path after which the run fails.
const MOST_IDLE: usize = 10_000;

/// Sets up paths under a scheme, and prints the controller's time for each. `words`: the scheme, the number of flows
/// set up before, and the number of flows measured.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let number = |index: usize, without: usize| match words.get(index) {
        Some(word) => word.parse().map_err(|_| format!("inside: a number was expected and not {word}")),
        None => Ok(without),
    };
    let scheme = *words.first().ok_or("inside: a scheme was expected")?;
    let flows = (number(1, FLOWS.0)?, number(2, FLOWS.1)?);
    let spent = set_up(scheme, flows)?;
    println!("{scheme}: {:.0} ns of the controller per path", spent.as_nanos() as f64 / flows.1 as f64);
    Ok(())
}

/// Returns the controller's time for the measured flows.
fn set_up(scheme: &str, flows: (usize, usize)) -> Result<Duration, String> {
    let mut hub = served::hub(&format!("fabric:{scheme}:{FABRIC}"))?;
    let start = Instant::now();
    let clock = || Nanos::from_secs(1) + Nanos(start.elapsed().as_nanos() as u64);
    hub.handle(clock(), Input::Timeout);
    let fabric = Rc::new(fabric_from_spec(FABRIC).map_err(|problem| problem.to_string())?);
    let (common, counts) = (Common::default(), Rc::new(RefCell::new(Counts::new(flows, FAR, None))));
    let mut links = Vec::new();
    for (fake, opening) in switches(&fabric, OUTSTANDING, &common, &counts) {
        let id = hub.connect(clock(), "inside".into(), None).ok_or("the hub takes no more connections")?;
        let mut out = Vec::new();
        fake.hello(&mut out);
        links.push((id, fake, opening, out));
    }
    let mut told = Vec::new();
    let (mut spent, mut begun, mut idle, mut finished) = (Duration::ZERO, false, 0, 0);
    while !counts.borrow().is_done() {
        let mut moved = false;
        for (id, fake, opening, out) in &mut links {
            told.clear();
            hub.transmit(*id, &mut told);
            let used = fake.read(&told, out, opening).map_err(|problem| problem.to_string())?;
            debug_assert_eq!(used, told.len(), "the hub leaves whole messages");
            moved |= !out.is_empty();
            let start = Instant::now();
            let received = hub.received(clock(), *id, out, usize::MAX);
            if counts.borrow().is_measuring() {
                spent += start.elapsed();
            }
            out.drain(..received.used);
        }
        let start = Instant::now();
        hub.settle(clock());
        while hub.poll_writable().is_some() {}
        if counts.borrow().is_measuring() {
            spent += start.elapsed();
        }
        if !moved && !begun {
            begun = true;
            links.iter_mut().for_each(|(.., opening, out)| opening.begin(out));
        }
        idle = if counts.borrow().finished() > finished { 0 } else { idle + 1 };
        finished = counts.borrow().finished();
        if idle > MOST_IDLE {
            return Err(format!("bench inside: no further path was set up after {finished}"));
        }
    }
    Ok(spent)
}
