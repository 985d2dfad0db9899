//! The admin API in TLS, from a command's side: whom it trusts, what it shows, and is the server the right one?
//!
//! ```text
//! TANADA_CA, else ca.pem of TANADA_IDENTITY, else tanada-data/tls/ca.pem   authorities
//! TANADA_IDENTITY: cert.pem, key.pem                                       an own certificate, if one is to be shown
//!      -> handshake: the server has a certificate for its address, in its time, and not revoked as far as is known here
//! ```
//!
//! Always true: nothing is sent to a server that was not checked.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use config::DATA_DIR;
use env::net::Address;
use report::terminal::said;
use tls::{Certificate, Expected, Material, Settings};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client_error::{ClientError, Target};
use crate::daemon::common::certificates::Folder;
use crate::daemon::http::admin_tls::words;

/// Names the file with the authorities.
const CA: &str = "TANADA_CA";
/// Names the folder with an own certificate.
const IDENTITY: &str = "TANADA_IDENTITY";

/// Whom a command trusts, and what it shows.
struct Trust {
    ca: PathBuf,
    /// Where an own certificate is.
    identity: Option<PathBuf>,
    /// Where revoked numbers may be.
    folder: Option<Folder>,
}

impl Trust {
    fn of_environment() -> anyhow::Result<Trust> {
        let named = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let identity = named(IDENTITY);
        let usual = Path::new(DATA_DIR).join("tls");
        let folder = identity.clone().unwrap_or(usual);
        let ca = match (named(CA), &identity) {
            (Some(ca), _) => ca,
            (None, Some(identity)) => identity.join("ca.pem"),
            (None, None) => own_file(&folder.join("ca.pem"))?,
        };
        Ok(Trust {
            ca,
            identity,
            folder: folder.is_dir().then(|| Folder::at(&folder)),
        })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let material = match &self.identity {
            Some(dir) => Folder::at(dir).material()?,
            None => Material {
                authority: Vec::new(),
                own: None,
            },
        };
        let read =
            || fs::read(&self.ca).with_context(|| format!("cannot read {}", self.ca.display()));
        Ok(Settings::new(&Material {
            authority: read()?,
            ..material
        })?)
    }

    /// Refuses a server whose certificate is known to be revoked.
    fn check_revoked(&self, shown: &Certificate) -> anyhow::Result<()> {
        let revoked = self.folder.as_ref().map(Folder::read_revoked).transpose()?;
        match revoked.is_some_and(|revoked| revoked.contains(&shown.serial)) {
            true => Err(anyhow!(
                "its certificate {} of {} is revoked",
                shown.serial,
                shown.peer
            )),
            false => Ok(()),
        }
    }
}

/// The authorities in the usual place, if another user did not put them there.
fn own_file(path: &Path) -> anyhow::Result<PathBuf> {
    let me = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(path).map(|meta| meta.uid());
    if owner.is_ok_and(|owner| owner == me || owner == 0) {
        return Ok(path.to_owned());
    }
    Err(anyhow!(
        "no authority is named by which the server could be checked: set {CA} to the cluster's ca.pem (`tanada cluster ca init` \
         makes it, `tanada node create` copies it into DATA_DIR/tls), or {IDENTITY} to a folder of `tanada cluster ca issue`"
    ))
}

/// A connection to the daemon at `target`, which was checked.
///
/// # Errors
/// Nothing listens there, or it is not the server that was looked for.
pub async fn connect(target: &Target) -> Result<TlsStream<TcpStream>, ClientError> {
    let untrusted = |error: &anyhow::Error| ClientError::Untrusted {
        target: target.clone(),
        why: said::words(error),
    };
    let address = &target.0;
    let trust = Trust::of_environment().map_err(|error| untrusted(&error))?;
    let config = trust
        .settings()
        .and_then(|settings| Ok(settings.client(&Expected::at(address))?));
    let config = config.map_err(|error| untrusted(&error))?;
    let stream = connect_plain(target, address).await?;
    let name = Expected::at(address).name();
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| untrusted(&anyhow!(words(&error))))?;
    let shown = stream.get_ref().1.peer_certificates();
    let shown = shown.and_then(|chain| chain.first());
    let shown = shown.and_then(Certificate::read);
    let checked = shown.map_or(Ok(()), |shown| trust.check_revoked(&shown));
    checked.map_err(|error| untrusted(&error))?;
    Ok(stream)
}

async fn connect_plain(target: &Target, address: &Address) -> Result<TcpStream, ClientError> {
    let socket = address.socket().ok_or_else(|| ClientError::Stranger {
        target: target.clone(),
        why: "it is no address of TLS".to_owned(),
    })?;
    let stream = TcpStream::connect(socket).await;
    stream.map_err(|source| ClientError::NoDaemon {
        target: target.clone(),
        source,
    })
}
