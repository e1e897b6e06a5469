//! Answers per second of a plain learning switch.

use super::plan::Plan;
use super::report::{Measured, Row};
use super::target::{Start, Target, RIVALS};
use crate::process::ran_ns_of;
use pathloom_fake_switch::{append_message, Common, Fake};
use pathloom_fake_switch::{connect, until, Work};
use pathloom_openflow::flow_match::{FlowMatch, ETH_IPV4};
use pathloom_openflow::packet::Ethernet;
use pathloom_openflow::{Kind, Message, PacketIn, PacketInReason, NO_BUFFER};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Offset of the sequence number in a frame: after Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 14 + 20 + 8;
/// Maximum number of stored times.
const MOST_TIMES: usize = 2_000_000;
/// Time with answers before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(300);

/// Counters of all switches together.
struct Counts {
    start: Instant,
    answers: u64,
    times_ns: Vec<u64>,
}

/// One switch, with this number of outstanding packets.
struct PacketInWork {
    template: Vec<u8>,
    number_at: usize,
    next: u64,
    outstanding: usize,
    /// Times at which the last packets were sent; `None` for answered ones. The first entry belongs to the number
    /// `next` less their count.
    sent: VecDeque<Option<Instant>>,
    counts: Rc<RefCell<Counts>>,
}

fn packet_in(dst: u8, src: u8, port: u32) -> Vec<u8> {
    let mut payload = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst];
    payload.extend([0, 7, 0, 7, 0, 26, 0, 0]);
    payload.extend([0; 18]);
    let mac = |last| [2, 0, 0, 0, 1, last];
    let mut data = Vec::new();
    Ethernet { dst: mac(dst), src: mac(src), vlan: None, kind: ETH_IPV4, payload: &payload }.emit(&mut data);
    let matches = FlowMatch { in_port: Some(port), ..FlowMatch::default() };
    let (total_len, reason) = (data.len() as u16, PacketInReason::NoMatch);
    let packet = PacketIn { buffer: NO_BUFFER, total_len, reason, table: 0, cookie: 0, matches, data: &data };
    let mut out = Vec::new();
    append_message(&Message::PacketIn(packet), 0, &mut out);
    out
}

impl PacketInWork {
    fn ask(&mut self, now: Instant, out: &mut Vec<u8>) {
        let at = out.len() + self.number_at;
        out.extend_from_slice(&self.template);
        out[at..at + 8].copy_from_slice(&self.next.to_be_bytes());
        self.sent.push_back(Some(now));
        self.next += 1;
    }

    /// Notes the answer to a number. Returns when it was sent; `None` if it was not, or has been answered already.
    fn answered(&mut self, number: u64) -> Option<Instant> {
        let first = self.next - self.sent.len() as u64;
        let sent = self.sent.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)?.take();
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
        }
        sent
    }
}

impl Work for PacketInWork {
    fn begin(&mut self, out: &mut Vec<u8>) {
        // The controller learns the ports of both. The answers to these have no number of the measurement.
        out.extend(packet_in(1, 2, 2));
        out.extend(packet_in(2, 1, 1));
        let now = Instant::now();
        for _ in 0..self.outstanding {
            self.ask(now, out);
        }
    }

    fn message(&mut self, read: Instant, kind: u8, body: &[u8], out: &mut Vec<u8>) {
        if kind != Kind::PACKET_OUT || body.len() < 16 {
            return;
        }
        let actions = usize::from(u16::from_be_bytes([body[8], body[9]]));
        let Some(number) = body.get(16 + actions + NUMBER_AT..16 + actions + NUMBER_AT + 8) else { return };
        let number = u64::from_be_bytes(number.try_into().unwrap_or_default());
        let Some(sent) = self.answered(number) else { return };
        {
            let mut counts = self.counts.borrow_mut();
            counts.answers += 1;
            if counts.times_ns.len() < MOST_TIMES && sent >= counts.start {
                counts.times_ns.push(read.duration_since(sent).as_nanos() as u64);
            }
        }
        self.ask(read, out);
    }
}

/// Loads the controller on a port.
pub(crate) fn run(
    (port, process): (u16, u32),
    switches: usize,
    outstanding: usize,
    duration: Duration,
) -> Result<Measured, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (common, go) = (Common::default(), Rc::new(Notify::new()));
        let far = Instant::now() + Duration::from_secs(3600);
        let counts = Rc::new(RefCell::new(Counts { start: far, answers: 0, times_ns: Vec::new() }));
        let start = Instant::now();
        let tasks: Vec<_> = (1..=switches as u64)
            .map(|datapath_id| {
                let template = packet_in(2, 1, 1);
                let number_at = template.len() - 18;
                let counts = counts.clone();
                let sent = VecDeque::new();
                let work = PacketInWork { template, number_at, next: 1 << 32, outstanding, sent, counts };
                connect(port, Fake::new(datapath_id, 4, common.clone()), work, go.clone())
            })
            .collect();
        until("the start of all sessions", || common.standing.get() == switches).await?;
        let connected_s = start.elapsed().as_secs_f64();
        tokio::time::sleep(WARM_UP).await;
        go.notify_waiters();
        until("an answer", || counts.borrow().answers > 0).await?;
        tokio::time::sleep(WARM_UP).await;
        let ran = ran_ns_of(process);
        let (from, before) = (Instant::now(), counts.borrow().answers);
        counts.borrow_mut().start = from;
        tokio::time::sleep(duration).await;
        let (seconds, answers) = (from.elapsed().as_secs_f64(), counts.borrow().answers - before);
        let ran_s = ran_ns_of(process).zip(ran).map(|(after, before)| (after - before) as f64 / 1e9);
        let lost = tasks.iter().filter(|task| task.is_finished()).count();
        tasks.iter().for_each(|task| task.abort());
        if lost > 0 {
            return Err(format!("{lost} of {switches} sessions were lost"));
        }
        let times = std::mem::take(&mut counts.borrow_mut().times_ns);
        Ok(Measured::new(answers, seconds, times, (connected_s, ran_s)))
    })
}

/// Measures this controller and the rivals.
pub(crate) fn measure(plan: &Plan, done: &mut impl FnMut(Row)) -> Result<(), String> {
    for &outstanding in &plan.outstanding {
        for &switches in &plan.switches {
            let target = Target::start("learning")?;
            let measured = run(target.place(), switches, outstanding, plan.duration)?;
            let numbers = (switches, outstanding);
            done(Row::new(("pathloom", "answers"), numbers, &measured, target.resident_bytes()));
            drop(target);
            for rival in RIVALS.iter().filter(|_| plan.rivals) {
                match rival.start(switches) {
                    Start::Absent => {}
                    Start::Unfit(why) => done(Row::without((rival.name, "answers"), numbers, why)),
                    Start::Runs(target) => done(match run(target.place(), switches, outstanding, plan.duration) {
                        Ok(measured) => Row::new((rival.name, "answers"), numbers, &measured, target.resident_bytes()),
                        Err(why) => Row::without((rival.name, "answers"), numbers, why),
                    }),
                }
            }
        }
    }
    Ok(())
}
