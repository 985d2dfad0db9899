//! Which cache does a volume have? A record kept elsewhere than on its devices, and what it allows.
//!
//! ```text
//! record + what the fast device begins with -> judge -> open it | make an empty cache on it | refuse
//!
//! made       record: none that ended is named       -> record: this cache, its attachment -> label "attached"
//! opened     label: the next attachment              -> record: the same
//! detached   record: nothing is dirty                -> label "detached"      -> record: no cache
//! given up   label "abandoned", or the list of those -> record: no cache
//! accepted   record: this cache, whatever its attachment -> opened
//! ```
//!
//! An *attachment* is one coming together of a volume and a fast device: each making and each opening counts one
//! up. A label that is behind the record is of a device that was away while the volume went on without it.
//!
//! Always true:
//! 1. Before data can be dirty in a cache, the record names it and says so.
//! 2. The record forgets a cache only when the slow device has everything, or when that cache was given up.
//! 3. A crash between two of these steps leaves a pair that opens.
//! 4. A process writes the record that it found once more before it writes to the fast device: after a write that
//!    failed, a power cut may leave another record than the one that was read.

use std::cell::Cell;
use std::rc::Rc;

use crate::attach::label::{Label, Unlabelled};
use crate::settings::Mode;

/// What is known of a volume's cache without looking at the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    /// The cache's identity; `None`: the slow device stands alone, and has everything.
    pub cache: Option<u128>,
    /// The number of the last attachment.
    pub generation: u64,
    /// May the cache have data that the slow device has not?
    pub dirty: bool,
    /// It failed, and its dirty data are on their way to the slow device: its clean pages may be out of date.
    pub failing: bool,
    /// An earlier attachment of it is the right one, too. The count goes on from the last attachment all the same, so
    /// that no later state comes back afterwards.
    pub accepted: bool,
    /// The mode that the volume has where nothing else is said; `None` where a version wrote it that kept none.
    pub mode: Option<Mode>,
}

impl Pair {
    /// As it is once the cache counts no more.
    pub fn alone(self) -> Pair {
        Pair {
            cache: None,
            dirty: false,
            failing: false,
            accepted: false,
            ..self
        }
    }

    /// As it is once a cache that may have had dirty data counts no more; one that had none stays named.
    pub fn without_dirty(self) -> Pair {
        match self.dirty {
            true => self.alone(),
            false => self,
        }
    }
}

/// Keeps the record of one volume, elsewhere than on its devices.
pub trait PairBook {
    /// The record; `None` if none was ever written.
    ///
    /// # Errors
    /// In words, if there is one and it cannot be understood.
    fn read(&self) -> Result<Option<Pair>, String>;

    /// Replaces the record, whole and durably: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// [`Unwritten`]; unless it says otherwise, either of the two may be there then, or be there after a power cut, whatever is
    /// read meanwhile.
    fn write(&self, pair: &Pair) -> Result<(), Unwritten>;
}

/// Why a record could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unwritten {
    /// In words.
    pub why: String,
    /// It failed before anything of the old record was replaced.
    pub untouched: bool,
}

/// The record as it is now, and where it is kept.
pub(crate) struct Keeper {
    book: Option<Rc<dyn PairBook>>,
    now: Cell<Pair>,
    /// Is `now` what the book has durably?
    written: Cell<bool>,
    /// Was there a record at all?
    known: Cell<bool>,
}

impl Keeper {
    /// # Errors
    /// [`PairBook::read`].
    pub fn read(book: Option<&Rc<dyn PairBook>>) -> Result<Rc<Keeper>, String> {
        let found = book.map(|book| book.read()).transpose()?.flatten();
        Ok(Rc::new(Keeper {
            book: book.cloned(),
            now: Cell::new(found.unwrap_or_default()),
            // A write of the process before may have failed: what is seen need not be what a power cut leaves.
            written: Cell::new(false),
            known: Cell::new(found.is_some()),
        }))
    }

    /// The record; `None` if there is none yet.
    pub fn record(&self) -> Option<Pair> {
        self.known.get().then(|| self.now.get())
    }

