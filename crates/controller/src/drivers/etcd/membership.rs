//! This controller among those of its fabric, from its start to its end.

use super::client::Client;
use super::election::Election;
use super::epoch::next_epoch;
use super::state::StateStore;
use crate::config::CheckedCluster;
use crate::config::Confirmed;
use crate::drivers::clock::Clock;
use crate::drivers::session::Shared;
use crate::hub::gauges::Leadership;
use crate::hub::Hub;
use pathloom_cluster::etcd::Failure;
use pathloom_cluster::{Position, Settings, Token};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Time between two tries to take the number of a start and the stored state.
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a leader begins with.
pub(crate) struct Elected {
    /// The number of its election.
    pub token: Token,
    /// The number of its start.
    pub epoch: u16,
    /// What the leader before has stored.
    pub state: Option<Vec<u8>>,
}

/// A member of a cluster.
pub(crate) struct Membership {
    election: Election,
    store: Option<Rc<StateStore>>,
    client: Rc<Client>,
    settings: Settings,
}

impl Membership {
    /// Starts the member, which follows.
    pub(crate) fn start(checked: &CheckedCluster, clock: Clock) -> Membership {
        let (client, settings) = (Rc::new(Client::new(checked.clone())), checked.member.clone());
        let election = Election::start(settings.clone(), client.clone(), clock);
        Membership { election, store: None, client, settings }
    }

    /// The stored state, once this controller has led.
    pub(crate) fn store(&self) -> Option<Rc<StateStore>> {
        self.store.clone()
    }

    /// Waits until this controller leads.
    pub(crate) async fn lead(&mut self, shared: &Shared) -> Elected {
        let mut position = self.election.next().await;
        loop {
            let Position::Lead { token } = position else {
                if let Position::Follow { leader } = position {
                    leader.iter().for_each(|leader| {
                        tracing::info!(leader = leader.name, election = leader.token.0, "another controller leads");
                    });
                    shared.drive(|hub, _| hub.set_leader(leader.map(|leader| leader.name)));
                }
                position = self.election.next().await;
                continue;
            };
            let store = StateStore::new(self.client.clone(), self.settings.clone(), token);
            tokio::select! {
                (epoch, state) = begin(&self.client, &self.settings, token, &store) => {
                    self.store = Some(Rc::new(store));
                    return Elected { token, epoch, state };
                }
                next = self.election.next() => position = next,
            }
        }
    }

    /// Lets this controller lead until it is deposed. These addresses refuse changes while etcd does not confirm it.
    pub(crate) async fn keep(&mut self, shared: &Shared, addresses: &[Confirmed]) {
        loop {
            tokio::select! {
                position = self.election.next() => match position {
                    Position::Lead { token } => {
                        tracing::warn!(election = token.0, "etcd confirms again that this controller leads");
                        self.store.iter().for_each(|store| store.renew(token));
                        addresses.iter().for_each(|address| address.set(true));
                        shared.drive(|hub, now| {
                            hub.renew_lead(now, token.0);
                            note(hub, |leadership| (leadership.election, leadership.is_confirmed) = (token.0, true));
                        });
                    }
                    Position::Unconfirmed { token } => {
                        tracing::warn!(
                            election = token.0,
                            "etcd does not confirm that this controller leads; it goes on until a switch has a newer leader"
                        );
                        addresses.iter().for_each(|address| address.set(false));
                        shared.drive(|hub, _| {
                            hub.doubt();
                            note(hub, |leadership| leadership.is_confirmed = false);
                        });
                    }
                    Position::Follow { .. } => return,
                },
                () = shared.tasks.refused.notified() => self.election.refused_by_switch(),
            }
        }
    }

    /// Leaves the cluster, so that another controller leads at once.
    pub(crate) async fn stop(self) {
        self.election.stop().await;
    }
}

/// Notes a change for the API and the metrics.
fn note(hub: &mut Hub, change: impl FnOnce(&mut Leadership)) {
    hub.gauges.leadership.as_mut().map(change);
}

/// Takes the number of a start, and then the stored state, which no earlier leader can change any more. Tries until etcd
/// has given both.
async fn begin(client: &Client, settings: &Settings, token: Token, store: &StateStore) -> (u16, Option<Vec<u8>>) {
    loop {
        match try_begin(client, settings, token, store).await {
            Ok(Some(begun)) => return begun,
            Ok(None) => tracing::info!("the number of the start was not taken; trying again"),
            Err(problem) => tracing::warn!(?problem, "etcd gave no number and state for the start; trying again"),
        }
        sleep(TRIES_AGAIN_AFTER).await;
    }
}

async fn try_begin(
    client: &Client,
    settings: &Settings,
    token: Token,
    store: &StateStore,
) -> Result<Option<(u16, Option<Vec<u8>>)>, Failure> {
    let Some(epoch) = next_epoch(client, settings, token).await? else { return Ok(None) };
    Ok(Some((epoch, store.load().await?)))
}
