//! A disk as virtio sees it: its features, its configuration space, and its requests.
//!
//! ```text
//! header of 16 bytes | data to write, or room for what is read, or ranges | one byte of status
//! ```
//!
//! Source: VIRTIO 1.2, 5.2. No I/O.
//!
//! Always true: a decoded request is in whole sectors and within the disk.

use base::{Bytes, SECTOR};
use device::Info;

use super::message::CONFIG_MAX;
use super::ring;

/// Features of the device.
pub mod feature {
    /// A buffer has a greatest length.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// A request has a greatest number of buffers.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Nothing can be written.
    pub const RO: u64 = 1 << 5;
    /// The logical block is said.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// There is a flush.
    pub const FLUSH: u64 = 1 << 9;
    /// The physical block is said.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The driver chooses between write-back and write-through.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// Several queues.
    pub const MQ: u64 = 1 << 12;
    /// Ranges can be discarded.
    pub const DISCARD: u64 = 1 << 13;
    /// Ranges can be zeroed.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// The protocol has features of its own.
    pub const PROTOCOL: u64 = 1 << 30;
    /// VIRTIO 1.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Bytes of a request's header.
pub const HEADER: usize = 16;
/// Bytes of one range of a discard or zeroing.
pub const RANGE: usize = 16;
/// Ranges of one request.
pub const RANGES_MAX: usize = 16;
/// Bytes of the disk's name.
pub const ID: usize = 20;
/// The longest buffer that drivers are asked for. Longer ones are taken too.
const BUFFER_MAX: Bytes = Bytes::mib(1);
/// Buffers of a request: with header and status they fit a queue of 128.
const BUFFERS_MAX: u32 = 126;
/// The longest range.
const RANGE_MAX: Bytes = Bytes::mib(64);
/// Where in the configuration space the driver chooses write-back or write-through.
pub const WRITE_BACK: usize = 32;

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Well.
    Ok = 0,
    /// With an error.
    Io = 1,
    /// It is not known here.
    Unsupported = 2,
}

/// What a disk like `info` offers.
pub fn features(info: &Info, read_only: bool) -> u64 {
    let device = feature::SIZE_MAX
        | feature::SEG_MAX
        | feature::BLK_SIZE
        | feature::FLUSH
        | feature::TOPOLOGY
        | feature::CONFIG_WCE
        | feature::MQ
        | feature::WRITE_ZEROES;
    let some = |on: bool, bit: u64| if on { bit } else { 0 };
    device
        | some(read_only || info.read_only, feature::RO)
        | some(info.discards, feature::DISCARD)
        | ring::feature::INDIRECT_DESC
        | ring::feature::EVENT_IDX
        | feature::PROTOCOL
        | feature::VERSION_1
}

/// The configuration space of a disk like `info`.
pub fn config(info: &Info, queues: u16, write_back: bool) -> [u8; CONFIG_MAX] {
    let mut bytes = [0; CONFIG_MAX];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let long = |value: u32| value.to_le_bytes();
    let sectors = |bytes: Bytes| ((bytes.0 / SECTOR) as u32).to_le_bytes();
    let physical = info.physical_block.0.clamp(SECTOR, 4096);
    put(0, &(info.size.0 / SECTOR).to_le_bytes());
    put(8, &long(BUFFER_MAX.0 as u32));
    put(12, &long(BUFFERS_MAX));
    put(20, &long(SECTOR as u32));
    // Physical block as a power of two of logical ones, alignment, least and best request.
    put(24, &[(physical / SECTOR).trailing_zeros() as u8, 0]);
    put(26, &((physical / SECTOR) as u16).to_le_bytes());
    put(WRITE_BACK, &[u8::from(write_back)]);
    put(34, &queues.to_le_bytes());
    if info.discards {
        put(36, &sectors(RANGE_MAX));
        put(40, &long(RANGES_MAX as u32));
        put(44, &long((4096 / SECTOR) as u32));
    }
    put(48, &sectors(RANGE_MAX));
    put(52, &long(RANGES_MAX as u32));
    put(56, &[1]);
    bytes
}

