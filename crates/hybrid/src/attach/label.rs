//! The first pages of the fast device: whose cache is this, and where in it lies what?
//!
//! ```text
//! byte 0      label A      4 KiB
//! byte 4096   label B      4 KiB
//! byte 8192   the ledger   (map, write intents, fingerprints)
//! ...         slots        4 KiB each
//! ```
//!
//! The slow device carries no header: the label names it by size and, through the ledger, by
//! fingerprints of its contents. Labels are written in turn, A and B, so one is always whole; the higher
//! sequence number counts. Byte by byte in `docs/formats.md`.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, crc::crc32c};
use device::shared::{Shared, Slice};
use device::{Class, Device, DeviceError, DeviceExt, WriteFlags};
use ledger::Ledger;
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::lane::{LANES_VERSION, Lane, RawLane};
use super::made::AttachmentId;
use crate::settings::Mode;

pub(crate) const PAGE: u64 = base::PAGE as u64;
/// Page numbers are kept in 40 bits: disks up to 4 PiB.
pub(crate) const PAGES_MAX: u64 = 1 << 40;
const MAGIC: [u8; 8] = *b"TANADAHY";
/// Of the only lane of a hybrid; those of several have [`LANES_VERSION`].
const VERSION: u32 = 2;
/// The latest that is read.
pub(crate) const VERSION_MAX: u32 = LANES_VERSION;
/// What this version still reads: version 1 has no attachment and is never closed.
const VERSION_MIN: u32 = 1;
const LEDGER_START: u64 = 2 * PAGE;
/// A cache smaller than this is of no use.
pub(crate) const SLOTS_MIN: u32 = 64;
/// Bytes of a page record's value in the ledger.
pub(crate) const RECORD_LEN: usize = 10;

/// In what relation the fast device stands to its slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// Its contents count.
    Attached,
    /// It failed and its dirty data are being destaged: dirty entries count, clean ones may be older
    /// than what the slow device has.
    Failing,
    /// Detached cleanly: its contents count no more.
    Detached,
    /// Given up after a failure: its contents count no more.
    Abandoned,
}

impl Attachment {
    /// Does anything on the fast device count?
    pub fn counts(self) -> bool {
        matches!(self, Attachment::Attached | Attachment::Failing)
    }

    /// In a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Attachment::Attached => "attached",
            Attachment::Failing => "failing",
            Attachment::Detached => "detached",
            Attachment::Abandoned => "given up",
        }
    }
}

/// What the label says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub sequence: u64,
    pub uuid: u128,
    pub attachment: Attachment,
    pub slow_size: Bytes,
    pub ledger: Span,
    /// First byte of slot 0.
    pub slots_start: u64,
    pub slots: u32,
    /// Slots the device and the ledger have room for.
    pub slots_max: u32,
    pub name: String,
    /// The number of the attachment: each making and each opening counts one up. 0 before version 2.
    pub generation: u64,
    /// Closed, and the fingerprints of all pages are those of what the slow device has.
    pub closed: bool,
    /// The mode that the volume has where nothing else is said; `None` where a version wrote it that kept none.
    pub mode: Option<Mode>,
    /// Which lane of the hybrid it is.
    pub lane: Lane,
}

/// Where on the fast device ledger and slots lie, in bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawPlace {
    ledger_start: U64,
    ledger_len: U64,
    slots_start: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    /// Over the whole page, with this field zero.
    crc: U32,
    sequence: U64,
    uuid: U128,
    attachment: U32,
    slots: U32,
    slots_max: U32,
    name_len: U32,
    slow_size: U64,
    place: RawPlace,
    name: [u8; 64],
    generation: U64,
    closed: U32,
    later: RawLater,
}

/// What came later than version 2; programs before it wrote zeroes there.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawLater {
    mode: U32,
    lane: RawLane,
}

