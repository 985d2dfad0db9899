//! The ordered synchronization of a temporary buffer: what goes where while it lasts?
//!
//! ```text
//!  0 ---- done ---- position ==== under way ==== ---- not reached yet ---- end of the region
//!  users: destination             wait           write: buffer; read: marked from it, else destination
//! ```
//!
//! Pure: the time is an argument, and the caller carries the writes out.
//!
//! ```text
//! Scanning  -> UnderWay   begin: `next` named a marked run, the caller holds its pages
//! UnderWay  -> Scanning   written: its marks go, the position is its end
//! UnderWay  -> Scanning   failed: its marks stay, the position is its start
//! Scanning  -> Done       next: no mark is left above the position
//! ```
//!
//! Source: AST 3.3.2 (bitmap searched in address order; no more than 500 requests a second; users' writes
//! below the position go to the destination, above it to the buffer).
//!
//! Always true:
//! 1. The position never goes back, and never lies within a page: what a user writes to a page as a whole goes to one
//!    place as a whole, so a crash does not tear it.
//! 2. Nothing below the position is marked; so a user's write there and the synchronization never meet.
//! 3. In any second no more writes begin than the pace allows.

use std::ops::Range;

use base::{Bytes, Instant, Nanos, SECTOR};

use super::buffer::{PAGE_SECTORS, TemporaryBuffer};

/// At most so many writes a second (AST 3.3.2).
pub(crate) const SYNC_IOPS_MAX: u64 = 500;
/// The longest write of the synchronization.
///
/// Choice: the paper names none; a longer run of marks is several requests.
pub(crate) const SYNC_WRITE_MAX: Bytes = Bytes::mib(1);

/// When the next write may begin. One for all regions: they are synchronized one after the other.
///
/// Choice: requests are spread evenly and unused turns are not saved up, so that no moment sees a burst.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    gap: Nanos,
    next: Instant,
}

impl Pace {
    /// `iops_max` writes a second, the first at once.
    pub fn new(iops_max: u64) -> Pace {
        Pace {
            gap: Nanos(1_000_000_000_u64.div_ceil(iops_max)),
            next: Instant(0),
        }
    }

    /// How long until a write may begin.
    pub fn wait(&self, now: Instant) -> Nanos {
        self.next.since(now)
    }

    /// A write begins.
    pub fn take(&mut self, now: Instant) {
        self.next = now + self.gap;
    }
}

/// What the synchronization does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// These marked sectors go to the destination: hold their pages, then begin.
    Write(Range<u64>),
    /// Too early; ask again after so long.
    Wait(Nanos),
    /// Nothing is marked any more: the region has moved.
    Done,
}

/// A request of a user, cut at the position of the synchronization; each part may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// At its destination already.
    pub below: Range<u64>,
    /// Being written to the destination at this moment: a write waits.
    pub under_way: Range<u64>,
    /// Not reached: a write goes to the buffer, a read takes what is marked from there.
    pub above: Range<u64>,
}

/// The synchronization of one region's buffer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sync {
    position: u64,
    under_way: Option<Range<u64>>,
}

/// The first sector of the page of `sector`.
fn page_of(sector: u64) -> u64 {
    sector / PAGE_SECTORS * PAGE_SECTORS
}

impl Sync {
    /// Everything below is at its destination, or was never written.
    #[cfg(test)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next step at `now`; no write may be under way.
    pub fn next(&self, buffer: &TemporaryBuffer, pace: &Pace, now: Instant) -> Step {
        assert_eq!(self.under_way, None, "one write at a time");
        match (self.first_run(buffer), pace.wait(now)) {
            (None, _) => Step::Done,
            (Some(run), Nanos(0)) => Step::Write(run),
            (Some(_), wait) => Step::Wait(wait),
        }
    }

    /// As far as a write may go; cut where a page ends.
    fn first_run(&self, buffer: &TemporaryBuffer) -> Option<Range<u64>> {
        let run = buffer.next_run(self.position, SYNC_WRITE_MAX.0 / SECTOR)?;
        let most = page_of(run.start) + SYNC_WRITE_MAX.0 / SECTOR;
        Some(run.start..run.end.min(most))
    }

