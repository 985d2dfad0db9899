//! What rustls is told: TLS as a server and as a client of the cluster, made of PEM texts.
//!
//! ```text
//! Material (PEM) -> Settings -> server: ServerConfig | client(expected): ClientConfig
//! ```
//!
//! [`crate::Identity`] uses them on streams of `env`, by the run's clock. Programs with streams of their own, such as the
//! admin API, use them as they are, by the system's clock.
//!
//! Always true: TLS 1.3 and nothing else; no session is resumed, so every connection shows its certificate anew.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::peer::Certificate;
use crate::pem::{TlsError, certificates, key, provider, roots};
use crate::verify::{Expected, ServerCheck};

/// PEM texts: what an identity is made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The authorities, one or several: each is trusted.
    pub authority: Vec<u8>,
    /// The own certificate and its key; `None` for a client that shows something else.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material(secret)")
    }
}

/// See the module's head.
pub struct Settings {
    clock: Arc<dyn TimeProvider>,
    /// `None` without an own certificate.
    server: Option<Arc<ServerConfig>>,
    roots: Arc<RootCertStore>,
    own: Option<Own>,
}

struct Own {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    says: Certificate,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings(secret)")
    }
}

impl Settings {
    /// By the system's clock.
    ///
    /// # Errors
    /// [`TlsError`] if a text is not PEM or the parts do not fit together.
    pub fn new(material: &Material) -> Result<Settings, TlsError> {
        Settings::with_clock(material, Arc::new(DefaultTimeProvider))
    }

    pub(crate) fn with_clock(
        material: &Material,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Settings, TlsError> {
        let roots = Arc::new(roots("the authority", &material.authority)?);
        let own = match &material.own {
            None => None,
            Some((certificate, private)) => Some(Own::of(certificate, private)?),
        };
        let server = own.as_ref().map(|own| server_config(&roots, own, &clock));
        let settings = Settings {
            server: server.transpose()?,
            clock,
            roots,
            own,
        };
        // What a client would show is tried too, so that a pair that does not fit is found now.
        settings.client(&Expected::Node(String::new()))?;
        Ok(settings)
    }

    /// What the own certificate says.
    pub fn own(&self) -> Option<&Certificate> {
        self.own.as_ref().map(|own| &own.says)
    }

    /// As a server; clients may show a certificate. `None` without an own certificate.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        self.server.clone()
    }

    /// As a client that looks for this server. It shows the own certificate, if there is one.
    ///
    /// # Errors
    /// [`TlsError::Pair`].
    pub fn client(&self, expected: &Expected) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider();
        let check = ServerCheck {
            roots: Arc::clone(&self.roots),
            expected: expected.clone(),
            provider: Arc::clone(&provider),
        };
        let builder = ClientConfig::builder_with_details(provider, Arc::clone(&self.clock))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check));
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key())?,
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

impl Own {
    fn of(certificate: &[u8], private: &[u8]) -> Result<Own, TlsError> {
        let chain = certificates("the certificate", certificate)?;
        let says = chain.first().and_then(Certificate::read);
        Ok(Own {
            says: says.ok_or_else(|| TlsError::Pem {
                what: "the certificate",
                why: "it is none".to_owned(),
            })?,
            chain,
            key: key(private)?,
        })
    }
}

fn server_config(
    roots: &Arc<RootCertStore>,
    own: &Own,
    clock: &Arc<dyn TimeProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    // Clients without a certificate show a capability or a token inside.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|why| TlsError::Authority(why.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider(), Arc::clone(clock))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(own.chain.clone(), own.key.clone_key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