/// A range to discard or zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Its space may be given up.
    pub unmap: bool,
}

/// What a driver asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read.
    Read {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Write.
    Write {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Make durable what was answered.
    Flush,
    /// The disk's name.
    Name,
    /// Forget ranges, which are the data.
    Discard,
    /// Zero ranges, which are the data.
    WriteZeroes,
}

/// Reads the header of a request with so many bytes of data from the driver, and so much room for data to it, on a disk of
/// `size` bytes.
///
/// # Errors
/// The status to answer with.
pub fn decode(
    header: &[u8; HEADER],
    from_driver: u64,
    to_driver: u64,
    size: Bytes,
) -> Result<Request, Status> {
    let kind = u32::from_le_bytes(header[..4].try_into().expect("four"));
    let sector = u64::from_le_bytes(header[8..].try_into().expect("eight"));
    let within = |len: u64| {
        let at = sector.checked_mul(SECTOR).ok_or(Status::Io)?;
        let end = at.checked_add(len).ok_or(Status::Io)?;
        match end <= size.0 && len > 0 && len.is_multiple_of(SECTOR) {
            true => Ok(at),
            false => Err(Status::Io),
        }
    };
    let ranges = from_driver > 0
        && from_driver.is_multiple_of(RANGE as u64)
        && from_driver <= (RANGES_MAX * RANGE) as u64;
    match kind {
        0 => within(to_driver).map(|at| Request::Read { at, len: to_driver }),
        1 => within(from_driver).map(|at| Request::Write {
            at,
            len: from_driver,
        }),
        4 => Ok(Request::Flush),
        8 => Ok(Request::Name),
        11 if ranges => Ok(Request::Discard),
        13 if ranges => Ok(Request::WriteZeroes),
        11 | 13 => Err(Status::Io),
        _ => Err(Status::Unsupported),
    }
}

/// Reads the ranges of a request on a disk of `size` bytes. `zeroes`: they are to be zeroed, so that each says whether its
/// space may be given up.
///
/// # Errors
/// The status to answer with.
pub fn ranges(data: &[u8], zeroes: bool, size: Bytes) -> Result<Vec<Range>, Status> {
    let (ranges, []) = data.as_chunks::<RANGE>() else {
        return Err(Status::Io);
    };
    let read = |bytes: &[u8; RANGE]| {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let sector = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
        let (len, flags) = (u64::from(word(8)) * SECTOR, word(12));
        if flags > u32::from(zeroes) {
            return Err(Status::Unsupported);
        }
        let at = sector.checked_mul(SECTOR).ok_or(Status::Io)?;
        let end = at.checked_add(len).ok_or(Status::Io)?;
        if end > size.0 || len == 0 || len > RANGE_MAX.0 {
            return Err(Status::Io);
        }
        Ok(Range {
            at,
            len,
            unmap: flags == 1,
        })
    };
    ranges.iter().map(read).collect()
}

/// Must every write be durable when it is answered? `features`: those that the driver took.
pub fn writes_through(features: u64, write_back: bool) -> bool {
    features & feature::FLUSH == 0 || !write_back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, sector: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        bytes
    }

    fn range(sector: u64, sectors: u32, flags: u32) -> [u8; RANGE] {
        let mut bytes = [0; RANGE];
        bytes[..8].copy_from_slice(&sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&sectors.to_le_bytes());
        bytes[12..].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    const DISK: Bytes = Bytes::mib(1);

    #[test]
    fn requests_are_read_as_drivers_write_them() {
        let read = |kind, sector, from, to| decode(&header(kind, sector), from, to, DISK);
        assert_eq!(
            read(0, 8, 0, 4096),
            Ok(Request::Read {
                at: 4096,
                len: 4096
            })
        );
        assert_eq!(
            read(1, 2047, 512, 0),
            Ok(Request::Write {
                at: 2047 * 512,
                len: 512
            })
        );
        assert_eq!(read(4, u64::MAX, 0, 0), Ok(Request::Flush));
        assert_eq!(read(8, 0, 0, 20), Ok(Request::Name));
        assert_eq!(read(11, 0, 32, 0), Ok(Request::Discard));
        assert_eq!(read(13, 0, 16, 0), Ok(Request::WriteZeroes));
        assert_eq!(read(2, 0, 0, 0), Err(Status::Unsupported));
        for (kind, sector, from, to) in [
            (0, 2047, 0, 1024),
            (0, 0, 0, 0),
            (0, 0, 0, 100),
            (1, 2048, 512, 0),
            (1, u64::MAX, 512, 0),
            (1, 0, u64::MAX - 511, 0),
            (11, 0, 0, 0),
            (11, 0, 17, 0),
            (13, 0, 17 * 16, 0),
        ] {
            assert_eq!(
                read(kind, sector, from, to),
                Err(Status::Io),
                "{kind} {sector} {from} {to}"
            );
        }
    }

    #[test]
    fn ranges_say_whether_their_space_may_be_given_up() {
        let both = [range(8, 8, 1), range(0, 1, 0)].concat();
        let read = ranges(&both, true, DISK).unwrap();
        let first = Range {
            at: 4096,
            len: 4096,
            unmap: true,
        };
        assert_eq!(read[0], first);
        assert!(!read[1].unmap);
        assert_eq!(ranges(&both, false, DISK), Err(Status::Unsupported));
        assert_eq!(
            ranges(&range(0, 1, 2), true, DISK),
            Err(Status::Unsupported)
        );
        for bad in [
            range(2048, 1, 0),
            range(0, 0, 0),
            range(u64::MAX, 1, 0),
            range(1, u32::MAX, 0),
        ] {
            assert_eq!(ranges(&bad, true, DISK), Err(Status::Io));
        }
    }

    #[test]
    fn whatever_a_header_says_a_request_stays_within_the_disk() {
        let mut rng = env::Rng::from_seed(1);
        for _ in 0..200_000 {
            let edges = [0, 1, 511, 512, 2047, 2048, DISK.0, u64::MAX >> 9, u64::MAX];
            let mut number = || match rng.chance(0.7) {
                true => edges[rng.below(edges.len() as u64) as usize],
                false => rng.bits(),
            };
            let header = header(number() as u32 % 16, number());
            let decoded = decode(&header, number(), number(), DISK);
            if let Ok(Request::Read { at, len } | Request::Write { at, len }) = decoded {
                assert!(at + len <= DISK.0 && len > 0 && (at | len) % 512 == 0);
            }
            let range = range(number(), number() as u32, number() as u32 % 3);
            for range in ranges(&range, true, DISK).into_iter().flatten() {
                assert!(range.at + range.len <= DISK.0 && range.len > 0);
            }
        }
    }

    #[test]
    fn the_configuration_says_what_the_device_is_like() {
        let info = device::Device::info(&*device::Memory::new("ssd0", Bytes::mib(64)));
        let bytes = config(&info, 4, true);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), 64 * 2048);
        assert_eq!((word(8), word(12), word(20)), (1 << 20, 126, 512));
        assert_eq!((bytes[24], bytes[32], bytes[34], bytes[56]), (0, 1, 4, 1));
        assert_eq!(
            (word(36), word(40), word(48), word(52)),
            (131_072, 16, 131_072, 16)
        );
        let offered = features(&info, true);
        assert!(offered & feature::RO != 0 && offered & feature::DISCARD != 0);
        let plain = Info {
            discards: false,
            physical_block: Bytes(4096),
            ..info
        };
        assert_eq!(
            features(&plain, false) & (feature::RO | feature::DISCARD),
            0
        );
        let bytes = config(&plain, 1, false);
        assert_eq!((bytes[24], bytes[26]), (3, 8));
        assert_eq!((bytes[WRITE_BACK], bytes[36]), (0, 0));
    }

    #[test]
    fn a_driver_without_flush_or_write_back_gets_durable_writes() {
        assert!(writes_through(0, true));
        assert!(writes_through(feature::FLUSH, false));
        assert!(!writes_through(feature::FLUSH, true));
    }
}
