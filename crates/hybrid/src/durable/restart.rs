//! The restart log: map changes since the last commit, in memory that outlives the process.
//!
//! A process that dies (`kill -9`) takes the map with it. The data of answered writes are in the devices or the kernel by
//! then; where they lie, the ledger learns at the next commit only. So each answer first puts the changes since the last
//! one here. The next process of the same boot replays the ledger, then the log.
//!
//! ```text
//! header | half A: begin S, groups ..., seal S+1 | half B: begin S+1, groups ...
//!
//! change the map -> group in the half in use -> answer
//! cut of a commit -> the last group, seal -> the other half begins -> the commit is durable: the first half is free
//! restart: ledger up to batch S -> the half that begins with S -> if it is sealed, the half that begins with S+1
//! ```
//!
//! Always true:
//! 1. A group is what a commit at that instant would have written: applied whole or not at all, in order.
//! 2. A half counts only where the ledger, or the sealed half before it, ends.
//! 3. What does not fit waits for its commit: nothing behind it in the same half is written.
//! 4. A log of another boot, cache or attachment counts for nothing: what a power cut undid must not come back.

use std::rc::Rc;

use base::crc::crc32c;
use env::Mapping;
use ledger::Cut;

use super::record::Fact;
use crate::attach::made::AttachmentId;
use crate::index::extents::ExtentRecord;
use crate::index::page_map::Entry;

/// Bytes of one record.
const RECORD: usize = 32;
/// Where the halves begin.
const HALVES: usize = 4096;
const MAGIC: &[u8; 8] = b"TNDRSTRT";
const VERSION: u32 = 1;
const HEADER: usize = 56;

/// Bytes of memory that suit a restart log. Each half holds 32,767 records; when three quarters of that are used, which
/// takes 96 MiB of writes of 4 KiB, a commit is asked for.
pub const RESTART_LOG: usize = HALVES + 2 * (1 << 20);
/// The least: a few records a half.
const LEAST: usize = HALVES + 2 * 8 * RECORD;

/// Where a hybrid keeps its restart log.
///
/// # Example
/// ```
/// use std::rc::Rc;
/// let memory = Rc::new(env::Mapping::simulated(hybrid::RESTART_LOG));
/// let place = hybrid::RestartPlace { memory, boot: 1 };
/// # drop(place);
/// ```
#[derive(Debug, Clone)]
pub struct RestartPlace {
    /// [`RESTART_LOG`] bytes, used by no other hybrid.
    pub memory: Rc<Mapping>,
    /// Names this boot of the machine.
    pub boot: u128,
}

// --- records --------------------------------------------------------------------------------------

const KIND_BEGIN: u8 = 1;
const KIND_SEAL: u8 = 2;
const KIND_PAGE: u8 = 3;
const KIND_INTENT: u8 = 4;
const KIND_SAMPLE: u8 = 5;
const KIND_EXTENT: u8 = 6;
/// The last record of its group.
const LAST: u8 = 0x80;
/// There is a value; else it was removed.
const SOME: u8 = 1;
const DIRTY: u8 = 2;
const DEMOTING: u8 = 2;

/// One record before it is sealed with its number and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Record {
    kind: u8,
    flags: u8,
    small: u8,
    key: u64,
    words: [u32; 2],
}

impl Record {
    fn of(fact: &Fact) -> Record {
        let some = |given: bool| if given { SOME } else { 0 };
        match fact {
            Fact::Page(page, entry) => Record {
                kind: KIND_PAGE,
                flags: entry
                    .as_ref()
                    .map_or(0, |entry| SOME | if entry.dirty { DIRTY } else { 0 }),
                small: entry.as_ref().map_or(0, |entry| entry.mask),
                key: *page,
                words: entry
                    .as_ref()
                    .map_or([0; 2], |entry| [entry.slot, entry.crc]),
            },
            Fact::Intent(region, marked) => Record {
                kind: KIND_INTENT,
                flags: some(*marked),
                key: *region,
                ..Record::default()
            },
            Fact::Sample(number, crc) => Record {
                kind: KIND_SAMPLE,
                flags: some(crc.is_some()),
                key: *number,
                words: [crc.unwrap_or(0), 0],
                ..Record::default()
            },
            Fact::Extent(extent, kept) => Record {
                kind: KIND_EXTENT,
                flags: kept.map_or(0, |kept| SOME | if kept.demoting { DEMOTING } else { 0 }),
                small: kept.map_or(0, |kept| kept.shift),
                key: u64::from(*extent),
                ..Record::default()
            },
        }
    }

