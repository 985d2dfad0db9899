//! A file or block device of this machine.
//!
//! ```text
//! open:    path -> kind -> mounted, held? -> claim -> open -> lock -> size -> File | OpenError
//! request: aligned? --yes--> env::fs (io_uring or threads)
//!             '--no--> bounce through an aligned buffer; writes read the blocks at their edges first,
//!                      one at a time per block
//! ```
//!
//! A block device is claimed exclusively (`O_EXCL`), so that it is not mounted meanwhile; a file or device is
//! locked (`flock`), so that two Tanadas do not write to it at once. Both end with the process, however
//! it ends.
//!
//! Always true:
//! 1. Data go around the page cache for the whole life of a `File`, or through it for the whole life.
//! 2. After a flush failed no flush succeeds: the kernel reports a lost write once and then forgets it.
//! 3. A write never changes a byte outside its span, also when the target's blocks are larger than it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use base::{Buf, Bytes, PAGE, SECTOR, Sector, Span, View};
use env::fs::Direct;
use env::sync::{Event, Semaphore};
use rustix::fs::{FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::memory::Waiting;
use crate::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags, ready};

/// How to open a file or block device.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    /// Refuse writes; others may read at the same time.
    pub read_only: bool,
    /// Go around the page cache?
    pub direct: Direct,
    /// Open it even if it is mounted, held by the kernel, or locked by another process.
    pub force: bool,
    /// If there is nothing at the path, create a sparse file of this size.
    pub create: Option<Bytes>,
    /// Send whole blocks of at least this size (a power of two), for drives that claim 512-byte blocks
    /// and are slow at them. The target's own alignment holds in any case.
    pub block_min: Option<Bytes>,
}

/// Why a file or block device was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing is there.
    #[error(
        "cannot open {}: there is no such file; check the path, or give a size to create it",
        path.display()
    )]
    Missing {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error(
        "cannot open {}: it is {kind}; name a regular file or a block device",
        path.display()
    )]
    NotStorage {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It holds less than a sector.
    #[error(
        "cannot use {}: it holds {size} bytes, less than one sector of 512; give it a size \
         (truncate -s), or remove it and have it created",
        path.display()
    )]
    Empty {
        /// What was to be opened.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// It can perhaps be read, but not written.
    #[error(
        "cannot open {} for writing: {source}; change its permissions or run as their owner, or \
         open it read-only",
        path.display()
    )]
    NotWritable {
        /// What was to be opened.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file system on it, or on a partition of it, is mounted.
    #[error(
        "cannot use {}: {part} is mounted on {at}; unmount it, or force it if you know that nothing \
         writes there",
        path.display()
    )]
    Mounted {
        /// What was to be opened.
        path: PathBuf,
        /// The device that is mounted: it or a partition of it.
        part: String,
        /// Where.
        at: String,
    },
    /// The kernel, or a program, has exclusive use of it.
    #[error(
        "cannot use {}: it is in use by {by}; end that use, or force it if you know that nothing \
         writes there",
        path.display()
    )]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// By what, as far as the system says.
        by: String,
    },
    /// Another process has it open.
    #[error(
        "cannot use {}: {} has it open{}; stop that one first, or force it if you know that it does \
         not write",
        path.display(),
        holder(*pid),
        if *read_only { " for writing" } else { "" }
    )]
    Locked {
        /// What was to be opened.
        path: PathBuf,
        /// Who holds the lock, where the system says.
        pid: Option<u32>,
        /// Was it to be opened for reading only?
        read_only: bool,
    },
    /// Direct I/O was asked for and cannot be had.
    #[error("cannot open {} for direct I/O: {why}; open it with direct = \"auto\" or \"no\"", path.display())]
    NoDirect {
        /// What was to be opened.
        path: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// The option makes no sense.
    #[error(
        "cannot open {} with blocks of {asked} bytes: name a power of two from 512 to 1048576",
        path.display()
    )]
    BlockSize {
        /// What was to be opened.
        path: PathBuf,
        /// The block size asked for, in bytes.
        asked: u64,
    },
    /// The system refused.
    #[error("cannot open {}: {source}", path.display())]
    System {
        /// What was to be opened.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim_end()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    }
}

