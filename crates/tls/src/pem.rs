//! Certificates and keys as PEM texts: what is in them, and what is wrong with them.
//!
//! What is wrong is said at once, when a file is read, not when the first client comes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Not PEM, or nothing of that kind in it.
    #[error("cannot use {what}: {why}; give it as PEM")]
    Pem {
        /// Which of the inputs.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key are not accepted.
    #[error("cannot use the certificate with this key: {0}")]
    Pair(#[from] rustls::Error),
    /// The authority's certificates are not accepted.
    #[error("cannot use the client authority: {0}")]
    Authority(String),
    /// The server's name is neither a host name nor an address.
    #[error("'{0}' is not a server's name: write a host name or an IP address")]
    Name(String),
    /// A certificate cannot be made.
    #[error("cannot make the certificate of {whose}: {why}")]
    Make {
        /// Whose it was to be.
        whose: String,
        /// What stood in the way.
        why: String,
    },
}

/// The algorithms that all of Tanada's TLS uses.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// All certificates of a text, of which there is one at least; `what` names the text in errors.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|why| TlsError::Pem {
        what,
        why: why.to_string(),
    })?;
    if found.is_empty() {
        return Err(TlsError::Pem {
            what,
            why: "it holds no certificate".into(),
        });
    }
    Ok(found)
}

/// The private key of a text.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|why| TlsError::Pem {
        what: "the private key",
        why: why.to_string(),
    })
}

/// The authorities of a text: one or several, each of which is trusted.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn roots(what: &'static str, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        store.add(certificate).map_err(|why| TlsError::Pem {
            what,
            why: why.to_string(),
        })?;
    }
    Ok(store)
}

/// The contents of a file that is no secret.
///
/// # Errors
/// [`TlsError::File`].
pub fn file(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}
