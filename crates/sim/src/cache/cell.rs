//! What does one policy do with one trace at one cache size?
//!
//! ```text
//! access --place[block]--> hit:  Replacement::hit
//!                      --> miss: Admission -> Replacement::missed -> evict -> insert
//! ```
//!
//! The policy and the admission are the production ones; index and keys are not needed, as blocks are
//! numbered. What moves between the devices is counted as the engine would move it: a read miss that
//! is admitted fetches its whole block, a write fetches nothing, and in write-back mode a dirty block
//! goes to the slow device when it leaves.
//!
//! Always true:
//! 1. `hits + misses = accesses`, and so for requests and bytes.
//! 2. A block is resident in at most one frame.

use hybrid::{Admission as Rule, WriteMode};
use policy::cache::admission::{Admission, Reads};
use policy::cache::{
    Arc, Clock, Fifo, Kind, Lru, Remembering, Replacement, S3Fifo, Sieve, WTinyLfu,
};
use serde::Serialize;

use super::{Access, Compact, Unit};

/// How the simulated cache is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Where writes go.
    pub write: WriteMode,
    /// Which read misses come in.
    pub admission: Rule,
}

impl Default for Mode {
    /// Every miss comes in and writes stay: as policies are compared everywhere.
    fn default() -> Self {
        Mode {
            write: WriteMode::Back,
            admission: Rule::Always,
        }
    }
}

/// What came of one simulation. An access is one object asked for; a request is a line of the trace and
/// a hit if all its objects are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Objects asked for.
    pub accesses: u64,
    /// Those not resident.
    pub misses: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Those in objects not resident.
    pub missed_bytes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Those that found an object missing.
    pub missed_reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Those that found an object missing.
    pub missed_writes: u64,
    /// Objects brought into the cache, by reads and by writes.
    pub promotions: u64,
    /// Written to the fast device: fills and writes.
    pub flash_bytes_written: u64,
    /// Read from the slow device, fetches of whole blocks included.
    pub slow_bytes_read: u64,
    /// Written to the slow device: past or through the cache, or when a dirty object left.
    pub slow_bytes_written: u64,
    /// Writes to the slow device, one per object.
    pub slow_writes: u64,
    /// Left dirty at the end.
    pub dirty_bytes: u64,
}

impl Counters {
    /// Misses per access.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.accesses)
    }

    /// Missed bytes per byte asked for.
    pub fn byte_miss_ratio(&self) -> f64 {
        ratio(self.missed_bytes, self.bytes)
    }

    /// Requests with a miss per request.
    pub fn request_miss_ratio(&self) -> f64 {
        ratio(
            self.missed_reads + self.missed_writes,
            self.reads + self.writes,
        )
    }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// Runs `kind` with room for `objects` over `trace`.
///
/// # Panics
/// If `objects` is 0, or `mode` is [`WriteMode::Pass`], which caches nothing.
///
/// # Example
/// ```
/// # use base::{Bytes, Nanos};
/// # use trace::{Op, Request};
/// use sim::cache::{Builder, Mode, Ops, Unit, simulate};
/// use policy::cache::Kind;
/// let mut builder = Builder::new(Unit::Request, Ops::All);
/// for at in [1, 2, 1, 3, 2] {
///     let offset = Bytes(at * 4096);
///     let (at, size, device, op) = (Nanos(0), Bytes(4096), 0, Op::Read);
///     builder.push(&Request { at, offset, size, device, op })?;
/// }
/// let tally = simulate(&builder.finish()?, Kind::Lru, 2, Mode::default());
/// assert_eq!((tally.accesses, tally.misses, tally.missed_bytes), (5, 4, 16384));
/// # Ok::<(), sim::cache::LoadError>(())
/// ```
pub fn simulate(trace: &Compact, kind: Kind, objects: u64, mode: Mode) -> Counters {
    simulate_watched(trace, kind, objects, mode, &mut ())
}

/// What a cache does to the devices below it, in objects of the trace and frames of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A hit is read.
    FastRead { frame: u32 },
    /// The request writes into the cache.
    FastWrite { frame: u32 },
    /// What was read from the slow device is copied to the fast one.
    Fill { frame: u32 },
    /// The request reads from the slow device.
    SlowRead { block: u32 },
    /// The request writes to the slow device.
    SlowWrite { block: u32 },
    /// A dirty object that left is written to the slow device.
    Clean { block: u32 },
}

