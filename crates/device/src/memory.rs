//! A device whose contents are in memory.
//!
//! ```text
//! request -> chunk by chunk -> memcpy | zeroes where no chunk is -> answer at once (or after `latency`)
//! ```
//!
//! Space is taken a chunk at a time by the first write to it and given back by a discard or a write of
//! zeroes that covers the whole chunk, so a device of 1 TiB costs what is stored on it.
//!
//! Always true:
//! 1. A chunk that is not there reads as zeroes.
//! 2. Without a latency no operation waits: its future is ready when it is made.
//! 3. A write has happened when `write` returns, even if its future is never awaited.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Map, Nanos, SECTOR, Sector, Span, View};

use crate::{Class, Device, Info, Op, Pending, WriteFlags, ready};

/// Sparse bytes in chunks of one size; chunks are shared by clones until one of them writes.
#[derive(Clone)]
pub(crate) struct Chunks {
    chunk: u64,
    chunks: Map<u64, Rc<Vec<u8>>>,
}

/// The part of a request that falls into one chunk.
struct Piece {
    chunk: u64,
    within: usize,
    /// Distance from the start of the request.
    from: usize,
    len: usize,
}

impl Chunks {
    /// No bytes yet, in chunks of `chunk` bytes.
    pub(crate) fn new(chunk: Bytes) -> Chunks {
        assert!(chunk.0 > 0, "a chunk holds at least one byte");
        Chunks {
            chunk: chunk.0,
            chunks: Map::default(),
        }
    }

    fn pieces(&self, at: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let chunk = self.chunk;
        let mut from = 0;
        std::iter::from_fn(move || {
            if from == len {
                return None;
            }
            let place = at + from as u64;
            let within = (place % chunk) as usize;
            let piece = Piece {
                chunk: place / chunk,
                within,
                from,
                len: (chunk as usize - within).min(len - from),
            };
            from += piece.len;
            Some(piece)
        })
    }

    /// Fills `out` from byte `at`.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        for piece in self.pieces(at, out.len()) {
            let out = &mut out[piece.from..piece.from + piece.len];
            match self.chunks.get(&piece.chunk) {
                Some(chunk) => out.copy_from_slice(&chunk[piece.within..piece.within + piece.len]),
                None => out.fill(0),
            }
        }
    }

    /// Stores `data` at byte `at`.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        for piece in self.pieces(at, data.len()) {
            let data = &data[piece.from..piece.from + piece.len];
            let entry = self.chunks.entry(piece.chunk);
            if piece.len as u64 == self.chunk {
                // The whole chunk: nothing of an old or shared one needs to be copied first.
                entry
                    .and_modify(|chunk| match Rc::get_mut(chunk) {
                        Some(own) => own.copy_from_slice(data),
                        None => *chunk = Rc::new(data.to_vec()),
                    })
                    .or_insert_with(|| Rc::new(data.to_vec()));
                continue;
            }
            let chunk = entry.or_insert_with(|| Rc::new(vec![0; self.chunk as usize]));
            Rc::make_mut(chunk)[piece.within..piece.within + piece.len].copy_from_slice(data);
        }
    }

    /// Zeroes `len` bytes from byte `at`; chunks wholly within are given back.
    pub(crate) fn zero(&mut self, at: u64, len: u64) {
        let end = at + len;
        let whole = at.div_ceil(self.chunk)..end / self.chunk;
        if whole.end.saturating_sub(whole.start) > self.chunks.len() as u64 {
            // A span of more chunks than there are: walk those there are.
            self.chunks.retain(|chunk, _| !whole.contains(chunk));
        } else {
            for chunk in whole.clone() {
                self.chunks.remove(&chunk);
            }
        }
        let head = at..end.min(at.next_multiple_of(self.chunk));
        let tail = head.end.max(end - end % self.chunk)..end;
        for part in [head, tail] {
            let within = (part.start % self.chunk) as usize;
            let len = (part.end - part.start) as usize;
            if let Some(chunk) = self.chunks.get_mut(&(part.start / self.chunk))
                && len > 0
            {
                Rc::make_mut(chunk)[within..within + len].fill(0);
            }
        }
    }

    /// Runs of present and absent chunks over `len` bytes from byte `at`, neighbours of a kind merged.
    pub(crate) fn runs(&self, at: u64, len: u64) -> Vec<(u64, bool)> {
        let end = at + len;
        let mut present: Vec<u64> = if len / self.chunk > self.chunks.len() as u64 {
            let touched = at / self.chunk..end.div_ceil(self.chunk);
            let there = self.chunks.keys().copied();
            there.filter(|chunk| touched.contains(chunk)).collect()
        } else {
            (at / self.chunk..end.div_ceil(self.chunk))
                .filter(|chunk| self.chunks.contains_key(chunk))
                .collect()
        };
        present.sort_unstable();
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut push = |len: u64, data: bool| match runs.last_mut() {
            _ if len == 0 => {}
            Some((last, kind)) if *kind == data => *last += len,
            _ => runs.push((len, data)),
        };
        let mut place = at;
        for chunk in present {
            let start = (chunk * self.chunk).max(at);
            let stop = ((chunk + 1) * self.chunk).min(end);
            push(start - place, false);
            push(stop - start, true);
            place = stop;
        }
        push(end - place, false);
        runs
    }

    /// Bytes of memory held by chunks.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.chunks.len() as u64 * self.chunk)
    }
}

