//! Memory of a subflow: bytes allocated in runs with many subflows, less those in runs with half as many.
//!
//! This is the only test of its program, because the count is that of the whole process.
#![allow(unsafe_code)]

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{ControlSettings, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// Counts bytes that are allocated and not freed.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work; the count does not change that.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        System.dealloc(at, layout);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that a simulation holds in its first 60 ms: 128 connections of this transport on a k=8 FatTree, one
/// from each host.
fn most_bytes(transport: &str) -> usize {
    let before = BYTES.load(Relaxed);
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=8,rate=1Gbps,delay=1us,buffer=100").unwrap());
    let duration = Nanos::from_millis(60);
    let traffic = TrafficSpec::parse("long-lived:pattern=permutation").unwrap();
    let mut simulation = Simulation::new(SimSettings {
        workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
        central: pathloom_schemes::parse("ecmp").unwrap().central(1),
        successor: None,
        programs: None,
        transport: TransportSpec::parse(transport).unwrap(),
        control: ControlSettings::default(),
        duration,
        drain: 5,
        faults: Vec::new(),
        seed: 1,
        fabric,
    })
    .unwrap();
    let looks = (2..60).step_by(2).map(|at_ms| {
        simulation.advance(Nanos::from_millis(at_ms));
        BYTES.load(Relaxed) - before
    });
    looks.max().unwrap()
}

/// Bytes per subflow: the memory that four more subflows for each of 128 connections take.
fn bytes_of_a_subflow(transport: &str) -> usize {
    let most = |subflows: u32| most_bytes(&format!("mptcp:subflows={subflows},{transport}"));
    (most(8) - most(4)) / (4 * 128)
}

#[test]
fn a_subflow_takes_little_memory() {
    // With a receive window of two segments, most subflows have nothing to send.
    let idle = ["sack=off,rwnd=3KB", "sack=on,rwnd=3KB"].map(bytes_of_a_subflow);
    // The first 60 ms include the overshoot of slow start, when most data are under way.
    let busy = ["sack=off", "sack=on"].map(bytes_of_a_subflow);
    println!("bytes of a subflow, without and with selective acknowledgements: idle {idle:?}, busy {busy:?}");
    assert!(idle.iter().all(|&bytes| bytes <= 2_950), "{idle:?}");
    assert!(busy[0] <= 4_000 && busy[1] <= 5_000, "{busy:?}");
}
