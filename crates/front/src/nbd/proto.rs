//! What do the bytes on an NBD connection mean?
//!
//! ```text
//! greeting -> client flags -> (option -> option replies)* -> (request -> reply)*
//! ```
//!
//! Numbers, layouts, and the functions that read and write them. Everything is big-endian. Pure: no
//! stream, no clock, no device.
//!
//! Source: the NBD protocol as kept with the reference implementation (`doc/proto.md`), fixed newstyle.
//!
//! Always true:
//! 1. A parser looks only at the bytes it was given and answers any bytes at all without a panic.
//! 2. A length from the wire is compared with a limit before anything is sized by it.

use base::SECTOR;
use device::DeviceError;

/// First word of the greeting: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting and first of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a structured reply's chunk.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the server's greeting.
pub const GREETING_LEN: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes of an option before its data.
pub const OPTION_LEN: usize = 16;
/// Bytes of an option's reply before its data.
pub const OPTION_REPLY_LEN: usize = 20;
/// Bytes of a request before its payload.
pub const REQUEST_LEN: usize = 28;
/// Bytes of a simple reply before its data.
pub const SIMPLE_REPLY_LEN: usize = 16;
/// Bytes of a chunk before its payload.
pub const CHUNK_LEN: usize = 20;
/// Longest string of the protocol, in bytes.
pub const STRING_MAX: usize = 4096;
/// The one metadata context this server knows.
pub const ALLOCATION: &str = "base:allocation";
/// The number it gives that context.
pub const ALLOCATION_ID: u32 = 1;