// --- open checks ------------------------------------------------------------------------------------

/// A device number: major, minor.
type Number = (u32, u32);

fn number(raw: u64) -> Number {
    (rustix::fs::major(raw), rustix::fs::minor(raw))
}

fn sysfs((major, minor): Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn parse_number(text: &str) -> Option<Number> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The device's name in `/dev` as the kernel knows it.
fn kernel_name(device: Number) -> String {
    let link = std::fs::read_link(sysfs(device)).ok();
    let name = link.as_deref().and_then(Path::file_name);
    match name {
        Some(name) => format!("/dev/{}", name.to_string_lossy()),
        None => format!("block device {}:{}", device.0, device.1),
    }
}

/// The device and its partitions.
fn parts(device: Number) -> Vec<Number> {
    let children = std::fs::read_dir(sysfs(device)).into_iter().flatten();
    let partitions = children.filter_map(|child| {
        let child = child.ok()?.path();
        let number = std::fs::read_to_string(child.join("dev")).ok()?;
        child.join("partition").exists().then_some(())?;
        parse_number(&number)
    });
    std::iter::once(device).chain(partitions).collect()
}

/// The kernel writes a space in a path as `\040`, and so on.
fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = text
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The first of `devices` that is mounted according to `mountinfo`, and where. `number_of` returns the
/// device number of a path, for file systems that do not report that of their device (btrfs).
fn mount_of(
    mountinfo: &str,
    devices: &[Number],
    number_of: impl Fn(&str) -> Option<Number>,
) -> Option<(Number, String)> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let own = fields.nth(2).and_then(parse_number)?;
        let at = fields.nth(1)?;
        let (_, after) = line.split_once(" - ")?;
        let source = unescape(after.split(' ').nth(1)?);
        let by_source = || {
            let path = source.starts_with('/').then_some(&source)?;
            number_of(path)
        };
        let found = [Some(own), by_source()]
            .into_iter()
            .flatten()
            .find(|number| devices.contains(number))?;
        Some((found, unescape(at)))
    })
}

fn block_number(path: &str) -> Option<Number> {
    let status = std::fs::metadata(path).ok()?;
    let block = status.file_type().is_block_device();
    block.then(|| number(status.rdev()))
}

/// What else in the kernel holds one of `devices`, in words.
fn kernel_user(devices: &[Number]) -> Option<String> {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().skip(1).find_map(|line| {
        let path = unescape(line.split_whitespace().next()?);
        devices.contains(&block_number(&path)?).then_some(path)
    });
    if let Some(path) = swap {
        return Some(format!("the kernel as swap space ({path})"));
    }
    devices.iter().find_map(|device| {
        let mut holders = std::fs::read_dir(sysfs(*device).join("holders")).ok()?;
        let holder = holders.next()?.ok()?.file_name();
        Some(format!("/dev/{}", holder.to_string_lossy()))
    })
}

/// Who holds an `flock` on this inode, from the text of `/proc/locks`.
fn lock_holder(locks: &str, device: Number, inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // "3: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF"; a waiter has "->" as its second field.
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else {
            return None;
        };
        (place == wanted).then(|| pid.parse().ok()).flatten()
    })
}

fn who_locks(status: &std::fs::Metadata) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    lock_holder(&locks, number(status.dev()), status.ino())
}

/// Looks again after this long, while a device or file may be about to become free.
const LOOK_AGAIN: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// So often if another process holds it. Udev probes a device for some milliseconds after each use, and a
/// process being started holds everything its parent has open until it runs.
const LOOKS_IF_HELD: u32 = 20;
/// So often if its holder has ended: the lock of a process that was killed goes when the kernel has
/// ended its last requests.
const LOOKS_IF_LEFT: u32 = 500;

/// Waits before the next look. Blocks: opening comes before anything this could hold up.
fn pause() {
    let _ = rustix::event::poll(&mut [], Some(&LOOK_AGAIN));
}

