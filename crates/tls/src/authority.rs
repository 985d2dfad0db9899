//! The cluster's own authority: makes itself, and certificates of nodes and accounts.
//!
//! ```text
//! Authority::make -> certificate, key (PEM)         once, and again before it grows old: both are trusted for a while
//! Authority::issue(Subject) -> certificate, key     90 days
//! ```
//!
//! Decides nothing about files: `tanada cluster ca` keeps them.
//!
//! Choice: ECDSA over P-256, which browsers and every client take. Ed25519 where the lengths of messages must not vary
//! from run to run: its signatures always have 64 bytes.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::peer::{Certificate, Peer, Serial, account_id_uri, is_name};
use crate::pem::{TlsError, certificates};

/// Seconds of a day.
const DAY: u64 = 24 * 3600;
/// How long a certificate of a node or an account lasts.
pub const LEAF_DAYS: u64 = 90;
/// How long an authority lasts.
pub const AUTHORITY_DAYS: u64 = 10 * 365;
/// Clocks of other machines may be so far behind, in seconds.
const SKEW: u64 = 300;

/// Which keys are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// ECDSA over P-256.
    #[default]
    P256,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    fn make(self, whose: &str) -> Result<KeyPair, TlsError> {
        let algorithm = match self {
            KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        };
        KeyPair::generate_for(algorithm).map_err(|why| cannot(whose, why))
    }
}

/// Whose a certificate is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// A node or an account.
    pub peer: Peer,
    /// Which account of that name; without it the certificate opens nothing at an admin API.
    pub account_id: Option<u64>,
    /// Names and addresses at which clients from outside reach a node.
    pub hosts: Vec<String>,
}

/// A certificate that was made.
#[derive(Clone)]
pub struct Issued {
    /// PEM.
    pub certificate: String,
    /// PEM. A secret.
    pub key: String,
    /// What the certificate says.
    pub says: Certificate,
}

/// An authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    kind: KeyKind,
    /// PEM.
    pub certificate: String,
}

fn cannot(whose: &str, why: impl ToString) -> TlsError {
    TlsError::Make {
        whose: whose.to_owned(),
        why: why.to_string(),
    }
}

fn moment(whose: &str, second: u64) -> Result<OffsetDateTime, TlsError> {
    let second = i64::try_from(second).map_err(|why| cannot(whose, why))?;
    OffsetDateTime::from_unix_timestamp(second).map_err(|why| cannot(whose, why))
}

/// A number that no other certificate has: 127 random bits, the first of them set.
fn fresh_serial(random: [u8; 16]) -> SerialNumber {
    let mut bytes = random;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

impl Authority {
    /// Makes one, called `name`, good from the second `now` since 1970 on for `days`; `random` is used once. With it goes
    /// its key as PEM, a secret.
    ///
    /// # Errors
    /// [`TlsError::Make`].
    pub fn make(
        name: &str,
        kind: KeyKind,
        (now, days): (u64, u64),
        random: [u8; 16],
    ) -> Result<(Authority, String), TlsError> {
        let key = kind.make(name)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(fresh_serial(random));
        params.not_before = moment(name, now.saturating_sub(SKEW))?;
        params.not_after = moment(name, now + days * DAY)?;
        let made = params.self_signed(&key).map_err(|why| cannot(name, why))?;
        let text = key.serialize_pem();
        let authority = Authority {
            certificate: made.pem(),
            issuer: Issuer::new(params, key),
            kind,
        };
        Ok((authority, text))
    }

    /// One that was made: its certificate, the first of the text, and its key, both PEM.
    ///
    /// # Errors
    /// [`TlsError::Pem`], [`TlsError::Make`].
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, TlsError> {
        let what = "the authority's certificate";
        let first = certificates(what, certificate.as_bytes())?.swap_remove(0);
        let key = KeyPair::from_pem(key).map_err(|why| TlsError::Pem {
            what: "the authority's key",
            why: why.to_string(),
        })?;
        let kind = match key.is_compatible(&rcgen::PKCS_ED25519) {
            true => KeyKind::Ed25519,
            false => KeyKind::P256,
        };
        let first_of = first_pem(certificate);
        let issuer = Issuer::from_ca_cert_der(&first, key).map_err(|why| cannot("it", why))?;
        Ok(Authority {
            issuer,
            kind,
            certificate: first_of,
        })
    }

    /// Makes a certificate of `subject`, good from the second `now` since 1970 on for `days`; `random` is used once.
    ///
    /// # Errors
    /// [`TlsError::Make`]: a name that none can have, or a host that is neither a name nor an address.
    pub fn issue(
        &self,
        subject: &Subject,
        (now, days): (u64, u64),
        random: [u8; 16],
    ) -> Result<Issued, TlsError> {
        let whose = subject.peer.to_string();
        let name = match &subject.peer {
            Peer::Node(name) | Peer::Account(name) if is_name(name) => name,
            _ => {
                let why = "a name has letters, digits, '.', '_', '-' and '/', at most 128";
                return Err(cannot(&whose, why));
            }
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Peer::Node(_) = subject.peer {
            let server = ExtendedKeyUsagePurpose::ServerAuth;
            params.extended_key_usages.push(server);
        }
        params.serial_number = Some(fresh_serial(random));
        params.not_before = moment(&whose, now.saturating_sub(SKEW))?;
        params.not_after = moment(&whose, now + days * DAY)?;
        params.subject_alt_names = names(subject).map_err(|why| cannot(&whose, why))?;
        let key = self.kind.make(&whose)?;
        let made = params.signed_by(&key, &self.issuer);
        let made = made.map_err(|why| cannot(&whose, why))?;
        let says = Certificate::read(made.der()).ok_or_else(|| cannot(&whose, "it is none"))?;
        Ok(Issued {
            certificate: made.pem(),
            key: key.serialize_pem(),
            says,
        })
    }
}

/// The names that go into a certificate.
fn names(subject: &Subject) -> Result<Vec<SanType>, String> {
    let uri = subject.peer.uri().unwrap_or_default();
    let uri = uri.as_str().try_into();
    let mut names = vec![SanType::URI(uri.map_err(|_| "its name is not ASCII")?)];
    if let Some(id) = subject.account_id {
        let uri = account_id_uri(id);
        let uri = uri.as_str().try_into();
        names.push(SanType::URI(uri.map_err(|_| "its identity is not ASCII")?));
    }
    for host in &subject.hosts {
        names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => {
                let wrong = || format!("'{host}' is neither a host name nor an IP address");
                rustls::pki_types::DnsName::try_from(host.as_str()).map_err(|_| wrong())?;
                SanType::DnsName(host.as_str().try_into().map_err(|_| wrong())?)
            }
        });
    }
    Ok(names)
}

