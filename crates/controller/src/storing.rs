//! Stores assignments soon after they have changed, and wakes the calls of the API that wait for this or for a switch.

use crate::hub::Hub;
use crate::persist::Persist;
use crate::session::Shared;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{oneshot, watch, Notify};

/// Minimum time between two stores of the state because of changed assignments.
const STORE_INTERVAL: Duration = Duration::from_millis(100);

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
