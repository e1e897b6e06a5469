//! The hub with its switches, hosts and agents in virtual time: see `pathloom_testnet`.

mod agents;
mod alone;
mod capacity;
mod cluster;
mod lab;
mod moves;
mod neighbours;
mod offenders;
mod restarts;
mod reviews;
mod sessions;
mod takeover;
mod wiring;
