//! An interface of a host: one of its ports, with its own address.

use pathloom_model::LinkId;

/// An interface, identified by the link that leads out of it. The link determines the host and the port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Interface(u32);

impl Interface {
    /// An interface that no host has.
    pub(crate) const NONE: Interface = Interface(u32::MAX);

    /// The interface that sends into `uplink`.
    #[inline(always)]
    pub(crate) fn of(uplink: LinkId) -> Interface {
        Interface(uplink.0)
    }

    /// The interface at the end of a link to a host.
    #[inline(always)]
    pub(crate) fn at_end_of(link: u32) -> Interface {
        Interface::of(LinkId(link).reverse())
    }

    /// The link that the interface sends into.
    #[inline(always)]
    pub(crate) fn uplink(self) -> LinkId {
        LinkId(self.0)
    }
}
