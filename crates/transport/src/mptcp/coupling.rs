//! How the windows of the subflows of one connection grow together: LIA (RFC 6356) and OLIA (Khalili et al., MPTCP is
//! not Pareto-optimal, CoNEXT 2012; draft-khalili-mptcp-congestion-control-05). The reduction of a window after a
//! loss is that of TCP.

use super::settings::Coupling;
use super::Subflow;
use crate::Sender;
use pathloom_model::Nanos;

/// The state of a subflow that the coupling uses.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Window in bytes; in recovery, the window after recovery.
    window: u64,
    /// Smoothed round-trip time.
    pub(super) rtt: Nanos,
    in_recovery: bool,
    /// Growth of the window per byte acknowledged in congestion avoidance, in bytes. Can be negative with OLIA.
    pub(super) growth: f64,
    /// Terms of LIA that follow from window and round-trip time; `None` if one of them has changed since.
    terms: Option<Terms>,
    /// Bytes acknowledged since the last loss, and between the two losses before it (OLIA).
    since_loss: u64,
    before_loss: u64,
}

/// Terms of the equations of RFC 6356 §3 for one path, window in bytes and round-trip time in seconds.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// window / rtt²
    quality: f64,
    /// window / rtt
    rate: f64,
    /// 1 / window
    alone: f64,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            window: 0,
            rtt: Path::UNKNOWN,
            in_recovery: false,
            growth: 0.0,
            terms: None,
            since_loss: 0,
            before_loss: 0,
        }
    }
}

impl Path {
    /// Round-trip time of a subflow without a sample. Such a subflow does not count.
    pub(super) const UNKNOWN: Nanos = Nanos(u64::MAX);

    /// Updates the state after the sender has processed an acknowledgement of `acked` bytes. Returns whether its
    /// window has changed by at least one segment, or has its first round-trip time. Only then is the growth
    /// recomputed (RFC 6356 §4.1).
    #[inline]
    pub(super) fn update(&mut self, sender: &Sender, acked: u64, mss: u64) -> bool {
        self.since_loss += acked;
        if sender.is_in_recovery() != self.in_recovery {
            self.in_recovery = !self.in_recovery;
            if self.in_recovery {
                self.begin_epoch();
            }
        }
        let window = sender.steady_window_bytes();
        let first = self.rtt == Path::UNKNOWN;
        let rtt = sender.smoothed_rtt().unwrap_or(self.rtt);
        if rtt != self.rtt {
            (self.rtt, self.terms) = (rtt, None);
        }
        let changed = first || window.abs_diff(self.window) >= mss;
        if changed {
            (self.window, self.terms) = (window, None);
        }
        changed
    }

    /// Handles the expiry of the sender's timer.
    pub(super) fn lose(&mut self, sender: &Sender) {
        self.begin_epoch();
        self.in_recovery = false;
        (self.window, self.terms) = (sender.steady_window_bytes(), None);
    }

    /// Whether the subflow affects the growth of the others: only once it has a round-trip time.
    #[inline]
    fn counts(&self) -> bool {
        self.rtt < Path::UNKNOWN && self.window > 0
    }

    #[inline]
    fn terms(&mut self) -> Terms {
        let (window, rtt_s) = (self.window as f64, self.rtt_s());
        let terms = || Terms { quality: window / (rtt_s * rtt_s), rate: window / rtt_s, alone: 1.0 / window };
        *self.terms.get_or_insert_with(terms)
    }

    fn begin_epoch(&mut self) {
        self.before_loss = std::mem::take(&mut self.since_loss);
    }

    /// Returns the bytes acknowledged between losses as OLIA counts them: the greater of the last two counts.
    fn between_losses(&self) -> f64 {
        self.since_loss.max(self.before_loss) as f64
    }

    fn rtt_s(&self) -> f64 {
        // A path without any delay still needs a round-trip time above zero.
        self.rtt.0.max(1) as f64 * 1e-9
    }
}

/// Computes the growth of each window. A subflow that has stalled, or has no round-trip time yet, does not count.
#[inline]
pub(super) fn couple(coupling: Coupling, mss: f64, subflows: &mut [Subflow]) {
    match coupling {
        Coupling::Lia => lia(mss, subflows),
        Coupling::Olia => olia(mss, &mut paths(subflows).collect::<Vec<_>>()),
        Coupling::Uncoupled => {}
    }
}

/// Returns the paths that count.
#[inline]
fn paths(subflows: &mut [Subflow]) -> impl Iterator<Item = &mut Path> {
    let live = subflows.iter_mut().filter(|one| !one.stalled).map(|one| &mut one.path);
    live.filter(|path| path.counts())
}

