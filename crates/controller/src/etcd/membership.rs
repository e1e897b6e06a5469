//! This controller among those of its fabric, from its start to its end.

use super::client::Client;
use super::election::Election;
use super::epoch::next_epoch;
use super::settings::CheckedCluster;
use crate::clock::Clock;
use crate::session::Shared;
use pathloom_cluster::{Position, Settings, Token};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Time between two tries to take the number of a start.
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A member of a cluster.
pub(crate) struct Membership {
    election: Election,
    client: Rc<Client>,
    settings: Settings,
}

impl Membership {
    /// Starts the member, which follows.
    pub(crate) fn start(checked: &CheckedCluster, clock: Clock) -> Membership {
        let (client, settings) = (Rc::new(Client::new(checked.clone())), checked.member.clone());
        let election = Election::start(settings.clone(), client.clone(), clock);
        Membership { election, client, settings }
    }

    /// Waits until this controller leads. Returns the number of its election and that of its start.
    pub(crate) async fn lead(&mut self) -> (Token, u16) {
        let mut position = self.election.next().await;
        loop {
            let Position::Lead { token } = position else {
                if let Position::Follow { leader: Some(leader) } = position {
                    tracing::info!(leader = leader.name, election = leader.token.0, "another controller leads");
                }
                position = self.election.next().await;
                continue;
            };
            tokio::select! {
                epoch = take_epoch(&self.client, &self.settings, token) => return (token, epoch),
                next = self.election.next() => position = next,
            }
        }
    }

    /// Lets this controller lead until it is deposed.
    pub(crate) async fn keep(&mut self, shared: &Shared) {
        loop {
            tokio::select! {
                position = self.election.next() => match position {
                    Position::Lead { token } => {
                        tracing::warn!(election = token.0, "etcd confirms again that this controller leads");
                        shared.drive(|hub, now| hub.renew_lead(now, token.0));
                    }
                    Position::Unconfirmed { token } => tracing::warn!(
                        election = token.0,
                        "etcd does not confirm that this controller leads; it goes on until a switch has a newer leader"
                    ),
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

/// Takes the number of a start. Tries until it has one.
async fn take_epoch(client: &Client, settings: &Settings, token: Token) -> u16 {
    loop {
        match next_epoch(client, settings, token).await {
            Ok(Some(epoch)) => return epoch,
            Ok(None) => tracing::info!("the number of the start was not taken; trying again"),
            Err(problem) => tracing::warn!(?problem, "etcd gave no number for the start; trying again"),
        }
        sleep(TRIES_AGAIN_AFTER).await;
    }
}
