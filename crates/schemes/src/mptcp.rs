//! mptcp: hosts run MPTCP, and every switch hashes the subflows over all shortest next hops.

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use pathloom_scheme::DefaultRoutes;
use pathloom_transport::mptcp::MptcpSettings;
use pathloom_transport::TransportSpec;

const NAME: &str = "mptcp";

/// The keys for hosts with MPTCP.
pub(crate) const HOST_KEYS: [KeyInfo; 4] = [
    ("subflows", "4", "subflows of a connection per pair of addresses, 1 to 64"),
    ("cc", "lia", "congestion control: lia or olia (coupled), or uncoupled or cubic (each subflow alone)"),
    ("manager", "ndiffports", "addresses of the subflows: ndiffports (the first pair) or fullmesh (every pair)"),
    ("scheduler", "lowest-rtt", "which subflow with room sends next: lowest-rtt or round-robin"),
];

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "ecmp, with hosts that run MPTCP: each connection has several subflows",
        paper: "Raiciu et al. 2011; RFC 8684, RFC 6356; baseline of the OFPT and MPTCP-aware papers",
        keys: &HOST_KEYS,
    },
    read: |spec| {
        let settings = MptcpSettings::read(spec, MptcpSettings::default().tcp)?;
        let central = Parts::central(|_| Box::new(DefaultsOnly::by_flow(NAME, DefaultRoutes::Ecmp)));
        Ok(Parts { transport: TransportSpec::Mptcp(settings), ..central })
    },
};
