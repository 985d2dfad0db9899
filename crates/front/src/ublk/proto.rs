//! The bytes that a ublk driver and its server exchange.
//!
//! ```text
//! control  /dev/ublk-control  80-byte payloads, of which 32 count     parameters and device info through memory
//! queue    /dev/ublkcN        16-byte payloads: queue, tag, result    descriptors of 24 bytes, one a tag, mapped
//! ```
//!
//! Little-endian, as all machines that run this. Source: Linux, `include/uapi/linux/ublk_cmd.h`.

use base::{Bytes, SECTOR};
use device::{DeviceError, Info};

/// What a driver offers, or a disk has.
pub mod feature {
    /// Requests wait for the next server after this one's death.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// Those that the dead one held are issued again.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are ioctl-encoded.
    pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Data are copied with reads and writes of the queue's file.
    pub const USER_COPY: u64 = 1 << 7;
    /// The size of a disk in use can change.
    pub const UPDATE_SIZE: u64 = 1 << 10;

    /// By name, as far as we know them.
    pub const NAMES: [(u64, &str); 14] = [
        (1, "zero copy"),
        (1 << 1, "completion in task"),
        (1 << 2, "get data"),
        (USER_RECOVERY, "recovery"),
        (USER_RECOVERY_REISSUE, "reissue"),
        (1 << 5, "unprivileged"),
        (CMD_IOCTL_ENCODE, "ioctl-encoded commands"),
        (USER_COPY, "user copy"),
        (1 << 8, "zoned"),
        (1 << 9, "recovery with errors"),
        (UPDATE_SIZE, "update size"),
        (1 << 11, "automatic buffers"),
        (1 << 12, "quiesce"),
        (1 << 13, "several daemons"),
    ];
}

/// What we cannot do without: Linux 6.5 has all of it.
pub const NEEDED: u64 = feature::CMD_IOCTL_ENCODE | feature::USER_COPY;
/// Requests of a queue at once.
pub const DEPTH: u16 = 128;
/// Bytes of one descriptor.
pub const DESCRIPTOR: usize = 24;
/// The longest request.
pub const REQUEST_MAX: Bytes = Bytes::mib(1);
/// The longest discard or zeroing.
const LONG_MAX: Bytes = Bytes::mib(64);
/// Descriptors a queue in the mapped file may have.
const DEPTH_MAX: u64 = 4096;

// --- commands -------------------------------------------------------------------------------------

const fn code(direction: u32, number: u32, size: u32) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const BOTH: u32 = 3;

/// Control commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Control {
    /// What does the driver offer?
    GetFeatures = code(READ, 0x13, 32),
    /// What is a disk like?
    GetInfo = code(READ, 0x02, 32),
    /// Make a disk.
    Add = code(BOTH, 0x04, 32),
    /// Remove it, and wait until its last user is gone.
    Delete = code(BOTH, 0x05, 32),
    /// Remove it as soon as its last user is gone (Linux 6.9).
    DeleteLater = code(READ, 0x14, 32),
    /// Show it to the system.
    Start = code(BOTH, 0x06, 32),
    /// Take it back.
    Stop = code(BOTH, 0x07, 32),
    /// Its size and limits.
    SetParameters = code(BOTH, 0x08, 32),
    /// ... as they are.
    GetParameters = code(READ, 0x09, 32),
    /// It has another size from now on (Linux 6.16).
    UpdateSize = code(BOTH, 0x15, 32),
    /// Its server died; another one begins.
    StartRecovery = code(BOTH, 0x10, 32),
    /// ... and is ready.
    EndRecovery = code(BOTH, 0x11, 32),
}

/// Queue commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Queue {
    /// Ends when a request has come for this tag.
    Fetch = code(BOTH, 0x20, 16),
    /// The request has this result; ends when the next one has come.
    CommitAndFetch = code(BOTH, 0x21, 16),
}

/// What a control command says beside its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The disk; `NEW` for one that is to be made.
    pub disk: u32,
    /// A number that goes with it.
    pub data: u64,
}

/// The driver chooses the disk's number.
pub const NEW: u32 = u32::MAX;

impl Asked {
    /// As the driver reads it, but for the memory that goes with it (bytes 6 to 15).
    pub fn encode(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.disk.to_le_bytes());
        // No queue.
        bytes[4..6].copy_from_slice(&u16::MAX.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_le_bytes());
        bytes
    }
}

