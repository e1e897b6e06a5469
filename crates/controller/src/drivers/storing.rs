//! Stores assignments soon after they have changed, and wakes the calls of the API that wait for this or for a switch.
//! Stores the state in etcd, if several controllers hold the fabric.

use crate::drivers::etcd::StateStore;
use crate::drivers::persist::{hosts_of, rows_of, Persist, Row, Stored};
use crate::drivers::session::Shared;
use crate::hub::Hub;
use pathloom_control::Snapshot;
use pathloom_discovery::KnownHost;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{oneshot, watch, Notify};

/// Minimum time between two stores of the state because of changed assignments.
const STORE_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two stores of the state in etcd, for each 4 MiB of it.
const ETCD_INTERVAL: Duration = Duration::from_secs(5);
/// How long a stop waits for etcd to store the state.
const ETCD_STOP: Duration = Duration::from_secs(2);

/// Fields of the state that a later version has added. This version keeps them, and stores them as they were.
pub(crate) type UnknownFields = serde_json::Map<String, serde_json::Value>;

/// The state in etcd.
#[derive(Serialize, Deserialize)]
struct Saved<S> {
    snapshot: S,
    #[serde(default)]
    hosts: Vec<Row>,
    #[serde(default)]
    wiring: Vec<(u64, u32, u32)>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// What an earlier leader has stored in etcd.
#[derive(Default)]
pub(crate) struct SavedState {
    pub stored: Stored,
    pub hosts: Vec<KnownHost>,
    /// Port numbers of switches that differ from the fabric's.
    pub wiring: Vec<(u64, u32, u32)>,
    pub unknown: UnknownFields,
}

impl SavedState {
    /// Reads what etcd had. Every version can read what was out of service.
    pub(crate) fn read(bytes: Option<&[u8]>) -> SavedState {
        let Some(bytes) = bytes else { return SavedState::default() };
        // The next leader waits for this, so the state of its own version is read in one pass.
        match serde_json::from_slice::<Saved<Snapshot>>(bytes) {
            Ok(saved) => {
                SavedState::of(saved, |snapshot| Stored { drains: Some(snapshot.drains()), snapshot: Some(snapshot) })
            }
            Err(problem) => SavedState::read_other(bytes, &problem),
        }
    }

    /// Reads what is readable of the state of another version.
    fn read_other(bytes: &[u8], problem: &serde_json::Error) -> SavedState {
        match serde_json::from_slice::<Saved<serde_json::Value>>(bytes) {
            Ok(saved) => {
                tracing::warn!(%problem, "the snapshot in etcd is of another version; the rules in the switches are adopted");
                let drains = |snapshot| serde_json::from_value(snapshot).ok();
                SavedState::of(saved, |snapshot| Stored { snapshot: None, drains: drains(snapshot) })
            }
            Err(problem) => {
                tracing::warn!(%problem, "the state in etcd cannot be read; the rules in the switches are adopted");
                SavedState::default()
            }
        }
    }

    fn of<S>(Saved { snapshot, hosts, wiring, unknown }: Saved<S>, stored: impl FnOnce(S) -> Stored) -> SavedState {
        SavedState { stored: stored(snapshot), hosts: hosts_of(hosts), wiring, unknown }
    }
}

/// The state as etcd stores it; `None` without a controller.
fn saved(hub: &mut Hub, storing: &Storing) -> Option<Vec<u8>> {
    let snapshot = hub.controller()?.snapshot();
    let (hosts, wiring) = hub.discovery.as_ref().map_or_else(Default::default, |discovery| {
        (rows_of(discovery.state().hosts().hosts()), discovery.renumbered())
    });
    let unknown = storing.unknown.borrow().clone();
    serde_json::to_vec(&Saved { snapshot, hosts, wiring, unknown }).ok()
}

/// Stores the state in etcd soon after a change that somebody waits for, and otherwise every few seconds, more rarely if it
/// is large.
pub(crate) async fn store_in_etcd(shared: Shared, store: Rc<StateStore>) {
    let mut failures = 0_u32;
    let storing = &shared.tasks.storing;
    storing.is_stored.set(true);
    loop {
        let state = shared.drive(|hub, _| saved(hub, storing).map(|bytes| (bytes, hub.assigning.changes())));
        let Some((bytes, changes)) = state else { return };
        let result = store.save(&bytes).await;
        if matches!(result, Ok(true)) {
            failures = 0;
            storing.stored.send_replace(changes);
            shared.drive(|hub, now| hub.gauges.member.as_mut().map(|member| member.stored = Some(now)));
        } else {
            failures = failures.saturating_add(1);
        }
        if failures == 1 {
            tracing::warn!(?result, "the state is not stored in etcd; trying again");
        }
        tokio::time::sleep(STORE_INTERVAL).await;
        let _ = tokio::time::timeout(pause(failures, bytes.len()), storing.changed.notified()).await;
    }
}

/// Time until the state is stored again, if nothing changes. Somebody may wait for a state that was not stored, so it is
/// tried again soon; less often, the longer etcd does not answer.
fn pause(failures: u32, bytes: usize) -> Duration {
    let usual = ETCD_INTERVAL * (1 + u32::try_from(bytes >> 22).unwrap_or(u32::MAX).min(100));
    match failures {
        0 => usual,
        _ => usual.min(STORE_INTERVAL * 2_u32.pow(failures.min(10))),
    }
}

/// Stores the state in etcd before the controller stops.
pub(crate) async fn store_last_in_etcd(shared: &Shared, store: &StateStore) {
    if let Some(bytes) = shared.drive(|hub, _| saved(hub, &shared.tasks.storing)) {
        let result = tokio::time::timeout(ETCD_STOP, store.save(&bytes)).await;
        if !matches!(result, Ok(Ok(true))) {
            tracing::warn!(?result, "the last state is not stored in etcd");
        }
    }
}

/// What is stored, and who waits.
pub(crate) struct Storing {
    /// Number of changes that the hub has made.
    changes: Cell<u64>,
    /// Wakes the task that stores them.
    changed: Notify,
    /// Number of changes that are stored.
    stored: watch::Sender<u64>,
    /// Whether the state is stored at all.
    is_stored: Cell<bool>,
    /// What the leader before has stored and this version does not know.
    pub unknown: RefCell<UnknownFields>,
    /// Calls that wait until the first packets of an address will come to the controller.
    calls: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
}

impl Default for Storing {
    fn default() -> Storing {
        Storing {
            changes: Cell::default(),
            changed: Notify::new(),
            stored: watch::channel(0).0,
            is_stored: Cell::default(),
            unknown: RefCell::default(),
            calls: RefCell::default(),
        }
    }
}

/// A change that must be stored before its caller gets an answer.
pub(crate) struct ToBeStored {
    change: u64,
    stored: watch::Receiver<u64>,
}

impl ToBeStored {
    /// Waits until the change is stored.
    pub(crate) async fn wait(mut self) {
        // An error means that the controller is stopping, which stores the state too.
        let _ = self.stored.wait_for(|&stored| stored >= self.change).await;
    }
}

impl Storing {
    /// Notes what the hub has changed, and wakes those who wait for it.
    pub(crate) fn look_at(&self, hub: &mut Hub) {
        let changes = hub.assigning.changes();
        if self.changes.replace(changes) != changes {
            self.changed.notify_one();
        }
        while let Some(call) = hub.poll_visible() {
            // A caller that has gone needs no answer.
            self.calls.borrow_mut().remove(&call).map(|sender| sender.send(()));
        }
    }

