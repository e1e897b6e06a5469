//! Addresses of hosts: IPv4 or IPv6.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// First 96 bits of an IPv4-mapped address (RFC 4291 §2.5.5.2).
const MAPPED: u128 = 0xffff << 32;

/// An IPv4 or IPv6 address in 16 bytes.
///
/// IPv4 has its IPv4-mapped form (RFC 4291 §2.5.5.2). So `::ffff:10.0.0.1` and `10.0.0.1` are one address, and the text of both
/// is `10.0.0.1`. IPv4 addresses are ordered as numbers. In text and in JSON, an address is written as by [`IpAddr`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address([u8; 16]);

impl Address {
    /// The address 0.0.0.0.
    pub const UNSPECIFIED: Address = Address::new(0, 0, 0, 0);

    /// Returns the IPv4 address `a.b.c.d`.
    pub const fn new(a: u8, b: u8, c: u8, d: u8) -> Address {
        Address::of_number(u32::from_be_bytes([a, b, c, d]))
    }

    const fn of_number(number: u32) -> Address {
        Address((MAPPED | number as u128).to_be_bytes())
    }

    /// Returns the address with this number of 128 bits; for IPv4, that of its mapped form.
    pub const fn from_bits(number: u128) -> Address {
        Address(number.to_be_bytes())
    }

    /// Returns the number of 128 bits; for IPv4, that of the mapped form.
    #[inline]
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Whether this is an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.to_bits() >> 32 == MAPPED >> 32
    }

    /// Returns the IPv4 address; `None` for IPv6.
    #[inline]
    pub const fn v4(self) -> Option<Ipv4Addr> {
        if self.is_v4() {
            Some(Ipv4Addr::from_bits(self.low()))
        } else {
            None
        }
    }

    /// Whether this is 0.0.0.0 or `::`, which stands for no address.
    pub const fn is_unspecified(self) -> bool {
        self.to_bits() == MAPPED || self.to_bits() == 0
    }

    /// Returns the last 32 bits: all of an IPv4 address. In a fabric, they differ between any two hosts, also with IPv6.
    #[inline]
    pub const fn low(self) -> u32 {
        self.to_bits() as u32
    }

    /// Returns the address with these last 32 bits in place of its own.
    #[must_use]
    pub const fn with_low(self, low: u32) -> Address {
        Address::from_bits(self.to_bits() >> 32 << 32 | low as u128)
    }

    /// Number of bits of an address of this family: 32 or 128.
    #[inline]
    pub const fn bits(self) -> u8 {
        if self.is_v4() {
            32
        } else {
            128
        }
    }

    /// Returns the address as the standard library has it.
    pub const fn ip(self) -> IpAddr {
        match self.v4() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(Ipv6Addr::from_bits(self.to_bits())),
        }
    }
}

