//! The program at its command line and its signals.

mod bench_command;
mod reload;
