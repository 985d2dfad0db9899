//! Exports that the machine's own kernel shows as block devices.
//!
//! ```text
//! start:  the driver's disks -> make | recover | replace -> the queue is served -> start, end of recovery
//! stop:   not in use: taken back and removed     in use and recoverable: halted, and left to the next start
//! ```
//!
//! Always true:
//! 1. The driver's control commands are waited for on a thread of their own: some of them end only when this thread has
//!    served a request.
//! 2. No new size is announced of a disk that is being stopped.
//! 3. A disk whose device is not crash-keeping is never left to the next start, and one that is left goes on only over the
//!    device it was made for, with all that was answered.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::Poll;

use anyhow::{Context, anyhow, bail};
use base::{Bytes, Nanos};
use device::Device;
use front::ublk::proto::{DiskInfo, NEEDED, State, feature};
use front::ublk::recover::{Export, Identity, Plan, past, plan, server_number};
use front::ublk::{Control, Growth, Kernel, Server, control};
use report::terminal::said;

use crate::api::status::DiskRequests;
use crate::daemon::common::waiting::lives;
use crate::daemon::thread::driver_call::on_a_thread;

/// How long a dead server may take to go.
const RECOVERY_TIMEOUT: Nanos = Nanos::secs(60);
/// How long the file of a new disk's queue may not be there, or be open elsewhere.
const QUEUE_TIMEOUT: Nanos = Nanos::secs(10);
/// How long the end of a disk is waited for that was taken back, and of the tags of one that was never shown.
const DELETE_TIMEOUT: Nanos = Nanos::secs(5);
/// Between two attempts.
const EVERY: Nanos = Nanos::millis(100);
/// After this long the driver asks whether its server lives, milliseconds: it finds one dead that held every request.
const IO_TIMEOUT: &str = "1000";

/// A disk of the kernel that is served here.
pub struct UblkDisk {
    /// The export's name.
    pub export: String,
    /// Where the system shows it.
    pub path: PathBuf,
    disk: u32,
    /// Do its requests wait for the next daemon when this one dies?
    recovers: bool,
    /// Until it is closed.
    served: RefCell<Option<(Rc<Server>, env::Task<()>)>>,
    /// Where the driver can be told of a new size.
    growing: RefCell<Option<Growth>>,
    /// Keeps what is served open.
    _hold: Box<dyn std::any::Any>,
}

/// What is to be shown.
pub struct Wanted<'a> {
    /// The export's name.
    pub export: &'a str,
    pub data_dir: &'a Path,
    pub device: Rc<dyn Device>,
    /// What the device stands on, in words that no other device has.
    pub identity: &'a str,
    /// What it stood on before: a disk that waits for that ends.
    pub former: &'a [String],
    pub read_only: bool,
    /// Does the device show every write that an earlier daemon answered?
    pub found_all: bool,
    /// Keeps the device open.
    pub hold: Box<dyn std::any::Any>,
}

impl Wanted<'_> {
    /// By which the driver keeps the disk.
    fn number(&self) -> u64 {
        self.number_on(self.identity)
    }

    /// By which it kept the disks of before.
    fn former_numbers(&self) -> Vec<u64> {
        self.former.iter().map(|it| self.number_on(it)).collect()
    }

    fn number_on(&self, identity: &str) -> u64 {
        let only = if self.read_only { ", read-only" } else { "" };
        server_number(Identity {
            daemon: &daemon_of(self.data_dir),
            export: self.export,
            device: &format!("{identity}{only}"),
        })
    }
}

