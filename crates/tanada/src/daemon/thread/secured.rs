//! This node's TLS on a data thread: its certificate, taken anew when it is renewed, and who is shut out.
//!
//! ```text
//! DATA_DIR/tls -> Identity -> servers of stores, ways to other nodes' stores
//!      ^ looked at every 250 ms: another certificate, another authority, more revoked numbers
//! revoked/... in the meta store -> cut here and on the other threads at once, and into DATA_DIR/tls/revoked for the next start
//! ```
//!
//! Always true:
//! 1. Files that cannot be used change nothing, are warned of once, and are tried again until they can be.
//! 2. What was revoked once is revoked until the thread ends.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::{Rc, Weak};

use anyhow::Context;
use base::{Instant, Nanos};
use env::Mailbox;
use report::terminal::said;
use tls::{Expected, Identity, Serial};
use vdisk::cluster::revoked::Revocations;

use crate::daemon::common::certificates::{Folder, Stamp, Trouble, check_own, warning};
use crate::daemon::common::revocation::{Revocation, Revoked};

/// Between two looks at the files: a revocation is to be known everywhere within a second.
const LOOK: Nanos = Nanos::millis(250);
/// Between two warnings of a certificate that expires.
const WARN_EVERY: Nanos = Nanos::secs(24 * 3600);

/// See the module's head.
pub struct Secured {
    pub identity: Rc<Identity>,
    folder: Folder,
    /// That of the files which were taken over whole.
    stamp: RefCell<Stamp>,
    trouble: RefCell<Trouble>,
    revoked: RefCell<BTreeSet<Serial>>,
    /// Tells the other threads, and hears of them.
    revocation: Revocation,
    /// They end with this.
    tasks: RefCell<Vec<env::CancelOnDrop<()>>>,
}

impl Secured {
    /// From the files of the daemon; `None` if it has no certificate. `node` is what this node is called in its cluster.
    pub fn open(
        data_dir: &Path,
        node: Option<&str>,
        revocation: &Revocation,
    ) -> anyhow::Result<Option<Rc<Secured>>> {
        let folder = Folder::of_daemon(data_dir);
        if !folder.has_certificate() {
            return Ok(None);
        }
        let stamp = folder.stamp();
        let identity = Identity::new(&folder.material()?).context("tls")?;
        check_own(&folder, &identity.peer(), node)?;
        let secured = Rc::new(Secured {
            identity,
            folder,
            stamp: RefCell::new(stamp),
            trouble: RefCell::default(),
            revoked: RefCell::default(),
            revocation: revocation.clone(),
            tasks: RefCell::default(),
        });
        secured.revoke(secured.folder.read_revoked()?);
        let own = || Rc::downgrade(&secured);
        let looking = env::spawn(keep_looking(own()));
        let listening = env::spawn(keep_listening(own(), revocation.listen()));
        let tasks = [looking, listening].map(env::cancel_scope);
        *secured.tasks.borrow_mut() = tasks.into();
        Ok(Some(secured))
    }

    /// A way into the server of a node.
    pub fn to_node(&self, node: &str) -> tls::Client {
        tls::Client {
            identity: Rc::clone(&self.identity),
            expected: Expected::Node(node.to_owned()),
        }
    }

    /// These are revoked, too.
    fn revoke(&self, more: BTreeSet<Serial>) {
        self.revocation.spread(&more);
        let mut revoked = self.revoked.borrow_mut();
        let fresh: Vec<Serial> = more.difference(&revoked).cloned().collect();
        for serial in &fresh {
            tracing::warn!(%serial, "a certificate is revoked: connections under it end");
        }
        revoked.extend(fresh);
        self.identity.set_revoked(revoked.clone());
    }

    /// Hears of what is revoked in the cluster, as long as the task is kept.
    pub fn follow(self: &Rc<Self>, revocations: Revocations) -> env::CancelOnDrop<()> {
        let own = Rc::downgrade(self);
        env::cancel_scope(env::spawn(async move {
            let hear = move |more: BTreeSet<Serial>| {
                if let Some(own) = own.upgrade() {
                    own.heard(more);
                }
            };
            match revocations.follow(hear).await {}
        }))
    }

    fn heard(&self, more: BTreeSet<Serial>) {
        self.revoke(more.clone());
        let lines = more
            .into_iter()
            .map(|serial| (serial, "revoked in the cluster".to_owned()));
        let lines: Vec<(Serial, String)> = lines.collect();
        if let Err(error) = self.folder.add_revoked(&lines) {
            tracing::error!(
                "revoked certificates are not kept for the next start: {}",
                said::words(&error)
            );
        }
    }

    /// Takes over what has changed in the files.
    fn look(&self) {
        let stamp = self.folder.stamp();
        if *self.stamp.borrow() == stamp {
            return;
        }
        let mut wrong = Vec::new();
        match self.folder.read_revoked_lines() {
            Ok((revoked, why)) => {
                self.revoke(revoked);
                wrong.extend(why);
            }
            Err(error) => wrong.push(said::words(&error)),
        }
        let before = self.identity.own();
        let taken = self.folder.material().and_then(|material| {
            self.identity.replace(&material).context("tls")?;
            Ok(self.identity.own())
        });
        match taken {
            Ok(own) if own != before => {
                let serial = own.map(|own| own.serial.to_string()).unwrap_or_default();
                tracing::info!(serial, "new connections show another certificate");
            }
            Ok(_) => {}
            Err(error) => wrong.push(said::words(&error)),
        }
        let why = (!wrong.is_empty()).then(|| wrong.join("; "));
        if why.is_none() {
            *self.stamp.borrow_mut() = stamp;
        }
        // What fails is looked at again, whatever the stamp: the system may have had no file left to open.
        if let Some(why) = self.trouble.borrow_mut().after(why) {
            tracing::error!(
                "files in DATA_DIR/tls cannot be used, and what was read of them before stays in use: {why}"
            );
        }
    }

    /// Says so if the own certificate lasts no longer than some days.
    fn warn(&self) {
        let now = env::wall_clock().0 / Nanos::secs(1).0;
        if let Some(warning) = self.identity.own().and_then(|own| warning(&own, now)) {
            tracing::warn!("{warning}");
        }
    }
}

/// Takes over what the other threads hear of.
async fn keep_listening(secured: Weak<Secured>, mut mailbox: Mailbox<Revoked>) {
    while let Ok(more) = mailbox.receive().await {
        let Some(secured) = secured.upgrade() else {
            return;
        };
        secured.revoke(more);
    }
}

async fn keep_looking(secured: Weak<Secured>) {
    let mut warned: Option<Instant> = None;
    loop {
        {
            let Some(secured) = secured.upgrade() else {
                return;
            };
            secured.look();
            if warned.is_none_or(|at| env::now().since(at) >= WARN_EVERY) {
                warned = Some(env::now());
                secured.warn();
            }
        }
        env::sleep(LOOK).await;
    }
}
