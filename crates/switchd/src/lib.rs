//! A live switch that runs a switch program: ARP-Path, TCP-Path, TFE, or a learning switch.
//!
//! [`switch`] is the switch without input and output. It drives the same state machines as the simulator. The other
//! modules are the driver: [`bpf`] makes the kernel forward known flows, [`links`] handles the interfaces, and [`run`]
//! is the main loop of the process. docs/pathloom-switch.md is the documentation for operators.

pub mod bpf;
#[allow(missing_docs)]
pub mod config;
mod filters;
mod foreigners;
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