    fn fact(&self) -> Option<Fact> {
        let some = self.flags & SOME != 0;
        Some(match self.kind {
            KIND_PAGE => {
                let entry = some.then_some(Entry {
                    slot: self.words[0],
                    crc: self.words[1],
                    dirty: self.flags & DIRTY != 0,
                    mask: self.small,
                });
                Fact::Page(self.key, entry)
            }
            KIND_INTENT => Fact::Intent(self.key, some),
            KIND_SAMPLE => Fact::Sample(self.key, some.then_some(self.words[0])),
            KIND_EXTENT => {
                let kept = some.then_some(ExtentRecord {
                    demoting: self.flags & DEMOTING != 0,
                    shift: self.small,
                });
                Fact::Extent(self.key.try_into().ok()?, kept)
            }
            _ => return None,
        })
    }

    /// checksum u32, kind, flags, small, last, number u64, key u64, two words u32; little-endian.
    fn encode(&self, number: u64, last: bool) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[4..8].copy_from_slice(&[
            self.kind,
            self.flags,
            self.small,
            if last { LAST } else { 0 },
        ]);
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.words[0].to_le_bytes());
        bytes[28..].copy_from_slice(&self.words[1].to_le_bytes());
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record with its number, and whether it is the last of its group; `None` if it is not whole.
    fn decode(bytes: &[u8; RECORD]) -> Option<(Record, u64, bool)> {
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != crc32c(&bytes[4..]) {
            return None;
        }
        let record = Record {
            kind: bytes[4],
            flags: bytes[5],
            small: bytes[6],
            key: long(16),
            words: [word(24), word(28)],
        };
        Some((record, long(8), bytes[7] == LAST))
    }
}

fn header(boot: u128, owner: AttachmentId) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&boot.to_le_bytes());
    bytes[32..48].copy_from_slice(&owner.cache.to_le_bytes());
    bytes[48..].copy_from_slice(&owner.generation.to_le_bytes());
    let crc = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Records that a half holds.
fn room_of(memory: &Mapping) -> usize {
    assert!(
        memory.len() >= LEAST,
        "{} bytes are too few for a restart log",
        memory.len()
    );
    (memory.len() - HALVES) / 2 / RECORD
}

fn place_of(memory: &Mapping, half: usize, record: usize) -> usize {
    HALVES + (half * room_of(memory) + record) * RECORD
}

// --- writing --------------------------------------------------------------------------------------

/// The log of one attachment, as it is written.
pub(crate) struct RestartLog {
    memory: Rc<Mapping>,
    /// The half in use, and how many records are in it.
    half: usize,
    used: usize,
    /// Records that a half holds.
    room: usize,
    /// The next record's number; it never goes back.
    number: u64,
    /// What was changed until then counts only once this commit is durable.
    missing: Option<Cut>,
    /// Nothing more is written to this half.
    skipping: bool,
}

impl RestartLog {
    /// Begins an empty log for `owner`; `at`: every change so far is in the ledger, whose last batch has this number. Else
    /// it counts from the commit `next` on.
    pub fn begin(
        place: &RestartPlace,
        owner: AttachmentId,
        at: Option<u64>,
        next: Cut,
    ) -> RestartLog {
        let memory = Rc::clone(&place.memory);
        // While it is emptied it counts for nothing.
        memory.write(0, &[0; HEADER]);
        let zeroes = [0; 4096];
        for at in (HALVES..memory.len()).step_by(zeroes.len()) {
            memory.write(at, &zeroes[..zeroes.len().min(memory.len() - at)]);
        }
        let mut log = RestartLog {
            room: room_of(&memory),
            memory,
            half: 0,
            used: 0,
            number: 1,
            missing: at.is_none().then_some(next),
            skipping: at.is_none(),
        };
        if let Some(sequence) = at {
            log.open_half(sequence);
        }
        log.memory.write(0, &header(place.boot, owner));
        log
    }

    /// It counts for nothing any more.
    pub fn end(&self) {
        self.memory.write(0, &[0; HEADER]);
    }

    /// Puts `facts` down as one group; `next` is the commit that carries them. Returns the commit to wait for before they
    /// outlive the process, if it is that.
    pub fn append(&mut self, facts: &[Fact], next: Cut) -> Option<Cut> {
        if !self.skipping && !facts.is_empty() {
            // Room for a seal stays.
            if self.used + facts.len() < self.room {
                let end = facts.len() - 1;
                for (at, fact) in facts.iter().enumerate() {
                    self.push(Record::of(fact), at == end);
                }
            } else {
                self.skipping = true;
                self.missing = Some(next);
            }
        }
        self.missing
    }

    /// Is it time for a commit, so that there is room?
    pub fn is_filling(&self) -> bool {
        self.used > self.room / 4 * 3
    }

    /// A commit is cut that has everything until now: as batch `sequence` of the ledger.
    pub fn cut(&mut self, sequence: u64) {
        if !self.skipping {
            let seal = Record {
                kind: KIND_SEAL,
                key: sequence,
                ..Record::default()
            };
            self.push(seal, true);
        }
        self.half = 1 - self.half;
        self.open_half(sequence);
        self.skipping = false;
    }

