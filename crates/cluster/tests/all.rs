//! Members, an etcd and switches in virtual time.

mod scene;
mod takeover;
