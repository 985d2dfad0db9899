//! What survives of changes that no flush made durable?
//!
//! ```text
//! power cut: log in its order, then what was in flight -> whole, torn, scattered sectors or nothing
//! killed process: what was in flight                   -> whole, in part or nothing
//! ```
//!
//! Always true: of two surviving changes of a sector the one that completed later shows.

use std::collections::BTreeSet;

use base::{PAGE, SECTOR, Span};
use env::Rng;

use super::state::{Change, State, heal};
use crate::memory::Chunks;

/// Which unflushed operations a power cut leaves behind. Operations in flight count as unflushed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Survival {
    /// Anything: each crash draws how likely survival is, each operation whether it survives whole,
    /// not at all, or torn between two sectors.
    #[default]
    Any,
    /// Every operation survives whole.
    All,
    /// None survives.
    Nothing,
    /// Every other operation survives whole, beginning with the first.
    Alternating,
    /// Each operation survives whole with this probability.
    Operations(f64),
    /// Each sector of each operation survives with this probability.
    Sectors(f64),
}

/// Applies what survives of the unflushed operations, of which `spoiled` is the likelihood of unreadable sectors; returns the sectors that cannot be read afterwards.
pub(super) fn replay(
    state: &State,
    survival: Survival,
    spoiled: f64,
    contents: &mut Chunks,
    rng: &mut Rng,
) -> BTreeSet<u64> {
    let mut unreadable = state.unreadable.clone();
    // Operations in flight have no order among themselves. They go last: one that landed before a
    // completed one of the same sector shows as "did not survive".
    let mut unordered: Vec<&Change> = state.in_flight.iter().map(|(_, change)| change).collect();
    shuffle(&mut unordered, rng);
    let likely = match survival {
        // Draw the two ends often: most bugs show when almost all or almost nothing survives.
        Survival::Any => [0.0, 0.05, 0.5, 0.95, 1.0][rng.below(5) as usize],
        Survival::Operations(likely) | Survival::Sectors(likely) => likely,
        Survival::All => 1.0,
        Survival::Nothing | Survival::Alternating => 0.0,
    };
    let mut order = 0_u64;
    let completed = state.log.iter().map(|change| (change, change.durable));
    // FUA in flight promises nothing yet.
    let begun = unordered.into_iter().map(|change| (change, false));
    for (change, durable) in completed.chain(begun) {
        if durable {
            change.apply(contents);
            heal(&mut unreadable, change.span);
            continue;
        }
        order += 1;
        if spoiled > 0.0 {
            heal(&mut unreadable, change.span);
            if rng.chance(spoiled) {
                spoil(&mut unreadable, change.span, rng);
            }
        }
        let odd = order % 2 == 1;
        apply_surviving(change, survival, likely, odd, contents, rng);
    }
    unreadable
}

/// Applies of one unflushed change what survives; `odd` ones do where every other one does.
fn apply_surviving(
    change: &Change,
    survival: Survival,
    likely: f64,
    odd: bool,
    contents: &mut Chunks,
    rng: &mut Rng,
) {
    match survival {
        Survival::All => change.apply(contents),
        Survival::Nothing => {}
        Survival::Alternating if odd => change.apply(contents),
        Survival::Alternating => {}
        Survival::Operations(_) if rng.chance(likely) => change.apply(contents),
        Survival::Operations(_) => {}
        Survival::Sectors(_) => apply_some_sectors(change, contents, likely, rng),
        Survival::Any if rng.chance(0.2) => tear(change, contents, rng),
        Survival::Any if rng.chance(likely) => change.apply(contents),
        Survival::Any => {}
    }
}

/// What has landed of the changes in flight when their process was killed: each whole, in part or not at all, in
/// any order.
pub(super) fn landed(state: &State, rng: &mut Rng) -> Vec<Change> {
    let mut in_flight: Vec<&Change> = state.in_flight.iter().map(|(_, change)| change).collect();
    shuffle(&mut in_flight, rng);
    let mut landed = Vec::new();
    for change in in_flight {
        let sectors = change.span.len.sectors();
        match rng.below(5) {
            0 | 1 => landed.push(change.part(0, sectors)),
            2 => landed.push(change.part(0, rng.below(sectors + 1))),
            _ => {}
        }
    }
    landed
}

/// Some neighbouring sectors of `span`, at most a page of them, cannot be read.
fn spoil(unreadable: &mut BTreeSet<u64>, span: Span, rng: &mut Rng) {
    let sectors = span.len.sectors();
    if sectors == 0 {
        return;
    }
    let first = rng.below(sectors);
    let count = 1 + rng.below((sectors - first).min(PAGE as u64 / SECTOR));
    let first = span.start.0 + first;
    unreadable.extend(first..first + count);
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

fn apply_some_sectors(change: &Change, contents: &mut Chunks, likely: f64, rng: &mut Rng) {
    for sector in 0..change.span.len.sectors() {
        if rng.chance(likely) {
            change.apply_part(contents, sector, 1);
        }
    }
}

/// A head, a tail or scattered sectors of the operation survive.
fn tear(change: &Change, contents: &mut Chunks, rng: &mut Rng) {
    let sectors = change.span.len.sectors();
    let cut = rng.below(sectors + 1);
    match rng.below(3) {
        0 => change.apply_part(contents, 0, cut),
        1 => change.apply_part(contents, cut, sectors - cut),
        _ => apply_some_sectors(change, contents, 0.5, rng),
    }
}