    /// Commit `cut` is durable.
    pub fn durable(&mut self, cut: Cut) {
        self.missing = self.missing.filter(|missing| *missing > cut);
    }

    fn open_half(&mut self, sequence: u64) {
        self.used = 0;
        let begin = Record {
            kind: KIND_BEGIN,
            key: sequence,
            ..Record::default()
        };
        self.push(begin, true);
    }

    fn push(&mut self, record: Record, last: bool) {
        let at = place_of(&self.memory, self.half, self.used);
        self.memory.write(at, &record.encode(self.number, last));
        self.used += 1;
        self.number += 1;
    }
}

// --- reading --------------------------------------------------------------------------------------

/// What a dead process left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No log of this boot and attachment.
    Nothing,
    /// Changes that the ledger lacks, in order.
    Changes(Vec<Fact>),
    /// A log that goes on from another batch than the ledger's last one.
    Apart,
}

/// What is left in `place` for `owner`, whose ledger ends with batch `sequence`.
pub(crate) fn left(place: &RestartPlace, owner: AttachmentId, sequence: u64) -> Left {
    let memory = &place.memory;
    let mut found = [0; HEADER];
    memory.read(0, &mut found);
    if found != header(place.boot, owner) {
        return Left::Nothing;
    }
    let halves = [Half::read(memory, 0), Half::read(memory, 1)];
    let mut halves: Vec<Half> = halves.into_iter().flatten().collect();
    halves.sort_by_key(|half| half.begins);
    let (mut end, mut facts, mut known) = (sequence, Vec::new(), halves.is_empty());
    for half in halves {
        // The ledger has what an older one says.
        known |= half.begins <= end;
        if half.begins == end {
            facts.extend(half.facts);
            end = half.sealed.unwrap_or(end);
        }
    }
    match known {
        true => Left::Changes(facts),
        false => Left::Apart,
    }
}

/// One half, as far as it is whole.
struct Half {
    begins: u64,
    facts: Vec<Fact>,
    sealed: Option<u64>,
}

