//! What the members of a cluster say about themselves in etcd: a key for each, which it sets every two seconds.

use super::client::Client;
use crate::config::{Authority, CheckedCluster, Leader, May};
use crate::drivers::session::Shared;
use crate::hub::gauges::{HandOver, MemberRow};
use pathloom_cluster::etcd::{Body, Failure, KeyValue, Keys, Operation, Request, Transaction};
use pathloom_cluster::format::FIRST;
use pathloom_cluster::{Position, Settings};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two of these keys.
const EVERY: Duration = Duration::from_secs(2);

/// What a member says about itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Card {
    /// Its API, as clients reach it.
    api: Option<String>,
    /// Its address for applications, as they reach it.
    paths: Option<String>,
    /// Its version.
    version: String,
    /// The newest format of keys that it knows.
    pub(super) format: u32,
    /// When it said this, in seconds since 1970 by its own clock.
    pub(super) at_s: f64,
}

impl Default for Card {
    /// What a card without any field says: it is of a version that knew only the first format.
    fn default() -> Card {
        Card { api: None, paths: None, version: String::new(), format: FIRST, at_s: 0.0 }
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What the keys of members begin with.
pub(super) fn members_prefix(settings: &Settings) -> String {
    format!("{}members/", settings.prefix)
}

/// The members, as this controller knows them.
pub(crate) struct Members {
    cluster: CheckedCluster,
    addresses: Vec<Authority>,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    position: Option<Position>,
    cards: Vec<(String, Card)>,
}

impl Members {
    /// No members yet. These addresses of clients are told what this controller may do.
    pub(crate) fn new(cluster: CheckedCluster, addresses: Vec<Authority>) -> Rc<Members> {
        let members = Members { cluster, addresses, known: RefCell::default() };
        members.tell();
        Rc::new(members)
    }

    /// This controller is this from now on.
    pub(super) fn set_position(&self, position: Position) {
        self.known.borrow_mut().position = Some(position);
        self.tell();
    }

    fn tell(&self) {
        let known = self.known.borrow();
        let may = match &known.position {
            Some(Position::Lead { .. }) => May::Everything,
            Some(Position::Unconfirmed { .. }) => May::Read,
            Some(Position::Follow { leader: Some(leader) }) => {
                let card = known.cards.iter().find(|(name, _)| *name == leader.name).map(|(_, card)| card);
                let (api, paths) = (card.and_then(|card| card.api.clone()), card.and_then(|card| card.paths.clone()));
                May::Follow(Some(Leader { name: leader.name.clone(), api, paths }))
            }
            Some(Position::Follow { leader: None }) | None => May::Follow(None),
        };
        self.addresses.iter().for_each(|address| address.set(may.clone()));
    }

    /// Says what this controller is, and reads the same of all others, until the end of the process.
    pub(super) async fn keep(self: Rc<Members>, client: Rc<Client>, shared: Shared) {
        loop {
            if let Ok(found) = self.exchange(&client).await {
                let known = cards(&members_prefix(&self.cluster.member), &found);
                let hand_over = found.iter().find(|one| one.key == hand_over_key(&self.cluster.member));
                let hand_over = hand_over.and_then(|one| serde_json::from_slice::<HandOver>(&one.value).ok());
                let row = |(name, card): &(String, Card)| MemberRow {
                    name: name.clone(),
                    api: card.api.clone(),
                    version: card.version.clone(),
                    said_s: card.at_s,
                };
                let rows = known.iter().map(row).collect();
                self.known.borrow_mut().cards = known;
                self.tell();
                shared.drive(|hub, now| {
                    if let Some(member) = &mut hub.gauges.member {
                        (member.members, member.etcd_answered) = (rows, Some(now));
                        member.hand_over = hand_over.or(member.hand_over.take());
                    }
                });
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn exchange(&self, client: &Client) -> Result<Vec<KeyValue>, Failure> {
        let CheckedCluster { api, paths, member, .. } = &self.cluster;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let card = Card { api: api.clone(), paths: paths.clone(), version, format: member.format, at_s: now_s() };
        let value = serde_json::to_vec(&card).map_err(|why| Failure::Other(why.to_string()))?;
        let key = format!("{}{}", members_prefix(member), member.name);
        let then = vec![
            Operation::Put { key, value, lease: None },
            Operation::Range(Keys::Prefix(members_prefix(member))),
            Operation::Range(Keys::One(hand_over_key(member))),
        ];
        let request = Request::Transact(Transaction { then, ..Transaction::default() });
        match client.ask(&request).await?.body {
            Body::Done { found, .. } => Ok(found.into_iter().flatten().collect()),
            _ => Err(Failure::Unanswered),
        }
    }
}

/// The names and cards among keys of etcd.
pub(super) fn cards(prefix: &str, found: &[KeyValue]) -> Vec<(String, Card)> {
    let card = |one: &KeyValue| {
        let name = one.key.strip_prefix(prefix)?;
        Some((name.to_owned(), serde_json::from_slice(&one.value).ok()?))
    };
    found.iter().filter_map(card).collect()
}

/// The key of the last hand-over.
pub(super) fn hand_over_key(settings: &Settings) -> String {
    format!("{}hand-over", settings.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cluster;
    use pathloom_cluster::Token;
    use std::path::Path;

    fn key(name: &str, value: &str) -> KeyValue {
        let (key, value) = (format!("/pathloom/members/{name}"), value.as_bytes().to_vec());
        KeyValue { key, value, create_revision: 1, mod_revision: 1, lease: None }
    }

    #[test]
    fn clients_are_told_where_the_leader_is() {
        let text = "endpoints = ['http://127.0.0.1:2379']\nname = 'c0'";
        let cluster = toml::from_str::<Cluster>(text).unwrap().check(Path::new("/")).unwrap();
        let address = Authority::default();
        let members = Members::new(cluster, vec![address.clone()]);
        assert_eq!(address.get(), May::Follow(None));
        // A member of a later version says more, and a damaged key says nothing.
        let found = [key("c1", r#"{"api": "http://10.0.0.2:6680", "more": 1}"#), key("c2", "?")];
        members.known.borrow_mut().cards = cards("/pathloom/members/", &found);
        assert_eq!(members.known.borrow().cards[0].1.format, FIRST);
        let leader = pathloom_cluster::Leader { name: "c1".into(), token: Token(7) };
        members.set_position(Position::Follow { leader: Some(leader) });
        let api = Some("http://10.0.0.2:6680".to_owned());
        assert_eq!(address.get(), May::Follow(Some(Leader { name: "c1".into(), api, paths: None })));
        members.set_position(Position::Lead { token: Token(9) });
        assert_eq!(address.get(), May::Everything);
        members.set_position(Position::Unconfirmed { token: Token(9) });
        assert_eq!(address.get(), May::Read);
    }
}