/// The first certificate of a text, by itself.
fn first_pem(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    match text.find(END) {
        Some(at) => format!("{}\n", text[..at + END.len()].trim_start()),
        None => text.to_owned(),
    }
}

/// The numbers of the certificates in a text, and what they say.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn read_all(what: &'static str, pem: &[u8]) -> Result<Vec<Certificate>, TlsError> {
    let read = |der: &CertificateDer<'_>| Certificate::read(der);
    let all: Option<Vec<Certificate>> = certificates(what, pem)?.iter().map(read).collect();
    all.ok_or_else(|| TlsError::Pem {
        what,
        why: "it holds something that is no certificate".to_owned(),
    })
}

/// The revoked numbers of a text: one a line, what stands behind it and behind `#` is for people.
///
/// # Errors
/// The first line that is none.
///
/// # Example
/// ```
/// let revoked = tls::authority::revoked("# stolen\n00a1 node n2\n\n").unwrap();
/// assert_eq!(revoked[0].as_str(), "a1");
/// assert!(tls::authority::revoked("n2\n").unwrap_err().contains("line 1"));
/// ```
pub fn revoked(text: &str) -> Result<Vec<Serial>, String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_whitespace().next() else {
            continue;
        };
        found.push(Serial::parse(word).ok_or_else(|| {
            let at = at + 1;
            format!("line {at}: '{word}' is no serial number; write its hexadecimal digits")
        })?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn an_authority_read_again_issues_what_it_did() {
        for kind in [KeyKind::P256, KeyKind::Ed25519] {
            let (first, key) = Authority::make("ca 1", kind, (NOW, 10), [1; 16]).unwrap();
            let bundle = format!("{}{}", first.certificate, "# an older one\n");
            let again = Authority::from_pem(&bundle, &key).unwrap();
            assert_eq!(again.certificate, first.certificate);
            assert_eq!(again.kind, kind);
            let subject = Subject {
                peer: Peer::Node("n1".into()),
                account_id: None,
                hosts: vec!["10.0.0.1".into(), "n1.example".into()],
            };
            let issued = again.issue(&subject, (NOW, LEAF_DAYS), [7; 16]).unwrap();
            assert_eq!(issued.says.peer, subject.peer);
            assert_eq!(issued.says.hosts, subject.hosts);
            assert_eq!(issued.says.not_after, NOW + 90 * DAY);
            assert_eq!(issued.says.not_before, NOW - SKEW);
            assert_eq!(
                issued.says.serial.as_str(),
                "47".to_owned() + &"07".repeat(15)
            );
        }
    }

    #[test]
    fn a_certificate_of_an_account_says_which_account_of_that_name_it_is() {
        let (ca, _) = Authority::make("ca", KeyKind::Ed25519, (NOW, 10), [1; 16]).unwrap();
        let issue = |peer: Peer, account_id| {
            let subject = Subject {
                peer,
                account_id,
                hosts: vec![],
            };
            ca.issue(&subject, (NOW, 1), [1; 16]).unwrap().says
        };
        let account = || Peer::Account("astro/a".into());
        let said = issue(account(), Some(u64::MAX - 1));
        assert_eq!(
            (said.peer, said.account_id),
            (account(), Some(u64::MAX - 1))
        );
        assert_eq!(issue(account(), None).account_id, None);
        // A node has none, whatever its certificate says.
        assert_eq!(issue(Peer::Node("n1".into()), Some(7)).account_id, None);
    }

    #[test]
    fn names_that_none_can_have_are_refused_in_words() {
        let (ca, _) = Authority::make("ca", KeyKind::Ed25519, (NOW, 10), [1; 16]).unwrap();
        let refusal = |peer: Peer, hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let subject = Subject {
                peer,
                account_id: None,
                hosts,
            };
            let issued = ca.issue(&subject, (NOW, 1), [1; 16]);
            issued.err().unwrap().to_string()
        };
        let why = refusal(Peer::Node("n 1".into()), &[]);
        assert!(why.contains("letters, digits"), "{why}");
        let why = refusal(Peer::Node("n1".into()), &["10.0.0.1:10881"]);
        assert!(why.contains("neither a host name nor"), "{why}");
        refusal(Peer::Unknown, &[]);
    }
}
