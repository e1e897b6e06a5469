//! Time that a claim of a path takes (MakePath, parallel TCP §4), from the call over XML-RPC to its answer, while other
//! flows are set up.

use super::paths::{switches, wait_until_quiet, Counts, FlowSetupWork};
use super::plan::Plan;
use super::report::{Measured, Row};
use super::served::TOKEN;
use super::target::Target;
use pathloom_fabrics::fabric_from_spec;
use pathloom_fake_switch::{connect, until, Work};
use pathloom_fake_switch::{Common, Fake};
use pathloom_model::Fabric;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The fabric of the measurement.
const FABRIC: &str = "fat-tree:k=8";
/// Number of existing assignments, of measured calls, and of other flows set up per second.
const LOAD: Load = Load { assignments: 1000, calls: 10_000, flows_per_s: 1000 };
/// Paths of each assignment.
const PATHS: usize = 4;

/// The load of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub assignments: usize,
    pub calls: usize,
    pub flows_per_s: u32,
}

/// A switch that opens one more flow at each wake-up.
struct PacedFlowWork(FlowSetupWork);

impl Work for PacedFlowWork {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.0.open(Instant::now(), out);
    }

    fn message(&mut self, read: Instant, kind: u8, body: &[u8], _: &mut Vec<u8>) {
        self.0.note(read, kind, body);
    }
}

/// Calls by XML-RPC over one connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> std::io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client(BufReader::new(stream)))
    }

    fn call(&mut self, method: &str, params: &str) -> Result<String, String> {
        let body = format!("<methodCall><methodName>{method}</methodName><params>{params}</params></methodCall>");
        let length = body.len();
        let head = format!(
            "POST /RPC2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = (|| {
            self.0.get_mut().write_all((head + &body).as_bytes())?;
            let (mut line, mut length) = (String::new(), 0);
            while self.0.read_line(&mut line)? > 2 {
                let lower = line.to_ascii_lowercase();
                if let Some(number) = lower.strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })();
        let answer: String = answer.map_err(|problem: std::io::Error| format!("{method}: {problem}"))?;
        if answer.contains("<fault>") {
            return Err(format!("{method}: {answer}"));
        }
        Ok(answer)
    }
}

fn text(value: impl std::fmt::Display) -> String {
    format!("<param><value>{value}</value></param>")
}

fn int(value: impl std::fmt::Display) -> String {
    text(format!("<int>{value}</int>"))
}

/// Makes all assignments, waits for `go`, and claims their paths in turn. Returns the time of each claim in ns.
fn claim_all(port: u16, fabric: &Fabric, load: Load, go: &std::sync::mpsc::Receiver<()>) -> Result<Vec<u64>, String> {
    let mut client = Client::connect(port).map_err(|problem| problem.to_string())?;
    let hosts = fabric.attachments();
    let mut made = Vec::new();
    for number in 0..load.assignments {
        let (src, dst) = (hosts[number % hosts.len()].address, hosts[(number + hosts.len() / 2) % hosts.len()].address);
        let params = text(src) + &text("02:00:00:00:00:01") + &text(dst) + &int(PATHS);
        let answer = client.call("AssignMultipath", &params)?;
        let id = answer.rsplit("<int>").next().and_then(|rest| rest.split('<').next()).unwrap_or_default().to_owned();
        made.push((id, src, dst));
    }
    go.recv().map_err(|_| "the load did not begin")?;
    let mut times_ns = Vec::with_capacity(load.calls);
    for number in 0..load.calls {
        let (id, src, dst) = &made[number % made.len()];
        // Ports of the other flows begin at 1024.
        let port = 40_000 + number / made.len();
        let params = int(id) + &text(src) + &text(dst) + &int(port);
        let sent = Instant::now();
        client.call("MakePath", &params)?;
        times_ns.push(sent.elapsed().as_nanos() as u64);
    }
    Ok(times_ns)
}

/// Measures a controller that serves OpenFlow and XML-RPC on these ports.
pub(super) fn run((openflow, rpc): (u16, u16), spec: &str, load: Load) -> Result<(Measured, usize), String> {
    let fabric = Rc::new(fabric_from_spec(spec).map_err(|problem| problem.to_string())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let common = Common::default();
        let counts = Rc::new(RefCell::new(Counts::new((usize::MAX / 2, 0), Duration::MAX, None)));
        let start = Instant::now();
        let tors: Vec<(Fake, FlowSetupWork)> = switches(&fabric, 1, &common, &counts).collect();
        let mut wakers = Vec::new();
        let mut tasks = Vec::new();
        for (fake, work) in tors {
            let go = Rc::new(Notify::new());
            if work.has_hosts() {
                wakers.push(go.clone());
            }
            tasks.push(connect(openflow, fake, PacedFlowWork(work), go));
        }
        until("the start of all sessions", || common.standing.get() == fabric.switches().len()).await?;
        let connected_s = start.elapsed().as_secs_f64();
        wait_until_quiet(&common).await;
        let (go, gone) = std::sync::mpsc::channel();
        let clients = {
            let fabric = Fabric::clone(&fabric);
            tokio::task::spawn_blocking(move || claim_all(rpc, &fabric, load, &gone))
        };
        let pace = async {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / load.flows_per_s);
            for waker in wakers.iter().cycle() {
                ticks.tick().await;
                waker.notify_one();
            }
        };
        let claims = async {
            // Meanwhile, the assignments are made.
            let _ = go.send(());
            clients.await.map_err(|problem| problem.to_string())?
        };
        let begun = Instant::now();
        let times_ns = tokio::select! {
            times = claims => times?,
            () = pace => Vec::new(),
        };
        let seconds = begun.elapsed().as_secs_f64();
        tasks.iter().for_each(|task| task.abort());
        let set_up = counts.borrow().finished();
        Ok((Measured::new(times_ns.len() as u64, seconds, times_ns, (connected_s, None)), set_up))
    })
}

/// Measures, and adds a row.
pub(crate) fn measure(_: &Plan, done: &mut impl FnMut(Row)) -> Result<(), String> {
    let target = Target::start(&format!("fabric:ofpt:{FABRIC}"))?;
    let rpc = target.second_port().ok_or("the controller serves no XML-RPC")?;
    let (measured, set_up) = run((target.place().0, rpc), FABRIC, LOAD)?;
    let work = format!("claims, {:.0} flows/s", set_up as f64 / measured.seconds);
    done(Row::new(("pathloom", &work), (80, 1), &measured, target.resident_bytes()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served;

    #[test]
    fn claims_are_answered_while_flows_are_set_up() {
        let ports = served::both_on_a_thread("fabric:ofpt:fat-tree:k=4");
        let load = Load { assignments: 20, calls: 400, flows_per_s: 500 };
        let (measured, set_up) = run(ports, "fat-tree:k=4", load).unwrap();
        assert_eq!(measured.count, 400);
        assert!(set_up > 0 && measured.p50_us.is_some_and(|us| us > 0.0), "{set_up} {measured:?}");
    }
}
