//! How does a trace lie in memory for a simulation that passes over it again and again?
//!
//! ```text
//! request --ops?--> split into blocks of the unit --(device, block) -> number--> accesses
//!    |                                                                        4 bytes each: number, write?
//!    +--> size (and where in its first block it starts)                       4 (8) bytes per request
//! ```
//!
//! Blocks are numbered `0, 1, 2, ...` as they first appear, so a simulation finds a block's state in
//! an array and needs no hashing. Times are not kept, only the span of the whole.
//!
//! Always true:
//! 1. Block numbers are `0..footprint`, and each first appears after all smaller ones.
//! 2. A request's blocks follow each other; a request has at least one.
//! 3. Blocks of different devices are different.

use base::{Bytes, Map, Nanos};

use super::unit::{Ops, Unit};
use trace::{Op, Request, Requests, TraceError};

/// Why a trace cannot be taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// One request is larger than any disk takes.
    #[error(
        "request {number} (at {at} bytes) asks for {size} bytes; at most 4294967295 are possible, so the trace is \
         probably damaged or read in the wrong format"
    )]
    Huge {
        /// Its number, from 1.
        number: u64,
        /// Its offset.
        at: u64,
        /// Its size.
        size: u64,
    },
    /// One request ends beyond what 64 bits can address.
    #[error(
        "request {number} (at {at} bytes) ends beyond 2^64 bytes, so the trace is probably damaged or read in the \
         wrong format"
    )]
    Beyond {
        /// Its number, from 1.
        number: u64,
        /// Its offset.
        at: u64,
    },
    /// More than block numbers can count.
    #[error(
        "the trace has more than {most} {what} in units of {unit}, which is more than fits one simulation; \
         choose a greater unit or cut the trace"
    )]
    TooLong {
        /// Blocks, or accesses.
        what: &'static str,
        /// How many fit.
        most: u64,
        /// The unit.
        unit: Unit,
    },
    /// Nothing to simulate.
    #[error("the trace holds no {ops} to simulate ({skipped} other requests were passed over)")]
    Empty {
        /// What was asked for.
        ops: &'static str,
        /// Requests passed over.
        skipped: u64,
    },
}

/// A trace as a cache sees it. The head of this file says how it lies in memory.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use sim::cache::{Builder, Ops, Unit};
/// use trace::{Op, Request};
/// let mut builder = Builder::new(Unit::PAGE, Ops::All);
/// let read = |offset, size| Request {
///     at: Nanos(0),
///     offset: Bytes(offset),
///     size: Bytes(size),
///     device: 0,
///     op: Op::Read,
/// };
/// builder.push(&read(0, 8192))?;
/// builder.push(&read(4096, 512))?;
/// let trace = builder.finish()?;
/// assert_eq!((trace.requests(), trace.accesses(), trace.footprint()), (2, 3, 2));
/// # Ok::<(), sim::cache::LoadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Compact {
    unit: Unit,
    /// Block number in the upper 31 bits, lowest bit: a write.
    accesses: Vec<u32>,
    /// Bytes of each request.
    sizes: Vec<u32>,
    /// Bytes before the request in its first block; empty where each request is one access.
    skips: Vec<u32>,
    footprint: u32,
    bytes: u64,
    written: u64,
    writes: u64,
    span: Nanos,
    skipped: u64,
}

/// One access: a block that is read or written, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its number.
    pub block: u32,
    /// Written, not read?
    pub write: bool,
    /// Bytes of it that are asked for.
    pub bytes: u32,
    /// The last access of its request?
    pub last: bool,
}

/// Most blocks one trace can have.
const BLOCKS_MAX: u32 = (1 << 31) - 2;
/// Most accesses.
const ACCESSES_MAX: u64 = u32::MAX as u64 - 1;

impl Compact {
    /// Takes in a whole trace; `seen` hears the number of requests after each batch.
    ///
    /// # Errors
    /// [`LoadError`], also for a trace with nothing to simulate.
    pub fn load(
        trace: &mut dyn Requests,
        unit: Unit,
        ops: Ops,
        seen: &mut dyn FnMut(u64),
    ) -> Result<Compact, LoadError> {
        let mut builder = Builder::new(unit, ops);
        let mut batch = Vec::new();
        while trace.next_batch(&mut batch)? {
            for request in &batch {
                builder.push(request)?;
            }
            seen(builder.taken);
        }
        builder.finish()
    }