    /// The write of the first marked run begins, as far as it lies within `held`, the whole pages that the caller
    /// holds since [`Sync::next`] named them. `None` if users changed the buffer meanwhile so that another
    /// run is first: ask again.
    pub fn begin(&mut self, buffer: &TemporaryBuffer, held: &Range<u64>) -> Option<Range<u64>> {
        let run = self.first_run(buffer)?;
        let run = run.start..run.end.min(held.end);
        if run.start < held.start || run.start >= run.end {
            return None;
        }
        // What was searched and not marked is done: from here on a write there needs no buffer.
        self.position = page_of(run.start);
        self.under_way = Some(run.clone());
        Some(run)
    }

    /// The write under way is at its destination.
    pub fn written(&mut self, buffer: &mut TemporaryBuffer) {
        let run = self.under_way.take().expect("a write was under way");
        let page_end = run.end.next_multiple_of(PAGE_SECTORS);
        let more = buffer.touches(run.end..page_end.min(buffer.sectors()));
        self.position = match more {
            true => page_of(run.end),
            false => page_end,
        };
        buffer.clear(run);
    }

    /// The write under way failed; its sectors stay marked and come next again.
    pub fn failed(&mut self) {
        assert!(self.under_way.take().is_some(), "a write was under way");
    }

    /// Where the parts of a request belong at this moment.
    pub fn cut(&self, range: Range<u64>) -> Cut {
        let end = self.under_way.as_ref().map_or(self.position, |run| run.end);
        let part = |from: u64, to: u64| {
            let start = range.start.clamp(from, to);
            start..range.end.clamp(start, to)
        };
        Cut {
            below: part(0, self.position),
            under_way: part(self.position, end),
            above: part(end, u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moving::buffer::Piece;
    use base::View;
    use proptest::prelude::*;

    const SECTORS: u64 = 96;

    fn painted(range: &Range<u64>, with: u8) -> View {
        View::copy_of(&vec![with; ((range.end - range.start) * SECTOR) as usize])
    }

    /// A step that users do not come between.
    fn step(sync: &mut Sync, buffer: &TemporaryBuffer, pace: &mut Pace, now: Instant) -> Step {
        let step = sync.next(buffer, pace, now);
        if let Step::Write(run) = &step {
            assert_eq!(sync.begin(buffer, run), Some(run.clone()));
            pace.take(now);
        }
        step
    }

    fn marked(ranges: &[Range<u64>]) -> TemporaryBuffer {
        let mut buffer = TemporaryBuffer::new(Bytes(SECTORS * SECTOR));
        for range in ranges {
            buffer.write(range.start, &painted(range, 1));
        }
        buffer
    }

    #[test]
    fn marked_runs_go_in_address_order_until_none_is_left() {
        let mut buffer = marked(&[40..48, 3..4, 20..28]);
        let (mut sync, mut pace) = (Sync::default(), Pace::new(SYNC_IOPS_MAX));
        let mut now = Instant(0);
        let mut order = Vec::new();
        loop {
            match step(&mut sync, &buffer, &mut pace, now) {
                Step::Write(run) => {
                    order.push((now, run));
                    sync.written(&mut buffer);
                }
                Step::Wait(wait) => now = now + wait,
                Step::Done => break,
            }
        }
        let at = |ms: u64| Instant(ms * 1_000_000);
        assert_eq!(
            order,
            [(at(0), 3..4), (at(2), 20..28), (at(4), 40..48)],
            "500 a second are one every 2 ms"
        );
        assert_eq!(buffer.marked(), Bytes(0));
    }

    #[test]
    fn users_below_the_position_meet_the_destination_and_above_it_the_buffer() {
        let mut buffer = marked(&[10..20, 40..48]);
        let (mut sync, mut pace) = (Sync::default(), Pace::new(SYNC_IOPS_MAX));
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, Instant(0)),
            Step::Write(10..20)
        );
        let cut = sync.cut(5..60);
        assert_eq!((cut.below, cut.under_way, cut.above), (5..8, 8..20, 20..60));
        sync.written(&mut buffer);
        let cut = sync.cut(5..60);
        assert_eq!((cut.below, cut.above), (5..24, 24..60), "to the page's end");
        assert!(cut.under_way.is_empty());
        // Nothing is marked between 20 and 40: the next step's position is 40.
        let later = Instant(1_000_000_000);
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, later),
            Step::Write(40..48)
        );
        assert_eq!(sync.cut(30..35).below, 30..35);
        assert_eq!(sync.position(), 40);
    }

    #[test]
    fn a_page_written_as_a_whole_goes_to_one_place_as_a_whole() {
        let (mut sync, mut pace) = (Sync::default(), Pace::new(u64::MAX));
        let mut buffer = marked(&[0..4, 6..8, 16..17]);
        let now = |step: u64| Instant(step);
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, now(1)),
            Step::Write(0..4)
        );
        sync.written(&mut buffer);
        // A part of the page is in the buffer still, so all of it goes there.
        assert_eq!(sync.cut(0..8).above, 0..8);
        // It is named as it is and grows before its pages are held.
        let Step::Write(named) = sync.next(&buffer, &pace, now(2)) else {
            panic!("something is marked");
        };
        assert_eq!(named, 6..8);
        buffer.write(0, &painted(&(0..8), 3));
        assert_eq!(sync.begin(&buffer, &(0..8)), Some(0..8));
        sync.written(&mut buffer);
        assert_eq!(sync.cut(0..8).below, 0..8);
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, now(3)),
            Step::Write(16..17)
        );
        sync.written(&mut buffer);
        assert_eq!(sync.cut(16..24).below, 16..24);
        // A write that failed leaves its page where it was.
        buffer.write(30, &painted(&(30..31), 1));
        let named = step(&mut sync, &buffer, &mut pace, now(4));
        assert_eq!(named, Step::Write(30..31));
        sync.failed();
        assert_eq!(sync.cut(24..32).above, 24..32);
        // A long run that begins within a page ends with one.
        let mut buffer = TemporaryBuffer::new(Bytes::mib(8));
        buffer.write_zeroes(3..5000);
        let mut sync = Sync::default();
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, now(5)),
            Step::Write(3..2048)
        );
    }

    #[test]
    fn a_write_that_failed_comes_again() {
        let mut buffer = marked(&[10..15, 15..20]);
        let (mut sync, mut pace) = (Sync::default(), Pace::new(SYNC_IOPS_MAX));
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, Instant(0)),
            Step::Write(10..20)
        );
        sync.failed();
        assert!(sync.cut(10..20).under_way.is_empty());
        let wait = Nanos::millis(2);
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, Instant(0)),
            Step::Wait(wait)
        );
        let later = Instant(0) + wait;
        assert_eq!(
            step(&mut sync, &buffer, &mut pace, later),
            Step::Write(10..20)
        );
        sync.written(&mut buffer);
        assert_eq!(step(&mut sync, &buffer, &mut pace, later), Step::Done);
    }

    #[test]
    fn what_users_write_before_a_step_begins_is_seen_by_it() {
        let mut buffer = marked(&[10..15, 15..20]);
        let (mut sync, pace) = (Sync::default(), Pace::new(SYNC_IOPS_MAX));
        let Step::Write(run) = sync.next(&buffer, &pace, Instant(0)) else {
            panic!("something is marked");
        };
        assert_eq!(run, 10..20);
        // An earlier sector was written meanwhile: it goes first.
        buffer.write(5, &painted(&(5..6), 2));
        assert_eq!(sync.begin(&buffer, &run), None);
        assert_eq!(sync.begin(&buffer, &(5..6)), Some(5..6));
        sync.written(&mut buffer);
        // The run has grown, but only what is held is written.
        buffer.write(20, &painted(&(20..30), 2));
        assert_eq!(sync.begin(&buffer, &run), Some(10..20));
    }

    #[test]
    fn a_long_run_is_several_writes() {
        let mut buffer = TemporaryBuffer::new(Bytes::mib(8));
        buffer.write_zeroes(0..5000);
        let (mut sync, mut pace) = (Sync::default(), Pace::new(u64::MAX));
        let mut lengths = Vec::new();
        while let Step::Write(run) =
            step(&mut sync, &buffer, &mut pace, Instant(lengths.len() as u64))
        {
            lengths.push(run.end - run.start);
            sync.written(&mut buffer);
        }
        assert_eq!(lengths, [2048, 2048, 904]);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Write(Range<u64>, u8),
        Read(Range<u64>),
        Begin(u64),
        End(bool),
    }

    fn acts() -> impl Strategy<Value = Act> {
        let ranges = || (0..SECTORS, 1..24u64).prop_map(|(at, len)| at..(at + len).min(SECTORS));
        prop_oneof![
            3 => (ranges(), 1..=255u8).prop_map(|(range, with)| Act::Write(range, with)),
            3 => ranges().prop_map(Act::Read),
            2 => (0..5_000_000u64).prop_map(Act::Begin),
            2 => prop::bool::weighted(0.9).prop_map(Act::End),
        ]
    }

    proptest! {
        /// The reference model of a moving region: its sectors as users know them. A copy is at the destination, later
        /// writes are in the buffer, and the synchronization goes on between the users' requests.
        #[test]
        fn users_see_their_last_writes_in_the_buffer_and_at_the_destination_after(
            before in prop::collection::vec((0..SECTORS, 1..24u64, 1..=255u8), 0..8),
            acts in prop::collection::vec(acts(), 1..80),
        ) {
            let mut truth = vec![0u8; SECTORS as usize];
            let mut destination = truth.clone();
            let mut buffer = TemporaryBuffer::new(Bytes(SECTORS * SECTOR));
            for (at, len, with) in before {
                let range = at..(at + len).min(SECTORS);
                buffer.write(at, &painted(&range, with));
                truth[at as usize..range.end as usize].fill(with);
            }
            let (mut sync, mut pace) = (Sync::default(), Pace::new(SYNC_IOPS_MAX));
            let mut now = Instant(0);
            let mut begun: Vec<Instant> = Vec::new();
            let mut under_way: Option<(Range<u64>, View)> = None;
            let last = std::iter::repeat_n([Act::End(true), Act::Begin(2_000_000)], 100).flatten();
            for act in acts.into_iter().chain(last) {
                let position = sync.position();
                match act {
                    Act::Write(range, with) => {
                        let cut = sync.cut(range.clone());
                        if !cut.under_way.is_empty() {
                            continue; // It waits, and comes later or never.
                        }
                        truth[range.start as usize..range.end as usize].fill(with);
                        destination[cut.below.start as usize..cut.below.end as usize].fill(with);
                        if !cut.above.is_empty() {
                            buffer.write(cut.above.start, &painted(&cut.above, with));
                        }
                    }
                    Act::Read(range) => {
                        let mut seen = Vec::new();
                        let cut = sync.cut(range.clone());
                        prop_assert!(!buffer.touches(cut.below.clone()));
                        for piece in buffer.pieces(range.clone()) {
                            match piece {
                                Piece::Buffered(_, view) => {
                                    seen.extend(view.chunks(512).map(|sector| sector[0]));
                                }
                                Piece::Beneath(part) => seen.extend(
                                    &destination[part.start as usize..part.end as usize],
                                ),
                            }
                        }
                        prop_assert_eq!(
                            &seen[..],
                            &truth[range.start as usize..range.end as usize]
                        );
                    }
                    Act::Begin(after) if under_way.is_none() => {
                        now = now + Nanos(after);
                        if let Step::Write(run) = step(&mut sync, &buffer, &mut pace, now) {
                            begun.push(now);
                            under_way = Some((run.clone(), buffer.contents(run)));
                        }
                    }
                    Act::End(done) => {
                        let Some((run, contents)) = under_way.take() else { continue };
                        match done {
                            true => {
                                for (sector, bytes) in run.zip(contents.chunks(512)) {
                                    destination[sector as usize] = bytes[0];
                                }
                                sync.written(&mut buffer);
                            }
                            false => sync.failed(),
                        }
                    }
                    Act::Begin(_) => {}
                }
                prop_assert!(sync.position() >= position, "the position never goes back");
            }
            prop_assert_eq!(step(&mut sync, &buffer, &mut pace, now), Step::Done);
            prop_assert_eq!(destination, truth);
            for pair in begun.windows(2) {
                prop_assert!(pair[1].since(pair[0]) >= Nanos::millis(2));
            }
        }
    }
}