impl UblkDisk {
    /// Shows a device as a disk of the kernel; goes on with the one that an earlier daemon with this data directory left.
    ///
    /// # Errors
    /// In words, with what to do.
    pub async fn open(wanted: Wanted<'_>) -> anyhow::Result<UblkDisk> {
        let export = wanted.export;
        let failed = || format!("export {export}: ublk");
        let info = wanted.device.info();
        let read_only = wanted.read_only;
        let asked = Asked {
            number: wanted.number(),
            former: wanted.former_numbers(),
            info: info.clone(),
            read_only,
            found_all: wanted.found_all,
        };
        if let Err(error) = env::commands::serve_block_devices() {
            tracing::warn!(export, %error, "this thread may wait for its own disk when memory is short");
        }
        let ready = on_a_thread(move || ready(&asked)).await;
        let Ready {
            disk,
            recovered,
            grows,
        } = ready.with_context(failed)?;
        let number = disk.disk;
        let kernel = open_queue(&disk).await;
        if kernel.is_err() && !recovered {
            // Nothing is left of a disk that was never shown.
            let _ = on_a_thread(move || Ok(Control::open()?.delete(number)?)).await;
        }
        let kernel = Rc::new(kernel.with_context(failed)?);
        let server = Server::new(kernel, wanted.device, read_only);
        let mut serving = env::spawn(Rc::clone(&server).serve(disk.depth));
        let starting = on_a_thread(move || begin(number, recovered));
        let begun = first_of(starting, &mut serving).await.with_context(failed);
        if let Err(error) = begun {
            if !recovered {
                never_shown(number, server, serving).await;
            }
            return Err(error);
        }
        let path = control::path_of(number);
        let recovers = info.crash_keeping && disk.flags & feature::USER_RECOVERY != 0;
        let at = path.display();
        tracing::info!(export, path = %at, recovered, recovers, "a disk of the kernel is served");
        let shown = disk.size.unwrap_or(info.size);
        let growing = grows.then(|| {
            let announce = move |size| update_size(number, size);
            Growth::begin(Rc::downgrade(&server), shown, announce)
        });
        Ok(UblkDisk {
            export: export.to_owned(),
            path,
            disk: number,
            recovers,
            served: RefCell::new(Some((server, serving))),
            growing: RefCell::new(growing),
            _hold: wanted.hold,
        })
    }

    /// What it did so far.
    pub fn requests(&self) -> DiskRequests {
        let served = self.served.borrow();
        let counters = served.as_ref().map(|(server, _)| server.counters());
        counters.unwrap_or_default().into()
    }

    /// Ends it. One that is in use and recoverable answers nothing more from here on, and waits for the next daemon.
    ///
    /// # Errors
    /// In words.
    pub async fn close(&self) -> anyhow::Result<()> {
        let growing = self.growing.take();
        if let Some(growing) = growing {
            growing.end().await;
        }
        let path = self.path.clone();
        // On a thread: the system may wait for a request that this one serves.
        let in_use = on_a_thread(move || Ok(in_use(&path))).await?;
        if self.recovers && in_use {
            let server = self
                .served
                .borrow()
                .as_ref()
                .map(|(server, _)| Rc::clone(server));
            if let Some(server) = server {
                server.halt();
                server.wait_quiet().await;
            }
            tracing::warn!(
                export = self.export,
                path = %self.path.display(),
                "the disk is in use: its requests wait for the next start"
            );
            return Ok(());
        }
        if in_use {
            tracing::warn!(
                export = self.export,
                path = %self.path.display(),
                "the disk is in use, and its device does not keep what was answered: its requests fail from now on"
            );
        }
        let disk = self.disk;
        let failed = || format!("export {}: ublk", self.export);
        stop(disk).await.with_context(failed)?;
        let served = self.served.take();
        if let Some((server, serving)) = served {
            serving.await;
            // The driver lets a disk go once its queue's file is closed.
            drop(server);
        }
        delete(disk).await.with_context(failed)
    }
}

/// Can the driver make disks?
///
/// # Errors
/// Why not, in words.
pub async fn is_offered() -> anyhow::Result<()> {
    on_a_thread(|| Control::open().map(drop).map_err(no_driver)).await
}

/// Takes a disk back: its tags end.
async fn stop(disk: u32) -> anyhow::Result<()> {
    on_a_thread(move || Ok(Control::open()?.stop(disk)?)).await
}

/// Removes a disk that was taken back.
async fn delete(disk: u32) -> anyhow::Result<()> {
    let deleted = on_a_thread(move || Ok(Control::open()?.delete(disk)?));
    // An older driver waits for the last user. The disk goes with it.
    let deleted = env::timeout(DELETE_TIMEOUT, deleted).await;
    deleted.unwrap_or(Ok(()))
}