/// An observer that follows a simulation step by step.
pub(crate) trait Watch {
    /// The next request of the trace begins.
    fn begin(&mut self);
    /// It caused this.
    fn step(&mut self, step: Step);
    /// It has caused all it does.
    fn end(&mut self);
}

impl Watch for () {
    #[inline(always)]
    fn begin(&mut self) {}
    #[inline(always)]
    fn step(&mut self, _step: Step) {}
    #[inline(always)]
    fn end(&mut self) {}
}

/// As [`simulate`], followed by `watch`.
pub(crate) fn simulate_watched(
    trace: &Compact,
    kind: Kind,
    objects: u64,
    mode: Mode,
    watch: &mut impl Watch,
) -> Counters {
    assert!(objects > 0, "a cache has room for at least one object");
    // More room than objects changes nothing: nothing ever leaves.
    let capacity = objects.min(u64::from(trace.footprint())) as u32;
    // One monomorphic simulation per policy: a virtual call per access would cost a third of the rate.
    // As `policy::cache::build` and `build_remembering` choose.
    let remembers = mode.admission == Rule::SecondAccess;
    macro_rules! run {
        ($policy:expr) => {
            match remembers {
                true => run(trace, Remembering::new($policy), mode, watch),
                false => run(trace, $policy, mode, watch),
            }
        };
    }
    match kind {
        Kind::Lru => run!(Lru::new(capacity)),
        Kind::Fifo => run!(Fifo::new(capacity)),
        Kind::Clock => run!(Clock::new(capacity)),
        Kind::Sieve => run!(Sieve::new(capacity)),
        Kind::S3Fifo => run(trace, S3Fifo::new(capacity), mode, watch),
        Kind::Arc => run(trace, Arc::new(capacity), mode, watch),
        Kind::WTinyLfu => run(trace, WTinyLfu::new(capacity), mode, watch),
    }
}

fn run<P: Replacement, W: Watch>(
    trace: &Compact,
    policy: P,
    mode: Mode,
    watch: &mut W,
) -> Counters {
    let mut cell = Cell::new(policy, trace.footprint(), trace.unit(), mode, watch);
    let mut counters = Counters::default();
    let (mut missed, mut fresh) = (false, true);
    trace.each(|access| {
        if fresh {
            cell.watch.begin();
        }
        fresh = access.last;
        missed |= !cell.access(access);
        if access.last {
            cell.watch.end();
            match access.write {
                false => {
                    counters.reads += 1;
                    counters.missed_reads += u64::from(missed);
                }
                true => {
                    counters.writes += 1;
                    counters.missed_writes += u64::from(missed);
                }
            }
            missed = false;
        }
    });
    let moved = cell.finish();
    let counters = Counters {
        accesses: trace.accesses(),
        bytes: trace.bytes(),
        reads: counters.reads,
        missed_reads: counters.missed_reads,
        writes: counters.writes,
        missed_writes: counters.missed_writes,
        ..moved
    };
    assert_eq!(counters.reads + counters.writes, trace.requests());
    counters
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Frame {
    block: u32,
    /// Bytes newer than on the slow device.
    dirty: u32,
}

/// A cache over numbered blocks.
struct Cell<'a, P, W> {
    watch: &'a mut W,
    // Fixed.
    unit: Option<u32>,
    mode: Mode,
    // What is where.
    policy: P,
    admission: Admission,
    /// The frame of every block, or none.
    place: Vec<u32>,
    frames: Vec<Frame>,
    /// Frames given up before their time.
    free: Vec<u32>,
    // Counts; those of requests are the caller's.
    counters: Counters,
}