/// Why a label could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlabelled {
    /// All zeroes: free for use.
    Blank,
    /// Something else is on the device.
    Foreign,
    /// Ours, but of another version.
    Version(u32),
    /// Ours, but neither copy is whole.
    Damaged,
    /// Ours and whole, but the device ends before its cache does, at this byte.
    Short(u64),
    /// A copy that the device cannot read, and no whole one beside it.
    Unreadable,
}

/// How often a label is asked for before it counts as unreadable.
const ATTEMPTS: u32 = 3;

/// As much of a volume's name as a label keeps.
pub(crate) fn kept_of(name: &str) -> String {
    name.chars().take(16).collect()
}

impl Label {
    /// Which attachment of which cache this is.
    pub fn id(&self) -> AttachmentId {
        AttachmentId {
            cache: self.uuid,
            generation: self.generation,
        }
    }

    /// Does it name the volume `name`?
    pub fn is_of(&self, name: &str) -> bool {
        self.name == kept_of(name)
    }

    /// Lays out a fast device of `size` bytes, of which the cache may use `limit`.
    pub fn layout(
        size: Bytes,
        limit: Option<Bytes>,
        slow_size: Bytes,
        name: &str,
        uuid: u128,
    ) -> Option<Label> {
        let intents = slow_size.0 / (4 << 20) + 1024;
        let ledger_len = |slots: u64| {
            Ledger::region_for(slots + intents, RECORD_LEN)
                .0
                .next_multiple_of(PAGE)
        };
        let fits = |slots: u64| LEDGER_START + ledger_len(slots) + slots * PAGE <= size.0;
        // The biggest number of slots that fits, by bisection: `ledger_len` grows with the slots.
        let (mut low, mut high) = (0u64, (size.0 / PAGE).min(u64::from(u32::MAX / 2)));
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(middle) {
                low = middle
            } else {
                high = middle - 1
            }
        }
        let slots_max = low as u32;
        let wanted = limit.map_or(slots_max, |limit| {
            (limit.0 / PAGE).min(u64::from(slots_max)) as u32
        });
        if wanted < SLOTS_MIN || slow_size.0 / PAGE > PAGES_MAX {
            return None;
        }
        let ledger_len = ledger_len(u64::from(slots_max));
        Some(Label {
            sequence: 0,
            uuid,
            attachment: Attachment::Attached,
            slow_size,
            ledger: Span::bytes(LEDGER_START, ledger_len),
            slots_start: LEDGER_START + ledger_len,
            slots: wanted,
            slots_max,
            name: kept_of(name),
            generation: 0,
            closed: false,
            mode: None,
            lane: Lane::ONLY,
        })
    }

    /// The smallest fast device with `slots` slots for a slow one of `slow_size`.
    pub fn size_for(slots: u32, slow_size: Bytes) -> Bytes {
        let intents = slow_size.0 / (4 << 20) + 1024;
        let ledger = Ledger::region_for(u64::from(slots) + intents, RECORD_LEN);
        Bytes(LEDGER_START + ledger.0.next_multiple_of(PAGE) + u64::from(slots) * PAGE)
    }

    /// Where slot `slot` starts.
    pub fn slot(&self, slot: u32) -> Sector {
        Sector::containing(self.slots_start + u64::from(slot) * PAGE)
    }

    fn page(&self) -> Buf {
        let mut name = [0; 64];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let raw = Raw {
            magic: MAGIC,
            version: if self.lane.is_only() {
                VERSION
            } else {
                LANES_VERSION
            }
            .into(),
            crc: 0.into(),
            sequence: self.sequence.into(),
            uuid: self.uuid.into(),
            attachment: match self.attachment {
                Attachment::Attached => 1,
                Attachment::Detached => 2,
                Attachment::Abandoned => 3,
                Attachment::Failing => 4,
            }
            .into(),
            slots: self.slots.into(),
            slots_max: self.slots_max.into(),
            name_len: (self.name.len() as u32).into(),
            slow_size: self.slow_size.0.into(),
            place: RawPlace {
                ledger_start: self.ledger.start.byte().into(),
                ledger_len: self.ledger.len.0.into(),
                slots_start: self.slots_start.into(),
            },
            name,
            generation: self.generation.into(),
            closed: u32::from(self.closed).into(),
            later: RawLater {
                mode: number_of(self.mode).into(),
                lane: RawLane::of(self.lane),
            },
        };
        let mut page = Buf::zeroed(base::PAGE);
        let bytes = raw.as_bytes();
        page[..bytes.len()].copy_from_slice(bytes);
        let crc = crc32c(&page).to_le_bytes();
        page[12..16].copy_from_slice(&crc);
        page
    }

    pub(crate) fn parse(page: &[u8], device_size: Bytes) -> Result<Label, Unlabelled> {
        if page.iter().all(|byte| *byte == 0) {
            return Err(Unlabelled::Blank);
        }
        let (raw, _) = Raw::read_from_prefix(page).map_err(|_| Unlabelled::Foreign)?;
        if raw.magic != MAGIC {
            return Err(Unlabelled::Foreign);
        }
        let mut unsigned = page.to_vec();
        unsigned[12..16].fill(0);
        if crc32c(&unsigned) != raw.crc.get() {
            return Err(Unlabelled::Damaged);
        }
        if !(VERSION_MIN..=VERSION_MAX).contains(&raw.version.get()) {
            return Err(Unlabelled::Version(raw.version.get()));
        }
        let attachment = match raw.attachment.get() {
            1 => Attachment::Attached,
            2 => Attachment::Detached,
            3 => Attachment::Abandoned,
            4 => Attachment::Failing,
            _ => return Err(Unlabelled::Damaged),
        };
        let name = raw
            .name
            .get(..raw.name_len.get() as usize)
            .and_then(|name| std::str::from_utf8(name).ok())
            .ok_or(Unlabelled::Damaged)?;
        let lane = raw.later.lane.lane(raw.version.get());
        let label = Label {
            sequence: raw.sequence.get(),
            uuid: raw.uuid.get(),
            attachment,
            slow_size: Bytes(raw.slow_size.get()),
            ledger: Span::bytes(raw.place.ledger_start.get(), raw.place.ledger_len.get()),
            slots_start: raw.place.slots_start.get(),
            slots: raw.slots.get(),
            slots_max: raw.slots_max.get(),
            name: name.to_owned(),
            generation: raw.generation.get(),
            closed: raw.closed.get() == 1,
            mode: mode_of(raw.later.mode.get()),
            lane: lane.ok_or(Unlabelled::Damaged)?,
        };
        // A checksum says that we wrote it, not that it fits the device it was found on.
        let end = label
            .slots_start
            .checked_add(u64::from(label.slots_max) * PAGE);
        let sound = label.slots >= SLOTS_MIN
            && label.slots <= label.slots_max
            && label.slots_start.is_multiple_of(PAGE)
            && label.ledger.start.byte() >= LEDGER_START
            && label.ledger.end().byte() <= label.slots_start
            && label.slow_size.0 / PAGE <= PAGES_MAX;
        match end {
            Some(end) if sound && end <= device_size.0 => Ok(label),
            Some(end) if sound => Err(Unlabelled::Short(end)),
            _ => Err(Unlabelled::Damaged),
        }
    }

    /// The newest whole label of `device`.
    pub async fn read(device: &Rc<dyn Device>) -> Result<Result<Label, Unlabelled>, DeviceError> {
        let size = device.info().size;
        if size.0 < 2 * PAGE {
            return Ok(Err(look_further(device, size).await?));
        }
        // Each copy by itself: a sector that cannot be read must not take the other one along.
        let mut found = Vec::new();
        for copy in 0..2 {
            found.push(match read_again(device, copy * PAGE, PAGE).await? {
                Ok(page) => Label::parse(&page, size),
                Err(_) => Err(Unlabelled::Unreadable),
            });
        }
        match choose(&found) {
            Err(Unlabelled::Blank) => Ok(Err(look_further(device, size).await?)),
            answer => Ok(answer),
        }
    }

    /// What the labels of all lanes show of the hybrid whose first one begins `device` with `first`.
    pub async fn of_lanes(
        device: &Rc<dyn Device>,
        first: &Label,
    ) -> Result<Vec<Result<Label, Unlabelled>>, DeviceError> {
        let mut labels = vec![Ok(first.clone())];
        let Lane { lanes, len, .. } = first.lane;
        let shared = Shared::new(Rc::clone(device), lanes);
        for lane in 1..lanes {
            let span = Span::bytes(u64::from(lane) * len.0, len.0);
            if span.end().byte() > device.info().size.0 {
                labels.push(Err(Unlabelled::Short(span.end().byte())));
                continue;
            }
            let slice: Rc<dyn Device> = Slice::new(&shared, lane, span);
            labels.push(Label::read(&slice).await?);
        }
        Ok(labels)
    }

    /// The newest label whole in the first two pages of `device`, if one of ours is there.
    pub async fn at_start(device: &Rc<dyn Device>) -> Result<Option<Label>, DeviceError> {
        let size = device.info().size;
        let mut found: Vec<Label> = Vec::new();
        for page in 0..(size.0 / PAGE).min(2) {
            if let Ok(page) = read_again(device, page * PAGE, PAGE).await? {
                found.extend(Label::parse(&page, size));
            }
        }
        Ok(found.into_iter().max_by_key(|label| label.sequence))
    }

    /// Writes the label, durably, over the older copy.
    pub async fn write(&mut self, device: &Rc<dyn Device>) -> Result<(), DeviceError> {
        self.sequence += 1;
        let at = Sector::containing(self.sequence % 2 * PAGE);
        device
            .write(at, self.page().freeze(), WriteFlags::FUA)
            .await
    }

    /// Makes both copies say the same, so that no older one can come back.
    pub async fn write_both(&mut self, device: &Rc<dyn Device>) -> Result<(), DeviceError> {
        self.write(device).await?;
        self.write(device).await
    }

    /// Wipes what may have been on the device: both labels.
    pub async fn wipe(device: &Rc<dyn Device>) -> Result<(), DeviceError> {
        let zeroes = Buf::zeroed(2 * base::PAGE).freeze();
        device
            .write(
                Sector(0),
                zeroes,
                WriteFlags {
                    fua: true,
                    class: Class::Metadata,
                },
            )
            .await
    }
}

