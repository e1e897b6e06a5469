//! mptcp: hosts run MPTCP, and every switch hashes the subflows over all shortest next hops.

use crate::defaults_only::DefaultsOnly;
use crate::registry::{Entry, EntryInfo, KeyInfo, Parts};
use pathloom_scheme::DefaultRoutes;
use pathloom_transport::mptcp::MptcpSettings;
use pathloom_transport::TransportSpec;

const NAME: &str = "mptcp";

/// What hosts with MPTCP can be told.
pub(crate) const HOST_KEYS: [KeyInfo; 4] = [
    ("subflows", "4", "subflows of a connection per pair of addresses, 1 to 64"),
    ("cc", "lia", "how their windows grow: lia or olia together, uncoupled or cubic each by itself"),
    ("manager", "ndiffports", "between which addresses they run: ndiffports the first two, fullmesh every pair"),
    ("scheduler", "lowest-rtt", "which subflow with room sends next: lowest-rtt or round-robin"),
];

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "ecmp under hosts that run MPTCP: each connection has several subflows",
        paper: "Raiciu et al. 2011; RFC 8684, RFC 6356; baseline of the OFPT and MPTCP-aware papers",
        keys: &HOST_KEYS,
    },
    read: |spec| {
        let settings = MptcpSettings::read(spec, MptcpSettings::default().tcp)?;
        let central = Parts::central(|_| Box::new(DefaultsOnly { name: NAME, routes: DefaultRoutes::Ecmp }));
        Ok(Parts { transport: TransportSpec::Mptcp(settings), ..central })
    },
};
