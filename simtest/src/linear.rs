//! Could what clients saw have come from one disk that does one thing at a time?
//!
//! ```text
//! operations: what, from when, until when (or unknown) -> by block -> an order in which each read gives the last write
//! ```
//!
//! Each block of a disk is a register. A write gives it a *tag*; 0 is what it holds before the first write, and what a
//! discard or a write of zeroes leaves. Every other tag is written once. A write that failed, or was never answered, may take
//! effect at any time after it began, or never. Reads that failed say nothing and are not asked about.
//!
//! Two ways, each for its histories:
//!
//! - *zones*, where zero is never written again: the operations of one tag make a zone, from the first end to the last
//!   beginning. Some order fits just when no two zones that run forward meet, and none that runs backward lies within
//!   one that runs forward. Sorting is all it takes.
//! - *search*, for all others: after each event, all the states that a block could be in, in a window of the operations
//!   under way. A read that fits a state is taken at once, which never harms.
//!
//! - [`moment`] whether what a snapshot holds was all there at one moment.
//!
//! Source: Gibbons and Korach, "Testing shared memories", 1997 (zones); Wing and Gong, 1993, and Lowe, 2017 (search).
//!
//! Always true:
//! 1. The answer is that of trying every order: the tests hold both ways against just that.
//! 2. Only the order of moments counts; the answer does not depend on the order in which operations are listed.

pub mod moment;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A moment: the order of events, not the time between them. No two events of one block have the same.
pub type Moment = u64;
/// What a write leaves in a block.
pub type Tag = u64;

/// What is there before the first write and after a discard.
pub const ZERO: Tag = 0;

/// What a client did with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// Left this tag there.
    Write(Tag),
    /// Found this tag.
    Read(Tag),
}

/// One operation on one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// When it was asked for.
    pub began: Moment,
    /// When it was answered; `None`: it failed or was never answered.
    pub ended: Option<Moment>,
    /// The block.
    pub block: u64,
    /// What it did.
    pub act: Act,
    /// Which client did it, for the report.
    pub who: u32,
}

/// No order of a block's operations explains what its reads gave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("block {block}: {why}; around it:{}", listed(around))]
pub struct Impossible {
    /// Which block.
    pub block: u64,
    /// What does not fit.
    pub why: String,
    /// Operations that have to do with it.
    pub around: Vec<Operation>,
}

fn listed(operations: &[Operation]) -> String {
    let mut operations = operations.to_vec();
    operations.sort_unstable();
    operations.iter().map(|it| format!("\n  {it}")).collect()
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, tag) = match self.act {
            Act::Write(tag) => ("writes", tag),
            Act::Read(tag) => ("reads", tag),
        };
        write!(f, "{} .. ", self.began)?;
        match self.ended {
            Some(ended) => write!(f, "{ended}")?,
            None => write!(f, "?")?,
        }
        write!(f, ": {} {verb} {tag}", self.who)
    }
}

/// Is there an order, block by block?
///
/// # Errors
/// [`Impossible`] for the first block without one.
///
/// # Example
/// ```
/// use simtest::linear::{Act, Operation, check};
/// let op = |began, ended, act| Operation { began, ended, block: 0, act, who: 1 };
/// let lost = op(1, None, Act::Write(7));
/// // What was never answered may show late ...
/// let late = [lost, op(2, Some(3), Act::Read(0)), op(4, Some(5), Act::Read(7))];
/// assert!(check(&late).is_ok());
/// // ... but not go away again.
/// let gone = [lost, op(2, Some(3), Act::Read(7)), op(4, Some(5), Act::Read(0))];
/// assert!(check(&gone).is_err());
/// ```
pub fn check(operations: &[Operation]) -> Result<(), Impossible> {
    let mut blocks: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        // A read that was not answered found nothing.
        if matches!(operation.act, Act::Write(_)) || operation.ended.is_some() {
            let block = blocks.entry(operation.block).or_default();
            block.push(*operation);
        }
    }
    for (block, mut operations) in blocks {
        operations.sort_unstable();
        let zeroed = operations.iter().any(|it| it.act == Act::Write(ZERO));
        let answer = match zeroed {
            true => searched(&operations),
            false => zoned(&operations),
        };
        answer.map_err(|(why, around)| Impossible { block, why, around })?;
    }
    Ok(())
}

