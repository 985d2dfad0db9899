//! The certificates of a node in its folder, `DATA_DIR/tls`: what is there, has it changed, what is revoked.
//!
//! ```text
//! cert.pem   the own certificate      key.pem    its key, a secret
//! ca.pem     authorities, all trusted revoked    serial numbers, one a line
//! ```
//!
//! `tanada node create` and `tanada cluster ca issue` write such a folder; the daemon reads it again when a file changes.
//!
//! Always true:
//! 1. A file is whole or not there, and its owner's alone.
//! 2. A revoked number stays in the file: none is taken out by this program.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow};
use tls::{Certificate, Material, Peer, Serial, authority};

use super::secrets;
use crate::api::certificates::OwnCertificate;

/// A certificate that lasts no longer than this is warned of.
pub const WARN_SECONDS: u64 = 14 * 24 * 3600;

/// Held while a file of revoked numbers is read and written.
static ONE: Mutex<()> = Mutex::new(());

/// The files of a folder.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

/// Which files there are: another stamp, other contents, or others who may read them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp([Option<FileStamp>; 4]);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    /// When it was written, and when its owner, mode or name changed: seconds and nanoseconds.
    written: (i64, i64),
    changed: (i64, i64),
    inode: u64,
    length: u64,
}

/// What stands in the way of files that are looked at again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    /// What it was at the last look.
    last: Option<String>,
    warned: bool,
}

impl Trouble {
    /// What is to be warned of after a look: what stood in its way twice, once. They may just be being written at the first look.
    pub fn after(&mut self, why: Option<String>) -> Option<String> {
        let again = why.is_some() && why == self.last;
        let warn = again && !self.warned;
        self.warned = again;
        self.last.clone_from(&why);
        why.filter(|_| warn)
    }
}

impl Folder {
    /// That of the daemon whose files are in `data_dir`.
    pub fn of_daemon(data_dir: &Path) -> Folder {
        Folder(data_dir.join("tls"))
    }

    /// The folder `dir` itself.
    pub fn at(dir: &Path) -> Folder {
        Folder(dir.to_owned())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The own certificate's file.
    pub fn certificate(&self) -> PathBuf {
        self.file("cert.pem")
    }

    /// Its key's.
    pub fn key(&self) -> PathBuf {
        self.file("key.pem")
    }

    /// The authorities'.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The revoked numbers'.
    pub fn revoked(&self) -> PathBuf {
        self.file("revoked")
    }

    /// Is there a certificate?
    pub fn has_certificate(&self) -> bool {
        self.certificate().exists()
    }

    /// Which files there are now.
    pub fn stamp(&self) -> Stamp {
        let files = [
            self.certificate(),
            self.key(),
            self.authority(),
            self.revoked(),
        ];
        Stamp(files.map(|path| {
            let meta = fs::metadata(path).ok()?;
            Some(FileStamp {
                written: (meta.mtime(), meta.mtime_nsec()),
                changed: (meta.ctime(), meta.ctime_nsec()),
                inode: meta.ino(),
                length: meta.len(),
            })
        }))
    }

    /// What TLS needs.
    ///
    /// # Errors
    /// A file cannot be read, or others can read the key.
    pub fn material(&self) -> anyhow::Result<Material> {
        let read = |path: PathBuf| {
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Material {
            authority: read(self.authority())?,
            own: Some((
                read(self.certificate())?,
                secrets::read_private(&self.key(), "the key")?,
            )),
        })
    }

    /// What the own certificate says; `None` if there is none.
    ///
    /// # Errors
    /// There is one, and it cannot be read.
    pub fn own(&self) -> anyhow::Result<Option<Certificate>> {
        let path = self.certificate();
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let all = authority::read_all("the certificate", &text);
        let all = all.with_context(|| path.display().to_string())?;
        Ok(all.into_iter().next())
    }

    /// The revoked numbers.
    ///
    /// # Errors
    /// The file is there and cannot be read, or a line of it is no number.
    pub fn read_revoked(&self) -> anyhow::Result<BTreeSet<Serial>> {
        let (found, wrong) = self.read_revoked_lines()?;
        wrong.map_or(Ok(found), |why| Err(anyhow!(why)))
    }

    /// The revoked numbers of the lines that can be read, and what is wrong with the first that cannot.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read_revoked_lines(&self) -> anyhow::Result<(BTreeSet<Serial>, Option<String>)> {
        let path = self.revoked();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        // What is no text is a bad line, not a bad file.
        let text = String::from_utf8_lossy(&bytes);
        let (mut found, mut wrong) = (BTreeSet::new(), None);
        for (at, line) in text.lines().enumerate() {
            match authority::revoked(line) {
                Ok(numbers) => found.extend(numbers),
                Err(why) => {
                    let why = why.strip_prefix("line 1: ").unwrap_or(&why);
                    wrong.get_or_insert(format!("{}: line {}: {why}", path.display(), at + 1));
                }
            }
        }
        Ok((found, wrong))
    }

