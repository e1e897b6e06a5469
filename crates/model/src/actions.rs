//! The actions of a rule. Short lists are stored without an allocation.

use crate::rules::RuleAction;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;

/// Largest number of actions that are stored in place. The rule of a flow sets or removes a tag, and sends the frame
/// out.
const INLINE: usize = 2;

/// What a rule does with a frame, in order. A controller that sets up paths mainly creates, moves and drops rules. So
/// the few actions that nearly all rules have are stored in place.
#[derive(Clone)]
pub struct Actions(Kept);

#[derive(Clone)]
enum Kept {
    Inline { count: u8, actions: [RuleAction; INLINE] },
    Boxed(Box<[RuleAction]>),
}

impl Actions {
    /// No action: the frame continues at the next table, or is dropped.
    pub const NONE: Actions = Actions(Kept::Inline { count: 0, actions: [RuleAction::PopTag; INLINE] });

    /// The actions in order.
    #[inline]
    pub fn as_slice(&self) -> &[RuleAction] {
        match &self.0 {
            Kept::Inline { count, actions } => &actions[..usize::from(*count).min(INLINE)],
            Kept::Boxed(actions) => actions,
        }
    }
}

impl Default for Actions {
    fn default() -> Actions {
        Actions::NONE
    }
}

impl Deref for Actions {
    type Target = [RuleAction];

    #[inline]
    fn deref(&self) -> &[RuleAction] {
        self.as_slice()
    }
}

impl From<&[RuleAction]> for Actions {
    #[inline]
    fn from(all: &[RuleAction]) -> Actions {
        if all.len() > INLINE {
            return Actions(Kept::Boxed(all.into()));
        }
        let mut actions = [RuleAction::PopTag; INLINE];
        actions[..all.len()].copy_from_slice(all);
        Actions(Kept::Inline { count: all.len() as u8, actions })
    }
}

impl<const N: usize> From<[RuleAction; N]> for Actions {
    #[inline]
    fn from(all: [RuleAction; N]) -> Actions {
        Actions::from(&all[..])
    }
}

impl From<Vec<RuleAction>> for Actions {
    fn from(all: Vec<RuleAction>) -> Actions {
        Actions::from(&all[..])
    }
}

impl FromIterator<RuleAction> for Actions {
    fn from_iter<I: IntoIterator<Item = RuleAction>>(all: I) -> Actions {
        all.into_iter().collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a Actions {
    type Item = &'a RuleAction;
    type IntoIter = std::slice::Iter<'a, RuleAction>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.as_slice().iter()
    }
}

impl PartialEq for Actions {
    #[inline]
    fn eq(&self, other: &Actions) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Actions {}

impl<const N: usize> PartialEq<[RuleAction; N]> for Actions {
    fn eq(&self, other: &[RuleAction; N]) -> bool {
        self.as_slice() == other
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Serialize for Actions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Actions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Actions, D::Error> {
        Vec::deserialize(deserializer).map(Actions::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortNo;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn actions_match_a_list(ports in prop::collection::vec(0..9u32, 0..6), others in prop::collection::vec(0..9u32, 0..6)) {
            let list = |ports: &[u32]| ports.iter().map(|&port| RuleAction::Output(PortNo(port))).collect::<Vec<_>>();
            let (some, more) = (list(&ports), list(&others));
            let actions = Actions::from(some.clone());
            prop_assert_eq!(actions.as_slice(), &some[..]);
            prop_assert_eq!(actions == Actions::from(more.clone()), some == more);
            prop_assert_eq!(&some.iter().copied().collect::<Actions>(), &actions);
            let text = serde_json::to_string(&actions).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&some).unwrap());
            prop_assert_eq!(serde_json::from_str::<Actions>(&text).unwrap(), actions);
        }
    }
}