    /// The record, or an empty one.
    pub fn now(&self) -> Pair {
        self.now.get()
    }

    /// Does anything outlast the process?
    pub fn is_kept(&self) -> bool {
        self.book.is_some()
    }

    /// Replaces the record, durably where there is a book.
    ///
    /// # Errors
    /// [`PairBook::write`]; the old record counts on then, if it is [settled](Keeper::is_settled).
    pub fn note(&self, pair: Pair) -> Result<(), String> {
        let pair = match pair.cache {
            Some(_) => pair,
            // What is changed in the record of a cache that was given up meanwhile says nothing of it.
            None => pair.alone(),
        };
        if self.written.get() && self.now.get() == pair {
            return Ok(());
        }
        if let Some(book) = &self.book {
            let sure = self.written.replace(false);
            if let Err(Unwritten { why, untouched }) = book.write(&pair) {
                self.put_back(&**book, sure && untouched);
                return Err(why);
            }
            self.written.set(true);
        }
        self.now.set(pair);
        self.known.set(true);
        Ok(())
    }

    /// A record that could not be written durably may be there all the same, or appear after a power cut, and may say less
    /// than the old one. `stayed`: the old one is still the durable one.
    fn put_back(&self, book: &dyn PairBook, stayed: bool) {
        let old = self.now.get();
        if self.known.get() {
            self.written.set(stayed || book.write(&old).is_ok());
        }
    }

    /// Is the record that counts here the durable one? After a failed write it may be another.
    pub fn is_settled(&self) -> bool {
        self.book.is_none() || self.written.get()
    }
}

/// What may be done with a fast device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its cache is the volume's: open it.
    Open,
    /// Nothing that counts is on it: an empty cache may be made.
    Make,
    Refuse(Refusal),
}

/// Why a fast device may not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The volume's cache, which may have what the slow device has not, is not here.
    NotHere(Pair),
    /// The cache of an attachment before the last one.
    Older(Pair),
    /// Another cache than the record names.
    Another(Pair),
    Foreign,
    Version(u32),
    Damaged,
    /// Its cache ends at this byte, behind the device's end.
    Short(u64),
    /// Neither copy of the label can be read.
    Unreadable,
    /// The slow device begins with the label of a cache, and the fast one does not.
    Swapped,
}

/// As [`judge`], where the slow device begins with the label `slow`. `force` takes the devices as they are named.
pub(crate) fn judge_both(
    name: &str,
    record: Option<Pair>,
    slow: Option<&Label>,
    found: &Result<Label, Unlabelled>,
    abandoned: &[u128],
    force: bool,
) -> Verdict {
    let is_cache = |label: &Label| label.attachment.counts() && !abandoned.contains(&label.uuid);
    let has_none = match found {
        Ok(label) => !is_cache(label),
        Err(why) => matches!(why, Unlabelled::Blank | Unlabelled::Foreign),
    };
    match slow.is_some_and(is_cache) && has_none && !force {
        true => Verdict::Refuse(Refusal::Swapped),
        false => judge(name, record, found, abandoned, force),
    }
}

/// What may be done with a fast device that begins with `found`, by the volume `name` with this `record`? `abandoned`
/// are caches that count no more, whatever labels and records say; `force` takes a device that holds something else,
/// but never what the record says may be the only copy, nor a cache that counts and may be another volume's.
pub(crate) fn judge(
    name: &str,
    record: Option<Pair>,
    found: &Result<Label, Unlabelled>,
    abandoned: &[u128],
    force: bool,
) -> Verdict {
    let given_up = |cache: u128| abandoned.contains(&cache);
    let record = record.map(|pair| match pair.cache {
        Some(cache) if given_up(cache) => pair.alone(),
        // A version wrote so where the write mode was set while a cache was given up.
        None => pair.alone(),
        Some(_) => pair,
    });
    match found {
        Ok(label) if given_up(label.uuid) => judge_ended(record, None),
        Ok(label) if label.attachment.counts() => {
            judge_live(record, label, force && is_ours(name, record, label))
        }
        Ok(label) => judge_ended(record, Some(label)),
        Err(why) => judge_unlabelled(record, *why, force),
    }
}