/// A queue command's payload: queue 0, this tag, and the result of its last request.
pub fn queue_command(tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[2..4].copy_from_slice(&tag.to_le_bytes());
    bytes[4..8].copy_from_slice(&result.to_le_bytes());
    bytes
}

/// Where in the queue's file the data of a tag's request are.
pub fn data_at(tag: u16) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25)
}

/// Bytes of descriptors that the queue's file shows from its start.
pub fn descriptors(depth: u16) -> usize {
    usize::from(depth) * DESCRIPTOR
}
const _: () = assert!(DEPTH as u64 <= DEPTH_MAX);

// --- disks ----------------------------------------------------------------------------------------

/// What state a disk is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Made, and not started.
    Dead,
    /// In use.
    Live,
    /// Its server died; requests wait.
    Quiesced,
    /// One that is unknown here.
    Other(u16),
}

/// A disk as the driver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskInfo {
    /// Its number: N of `/dev/ublkbN`.
    pub disk: u32,
    /// Requests at once.
    pub depth: u16,
    /// How it stands.
    pub state: State,
    /// Its [`feature`]s.
    pub flags: u64,
    /// Its server's number for it, which the driver keeps.
    pub server: u64,
    /// The process that serves it.
    pub process: i32,
    /// How large the system takes it to be, as far as the driver was asked and says so.
    pub size: Option<Bytes>,
}

impl DiskInfo {
    /// Bytes of one.
    pub const BYTES: usize = 64;

    /// A disk that is to be made.
    pub fn new(disk: u32, flags: u64, server: u64, process: i32) -> DiskInfo {
        DiskInfo {
            disk,
            depth: DEPTH,
            state: State::Dead,
            flags,
            server,
            process,
            size: None,
        }
    }

    /// As the driver reads it.
    pub fn encode(&self) -> [u8; DiskInfo::BYTES] {
        let mut bytes = [0; DiskInfo::BYTES];
        bytes[..2].copy_from_slice(&1u16.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_le_bytes());
        bytes[8..12].copy_from_slice(&(REQUEST_MAX.0 as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.disk.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.process.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.server.to_le_bytes());
        bytes
    }

    /// What the driver wrote; `None` if it has not one queue of a depth that can be.
    pub fn decode(bytes: &[u8; DiskInfo::BYTES]) -> Option<DiskInfo> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let depth = short(2);
        if short(0) != 1 || depth == 0 || u64::from(depth) > DEPTH_MAX {
            return None;
        }
        Some(DiskInfo {
            disk: word(12),
            depth,
            state: match short(4) {
                0 => State::Dead,
                1 => State::Live,
                2 => State::Quiesced,
                other => State::Other(other),
            },
            flags: long(24),
            server: long(32),
            process: word(16) as i32,
            size: None,
        })
    }
}

/// Bytes of a disk's parameters.
pub const PARAMETERS: usize = 64;

/// What is asked for a disk's parameters with.
pub fn parameters_asked() -> [u8; PARAMETERS] {
    let mut bytes = [0; PARAMETERS];
    bytes[..4].copy_from_slice(&(PARAMETERS as u32).to_le_bytes());
    bytes
}

/// The size of a disk with these parameters; none if they say nothing of it.
pub fn size_of(parameters: &[u8; PARAMETERS]) -> Option<Bytes> {
    let sectors = u64::from_le_bytes(parameters[24..32].try_into().expect("eight"));
    let is_there = parameters[4] & 1 != 0 && sectors > 0;
    sectors.checked_mul(SECTOR).filter(|_| is_there).map(Bytes)
}

