//! `pathloom-controller restored`: an operator has restored etcd from a backup.

use crate::config::CheckedConfig;
use crate::drivers::etcd::{restored, Restored};
use pathloom_cluster::etcd::Failure;

/// Makes etcd fit for controllers after it was restored: see [`restored`]. `say` gets etcd's revision now and then.
///
/// # Errors
/// The configuration names no etcd, or etcd does not answer or refuses. The message names the way out.
pub fn run(checked: &CheckedConfig, above: u64, say: impl Fn(u64)) -> Result<Restored, String> {
    let Some(cluster) = &checked.cluster else {
        return Err("there is no [cluster]; name the configuration of one of several controllers".to_owned());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| problem.to_string())?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, restored(cluster, above, say)).map_err(|failure| match failure {
        Failure::Unanswered => "etcd does not answer; start it and run the command again".to_owned(),
        Failure::NoSpace => "etcd has no space; compact and defragment it, and disarm its alarm".to_owned(),
        Failure::Other(why) => why,
        other => format!("etcd refuses: {other:?}"),
    })
}