    /// Adds revoked numbers, each with whose it was, as far as they are not there yet.
    ///
    /// # Errors
    /// The system's. Lines that are no numbers stay.
    pub fn add_revoked(&self, more: &[(Serial, String)]) -> anyhow::Result<()> {
        // The data threads and the admin API's do so, too.
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, _) = self.read_revoked_lines()?;
        let text = match fs::read(self.revoked()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut text = String::from_utf8_lossy(&text).into_owned();
        let before = text.len();
        for (serial, whose) in more.iter().filter(|(serial, _)| !known.contains(serial)) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let whose = whose.replace(['\n', '\r'], " ");
            let _ = writeln!(text, "{serial} {whose}");
        }
        match text.len() == before {
            true => Ok(()),
            false => secrets::write_private(&self.revoked(), text.as_bytes(), true),
        }
    }

    /// Puts a certificate with its key and the authorities there, instead of what is there.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, certificate: &str, key: &str, authority: &str) -> anyhow::Result<()> {
        // The certificate last: who looks in between finds no certificate, or a pair that does not fit, and looks again.
        secrets::write_private(&self.authority(), authority.as_bytes(), true)?;
        secrets::write_private(&self.key(), key.as_bytes(), true)?;
        secrets::write_private(&self.certificate(), certificate.as_bytes(), true)
    }
}

/// Refuses a certificate that is not this node's, which is called `node` in its cluster.
///
/// # Errors
/// Whose it is, and how to make the right one.
pub fn check_own(folder: &Folder, peer: &Peer, node: Option<&str>) -> anyhow::Result<()> {
    let path = folder.certificate();
    match (peer, node) {
        (Peer::Node(name), Some(node)) if name != node => Err(anyhow!(
            "{} is the certificate of node {name}, and this node is called {node} ([cluster] node); make its own with \
             `tanada node create {node}`",
            path.display()
        )),
        (Peer::Node(_), _) => Ok(()),
        (other, _) => Err(anyhow!(
            "{} is the certificate of {other}, and a daemon needs that of a node; make it with `tanada node create`",
            path.display()
        )),
    }
}

/// Seconds since 1970, by this machine's clock: for commands and the admin API, which have no runtime of `env`.
pub fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

/// The daemon's own certificate, as its file has it now.
pub fn own_certificate(folder: &Folder) -> anyhow::Result<Option<OwnCertificate>> {
    Ok(folder.own()?.map(|own| OwnCertificate {
        whose: own.peer.to_string(),
        serial: own.serial.to_string(),
        expires_unix_seconds: own.not_after,
        warning: warning(&own, now()),
    }))
}