    /// What one object is.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Requests that count.
    pub fn requests(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Those that write.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Accesses to objects: one per request for [`Unit::Request`], else one per block of a request.
    pub fn accesses(&self) -> u64 {
        self.accesses.len() as u64
    }

    /// Different objects.
    pub fn footprint(&self) -> u32 {
        self.footprint
    }

    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes written among them.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Time from the first request to the last.
    pub fn span(&self) -> Nanos {
        self.span
    }

    /// Requests passed over: flushes, discards, empty ones, and those not asked for.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Memory it holds.
    pub fn memory(&self) -> Bytes {
        let numbers = self.accesses.capacity() + self.sizes.capacity() + self.skips.capacity();
        Bytes((numbers * size_of::<u32>()) as u64)
    }

    /// Block number and "is a write" of every access, the latter in the lowest bit.
    pub(super) fn raw(&self) -> &[u32] {
        &self.accesses
    }

    /// Calls `visit` for every access in order.
    #[inline(always)]
    pub fn each(&self, mut visit: impl FnMut(Access)) {
        let access = |raw: u32, bytes, last| Access {
            block: raw >> 1,
            write: raw & 1 == 1,
            bytes,
            last,
        };
        match self.unit {
            Unit::Block(unit) if !self.skips.is_empty() => {
                let unit = unit.0;
                let mut next = 0;
                for (&size, &skip) in self.sizes.iter().zip(&self.skips) {
                    let mut left = u64::from(size);
                    let mut room = unit - u64::from(skip);
                    loop {
                        let bytes = left.min(room);
                        left -= bytes;
                        visit(access(self.accesses[next], bytes as u32, left == 0));
                        next += 1;
                        if left == 0 {
                            break;
                        }
                        room = unit;
                    }
                }
            }
            _ => {
                for (&raw, &size) in self.accesses.iter().zip(&self.sizes) {
                    visit(access(raw, size, true));
                }
            }
        }
    }

    /// The accesses to the blocks `keep` names, renumbered, each as a request of its own.
    pub(super) fn only(&self, keep: &[bool]) -> Compact {
        let mut part = Compact {
            accesses: Vec::new(),
            sizes: Vec::new(),
            skips: Vec::new(),
            footprint: 0,
            bytes: 0,
            written: 0,
            writes: 0,
            skipped: 0,
            ..*self
        };
        const NONE: u32 = u32::MAX;
        let mut numbers = vec![NONE; keep.len()];
        self.each(|access| {
            if !keep[access.block as usize] {
                return;
            }
            let number = &mut numbers[access.block as usize];
            if *number == NONE {
                *number = part.footprint;
                part.footprint += 1;
            }
            part.accesses.push(*number << 1 | u32::from(access.write));
            part.sizes.push(access.bytes);
            part.bytes += u64::from(access.bytes);
            part.writes += u64::from(access.write);
            part.written += u64::from(access.write) * u64::from(access.bytes);
        });
        part
    }

    /// Accesses in which a block appears for the first time: misses of any cache.
    pub fn first_touches(&self) -> u64 {
        u64::from(self.footprint)
    }
}

/// Takes in requests one by one; [`Builder::finish`] is the [`Compact`] trace.
#[derive(Clone, Debug)]
pub struct Builder {
    ops: Ops,
    trace: Compact,
    numbers: Map<(u32, u64), u32>,
    /// Requests seen.
    taken: u64,
    last: Nanos,
}

impl Builder {
    /// Nothing yet.
    ///
    /// # Panics
    /// If the unit's size is no power of two from 512 B to 1 GiB (parsing a [`Unit`] sees to it).
    pub fn new(unit: Unit, ops: Ops) -> Builder {
        if let Unit::Block(size) = unit {
            let fits = size.0.is_power_of_two() && (512..=1 << 30).contains(&size.0);
            assert!(
                fits,
                "a unit of {size} is no power of two from 512 B to 1 GiB"
            );
        }
        Builder {
            ops,
            trace: Compact {
                unit,
                accesses: Vec::new(),
                sizes: Vec::new(),
                skips: Vec::new(),
                footprint: 0,
                bytes: 0,
                written: 0,
                writes: 0,
                span: Nanos(0),
                skipped: 0,
            },
            numbers: Map::default(),
            taken: 0,
            last: Nanos(0),
        }
    }

    /// Every block seen, in no order: its device, its place there in units, its number.
    pub(crate) fn blocks(&self) -> impl ExactSizeIterator<Item = (u32, u64, u32)> {
        let numbers = self.numbers.iter();
        numbers.map(|(&(device, place), &number)| (device, place, number))
    }

