//! Results, as a table and as JSON.

use serde::Serialize;

/// Times and counts of one run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Measured {
    /// Answers or paths.
    pub count: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// Median time from request to answer; `None` if no request of the measurement was answered.
    pub p50_us: Option<f64>,
    /// 99th percentile of this time.
    pub p99_us: Option<f64>,
    /// Time until all sessions were up.
    pub connected_s: f64,
    /// CPU time of the controller's main thread, if the system provides it. On a machine with other work, answers per
    /// second of CPU time are more meaningful than answers per second.
    pub ran_s: Option<f64>,
}

impl Measured {
    /// Computes the percentiles of single times in nanoseconds. Sorts the times.
    pub(crate) fn new(
        count: u64,
        seconds: f64,
        mut times_ns: Vec<u64>,
        (connected_s, ran_s): (f64, Option<f64>),
    ) -> Measured {
        times_ns.sort_unstable();
        let at = |share: f64| {
            let index = ((times_ns.len() as f64 * share) as usize).min(times_ns.len().saturating_sub(1));
            times_ns.get(index).map(|&ns| ns as f64 / 1000.0)
        };
        Measured { count, seconds, p50_us: at(0.50), p99_us: at(0.99), connected_s, ran_s }
    }
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Row {
    pub who: String,
    pub work: String,
    pub switches: usize,
    pub outstanding: usize,
    pub per_s: Option<f64>,
    /// Per second of CPU time of the controller.
    pub per_cpu_s: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub rss_mb: Option<f64>,
    pub connected_s: Option<f64>,
    /// Why there are no numbers.
    pub why: Option<String>,
}

impl Row {
    pub(crate) fn new(
        (who, work): (&str, &str),
        (switches, outstanding): (usize, usize),
        measured: &Measured,
        rss_bytes: Option<u64>,
    ) -> Row {
        let short = |number: f64| (number * 10.0).round() / 10.0;
        Row {
            who: who.into(),
            work: work.into(),
            switches,
            outstanding,
            per_s: Some((measured.count as f64 / measured.seconds).round()),
            per_cpu_s: measured.ran_s.filter(|&ran| ran > 0.0).map(|ran| (measured.count as f64 / ran).round()),
            p50_us: measured.p50_us.map(short),
            p99_us: measured.p99_us.map(short),
            rss_mb: rss_bytes.map(|bytes| short(bytes as f64 / 1e6)),
            connected_s: Some((measured.connected_s * 1000.0).round() / 1000.0),
            why: None,
        }
    }

    /// A row without numbers, and why it has none.
    pub(crate) fn without((who, work): (&str, &str), (switches, outstanding): (usize, usize), why: String) -> Row {
        Row {
            who: who.into(),
            work: work.into(),
            switches,
            outstanding,
            per_s: None,
            per_cpu_s: None,
            p50_us: None,
            p99_us: None,
            rss_mb: None,
            connected_s: None,
            why: Some(why),
        }
    }

    /// Prints the row as a line; before the first, also the column headings.
    pub(crate) fn print(&self, first: bool) {
        if first {
            println!(
                "{:<20} {:<14} {:>8} {:>11} {:>12} {:>12} {:>9} {:>9} {:>7} {:>11}",
                "who", "work", "switches", "outstanding", "per s", "per CPU s", "p50 µs", "p99 µs", "MB", "connected s"
            );
        }
        let Row { who, work, switches, outstanding, .. } = self;
        if let Some(why) = &self.why {
            return println!("{who:<20} {work:<14} {switches:>8} {outstanding:>11}  {why}");
        }
        let text =
            |number: Option<f64>, digits: usize| number.map_or("-".into(), |number| format!("{number:.digits$}"));
        println!(
            "{who:<20} {work:<14} {switches:>8} {outstanding:>11} {:>12} {:>12} {:>9} {:>9} {:>7} {:>11}",
            text(self.per_s, 0),
            text(self.per_cpu_s, 0),
            text(self.p50_us, 1),
            text(self.p99_us, 1),
            text(self.rss_mb, 1),
            text(self.connected_s, 3)
        );
    }
}
