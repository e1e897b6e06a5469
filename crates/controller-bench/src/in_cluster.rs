//! `pathloom-controller-bench cluster http://HOST:PORT [--scheme ofpt] [--turns 3]`: what it costs to be the leader of
//! several controllers. Answers and paths per second are measured without and with `[cluster]`, by turns. Then it
//! measures how long the next leader reads the state of the last one. Nobody else may use that etcd meanwhile.

use super::answers;
use super::etcd::cluster;
use super::paths::{self, FABRIC, FLOWS};
use super::report::Measured;
use super::served::{self, PREFIX, TTL};
use super::target::Target;
use pathloom_cluster::etcd::{Body, Keys, Operation, Request, Transaction};
use pathloom_controller::embed::{self, EtcdClient};
use serde_json::json;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: pathloom-controller-bench cluster http://HOST:PORT [--scheme ofpt] [--turns 3]";
/// Switches and outstanding packets of each, for answers.
const ANSWERS: (usize, usize) = (80, 128);
/// Time for answers, and time limit for paths.
const TIMES: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));
/// First packets on their way per ToR.
const OUTSTANDING: usize = 128;
/// How long the leader may take to store its state.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Answers,
    Paths,
}

/// Measures, and prints a line of JSON for each measurement, and for each kind of load.
///
/// # Errors
/// An unknown word, an etcd that does not answer, or a controller that does not start.
pub(crate) fn run(endpoint: &str, words: &[&str]) -> Result<(), String> {
    let (mut scheme, mut turns) = ("ofpt", 3);
    for pair in words.chunks(2) {
        match *pair {
            ["--scheme", name] => scheme = name,
            ["--turns", text] => turns = text.parse().map_err(|_| format!("--turns {text}: a number was expected"))?,
            _ => return Err(format!("{} is not known here\n{USAGE}", pair[0])),
        }
    }
    let client = EtcdClient::new(cluster(endpoint, ("bench", PREFIX), TTL)?);
    for load in [Load::Answers, Load::Paths] {
        let mut rates = [Vec::new(), Vec::new()];
        for turn in 0..turns {
            // Who is first changes, because the machine may have other work.
            for with in [turn % 2 == 1, turn % 2 == 0] {
                let before = head(&client)?.revision;
                let measured = measure(load, scheme, with.then_some(endpoint))?;
                let writes = head(&client)?.revision - before;
                let (per_s, per_cpu_s) = per_second(&measured);
                let what = json!({
                    "load": format!("{load:?}"), "scheme": scheme, "cluster": with, "turn": turn, "count": measured.count,
                    "per_s": per_s.round(), "per_cpu_s": per_cpu_s.round(), "p50_us": measured.p50_us,
                    "p99_us": measured.p99_us, "etcd_revisions": writes,
                });
                println!("{what}");
                rates[usize::from(with)].push(per_cpu_s);
            }
        }
        let [without, with] = rates.map(median);
        println!(
            "{}",
            json!({"load": format!("{load:?}"), "per_cpu_s": {"without": without.round(), "with": with.round()},
                   "ratio": (1000.0 * with / without).round() / 1000.0})
        );
    }
    hand_over(endpoint, scheme, &client)
}

fn measure(load: Load, scheme: &str, endpoint: Option<&str>) -> Result<Measured, String> {
    let what = match load {
        Load::Answers => "learning".to_owned(),
        Load::Paths => format!("fabric:{scheme}:{FABRIC}"),
    };
    let target = match endpoint {
        Some(endpoint) => Target::start_in_cluster(&what, endpoint)?,
        None => Target::start(&what)?,
    };
    match load {
        Load::Answers => answers::run(target.place(), ANSWERS.0, ANSWERS.1, TIMES.0),
        Load::Paths => paths::run(target.place(), FABRIC, FLOWS, (OUTSTANDING, TIMES.1)),
    }
}

/// Per second, and per second of the controller's CPU time if the system knows that.
fn per_second(measured: &Measured) -> (f64, f64) {
    let count = measured.count as f64;
    (count / measured.seconds, count / measured.ran_s.filter(|&ran_s| ran_s > 0.0).unwrap_or(measured.seconds))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The key that says which state is stored.
struct Head {
    /// Etcd's revision.
    revision: u64,
    /// Revision of the last change of the key; 0 if there is no such key.
    changed: u64,
}

fn head(client: &EtcdClient) -> Result<Head, String> {
    let then = vec![Operation::Range(Keys::One(format!("{PREFIX}state/head")))];
    let request = Request::Transact(Transaction { then, ..Transaction::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    let asked = tokio::task::LocalSet::new().block_on(&runtime, client.ask(&request));
    let answer = asked.map_err(|problem| format!("etcd does not answer: {problem:?}"))?;
    let Body::Done { found, .. } = answer.body else { return Err("etcd gave another answer".to_owned()) };
    let changed = found.into_iter().flatten().next().map_or(0, |key| key.mod_revision);
    Ok(Head { revision: answer.revision, changed })
}

/// Sets up all flows, waits until they are stored, and reads them as the next leader does.
fn hand_over(endpoint: &str, scheme: &str, client: &EtcdClient) -> Result<(), String> {
    let what = format!("fabric:{scheme}:{FABRIC}");
    let target = Target::start_in_cluster(&what, endpoint)?;
    paths::run(target.place(), FABRIC, FLOWS, (OUTSTANDING, TIMES.1))?;
    // The store that has begun may be of before, and the one after it is complete.
    let (start, mut seen, mut stores) = (Instant::now(), head(client)?.changed, 0);
    while stores < 2 {
        if start.elapsed() > PATIENCE {
            return Err(format!("the leader has not stored its state within {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
        let changed = head(client)?.changed;
        stores += u32::from(changed != seen);
        seen = changed;
    }
    drop(target);
    for _ in 0..3 {
        let found = embed::inherit(served::hub(&what)?, &cluster(endpoint, ("next", PREFIX), TTL)?)?;
        let line = json!({
            "hand_over": {"flows": FLOWS.0 + FLOWS.1, "bytes": found.bytes, "parts": found.parts,
                          "read_s": found.read.as_secs_f64(), "parsed_s": found.parsed.as_secs_f64()}
        });
        println!("{line}");
    }
    Ok(())
}