fn number_of(mode: Option<Mode>) -> u32 {
    match mode {
        None => 0,
        Some(Mode::Cache) => 1,
        Some(Mode::Tier) => 2,
        Some(Mode::Both) => 3,
    }
}

fn mode_of(number: u32) -> Option<Mode> {
    let numbered = |mode: &Mode| number_of(Some(*mode)) == number;
    Mode::ALL.into_iter().find(numbered)
}

/// `len` bytes at `byte`, asked for several times; the outer error: the device is gone.
async fn read_again(
    device: &Rc<dyn Device>,
    byte: u64,
    len: u64,
) -> Result<Result<Buf, DeviceError>, DeviceError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match device.read_at(Sector::containing(byte), Bytes(len)).await {
            Ok(page) => return Ok(Ok(page)),
            Err(gone @ DeviceError::Gone { .. }) => return Err(gone),
            Err(error) if attempts == ATTEMPTS => return Ok(Err(error)),
            Err(_) => {}
        }
    }
}

/// What two copies say together: the newest whole one, else what is most wrong. `Blank` if nothing is known but
/// zeroes: what lies further on must agree.
pub(crate) fn choose(found: &[Result<Label, Unlabelled>]) -> Result<Label, Unlabelled> {
    let whole = found.iter().filter_map(|label| label.as_ref().ok());
    if let Some(newest) = whole.max_by_key(|label| label.sequence) {
        return Ok(newest.clone());
    }
    let bad = || found.iter().filter_map(|label| label.as_ref().err());
    let any = |wanted: fn(&Unlabelled) -> bool| bad().find(|why| wanted(why)).cloned();
    // A first label that was cut off leaves one unreadable copy beside a blank one.
    let blank = bad().any(|why| *why == Unlabelled::Blank);
    let why = any(|why| matches!(why, Unlabelled::Version(_)))
        .or_else(|| any(|why| matches!(why, Unlabelled::Short(_))))
        .or_else(|| any(|why| *why == Unlabelled::Unreadable).filter(|_| !blank))
        .or_else(|| any(|why| *why == Unlabelled::Damaged))
        .or_else(|| any(|why| *why == Unlabelled::Foreign))
        .unwrap_or(Unlabelled::Blank);
    Err(why)
}

