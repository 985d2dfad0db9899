//! A certificate as Tanada reads it: whose it is, its number, and how long it lasts.
//!
//! ```text
//! DER -> serial number | URI of the subjectAltName: tanada:node:NAME, tanada:account:NAME | not before, not after
//!                      | beside that of an account: tanada:account-id:HEX, which account of that name it is
//! ```
//!
//! Pure. Whether an authority signed it is looked at before: this only reads.
//!
//! Always true: a certificate with two of our names, or a name that is none, is that of no one we know.

use std::fmt;
use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// What the URI of a node begins with.
const NODE: &str = "tanada:node:";
/// And that of an account.
const ACCOUNT: &str = "tanada:account:";
/// And that of an account's identity, by which it is told from a later one of the same name.
const ACCOUNT_ID: &str = "tanada:account-id:";
/// The longest name.
const NAME_MAX: usize = 128;
/// The longest serial number in bytes (RFC 5280, 4.1.2.2), with a sign.
const SERIAL_MAX: usize = 21;

/// Who is at the other end of a connection, as far as a certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Peer {
    /// A node of the cluster.
    Node(String),
    /// An account: the identity of a user or program.
    Account(String),
    /// It showed no certificate, or none with a name of ours.
    #[default]
    Unknown,
}

impl Peer {
    /// The URI that says so in a certificate.
    pub fn uri(&self) -> Option<String> {
        match self {
            Peer::Node(name) => Some(format!("{NODE}{name}")),
            Peer::Account(name) => Some(format!("{ACCOUNT}{name}")),
            Peer::Unknown => None,
        }
    }

    fn of_uri(uri: &str) -> Option<Peer> {
        let (peer, name) = match (uri.strip_prefix(NODE), uri.strip_prefix(ACCOUNT)) {
            (Some(name), _) => (Peer::Node(name.to_owned()), name),
            (_, Some(name)) => (Peer::Account(name.to_owned()), name),
            _ => return None,
        };
        Some(match is_name(name) {
            true => peer,
            false => Peer::Unknown,
        })
    }
}

/// The URI of an account's identity.
pub(crate) fn account_id_uri(id: u64) -> String {
    format!("{ACCOUNT_ID}{id:016x}")
}

/// The identity that a URI is of.
fn account_id_of(uri: &str) -> Option<u64> {
    let digits = uri.strip_prefix(ACCOUNT_ID)?;
    let good = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    good.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Can a node or an account be called so?
pub(crate) fn is_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"._-/".contains(&c);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(good)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Node(name) => write!(f, "node {name}"),
            Peer::Account(name) => write!(f, "account {name}"),
            Peer::Unknown => f.write_str("a client without a certificate of the cluster"),
        }
    }
}

/// The number of a certificate, as lower-case hexadecimal digits without zeroes in front.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(String);

impl Serial {
    /// From the bytes of a certificate.
    fn of_bytes(bytes: &[u8]) -> Serial {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Serial(hex.trim_start_matches('0').to_owned())
    }

    /// From what was written; `None` if it is no serial number.
    ///
    /// # Example
    /// ```
    /// use tls::Serial;
    /// assert_eq!(Serial::parse("00A1B2").unwrap().as_str(), "a1b2");
    /// assert_eq!(Serial::parse("node n1"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Serial> {
        let digits = text.trim().to_ascii_lowercase();
        let digits = digits.trim_start_matches('0');
        let good = (1..=2 * SERIAL_MAX).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        good.then(|| Serial(digits.to_owned()))
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is.
    pub peer: Peer,
    /// Of an account: which one of that name. `None` if it does not say, or says two.
    pub account_id: Option<u64>,
    /// Names and addresses of hosts in it.
    pub hosts: Vec<String>,
    /// Its number.
    pub serial: Serial,
    /// Its first second since 1970.
    pub not_before: u64,
    /// Its last.
    pub not_after: u64,
}

impl Certificate {
    /// Reads one; `None` if that is no certificate.
    pub fn read(der: &CertificateDer<'_>) -> Option<Certificate> {
        let (_, read) = X509Certificate::from_der(der).ok()?;
        let names = read.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let (mut ours, mut ids, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match name {
                GeneralName::URI(uri) => {
                    ours.extend(Peer::of_uri(uri));
                    ids.extend(account_id_of(uri));
                }
                GeneralName::DNSName(name) => hosts.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(address(bytes)),
                _ => {}
            }
        }
        let peer = match <[Peer; 1]>::try_from(ours) {
            Ok([peer]) => peer,
            Err(_) => Peer::Unknown,
        };
        let account_id = match (&peer, &*ids) {
            (Peer::Account(_), [id]) => Some(*id),
            _ => None,
        };
        let bytes = read.raw_serial();
        if bytes.len() > SERIAL_MAX {
            return None;
        }
        let second = |at: i64| u64::try_from(at).unwrap_or(0);
        Some(Certificate {
            peer,
            account_id,
            hosts,
            serial: Serial::of_bytes(bytes),
            not_before: second(read.validity().not_before.timestamp()),
            not_after: second(read.validity().not_after.timestamp()),
        })
    }
}

/// The address that 4 or 16 bytes are.
fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_a_node_an_account_or_says_nothing() {
        for (uri, peer) in [
            ("tanada:node:n1", Some(Peer::Node("n1".into()))),
            ("tanada:account:a/b", Some(Peer::Account("a/b".into()))),
            ("https://example.org/", None),
            ("tanada:node:", Some(Peer::Unknown)),
            ("tanada:node:n 1", Some(Peer::Unknown)),
            ("tanada:account:\u{e9}", Some(Peer::Unknown)),
        ] {
            assert_eq!(Peer::of_uri(uri), peer, "{uri}");
        }
        let long = format!("tanada:node:{}", "x".repeat(NAME_MAX + 1));
        assert_eq!(Peer::of_uri(&long), Some(Peer::Unknown));
    }

    #[test]
    fn an_identity_is_sixteen_digits_and_no_name() {
        let uri = account_id_uri(0xab);
        assert_eq!(uri, "tanada:account-id:00000000000000ab");
        assert_eq!(
            (account_id_of(&uri), Peer::of_uri(&uri)),
            (Some(0xab), None)
        );
        for wrong in [
            "",
            "ab",
            "00000000000000zz",
            "+0000000000000ab",
            "00000000000000abc",
        ] {
            assert_eq!(
                account_id_of(&format!("{ACCOUNT_ID}{wrong}")),
                None,
                "{wrong}"
            );
        }
    }

    #[test]
    fn serial_numbers_are_one_however_they_are_written() {
        assert_eq!(Serial::of_bytes(&[0, 0xab, 1]).as_str(), "ab01");
        assert_eq!(
            Serial::parse("AB01\n"),
            Some(Serial::of_bytes(&[0, 0xab, 1]))
        );
        for none in ["", "0", "xyz", &"1".repeat(43)] {
            assert_eq!(Serial::parse(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_not_read() {
        for bytes in [&b""[..], b"junk", &[0x30, 0x82, 0xff, 0xff], &[0x30; 4096]] {
            assert_eq!(Certificate::read(&CertificateDer::from(bytes)), None);
        }
    }
}
