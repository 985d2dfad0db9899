//! A device that misbehaves on purpose: which request goes wrong, and how?
//!
//! ```text
//! request -> rules that match -> verdict -> (delay) -> the device below, done right | wrong | not at all
//!              count, chance                          -> answer, true | false
//! ```
//!
//! Rules live in a [`Book`] that several devices may share, so "the k-th request of the whole stack
//! fails" is one rule. Rules are added and removed while the devices are in use.
//!
//! Always true:
//! 1. A request no rule fires on goes to the device below as it came.
//! 2. One seed, one order of requests and one set of rules give the same injuries.
//! 3. Every injury done is counted in [`Injuries`].
//! 4. Rotten bits stay rotten until a write, write of zeroes or discard of their sector succeeds.

mod rules;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Map, Nanos, SECTOR, Sector, Span, View};
use env::Rng;

pub use self::rules::{Done, Injury, Rule};

use crate::memory::Waiting;
use crate::{Class, Device, DeviceError, Info, Op, Pending, Power, Spindle, WriteFlags};

/// Names a rule in its book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// How many injuries were done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Injuries {
    /// Requests answered with an error, failed flushes not counted.
    pub errors: u64,
    /// Flushes answered with an error.
    pub failed_flushes: u64,
    /// Requests delayed or slowed down.
    pub slowed: u64,
    /// Reads with bits newly flipped.
    pub rotten_reads: u64,
    /// Writes that landed elsewhere.
    pub misdirected: u64,
    /// Requests acknowledged and not done.
    pub lost: u64,
}

struct Entry {
    id: RuleId,
    rule: Rule,
    /// Requests that matched so far.
    matched: u64,
    fired: u64,
}

/// The rules of one or more [`Fault`] devices.
pub struct Book {
    rules: RefCell<Vec<Entry>>,
    next_id: Cell<u64>,
    steps: Cell<u64>,
    injuries: Cell<Injuries>,
    rng: RefCell<Rng>,
}

/// All that is to go wrong with one request.
#[derive(Default)]
struct Verdict {
    /// At most one of error, gone, misdirect and lose: the first rule that fired.
    fate: Option<Injury>,
    delay: Nanos,
    slow: f64,
    rot: u32,
    rot_lasting: u32,
}

impl Verdict {
    fn is_clean(&self) -> bool {
        let slowed = self.delay > Nanos(0) || self.slow > 1.0;
        self.fate.is_none() && !slowed && self.rot == 0 && self.rot_lasting == 0
    }
}

impl Book {
    /// A book without rules; `rng` draws every chance.
    pub fn new(rng: Rng) -> Rc<Book> {
        Rc::new(Book {
            rules: RefCell::default(),
            next_id: Cell::new(0),
            steps: Cell::new(0),
            injuries: Cell::default(),
            rng: RefCell::new(rng),
        })
    }

    /// Puts `inner` under the rules of this book.
    pub fn wrap(self: &Rc<Self>, inner: Rc<dyn Device>) -> Rc<Fault> {
        Rc::new(Fault {
            name: inner.info().name,
            inner,
            book: Rc::clone(self),
            rotten: RefCell::default(),
            waiting: Cell::new(0),
        })
    }

    /// Adds a rule; its counts start now.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next_id.get());
        self.next_id.set(id.0 + 1);
        self.rules.borrow_mut().push(Entry {
            id,
            rule,
            matched: 0,
            fired: 0,
        });
        id
    }

    /// Takes a rule out; lasting damage it did stays.
    pub fn remove(&self, id: RuleId) {
        self.rules.borrow_mut().retain(|entry| entry.id != id);
    }

    /// Takes all rules out; lasting damage stays.
    pub fn clear(&self) {
        self.rules.borrow_mut().clear();
    }

    /// Requests begun so far on all devices of the book.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// What was done so far.
    pub fn injuries(&self) -> Injuries {
        self.injuries.get()
    }

    fn count(&self, change: impl FnOnce(&mut Injuries)) {
        let mut injuries = self.injuries.get();
        change(&mut injuries);
        self.injuries.set(injuries);
    }

    fn judge(&self, device: &str, op: Op, span: Span) -> Verdict {
        self.steps.set(self.steps.get() + 1);
        let mut verdict = Verdict {
            slow: 1.0,
            ..Verdict::default()
        };
        for entry in self.rules.borrow_mut().iter_mut() {
            if !entry.rule.matches(device, op, span) {
                continue;
            }
            entry.matched += 1;
            let spent = entry.rule.times.is_some_and(|times| entry.fired >= times);
            if entry.matched <= entry.rule.after || spent {
                continue;
            }
            if !self.rng.borrow_mut().chance(entry.rule.chance) {
                continue;
            }
            match entry.rule.injury {
                Injury::Delay(delay) => verdict.delay += delay,
                Injury::Slow(factor) => verdict.slow *= factor.max(1.0),
                Injury::Rot { bits, lasting } if lasting => verdict.rot_lasting += bits,
                Injury::Rot { bits, .. } => verdict.rot += bits,
                // The request's fate is sealed: this rule keeps its shots for another one.
                _ if verdict.fate.is_some() => continue,
                fate => verdict.fate = Some(fate),
            }
            entry.fired += 1;
        }
        verdict
    }
}

