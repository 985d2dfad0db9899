//! A block device's disk, as far as it may sleep: which one is it, and has it everything that was written?

use std::cell::{Cell, OnceCell};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use env::scsi::ScsiFile;

use super::kernel::{Number, disk_of, kernel_name, number, sysfs};
use crate::sleep::{Drive, LOOK_EVERY, Obstacle, Sleeper};
use crate::{Op, Spindle};

/// What a file has of that.
#[derive(Default)]
pub(super) struct Rest {
    sleeper: OnceCell<Rc<Sleeper>>,
    /// Changes begun and ended, and how many of them are durable.
    changes: Cell<u64>,
    flushed: Cell<u64>,
}

impl Rest {
    /// What an earlier user wrote is to be flushed, too.
    pub(super) fn new() -> Rest {
        Rest {
            changes: Cell::new(1),
            ..Rest::default()
        }
    }

    /// The disk, once it may sleep.
    pub(super) fn sleeper(&self) -> Option<&Rc<Sleeper>> {
        self.sleeper.get()
    }

    /// From now on it may.
    pub(super) fn may_sleep(&self, sleeper: Rc<Sleeper>) {
        let looks = look_on(Rc::downgrade(&sleeper));
        if self.sleeper.set(sleeper).is_ok() {
            env::spawn(looks);
        }
    }

    pub(super) fn spindle(&self) -> Option<Spindle> {
        self.sleeper.get().map(|sleeper| sleeper.spindle())
    }

    /// Before a request.
    pub(super) async fn begin(&self, op: Op) {
        self.changed(op);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.request().await;
        }
    }

    /// After a request, however it ended.
    pub(super) fn changed(&self, op: Op) {
        if !matches!(op, Op::Read | Op::Flush) {
            self.changes.set(self.changes.get() + 1);
        }
    }

    /// Changes so far, for [`Rest::flushed`].
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// A flush that began after so many changes went well.
    pub(super) fn flushed(&self, upto: u64) {
        self.flushed.set(self.flushed.get().max(upto));
    }

    /// Has the disk everything?
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.get() == self.changes.get()
    }
}

/// Looks at the disk for as long as it is used.
async fn look_on(sleeper: Weak<Sleeper>) {
    loop {
        env::sleep(LOOK_EVERY).await;
        match sleeper.upgrade() {
            Some(sleeper) => sleeper.look().await,
            None => return,
        }
    }
}

/// The disk beneath what was `opened` at `path`, which may be a partition, if that can sleep.
///
/// # Errors
/// [`Obstacle`], by what stands in the way.
pub(super) async fn find(
    path: &Path,
    opened: BorrowedFd<'_>,
    is_block_device: bool,
) -> Result<Rc<Sleeper>, Obstacle> {
    if !is_block_device {
        let path = path.display().to_string();
        return Err(Obstacle::File { path });
    }
    let disk = whole_disk(opened);
    let name = disk.map_or_else(|| path.display().to_string(), kernel_name);
    let file = ScsiFile::open(&disk.map_or_else(|| path.to_owned(), node_of));
    let file = file.map_err(|source| Obstacle::Closed {
        disk: name.clone(),
        source,
    })?;
    if whole_disk(file.descriptor()) != disk {
        let path = path.display().to_string();
        return Err(Obstacle::Another { disk: name, path });
    }
    let drive = Drive::probe(Box::new(file), name).await?;
    if let (true, Some(disk)) = (drive.stops(), disk) {
        let_kernel_start(disk, drive.disk())?;
    }
    tracing::info!(
        device = %path.display(),
        disk = drive.disk(),
        by = ?drive.dialect(),
        "the disk may be sent to sleep"
    );
    Sleeper::new(drive).await
}

fn whole_disk(file: BorrowedFd<'_>) -> Option<Number> {
    let status = rustix::fs::fstat(file).ok()?;
    Some(disk_of(number(status.st_rdev)))
}

fn node_of(disk: Number) -> PathBuf {
    // The kernel writes a slash in a name as an exclamation mark.
    kernel_name(disk).replace('!', "/").into()
}

/// Whatever else uses a disk that was stopped meets errors, unless the kernel starts it: another partition's file system,
/// or the next start of this daemon.
fn let_kernel_start(disk: Number, name: &str) -> Result<(), Obstacle> {
    let folder = sysfs(disk).join("device/scsi_disk");
    let entries = std::fs::read_dir(&folder).into_iter().flatten();
    let entry = entries.flatten().next();
    let switch = entry.map_or(folder, |entry| entry.path().join("allow_restart"));
    let is_on = std::fs::read_to_string(&switch).is_ok_and(|text| text.trim() == "1");
    if is_on {
        return Ok(());
    }
    std::fs::write(&switch, "1").map_err(|source| Obstacle::NoRestart {
        disk: name.to_owned(),
        switch: switch.display().to_string(),
        source,
    })
}