impl<'a, P: Replacement, W: Watch> Cell<'a, P, W> {
    fn new(policy: P, blocks: u32, unit: Unit, mode: Mode, watch: &'a mut W) -> Cell<'a, P, W> {
        assert!(
            mode.write != WriteMode::Pass,
            "a cache that is passed by holds nothing"
        );
        let reads = match mode.admission {
            Rule::Always => Reads::Always,
            Rule::SecondAccess => Reads::OnSecondAccess,
        };
        Cell {
            watch,
            unit: match unit {
                Unit::Request => None,
                Unit::Block(size) => Some(size.0 as u32),
            },
            mode,
            admission: Admission::new(reads, policy.capacity()),
            place: vec![NONE; blocks as usize],
            frames: Vec::with_capacity(policy.capacity() as usize),
            free: Vec::new(),
            policy,
            counters: Counters::default(),
        }
    }

    /// Is it a hit?
    #[inline(always)]
    fn access(&mut self, access: Access) -> bool {
        let frame = self.place[access.block as usize];
        if frame != NONE && !(access.write && self.mode.write == WriteMode::Around) {
            self.policy.hit(frame, u64::from(access.block));
            match access.write {
                true => self.written(frame, access),
                false => self.watch.step(Step::FastRead { frame }),
            }
            return true;
        }
        self.counters.misses += 1;
        self.counters.missed_bytes += u64::from(access.bytes);
        match access.write {
            true => self.write_miss(access, frame),
            false => self.read_miss(access),
        }
        false
    }

    #[inline(always)]
    fn read_miss(&mut self, access: Access) {
        let key = u64::from(access.block);
        let admitted = self.mode.write.fills_on_read()
            && (self.mode.admission == Rule::Always
                || self.admission.read(key, self.policy.remembers(key)));
        self.policy.missed(key);
        // A block that comes in is fetched whole.
        let bytes = match (admitted, self.unit) {
            (true, Some(unit)) => unit,
            _ => access.bytes,
        };
        self.counters.slow_bytes_read += u64::from(bytes);
        self.watch.step(Step::SlowRead {
            block: access.block,
        });
        if admitted {
            self.counters.flash_bytes_written += u64::from(bytes);
            let frame = self.insert(access.block);
            self.watch.step(Step::Fill { frame });
        }
    }

    #[inline(always)]
    fn write_miss(&mut self, access: Access, frame: u32) {
        if self.mode.write == WriteMode::Around {
            if frame != NONE {
                // The copy on the fast device is out of date now.
                self.policy.remove(frame);
                self.place[access.block as usize] = NONE;
                self.free.push(frame);
            }
            self.slow_write(access);
            return;
        }
        self.policy.missed(u64::from(access.block));
        let frame = self.insert(access.block);
        self.written(frame, access);
    }

    #[inline(always)]
    fn slow_write(&mut self, access: Access) {
        self.counters.slow_bytes_written += u64::from(access.bytes);
        self.counters.slow_writes += 1;
        self.watch.step(Step::SlowWrite {
            block: access.block,
        });
    }

    #[inline(always)]
    fn written(&mut self, frame: u32, access: Access) {
        let bytes = access.bytes;
        self.counters.flash_bytes_written += u64::from(bytes);
        self.watch.step(Step::FastWrite { frame });
        if self.mode.write.keeps_dirty() {
            let dirty = &mut self.frames[frame as usize].dirty;
            *dirty = match self.unit {
                Some(unit) => dirty.saturating_add(bytes).min(unit),
                None => bytes.max(*dirty),
            };
        } else {
            self.slow_write(access);
        }
    }

    #[inline(always)]
    fn insert(&mut self, block: u32) -> u32 {
        self.counters.promotions += 1;
        let fresh = Frame { block, dirty: 0 };
        let frame = if let Some(frame) = self.free.pop() {
            self.frames[frame as usize] = fresh;
            frame
        } else if self.frames.len() < self.policy.capacity() as usize {
            self.frames.push(fresh);
            self.frames.len() as u32 - 1
        } else {
            let frames = &self.frames;
            let key_of = |frame: u32| u64::from(frames[frame as usize].block);
            let victim = self
                .policy
                .evict(Some(u64::from(block)), &key_of, &mut |_| true);
            let victim = victim.expect("a full cache whose frames may all go has a victim");
            let old = std::mem::replace(&mut self.frames[victim as usize], fresh);
            self.place[old.block as usize] = NONE;
            if old.dirty > 0 {
                self.counters.slow_bytes_written += u64::from(old.dirty);
                self.counters.slow_writes += 1;
                self.watch.step(Step::Clean { block: old.block });
            }
            victim
        };
        self.place[block as usize] = frame;
        self.policy.insert(frame, u64::from(block));
        frame
    }

    fn finish(mut self) -> Counters {
        let dirty = self.frames.iter().map(|frame| u64::from(frame.dirty));
        self.counters.dirty_bytes = dirty.sum();
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::super::compact::Builder;
    use super::super::{LoadError, Ops};
    use super::*;
    use base::{Bytes, Nanos};
    use trace::{Op, Request};

    /// `r` or `w` and a page number each.
    fn trace(text: &str) -> Result<Compact, LoadError> {
        let mut builder = Builder::new(Unit::PAGE, Ops::All);
        for word in text.split_whitespace() {
            let (op, page) = word.split_at(1);
            let page: u64 = page.parse().expect("a page");
            builder.push(&Request {
                at: Nanos(0),
                offset: Bytes(page * 4096),
                size: Bytes(4096),
                device: 0,
                op: if op == "w" { Op::Write } else { Op::Read },
            })?;
        }
        builder.finish()
    }

    fn mode(write: WriteMode, admission: Rule) -> Mode {
        Mode { write, admission }
    }

    #[test]
    fn a_dirty_block_reaches_the_slow_device_when_it_leaves() -> Result<(), LoadError> {
        let counters = simulate(&trace("w1 w1 r2 r3 r3")?, Kind::Lru, 2, Mode::default());
        assert_eq!(
            (counters.accesses, counters.misses, counters.promotions),
            (5, 3, 3)
        );
        // Two writes and two fills; block 1 leaves dirty.
        assert_eq!(counters.flash_bytes_written, 4 * 4096);
        assert_eq!(
            (counters.slow_bytes_read, counters.slow_bytes_written),
            (2 * 4096, 4096)
        );
        assert_eq!((counters.slow_writes, counters.dirty_bytes), (1, 0));
        assert_eq!((counters.reads, counters.missed_reads), (3, 2));
        assert_eq!((counters.writes, counters.missed_writes), (2, 1));
        Ok(())
    }

    #[test]
    fn each_write_mode_moves_what_it_says() -> Result<(), LoadError> {
        let trace = trace("r1 w1 r1 w2 r2")?;
        let run = |write| simulate(&trace, Kind::Lru, 2, mode(write, Rule::Always));
        let through = run(WriteMode::Through);
        assert_eq!((through.misses, through.slow_bytes_written), (2, 2 * 4096));
        assert_eq!(
            (through.flash_bytes_written, through.dirty_bytes),
            (3 * 4096, 0)
        );
        let around = run(WriteMode::Around);
        // Both writes and the reads behind them miss.
        assert_eq!((around.misses, around.slow_bytes_written), (5, 2 * 4096));
        assert_eq!(around.flash_bytes_written, 3 * 4096);
        let only_writes = run(WriteMode::OnlyWrites);
        assert_eq!((only_writes.misses, only_writes.promotions), (3, 2));
        assert_eq!(only_writes.slow_bytes_read, 4096);
        assert_eq!(only_writes.dirty_bytes, 2 * 4096);
        Ok(())
    }

    #[test]
    fn a_read_comes_in_the_second_time_and_a_write_at_once() -> Result<(), LoadError> {
        for kind in Kind::ALL {
            let once = mode(WriteMode::Back, Rule::SecondAccess);
            let counters = simulate(&trace("r1 r1 r1 w2 r2 r3 r4")?, kind, 3, once);
            // W-TinyLFU remembers by its sketch, which may take a stranger for an old friend.
            assert_eq!((counters.misses, counters.promotions), (5, 2), "{kind}");
        }
        Ok(())
    }

    #[test]
    fn every_policy_misses_each_block_once_where_all_fit() -> Result<(), LoadError> {
        let text: Vec<String> = (0..500).map(|n| format!("r{}", n * n % 101)).collect();
        let trace = trace(&text.join(" "))?;
        for kind in Kind::ALL {
            for room in [u64::from(trace.footprint()), 1 << 40] {
                let counters = simulate(&trace, kind, room, Mode::default());
                assert_eq!(counters.misses, trace.first_touches(), "{kind}");
            }
            let one = simulate(&trace, kind, 1, Mode::default());
            assert!(one.misses > trace.first_touches(), "{kind}");
        }
        Ok(())
    }

    #[test]
    fn the_simulation_decides_as_the_cache_of_the_policies_does() -> Result<(), LoadError> {
        let mut state = 1u64;
        let keys: Vec<u64> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Small numbers more often.
            (state >> 33) % (1 + (state >> 50) % 600)
        })
        .take(20_000)
        .collect();
        let text: Vec<String> = keys.iter().map(|key| format!("r{key}")).collect();
        let trace = trace(&text.join(" "))?;
        // The same numbers as the trace gives, as W-TinyLFU's sketch depends on them.
        let numbers: Vec<u64> = trace.raw().iter().map(|raw| u64::from(raw >> 1)).collect();
        for kind in Kind::ALL {
            let mut plain = policy::cache::Cache::new(policy::cache::build(kind, 60));
            let misses = numbers.iter().filter(|&&key| !plain.access(key)).count() as u64;
            let ours = simulate(&trace, kind, 60, Mode::default()).misses;
            assert_eq!(ours, misses, "{kind}");
        }
        Ok(())
    }
}
