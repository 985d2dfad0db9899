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
//! 2. A disk whose device is not crash-keeping is never left to the next start.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use base::Nanos;
use device::Device;
use front::ublk::proto::{DiskInfo, NEEDED, feature};
use front::ublk::recover::{Plan, plan, server_number};
use front::ublk::{Control, Counters, Kernel, Server, control};

/// How long a dead server may take to go.
const RECOVERY_TIMEOUT: Nanos = Nanos::secs(60);
/// Between two attempts to take a disk over.
const RECOVERY_EVERY: Nanos = Nanos::millis(100);
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
    /// Keeps what is served open.
    _hold: Box<dyn std::any::Any>,
}

/// Runs `work`, which may wait, on a thread of its own.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (poster, mut mailbox) = env::mailbox();
    let thread = std::thread::Builder::new().name("tanada-ublk".into());
    let thread = thread.spawn(move || {
        // A reader that went away misses nothing.
        let _ = poster.post(work());
    })?;
    let answer = mailbox.receive().await;
    // It has posted, or it panicked.
    let _ = thread.join();
    answer
        .map_err(|_| anyhow!("the thread that speaks to the ublk driver ended without an answer"))?
}

impl UblkDisk {
    /// Shows `device` as a disk of the kernel; goes on with the one that an earlier daemon with this `data_dir` left.
    ///
    /// # Errors
    /// In words, with what to do.
    pub async fn open(
        (export, read_only): (&str, bool),
        data_dir: &Path,
        device: Rc<dyn Device>,
        hold: Box<dyn std::any::Any>,
    ) -> anyhow::Result<UblkDisk> {
        let failed = || format!("export {export}: ublk");
        let info = device.info();
        let data_dir = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let number = server_number(&data_dir.to_string_lossy(), export);
        let recovers = info.crash_keeping;
        let ready = on_a_thread({
            let info = info.clone();
            move || ready(number, &info, read_only)
        });
        let (disk, recovered) = ready.await.with_context(failed)?;
        let kernel = Kernel::open(disk.disk).with_context(failed)?;
        let server = Server::new(Rc::new(kernel), device, read_only);
        let serving = env::spawn(Rc::clone(&server).serve(disk.depth));
        let number = disk.disk;
        let begun = on_a_thread(move || {
            let mut driver = Control::open()?;
            match recovered {
                true => driver.end_recovery(number),
                false => driver.start(number),
            }?;
            tune(number);
            Ok(())
        });
        begun.await.with_context(failed)?;
        let path = control::path_of(number);
        tracing::info!(
            export,
            path = %path.display(),
            recovered,
            recovers,
            "a disk of the kernel is served"
        );
        Ok(UblkDisk {
            export: export.to_owned(),
            path,
            disk: number,
            recovers: recovers && disk.flags & feature::USER_RECOVERY != 0,
            served: RefCell::new(Some((server, serving))),
            _hold: hold,
        })
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        let served = self.served.borrow();
        served
            .as_ref()
            .map_or_else(Counters::default, |(server, _)| server.counters())
    }

    /// Ends it. One that is in use and recoverable answers nothing more from here on, and waits for the next daemon.
    ///
    /// # Errors
    /// In words.
    pub async fn close(&self) -> anyhow::Result<()> {
        if self.recovers && in_use(&self.path) {
            let server = self
                .served
                .borrow()
                .as_ref()
                .map(|(server, _)| Rc::clone(server));
            if let Some(server) = server {
                server.halt();
                server.wait_quiet().await;
            }
            tracing::info!(
                export = self.export,
                path = %self.path.display(),
                "the disk is in use: its requests wait for the next start"
            );
            return Ok(());
        }
        let disk = self.disk;
        let failed = || format!("export {}: ublk", self.export);
        let stopped = on_a_thread(move || Ok(Control::open()?.stop(disk)?));
        stopped.await.with_context(failed)?;
        let served = self.served.take();
        if let Some((server, serving)) = served {
            serving.await;
            // The driver lets a disk go once its queue's file is closed.
            drop(server);
        }
        let deleted = on_a_thread(move || Ok(Control::open()?.delete(disk)?));
        deleted.await.with_context(failed)
    }
}

/// A disk for the server `number`, made or taken over, that is not begun yet; was it taken over?
fn ready(number: u64, info: &device::Info, read_only: bool) -> anyhow::Result<(DiskInfo, bool)> {
    let mut driver = Control::open().map_err(no_driver)?;
    let features = driver
        .features()
        .context("the driver does not say what it offers; Linux 6.5 or later is needed")?;
    if features & NEEDED != NEEDED {
        bail!("the driver does not copy data (user copy); Linux 6.5 or later is needed");
    }
    let disks = driver.disks()?;
    match plan(&disks, number, info.crash_keeping, lives) {
        Plan::Busy(disk) => bail!(
            "{} is served by process {}; stop that daemon first, or give this one a data_dir of its own",
            control::path_of(disk.disk).display(),
            disk.process
        ),
        Plan::Recover(disk) => {
            take_over(&mut driver, disk.disk)?;
            return Ok((disk, true));
        }
        Plan::Replace(disk) => {
            tracing::warn!(
                path = %control::path_of(disk.disk).display(),
                "a disk is left of an earlier daemon, and its device does not keep what was answered: it ends with errors"
            );
            driver.stop(disk.disk)?;
            driver.delete(disk.disk)?;
        }
        Plan::Make => {}
    }
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let flags = match info.crash_keeping {
        true => NEEDED | recovery & features,
        false => NEEDED,
    };
    let disk = driver.add(flags, number)?;
    if let Err(error) = driver.set_parameters(disk.disk, info, read_only) {
        // Nothing is left of it.
        let _ = driver.delete(disk.disk);
        return Err(error.into());
    }
    Ok((disk, false))
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
fn take_over(driver: &mut Control, disk: u32) -> anyhow::Result<()> {
    let attempts = RECOVERY_TIMEOUT.0 / RECOVERY_EVERY.0;
    for _ in 0..attempts {
        match driver.start_recovery(disk) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            answer => return answer.context("the disk cannot be taken over"),
        }
        std::thread::park_timeout(RECOVERY_EVERY.duration());
    }
    bail!(
        "the driver still waits for the dead daemon of disk {disk}; try again, or restart the machine"
    )
}

/// Does this process live?
fn lives(process: i32) -> bool {
    process > 0 && Path::new(&format!("/proc/{process}")).exists()
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

/// Is the disk mounted, or open exclusively?
fn in_use(path: &Path) -> bool {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
        .open(path);
    open.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}