/// Refuses a block device that is mounted or held, and takes it for us until the answer drops.
fn claim(
    path: &Path,
    status: &std::fs::Metadata,
    options: &FileOptions,
) -> Result<Option<OwnedFd>, OpenError> {
    let devices = parts(number(status.rdev()));
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mount_of(&mountinfo, &devices, block_number);
    if let (Some((part, at)), false) = (mounted, options.force) {
        return Err(OpenError::Mounted {
            path: path.to_owned(),
            part: kernel_name(part),
            at,
        });
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut looks = 0;
    let errno = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(claim) => return Ok(Some(claim)),
            Err(Errno::BUSY) if options.force => return Ok(None),
            Err(Errno::BUSY) if looks < LOOKS_IF_HELD => {
                looks += 1;
                pause();
            }
            Err(errno) => break errno,
        }
    };
    let path = path.to_owned();
    Err(match (errno, who_locks(status), kernel_user(&devices)) {
        (Errno::BUSY, pid @ Some(_), _) => OpenError::Locked {
            path,
            pid,
            read_only: options.read_only,
        },
        (Errno::BUSY, None, by) => OpenError::InUse {
            path,
            by: by.unwrap_or_else(|| {
                "the kernel or another program (a mount elsewhere, RAID, LVM)".to_owned()
            }),
        },
        _ => OpenError::System {
            path,
            source: errno.into(),
        },
    })
}

fn kind_of(status: &std::fs::Metadata) -> Option<&'static str> {
    let kind = status.file_type();
    if kind.is_file() || kind.is_block_device() {
        return None;
    }
    Some(match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "something else",
    })
}

fn is_alive(pid: u32) -> bool {
    // "1234 (name) S ...": the name may hold anything, also a parenthesis.
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Takes the lock that keeps a second Tanada out.
fn lock(file: &env::fs::File, path: &Path, options: &FileOptions) -> Result<(), OpenError> {
    let kind = match options.read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let mut looks = 0;
    loop {
        match rustix::fs::flock(file.descriptor(), kind) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if options.force => {
                tracing::warn!(path = %path.display(), "another process has it open; forced");
                return Ok(());
            }
            Err(Errno::WOULDBLOCK) => {
                let pid = std::fs::metadata(path).ok().as_ref().and_then(who_locks);
                let held = pid.is_some_and(is_alive);
                if looks >= if held { LOOKS_IF_HELD } else { LOOKS_IF_LEFT } {
                    return Err(OpenError::Locked {
                        path: path.to_owned(),
                        pid,
                        read_only: options.read_only,
                    });
                }
                looks += 1;
                pause();
            }
            Err(errno) => {
                // Some network file systems have no locks: say so, and go on without.
                tracing::warn!(path = %path.display(), error = %errno, "cannot be locked");
                return Ok(());
            }
        }
    }
}

fn open_with(
    path: &Path,
    options: &FileOptions,
    direct: Direct,
) -> Result<env::fs::File, OpenError> {
    let below = env::fs::Options {
        read_only: options.read_only,
        direct,
        create: options.create,
    };
    env::fs::File::open(path, &below).map_err(|source| {
        let path = path.to_owned();
        let refused = matches!(
            source.kind(),
            io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::ExecutableFileBusy
        );
        if refused && !options.read_only {
            OpenError::NotWritable { path, source }
        } else if direct == Direct::Yes && source.kind() == io::ErrorKind::Unsupported {
            let why = source.to_string();
            OpenError::NoDirect { path, why }
        } else {
            OpenError::System { path, source }
        }
    })
}

/// What sysfs says of a disk's queue; a partition shares that of its disk.
fn queue_figure(device: Number, name: &str) -> Option<u64> {
    let own = sysfs(device);
    let whole = own.canonicalize().ok()?;
    [own, whole.parent()?.to_owned()].iter().find_map(|folder| {
        let text = std::fs::read_to_string(folder.join("queue").join(name)).ok()?;
        text.trim().parse().ok()
    })
}

