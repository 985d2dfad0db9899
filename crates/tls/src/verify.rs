//! Is this server the one that was looked for?
//!
//! ```text
//! chain -> an authority of ours, in its time -> its name: the node's, or the host's
//! ```
//!
//! rustls checks the names of hosts alone; a node is known by its URI, so this verifier stands in its place and leaves all
//! signatures to rustls.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use env::net::Address;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::peer::{Certificate, Peer};

/// Which server is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// The node of this name, wherever it is.
    Node(String),
    /// Any server that the cluster's authority vouches for at this name or address.
    Host(ServerName<'static>),
}

impl Expected {
    /// Any server with a certificate for the address; for a Unix socket, one for this machine.
    pub fn at(address: &Address) -> Expected {
        let ip = address.socket().map(|socket| socket.ip());
        let ip = ip.unwrap_or(Ipv4Addr::LOCALHOST.into());
        Expected::Host(ServerName::IpAddress(ip.into()))
    }

    /// What rustls wants to know as the server's name. A node has none that is sent: its certificate says which it is.
    pub fn name(&self) -> ServerName<'static> {
        match self {
            Expected::Host(name) => name.clone(),
            Expected::Node(_) => ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into()),
        }
    }
}

/// Checks one server.
#[derive(Debug)]
pub(crate) struct ServerCheck {
    pub roots: Arc<RootCertStore>,
    pub expected: Expected,
    pub provider: Arc<CryptoProvider>,
}

impl ServerCheck {
    /// Is the certificate, which is good, that of whom was looked for?
    fn is_expected(
        &self,
        parsed: &ParsedCertificate<'_>,
        shown: &CertificateDer<'_>,
    ) -> Result<(), Error> {
        match &self.expected {
            Expected::Host(name) => verify_server_name(parsed, name),
            Expected::Node(name) => {
                let peer = Certificate::read(shown)
                    .map(|it| it.peer)
                    .unwrap_or_default();
                match peer {
                    Peer::Node(shown) if shown == *name => Ok(()),
                    other => Err(Error::General(format!(
                        "it shows the certificate of {other}, and node {name} was looked for"
                    ))),
                }
            }
        }
    }
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        self.is_expected(&parsed, end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
