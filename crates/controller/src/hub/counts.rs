//! Counters of the hub, for `/metrics`.

/// Counters of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HubCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Sessions established.
    pub sessions: u64,
    /// Messages read.
    pub messages: u64,
    /// Packet-ins refused because their port sent too many.
    pub limited: u64,
    /// Connections closed because of what their peer sent.
    pub offences: u64,
    /// Connections refused, or closed before they sent their datapath identifier, because places were needed.
    pub crowded: u64,
    /// TLS handshakes that failed, took too long or exceeded the limit.
    pub handshakes: u64,
    /// Rules for control traffic that somebody else had deleted and that were restored.
    pub punts_restored: u64,
    /// Number of times that foreign rules were deleted.
    pub foreign_removed: u64,
    /// Errors that switches sent.
    pub errors: u64,
}
