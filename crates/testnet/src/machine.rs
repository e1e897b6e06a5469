//! The controller, as the network drives it.

use pathloom_model::Nanos;

/// A controller without sockets: bytes come in and go out, with the time as an argument.
pub trait Machine {
    /// Identifier of a connection.
    type Id: Copy + Ord + std::fmt::Debug;

    /// A switch connects. `None`: the connection is refused.
    fn connect(&mut self, now: Nanos, peer: &str) -> Option<Self::Id>;

    /// A switch connects to the controller with this number, if the machine consists of several ones.
    fn connect_to(&mut self, now: Nanos, _controller: usize, peer: &str) -> Option<Self::Id> {
        self.connect(now, peer)
    }

    /// The agent of a host connects.
    fn connect_agent(&mut self, now: Nanos, peer: &str) -> Option<Self::Id>;

    /// The agent of a host connects to the controller with this number, if the machine consists of several ones.
    fn connect_agent_to(&mut self, now: Nanos, _controller: usize, peer: &str) -> Option<Self::Id> {
        self.connect_agent(now, peer)
    }

    /// A connection was closed by its peer, or it has broken.
    fn disconnect(&mut self, now: Nanos, id: Self::Id);

    /// Handles received bytes. Returns how many were used; the others are passed again with later ones.
    fn received(&mut self, now: Nanos, id: Self::Id, bytes: &[u8]) -> usize;

    /// Takes bytes to write to a peer, if there are any.
    fn poll_transmit(&mut self) -> Option<(Self::Id, Vec<u8>)>;

    /// A connection that the controller has ended, if there is one. Its last bytes were transmitted.
    fn poll_closed(&mut self) -> Option<Self::Id>;

    /// When to call [`Machine::timeout`].
    fn poll_timeout(&mut self) -> Option<Nanos>;

    /// The time has come.
    fn timeout(&mut self, now: Nanos);
}
