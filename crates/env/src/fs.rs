//! Files and block devices of a real runtime.
//!
//! ```text
//! File::open -> checks (regular or block, size, direct I/O and its alignment) -> read_at | write_at | ...
//! ```
//!
//! A simulated runtime has no files: opening one there is an error. Model a device instead.
//!
//! Always true:
//! 1. A read fills its whole buffer and a write takes all its data, or the answer is an error.
//! 2. A future dropped early stops nothing: its operation runs to its end, with the buffer kept alive.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use base::{Buf, Bytes, View};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};

use crate::executor::start;
use crate::real::{Operation, Outcome, Scatter};

/// Whether a file's data go around the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direct {
    /// Always; opening fails where the target does not allow it.
    Yes,
    /// Never.
    No,
    /// Where the target allows it (and is not memory anyway).
    #[default]
    Auto,
}

/// How to open a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Refuse writes.
    pub read_only: bool,
    /// Go around the page cache?
    pub direct: Direct,
    /// Create a sparse file of this size if there is none.
    pub create: Option<Bytes>,
}

/// An open file or block device. Any number of operations may be under way at once; they end in any
/// order.
///
/// # Example
/// ```
/// use base::{Buf, Bytes, View};
/// use env::fs::{File, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("disk.img");
/// let runtime = env::Runtime::real(env::RealConfig::default())?;
/// let read = runtime.block_on(async move {
///     let options = Options { create: Some(Bytes::mib(1)), ..Options::default() };
///     let file = File::open(&path, &options)?;
///     file.write_at(View::copy_of(&[7; 4096]), 8192, false).await?;
///     file.sync().await?;
///     file.read_at(Buf::for_read(4096), 8192).await
/// });
/// assert_eq!(read?[..], [7; 4096]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    descriptor: Rc<OwnedFd>,
    size: Bytes,
    block_device: bool,
    /// Alignment for direct I/O; `None` if not direct.
    dio_align: Option<usize>,
}

/// Alignment assumed where the kernel (before 6.1) reports none: that of a page suits every device.
const ALIGN_UNKNOWN: usize = 4096;
/// `statfs` type of a file system in memory, where going around the cache means nothing.
pub(crate) const TMPFS: i64 = 0x0102_1994;

