//! The first bytes of a store's device: what store is this, and where in it lies what?
//!
//! ```text
//! byte 0      superblock A   4 KiB
//! byte 4096   superblock B   4 KiB
//! byte 8192   the ledger     (objects, names, attributes, segments, reservations, scrub cursor)
//! ...         units          64 KiB to 16 MiB each, from a boundary of the unit on
//! ```
//!
//! Superblocks are written in turn, A and B, so one is always whole; the higher sequence number counts. Each
//! open writes one with the next *epoch*, which is the upper part of every generation given out until the
//! next open: so no generation ever means two things, whatever a crash took back. Byte by byte in
//! `docs/formats.md`.
//!
//! Source: PROBS 3.2 (the allocation unit, 1 MB); the rest is ours.

use std::ops::RangeInclusive;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, crc::crc32c};
use device::{Class, Device, DeviceError, DeviceExt, WriteFlags};
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::object::segment::SEGMENT_BYTES_MAX;

const BLOCK: u64 = 4096;
const MAGIC: [u8; 8] = *b"TANADAst";
/// The format this program reads and writes.
pub(crate) const VERSION: u32 = 1;
const LEDGER_START: u64 = 2 * BLOCK;
/// A ledger below this could not take one write of a useful length.
const LEDGER_LEN_MIN: u64 = 66 * BLOCK;
/// Epochs are the upper 24 bits of a generation.
pub(crate) const EPOCHS: u64 = 1 << 24;
/// How long a unit and a page may be, in bytes.
const UNITS: RangeInclusive<u64> = 64 << 10..=16 << 20;
const PAGES: RangeInclusive<u64> = 4 << 10..=64 << 10;
/// The longest name of a store in bytes.
const NAME_MAX: usize = 64;

/// How a store is made.
///
/// # Example
/// ```
/// let settings = store::Settings { unit: base::Bytes::mib(4), ..store::Settings::default() };
/// assert_eq!(settings.page, base::Bytes::kib(4));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The store's name, for errors: at most 64 bytes.
    pub name: String,
    /// The allocation unit: a power of two from 64 KiB to 16 MiB.
    pub unit: Bytes,
    /// The unit of atomicity, checksums and overwrites: a power of two from 4 KiB to 64 KiB, no more than a unit.
    /// A page takes about 6 bytes of memory and 12 of the device.
    pub page: Bytes,
    /// Units are counted by zones of this length, a multiple of the unit.
    pub zone: Bytes,
    /// The length of the ledger; `None`: room for all pages in any order and an object in every 16 of them.
    pub ledger: Option<Bytes>,
    /// Make the store over whatever the device holds.
    pub force: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: "store".to_owned(),
            unit: Bytes::mib(1),
            page: Bytes::kib(4),
            zone: Bytes::gib(1),
            ledger: None,
            force: false,
        }
    }
}

impl Settings {
    /// Do they make a store?
    fn check(&self) -> Result<(), String> {
        let (unit, page, zone) = (self.unit.0, self.page.0, self.zone.0);
        if !unit.is_power_of_two() || !UNITS.contains(&unit) {
            return Err(format!(
                "a unit of {} is no power of two from 64 KiB to 16 MiB",
                self.unit
            ));
        }
        if !page.is_power_of_two() || !PAGES.contains(&page) {
            return Err(format!(
                "a page of {} is no power of two from 4 KiB to 64 KiB",
                self.page
            ));
        }
        if zone == 0 || !zone.is_multiple_of(unit) {
            return Err(format!(
                "a zone of {} is not in whole units of {}",
                self.zone, self.unit
            ));
        }
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(format!("a name has 1 to {NAME_MAX} bytes"));
        }
        Ok(())
    }

    /// Bytes of the ledger for so many units.
    fn ledger_len(&self, units: u64) -> u64 {
        let len = match self.ledger {
            Some(len) => len.0,
            // Live records in the worst order, 11 bytes a page, and a 16th as many objects of 160 bytes each;
            // the log is two and a half times as long.
            None => units * (self.unit.0 / self.page.0) * 21 * 5 / 2,
        };
        len.next_multiple_of(BLOCK).max(LEDGER_LEN_MIN)
    }
}

