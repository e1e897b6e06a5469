//! This controller among those of its fabric, from its start to its end.

use super::client::Client;
use super::election::Election;
use super::epoch::next_epoch;
use super::format::agree;
use super::hand_over::{note_lead, note_stop};
use super::members::Members;
use super::state::StateStore;
use crate::config::Authority;
use crate::config::CheckedCluster;
use crate::drivers::session::Shared;
use crate::hub::gauges::{Leadership, Membership as Row};
use crate::hub::Hub;
use pathloom_cluster::etcd::Failure;
use pathloom_cluster::{Position, Settings, Token};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Time between two tries to take the number of a start and the stored state.
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long a stop waits until etcd knows why the leader has gone.
const STOP: Duration = Duration::from_millis(300);

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
    members: Rc<Members>,
}

impl Membership {
    /// Starts the member, which follows. These addresses of clients are told what it may do.
    pub(crate) fn start(checked: &CheckedCluster, shared: &Shared, addresses: Vec<Authority>) -> Membership {
        let (client, settings) = (Rc::new(Client::new(checked.clone())), checked.member.clone());
        let election = Election::start(settings.clone(), client.clone(), shared.clock);
        let members = Members::new(checked.clone(), addresses);
        let row = Row { name: settings.name.clone(), ..Row::default() };
        shared.drive(|hub, _| hub.gauges.member = Some(row));
        // Its own connections, so that a slow answer delays no renewal.
        let own = Rc::new(Client::new(checked.clone()));
        tokio::task::spawn_local(members.clone().keep(own, shared.clone()));
        Membership { election, store: None, client, settings, members }
    }

    /// The stored state, once this controller has led.
    pub(crate) fn store(&self) -> Option<Rc<StateStore>> {
        self.store.clone()
    }

    /// Waits until this controller leads.
    pub(crate) async fn lead(&mut self, shared: &Shared) -> Elected {
        let mut position = self.election.next().await;
        loop {
            if matches!(position, Position::Follow { .. }) {
                self.members.set_position(position.clone());
            }
            let Position::Lead { token } = position else {
                if let Position::Follow { leader } = position {
                    leader.iter().for_each(|leader| {
                        tracing::info!(leader = leader.name, election = leader.token.0, "another controller leads");
                    });
                    shared.drive(|hub, _| follow(hub, leader.map(|leader| leader.name)));
                }
                position = self.election.next().await;
                continue;
            };
            let store = StateStore::new(self.client.clone(), self.settings.clone(), token);
            tokio::select! {
                (epoch, state) = begin(&self.client, &self.settings, token, &store) => {
                    self.store = Some(Rc::new(store));
                    self.note_lead(shared, token);
                    return Elected { token, epoch, state };
                }
                next = self.election.next() => position = next,
            }
        }
    }

    /// Notes in etcd that this controller leads, for operators. Nothing waits for it.
    fn note_lead(&self, shared: &Shared, token: Token) {
        let (client, settings, shared) = (self.client.clone(), self.settings.clone(), shared.clone());
        tokio::task::spawn_local(async move {
            match note_lead(&client, &settings, token).await {
                Ok(record) => {
                    tracing::info!(cause = record.cause, from = record.from, "the hand-over is noted in etcd");
                    shared.drive(|hub, _| hub.gauges.member.as_mut().map(|member| member.hand_over = Some(record)));
                }
                Err(problem) => tracing::warn!(?problem, "the hand-over is not noted in etcd"),
            }
        });
    }

    /// From now on, addresses answer everything.
    pub(crate) fn begin(&self, token: Token) {
        self.members.set_position(Position::Lead { token });
    }

    /// Lets this controller lead until it is deposed. Addresses refuse changes while etcd does not confirm it.
    pub(crate) async fn keep(&mut self, shared: &Shared) {
        loop {
            tokio::select! {
                position = self.election.next() => {
                  self.members.set_position(position.clone());
                  match position {
                    Position::Lead { token } => {
                        tracing::warn!(election = token.0, "etcd confirms again that this controller leads");
                        self.store.iter().for_each(|store| store.renew(token));
                        self.note_lead(shared, token);
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
                        shared.drive(|hub, _| {
                            hub.doubt();
                            note(hub, |leadership| leadership.is_confirmed = false);
                        });
                    }
                    Position::Follow { .. } => return,
                  }
                }
                () = shared.tasks.refused.notified() => self.election.refused_by_switch(),
            }
        }
    }

    /// Leaves the cluster, so that another controller leads at once.
    pub(crate) async fn stop(self) {
        if let Some(store) = &self.store {
            let noted = timeout(STOP, note_stop(&self.client, &self.settings, store.token())).await;
            if !matches!(noted, Ok(Ok(()))) {
                tracing::warn!(?noted, "etcd does not know that this controller was told to stop");
            }
        }
        self.election.stop().await;
    }
}

/// Notes which controller leads.
fn follow(hub: &mut Hub, leader: Option<String>) {
    hub.set_leader(leader.clone());
    if let Some(member) = &mut hub.gauges.member {
        member.follows = leader;
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
    agree(client, settings, token).await?;
    Ok(Some((epoch, store.load().await?)))
}