/// What is wrong with how long a certificate still lasts, at the second `now`.
pub fn warning(own: &Certificate, now: u64) -> Option<String> {
    let renew = match &own.peer {
        Peer::Node(name) => format!("renew it with `tanada node create {name}`"),
        _ => "issue another one with `tanada cluster ca issue`".to_owned(),
    };
    let left = own.not_after.saturating_sub(now);
    match left {
        0 => Some(format!(
            "the certificate of {} has expired, and other nodes do not speak with it; {renew}",
            own.peer
        )),
        1..=WARN_SECONDS => Some(format!(
            "the certificate of {} expires in {} days; {renew}",
            own.peer,
            left / (24 * 3600)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tls::authority::{Authority, KeyKind, Subject};

    use super::*;

    #[test]
    fn a_folder_holds_a_certificate_and_what_is_revoked_only_grows() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(&dir.path().join("tls"));
        assert!(!folder.has_certificate());
        assert_eq!(folder.own().unwrap(), None);
        let (ca, _) = Authority::make("ca", KeyKind::P256, (1_000_000, 30), [1; 16]).unwrap();
        let subject = Subject {
            peer: Peer::Node("n1".into()),
            account_id: None,
            hosts: vec![],
        };
        let issued = ca.issue(&subject, (1_000_000, 20), [2; 16]).unwrap();
        let empty = folder.stamp();
        folder
            .write(&issued.certificate, &issued.key, &ca.certificate)
            .unwrap();
        assert_ne!(folder.stamp(), empty);
        assert_eq!(folder.own().unwrap(), Some(issued.says.clone()));
        let key = fs::metadata(folder.key()).unwrap();
        assert_eq!(key.mode() & 0o777, 0o600);
        tls::Identity::new(&folder.material().unwrap()).unwrap();

        let serial = |text| Serial::parse(text).unwrap();
        let whose = "node n2\n".to_owned();
        folder.add_revoked(&[(serial("a1"), whose)]).unwrap();
        let before = folder.stamp();
        folder
            .add_revoked(&[(serial("a1"), String::new())])
            .unwrap();
        assert_eq!(folder.stamp(), before, "nothing new");
        folder
            .add_revoked(&[(serial("b2"), "node n3".into())])
            .unwrap();
        assert_eq!(
            folder.read_revoked().unwrap(),
            BTreeSet::from([serial("a1"), serial("b2")])
        );
        fs::write(folder.revoked(), b"c3\nn2\n\xff\nd4\n").unwrap();
        let why = folder.read_revoked().unwrap_err().to_string();
        assert!(why.contains("line 2: 'n2'"), "{why}");
        let good = BTreeSet::from([serial("c3"), serial("d4")]);
        let read = folder.read_revoked_lines().unwrap();
        assert_eq!(read, (good, Some(why)));
        folder
            .add_revoked(&[(serial("e5"), String::new())])
            .unwrap();
        assert!(
            folder
                .read_revoked_lines()
                .unwrap()
                .0
                .contains(&serial("e5"))
        );
        // Who may read a file is part of its stamp, as soon as the clock of the file system has moved.
        let before = folder.stamp();
        let differs = |_| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            fs::set_permissions(folder.key(), mode).unwrap();
            folder.stamp() != before
        };
        assert!((0..1_000_000).any(differs));
    }

    #[test]
    fn trouble_is_warned_of_when_it_lasts_and_once() {
        let mut trouble = Trouble::default();
        let mut after = |why: &str| {
            let why = (!why.is_empty()).then(|| why.to_owned());
            trouble.after(why).unwrap_or_default()
        };
        let looks = ["a", "a", "a", "a", "b", "b", "b", "", "a", "", "b", "b"];
        let warned = looks.map(&mut after);
        assert_eq!(warned, ["", "a", "", "", "", "b", "", "", "", "", "", "b"]);
    }

    #[test]
    fn a_certificate_is_warned_of_from_two_weeks_before_its_end() {
        let own = |not_after| Certificate {
            peer: Peer::Node("n1".into()),
            account_id: None,
            hosts: vec![],
            serial: Serial::parse("1").unwrap(),
            not_before: 0,
            not_after,
        };
        let day = 24 * 3600;
        assert_eq!(warning(&own(100 * day), 85 * day), None);
        let said = warning(&own(100 * day), 87 * day).unwrap();
        assert!(said.contains("in 13 days; renew it with `tanada node create n1`"));
        let said = warning(&own(100 * day), 100 * day).unwrap();
        assert!(said.contains("has expired"), "{said}");
    }
}