/// What the superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub sequence: u64,
    pub epoch: u64,
    pub uuid: u128,
    pub name: String,
    pub unit: Bytes,
    pub page: Bytes,
    pub zone: Bytes,
    pub ledger: Span,
    /// First byte of unit 0.
    pub start: u64,
    pub units: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    /// Over the whole block, with this field zero.
    crc: U32,
    sequence: U64,
    epoch: U64,
    uuid: U128,
    unit: U64,
    page: U64,
    zone: U64,
    ledger_start: U64,
    ledger_len: U64,
    start: U64,
    units: U64,
    name_len: U64,
    name: [u8; NAME_MAX],
}

/// What is in a superblock's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Whole(Superblock),
    Version(u32),
    Bad(&'static str),
}

impl Superblock {
    /// Lays out a device of `size` bytes, or says why it cannot be.
    pub fn layout(size: Bytes, settings: &Settings, uuid: u128) -> Result<Superblock, String> {
        settings.check()?;
        let (unit, page) = (settings.unit.0, settings.page.0);
        let start = |units: u64| (LEDGER_START + settings.ledger_len(units)).next_multiple_of(unit);
        let fits = |units: u64| start(units) + units * unit <= size.0;
        // The biggest number of units that fits, by bisection: the ledger grows with them.
        let (mut low, mut high) = (0, size.0 / unit);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if low == 0 {
            let least = Bytes(start(1) + unit);
            return Err(format!("it holds {size}, at least {least} are needed"));
        }
        if low * (unit / page) >= u64::from(u32::MAX) {
            return Err(format!(
                "{size} are more pages of {} than a store can number (2^32); take larger pages",
                settings.page
            ));
        }
        Ok(Superblock {
            sequence: 0,
            epoch: 0,
            uuid,
            name: settings.name.clone(),
            unit: settings.unit,
            page: settings.page,
            zone: settings.zone,
            ledger: Span::bytes(LEDGER_START, settings.ledger_len(low)),
            start: start(low),
            units: low,
        })
    }

    /// Pages of all units.
    pub fn pages(&self) -> u32 {
        (self.units * self.unit_pages()) as u32
    }

    /// Pages of one unit.
    pub fn unit_pages(&self) -> u64 {
        self.unit.0 / self.page.0
    }

    /// Where page `page` of the store starts on the device.
    pub fn sector(&self, page: u32) -> Sector {
        Sector::containing(self.start + u64::from(page) * self.page.0)
    }

    /// The bytes of `count` pages from `page` on.
    pub fn span(&self, page: u32, count: u64) -> Span {
        Span::new(self.sector(page), Bytes(count * self.page.0))
    }

    /// What live records may take: a ledger holds them up to half its length, and needs some air.
    pub fn live_max(&self) -> u64 {
        self.ledger.len.0 / 5 * 2
    }

    /// What one commit may add and remove: less than the ledger keeps free for growth (an 80th of its length,
    /// and at least four blocks; see `ledger::sweep`).
    pub fn stage_max(&self) -> u64 {
        (self.ledger.len.0 / BLOCK / 80).max(4).saturating_sub(2) * BLOCK
    }

    /// The longest single write in bytes, whole pages: its records must fit one commit.
    pub fn write_max(&self) -> u64 {
        let segment = crate::object::segment::SEGMENT_PAGES as u64 * self.page.0;
        let segments = (self.stage_max() - 3 * 1024) / SEGMENT_BYTES_MAX;
        // One segment more may be touched than the length needs, where the write does not start with one.
        ((segments - 1) * segment).min(4 << 20)
    }

