//! What the handler of one event may use.

use crate::agenda::Agenda;
use crate::network::Network;
use crate::tap::Tap;
use crate::time::Ps;

/// The time of an event, and what its handler may act on beside its own state.
pub(crate) struct Run<'a, T: Tap> {
    pub(crate) now: Ps,
    pub(crate) network: &'a mut Network<T>,
    pub(crate) agenda: &'a mut Agenda,
}
