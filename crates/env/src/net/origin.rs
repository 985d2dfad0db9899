//! Who is at the other end of a stream, as far as limits of one client go?

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where the other end of a stream is, as far as limits of one client go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A host, by TCP; its addresses count as one ([`host_of`]).
    Host(IpAddr),
    /// A process of this user, by a Unix socket.
    User(u32),
    /// The system does not tell.
    Unknown,
}

impl Origin {
    /// The host that has `address`.
    pub fn of(address: IpAddr) -> Origin {
        Origin::Host(host_of(address))
    }
}

/// One address for all that one host may take for itself: any of loopback is 127.0.0.1, and an IPv6 address is the first of its
/// /64, which is what one host or link is given.
///
/// # Example
/// ```
/// let host = |text: &str| env::net::host_of(text.parse().unwrap()).to_string();
/// assert_eq!(host("127.4.5.6"), "127.0.0.1");
/// assert_eq!(host("2001:db8:1:2:a:b:c:d"), "2001:db8:1:2::");
/// assert_eq!(host("::ffff:10.0.0.7"), "10.0.0.7");
/// ```
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_that_one_host_can_take_count_as_one() {
        let same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| Origin::of(text.parse().unwrap()));
            one == other
        };
        assert!(same("127.0.0.1", "127.255.0.9"));
        assert!(same("127.0.0.1", "::1"));
        assert!(same("::ffff:127.0.0.3", "127.0.0.1"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