/// RFC 6356 §3, equations (1) and (2).
fn lia(mss: f64, subflows: &mut [Subflow]) {
    let (mut best, mut rate) = (0.0, 0.0);
    for path in paths(subflows) {
        let terms = path.terms();
        rate += terms.rate;
        if terms.quality > best {
            best = terms.quality;
        }
    }
    // alpha / cwnd_total
    let coupled = best / (rate * rate);
    for path in paths(subflows) {
        let alone = path.terms().alone;
        path.growth = mss * if coupled < alone { coupled } else { alone };
    }
}

/// Khalili et al. §IV, equations (5) and (6).
fn olia(mss: f64, paths: &mut [&mut Path]) {
    let count = paths.len() as f64;
    let rate: f64 = paths.iter().map(|path| path.window as f64 / path.rtt_s()).sum();
    let widest = paths.iter().map(|path| path.window).max().unwrap_or(0);
    let quality = |path: &Path| path.between_losses() / (path.rtt_s() * path.rtt_s());
    let best = paths.iter().map(|path| quality(path)).fold(0.0, f64::max);
    let is_widest = |path: &Path| path.window == widest;
    // Paths with the best quality that do not have the largest window.
    let is_collected = |path: &Path| quality(path) >= best && !is_widest(path);
    let collected = paths.iter().filter(|path| is_collected(path)).count() as f64;
    let widests = paths.iter().filter(|path| is_widest(path)).count() as f64;
    for path in paths {
        let alpha = match () {
            () if collected == 0.0 => 0.0,
            () if is_collected(path) => 1.0 / (count * collected),
            () if is_widest(path) => -1.0 / (count * widests),
            () => 0.0,
        };
        let window = path.window as f64;
        let fair = window / (path.rtt_s() * path.rtt_s()) / (rate * rate);
        path.growth = mss * (fair + alpha / window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1000.0;

    fn path(segments: u64, rtt_ms: u64) -> Path {
        Path { window: segments * 1000, rtt: Nanos::from_millis(rtt_ms), ..Path::default() }
    }

    fn growths(coupling: Coupling, paths: &[Path]) -> Vec<f64> {
        let subflow = |path: &Path| Subflow { path: path.clone(), ..Subflow::default() };
        let mut subflows: Vec<Subflow> = paths.iter().map(subflow).collect();
        couple(coupling, MSS, &mut subflows);
        subflows.iter().map(|one| one.path.growth).collect()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn one_subflow_grows_by_a_segment_per_window() {
        for coupling in [Coupling::Lia, Coupling::Olia] {
            assert!(near(growths(coupling, &[path(10, 7)])[0], 0.1), "{coupling:?}");
        }
    }

    /// RFC 6356 §3: on n equal paths alpha is 1/n, so each of n windows of w grows 1/n as fast as one of n·w.
    #[test]
    fn equal_paths_divide_the_growth_by_their_number() {
        let four = growths(Coupling::Lia, &[path(10, 5), path(10, 5), path(10, 5), path(10, 5)]);
        assert!(four.iter().all(|&growth| near(growth, 1.0 / 160.0)), "{four:?}");
        let four = growths(Coupling::Olia, &[path(10, 5), path(10, 5), path(10, 5), path(10, 5)]);
        assert!(four.iter().all(|&growth| near(growth, 1.0 / 160.0)), "{four:?}");
    }

    /// Computed by hand: 10 segments at 10 ms and 30 at 20 ms. alpha / total = (10 / 0.01²) / (10 / 0.01 + 30 /
    /// 0.02)² segments.
    #[test]
    fn lia_follows_its_equations_and_is_never_faster_than_one_tcp() {
        let growth = growths(Coupling::Lia, &[path(10, 10), path(30, 20)]);
        assert!(near(growth[0], 1e5 / 6.25e6) && near(growth[1], 1e5 / 6.25e6), "{growth:?}");
        let growth = growths(Coupling::Lia, &[path(1, 1), path(100, 1000)]);
        assert!(growth[0] <= 1.0 && near(growth[1], 0.01_f64.min(1e6 / (1100.0 * 1100.0))), "{growth:?}");
    }

    #[test]
    fn olia_shifts_window_to_the_best_path() {
        let mut paths = [path(20, 10), path(5, 10)];
        (paths[0].since_loss, paths[1].since_loss) = (10_000, 50_000);
        let growth = growths(Coupling::Olia, &paths);
        let fair = |segments: f64| segments / (25.0 * 25.0);
        assert!(near(growth[0], fair(20.0) - 0.5 / 20.0) && near(growth[1], fair(5.0) + 0.5 / 5.0), "{growth:?}");
    }

    #[test]
    fn stalled_subflows_do_not_count() {
        let subflow = |stalled| Subflow { path: path(10, 5), stalled, ..Subflow::default() };
        let mut subflows = [subflow(false), subflow(true)];
        couple(Coupling::Lia, MSS, &mut subflows);
        assert!(near(subflows[0].path.growth, 0.1) && near(subflows[1].path.growth, 0.0));
    }
}