impl File {
    /// Opens `path`, a regular file or a block device.
    ///
    /// # Errors
    /// The system's; also if `path` is neither file nor block device, if [`Direct::Yes`] is asked of a
    /// target that has no direct I/O, or in a simulated runtime, which has no files.
    pub fn open(path: &Path, options: &Options) -> io::Result<File> {
        if crate::executor::try_current(|core| core.is_simulated()) == Some(true) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "opening {} in a simulated runtime: it has no files; use a modelled or memory device",
                    path.display()
                ),
            ));
        }
        let access = if options.read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        let plain = access | OFlags::CLOEXEC;
        if let Some(size) = options.create {
            create_sparse(path, size)?;
        }
        let (descriptor, direct) = open_directly(path, plain, options.direct)?;
        let status = rustix::fs::fstat(&descriptor)?;
        let block_device = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            other => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "{} is a {other:?}; name a regular file or a block device",
                        path.display()
                    ),
                ));
            }
        };
        let size = match block_device {
            true => rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::End(0))?,
            false => status.st_size as u64,
        };
        let mut dio_align = None;
        if direct {
            dio_align = direct_align(&descriptor);
            if dio_align.is_none() {
                // The kernel says that this file has none.
                if options.direct == Direct::Yes {
                    return Err(no_direct(path));
                }
                let flags = rustix::fs::fcntl_getfl(&descriptor)?;
                rustix::fs::fcntl_setfl(&descriptor, flags - OFlags::DIRECT)?;
            }
        }
        Ok(File {
            descriptor: Rc::new(descriptor),
            size: Bytes(size),
            block_device,
            dio_align,
        })
    }

    /// Fills the whole of `buf` from byte `at`; `UnexpectedEof` if the file ends first.
    ///
    /// With direct I/O, `at`, the buffer's length and its place in memory are multiples of
    /// [`File::dio_align`] (whole buffers from [`Buf`] are).
    pub fn read_at(&self, buf: Buf, at: u64) -> impl Future<Output = io::Result<Buf>> + 'static {
        let file = Rc::clone(&self.descriptor);
        async move {
            let (mut buf, mut filled) = (buf, 0);
            while filled < buf.len() {
                let read = Operation::Read {
                    file: Rc::clone(&file),
                    buf,
                    filled,
                    at,
                };
                let (result, operation) = start(read)?.await;
                let Operation::Read { buf: back, .. } = operation else {
                    unreachable!("an operation comes back as it went");
                };
                buf = back;
                filled += match again(result)? {
                    Some(0) => {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!(
                                "reading {} bytes at {at}: the file ends {filled} bytes on",
                                buf.len()
                            ),
                        ));
                    }
                    Some(count) => count,
                    None => 0,
                };
            }
            Ok(buf)
        }
    }

    /// Fills all of `bufs`, one after the other, from byte `at`, in one request; `UnexpectedEof` if the file ends first.
    ///
    /// With direct I/O, `at`, the length of each buffer and its place in memory are multiples of [`File::dio_align`].
    ///
    /// # Example
    /// ```
    /// use base::{Buf, Bytes, View};
    /// use env::fs::{File, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// let runtime = env::Runtime::real(env::RealConfig::default())?;
    /// let read = runtime.block_on(async move {
    ///     let options = Options { create: Some(Bytes::mib(1)), ..Options::default() };
    ///     let file = File::open(&path, &options)?;
    ///     file.write_at(View::copy_of(&[7; 4096]), 8192, false).await?;
    ///     let bufs = vec![Buf::for_read(4096), Buf::for_read(8192)];
    ///     file.read_vectored_at(bufs, 4096).await
    /// });
    /// let bufs = read?;
    /// assert_eq!((bufs[0][4095], bufs[1][0], bufs[1][4096]), (0, 7, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_vectored_at(
        &self,
        bufs: Vec<Buf>,
        at: u64,
    ) -> impl Future<Output = io::Result<Vec<Buf>>> + 'static {
        let file = Rc::clone(&self.descriptor);
        async move {
            let mut pieces = Box::new(Scatter::new(bufs));
            while !pieces.is_full() {
                let read = Operation::ReadVectored {
                    file: Rc::clone(&file),
                    pieces,
                    at,
                };
                let (result, operation) = start(read)?.await;
                let Operation::ReadVectored { pieces: back, .. } = operation else {
                    unreachable!("an operation comes back as it went");
                };
                pieces = back;
                match again(result)? {
                    Some(0) => {
                        let filled = pieces.filled();
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!("reading at {at}: the file ends {filled} bytes on"),
                        ));
                    }
                    Some(count) => pieces.advance(count),
                    None => {}
                }
            }
            Ok(pieces.into_bufs())
        }
    }

    /// Writes all of `data` at byte `at`; with `dsync` they are durable when the future ends.
    pub fn write_at(
        &self,
        data: View,
        at: u64,
        dsync: bool,
    ) -> impl Future<Output = io::Result<()>> + 'static {
        let file = Rc::clone(&self.descriptor);
        async move {
            let (mut data, mut written) = (data, 0);
            while written < data.len() {
                let write = Operation::Write {
                    file: Rc::clone(&file),
                    data,
                    written,
                    at,
                    dsync,
                };
                let (result, operation) = start(write)?.await;
                let Operation::Write { data: back, .. } = operation else {
                    unreachable!("an operation comes back as it went");
                };
                data = back;
                written += match again(result)? {
                    Some(0) => {
                        return Err(io::Error::new(
                            io::ErrorKind::WriteZero,
                            format!(
                                "writing {} bytes at {at}: the file takes only {written}",
                                data.len()
                            ),
                        ));
                    }
                    Some(count) => count,
                    None => 0,
                };
            }
            Ok(())
        }
    }

    /// Makes every write completed before the call durable, with what is needed to read it back.
    pub fn sync(&self) -> impl Future<Output = io::Result<()>> + 'static {
        let file = Rc::clone(&self.descriptor);
        run(move || Operation::Sync {
            file: Rc::clone(&file),
        })
    }

    /// Gives the space of the range back. A regular file reads zeros there afterwards; what a block
    /// device reads is the device's choice.
    pub fn punch_hole(&self, at: u64, len: u64) -> impl Future<Output = io::Result<()>> + 'static {
        let file = Rc::clone(&self.descriptor);
        let block_device = self.block_device;
        run(move || {
            let file = Rc::clone(&file);
            match block_device {
                true => Operation::Discard { file, at, len },
                false => Operation::Allocate {
                    file,
                    mode: libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    at,
                    len,
                },
            }
        })
    }

    /// Makes the range read as zeros, without sending them where the target can do so. A regular file
    /// whose file system cannot keep the space gives it back.
    pub fn zero_range(&self, at: u64, len: u64) -> impl Future<Output = io::Result<()>> + 'static {
        let zero = |mode| {
            let file = Rc::clone(&self.descriptor);
            run(move || Operation::Allocate {
                file: Rc::clone(&file),
                mode: mode | libc::FALLOC_FL_KEEP_SIZE,
                at,
                len,
            })
        };
        let (keep, give_back) = (
            zero(libc::FALLOC_FL_ZERO_RANGE),
            zero(libc::FALLOC_FL_PUNCH_HOLE),
        );
        async move {
            match keep.await {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => give_back.await,
                answer => answer,
            }
        }
    }

    /// The length when it was opened.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// A block device? Else a regular file.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Do data go around the page cache?
    pub fn direct(&self) -> bool {
        self.dio_align.is_some()
    }

    /// What places in memory, places in the file and lengths must be multiples of, in bytes; 1 if not
    /// direct.
    pub fn dio_align(&self) -> usize {
        self.dio_align.unwrap_or(1)
    }

    /// The descriptor, for locks and ioctls.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A way through the driver and back that does nothing, for benchmarks of the driver.