/// Is this cache surely one of the volume `name`? A label keeps the beginning of a long name alone, which may be that of
/// another volume, too.
pub(crate) fn is_ours(name: &str, record: Option<Pair>, label: &Label) -> bool {
    let named = record.is_some_and(|pair| pair.cache == Some(label.uuid));
    named || label.name == name
}

/// The label says that its cache counts.
fn judge_live(record: Option<Pair>, label: &Label, force: bool) -> Verdict {
    // A record of no attachment says no more than none: of a first one that failed.
    let Some(record) = record.filter(|pair| pair.cache.is_some() || pair.generation > 0) else {
        // A volume of a version that kept no record.
        return Verdict::Open;
    };
    let behind = label.generation < record.generation && !record.accepted;
    let refusal = match record.cache {
        Some(cache) if cache == label.uuid && !behind => return Verdict::Open,
        Some(cache) if cache == label.uuid => Refusal::Older(record),
        Some(_) if record.dirty => return Verdict::Refuse(Refusal::NotHere(record)),
        Some(_) if label.generation <= record.generation => Refusal::Older(record),
        Some(_) => Refusal::Another(record),
        // The last attachment ended, so it is of an earlier one, or of one that another record knows.
        None if label.generation <= record.generation => Refusal::Older(record),
        None => return Verdict::Open,
    };
    match force && !record.dirty {
        true => Verdict::Make,
        false => Verdict::Refuse(refusal),
    }
}

/// The cache was detached or given up; `label` says so, or else the list of such caches.
fn judge_ended(record: Option<Pair>, label: Option<&Label>) -> Verdict {
    let Some(record) = record.filter(|pair| pair.dirty) else {
        return Verdict::Make;
    };
    // The label was written before the record: a crash came between.
    let ended = label.is_some_and(|label| {
        let last = label.generation >= record.generation || record.accepted;
        record.cache == Some(label.uuid) && last
    });
    match ended {
        true => Verdict::Make,
        false => Verdict::Refuse(Refusal::NotHere(record)),
    }
}

