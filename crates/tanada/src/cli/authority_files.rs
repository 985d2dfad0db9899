//! The folder of the cluster's own authority: its keys, what it issued, what of that is revoked.
//!
//! ```text
//! issuer.pem, issuer.key   issue certificates        ca.pem      all authorities that are trusted now
//! next.pem, next.key       will, after a renewal     issued.json what was issued, to whom, until when
//! revoked                  serial numbers, one a line, as nodes read them
//! ```
//!
//! Always true:
//! 1. A certificate is in `issued.json` before its files are handed out: what is out can be revoked by its name.
//! 2. One command changes the folder at a time.
//! 3. Every file is its owner's alone.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use report::terminal::{Refused, Usage};
use serde::{Deserialize, Serialize};
use tls::authority::{AUTHORITY_DAYS, Authority, Issued, KeyKind, LEAF_DAYS, Subject};
use tls::{Peer, Serial};

use crate::daemon::common::certificates::{Folder, now};
use crate::daemon::common::secrets;

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Entry {
    /// In hexadecimal digits.
    pub serial: String,
    /// `node n1`, `account astro`.
    pub whose: String,
    pub issued_unix_seconds: u64,
    pub expires_unix_seconds: u64,
    #[serde(default)]
    pub revoked: bool,
}

/// The folder, locked.
pub struct AuthorityFolder {
    dir: PathBuf,
    _lock: File,
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("the system gives no randomness: {error}"))?;
    Ok(bytes)
}

/// A new authority: its certificate and key.
fn fresh() -> anyhow::Result<(String, String)> {
    let number = u32::from_be_bytes(random()?);
    // Two authorities of one name could not be told apart by whom they trust.
    let name = format!("tanada authority {number:08x}");
    let made = Authority::make(&name, KeyKind::P256, (now(), AUTHORITY_DAYS), random()?);
    let (authority, key) = made?;
    Ok((authority.certificate, key))
}

impl AuthorityFolder {
    /// Makes an authority in `dir`, where there is none yet.
    ///
    /// # Errors
    /// There is one, or the system's.
    pub fn make(dir: &Path) -> anyhow::Result<AuthorityFolder> {
        let issuer = dir.join("issuer.pem");
        if issuer.exists() {
            return Err(anyhow!(
                "there is an authority in {} already; `tanada cluster ca renew` follows it up, or name another folder",
                dir.display()
            ));
        }
        let (certificate, key) = fresh()?;
        // Makes the folder, too.
        secrets::write_private(&dir.join("issuer.key"), key.as_bytes(), true)?;
        let folder = AuthorityFolder::lock(dir)?;
        folder.write("ca.pem", &certificate)?;
        folder.write("issuer.pem", &certificate)?;
        Ok(folder)
    }

    /// That in `dir`.
    ///
    /// # Errors
    /// There is none.
    pub fn open(dir: &Path) -> anyhow::Result<AuthorityFolder> {
        if !dir.join("issuer.pem").exists() {
            return Err(anyhow!(
                "there is no authority in {}; make one with `tanada cluster ca init {}`, or say with --ca where it is",
                dir.display(),
                dir.display()
            ));
        }
        AuthorityFolder::lock(dir)
    }

