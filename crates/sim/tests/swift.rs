//! Swift on a shared cable: its fixed point, fairness, and windows below a packet.

use crate::packets::{run, settings};
use pathloom_model::Nanos;
use pathloom_sim::{Outcome, SimSettings};

/// Bytes of a full packet, and of a packet with its report.
const FRAME: f64 = 4150.0;
const BOTH: f64 = FRAME + 64.0;

/// A small first window, so that the first round trips do not count.
const TRANSPORT: &str = "swift:iw=8300B";

/// Flows without end from one side of a cable to the other, all over three links of this rate and delay.
struct Shared {
    flows: usize,
    rate_gbps: f64,
    delay_us: f64,
    millis: u64,
}

impl Shared {
    fn run(&self) -> Outcome {
        let Shared { flows, rate_gbps, delay_us, millis } = *self;
        let fabric = format!(
            "dumbbell:hosts={flows},host_rate={rate_gbps}Gbps,switch_rate={rate_gbps}Gbps,delay={delay_us}us,buffer=5000"
        );
        let list: Vec<_> = (0..flows).map(|flow| (flow as u64 % 20, flow, flow + flows, None)).collect();
        let outcome =
            run(SimSettings { duration: Nanos::from_millis(millis), ..settings(&fabric, &list, TRANSPORT, "") });
        assert_eq!((outcome.packets.dropped, outcome.packets.trimmed), (0, 0));
        outcome
    }

    /// Time in microseconds that the rate needs for these bytes.
    fn takes_us(&self, bytes: f64) -> f64 {
        bytes * 8e-3 / self.rate_gbps
    }

    /// Queueing in microseconds at the fixed point: windows that are equal, and fill the path up to their target.
    fn expected_queueing_us(&self) -> f64 {
        let hop = self.takes_us(BOTH) + 2.0 * self.delay_us;
        let round_trip = 3.0 * hop;
        let target = hop + 0.5 * round_trip;
        let scale = 5.0 * target / (1.0 / 0.1_f64.sqrt() - 0.1);
        let mut delay = round_trip;
        // The map contracts, so a few steps are enough.
        for _ in 0..50 {
            let window = delay / self.takes_us(FRAME) / self.flows as f64;
            delay = target + 2.0 * hop + (scale * (1.0 / window.sqrt() - 0.1)).clamp(0.0, 5.0 * target);
        }
        delay - round_trip
    }

    /// Utilisation of the cable, and mean queueing in microseconds.
    fn cable(&self, outcome: &Outcome) -> (f64, f64) {
        let middle = outcome.links.iter().max_by(|a, b| a.mean_queue.total_cmp(&b.mean_queue)).unwrap();
        (self.takes_us(middle.sent_bytes as f64) / (self.millis as f64 * 1e3), self.takes_us(middle.mean_queue * FRAME))
    }
}

/// Jain's index of the bytes that flows have delivered.
fn jain(outcome: &Outcome) -> f64 {
    let bytes: Vec<f64> = outcome.flows.iter().map(|flow| flow.delivered_bytes as f64).collect();
    let (sum, squares) = bytes.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / bytes.len() as f64 / squares
}

#[test]
fn flows_share_a_cable_fairly_fill_it_and_keep_to_their_target() {
    // Thirty windows of little more than a packet grow by a packet at a time, so they exceed the target further.
    for (flows, excess) in [(2, 0.35), (8, 0.35), (30, 1.0)] {
        let case = Shared { flows, rate_gbps: 100.0, delay_us: 1.0, millis: 6 };
        let outcome = case.run();
        let ((utilisation, queueing), expected) = (case.cable(&outcome), case.expected_queueing_us());
        assert!(utilisation > 0.93, "{flows} flows: {utilisation}");
        assert!(jain(&outcome) >= 0.98, "{flows} flows: {}", jain(&outcome));
        assert!((queueing / expected - 1.0).abs() < excess, "{flows} flows: {queueing} us, expected {expected} us");
    }
}

/// A hundred windows share 22 packets, so each sender waits for several round trips between two packets.
#[test]
fn windows_below_a_packet_starve_nobody() {
    let case = Shared { flows: 100, rate_gbps: 10.0, delay_us: 2.0, millis: 200 };
    let outcome = case.run();
    let bytes = || outcome.flows.iter().map(|flow| flow.delivered_bytes as f64);
    let (least, mean) = (bytes().fold(f64::MAX, f64::min), bytes().sum::<f64>() / 100.0);
    assert!(least > 0.6 * mean && jain(&outcome) >= 0.98, "{least} of {mean}, {}", jain(&outcome));
    let windows = outcome.flows.iter().map(|flow| flow.window_bytes as f64).sum::<f64>() / 100.0;
    assert!(windows < FRAME, "{windows}");
    assert!(case.cable(&outcome).0 > 0.9, "{}", case.cable(&outcome).0);
}
