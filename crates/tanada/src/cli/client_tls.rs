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
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use config::DATA_DIR;
use env::net::Address;
use report::terminal::said;
use rustix::fs::{Mode, OFlags, open, openat};
use tls::{Certificate, Expected, Material, Settings};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client_error::{ClientError, Target};
use crate::daemon::common::certificates::Folder;
use crate::daemon::common::http_tls::words;

/// Names the file with the authorities.
const CA: &str = "TANADA_CA";
/// Names the folder with an own certificate.
const IDENTITY: &str = "TANADA_IDENTITY";

/// Whom a command trusts, and what it shows.
struct Trust {
    /// The authorities, in PEM.
    ca: Vec<u8>,
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
            (Some(ca), _) => read(&ca)?,
            (None, Some(identity)) => read(&identity.join("ca.pem"))?,
            (None, None) => read_own(&folder, "ca.pem").ok_or_else(no_authority)?,
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
        Ok(Settings::new(&Material {
            authority: self.ca.clone(),
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

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A file of a folder in the usual place, if it and the folder are this user's or root's. What is looked at is what is read,
/// and neither is a link: the working directory may be where other users write.
fn read_own(folder: &Path, name: &str) -> Option<Vec<u8>> {
    let me = rustix::process::geteuid().as_raw();
    let is_own = |file: &fs::File| {
        let owner = file.metadata().map(|meta| meta.uid());
        owner.is_ok_and(|owner| owner == me || owner == 0)
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(folder, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let folder = fs::File::from(folder);
    // A pipe in its place keeps none waiting.
    let file = openat(&folder, name, flags | OFlags::NONBLOCK, Mode::empty()).ok()?;
    let mut file = fs::File::from(file);
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    if !(is_own(&folder) && is_own(&file) && is_file) {
        return None;
    }
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).ok()?;
    Some(contents)
}

fn no_authority() -> anyhow::Error {
    anyhow!(
        "no authority is named by which the server could be checked: set {CA} to the cluster's ca.pem (`tanada cluster ca init` \
         makes it, `tanada node create` copies it into DATA_DIR/tls), or {IDENTITY} to a folder of `tanada cluster ca issue`"
    )
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn authorities_in_the_usual_place_are_read_where_no_link_leads_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (own, other) = (dir.join("own"), dir.join("other"));
        for folder in [&own, &other] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(own.join("ca.pem"), "own").unwrap();
        assert_eq!(read_own(&own, "ca.pem").as_deref(), Some(&b"own"[..]));
        symlink(own.join("ca.pem"), other.join("ca.pem")).unwrap();
        symlink(&own, dir.join("link")).unwrap();
        fs::create_dir(other.join("folder")).unwrap();
        for (folder, name) in [
            (&other, "ca.pem"),
            (&dir.join("link"), "ca.pem"),
            (&other, "folder"),
            (&other, "none"),
            (&dir.join("none"), "ca.pem"),
        ] {
            assert_eq!(read_own(folder, name), None, "{folder:?} {name}");
        }
    }
}
