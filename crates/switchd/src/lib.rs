//! A live switch that runs a switch program: ARP-Path, TCP-Path, TFE, or a learning switch.
//!
//! [`switch`] is the switch without its surroundings: it drives the same state machines as the simulator. Everything else is the
//! driver: [`bpf`] has the kernel forward known flows, [`links`] are the interfaces, [`run`] is the process.
//! docs/pathloom-switch.md is for operators.

pub mod bpf;
#[allow(missing_docs)]
pub mod config;
#[allow(missing_docs)]
pub mod layout;
#[allow(missing_docs)]
pub mod links;
pub mod run;
#[allow(missing_docs)]
pub mod show;
#[allow(missing_docs)]
pub mod state;
#[allow(missing_docs)]
pub mod switch;