/// The parameters of a disk on a device that is like `info`.
pub fn parameters(info: &Info, read_only: bool) -> [u8; PARAMETERS] {
    const READ_ONLY: u32 = 1;
    const ROTATIONAL: u32 = 1 << 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    const BASIC_AND_DISCARD: u32 = 1 | 1 << 1;
    let physical = info.physical_block.0.clamp(SECTOR, 4096).trailing_zeros() as u8;
    let sectors = |bytes: Bytes| (bytes.0 / SECTOR) as u32;
    let mut attributes = VOLATILE_CACHE | FUA;
    attributes |= if read_only || info.read_only {
        READ_ONLY
    } else {
        0
    };
    attributes |= if info.rotational { ROTATIONAL } else { 0 };
    let mut bytes = [0; PARAMETERS];
    bytes[..4].copy_from_slice(&(PARAMETERS as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&BASIC_AND_DISCARD.to_le_bytes());
    bytes[8..12].copy_from_slice(&attributes.to_le_bytes());
    // Shifts of the logical and physical block, the best and the least request.
    bytes[12..16].copy_from_slice(&[SECTOR.trailing_zeros() as u8, physical, 0, physical]);
    bytes[16..20].copy_from_slice(&sectors(REQUEST_MAX).to_le_bytes());
    bytes[24..32].copy_from_slice(&(info.size.0 / SECTOR).to_le_bytes());
    // Discards: alignment 0, granularity, longest, longest zeroing, one segment.
    // The driver refuses a granularity of 0, also where nothing can be discarded.
    let granularity = 4096u32;
    let discards = if info.discards { sectors(LONG_MAX) } else { 0 };
    bytes[44..48].copy_from_slice(&granularity.to_le_bytes());
    bytes[48..52].copy_from_slice(&discards.to_le_bytes());
    bytes[52..56].copy_from_slice(&sectors(LONG_MAX).to_le_bytes());
    bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
    bytes
}

// --- requests -------------------------------------------------------------------------------------

/// What the kernel asks of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Read.
    Read {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// Write.
    Write {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u32,
        /// Durable when it is answered.
        fua: bool,
    },
    /// Make durable what was answered.
    Flush,
    /// Forget.
    Discard {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Zero.
    WriteZeroes {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
        /// Durable when it is answered.
        fua: bool,
        /// The space stays.
        no_unmap: bool,
    },
}

/// `errno`s that requests end with.
pub mod errno {
    /// An I/O error.
    pub const IO: i32 = -5;
    /// Out of bounds, or not understood.
    pub const INVALID: i32 = -22;
    /// No space left.
    pub const NO_SPACE: i32 = -28;
    /// Not supported.
    pub const NOT_SUPPORTED: i32 = -95;
    /// Read-only.
    pub const READ_ONLY: i32 = -30;
}

/// The `errno` for a device's failure.
pub fn errno_of(error: &DeviceError) -> i32 {
    match error {
        DeviceError::OutOfRange { .. } => errno::INVALID,
        DeviceError::ReadOnly { .. } => errno::READ_ONLY,
        DeviceError::NoSpace { .. } => errno::NO_SPACE,
        _ => errno::IO,
    }
}

impl Request {
    /// Reads a descriptor of a disk of `size` bytes.
    ///
    /// # Errors
    /// The `errno` to answer with.
    pub fn decode(bytes: &[u8; DESCRIPTOR], size: Bytes) -> Result<Request, i32> {
        const FUA: u32 = 1 << 13;
        const NO_UNMAP: u32 = 1 << 15;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let flags = word(0);
        if flags & 0xff == 2 {
            // Its place says nothing.
            return Ok(Request::Flush);
        }
        let len = u64::from(word(4)) * SECTOR;
        let start = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
        let at = start.checked_mul(SECTOR).ok_or(errno::INVALID)?;
        let end = at.checked_add(len).ok_or(errno::INVALID)?;
        let inside = end <= size.0 && len > 0;
        let short = inside && len <= REQUEST_MAX.0;
        match flags & 0xff {
            0 if short => Ok(Request::Read {
                at,
                len: len as u32,
            }),
            1 if short => Ok(Request::Write {
                at,
                len: len as u32,
                fua: flags & FUA != 0,
            }),
            3 if inside => Ok(Request::Discard { at, len }),
            5 if inside => Ok(Request::WriteZeroes {
                at,
                len,
                fua: flags & FUA != 0,
                no_unmap: flags & NO_UNMAP != 0,
            }),
            0 | 1 | 3 | 5 => Err(errno::INVALID),
            _ => Err(errno::NOT_SUPPORTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(flags: u32, sectors: u32, start: u64) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        bytes[..4].copy_from_slice(&flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_le_bytes());
        bytes[8..16].copy_from_slice(&start.to_le_bytes());
        bytes
    }

    #[test]
    fn commands_have_the_numbers_of_the_header_file() {
        assert_eq!(Control::Add as u32, 0xc020_7504);
        assert_eq!(Control::GetFeatures as u32, 0x8020_7513);
        assert_eq!(Control::GetParameters as u32, 0x8020_7509);
        assert_eq!(Control::UpdateSize as u32, 0xc020_7515);
        assert_eq!(Queue::Fetch as u32, 0xc010_7520);
        assert_eq!(Queue::CommitAndFetch as u32, 0xc010_7521);
        assert_eq!(data_at(3), 0x8000_0000 + 3 * (32 << 20));
        let command = queue_command(0x102, -5);
        assert_eq!(command[..8], [0, 0, 2, 1, 0xfb, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn descriptors_are_read_as_the_kernel_writes_them() {
        let size = Bytes::mib(1);
        let read =
            |flags, sectors, start| Request::decode(&descriptor(flags, sectors, start), size);
        assert_eq!(
            read(0, 8, 16),
            Ok(Request::Read {
                at: 8192,
                len: 4096
            })
        );
        let fua = Request::Write {
            at: 0,
            len: 512,
            fua: true,
        };
        assert_eq!(read(1 | 1 << 13 | 1 << 10, 1, 0), Ok(fua));
        assert_eq!(read(2, 0, 0), Ok(Request::Flush));
        assert_eq!(
            read(2, 0, u64::MAX),
            Ok(Request::Flush),
            "as Linux writes it"
        );
        let zeroes = Request::WriteZeroes {
            at: 0,
            len: 1 << 20,
            fua: false,
            no_unmap: true,
        };
        assert_eq!(read(5 | 1 << 15, 2048, 0), Ok(zeroes));
        assert_eq!(
            read(3, 1, 2047),
            Ok(Request::Discard {
                at: 2047 * 512,
                len: 512
            })
        );
    }

    #[test]
    fn a_request_beyond_the_disk_is_refused_and_never_wraps() {
        let size = Bytes::mib(1);
        for (flags, sectors, start) in [
            (0, 2, 2047),
            (1, 0, 0),
            (0, 1, u64::MAX),
            (3, u32::MAX, u64::MAX / 512),
            (1, 4096, 0),
        ] {
            let answer = Request::decode(&descriptor(flags, sectors, start), size);
            assert_eq!(answer, Err(errno::INVALID), "{flags} {sectors} {start}");
        }
        assert_eq!(
            Request::decode(&descriptor(4, 1, 0), size),
            Err(errno::NOT_SUPPORTED)
        );
    }

    #[test]
    fn whatever_a_descriptor_says_a_request_stays_within_the_disk() {
        let mut rng = env::Rng::from_seed(1);
        let size = Bytes::mib(1);
        for _ in 0..200_000 {
            // Places and lengths near bounds are drawn often.
            let edges = [0, 1, 2047, 2048, 2049, u64::MAX >> 9, u64::MAX];
            let mut number = || match rng.chance(0.7) {
                true => edges[rng.below(edges.len() as u64) as usize],
                false => rng.bits(),
            };
            let (start, sectors, flags) = (number(), number() as u32, number() as u32);
            let bounds = match Request::decode(&descriptor(flags % 8, sectors, start), size) {
                Ok(Request::Read { at, len } | Request::Write { at, len, .. }) => {
                    assert!(u64::from(len) <= REQUEST_MAX.0);
                    at + u64::from(len)
                }
                Ok(Request::Discard { at, len } | Request::WriteZeroes { at, len, .. }) => at + len,
                Ok(Request::Flush) | Err(_) => 0,
            };
            assert!(bounds <= size.0);
        }
    }

    #[test]
    fn a_disk_comes_back_as_it_was_made() {
        let made = DiskInfo::new(7, NEEDED, 0x1234, 42);
        assert_eq!(DiskInfo::decode(&made.encode()), Some(made));
        let mut strange = made.encode();
        strange[4] = 9;
        assert_eq!(DiskInfo::decode(&strange).unwrap().state, State::Other(9));
        strange[2] = 0;
        strange[3] = 0;
        assert_eq!(DiskInfo::decode(&strange), None, "no depth");
    }

    #[test]
    fn parameters_say_what_the_device_is_like() {
        let info = device::Device::info(&*device::Memory::new("ssd0", Bytes::mib(64)));
        let bytes = parameters(&info, true);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4)), (64, 3));
        assert_eq!(word(8), 1 | 1 << 2 | 1 << 3);
        assert_eq!(bytes[12], 9);
        assert_eq!(word(16), 2048);
        assert_eq!(word(24), 64 * 2048);
        assert_eq!(size_of(&bytes), Some(Bytes::mib(64)));
        assert_eq!(size_of(&parameters_asked()), None);
        assert_eq!((word(44), word(48)), (4096, 64 * 2048));
        let spinning = Info {
            discards: false,
            rotational: true,
            ..info
        };
        let bytes = parameters(&spinning, false);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(word(8), 1 << 1 | 1 << 2 | 1 << 3);
        assert_eq!((word(44), word(48), word(52)), (4096, 0, 64 * 2048));
    }
}