impl Half {
    fn read(memory: &Mapping, half: usize) -> Option<Half> {
        let record = |at: usize| {
            let mut bytes = [0; RECORD];
            memory.read(place_of(memory, half, at), &mut bytes);
            Record::decode(&bytes)
        };
        let (begin, first, _) = record(0)?;
        if begin.kind != KIND_BEGIN {
            return None;
        }
        let mut read = Half {
            begins: begin.key,
            facts: Vec::new(),
            sealed: None,
        };
        let mut group = Vec::new();
        for at in 1..room_of(memory) {
            let Some((record, _, last)) =
                record(at).filter(|(_, number, _)| *number == first + at as u64)
            else {
                break;
            };
            if record.kind == KIND_SEAL {
                read.sealed = Some(record.key);
                break;
            }
            // One that is none of ours: nothing behind it counts.
            let Some(fact) = record.fact() else { break };
            group.push(fact);
            if last {
                read.facts.append(&mut group);
            }
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: AttachmentId = AttachmentId {
        cache: 7,
        generation: 3,
    };
    /// Records of a half.
    const ROOM: usize = 8;

    fn place() -> RestartPlace {
        RestartPlace {
            memory: Rc::new(Mapping::simulated(HALVES + 2 * ROOM * RECORD)),
            boot: 1,
        }
    }

    fn cut(number: u32) -> Cut {
        (0..number).fold(Cut::default(), |cut, _| cut.next())
    }

    fn page(page: u64) -> Fact {
        let entry = Entry {
            slot: page as u32 + 100,
            crc: 9,
            dirty: true,
            mask: 0b11,
        };
        Fact::Page(page, Some(entry))
    }

    fn pages(left: &Left) -> Vec<u64> {
        let Left::Changes(facts) = left else {
            panic!("{left:?}")
        };
        let page = |fact: &Fact| match fact {
            Fact::Page(page, _) => *page,
            other => panic!("{other:?}"),
        };
        facts.iter().map(page).collect()
    }

    #[test]
    fn facts_come_back_as_they_were_logged() {
        let place = place();
        let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
        let kept = ExtentRecord {
            demoting: true,
            shift: 12,
        };
        let facts = || {
            vec![
                page(1),
                Fact::Page(2, None),
                Fact::Intent(3, true),
                Fact::Sample(4, Some(77)),
                Fact::Sample(5, None),
                Fact::Extent(6, Some(kept)),
            ]
        };
        assert_eq!(log.append(&facts(), cut(1)), None);
        assert_eq!(left(&place, OWNER, 5), Left::Changes(facts()));
    }

    #[test]
    fn a_half_counts_where_the_ledger_or_the_half_before_ends() {
        let place = place();
        let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
        log.append(&[page(1)], cut(1));
        log.cut(6);
        log.append(&[page(2)], cut(2));
        assert_eq!(
            pages(&left(&place, OWNER, 5)),
            [1, 2],
            "the commit did not land"
        );
        assert_eq!(pages(&left(&place, OWNER, 6)), [2], "it did");
        log.durable(cut(1));
        log.cut(7);
        log.append(&[page(3)], cut(3));
        assert_eq!(pages(&left(&place, OWNER, 6)), [2, 3]);
        assert_eq!(pages(&left(&place, OWNER, 7)), [3]);
        assert_eq!(
            pages(&left(&place, OWNER, 8)),
            [],
            "a later process committed"
        );
        assert_eq!(left(&place, OWNER, 4), Left::Apart, "an older fast device");
    }

    #[test]
    fn what_does_not_fit_waits_for_its_commit_and_nothing_behind_it_is_logged() {
        let place = place();
        let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
        let many: Vec<Fact> = (1..=5).map(page).collect();
        assert_eq!(log.append(&many, cut(1)), None);
        assert!(!log.is_filling());
        assert_eq!(log.append(&[page(6)], cut(1)), None);
        assert!(log.is_filling());
        assert_eq!(
            log.append(&[page(7)], cut(1)),
            Some(cut(1)),
            "a seal needs room"
        );
        assert_eq!(log.append(&[], cut(1)), Some(cut(1)));
        log.cut(6);
        assert_eq!(
            log.append(&[page(8)], cut(2)),
            Some(cut(1)),
            "it counts with that commit"
        );
        assert_eq!(pages(&left(&place, OWNER, 5)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(pages(&left(&place, OWNER, 6)), [8]);
        log.durable(cut(1));
        assert_eq!(log.append(&[page(9)], cut(2)), None);
        assert_eq!(pages(&left(&place, OWNER, 6)), [8, 9]);
    }

    #[test]
    fn a_group_cut_off_by_the_death_of_the_process_does_not_count() {
        for records in 0..4u32 {
            let place = place();
            let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
            log.append(&[page(1)], cut(1));
            let life = std::cell::Cell::new(records);
            log.memory = Rc::new(
                place
                    .memory
                    .of_process(move || life.replace(life.get().saturating_sub(1)) > 0),
            );
            log.append(&[page(2), page(3), page(4)], cut(1));
            let expected = match records {
                3 => vec![1, 2, 3, 4],
                _ => vec![1],
            };
            assert_eq!(pages(&left(&place, OWNER, 5)), expected);
        }
    }

    #[test]
    fn a_log_begun_under_changes_counts_from_the_next_commit() {
        let place = place();
        let mut log = RestartLog::begin(&place, OWNER, None, cut(3));
        assert_eq!(log.append(&[page(1)], cut(3)), Some(cut(3)));
        assert_eq!(pages(&left(&place, OWNER, 5)), []);
        log.cut(6);
        assert_eq!(log.append(&[page(2)], cut(4)), Some(cut(3)));
        log.durable(cut(3));
        assert_eq!(log.append(&[page(3)], cut(4)), None);
        assert_eq!(pages(&left(&place, OWNER, 6)), [2, 3]);
    }

    #[test]
    fn a_log_of_another_boot_or_attachment_counts_for_nothing() {
        let place = place();
        let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
        log.append(&[page(1)], cut(1));
        let later = RestartPlace {
            boot: 2,
            ..place.clone()
        };
        assert_eq!(left(&later, OWNER, 5), Left::Nothing);
        let next = AttachmentId {
            generation: 4,
            ..OWNER
        };
        assert_eq!(left(&place, next, 5), Left::Nothing);
        log.end();
        assert_eq!(left(&place, OWNER, 5), Left::Nothing);
    }

    #[test]
    fn bytes_that_are_none_of_ours_are_no_log() {
        let mut rng = env::Rng::from_seed(1);
        for _ in 0..200 {
            let place = place();
            let mut log = RestartLog::begin(&place, OWNER, Some(5), cut(1));
            log.append(&[page(1), page(2)], cut(1));
            log.cut(6);
            log.append(&[page(3)], cut(2));
            for _ in 0..1 + rng.below(8) {
                let at = HALVES + rng.below((2 * ROOM * RECORD) as u64) as usize;
                place.memory.write(at, &[rng.below(256) as u8]);
            }
            let found = match left(&place, OWNER, 5) {
                // The first half has no beginning any more.
                Left::Apart => Vec::new(),
                left => pages(&left),
            };
            let whole = [vec![], vec![1, 2], vec![1, 2, 3]];
            assert!(whole.contains(&found), "{found:?}");
        }
    }
}
