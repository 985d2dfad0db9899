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

mod describe;
mod error;
mod holes;
mod kernel;
mod ranges;
mod resting;
mod taking;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use base::{Buf, Bytes, PAGE, SECTOR, Sector, Span, View};
use env::fs::Direct;
use env::sync::Semaphore;

pub use self::error::OpenError;

use self::describe::describe;
use self::holes::pieces;
use self::ranges::RangeLocks;
use self::resting::Rest;
use self::taking::{Taken, free, take};
use crate::api::scattered;
use crate::memory::Waiting;
use crate::{Class, Device, DeviceError, Info, Op, Pending, Spindle, WriteFlags, ready};

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

/// Can the block device at `path` be had: is neither it nor a partition of it mounted, or held by the kernel or another
/// program? It is held for as long as this looks, and nothing is written. A regular file always can.
///
/// # Errors
/// [`OpenError`], by what stands in the way.
pub fn check_free(path: &Path) -> Result<(), OpenError> {
    free(path)
}

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
    /// Its disk, if that may sleep.
    rest: Rest,
}

/// Discards and zeroes are passed on in blocks of this size; file systems and flash manage no smaller.
const CLEAR_UNIT: u64 = PAGE as u64;
/// Zeroes are written in pieces of this size where the target cannot make them itself.
const ZERO_PIECE: u64 = 1 << 20;

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
        let Taken { file, claim } = take(path, &options)?;
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
            rest: Rest::new(),
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

    /// Do all of `bufs` lie as the target wants them, in memory and from byte `at` on?
    fn fit(&self, at: u64, bufs: &mut [Buf]) -> bool {
        let unit = self.unit;
        let whole = |buf: &mut Buf| {
            let address: *const u8 = buf.address();
            (buf.len() as u64).is_multiple_of(unit) && self.fits_memory(address)
        };
        at.is_multiple_of(unit) && bufs.iter_mut().all(whole)
    }

    async fn read_pieces(&self, at: u64, mut bufs: Vec<Buf>) -> io::Result<Vec<Buf>> {
        if self.fit(at, &mut bufs) {
            return self.file.read_vectored_at(bufs, at).await;
        }
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let whole = self.read_bytes(at, Buf::for_read(len)).await?;
        Ok(scattered(&whole, bufs))
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
        let upto = self.rest.changes();
        self.file.sync().await.map_err(|error| {
            self.remember_failed_flush(&error);
            self.error(op, span, &error)
        })?;
        self.rest.flushed(upto);
        Ok(())
    }

    /// Is everything that was written durable, and no flush failed?
    fn has_all(&self) -> bool {
        self.rest.is_flushed() && self.flush_failed.borrow().is_none()
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
            self.rest.begin(op).await;
            let answer = work.await;
            self.rest.changed(op);
            drop(waiting);
            answer
        })
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(libc::EOPNOTSUPP)
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

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, _class: Class) -> Pending<'_, Vec<Buf>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let span = Span::new(at, Bytes(len));
        self.serve(Op::Read, span, async move {
            let read = self.read_pieces(at.byte(), bufs).await;
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
        if self.has_all() && self.spindle().is_some_and(|it| it.asleep) {
            // It would wake the disk for nothing.
            return ready(Ok(()));
        }
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
        // Nothing is asked of a disk.
        let checked = self.info.check(Op::Read, span.start, span.len.0);
        ready(checked.map(|()| match self.file.is_block_device() {
            true => vec![(span.len.0, true)],
            false => pieces(self.file.descriptor(), span),
        }))
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.rest.sleeper().is_none() {
                let found = resting::find(
                    &self.path,
                    self.file.descriptor(),
                    self.file.is_block_device(),
                )
                .await;
                let sleeper = found.map_err(|obstacle| DeviceError::NoSleep {
                    device: self.info.name.clone(),
                    why: obstacle.to_string(),
                })?;
                self.rest.may_sleep(sleeper);
            }
            Ok(())
        })
    }

    fn spindle(&self) -> Option<Spindle> {
        self.rest.spindle()
    }

    fn standby(&self) -> bool {
        let (Some(sleeper), Some(own)) = (self.rest.sleeper().cloned(), self.own.upgrade()) else {
            return false;
        };
        if self.waiting.get() == 0 && sleeper.begin_to_fall() {
            let flushed =
                async move { own.has_all() || own.sync(Op::Flush, Span::default()).await.is_ok() };
            let falling = Rc::clone(&sleeper);
            env::spawn(async move { falling.fall(flushed).await });
        }
        sleeper.spindle().asleep
    }

    fn in_flight(&self) -> usize {
        self.waiting.get()
    }
}