type Refused = (String, Vec<Operation>);

// --- zones ------------------------------------------------------------------------------------------------

/// All operations of one tag.
#[derive(Clone, Copy)]
struct Zone {
    tag: Tag,
    /// The first moment at which one of them was over.
    first_end: Moment,
    /// The last moment at which one of them began.
    last_began: Moment,
}

impl Zone {
    /// It holds the tag from its first end to its last beginning.
    fn is_forward(&self) -> bool {
        self.first_end < self.last_began
    }

    fn span(&self) -> (Moment, Moment) {
        let (a, b) = (self.first_end, self.last_began);
        (a.min(b), a.max(b))
    }
}

/// One block whose tags are each written once; zero never.
fn zoned(operations: &[Operation]) -> Result<(), Refused> {
    let of = |tags: &[Tag]| -> Vec<Operation> {
        let ours = operations.iter().filter(|it| match it.act {
            Act::Write(tag) | Act::Read(tag) => tags.contains(&tag),
        });
        ours.copied().collect()
    };
    let zones = zones(operations).map_err(|(why, tag)| (why, of(&[tag])))?;
    let (mut forward, backward): (Vec<Zone>, Vec<Zone>) =
        zones.into_iter().partition(Zone::is_forward);
    forward.sort_unstable_by_key(Zone::span);
    for pair in forward.windows(2) {
        let (one, other) = (pair[0], pair[1]);
        if other.span().0 < one.span().1 {
            let why = format!(
                "{} and {} were each there while the other was",
                one.tag, other.tag
            );
            return Err((why, of(&[one.tag, other.tag])));
        }
    }
    for inner in backward {
        let (from, to) = inner.span();
        // Those that run forward do not meet: only the last that begins before it can have it within.
        let at = forward.partition_point(|it| it.span().0 < from);
        let outer = at.checked_sub(1).map(|at| forward[at]);
        if let Some(outer) = outer.filter(|outer| to < outer.span().1) {
            let why = format!("{} came and went while {} was there", inner.tag, outer.tag);
            return Err((why, of(&[inner.tag, outer.tag])));
        }
    }
    Ok(())
}

/// When each tag was there, of those that were seen or acknowledged; or which tag was read that was not there.
fn zones(operations: &[Operation]) -> Result<Vec<Zone>, (String, Tag)> {
    let mut zones: BTreeMap<Tag, Zone> = BTreeMap::new();
    let mut written: BTreeMap<Tag, Operation> = BTreeMap::new();
    for operation in operations {
        let Act::Write(tag) = operation.act else {
            continue;
        };
        assert!(
            written.insert(tag, *operation).is_none(),
            "a tag is written once"
        );
        let zone = Zone {
            tag,
            first_end: operation.ended.unwrap_or(Moment::MAX),
            last_began: operation.began,
        };
        zones.insert(tag, zone);
    }
    // It was zero before anything began.
    let before = Zone {
        tag: ZERO,
        first_end: 0,
        last_began: 0,
    };
    zones.insert(ZERO, before);
    for operation in operations {
        let (Act::Read(tag), Some(ended)) = (operation.act, operation.ended) else {
            continue;
        };
        let Some(zone) = zones.get_mut(&tag) else {
            return Err((format!("{tag} was read and never written"), tag));
        };
        if written.get(&tag).is_some_and(|it| it.began > ended) {
            return Err((format!("{tag} was read before it was written"), tag));
        }
        zone.first_end = zone.first_end.min(ended);
        zone.last_began = zone.last_began.max(operation.began);
    }
    // What was never answered and never seen need not have happened.
    zones.retain(|_, zone| zone.first_end < Moment::MAX);
    Ok(zones.into_values().collect())
}

