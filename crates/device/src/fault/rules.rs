//! What is to go wrong, where, and how often? A rule of injuries.

use base::{Nanos, Sector, Span};

use crate::Op;

/// How much of a request that answers with an error was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Nothing.
    Nothing,
    /// Writes: some sectors from its start on, perhaps none, perhaps all. Other requests: nothing.
    Part,
    /// Everything; only the answer is wrong.
    All,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Injury {
    /// It answers with an I/O error.
    Error(Done),
    /// The device answers that it is gone, and does nothing.
    Gone,
    /// It takes this much longer.
    Delay(Nanos),
    /// It takes this many times as long; at least once.
    Slow(f64),
    /// Reads: so many random bits of the answer are flipped. With `lasting` they stay flipped for
    /// later reads.
    Rot {
        /// Bits to flip.
        bits: u32,
        /// Do later reads see them flipped?
        lasting: bool,
    },
    /// Writes: the data land at this sector, or at a random other place, and the answer is success.
    Misdirect(Option<Sector>),
    /// Writes and flushes: the answer is success, and nothing is done.
    Lose,
}

/// Operations as a set, one bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ops(u8);

impl Ops {
    const ALL: Ops = Ops(0b1_1111);

    pub(super) fn of(ops: &[Op]) -> Ops {
        Ops(ops.iter().fold(0, |set, op| set | Ops::bit(*op)))
    }

    pub(super) fn bit(op: Op) -> u8 {
        match op {
            Op::Read => 1,
            Op::Write => 2,
            Op::Flush => 4,
            Op::Discard => 8,
            Op::WriteZeroes => 16,
        }
    }

    pub(super) fn holds(self, op: Op) -> bool {
        self.0 & Ops::bit(op) != 0
    }
}

impl Injury {
    /// The operations this can happen to.
    pub(super) fn possible(self) -> Ops {
        match self {
            Injury::Error(_) | Injury::Gone | Injury::Delay(_) | Injury::Slow(_) => Ops::ALL,
            Injury::Rot { .. } => Ops::of(&[Op::Read]),
            Injury::Misdirect(_) => Ops::of(&[Op::Write]),
            Injury::Lose => Ops::of(&[Op::Write, Op::WriteZeroes, Op::Flush, Op::Discard]),
        }
    }
}

/// Which requests an injury happens to.
///
/// # Example
/// ```
/// use base::Span;
/// use device::Op;
/// use device::fault::{Done, Injury, Rule};
/// // The fourth write to the first MiB fails, once.
/// let rule = Rule::new(Injury::Error(Done::Nothing))
///     .on(&[Op::Write])
///     .within(Span::bytes(0, 1 << 20))
///     .after(3)
///     .once();
/// # drop(rule);
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(super) injury: Injury,
    pub(super) ops: Ops,
    pub(super) device: Option<String>,
    pub(super) span: Option<Span>,
    pub(super) after: u64,
    pub(super) chance: f64,
    pub(super) times: Option<u64>,
}

impl Rule {
    /// `injury` to every request it can happen to (losing: writes and writes of zeroes), for ever.
    pub fn new(injury: Injury) -> Rule {
        let ops = match injury {
            Injury::Lose => Ops::of(&[Op::Write, Op::WriteZeroes]),
            other => other.possible(),
        };
        Rule {
            injury,
            ops,
            device: None,
            span: None,
            after: 0,
            chance: 1.0,
            times: None,
        }
    }

    /// Only to these operations.
    ///
    /// # Panics
    /// If the injury cannot happen to one of them.
    pub fn on(mut self, ops: &[Op]) -> Rule {
        for op in ops {
            let possible = self.injury.possible().holds(*op);
            assert!(possible, "{:?} cannot happen to a {op}", self.injury);
        }
        self.ops = Ops::of(ops);
        self
    }

    /// Only to requests that share a sector with `span`; never to a flush.
    pub fn within(mut self, span: Span) -> Rule {
        self.span = Some(span);
        self
    }

    /// Only to the device of this name, where several share a book.
    pub fn device(mut self, name: impl Into<String>) -> Rule {
        self.device = Some(name.into());
        self
    }

    /// Not to the first `count` requests that match; so `after(0)` means from the first on.
    pub fn after(mut self, count: u64) -> Rule {
        self.after = count;
        self
    }

    /// To each matching request with this probability.
    pub fn chance(mut self, chance: f64) -> Rule {
        self.chance = chance;
        self
    }

    /// To so many requests, then never again.
    pub fn times(mut self, count: u64) -> Rule {
        self.times = Some(count);
        self
    }

    /// To one request, then never again.
    pub fn once(self) -> Rule {
        self.times(1)
    }

    pub(super) fn matches(&self, device: &str, op: Op, span: Span) -> bool {
        self.ops.holds(op)
            && self.device.as_deref().is_none_or(|name| name == device)
            && self
                .span
                .is_none_or(|own| op != Op::Flush && own.overlaps(span))
    }
}