/// A device under the rules of a [`Book`]. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector};
/// use device::fault::{Done, Fault, Injury, Rule};
/// use device::{DeviceExt, Memory};
/// let fault = Fault::new(Memory::new("disk", Bytes::mib(1)), env::Rng::from_seed(1));
/// fault.book().add(Rule::new(Injury::Error(Done::Nothing)).after(1).once());
/// env::Runtime::simulated(1).block_on(async move {
///     assert!(fault.read_at(Sector(0), Bytes(512)).await.is_ok());
///     assert!(fault.read_at(Sector(0), Bytes(512)).await.is_err());
///     assert!(fault.read_at(Sector(0), Bytes(512)).await.is_ok());
///     assert_eq!(fault.book().injuries().errors, 1);
/// });
/// ```
pub struct Fault {
    // Fixed at open.
    name: String,
    inner: Rc<dyn Device>,
    book: Rc<Book>,
    // Per request.
    /// Flipped bits by sector; bit `n` is bit `n % 8` of byte `n / 8`.
    rotten: RefCell<Map<Sector, Vec<u16>>>,
    waiting: Cell<usize>,
}

const BITS_PER_SECTOR: u64 = SECTOR * 8;

impl Fault {
    /// `inner` under a book of its own, without rules yet.
    pub fn new(inner: Rc<dyn Device>, rng: Rng) -> Rc<Fault> {
        Book::new(rng).wrap(inner)
    }

    /// The rules and counts.
    pub fn book(&self) -> &Rc<Book> {
        &self.book
    }

    /// Flips bit `bit` (0..4096) of the sector for every read, until the sector is written.
    ///
    /// # Panics
    /// If a sector has no such bit.
    pub fn rot(&self, sector: Sector, bit: u16) {
        let within = u64::from(bit) < BITS_PER_SECTOR;
        assert!(within, "a sector has 4096 bits, there is no bit {bit}");
        let mut rotten = self.rotten.borrow_mut();
        let bits = rotten.entry(sector).or_default();
        if !bits.contains(&bit) {
            bits.push(bit);
        }
    }

    /// Flips what is rotten within a read of `span`.
    fn show_rot(&self, span: Span, buf: &mut Buf) {
        let rotten = self.rotten.borrow();
        if rotten.is_empty() {
            return;
        }
        for sector in span.start.0..span.end().0 {
            for bit in rotten.get(&Sector(sector)).into_iter().flatten() {
                flip(
                    buf,
                    (sector - span.start.0) * BITS_PER_SECTOR + u64::from(*bit),
                );
            }
        }
    }

    fn heal(&self, span: Span) {
        let mut rotten = self.rotten.borrow_mut();
        if !rotten.is_empty() {
            let healed = span.start..span.end();
            rotten.retain(|sector, _| !healed.contains(sector));
        }
    }

    /// A random place for a span of this length, other than its own.
    fn elsewhere(&self, span: Span) -> Sector {
        let places = self.inner.info().size.sectors() - span.len.sectors();
        if places == 0 {
            return span.start;
        }
        // One place fewer than there are, and step over our own.
        let place = self.book.rng.borrow_mut().below(places);
        Sector(place + u64::from(place >= span.start.0))
    }

    fn io_error(&self, op: Op, span: Span) -> DeviceError {
        self.book.count(|injuries| match op {
            Op::Flush => injuries.failed_flushes += 1,
            _ => injuries.errors += 1,
        });
        DeviceError::Io {
            device: self.name.clone(),
            op,
            span,
            why: "injected fault (EIO)".to_owned(),
        }
    }

    fn gone(&self, op: Op) -> DeviceError {
        self.book.count(|injuries| injuries.errors += 1);
        DeviceError::Gone {
            device: self.name.clone(),
            op,
            why: "injected fault".to_owned(),
        }
    }

    /// Lets `work` take as long as the verdict says.
    async fn at_pace<T>(&self, verdict: &Verdict, work: impl Future<Output = T>) -> T {
        if verdict.delay == Nanos(0) && verdict.slow <= 1.0 {
            return work.await;
        }
        self.book.count(|injuries| injuries.slowed += 1);
        let _waiting = Waiting::begin(&self.waiting);
        let start = env::now();
        let answer = work.await;
        let took = env::now().since(start);
        let longer = Nanos((took.0 as f64 * (verdict.slow - 1.0)) as u64);
        env::sleep(longer + verdict.delay).await;
        answer
    }