// --- range locks ------------------------------------------------------------------------------------

/// Bytes that one write has to itself while it reads and rewrites whole blocks. First come, first
/// served: a span waits for every earlier one it overlaps.
#[derive(Default)]
struct RangeLocks {
    next: Cell<u64>,
    /// Waiting and held: (number, first byte, end).
    spans: RefCell<Vec<(u64, u64, u64)>>,
    changed: Event,
}

struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    own: u64,
}

impl RangeLocks {
    async fn lock(&self, start: u64, end: u64) -> RangeGuard<'_> {
        let own = self.next.get();
        self.next.set(own + 1);
        self.spans.borrow_mut().push((own, start, end));
        let guard = RangeGuard { locks: self, own };
        while self.is_blocked(own, start, end) {
            self.changed.wait().await;
        }
        guard
    }

    fn is_blocked(&self, own: u64, start: u64, end: u64) -> bool {
        let spans = self.spans.borrow();
        spans
            .iter()
            .any(|&(other, from, to)| other < own && from < end && start < to)
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut spans = self.locks.spans.borrow_mut();
        spans.retain(|&(number, ..)| number != self.own);
        drop(spans);
        self.locks.changed.notify_all();
    }
}

// --- the device -------------------------------------------------------------------------------------

/// A file or block device. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::file::{File, FileOptions};
/// use device::{Device, DeviceExt};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("disk.img");
/// let runtime = env::Runtime::real(env::RealConfig::default())?;
/// runtime.block_on(async move {
///     let options = FileOptions { create: Some(Bytes::mib(1)), ..FileOptions::default() };
///     let file = File::open("disk", &path, options).unwrap();
///     file.write_at(Sector(1), View::copy_of(&[7; 512])).await.unwrap();
///     file.flush().await.unwrap();
///     assert_eq!(file.read_at(Sector(1), Bytes(512)).await.unwrap()[..], [7; 512]);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    // Fixed at open.
    info: Info,
    path: PathBuf,
    file: env::fs::File,
    own: Weak<File>,
    /// Alignment of buffers in memory.
    memory_align: usize,
    /// Places and lengths the target takes are multiples of this; at least a sector.
    unit: u64,
    /// Our exclusive use of a block device.
    _claim: Option<OwnedFd>,
    // Per request.
    locks: RangeLocks,
    waiting: Cell<usize>,
    /// Why the first failed flush failed.
    flush_failed: RefCell<Option<String>>,
    syncing: Rc<Semaphore>,
}

/// Discards and zeroes are passed on in blocks of this size; file systems and flash manage no smaller.
const CLEAR_UNIT: u64 = PAGE as u64;
/// Zeroes are written in pieces of this size where the target cannot make them itself.
const ZERO_PIECE: u64 = 1 << 20;
/// At most so many holes and pieces of data are looked up for one answer; what follows counts as data.
const ALLOCATION_PIECES_MAX: usize = 256;