    fn block(&self) -> Buf {
        let mut name = [0; NAME_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            sequence: self.sequence.into(),
            epoch: self.epoch.into(),
            uuid: self.uuid.into(),
            unit: self.unit.0.into(),
            page: self.page.0.into(),
            zone: self.zone.0.into(),
            ledger_start: self.ledger.start.byte().into(),
            ledger_len: self.ledger.len.0.into(),
            start: self.start.into(),
            units: self.units.into(),
            name_len: (self.name.len() as u64).into(),
            name,
        };
        let mut block = Buf::zeroed(BLOCK as usize);
        let bytes = raw.as_bytes();
        block[..bytes.len()].copy_from_slice(bytes);
        let crc = crc32c(&block).to_le_bytes();
        block[12..16].copy_from_slice(&crc);
        block
    }

    pub fn parse(block: &[u8], size: Bytes) -> Found {
        if block.iter().all(|byte| *byte == 0) {
            return Found::Bad("is blank");
        }
        let Ok((raw, _)) = Raw::read_from_prefix(block) else {
            return Found::Bad("is not one block long");
        };
        if raw.magic != MAGIC {
            return Found::Bad("has no magic");
        }
        let mut unsigned = block.to_vec();
        unsigned[12..16].fill(0);
        if crc32c(&unsigned) != raw.crc.get() {
            return Found::Bad("has a wrong checksum");
        }
        if raw.version.get() != VERSION {
            return Found::Version(raw.version.get());
        }
        let name = raw
            .name
            .get(..raw.name_len.get().min(NAME_MAX as u64 + 1) as usize)
            .and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name else {
            return Found::Bad("has values no store writes");
        };
        let found = Superblock {
            sequence: raw.sequence.get(),
            epoch: raw.epoch.get(),
            uuid: raw.uuid.get(),
            name: name.to_owned(),
            unit: Bytes(raw.unit.get()),
            page: Bytes(raw.page.get()),
            zone: Bytes(raw.zone.get()),
            ledger: Span::bytes(raw.ledger_start.get(), raw.ledger_len.get()),
            start: raw.start.get(),
            units: raw.units.get(),
        };
        // A checksum says that we wrote it, not that it fits the device it was found on.
        if !found.is_sound(raw.ledger_start.get(), raw.ledger_len.get()) {
            return Found::Bad("has values no store writes");
        }
        let (unit, page) = (found.unit.0, found.page.0);
        let end = found.units.checked_mul(unit);
        let end = end.and_then(|len| len.checked_add(found.start));
        if end.is_none_or(|end| end > size.0) || found.units * (unit / page) >= u64::from(u32::MAX)
        {
            return Found::Bad("tells of a larger device");
        }
        Found::Whole(found)
    }

    /// Could a store have written these values, with a ledger of `len` bytes from byte `start` on?
    fn is_sound(&self, start: u64, len: u64) -> bool {
        let (unit, page) = (self.unit.0, self.page.0);
        unit.is_power_of_two()
            && UNITS.contains(&unit)
            && page.is_power_of_two()
            && PAGES.contains(&page)
            && self.zone.0 >= unit
            && self.zone.0.is_multiple_of(unit)
            && self.units > 0
            && self.start.is_multiple_of(unit)
            && start >= LEDGER_START
            && start.is_multiple_of(BLOCK)
            && len >= LEDGER_LEN_MIN
            && len.is_multiple_of(BLOCK)
            && start.checked_add(len).is_some_and(|end| end <= self.start)
            && self.epoch < EPOCHS
            && self.sequence < 1 << 48
    }

    /// Both superblocks of `device`, as found.
    pub async fn read(device: &Rc<dyn Device>) -> Result<[Found; 2], DeviceError> {
        let size = device.info().size;
        if size.0 < 2 * BLOCK {
            return Ok([Found::Bad("is not there"), Found::Bad("is not there")]);
        }
        let mut found = [Found::Bad("cannot be read"), Found::Bad("cannot be read")];
        let mut failure = None;
        for (slot, place) in found.iter_mut().enumerate() {
            let at = Sector::containing(slot as u64 * BLOCK);
            match device
                .read(at, Buf::for_read(BLOCK as usize), Class::Metadata)
                .await
            {
                Ok(block) => *place = Superblock::parse(&block, size),
                Err(error) => failure = Some(error),
            }
        }
        // One unreadable copy is what the other is for; with none left the device's own words say more.
        match failure {
            Some(error) if !found.iter().any(|one| !matches!(one, Found::Bad(_))) => Err(error),
            _ => Ok(found),
        }
    }