    /// Carries out a request that changes `span`. `send(Some(sectors))` sends only the first sectors
    /// of it, `send(None)` all.
    fn change<'a, F>(
        &'a self,
        op: Op,
        span: Span,
        verdict: Verdict,
        send: impl Fn(Sector, Bytes) -> F + 'a,
    ) -> Pending<'a, ()>
    where
        F: Future<Output = Result<(), DeviceError>> + 'a,
    {
        Box::pin(async move {
            self.inner.info().check(op, span.start, span.len.0)?;
            let work = async {
                match verdict.fate {
                    None => {
                        send(span.start, span.len).await?;
                        self.heal(span);
                        Ok(())
                    }
                    Some(Injury::Error(done)) => {
                        let sectors = span.len.sectors();
                        let part = match done {
                            Done::Nothing => 0,
                            Done::Part if op == Op::Write || op == Op::WriteZeroes => {
                                self.book.rng.borrow_mut().below(sectors + 1)
                            }
                            Done::Part => 0,
                            Done::All => sectors,
                        };
                        let part = Bytes(part * SECTOR);
                        if part.0 > 0 || op == Op::Flush && done == Done::All {
                            send(span.start, part).await?;
                            self.heal(Span::new(span.start, part));
                        }
                        Err(self.io_error(op, span))
                    }
                    Some(Injury::Misdirect(to)) => {
                        let to = to.unwrap_or_else(|| self.elsewhere(span));
                        send(to, span.len).await?;
                        self.heal(Span::new(to, span.len));
                        self.book.count(|injuries| injuries.misdirected += 1);
                        Ok(())
                    }
                    Some(Injury::Lose) => {
                        self.book.count(|injuries| injuries.lost += 1);
                        Ok(())
                    }
                    Some(_) => Err(self.gone(op)),
                }
            };
            self.at_pace(&verdict, work).await
        })
    }
}

fn flip(buf: &mut Buf, bit: u64) {
    buf[(bit / 8) as usize] ^= 1 << (bit % 8);
}

impl Device for Fault {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        let verdict = self.book.judge(&self.name, Op::Read, span);
        if verdict.is_clean() && self.rotten.borrow().is_empty() {
            return self.inner.read(at, buf, class);
        }
        Box::pin(async move {
            self.inner.info().check(Op::Read, span.start, span.len.0)?;
            let work = async {
                match verdict.fate {
                    None => {}
                    Some(Injury::Error(_)) => return Err(self.io_error(Op::Read, span)),
                    Some(_) => return Err(self.gone(Op::Read)),
                }
                let mut buf = self.inner.read(at, buf, class).await?;
                let bits = span.len.0 * 8;
                if verdict.rot + verdict.rot_lasting > 0 && bits > 0 {
                    self.book.count(|injuries| injuries.rotten_reads += 1);
                    for _ in 0..verdict.rot_lasting {
                        let bit = self.book.rng.borrow_mut().below(bits);
                        let sector = Sector(at.0 + bit / BITS_PER_SECTOR);
                        self.rot(sector, (bit % BITS_PER_SECTOR) as u16);
                    }
                    for _ in 0..verdict.rot {
                        let bit = self.book.rng.borrow_mut().below(bits);
                        flip(&mut buf, bit);
                    }
                }
                self.show_rot(span, &mut buf);
                Ok(buf)
            };
            self.at_pace(&verdict, work).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        let verdict = self.book.judge(&self.name, Op::Write, span);
        if verdict.is_clean() && self.rotten.borrow().is_empty() {
            return self.inner.write(at, data, flags);
        }
        self.change(Op::Write, span, verdict, move |at, len| {
            self.inner.write(at, data.slice(0, len.usize()), flags)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        let verdict = self.book.judge(&self.name, Op::Flush, Span::default());
        if verdict.is_clean() {
            return self.inner.flush();
        }
        self.change(Op::Flush, Span::default(), verdict, |_, _| {
            self.inner.flush()
        })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        let verdict = self.book.judge(&self.name, Op::Discard, span);
        if verdict.is_clean() && self.rotten.borrow().is_empty() {
            return self.inner.discard(span);
        }
        self.change(Op::Discard, span, verdict, |at, len| {
            self.inner.discard(Span::new(at, len))
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let verdict = self.book.judge(&self.name, Op::WriteZeroes, span);
        if verdict.is_clean() && self.rotten.borrow().is_empty() {
            return self.inner.write_zeroes(span, flags);
        }
        self.change(Op::WriteZeroes, span, verdict, move |at, len| {
            self.inner.write_zeroes(Span::new(at, len), flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        // A slowed request counts once here, and below as long as it is there too.
        self.inner.in_flight().max(self.waiting.get())
    }
}