    fn lock(dir: &Path) -> anyhow::Result<AuthorityFolder> {
        let path = dir.join("lock");
        let said = || format!("cannot lock {}", path.display());
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(said)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).with_context(said)?;
        Ok(AuthorityFolder {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.dir.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn read_secret(&self, name: &str) -> anyhow::Result<String> {
        let bytes = secrets::read_private(&self.dir.join(name), "the authority's key")?;
        String::from_utf8(bytes).with_context(|| format!("{name} is no PEM"))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        secrets::write_private(&self.dir.join(name), text.as_bytes(), true)
    }

    /// All authorities that are trusted, as PEM.
    ///
    /// # Errors
    /// The system's.
    pub fn trusted(&self) -> anyhow::Result<String> {
        self.read("ca.pem")
    }

    /// What was issued, in that order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn issued(&self) -> anyhow::Result<Vec<Entry>> {
        let path = self.dir.join("issued.json");
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = self.read("issued.json")?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write_issued(&self, entries: &[Entry]) -> anyhow::Result<()> {
        self.write("issued.json", &serde_json::to_string_pretty(entries)?)
    }

    /// Issues a certificate.
    ///
    /// # Errors
    /// A name that none can have, or the system's.
    pub fn issue(&self, subject: &Subject) -> anyhow::Result<Issued> {
        let key = self.read_secret("issuer.key")?;
        let authority = Authority::from_pem(&self.read("issuer.pem")?, &key)?;
        let issued = authority.issue(subject, (now(), LEAF_DAYS), random()?)?;
        let mut entries = self.issued()?;
        entries.push(Entry {
            serial: issued.says.serial.to_string(),
            whose: subject.peer.to_string(),
            issued_unix_seconds: now(),
            expires_unix_seconds: issued.says.not_after,
            revoked: false,
        });
        self.write_issued(&entries)?;
        Ok(issued)
    }

    /// Puts a certificate, its key, the authorities and what is revoked into a folder such as a node reads.
    ///
    /// # Errors
    /// The system's.
    pub fn hand_out(&self, issued: &Issued, to: &Folder) -> anyhow::Result<()> {
        let trusted = self.trusted()?;
        let revoked = self.issued()?.into_iter().filter(|entry| entry.revoked);
        let revoked = revoked.filter_map(|it| Some((Serial::parse(&it.serial)?, it.whose)));
        to.write(&issued.certificate, &issued.key, &trusted)?;
        to.add_revoked(&revoked.collect::<Vec<_>>())
    }

    /// Revokes what `what` names: a serial number, or all certificates of a node or an account that have not expired. Those of them
    /// that were revoked before are among the answer.
    ///
    /// # Errors
    /// Nothing is called so.
    pub fn revoke(&self, what: &str) -> anyhow::Result<Vec<Entry>> {
        let mut entries = self.issued()?;
        let chosen = chosen(&entries, what, now())?;
        let serial = |at: &usize| Serial::parse(&entries[*at].serial);
        let lines = chosen
            .iter()
            .filter_map(|at| Some((serial(at)?, entries[*at].whose.clone())));
        Folder::at(&self.dir).add_revoked(&lines.collect::<Vec<_>>())?;
        for at in &chosen {
            entries[*at].revoked = true;
        }
        self.write_issued(&entries)?;
        Ok(chosen.into_iter().map(|at| entries[at].clone()).collect())
    }

    /// The next authority is made, and trusted beside the present one, which goes on issuing.
    ///
    /// # Errors
    /// There is a next one already, or the system's.
    pub fn renew(&self) -> anyhow::Result<()> {
        if self.dir.join("next.pem").exists() {
            return Err(anyhow!(
                "the next authority is made already; give its ca.pem to every node (`tanada node create`), then `tanada \
                 cluster ca renew --switch`"
            ));
        }
        let (certificate, key) = fresh()?;
        self.write("next.key", &key)?;
        self.write("ca.pem", &format!("{}{certificate}", self.trusted()?))?;
        self.write("next.pem", &certificate)
    }

    /// The next authority issues from now on; the one before is trusted still.
    ///
    /// # Errors
    /// There is no next one, or the system's.
    pub fn switch(&self) -> anyhow::Result<()> {
        if !self.dir.join("next.pem").exists() {
            return Err(anyhow!(
                "there is no next authority yet; make it with `tanada cluster ca renew`"
            ));
        }
        let (certificate, key) = (self.read("next.pem")?, self.read_secret("next.key")?);
        self.write("issuer.key", &key)?;
        self.write("issuer.pem", &certificate)?;
        fs::remove_file(self.dir.join("next.pem"))?;
        Ok(fs::remove_file(self.dir.join("next.key"))?)
    }

    /// From now on only the authority that issues is trusted.
    ///
    /// # Errors
    /// A next one waits, or the system's.
    pub fn drop_old(&self) -> anyhow::Result<()> {
        if self.dir.join("next.pem").exists() {
            return Err(anyhow!(
                "the next authority does not issue yet; `tanada cluster ca renew --switch` comes first"
            ));
        }
        self.write("ca.pem", &self.read("issuer.pem")?)
    }
}

/// Which of `entries` are meant.
fn chosen(entries: &[Entry], what: &str, now: u64) -> anyhow::Result<Vec<usize>> {
    let by_name = [Peer::Node(what.to_owned()), Peer::Account(what.to_owned())];
    let by_name = by_name.map(|peer| peer.to_string());
    let uri = |entry: &Entry| entry.whose.replacen(' ', ":", 1) == what;
    let lasts = |entry: &Entry| entry.expires_unix_seconds > now;
    let of_name = |entry: &Entry| (by_name.contains(&entry.whose) || uri(entry)) && lasts(entry);
    let serial = Serial::parse(what).map(|serial| serial.to_string());
    let of_serial = |entry: &Entry| Some(&entry.serial) == serial.as_ref();
    let all = || entries.iter().enumerate();
    let named: Vec<usize> = all().filter(|it| of_name(it.1)).map(|it| it.0).collect();
    if !named.is_empty() {
        let first = &entries[named[0]].whose;
        if named.iter().any(|at| entries[*at].whose != *first) {
            let said = format!(
                "both a node and an account are called {what}; write node:{what} or account:{what}"
            );
            return Err(Usage(said).into());
        }
        return Ok(named);
    }
    let numbered: Vec<usize> = all().filter(|it| of_serial(it.1)).map(|it| it.0).collect();
    match numbered.is_empty() {
        false => Ok(numbered),
        true => Err(Refused(format!(
            "no certificate of {what} is out, and none has that serial number; `tanada cluster ca list` shows them"
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Subject {
        Subject {
            peer: Peer::Node(name.into()),
            account_id: None,
            hosts: vec!["127.0.0.1".into()],
        }
    }

    #[test]
    fn what_is_issued_can_be_revoked_by_its_name_or_number() {
        let dir = tempfile::tempdir().unwrap();
        let (ca, out) = (dir.path().join("ca"), dir.path().join("out"));
        assert!(AuthorityFolder::open(&ca).is_err());
        let folder = AuthorityFolder::make(&ca).unwrap();
        assert!(
            AuthorityFolder::make(&ca).is_err(),
            "never over another one"
        );
        let [first, second, third] = ["n1", "n2", "n2"].map(|it| folder.issue(&node(it)).unwrap());
        let account = Subject {
            peer: Peer::Account("n1".into()),
            account_id: Some(1),
            hosts: vec![],
        };
        folder.issue(&account).unwrap();
        let why = folder.revoke("n1").unwrap_err().to_string();
        assert!(why.contains("node:n1 or account:n1"), "{why}");
        let revoked = folder.revoke("node:n1").unwrap();
        assert_eq!(revoked.len(), 1);
        assert_eq!(revoked[0].serial, first.says.serial.to_string());
        assert_eq!(folder.revoke("n2").unwrap().len(), 2, "all that are out");
        let number = second.says.serial.as_str().to_uppercase();
        assert_eq!(folder.revoke(&number).unwrap().len(), 1, "again");
        assert!(folder.revoke("n3").is_err());
        let to = Folder::at(&out);
        folder.hand_out(&third, &to).unwrap();
        assert_eq!(to.read_revoked().unwrap().len(), 3);
        assert_eq!(to.own().unwrap(), Some(third.says));
        for name in ["issuer.key", "issued.json", "ca.pem", "revoked", "lock"] {
            use std::os::unix::fs::MetadataExt;
            let mode = fs::metadata(ca.join(name)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn an_authority_is_followed_by_the_next_one_step_by_step() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AuthorityFolder::make(dir.path()).unwrap();
        let count = |folder: &AuthorityFolder| {
            folder
                .trusted()
                .unwrap()
                .matches("BEGIN CERTIFICATE")
                .count()
        };
        assert!(folder.switch().is_err());
        let old = folder.read("issuer.pem").unwrap();
        folder.renew().unwrap();
        assert!(folder.renew().is_err() && folder.drop_old().is_err());
        assert_eq!(
            (count(&folder), folder.read("issuer.pem").unwrap()),
            (2, old.clone())
        );
        folder.switch().unwrap();
        assert_ne!(folder.read("issuer.pem").unwrap(), old);
        folder.issue(&node("n1")).unwrap();
        assert_eq!(count(&folder), 2);
        folder.drop_old().unwrap();
        assert_eq!(
            folder.trusted().unwrap(),
            folder.read("issuer.pem").unwrap()
        );
    }
}