    /// Returns a value that waits until all changes that the hub has made are stored; `None` if no state is stored.
    pub(crate) fn to_be_stored(&self, hub: &Hub) -> Option<ToBeStored> {
        let change = hub.assigning.changes();
        self.is_stored.get().then(|| ToBeStored { change, stored: self.stored.subscribe() })
    }

    /// Returns a receiver that is ready when the hub returns this number of a call.
    pub(crate) fn when_visible(&self, call: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.calls.borrow_mut().insert(call, sender);
        receiver
    }
}

/// Stores the state soon after assignments have changed, so that a killed controller loses no assignment that it has
/// answered.
pub(crate) async fn store_changes(shared: Shared, persist: Persist) {
    if !persist.is_enabled() {
        return;
    }
    let storing = &shared.tasks.storing;
    storing.is_stored.set(true);
    loop {
        storing.changed.notified().await;
        shared.drive(|hub, _| {
            let snapshot = hub.controller().map(|controller| controller.snapshot());
            snapshot.iter().for_each(|snapshot| persist.save(snapshot));
            storing.stored.send_replace(hub.assigning.changes());
        });
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_control::Target;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::NodeId;

    #[test]
    fn a_state_that_was_not_stored_is_stored_again_soon() {
        assert_eq!(pause(0, 100), ETCD_INTERVAL);
        assert_eq!(pause(0, 9 << 20), 3 * ETCD_INTERVAL, "a large state is stored less often");
        let pauses: Vec<u128> = (1..=7).map(|failures| pause(failures, 100).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause(u32::MAX, usize::MAX), STORE_INTERVAL * 1024, "no overflow");
    }

    #[test]
    fn a_leader_keeps_what_a_later_version_has_stored() {
        let fabric = fabric_from_spec("diamond").unwrap();
        let (spec, nodes) = (fabric.spec(), fabric.nodes().len());
        // A snapshot of another form, of which only drains can be read, and a field that this version does not know.
        let text = format!(
            r#"{{"snapshot":{{"form":999,"fabric":"{spec}","nodes":{nodes},"drains":{{"switches":[2],"cables":[]}}}},
               "hosts":[],"wiring":[[1,2,3]],"later":{{"more":[1,2]}}}}"#
        );
        let SavedState { stored, wiring, unknown, .. } = SavedState::read(Some(text.as_bytes()));
        assert!(stored.snapshot.is_none());
        assert_eq!(stored.drains.unwrap().targets(), [Target::Switch(NodeId(2))]);
        assert_eq!(wiring, [(1, 2, 3)]);
        let saved = Saved { snapshot: 0, hosts: Vec::new(), wiring, unknown };
        let again: serde_json::Value = serde_json::from_slice(&serde_json::to_vec(&saved).unwrap()).unwrap();
        assert_eq!(again["later"], serde_json::json!({"more": [1, 2]}));
        assert!(SavedState::read(Some(br#"{"snapshot":{}}"#)).wiring.is_empty(), "an earlier version stored less");
    }
}