impl File {
    /// Opens `path` as the device `name`. To be called inside a real runtime. What may be refused and
    /// why: [`OpenError`].
    ///
    /// # Errors
    /// [`OpenError`], each with the path and what to do.
    pub fn open(
        name: impl Into<String>,
        path: impl AsRef<Path>,
        options: FileOptions,
    ) -> Result<Rc<File>, OpenError> {
        let path = path.as_ref();
        let system = |source| OpenError::System {
            path: path.to_owned(),
            source,
        };
        let block_min = options.block_min.unwrap_or(Bytes(SECTOR)).0;
        if !block_min.is_power_of_two() || !(SECTOR..=1 << 20).contains(&block_min) {
            return Err(OpenError::BlockSize {
                path: path.to_owned(),
                asked: block_min,
            });
        }
        let mut block_device = false;
        let claim = match std::fs::metadata(path) {
            Ok(status) => {
                if let Some(kind) = kind_of(&status) {
                    let path = path.to_owned();
                    return Err(OpenError::NotStorage { path, kind });
                }
                block_device = status.file_type().is_block_device();
                match block_device {
                    true => claim(path, &status, &options)?,
                    false => None,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if options.create.is_none() {
                    let path = path.to_owned();
                    return Err(OpenError::Missing { path });
                }
                None
            }
            Err(error) => return Err(system(error)),
        };
        let mut file = match (block_device, options.direct) {
            // A node in `/dev` lives on a file system in memory; the device behind it does not, so
            // "where it makes sense" is not left to the file system.
            (true, Direct::Auto) => match open_with(path, &options, Direct::Yes) {
                Err(OpenError::NoDirect { .. }) => open_with(path, &options, Direct::No)?,
                answer => answer?,
            },
            (_, direct) => open_with(path, &options, direct)?,
        };
        let align = file.dio_align() as u64;
        if align > SECTOR && file.size().0 % align != 0 {
            // Direct I/O could not reach the last sectors.
            let size = file.size().0;
            let why = format!("its {size} bytes are not whole blocks of {align}");
            if options.direct == Direct::Yes {
                let path = path.to_owned();
                return Err(OpenError::NoDirect { path, why });
            }
            tracing::warn!(path = %path.display(), why, "going through the page cache");
            file = open_with(path, &options, Direct::No)?;
        }
        lock(&file, path, &options)?;
        let size = file.size() - Bytes(file.size() % SECTOR);
        if size.0 == 0 {
            return Err(OpenError::Empty {
                path: path.to_owned(),
                size: file.size().0,
            });
        }
        let info = describe(name.into(), &file, path, size, &options).map_err(system)?;
        let align = file.dio_align();
        Ok(Rc::new_cyclic(|own| File {
            own: Weak::clone(own),
            info,
            path: path.to_owned(),
            memory_align: align,
            unit: (align as u64).max(SECTOR).max(block_min),
            file,
            _claim: claim,
            locks: RangeLocks::default(),
            waiting: Cell::new(0),
            flush_failed: RefCell::new(None),
            syncing: Semaphore::new(1),
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Do data go around the page cache?
    pub fn is_direct(&self) -> bool {
        self.file.direct()
    }

    fn error(&self, op: Op, span: Span, error: &io::Error) -> DeviceError {
        let path = self.path.display();
        if error.kind() == io::ErrorKind::StorageFull
            || error.kind() == io::ErrorKind::QuotaExceeded
        {
            return DeviceError::NoSpace {
                device: self.info.name.clone(),
                op,
                why: format!("{path}: {error}; free space on its file system"),
            };
        }
        DeviceError::Io {
            device: self.info.name.clone(),
            op,
            span,
            why: format!("{path}: {error}"),
        }
    }

    /// The whole blocks around bytes `from..to`, cut at the end of the device.
    fn blocks_around(&self, from: u64, to: u64) -> (u64, u64) {
        let start = from - from % self.unit;
        // With direct I/O the size is whole units of the target, so the cut leaves it aligned.
        (start, to.next_multiple_of(self.unit).min(self.info.size.0))
    }

    /// Runs `work` when earlier writes to the blocks around bytes `from..to` have ended.
    ///
    /// Where blocks are larger than sectors it runs to its end even if the caller goes away: it may be
    /// rewriting a neighbour's sector, and the neighbour's next write must not overtake it.
    async fn alone<F>(&self, from: u64, to: u64, work: impl FnOnce(Rc<File>) -> F) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>> + 'static,
    {
        let own = self.own.upgrade().expect("the caller holds it");
        let work = work(Rc::clone(&own));
        if self.unit == SECTOR {
            return work.await;
        }
        let (start, end) = self.blocks_around(from, to);
        let task = env::spawn(async move {
            let _blocks = own.locks.lock(start, end).await;
            work.await
        });
        task.await
    }

    fn fits_memory(&self, address: *const u8) -> bool {
        address.addr().is_multiple_of(self.memory_align)
    }

    async fn read_bytes(&self, at: u64, mut buf: Buf) -> io::Result<Buf> {
        let len = buf.len() as u64;
        let (start, end) = self.blocks_around(at, at + len);
        let address: *const u8 = buf.address();
        if (start, end) == (at, at + len) && self.fits_memory(address) {
            return self.file.read_at(buf, at).await;
        }
        let bounce = Buf::for_read((end - start) as usize);
        let bounce = self.file.read_at(bounce, start).await?;
        let from = (at - start) as usize;
        buf.copy_from_slice(&bounce[from..from + len as usize]);
        Ok(buf)
    }

    /// Writes with the blocks locked by the caller.
    async fn write_bytes(&self, at: u64, data: View, dsync: bool) -> io::Result<()> {
        let to = at + data.len() as u64;
        let (start, end) = self.blocks_around(at, to);
        if (start, end) == (at, to) {
            let data = match self.fits_memory(data.address()) {
                true => data,
                false => View::copy_of(&data),
            };
            return self.file.write_at(data, at, dsync).await;
        }
        let mut whole = Buf::for_read((end - start) as usize);
        let mut read_edge = async |from: u64| -> io::Result<()> {
            let (from, to) = self.blocks_around(from, from + 1);
            let edge = Buf::for_read((to - from) as usize);
            let edge = self.file.read_at(edge, from).await?;
            whole[(from - start) as usize..(to - start) as usize].copy_from_slice(&edge);
            Ok(())
        };
        if start < at {
            read_edge(start).await?;
        }
        let head_holds_tail = start < at && end - start <= self.unit;
        if to < end && !head_holds_tail {
            read_edge(to).await?;
        }
        let from = (at - start) as usize;
        whole[from..from + data.len()].copy_from_slice(&data);
        self.file.write_at(whole.freeze(), start, dsync).await
    }

    async fn zero_bytes(&self, from: u64, to: u64) -> io::Result<()> {
        let unit = CLEAR_UNIT.max(self.unit);
        let body = from.next_multiple_of(unit).min(to);
        let tail = (to - to % unit).max(body);
        for (from, to) in [(from, body), (tail, to)] {
            if from < to {
                let zeroes = Buf::zeroed((to - from) as usize).freeze();
                self.write_bytes(from, zeroes, false).await?;
            }
        }
        if body == tail {
            return Ok(());
        }
        match self.file.zero_range(body, tail - body).await {
            Err(error) if is_unsupported(&error) => {}
            answer => return answer,
        }
        let zeroes = Buf::zeroed(ZERO_PIECE.min(tail - body) as usize).freeze();
        for at in (body..tail).step_by(ZERO_PIECE as usize) {
            let len = ZERO_PIECE.min(tail - at) as usize;
            self.write_bytes(at, zeroes.slice(0, len), false).await?;
        }
        Ok(())
    }

    /// One at a time: the system reports a lost write once, to one of its callers. Another caller must not get the
    /// answer "durable" meanwhile.
    async fn sync(&self, op: Op, span: Span) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire(1).await;
        if let Some(why) = &*self.flush_failed.borrow() {
            return Err(DeviceError::FlushFailed {
                device: self.info.name.clone(),
                why: why.clone(),
            });
        }
        self.file.sync().await.map_err(|error| {
            self.remember_failed_flush(&error);
            self.error(op, span, &error)
        })
    }

    fn remember_failed_flush(&self, error: &io::Error) {
        let mut first = self.flush_failed.borrow_mut();
        first.get_or_insert_with(|| error.to_string());
    }

    /// Checks a request and carries it out, counted as in flight.
    fn serve<'a, T: 'a>(
        &'a self,
        op: Op,
        span: Span,
        work: impl Future<Output = Result<T, DeviceError>> + 'a,
    ) -> Pending<'a, T> {
        if let Err(refusal) = self.info.check(op, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        let waiting = Waiting::begin(&self.waiting);
        Box::pin(async move {
            let answer = work.await;
            drop(waiting);
            answer
        })
    }

    /// Holes and data of a regular file, from `SEEK_DATA` and `SEEK_HOLE`.
    fn pieces(&self, span: Span) -> Vec<(u64, bool)> {
        let (mut at, end) = (span.start.byte(), span.end().byte());
        let mut pieces: Vec<(u64, bool)> = Vec::new();
        let mut push = |len: u64, data: bool| match pieces.last_mut() {
            _ if len == 0 => {}
            Some((last, kind)) if *kind == data => *last += len,
            _ => pieces.push((len, data)),
        };
        for _ in 0..ALLOCATION_PIECES_MAX {
            if at >= end {
                break;
            }
            let descriptor = self.file.descriptor();
            // A sector that is data in part is data.
            let data = match rustix::fs::seek(descriptor, SeekFrom::Data(at)) {
                Ok(data) => (data - data % SECTOR).clamp(at, end),
                // No data from here to the end of the file.
                Err(Errno::NXIO) => end,
                Err(_) => break,
            };
            push(data - at, false);
            at = data;
            if at == end {
                break;
            }
            let Ok(hole) = rustix::fs::seek(descriptor, SeekFrom::Hole(at)) else {
                break;
            };
            let hole = hole.next_multiple_of(SECTOR).clamp(at + SECTOR, end);
            push(hole - at, true);
            at = hole;
        }
        push(end.saturating_sub(at), true);
        pieces
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(libc::EOPNOTSUPP)
}

fn describe(
    name: String,
    file: &env::fs::File,
    path: &Path,
    size: Bytes,
    options: &FileOptions,
) -> io::Result<Info> {
    let status = std::fs::metadata(path)?;
    let block_device = file.is_block_device();
    // For a regular file: the disk its file system lives on, where there is one.
    let disk = number(if block_device {
        status.rdev()
    } else {
        status.dev()
    });
    let figure = |name| queue_figure(disk, name);
    let physical = match block_device {
        true => figure("physical_block_size").unwrap_or(SECTOR),
        false => status.blksize(),
    };
    let physical = physical.max(options.block_min.map_or(0, |min| min.0));
    let physical = match physical.is_power_of_two() {
        true => physical.clamp(SECTOR, 1 << 20),
        false => CLEAR_UNIT,
    };
    Ok(Info {
        name,
        size,
        physical_block: Bytes(physical),
        // The kernel cuts long requests for the device by itself, and sends the pieces all at once.
        max_io: Bytes::mib(32),
        volatile_cache: true,
        discards: !block_device || figure("discard_max_bytes").is_some_and(|most| most > 0),
        rotational: figure("rotational") == Some(1),
        read_only: options.read_only,
    })
}

impl Device for File {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        self.serve(Op::Read, span, async move {
            let read = self.read_bytes(at.byte(), buf).await;
            read.map_err(|error| self.error(Op::Read, span, &error))
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.serve(Op::Write, span, async move {
            let (from, to) = (at.byte(), span.end().byte());
            let write = async move |own: Rc<File>| own.write_bytes(from, data, flags.fua).await;
            self.alone(from, to, write).await.map_err(|error| {
                if flags.fua && !self.file.direct() {
                    // The kernel may have reported here, and only here, that it lost earlier writes.
                    self.remember_failed_flush(&error);
                }
                self.error(Op::Write, span, &error)
            })
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        let span = Span::default();
        self.serve(Op::Flush, span, self.sync(Op::Flush, span))
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.serve(Op::Discard, span, async move {
            // Whole blocks only: what is left of a block at the edges stays as it was.
            let unit = CLEAR_UNIT.max(self.unit);
            let from = span.start.byte().next_multiple_of(unit);
            let to = span.end().byte() - span.end().byte() % unit;
            if from >= to {
                return Ok(());
            }
            let punch = async move |own: Rc<File>| own.file.punch_hole(from, to - from).await;
            match self.alone(from, to, punch).await {
                // Nothing is freed, and the data stay: a discard may do that.
                Err(error) if is_unsupported(&error) => Ok(()),
                answer => answer.map_err(|error| self.error(Op::Discard, span, &error)),
            }
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.serve(Op::WriteZeroes, span, async move {
            let (from, to) = (span.start.byte(), span.end().byte());
            let zero = async move |own: Rc<File>| own.zero_bytes(from, to).await;
            let zeroed = self.alone(from, to, zero).await;
            zeroed.map_err(|error| self.error(Op::WriteZeroes, span, &error))?;
            match flags.fua {
                true => self.sync(Op::WriteZeroes, span).await,
                false => Ok(()),
            }
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.serve(Op::Read, span, async move {
            Ok(match self.file.is_block_device() {
                true => vec![(span.len.0, true)],
                false => self.pieces(span),
            })
        })
    }

    fn in_flight(&self) -> usize {
        self.waiting.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_number_by_partition_and_by_source() {
        let mountinfo = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 8:17 / /mnt/my\\040data rw - ext4 /dev/sdb1 rw
31 22 0:44 / /pool rw - btrfs /dev/sdc rw
32 22 0:5 / /dev rw shared:2 master:3 - devtmpfs devtmpfs rw
";
        let by_path = |path: &str| (path == "/dev/sdc").then_some((8, 32));
        let mounted = |devices: &[Number]| mount_of(mountinfo, devices, by_path);
        let at = |text: &str| text.to_owned();
        assert_eq!(
            mounted(&[(8, 16), (8, 17)]),
            Some(((8, 17), at("/mnt/my data")))
        );
        assert_eq!(mounted(&[(8, 32)]), Some(((8, 32), at("/pool"))));
        assert_eq!(mounted(&[(254, 0)]), Some(((254, 0), at("/"))));
        assert_eq!(mounted(&[(8, 48)]), None);
        assert_eq!(mount_of("garbage\n\n1 2 3", &[(8, 0)], by_path), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_proc_locks() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 700 fe:00:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 701 fe:00:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 702 fe:00:5678 0 EOF
3: FLOCK  ADVISORY  READ 703 08:10:9 0 EOF
";
        assert_eq!(lock_holder(locks, (0xfe, 0), 5678), Some(701));
        assert_eq!(lock_holder(locks, (8, 0x10), 9), Some(703));
        assert_eq!(lock_holder(locks, (8, 0x10), 5678), None);
    }

    #[test]
    fn escapes_in_kernel_tables_become_characters_and_nothing_else_changes() {
        assert_eq!(unescape(r"/mnt/my\040data\011\134x"), "/mnt/my data\t\\x");
        assert_eq!(unescape(r"/a\b\9\777"), r"/a\b\9\777");
        assert_eq!(unescape(r"/köln\040ü"), "/köln ü");
    }

    #[test]
    fn range_locks_are_served_in_order_and_let_strangers_pass() {
        env::Runtime::simulated(1).block_on(async {
            let locks = Rc::new(RangeLocks::default());
            let order: Rc<RefCell<Vec<u32>>> = Rc::default();
            let task = |who: u32, start: u64, end: u64| {
                let (locks, order) = (Rc::clone(&locks), Rc::clone(&order));
                env::spawn(async move {
                    let _guard = locks.lock(start, end).await;
                    env::sleep(base::Nanos(10)).await;
                    order.borrow_mut().push(who);
                })
            };
            let tasks = [
                task(1, 0, 8),
                task(2, 4, 12),
                task(3, 8, 16),
                task(4, 20, 30),
            ];
            for task in tasks {
                task.await;
            }
            // 3 overlaps only 2, but 2 came first; 4 overlaps none of them.
            assert_eq!(*order.borrow(), [1, 4, 2, 3]);
            assert!(locks.spans.borrow().is_empty());
        });
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_line() {
        env::Runtime::simulated(1).block_on(async {
            let locks = RangeLocks::default();
            let held = locks.lock(0, 8).await;
            let waited = env::timeout(base::Nanos(5), locks.lock(0, 8)).await;
            assert!(waited.is_err());
            drop(held);
            drop(locks.lock(0, 8).await);
            assert!(locks.spans.borrow().is_empty());
        });
    }
}