fn judge_unlabelled(record: Option<Pair>, why: Unlabelled, force: bool) -> Verdict {
    let dirty = record.filter(|pair| pair.dirty);
    let refusal = match (why, dirty) {
        (Unlabelled::Blank, None) => return Verdict::Make,
        // It may well be the volume's own cache.
        (Unlabelled::Version(found), _) => Refusal::Version(found),
        (Unlabelled::Damaged, _) => Refusal::Damaged,
        (Unlabelled::Short(end), _) => Refusal::Short(end),
        (Unlabelled::Unreadable, _) => Refusal::Unreadable,
        (_, Some(record)) => Refusal::NotHere(record),
        (Unlabelled::Foreign, None) => Refusal::Foreign,
    };
    // What cannot be read may be a cache that no record names: only a sound copy of the device shows it.
    match force && dirty.is_none() && why != Unlabelled::Unreadable {
        true => Verdict::Make,
        false => Verdict::Refuse(refusal),
    }
}

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::*;
    use crate::attach::label::Attachment;

    const A: u128 = 0xa;
    const B: u128 = 0xb;

    fn label(uuid: u128, generation: u64, attachment: Attachment) -> Result<Label, Unlabelled> {
        let mut label = Label::layout(Bytes::mib(64), None, Bytes::gib(1), "v", uuid).unwrap();
        (label.generation, label.attachment) = (generation, attachment);
        Ok(label)
    }

    fn named(label: Label, name: &str) -> Label {
        let name = name.to_owned();
        Label { name, ..label }
    }

    fn record(cache: Option<u128>, generation: u64, dirty: bool) -> Option<Pair> {
        Some(Pair {
            cache,
            generation,
            dirty,
            ..Pair::default()
        })
    }

    /// A verdict in one word; what `force` makes of it after a slash, where that differs.
    fn word(record: Option<Pair>, found: &Result<Label, Unlabelled>, abandoned: &[u128]) -> String {
        let one = |force| match judge("v", record, found, abandoned, force) {
            Verdict::Open => "open".to_owned(),
            Verdict::Make => "make".to_owned(),
            Verdict::Refuse(refusal) => {
                let text = format!("{refusal:?}").to_lowercase();
                text.split(['(', ' ']).next().unwrap_or_default().to_owned()
            }
        };
        let (plain, forced) = (one(false), one(true));
        match plain == forced {
            true => plain,
            false => format!("{plain}/{forced}"),
        }
    }

    /// One row for each state of the fast device, one column for each record.
    #[test]
    fn every_record_and_every_fast_device_have_a_verdict() {
        let records = [
            None,
            record(None, 5, false),
            record(Some(A), 5, false),
            record(Some(A), 5, true),
        ];
        let live = |uuid, generation| label(uuid, generation, Attachment::Attached);
        let ended = |uuid, generation| label(uuid, generation, Attachment::Detached);
        let others = |generation, attachment| {
            label(B, generation, attachment).map(|label| named(label, "w"))
        };
        #[rustfmt::skip]
        let table: [(&str, Result<Label, Unlabelled>, [&str; 4]); 22] = [
            // the fast device              no record       no cache        A, clean        A, dirty
            ("blank",    Err(Unlabelled::Blank),      ["make",         "make",         "make",         "nothere"]),
            ("foreign",  Err(Unlabelled::Foreign),    ["foreign/make", "foreign/make", "foreign/make", "nothere"]),
            ("version",  Err(Unlabelled::Version(9)), ["version/make", "version/make", "version/make", "version"]),
            ("damaged",  Err(Unlabelled::Damaged),    ["damaged/make", "damaged/make", "damaged/make", "damaged"]),
            ("short",    Err(Unlabelled::Short(9)),   ["short/make",   "short/make",   "short/make",   "short"]),
            ("unreadable", Err(Unlabelled::Unreadable), ["unreadable", "unreadable",   "unreadable",   "unreadable"]),
            ("A same",   live(A, 5),                  ["open",         "older/make",   "open",         "open"]),
            ("A newer",  live(A, 6),                  ["open",         "open",         "open",         "open"]),
            ("A older",  live(A, 4),                  ["open",         "older/make",   "older/make",   "older"]),
            ("A before", live(A, 0),                  ["open",         "older/make",   "older/make",   "older"]),
            ("B same",   live(B, 5),                  ["open",         "older/make",   "older/make",   "nothere"]),
            ("B newer",  live(B, 6),                  ["open",         "open",         "another/make", "nothere"]),
            ("B older",  live(B, 4),                  ["open",         "older/make",   "older/make",   "nothere"]),
            ("other same",  others(5, Attachment::Attached), ["open",         "older",        "older",        "nothere"]),
            ("other newer", others(6, Attachment::Attached), ["open",         "open",         "another",      "nothere"]),
            ("other older", others(4, Attachment::Attached), ["open",         "older",        "older",        "nothere"]),
            ("other fails", others(6, Attachment::Failing),  ["open",         "open",         "another",      "nothere"]),
            ("A fails",  label(A, 5, Attachment::Failing),   ["open",         "older/make",   "open",         "open"]),
            ("A ended",  ended(A, 5),                 ["make",         "make",         "make",         "make"]),
            ("A ended before", ended(A, 4),           ["make",         "make",         "make",         "nothere"]),
            ("B ended",  ended(B, 9),                 ["make",         "make",         "make",         "nothere"]),
            ("A given up", label(A, 5, Attachment::Abandoned), ["make",       "make",         "make",         "make"]),
        ];
        for (name, found, verdicts) in table {
            let said = records.map(|record| word(record, &found, &[]));
            assert_eq!(said, verdicts, "{name}");
        }
    }

    #[test]
    fn a_record_without_a_cache_is_never_dirty() {
        let odd = record(None, 5, true);
        assert_eq!(word(odd, &Err(Unlabelled::Blank), &[]), "make");
        assert_eq!(word(odd, &label(A, 5, Attachment::Abandoned), &[]), "make");
        let memory = Rc::new(Memory::default());
        let book: Rc<dyn PairBook> = memory.clone();
        let keeper = Keeper::read(Some(&book)).unwrap();
        keeper.note(odd.unwrap()).unwrap();
        assert_eq!(memory.pair.get(), record(None, 5, false));
    }

    #[test]
    fn a_record_of_no_attachment_refuses_no_cache() {
        let none = record(None, 0, false);
        for generation in [0, 3] {
            assert_eq!(
                word(none, &label(A, generation, Attachment::Attached), &[]),
                "open"
            );
        }
    }

    #[test]
    fn a_cache_on_the_list_of_abandoned_ones_counts_no_more() {
        let dirty = record(Some(A), 5, true);
        let a = label(A, 5, Attachment::Attached);
        let b = label(B, 9, Attachment::Attached);
        assert_eq!(word(dirty, &a, &[A]), "make");
        assert_eq!(word(dirty, &Err(Unlabelled::Blank), &[A]), "make");
        assert_eq!(word(dirty, &b, &[B]), "nothere", "A is missed all the same");
        assert_eq!(word(None, &a, &[A]), "make");
        assert_eq!(word(dirty, &b, &[A]), "open", "a later attachment");
        let earlier = label(B, 3, Attachment::Attached);
        assert_eq!(word(dirty, &earlier, &[A]), "older/make");
    }

    #[test]
    fn a_label_with_the_beginning_of_a_name_does_not_prove_whose_cache_it_is() {
        let (long, kept) = ("database-of-node-1", "database-of-node");
        let b = label(B, 4, Attachment::Attached).map(|label| named(label, kept));
        let clean = record(Some(A), 5, false);
        let forced = |found| judge(long, clean, found, &[], true);
        assert!(matches!(forced(&b), Verdict::Refuse(Refusal::Older(_))));
        // That the record names it does.
        let a = label(A, 4, Attachment::Attached).map(|label| named(label, kept));
        assert_eq!(forced(&a), Verdict::Make);
    }

    #[test]
    fn force_never_gives_up_what_the_record_says_may_be_the_only_copy() {
        let dirty = record(Some(A), 5, true);
        let states = [
            Err(Unlabelled::Blank),
            Err(Unlabelled::Foreign),
            Err(Unlabelled::Version(2)),
            Err(Unlabelled::Damaged),
            label(A, 4, Attachment::Attached),
            label(B, 7, Attachment::Attached),
            label(B, 7, Attachment::Detached),
        ];
        for found in states {
            let verdict = judge("v", dirty, &found, &[], true);
            assert!(matches!(verdict, Verdict::Refuse(_)), "{found:?}");
        }
    }

    #[test]
    fn an_accepted_cache_opens_whatever_its_attachment_and_no_other_does() {
        let accepted = record(Some(A), 5, true).map(|pair| Pair {
            accepted: true,
            ..pair
        });
        for generation in [0, 4, 5, 6] {
            let found = label(A, generation, Attachment::Attached);
            assert_eq!(word(accepted, &found, &[]), "open");
            let ended = label(A, generation, Attachment::Detached);
            assert_eq!(word(accepted, &ended, &[]), "make");
        }
        let other = label(B, 9, Attachment::Attached);
        assert_eq!(word(accepted, &other, &[]), "nothere");
        assert_eq!(word(accepted, &Err(Unlabelled::Blank), &[]), "nothere");
    }

    /// A book in memory that can be made to fail: before the record is replaced, or after.
    #[derive(Default)]
    struct Memory {
        pair: Cell<Option<Pair>>,
        fails: Cell<bool>,
        lands: Cell<bool>,
        writes: Cell<u32>,
    }

    impl PairBook for Memory {
        fn read(&self) -> Result<Option<Pair>, String> {
            Ok(self.pair.get())
        }

        fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
            if !self.fails.get() || self.lands.get() {
                self.writes.set(self.writes.get() + 1);
                self.pair.set(Some(*pair));
            }
            match self.fails.get() {
                true => Err(Unwritten {
                    why: "full".to_owned(),
                    untouched: !self.lands.get(),
                }),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn the_same_record_is_not_written_twice_unless_a_write_failed() {
        let memory = Rc::new(Memory::default());
        let book: Rc<dyn PairBook> = memory.clone();
        let keeper = Keeper::read(Some(&book)).unwrap();
        assert_eq!((keeper.record(), keeper.is_settled()), (None, false));
        let pair = Pair {
            cache: Some(A),
            generation: 1,
            dirty: true,
            ..Pair::default()
        };
        keeper.note(pair).unwrap();
        keeper.note(pair).unwrap();
        assert_eq!((memory.writes.get(), keeper.record()), (1, Some(pair)));
        memory.fails.set(true);
        assert_eq!(keeper.note(pair.alone()), Err("full".to_owned()));
        assert_eq!(keeper.now(), pair, "what counted before counts on");
        assert!(keeper.is_settled(), "nothing was replaced");
        // The record is replaced, and no more is known of it: each write of the old one fails in the same way.
        memory.lands.set(true);
        assert_eq!(keeper.note(pair.alone()), Err("full".to_owned()));
        assert_eq!((keeper.now(), keeper.is_settled()), (pair, false));
        memory.fails.set(false);
        memory.writes.set(0);
        keeper.note(pair).unwrap();
        assert!(memory.writes.get() == 1 && keeper.is_settled());
    }

    #[test]
    fn a_record_that_was_read_counts_as_durable_once_it_was_written_again() {
        let memory = Rc::new(Memory::default());
        let book: Rc<dyn PairBook> = memory.clone();
        let pair = record(Some(A), 1, true).unwrap();
        memory.pair.set(Some(pair));
        let keeper = Keeper::read(Some(&book)).unwrap();
        assert_eq!((keeper.now(), keeper.is_settled()), (pair, false));
        keeper.note(pair).unwrap();
        keeper.note(pair).unwrap();
        assert!(memory.writes.get() == 1 && keeper.is_settled());
    }

    #[test]
    fn a_record_whose_write_failed_after_it_was_replaced_is_put_back() {
        /// The first write replaces the record and fails, as a folder that cannot be synced makes it.
        #[derive(Default)]
        struct Once(Memory, Cell<bool>);
        impl PairBook for Once {
            fn read(&self) -> Result<Option<Pair>, String> {
                self.0.read()
            }

            fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
                self.0.write(pair)?;
                match self.1.replace(false) {
                    true => Err(Unwritten {
                        why: "the folder cannot be synced".to_owned(),
                        untouched: false,
                    }),
                    false => Ok(()),
                }
            }
        }
        let once = Rc::new(Once::default());
        let book: Rc<dyn PairBook> = once.clone();
        let keeper = Keeper::read(Some(&book)).unwrap();
        let pair = record(Some(A), 1, true).unwrap();
        keeper.note(pair).unwrap();
        once.1.set(true);
        assert!(keeper.note(pair.alone()).is_err());
        assert_eq!((book.read(), keeper.now()), (Ok(Some(pair)), pair));
        assert!(keeper.is_settled());
    }

    #[test]
    fn a_record_that_may_appear_after_a_power_cut_is_written_over_unseen() {
        /// The first write fails, and is on the disk all the same while the old record is read.
        #[derive(Default)]
        struct Late {
            seen: Memory,
            disk: Cell<Option<Pair>>,
            late: Cell<bool>,
        }
        impl PairBook for Late {
            fn read(&self) -> Result<Option<Pair>, String> {
                self.seen.read()
            }

            fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
                self.disk.set(Some(*pair));
                match self.late.replace(false) {
                    true => Err(Unwritten {
                        why: "EIO".to_owned(),
                        untouched: false,
                    }),
                    false => self.seen.write(pair),
                }
            }
        }
        let late = Rc::new(Late::default());
        let book: Rc<dyn PairBook> = late.clone();
        let keeper = Keeper::read(Some(&book)).unwrap();
        let pair = record(Some(A), 1, true).unwrap();
        keeper.note(pair).unwrap();
        late.late.set(true);
        assert!(keeper.note(pair.alone()).is_err());
        assert_eq!((late.disk.get(), keeper.now()), (Some(pair), pair));
        assert!(keeper.is_settled());
    }
}
