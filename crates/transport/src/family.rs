//! Transports over IPv6.

use crate::headers::{is_ipv4, HEADER_BYTES, IPV6_MORE_BYTES};
use crate::settings::TransportSpec;

impl TransportSpec {
    /// Returns this transport over IPv6. Frames of TCP stay as long as they are, so their payload is [`IPV6_MORE_BYTES`] less, as
    /// with one MTU for both families. Packets of RoCE keep their payload and are longer. The header of Ultra Ethernet
    /// ([`crate::uec::HEADER_BYTES`]) is that of IPv6 already.
    #[must_use]
    pub fn over_ipv6(mut self) -> TransportSpec {
        let tcp = match &mut self {
            TransportSpec::Tcp(tcp) => tcp,
            TransportSpec::Mptcp(settings) => &mut settings.tcp,
            TransportSpec::Streams(settings) => &mut settings.tcp,
            TransportSpec::Roce(settings) => {
                settings.common.header_bytes = HEADER_BYTES + IPV6_MORE_BYTES;
                return self;
            }
            TransportSpec::Uec(_) => return self,
        };
        if is_ipv4(&tcp.header_bytes) {
            tcp.header_bytes = HEADER_BYTES + IPV6_MORE_BYTES;
            tcp.mss_bytes = tcp.mss_bytes.saturating_sub(IPV6_MORE_BYTES).max(1);
        }
        self
    }
}
