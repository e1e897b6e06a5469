//! All tests of whole runs in one program, which compiles and links faster than one program per file. `memory.rs`
//! counts the memory of its whole process, so it is a separate program.

mod bad_input;
mod balancing;
mod beside_ecmp;
mod buffers;
mod cases;
mod collective_times;
mod collectives;
mod control_modes;
mod driven;
mod eqds;
mod ethereal;
mod faults;
mod fluid;
mod hpcc;
mod loom;
mod max_min;
mod mptcp;
mod ndp;
mod packets;
mod parts;
mod path_schemes;
mod pfc;
mod ports;
mod rehashing;
mod roce;
mod runs;
mod skip;
mod spraying;
mod standing_connections;
mod streams;
mod swift;
mod switch_programs;
mod tiers;
mod transports;
mod under_way;