/// As the family alone does: 32 bits of IPv4, or 128 of IPv6.
impl Hash for Address {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bits = self.to_bits();
        if self.is_v4() {
            state.write_u32(bits as u32);
        } else {
            state.write_u64((bits >> 64) as u64);
            state.write_u64(bits as u64);
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Address {
        Address::of_number(address.to_bits())
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Address {
        Address(address.octets())
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Address {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<[u8; 4]> for Address {
    fn from(octets: [u8; 4]) -> Address {
        Address::of_number(u32::from_be_bytes(octets))
    }
}

impl From<u32> for Address {
    fn from(number: u32) -> Address {
        Address::of_number(number)
    }
}

impl PartialEq<Ipv4Addr> for Address {
    fn eq(&self, other: &Ipv4Addr) -> bool {
        *self == Address::from(*other)
    }
}

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Address, Self::Err> {
        text.parse::<IpAddr>().map(Address::from)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.ip(), f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| {
            serde::de::Error::custom(format!(
                "`{text}` is no address; expected IPv4 or IPv6, such as 10.0.0.1 or fd00::1"
            ))
        })
    }
}

/// An address prefix, such as `10.0.3.0/24` or `fd00::/64`. It contains addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Prefix {
    /// First address; the bits after the first `len` are zero.
    pub address: Address,
    /// Number of leading bits in the prefix, 0..=32 of IPv4 or 0..=128 of IPv6.
    pub len: u8,
}

impl Prefix {
    /// Every IPv4 address.
    pub const ALL_V4: Prefix = Prefix { address: Address::UNSPECIFIED, len: 0 };

    /// Returns the prefix of `len` bits that contains `address`.
    pub fn new(address: Address, len: u8) -> Prefix {
        Prefix { address: Address::from_bits(address.to_bits() & Prefix::mask(address, len)), len }
    }

    /// Returns the prefix of a single address.
    pub fn host(address: Address) -> Prefix {
        Prefix { address, len: address.bits() }
    }

    /// Number of bits after the prefix.
    pub fn host_bits(&self) -> u8 {
        self.address.bits().saturating_sub(self.len)
    }

    /// Whether the prefix contains a single address.
    pub fn is_host(&self) -> bool {
        self.host_bits() == 0
    }

    /// Returns the only address of the prefix; `None` if it contains several.
    pub fn only(self) -> Option<Address> {
        self.is_host().then_some(self.address)
    }

    /// Whether the prefix contains `address`.
    pub fn contains(&self, address: Address) -> bool {
        self.address.is_v4() == address.is_v4()
            && (address.to_bits() ^ self.address.to_bits()) & Prefix::mask(self.address, self.len) == 0
    }

    /// The bits that a prefix of this length shares; for IPv4, also those that tell the family.
    fn mask(address: Address, len: u8) -> u128 {
        let free = u32::from(address.bits()).saturating_sub(u32::from(len));
        u128::MAX.checked_shl(free).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_address() -> impl Strategy<Value = Address> {
        prop_oneof![
            any::<u32>().prop_map(Address::from),
            any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into())
        ]
    }

    fn hash(address: Address) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        address.hash(&mut hasher);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn an_address_survives_text_and_json(address in any_address()) {
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(&json, &format!("\"{address}\""));
            prop_assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
            prop_assert_eq!(Address::from(address.ip()), address);
            prop_assert_eq!(Address::from_bits(address.to_bits()), address);
        }

        #[test]
        fn ipv4_is_as_in_the_standard_library(a in any::<u32>(), b in any::<u32>()) {
            let [v4_a, v4_b] = [a, b].map(Ipv4Addr::from);
            let [x, y] = [a, b].map(Address::from);
            prop_assert_eq!(x.cmp(&y), v4_a.cmp(&v4_b));
            prop_assert_eq!(x.v4(), Some(v4_a));
            prop_assert_eq!((x.bits(), x.low()), (32, a));
            prop_assert_eq!(serde_json::to_string(&x).unwrap(), serde_json::to_string(&v4_a).unwrap());
            prop_assert_eq!(Address::from(v4_a.to_ipv6_mapped()), x);
        }

        #[test]
        fn a_prefix_contains_what_shares_its_first_bits(address in any_address(), len in 0..=128u8, other in any_address()) {
            let len = len.min(address.bits());
            let prefix = Prefix::new(address, len);
            prop_assert!(prefix.contains(address));
            prop_assert_eq!(prefix.contains(prefix.address), true);
            prop_assert_eq!(Prefix::new(prefix.address, len), prefix);
            prop_assert_eq!(prefix.only(), (len == address.bits()).then_some(address));
            let skip = 128 - address.bits();
            let shared = (address.to_bits() ^ other.to_bits()).leading_zeros() as u8;
            prop_assert_eq!(prefix.contains(other), address.bits() == other.bits() && shared >= skip + len);
            let read: Prefix = serde_json::from_str(&serde_json::to_string(&prefix).unwrap()).unwrap();
            prop_assert_eq!(read, prefix);
        }

        #[test]
        fn equal_addresses_have_equal_hashes_and_others_seldom(a in any_address(), b in any_address()) {
            prop_assert_eq!(a == b, hash(a) == hash(b));
        }
    }

    #[test]
    fn each_prefix_is_of_one_family() {
        let v6: Address = "fd00::1".parse().unwrap();
        assert!(Prefix::ALL_V4.contains([255, 0, 0, 1].into()) && !Prefix::ALL_V4.contains(v6));
        let all_v6 = Prefix::new(v6, 0);
        assert!(all_v6.contains(v6) && !all_v6.contains([10, 0, 0, 1].into()));
        assert_eq!((Prefix::host(v6).len, Prefix::host(v6).host_bits(), Prefix::new(v6, 64).host_bits()), (128, 0, 64));
        assert_eq!(Prefix::new(v6, 64).address.to_string(), "fd00::");
    }

    #[test]
    fn text_that_is_no_address_is_refused_with_an_example() {
        let problem = serde_json::from_str::<Address>("\"10.0.0\"").unwrap_err().to_string();
        assert!(problem.contains("`10.0.0` is no address; expected IPv4 or IPv6"), "{problem}");
        assert_eq!(size_of::<Address>(), 16);
        assert!(Address::UNSPECIFIED.is_unspecified() && "::".parse::<Address>().unwrap().is_unspecified());
        assert!(!Address::new(0, 0, 0, 1).is_unspecified());
    }
}