// --- search -----------------------------------------------------------------------------------------------

/// What a block may be like: what it holds, and which of the operations under way have taken effect.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    tag: Tag,
    done: BTreeSet<usize>,
}

/// Each with the least number of endless zeroes that it takes: writes of zero whose end is unknown are all alike.
/// Having more of them left is never worse.
type States = BTreeMap<Possible, usize>;

/// Any block, in the order of events.
fn searched(operations: &[Operation]) -> Result<(), Refused> {
    let needed = needed(operations);
    let operations = needed.as_slice();
    let mut events: Vec<(Moment, bool, usize)> = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        events.push((operation.began, false, at));
        events.extend(operation.ended.map(|ended| (ended, true, at)));
    }
    events.sort_unstable();
    let first = Possible {
        tag: ZERO,
        done: BTreeSet::new(),
    };
    let mut possible = States::from([(first, 0)]);
    let mut under_way: BTreeSet<usize> = BTreeSet::new();
    let mut endless = 0;
    for (_, ends, at) in events {
        if !ends {
            match operations[at].ended {
                Some(_) => drop(under_way.insert(at)),
                None => endless += 1,
            }
            continue;
        }
        let mut after = States::new();
        for (mut state, used) in all_from(operations, &under_way, endless, possible) {
            if state.done.remove(&at) {
                better(&mut after, state, used);
            }
        }
        if after.is_empty() {
            let around = under_way.iter().map(|at| operations[*at]).collect();
            let why = format!("nothing explains {}", operations[at]);
            return Err((why, around));
        }
        under_way.remove(&at);
        possible = after;
    }
    Ok(())
}

/// Keeps a state if it is new, or takes fewer endless zeroes than it did.
fn better(states: &mut States, state: Possible, used: usize) -> bool {
    let least = states.entry(state).or_insert(usize::MAX);
    let is_better = used < *least;
    *least = used.min(*least);
    is_better
}

/// Without writes that were neither answered nor seen; those that were seen are over when they were seen first.
fn needed(operations: &[Operation]) -> Vec<Operation> {
    let mut seen: BTreeMap<Tag, Moment> = BTreeMap::new();
    for operation in operations {
        if let (Act::Read(tag), Some(ended)) = (operation.act, operation.ended) {
            let first = seen.entry(tag).or_insert(ended);
            *first = (*first).min(ended);
        }
    }
    let needed = operations.iter().filter_map(|operation| {
        let mut operation = *operation;
        if let (Act::Write(tag), None) = (operation.act, operation.ended)
            && tag != ZERO
        {
            let first = *seen.get(&tag)?;
            // Just before: moments of reads are not shared. A read before the write began is found out in the search.
            operation.ended = Some(first.max(operation.began));
        }
        Some(operation)
    });
    needed.collect()
}

/// All states that can come of these before the next event.
fn all_from(
    operations: &[Operation],
    under_way: &BTreeSet<usize>,
    endless: usize,
    possible: States,
) -> States {
    let mut all = States::new();
    let mut left: Vec<(Possible, usize)> = possible.into_iter().collect();
    while let Some((mut state, used)) = left.pop() {
        for at in under_way {
            if operations[*at].act == Act::Read(state.tag) {
                state.done.insert(*at);
            }
        }
        if !better(&mut all, state.clone(), used) {
            continue;
        }
        for at in under_way {
            if let Act::Write(tag) = operations[*at].act
                && !state.done.contains(at)
            {
                let mut next = state.clone();
                next.tag = tag;
                next.done.insert(*at);
                left.push((next, used));
            }
        }
        if used < endless && state.tag != ZERO {
            let mut next = state;
            next.tag = ZERO;
            left.push((next, used + 1));
        }
    }
    all
}

#[cfg(test)]
mod tests;