/// Removes a disk that was made, is served and could not be shown, so that the next attempt does not find it.
async fn never_shown(disk: u32, server: Rc<Server>, serving: env::Task<()>) {
    let removed = async {
        stop(disk).await?;
        if !serving.is_done() {
            // The driver waits for them all, and not all may be its to end.
            let ended = env::timeout(DELETE_TIMEOUT, serving).await;
            ended.context("its tags do not end")?;
        }
        // The driver lets a disk go once its queue's file is closed.
        drop(server);
        delete(disk).await
    };
    if let Err(error) = removed.await {
        let (path, error) = (control::path_of(disk), said::words(&error));
        tracing::warn!(path = %path.display(), error, "a disk that could not be shown is not removed");
    }
}

/// Shows a disk whose tags are fetched.
fn begin(disk: u32, recovered: bool) -> anyhow::Result<()> {
    let mut driver = Control::open()?;
    match recovered {
        true => driver.end_recovery(disk),
        false => driver.start(disk),
    }?;
    tune(disk);
    Ok(())
}

/// Says to the system that a disk has another size.
async fn update_size(disk: u32, size: Bytes) -> io::Result<()> {
    let updated = on_a_thread(move || {
        let mut driver = Control::open()?;
        // Another program may have stopped it a moment ago: some drivers crash then.
        if driver.info(disk)?.state != State::Live {
            bail!("the disk was stopped");
        }
        Ok(driver.update_size(disk, size)?)
    });
    let updated = updated.await;
    updated.map_err(|error| io::Error::other(said::words(&error)))
}

/// A disk that is asked for.
struct Asked {
    /// Of its server.
    number: u64,
    /// Of the servers of disks that are not to go on.
    former: Vec<u64>,
    info: device::Info,
    read_only: bool,
    found_all: bool,
}

/// A disk that is not begun yet.
struct Ready {
    disk: DiskInfo,
    /// It was taken over, else made.
    recovered: bool,
    /// The driver can be told of a new size.
    grows: bool,
}

/// Makes a disk, or takes one over.
fn ready(asked: &Asked) -> anyhow::Result<Ready> {
    let mut driver = Control::open().map_err(no_driver)?;
    let features = driver
        .features()
        .context("the driver does not say what it offers; Linux 6.5 or later is needed")?;
    if features & NEEDED != NEEDED {
        bail!("the driver does not copy data (user copy); Linux 6.5 or later is needed");
    }
    let grows = features & feature::UPDATE_SIZE != 0;
    let mut disks = driver.disks()?;
    for disk in disks.iter_mut().filter(|it| it.server == asked.number) {
        disk.size = driver.size(disk.disk);
    }
    for disk in past(&disks, &asked.former, lives) {
        end(&mut driver, &disk)?;
    }
    let export = Export {
        server: asked.number,
        size: asked.info.size,
        found_all: asked.found_all,
    };
    match plan(&disks, export, lives) {
        Plan::Busy(disk) => bail!(
            "{} is served by process {}; stop that daemon first, or give this one a data_dir of its own",
            control::path_of(disk.disk).display(),
            disk.process
        ),
        Plan::Recover(disk) => {
            take_over(&mut driver, &disk)?;
            return Ok(Ready {
                disk,
                recovered: true,
                grows,
            });
        }
        Plan::Replace(disk) => end(&mut driver, &disk)?,
        Plan::Make => {}
    }
    let disk = make(&mut driver, asked, features)?;
    Ok(Ready {
        disk,
        recovered: false,
        grows,
    })
}

/// Ends a disk that cannot go on.
fn end(driver: &mut Control, disk: &DiskInfo) -> anyhow::Result<()> {
    if disk.state != State::Dead {
        tracing::error!(
            path = %control::path_of(disk.disk).display(),
            "a disk waits for this daemon, and what was answered before the last one ended is not all there, or the device is \
             smaller now: the disk ends with errors; unmount what is on it, check it (fsck), and mount the new disk"
        );
        driver.stop(disk.disk)?;
    }
    // It may be mounted still, and an older driver waits for that: the new disk does not.
    let number = disk.disk;
    let thread = std::thread::Builder::new().name("tanada-ublk".into());
    thread.spawn(move || Control::open().and_then(|mut driver| driver.delete(number)))?;
    Ok(())
}

