//! The numbers of the protocol, by the names it gives them.

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
