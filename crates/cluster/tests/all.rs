//! Members, an etcd, switches and agents of hosts in virtual time.

mod hosts;
mod restored;
mod scene;
mod state;
mod takeover;
mod versions;