/// Makes a disk, with what of `features` it can use.
fn make(driver: &mut Control, asked: &Asked, features: u64) -> anyhow::Result<DiskInfo> {
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let flags = match asked.info.crash_keeping {
        true => NEEDED | recovery & features,
        false => NEEDED,
    };
    let disk = driver.add(flags, asked.number)?;
    if let Err(error) = driver.set_parameters(disk.disk, &asked.info, asked.read_only) {
        // Nothing is left of it.
        let _ = driver.delete(disk.disk);
        return Err(error.into());
    }
    Ok(disk)
}

fn no_driver(error: io::Error) -> anyhow::Error {
    let todo = match error.kind() {
        io::ErrorKind::NotFound => {
            "this kernel has no ublk driver loaded: `modprobe ublk_drv` (Linux 6.5 or later)"
        }
        io::ErrorKind::PermissionDenied => "run the daemon as root, or with CAP_SYS_ADMIN",
        _ => "`tanada doctor` says what this kernel offers",
    };
    anyhow::Error::new(error).context(format!("/dev/ublk-control cannot be used; {todo}"))
}

/// Begins the recovery of a disk once the driver has seen that its server is gone.
fn take_over(driver: &mut Control, disk: &DiskInfo) -> anyhow::Result<()> {
    let attempts = RECOVERY_TIMEOUT.0 / EVERY.0;
    for _ in 0..attempts {
        match driver.start_recovery(disk.disk) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            // Another daemon began it, and died before it served the disk.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && driver.info(disk.disk)?.state == State::Quiesced =>
            {
                return Ok(());
            }
            answer => return answer.context("the disk cannot be taken over"),
        }
        std::thread::park_timeout(EVERY.duration());
    }
    bail!(
        "the driver still waits for the dead daemon of {}; try again, or restart the machine",
        control::path_of(disk.disk).display()
    )
}

/// The queue of a disk that was just made, whose file the system may be a moment late with, or another program may look at.
async fn open_queue(disk: &DiskInfo) -> io::Result<Kernel> {
    let end = env::now() + QUEUE_TIMEOUT;
    loop {
        match Kernel::open(disk) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy
                ) && env::now() < end => {}
            answer => return answer,
        }
        env::sleep(EVERY).await;
    }
}

/// Waits until the disk is `begun`; an error if its tags end before.
async fn first_of(
    begun: impl Future<Output = anyhow::Result<()>>,
    serving: &mut env::Task<()>,
) -> anyhow::Result<()> {
    let mut begun = std::pin::pin!(begun);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(answer) = begun.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        std::pin::Pin::new(&mut *serving).poll(cx).map(|()| {
            Err(anyhow!(
                "the driver takes no commands of this thread; `tanada doctor` says whether io_uring is allowed"
            ))
        })
    })
    .await
}

/// Names the daemon whose data directory this is, on this machine and in this container.
pub(super) fn daemon_of(data_dir: &Path) -> String {
    let path = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let place = fs::metadata(&path).map(|folder| (folder.dev(), folder.ino()));
    format!("{} {:?}", path.display(), place.unwrap_or_default())
}

/// Choices of the block layer that suit a disk of ours; what cannot be set stays as it is.
fn tune(disk: u32) {
    for (key, value) in [("scheduler", "none"), ("io_timeout", IO_TIMEOUT)] {
        let path = format!("/sys/block/ublkb{disk}/queue/{key}");
        if let Err(error) = fs::write(&path, value) {
            tracing::debug!(path, %error, "could not be set");
        }
    }
}

/// May the disk be mounted, or open exclusively? Only an exclusive opening shows that it is not.
fn in_use(path: &Path) -> bool {
    OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
        .open(path)
        .is_err()
}