/// Handshake flags, server to client and back.
pub mod handshake {
    /// Fixed newstyle: errors are answered, not hung up on.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zero bytes after `EXPORT_NAME` are left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the negotiation.
pub mod opt {
    /// Choose an export the old way; cannot be refused but by hanging up.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Go on in TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit request lengths (refused as unknown).
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of reply to an option.
pub mod rep {
    /// Done, or end of the list.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every refusal.
    pub const ERROR: u32 = 1 << 31;
    /// The server does not know the option.
    pub const ERR_UNSUP: u32 = ERROR | 1;
    /// Known, but not allowed here.
    pub const ERR_POLICY: u32 = ERROR | 2;
    /// The option's data make no sense.
    pub const ERR_INVALID: u32 = ERROR | 3;
    /// TLS first.
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR | 7;
    /// The client must ask for block sizes first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR | 8;
    /// The option is longer than the server takes.
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of fact in a `rep::INFO`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest block.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod can {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `cmd::FLUSH`.
    pub const FLUSH: u16 = 1 << 2;
    /// `flag::FUA`.
    pub const FUA: u16 = 1 << 3;
    /// An arm moves.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `cmd::TRIM`.
    pub const TRIM: u16 = 1 << 5;
    /// `cmd::WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// `flag::DF`; only after structured replies were agreed on.
    pub const DF: u16 = 1 << 7;
    /// A flush on one connection covers what completed on all.
    pub const MULTI_CONN: u16 = 1 << 8;
    /// `cmd::CACHE`.
    pub const CACHE: u16 = 1 << 10;
    /// `flag::FAST_ZERO`.
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; a payload follows.
    pub const WRITE: u16 = 1;
    /// Soft disconnect; no reply.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// Give space up.
    pub const TRIM: u16 = 4;
    /// Read into a cache.
    pub const CACHE: u16 = 5;
    /// Make it read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Which parts hold data?
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod flag {
    /// Durable at completion.
    pub const FUA: u16 = 1;
    /// Zeroes must be stored, not punched.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One content chunk only.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zero it fast or refuse.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunk types and the flag of the last one.
pub mod chunk {
    /// Flag: no more chunks for this request.
    pub const DONE: u16 = 1;
    /// Nothing but the flag.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error and a sentence.
    pub const ERROR: u16 = 1 << 15 | 1;
    /// An error, a sentence, and where.
    pub const ERROR_OFFSET: u16 = 1 << 15 | 2;
}

/// Extent flags of `base:allocation`.
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Error numbers of replies; anything else a server sends counts as `Invalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// Out of memory.
    NoMemory = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// No space, or a write behind the end.
    NoSpace = 28,
    /// Too long to answer in one piece.
    Overflow = 75,
    /// Cannot be done as asked.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// As the system's manual calls it.
    pub fn word(self) -> &'static str {
        match self {
            Errno::Perm => "EPERM",
            Errno::Io => "EIO",
            Errno::NoMemory => "ENOMEM",
            Errno::Invalid => "EINVAL",
            Errno::NoSpace => "ENOSPC",
            Errno::Overflow => "EOVERFLOW",
            Errno::NotSupported => "ENOTSUP",
            Errno::Shutdown => "ESHUTDOWN",
        }
    }

    /// The error a code on the wire stands for.
    pub fn of(code: u32) -> Errno {
        match code {
            1 => Errno::Perm,
            5 => Errno::Io,
            12 => Errno::NoMemory,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSupported,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        }
    }

    /// The code on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The error that a client gets for a device's failure.
    pub fn of_device(error: &DeviceError) -> Errno {
        match error {
            DeviceError::OutOfRange { .. } => Errno::Invalid,
            DeviceError::ReadOnly { .. } => Errno::Perm,
            DeviceError::NoSpace { .. } => Errno::NoSpace,
            _ => Errno::Io,
        }
    }
}

// --- reading ----------------------------------------------------------------------------------------

/// Takes numbers and strings off the front of some bytes.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A 32-bit length, then that many bytes of text: UTF-8 without NUL, at most 4096 bytes.
    pub fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        text(self.bytes(len)?)
    }
}

/// The bytes as a string of the protocol: UTF-8 without NUL, at most 4096 bytes.
pub fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// The head of an option: which, and how many bytes of data follow. `None` on a wrong magic.
pub fn option_head(head: &[u8; OPTION_LEN]) -> Option<(u32, u32)> {
    let mut fields = Fields(head);
    (fields.u64()? == OPTION_MAGIC).then_some(())?;
    Some((fields.u32()?, fields.u32()?))
}

/// The head of a request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The client's name for the request, sent back with the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Request {
    /// Reads the head of a request; `None` on a wrong magic.
    #[inline]
    pub fn parse(head: &[u8; REQUEST_LEN]) -> Option<Request> {
        let mut fields = Fields(head);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Request {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// The request's head on the wire.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut head = [0; REQUEST_LEN];
        head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        head[4..6].copy_from_slice(&self.flags.to_be_bytes());
        head[6..8].copy_from_slice(&self.command.to_be_bytes());
        head[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        head[16..24].copy_from_slice(&self.offset.to_be_bytes());
        head[24..].copy_from_slice(&self.length.to_be_bytes());
        head
    }

    /// Bytes that follow the head and must be taken off the stream, whatever the answer.
    pub fn payload(&self) -> u32 {
        if self.command == cmd::WRITE {
            self.length
        } else {
            0
        }
    }
}

// --- judging ----------------------------------------------------------------------------------------

/// What was agreed on for one connection: the ground its requests stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The export's size in bytes.
    pub size: u64,
    /// Transmission flags as announced.
    pub flags: u16,
    /// Replies are structured.
    pub structured: bool,
    /// `base:allocation` was selected.
    pub allocation: bool,
    /// Longest read or write in bytes.
    pub payload_max: u32,
}

/// A request that is allowed, in whole sectors and within the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the request's offset and length in bytes, and its flags by name.
pub enum Command {
    Read {
        at: u64,
        len: u32,
        whole: bool,
    },
    Write {
        at: u64,
        len: u32,
        fua: bool,
    },
    Disconnect,
    Flush,
    Trim {
        at: u64,
        len: u32,
        fua: bool,
    },
    WriteZeroes {
        at: u64,
        len: u32,
        fua: bool,
        no_hole: bool,
        fast: bool,
    },
    BlockStatus {
        at: u64,
        len: u32,
        one: bool,
    },
    Cache {
        at: u64,
        len: u32,
    },
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The sentence a client with structured replies can show.
    pub why: String,
}

fn refuse<T>(errno: Errno, why: String) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

/// Is this request one the export can carry out under these terms?
///
/// # Errors
/// The protocol's error: `Perm` for a write to a read-only export, `NoSpace` for a write behind the
/// end, `Overflow` for an unfragmented read over the limit, `Invalid` for all else.
pub fn judge(request: &Request, terms: &Terms) -> Result<Command, Refusal> {
    let Request {
        flags,
        command,
        offset: at,
        length: len,
        ..
    } = *request;
    let has = |bit: u16| flags & bit != 0;
    let can = |bit: u16| terms.flags & bit != 0;

    let (name, known, allowed) = match command {
        cmd::DISC => return Ok(Command::Disconnect),
        cmd::READ => ("read", true, if can(can::DF) { flag::DF } else { 0 }),
        cmd::WRITE => ("write", true, 0),
        cmd::FLUSH => ("flush", can(can::FLUSH), 0),
        cmd::TRIM => ("trim", can(can::TRIM) || can(can::READ_ONLY), 0),
        cmd::CACHE => ("cache", can(can::CACHE), 0),
        cmd::WRITE_ZEROES => {
            let fast = if can(can::FAST_ZERO) {
                flag::FAST_ZERO
            } else {
                0
            };
            let known = can(can::WRITE_ZEROES) || can(can::READ_ONLY);
            ("write zeroes", known, flag::NO_HOLE | fast)
        }
        cmd::BLOCK_STATUS => ("report block status", terms.allocation, flag::REQ_ONE),
        other => return refuse(Errno::Invalid, format!("command {other} is unknown")),
    };
    if !known {
        let why = format!("cannot {name}: it was not agreed on in the negotiation");
        return refuse(Errno::Invalid, why);
    }
    let writes = matches!(command, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
    if writes && can(can::READ_ONLY) {
        return refuse(
            Errno::Perm,
            format!("cannot {name}: the export is read-only"),
        );
    }
    let unexpected = flags & !(allowed | flag::FUA);
    if unexpected != 0 {
        let why = format!("cannot {name}: command flags {unexpected:#06x} do not belong to it");
        return refuse(Errno::Invalid, why);
    }
    let fua = has(flag::FUA);
    if command == cmd::FLUSH {
        if at != 0 || len != 0 {
            let why =
                format!("cannot flush a part ({len} bytes at byte {at}): only the whole export");
            return refuse(Errno::Invalid, why);
        }
        return Ok(Command::Flush);
    }
    if !at.is_multiple_of(SECTOR) || !u64::from(len).is_multiple_of(SECTOR) {
        let why = format!("cannot {name} {len} bytes at byte {at}: not in whole 512-byte sectors");
        return refuse(Errno::Invalid, why);
    }
    if matches!(command, cmd::READ | cmd::WRITE) && len > terms.payload_max {
        let most = terms.payload_max;
        let errno = if has(flag::DF) {
            Errno::Overflow
        } else {
            Errno::Invalid
        };
        return refuse(
            errno,
            format!("cannot {name} {len} bytes at once: at most {most}"),
        );
    }
    if at
        .checked_add(u64::from(len))
        .is_none_or(|end| end > terms.size)
    {
        let errno = match command {
            cmd::WRITE | cmd::WRITE_ZEROES => Errno::NoSpace,
            _ => Errno::Invalid,
        };
        let size = terms.size;
        let why = format!("cannot {name} {len} bytes at byte {at}: the export holds {size} bytes");
        return refuse(errno, why);
    }
    Ok(match command {
        cmd::READ => Command::Read {
            at,
            len,
            whole: has(flag::DF),
        },
        cmd::WRITE => Command::Write { at, len, fua },
        cmd::TRIM => Command::Trim { at, len, fua },
        cmd::CACHE => Command::Cache { at, len },
        cmd::WRITE_ZEROES => Command::WriteZeroes {
            at,
            len,
            fua,
            no_hole: has(flag::NO_HOLE),
            fast: has(flag::FAST_ZERO),
        },
        _ if len == 0 => {
            return refuse(
                Errno::Invalid,
                "cannot report the status of no bytes".to_owned(),
            );
        }
        _ => Command::BlockStatus {
            at,
            len,
            one: has(flag::REQ_ONE),
        },
    })
}

// --- writing ----------------------------------------------------------------------------------------

/// A simple reply's head.
#[inline]
pub fn simple_reply(cookie: u64, code: u32) -> [u8; SIMPLE_REPLY_LEN] {
    let mut head = [0; SIMPLE_REPLY_LEN];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&code.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    head
}

/// A chunk's head; `len` bytes of payload follow.
#[inline]
pub fn chunk_head(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; CHUNK_LEN] {
    let mut head = [0; CHUNK_LEN];
    head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&len.to_be_bytes());
    head
}

/// The server's greeting.
pub fn greeting() -> [u8; GREETING_LEN] {
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let mut greeting = [0; GREETING_LEN];
    greeting[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting[16..].copy_from_slice(&flags.to_be_bytes());
    greeting
}

/// Appends an option with its data.
pub fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends a reply to `option` with its data.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends a 32-bit length and the text.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Shortens a sentence to at most `max` bytes, between characters.
pub fn shortened(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms {
            size: 1 << 20,
            flags: can::HAS_FLAGS
                | can::FLUSH
                | can::FUA
                | can::TRIM
                | can::WRITE_ZEROES
                | can::DF
                | can::CACHE
                | can::FAST_ZERO,
            structured: true,
            allocation: true,
            payload_max: 64 << 10,
        }
    }

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request {
            flags,
            command,
            cookie: 7,
            offset,
            length,
        }
    }

    fn errno(request: Request, terms: &Terms) -> Errno {
        judge(&request, terms).unwrap_err().errno
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_a_wrong_magic_is_none() {
        let asked = request(cmd::WRITE, flag::FUA, 0x1234_5678_9abc_de00, 0xfeed_be00);
        let mut head = asked.encode();
        assert_eq!(head[..4], [0x25, 0x60, 0x95, 0x13]);
        assert_eq!(Request::parse(&head), Some(asked));
        head[0] ^= 1;
        assert_eq!(Request::parse(&head), None);
    }

    #[test]
    fn the_greeting_is_the_protocols() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn allowed_requests_pass_with_their_flags() {
        let terms = terms();
        let ok = |r: Request| judge(&r, &terms).unwrap();
        assert_eq!(
            ok(request(cmd::READ, flag::DF, 512, 1024)),
            Command::Read {
                at: 512,
                len: 1024,
                whole: true
            }
        );
        assert_eq!(
            ok(request(cmd::WRITE, flag::FUA, (1 << 20) - 512, 512)),
            Command::Write {
                at: (1 << 20) - 512,
                len: 512,
                fua: true
            }
        );
        assert_eq!(
            ok(request(
                cmd::WRITE_ZEROES,
                flag::NO_HOLE | flag::FAST_ZERO,
                0,
                1 << 20
            )),
            Command::WriteZeroes {
                at: 0,
                len: 1 << 20,
                fua: false,
                no_hole: true,
                fast: true
            }
        );
        assert_eq!(ok(request(cmd::FLUSH, flag::FUA, 0, 0)), Command::Flush);
        assert_eq!(ok(request(cmd::DISC, 0, 0, 0)), Command::Disconnect);
        assert_eq!(
            ok(request(cmd::BLOCK_STATUS, flag::REQ_ONE, 0, 512)),
            Command::BlockStatus {
                at: 0,
                len: 512,
                one: true
            }
        );
    }

    #[test]
    fn each_wrong_request_gets_the_protocols_error() {
        let mut terms = terms();
        let end = terms.size;
        assert_eq!(errno(request(99, 0, 0, 0), &terms), Errno::Invalid);
        assert_eq!(errno(request(cmd::READ, 0, 1, 512), &terms), Errno::Invalid);
        assert_eq!(errno(request(cmd::READ, 0, 0, 511), &terms), Errno::Invalid);
        assert_eq!(
            errno(request(cmd::READ, 0, end, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, 0, u64::MAX - 511, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, 0, 0, 128 << 10), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, flag::DF, 0, 128 << 10), &terms),
            Errno::Overflow
        );
        assert_eq!(
            errno(request(cmd::READ, flag::NO_HOLE, 0, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::WRITE, 0, end, 512), &terms),
            Errno::NoSpace
        );
        assert_eq!(
            errno(request(cmd::WRITE_ZEROES, 0, 512, end as u32), &terms),
            Errno::NoSpace
        );
        assert_eq!(
            errno(request(cmd::TRIM, 0, end, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::FLUSH, 0, 0, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::BLOCK_STATUS, 0, 0, 0), &terms),
            Errno::Invalid
        );
        terms.allocation = false;
        assert_eq!(
            errno(request(cmd::BLOCK_STATUS, 0, 0, 512), &terms),
            Errno::Invalid
        );
        terms.flags = can::HAS_FLAGS | can::READ_ONLY;
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(errno(request(command, 0, 0, 512), &terms), Errno::Perm);
        }
        assert_eq!(errno(request(cmd::FLUSH, 0, 0, 0), &terms), Errno::Invalid);
        let why = judge(&request(cmd::READ, 0, end, 512), &terms)
            .unwrap_err()
            .to_string();
        assert_eq!(
            why,
            "cannot read 512 bytes at byte 1048576: the export holds 1048576 bytes"
        );
    }

    #[test]
    fn strings_are_utf8_without_nul_and_of_bounded_length() {
        let mut data = Vec::new();
        put_string(&mut data, "disk");
        data.extend([0, 0, 0, 9, b'x']);
        let mut fields = Fields(&data);
        assert_eq!(fields.string(), Some("disk"));
        assert_eq!(fields.string(), None);
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(&[0xff]), None);
        assert_eq!(text(&[b'a'; STRING_MAX + 1]), None);
        assert!(text(&[b'a'; STRING_MAX]).is_some());
    }

    #[test]
    fn a_sentence_is_shortened_between_characters() {
        assert_eq!(shortened("aé", 2), "a");
        assert_eq!(shortened("aé", 3), "aé");
        assert_eq!(shortened("abc", 10), "abc");
    }
}
