//! The packet-level simulator: drives `control`, `switching` and `transport` under a virtual clock.
//!
//! A [`Simulation`] is built from [`SimSettings`] and advances in slices; its [`Outcome`] can be read at any time.
//! All random draws come from its seed: the same settings give the same outcome, bit for bit, on one thread or on
//! several. With [`Fidelity::Skip`], steady phases are advanced at once; with
//! [`Fidelity::Fluid`], flows are rates, and no packet is sent.

#![warn(clippy::undocumented_unsafe_blocks)]

mod agenda;
mod agents;
mod cache;
mod checks;
mod control_plane;
mod deadlock;
mod deficits;
mod driven;
mod entropies;
mod faults;
mod frames;
mod hosts;
mod ideal;
mod interface;
mod kinds;
mod lanes;
mod link;
mod marks;
mod network;
mod next_hops;
mod operations;
mod outcome;
mod packet;
mod parts;
mod pcap;
mod pfc;
mod plan;
mod planes;
mod pools;
mod port;
mod preview;
mod program_events;
mod red;
mod reports;
mod run;
mod sack_options;
mod settings;
mod simulation;
mod skip;
mod splitting;
mod starts;
mod store;
mod subflow;
mod tap;
mod telemetry;
#[cfg(test)]
mod tests;
mod time;
mod transfers;
mod trusted;
mod victims;
mod wheel;

pub use control_plane::Journal;
pub use driven::{Driven, Message};
pub use outcome::{
    ControlOutcome, Crossings, Deadlock, FlowOutcome, KindOutcome, LinkOutcome, Outcome, PacketTotals, PauseOutcome,
    ProgramOutcome, SubflowOutcome, SubflowPath, TableSample,
};
pub use pcap::PcapTap;
pub use preview::{OfferedFlow, SwitchTables};
pub use settings::{ControlSettings, Fidelity, Handover, SimError, SimSettings, Successor, LONGEST_RUN};
pub use simulation::Simulation;
pub use skip::Skipped;
pub use tap::{Fate, LargeFabric, Loss, NoTap, Parted, SeenPacket, Tap};
pub use victims::Victim;
