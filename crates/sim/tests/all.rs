//! All tests of whole runs in one program, which compiles and links sooner than one for each file. `memory.rs` counts the
//! memory of its whole process, so it has one of its own.

mod bad_input;
mod beside_ecmp;
mod collectives;
mod control_modes;
mod faults;
mod max_min;
mod mptcp;
mod parts;
mod path_schemes;
mod ports;
mod programs;
mod runs;
mod streams;
mod transports;
