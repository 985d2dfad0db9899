//! Who is at the other end of a stream, as far as limits of one client go?

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where the other end of a stream is, as far as limits of one client go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A host, by TCP; its addresses count as one ([`host_of`]).
    Host(IpAddr),
    /// A process of this user, by a Unix socket.
    User(u32),
    /// The system does not say.
    Unknown,
}

impl Origin {
    /// The host that has `address`.
    pub fn of(address: IpAddr) -> Origin {
        Origin::Host(host_of(address))
    }
}

/// IPv4 hosts behind a translator, one address each (RFC 6052, 2.1): the first 96 bits.
const TRANSLATED: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// One address for all that one host may take for itself: any of loopback is 127.0.0.1, and an IPv6 address is the first of its
/// /64, which is what one host or link is given. In 64:ff9b::/96 each address is a host
/// of its own.
///
/// # Example
/// ```
/// let host = |text: &str| env::net::host_of(text.parse().unwrap()).to_string();
/// assert_eq!(host("127.4.5.6"), "127.0.0.1");
/// assert_eq!(host("2001:db8:1:2:a:b:c:d"), "2001:db8:1:2::");
/// assert_eq!(host("::ffff:10.0.0.7"), "10.0.0.7");
/// assert_eq!(host("64:ff9b::10.0.0.7"), "64:ff9b::a00:7");
/// ```
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if is_translated(address) => IpAddr::V6(address),
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        address => address,
    }
}

fn is_translated(address: Ipv6Addr) -> bool {
    (address.to_bits() ^ TRANSLATED.to_bits()) >> 32 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_that_one_host_can_take_count_as_one() {
        #[rustfmt::skip]
        let table = [
            ("127.0.0.1",          "127.255.0.9",          true),
            ("127.0.0.1",          "::1",                  true),
            ("::ffff:127.0.0.3",   "127.0.0.1",            true),
            ("2001:db8::1",        "2001:db8::ffff:1",     true),
            ("2001:db8::1",        "2001:db8:0:1::1",      false),
            ("::ffff:10.0.0.1",    "10.0.0.1",             true),
            ("10.0.0.1",           "10.0.0.2",             false),
            // A neighbour of the link can give itself all of them.
            ("fe80::1",            "fe80::2",              true),
            ("fe80::a:b:c:d",      "fe80::1:b:c:d",        true),
            // IPv4 hosts behind a translator.
            ("64:ff9b::10.0.0.1",  "64:ff9b::10.0.0.1",    true),
            ("64:ff9b::10.0.0.1",  "64:ff9b::10.0.0.2",    false),
            // Just beside 64:ff9b::/96.
            ("64:ff9b::1:0:1",     "64:ff9b::1:0:2",       true),
            ("64:ff9b:1::1",       "64:ff9b:1::2",         true),
        ];
        for (one, other, same) in table {
            let [first, second] = [one, other].map(|text| Origin::of(text.parse().unwrap()));
            assert_eq!(first == second, same, "{one} and {other}");
        }
    }
}