    /// The newest whole one.
    pub fn newest(found: &[Found; 2]) -> Option<&Superblock> {
        found
            .iter()
            .filter_map(|one| match one {
                Found::Whole(superblock) => Some(superblock),
                _ => None,
            })
            .max_by_key(|superblock| superblock.sequence)
    }

    /// Writes it, durably, over the older copy.
    pub async fn write(&mut self, device: &Rc<dyn Device>) -> Result<(), DeviceError> {
        self.sequence += 1;
        let at = Sector::containing(self.sequence % 2 * BLOCK);
        let flags = WriteFlags {
            fua: true,
            class: Class::Metadata,
        };
        device.write(at, self.block().freeze(), flags).await
    }

    /// Erases both superblocks, durably.
    pub async fn wipe(device: &Rc<dyn Device>) -> Result<(), DeviceError> {
        let flags = WriteFlags {
            fua: true,
            class: Class::Metadata,
        };
        device.write_zeroes(Span::bytes(0, 2 * BLOCK), flags).await
    }
}

/// Is the start of the device blank, as far as file systems and the like would show?
pub(crate) async fn is_blank(device: &Rc<dyn Device>) -> Result<bool, DeviceError> {
    let len = Bytes(device.info().size.0.min(1 << 20));
    let start = device.read_at(Sector(0), len).await?;
    // A format that was cut off leaves the ledger's superblocks and nothing else.
    let cut_off = LEDGER_START as usize..(LEDGER_START + 2 * BLOCK) as usize;
    Ok(start
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == 0 || cut_off.contains(&at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock::layout(Bytes::mib(64), &Settings::default(), 42).unwrap()
    }

    #[test]
    fn a_superblock_is_read_back_and_every_flipped_bit_is_seen() {
        let superblock = superblock();
        let block = superblock.block();
        assert_eq!(
            Superblock::parse(&block, Bytes::mib(64)),
            Found::Whole(superblock)
        );
        for bit in (0..4096 * 8).step_by(5) {
            let mut bad = block.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = Superblock::parse(&bad, Bytes::mib(64));
            assert!(matches!(found, Found::Bad(_)), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn an_unknown_version_is_not_damage_and_a_smaller_device_is_refused() {
        let mut block = superblock().block().to_vec();
        assert!(matches!(
            Superblock::parse(&block, Bytes::mib(32)),
            Found::Bad("tells of a larger device")
        ));
        block[8] = 9;
        block[12..16].fill(0);
        let crc = crc32c(&block).to_le_bytes();
        block[12..16].copy_from_slice(&crc);
        assert_eq!(Superblock::parse(&block, Bytes::mib(64)), Found::Version(9));
    }

    #[test]
    fn the_layout_fills_the_device_and_refuses_what_makes_no_store() {
        let found = superblock();
        let end = found.start + found.units * found.unit.0;
        assert!(end <= 64 << 20 && (64 << 20) - end < 1 << 20);
        assert!(found.write_max() >= 1 << 20);
        let refuse = |size, change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            Superblock::layout(size, &settings, 1).unwrap_err()
        };
        assert!(refuse(Bytes::mib(1), |_| {}).contains("at least 2.0 MiB are needed"));
        assert!(refuse(Bytes::gib(1), |s| s.unit = Bytes::kib(32)).contains("unit"));
        assert!(refuse(Bytes::gib(1), |s| s.page = Bytes::kib(5)).contains("page"));
        assert!(refuse(Bytes::gib(1), |s| s.zone = Bytes::kib(5)).contains("zone"));
        assert!(refuse(Bytes::gib(1 << 15), |_| {}).contains("larger pages"));
    }
}