/// Zero labels alone prove little: a file system may start further on, and a cache has its ledger there.
async fn look_further(device: &Rc<dyn Device>, size: Bytes) -> Result<Unlabelled, DeviceError> {
    let end = size.0.min(1 << 20);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    match device.read_at(Sector(0), Bytes(end)).await {
        Ok(start) if is_zero(&start) => return Ok(Unlabelled::Blank),
        Ok(_) => return Ok(Unlabelled::Foreign),
        Err(gone @ DeviceError::Gone { .. }) => return Err(gone),
        Err(_) => {}
    }
    for byte in (0..end).step_by(PAGE as usize) {
        match read_again(device, byte, PAGE.min(end - byte)).await? {
            Ok(page) if is_zero(&page) => {}
            Ok(_) => return Ok(Unlabelled::Foreign),
            Err(_) if byte < LEDGER_START => {}
            Err(_) => return Ok(Unlabelled::Unreadable),
        }
    }
    Ok(Unlabelled::Blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label::layout(Bytes::mib(64), None, Bytes::gib(1), "vol0", 42).unwrap()
    }

    #[test]
    fn a_label_is_read_back_and_every_flipped_bit_is_seen() {
        let label = label();
        for mode in Mode::ALL.map(Some).into_iter().chain([None]) {
            let label = Label {
                mode,
                ..label.clone()
            };
            assert_eq!(Label::parse(&label.page(), Bytes::mib(64)), Ok(label));
        }
        let page = label.page();
        for bit in (0..4096 * 8).step_by(5) {
            let mut bad = page.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::parse(&bad, Bytes::mib(64)).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_label_that_does_not_fit_its_device_tells_how_long_it_must_be() {
        let label = label();
        let end = label.slot(label.slots_max).byte();
        assert_eq!(
            Label::parse(&label.page(), Bytes::mib(32)),
            Err(Unlabelled::Short(end))
        );
    }

    #[test]
    fn a_label_of_version_1_is_of_no_attachment_and_not_closed() {
        let mut newer = label();
        (newer.generation, newer.closed) = (7, true);
        newer.mode = Some(Mode::Both);
        let mut page = newer.page().to_vec();
        page[8..12].copy_from_slice(&1u32.to_le_bytes());
        // Version 1 ended with the name.
        page[152..].fill(0);
        page[12..16].fill(0);
        let crc = crc32c(&page).to_le_bytes();
        page[12..16].copy_from_slice(&crc);
        assert_eq!(Label::parse(&page, Bytes::mib(64)), Ok(label()));
    }

    #[test]
    fn the_layout_fills_the_device_and_refuses_a_tiny_one() {
        let label = label();
        let end = label.slot(label.slots_max).byte();
        assert!(end <= Bytes::mib(64).0 && Bytes::mib(64).0 - end < 64 * PAGE);
        assert!(Label::layout(Bytes::kib(128), None, Bytes::gib(1), "x", 1).is_none());
        let least = Label::size_for(SLOTS_MIN, Bytes::gib(1));
        assert!(Label::layout(least, None, Bytes::gib(1), "x", 1).is_some());
    }
}