    /// One more request.
    ///
    /// # Errors
    /// [`LoadError`] if it is impossible or one too many.
    #[inline]
    pub fn push(&mut self, request: &Request) -> Result<(), LoadError> {
        self.taken += 1;
        self.last = self.last.max(request.at);
        let wanted = match request.op {
            Op::Read => self.ops != Ops::Writes,
            Op::Write => self.ops != Ops::Reads,
            Op::Discard | Op::Flush => false,
        };
        let (at, size) = (request.offset.0, request.size.0);
        if !wanted || (size == 0 && self.trace.unit != Unit::Request) {
            self.trace.skipped += 1;
            return Ok(());
        }
        let short = u32::try_from(size).map_err(|_| LoadError::Huge {
            number: self.taken,
            at,
            size,
        })?;
        let write = request.op == Op::Write;
        match self.trace.unit {
            Unit::Request => self.access(request.device, at, write)?,
            Unit::Block(unit) => {
                let end = at.checked_add(size).ok_or(LoadError::Beyond {
                    number: self.taken,
                    at,
                })?;
                let shift = unit.0.trailing_zeros();
                for block in at >> shift..=(end - 1) >> shift {
                    self.access(request.device, block, write)?;
                }
                self.trace.skips.push((at & (unit.0 - 1)) as u32);
            }
        }
        let trace = &mut self.trace;
        trace.sizes.push(short);
        trace.bytes += size;
        if write {
            trace.writes += 1;
            trace.written += size;
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, device: u32, key: u64, write: bool) -> Result<(), LoadError> {
        let trace = &mut self.trace;
        let too_long = |what, most| LoadError::TooLong {
            what,
            most,
            unit: trace.unit,
        };
        if trace.accesses.len() as u64 >= ACCESSES_MAX {
            return Err(too_long("accesses", ACCESSES_MAX));
        }
        let fresh = trace.footprint;
        let number = *self.numbers.entry((device, key)).or_insert(fresh);
        if number == fresh {
            if fresh == BLOCKS_MAX {
                return Err(too_long("different objects", u64::from(BLOCKS_MAX)));
            }
            trace.footprint += 1;
        }
        trace.accesses.push(number << 1 | u32::from(write));
        Ok(())
    }

    /// The trace.
    ///
    /// # Errors
    /// [`LoadError::Empty`].
    pub fn finish(self) -> Result<Compact, LoadError> {
        let mut trace = self.trace;
        if trace.sizes.is_empty() {
            return Err(LoadError::Empty {
                ops: match self.ops {
                    Ops::All => "reads or writes",
                    Ops::Reads => "reads",
                    Ops::Writes => "writes",
                },
                skipped: trace.skipped,
            });
        }
        trace.span = self.last;
        for numbers in [&mut trace.accesses, &mut trace.sizes, &mut trace.skips] {
            numbers.shrink_to_fit();
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, offset: u64, size: u64, device: u32) -> Request {
        Request {
            at: Nanos(offset),
            offset: Bytes(offset),
            size: Bytes(size),
            device,
            op,
        }
    }

    fn accesses(trace: &Compact) -> Vec<(u32, bool, u32, bool)> {
        let mut all = Vec::new();
        trace.each(|access| all.push((access.block, access.write, access.bytes, access.last)));
        all
    }

    #[test]
    fn a_request_is_one_object_or_as_many_blocks_as_it_touches() -> Result<(), LoadError> {
        let requests = [
            request(Op::Read, 4096 - 512, 1024, 0),
            request(Op::Write, 4096, 4096, 0),
            request(Op::Read, 4096, 8192, 1),
            request(Op::Flush, 0, 0, 0),
            request(Op::Discard, 0, 1 << 40, 0),
        ];
        let load = |unit| {
            let mut builder = Builder::new(unit, Ops::All);
            for one in &requests {
                builder.push(one)?;
            }
            builder.finish()
        };
        let whole = load(Unit::Request)?;
        assert_eq!(
            accesses(&whole),
            [
                (0, false, 1024, true),
                (1, true, 4096, true),
                (2, false, 8192, true)
            ]
        );
        assert_eq!(
            (whole.requests(), whole.skipped(), whole.writes()),
            (3, 2, 1)
        );
        let blocks = load(Unit::PAGE)?;
        assert_eq!(
            accesses(&blocks),
            [
                (0, false, 512, false),
                (1, false, 512, true),
                (1, true, 4096, true),
                (2, false, 4096, false),
                (3, false, 4096, true),
            ]
        );
        assert_eq!((blocks.bytes(), blocks.written()), (13_312, 4096));
        assert_eq!(blocks.footprint(), 4);
        Ok(())
    }

    #[test]
    fn what_no_disk_is_asked_for_is_refused_with_its_place() {
        let mut builder = Builder::new(Unit::PAGE, Ops::All);
        let huge = builder
            .push(&request(Op::Read, 512, 1 << 33, 0))
            .unwrap_err();
        assert_eq!(
            huge.to_string(),
            "request 1 (at 512 bytes) asks for 8589934592 bytes; at most 4294967295 are possible, so the trace is \
             probably damaged or read in the wrong format"
        );
        let beyond = builder
            .push(&request(Op::Read, u64::MAX - 511, 1024, 0))
            .unwrap_err();
        assert!(
            beyond
                .to_string()
                .starts_with("request 2 (at 18446744073709551104 bytes) ends beyond 2^64")
        );
        let far = builder.push(&request(Op::Read, 1 << 63, 4096, 0));
        assert!(far.is_ok(), "2^63 is a place like any other");
        let empty = Builder::new(Unit::PAGE, Ops::Writes).finish().unwrap_err();
        assert_eq!(
            empty.to_string(),
            "the trace holds no writes to simulate (0 other requests were passed over)"
        );
    }

    #[test]
    fn units_are_read_as_they_are_shown() {
        for text in ["request", "512B", "4KiB", "1MiB", "1GiB"] {
            assert_eq!(
                text.parse::<Unit>().map(|unit| unit.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!("512".parse(), Ok(Unit::Block(Bytes(512))));
        for wrong in ["3KiB", "256", "2GiB", "block", ""] {
            assert!(wrong.parse::<Unit>().is_err(), "{wrong}");
        }
    }
}
