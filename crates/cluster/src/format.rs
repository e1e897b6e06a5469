//! The format of the keys in etcd, for members of different versions.
//!
//! A version adds fields without a new format: others ignore them and keep them. It needs a new format only if earlier versions
//! could not use what it writes. Then it writes the format before, until all members know the new one, and the leader
//! says so in a key. A member that does not know the format of this key does not lead.

use crate::etcd::{Condition, KeyValue, Operation, Request, Transaction};
use crate::member::Settings;
use crate::position::Token;
use pathloom_model::Nanos;

/// The newest format that this version knows.
pub const FORMAT: u32 = 1;
/// The format of versions that wrote none.
pub const FIRST: u32 = 1;
/// Time after which a member that says nothing counts as removed.
pub const GONE_AFTER: Nanos = Nanos::from_secs(60);

/// The format that a key says; [`FIRST`] without a key, `None` if its value is no number.
pub fn of_key(key: Option<&KeyValue>) -> Option<u32> {
    key.map_or(Some(FIRST), |key| std::str::from_utf8(&key.value).ok()?.trim().parse().ok())
}

/// The newest format that this member knows and all others: when each has last said something, and which format it knows.
pub fn newest_for_all(own: u32, now: Nanos, others: impl Iterator<Item = (Nanos, u32)>) -> u32 {
    others.filter(|&(at, _)| now.saturating_sub(at) < GONE_AFTER).fold(own, |newest, (_, known)| newest.min(known))
}

/// The request by which the leader of an election says a format. Etcd refuses it from anybody else.
pub fn say(settings: &Settings, token: Token, format: u32) -> Request {
    let value = format.to_string().into_bytes();
    Request::Transact(Transaction {
        conditions: vec![Condition::Created { key: settings.leader_key(), at: token.0 }],
        then: vec![Operation::Put { key: settings.format_key(), value, lease: None }],
        otherwise: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_format_waits_for_all_members_that_run() {
        let newest = |others: &[(u64, u32)]| {
            let others = others.iter().map(|&(at_s, known)| (Nanos::from_secs(at_s), known));
            newest_for_all(3, Nanos::from_secs(1000), others)
        };
        assert_eq!(newest(&[(999, 3), (998, 3)]), 3);
        assert_eq!(newest(&[(999, 3), (998, 2)]), 2, "one of an earlier version runs");
        assert_eq!(newest(&[(999, 4), (900, 2)]), 3, "it was removed");
        assert_eq!(newest(&[(1030, 1)]), 1, "its clock is ahead");
    }

    #[test]
    fn a_key_without_a_number_says_no_format() {
        let key = |value: &str| {
            let (key, value) = ("/pathloom/format".to_owned(), value.as_bytes().to_vec());
            KeyValue { key, value, create_revision: 1, mod_revision: 1, lease: None }
        };
        assert_eq!((of_key(None), of_key(Some(&key("2\n"))), of_key(Some(&key("two")))), (Some(FIRST), Some(2), None));
    }
}
