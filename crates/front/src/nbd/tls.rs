//! Who may listen in: certificates, keys, and whether TLS is offered or required.
//!
//! The keys come as PEM, from files or from memory; what is wrong with them is said at once, when the
//! configuration is read, not when the first client comes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
pub use tls::TlsError;
use tls::pem::{certificates, file, key, provider, roots};

/// May a client go on in the clear?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// TLS for those who ask for it.
    Offered,
    /// Nothing is said or done before TLS.
    Required,
}

/// Which exports the clients of each certificate may use: names of exports by a name in the certificate (a DNS name
/// of its `subjectAltName`); `*` stands for every export.
pub type ByCertificate = BTreeMap<String, Vec<String>>;

/// A server's side of TLS: its certificate and key, and whom it trusts.
#[derive(Clone)]
pub struct Tls {
    pub(super) mode: TlsMode,
    pub(super) config: Arc<ServerConfig>,
    /// `None`: a trusted client may use every export.
    clients: Option<Arc<ByCertificate>>,
}

/// Which exports one client may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Every one.
    #[default]
    All,
    /// Those of these names; the others are not there for it.
    Only(Vec<String>),
}

impl Allowed {
    pub(super) fn has(&self, export: &str) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Only(names) => names.iter().any(|name| name == export || name == "*"),
        }
    }
}

/// A client's side of TLS: whom it trusts, and its own certificate if it has one.
#[derive(Clone)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server: ServerName<'static>,
}

impl Tls {
    /// From PEM texts: the certificate chain, its key, and the authority clients' certificates must come
    /// from (`None`: any client may connect).
    ///
    /// # Errors
    /// [`TlsError`] if a text is not PEM or the parts do not fit together.
    pub fn from_pem(
        mode: TlsMode,
        certificate: &[u8],
        private_key: &[u8],
        client_authority: Option<&[u8]>,
    ) -> Result<Tls, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots("the client authority", pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|why| TlsError::Authority(why.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates("the certificate", certificate)?;
        let mut config = builder.with_single_cert(chain, key(private_key)?)?;
        // No session is resumed: each connection shows its certificate anew, and one that is over is refused.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Tls {
            mode,
            config: Arc::new(config),
            clients: None,
        })
    }

    /// Lets clients use only the exports that `clients` names for a name in their certificate. TLS is required then.
    #[must_use]
    pub fn with_clients(mut self, clients: ByCertificate) -> Tls {
        self.mode = TlsMode::Required;
        self.clients = Some(Arc::new(clients));
        self
    }

    /// What a client may use that showed `certificates`, its own first.
    pub(super) fn allowed(&self, certificates: Option<&[CertificateDer<'_>]>) -> Allowed {
        let Some(clients) = &self.clients else {
            return Allowed::All;
        };
        let own = certificates.and_then(<[_]>::first);
        // The handshake has looked at it already; what cannot be read opens nothing.
        let own = own.and_then(|own| webpki::EndEntityCert::try_from(own).ok());
        let mut names = Vec::new();
        for name in own.iter().flat_map(|own| own.valid_dns_names()) {
            names.extend(clients.get(name).into_iter().flatten().cloned());
        }
        Allowed::Only(names)
    }

    /// From PEM files; see [`Tls::from_pem`].
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_files(
        mode: TlsMode,
        certificate: &Path,
        private_key: &Path,
        client_authority: Option<&Path>,
    ) -> Result<Tls, TlsError> {
        let authority = client_authority.map(file).transpose()?;
        Tls::from_pem(
            mode,
            &file(certificate)?,
            &file(private_key)?,
            authority.as_deref(),
        )
    }
}

impl ClientTls {
    /// From PEM texts: the authority the server's certificate must come from, the name it must carry,
    /// and our own certificate and key if the server asks for one.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem(
        server: &str,
        authority: &[u8],
        own: Option<(&[u8], &[u8])>,
    ) -> Result<ClientTls, TlsError> {
        let name = ServerName::try_from(server.to_owned())
            .map_err(|_| TlsError::Name(server.to_owned()))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots("the server's authority", authority)?);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, private_key)) => builder.with_client_auth_cert(
                certificates("the client's certificate", certificate)?,
                key(private_key)?,
            )?,
        };
        Ok(ClientTls {
            config: Arc::new(config),
            server: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_certificate_is_refused_in_words() {
        let refusal = |certificate: &[u8], key: &[u8]| {
            Tls::from_pem(TlsMode::Offered, certificate, key, None)
                .err()
                .map(|e| e.to_string())
        };
        let why = refusal(b"junk", b"junk").unwrap_or_default();
        assert_eq!(
            why,
            "cannot use the certificate: it holds no certificate; give it as PEM"
        );
        let missing = Path::new("no-such-file.pem");
        let why = Tls::from_files(TlsMode::Required, missing, missing, None).err();
        assert!(why.is_some_and(|e| e.to_string().starts_with("cannot read no-such-file.pem:")));
    }

    #[test]
    fn a_server_resumes_no_session() {
        let own = rcgen::generate_simple_self_signed(vec!["disk.example".to_owned()]).unwrap();
        let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let authority = Some(certificate.as_bytes());
        let (mode, text) = (TlsMode::Required, certificate.as_bytes());
        let tls = Tls::from_pem(mode, text, key.as_bytes(), authority).unwrap();
        assert!(!tls.config.session_storage.can_cache());
        assert_eq!(tls.config.send_tls13_tickets, 0);
    }
}