/// A device in memory. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::{DeviceExt, Memory};
/// let memory = Memory::new("scratch", Bytes::gib(1024));
/// let there = std::rc::Rc::clone(&memory);
/// let read = env::Runtime::simulated(1).block_on(async move {
///     there.write_at(Sector(8), View::copy_of(&[7; 512])).await?;
///     there.read_at(Sector(8), Bytes(512)).await
/// })?;
/// assert_eq!(read[..], [7; 512]);
/// # Ok::<(), device::DeviceError>(())
/// ```
pub struct Memory {
    // Fixed at open.
    info: Info,
    // Settings a test may change.
    latency: Cell<Nanos>,
    // Per request.
    chunks: RefCell<Chunks>,
    waiting: Cell<usize>,
}

impl Memory {
    /// Space is taken and given back in pieces of this length.
    pub const CHUNK: Bytes = Bytes::mib(1);

    /// A device of `size` bytes (rounded down to whole sectors) that reads as zeroes.
    pub fn new(name: impl Into<String>, size: Bytes) -> Rc<Memory> {
        Rc::new(Memory {
            info: Info {
                name: name.into(),
                size: size - Bytes(size % SECTOR),
                physical_block: Bytes(SECTOR),
                max_io: Bytes::mib(32),
                volatile_cache: false,
                discards: true,
                rotational: false,
                read_only: false,
                crash_keeping: false,
            },
            latency: Cell::new(Nanos(0)),
            chunks: RefCell::new(Chunks::new(Memory::CHUNK)),
            waiting: Cell::new(0),
        })
    }

    /// From now on each operation answers after `latency`; zero means at once.
    pub fn set_latency(&self, latency: Nanos) {
        self.latency.set(latency);
    }

    /// What the device holds in `span`, past all queues and latency.
    ///
    /// # Panics
    /// If `span` is not within the device.
    pub fn contents(&self, span: Span) -> Vec<u8> {
        self.expect_within(span.start, span.len.0);
        let mut bytes = vec![0; span.len.usize()];
        self.chunks.borrow().read(span.start.byte(), &mut bytes);
        bytes
    }

    /// Puts `bytes` at `at`, past all queues and latency.
    ///
    /// # Panics
    /// If they do not fit, or are not whole sectors.
    pub fn load(&self, at: Sector, bytes: &[u8]) {
        self.expect_within(at, bytes.len() as u64);
        self.chunks.borrow_mut().write(at.byte(), bytes);
    }

    /// Memory taken by what is stored.
    pub fn held(&self) -> Bytes {
        self.chunks.borrow().held()
    }

    fn expect_within(&self, at: Sector, len: u64) {
        if let Err(refusal) = self.info.check(Op::Read, at, len) {
            panic!("{refusal}");
        }
    }

    /// Checks a request, does it, and hands the answer over now or after the latency.
    fn serve<'a, T: 'a>(
        &'a self,
        op: Op,
        span: Span,
        act: impl FnOnce(&mut Chunks) -> T,
    ) -> Pending<'a, T> {
        let answer = self
            .info
            .check(op, span.start, span.len.0)
            .map(|()| act(&mut self.chunks.borrow_mut()));
        let latency = self.latency.get();
        if latency == Nanos(0) {
            return ready(answer);
        }
        let waiting = Waiting::begin(&self.waiting);
        Box::pin(async move {
            env::sleep(latency).await;
            drop(waiting);
            answer
        })
    }
}

/// Counts an operation while it waits.
pub(crate) struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    pub(crate) fn begin(count: &'a Cell<usize>) -> Waiting<'a> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Device for Memory {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn read(&self, at: Sector, mut buf: Buf, _class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        self.serve(Op::Read, span, move |chunks| {
            chunks.read(at.byte(), &mut buf);
            buf
        })
    }

    fn write(&self, at: Sector, data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.serve(Op::Write, span, |chunks| chunks.write(at.byte(), &data))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.serve(Op::Flush, Span::default(), |_| ())
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.serve(Op::Discard, span, |chunks| {
            chunks.zero(span.start.byte(), span.len.0);
        })
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        self.serve(Op::WriteZeroes, span, |chunks| {
            chunks.zero(span.start.byte(), span.len.0);
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.serve(Op::Read, span, |chunks| {
            chunks.runs(span.start.byte(), span.len.0)
        })
    }

    fn in_flight(&self) -> usize {
        self.waiting.get()
    }
}