pub async fn nop() -> io::Result<()> {
    start(Operation::Nop)?.await.0.map(drop)
}

/// Runs an operation that answers no data, again if a signal came between.
async fn run(operation: impl Fn() -> Operation) -> io::Result<()> {
    loop {
        let (result, _): Outcome = start(operation())?.await;
        if again(result)?.is_some() {
            return Ok(());
        }
    }
}

/// `None` if the call was only interrupted.
fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        },
    }
}

/// Opens the file around the page cache where `direct` says so; did that succeed?
fn open_directly(path: &Path, plain: OFlags, direct: Direct) -> io::Result<(OwnedFd, bool)> {
    let through_cache = || rustix::fs::open(path, plain, Mode::empty());
    if direct == Direct::No {
        return Ok((through_cache()?, false));
    }
    match rustix::fs::open(path, plain | OFlags::DIRECT, Mode::empty()) {
        Ok(descriptor) if direct == Direct::Yes => Ok((descriptor, true)),
        Ok(descriptor) if rustix::fs::fstatfs(&descriptor)?.f_type == TMPFS => {
            drop(descriptor);
            Ok((through_cache()?, false))
        }
        Ok(descriptor) => Ok((descriptor, true)),
        Err(rustix::io::Errno::INVAL) if direct == Direct::Yes => Err(no_direct(path)),
        Err(rustix::io::Errno::INVAL) => Ok((through_cache()?, false)),
        Err(errno) => Err(errno.into()),
    }
}

fn no_direct(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "{} allows no direct I/O (O_DIRECT); open it with direct = \"auto\" or \"no\"",
            path.display()
        ),
    )
}

/// Creates a sparse file of `size` if there is nothing at `path`, durably.
fn create_sparse(path: &Path, size: Bytes) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => file,
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if let Err(errno) = rustix::fs::ftruncate(&file, size.0).and_then(|()| rustix::fs::fsync(&file))
    {
        // A file of the wrong size would be taken for a good one next time.
        let _ = rustix::fs::unlink(path);
        return Err(errno.into());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = rustix::fs::open(parent, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(folder)?)
}

/// What direct I/O must be aligned to; `None` if the kernel says there is none.
fn direct_align(descriptor: &OwnedFd) -> Option<usize> {
    match rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(status) if status.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            match status.stx_dio_mem_align.max(status.stx_dio_offset_align) {
                0 => None,
                align => Some(align as usize),
            }
        }
        _ => Some(ALIGN_UNKNOWN),
    }
}
