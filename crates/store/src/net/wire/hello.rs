//! The first bytes each way: which versions, whose nonce, what limits?

use base::crc::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fields::Malformed;

const MAGIC: [u8; 8] = *b"TANADAst";
/// Bytes of a client's hello.
pub const CLIENT_HELLO_LEN: usize = 64;
/// Bytes of a server's hello.
pub const SERVER_HELLO_LEN: usize = 96;

/// What a client says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientHello {
    /// The least version it speaks.
    pub version_min: u16,
    /// The greatest.
    pub version_max: u16,
    /// The longest data of a frame it takes.
    pub data_max: u32,
    /// Used once.
    pub nonce: [u8; 32],
}

/// The ways in that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ways {
    /// Without credentials.
    pub open: bool,
    /// With the node key.
    pub node_key: bool,
    /// With a capability.
    pub capability: bool,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerHello {
    /// The version spoken from now on; 0: none that both speak, and the connection ends.
    pub version: u16,
    /// The least version it speaks.
    pub version_min: u16,
    /// The greatest.
    pub version_max: u16,
    /// The ways in.
    pub ways: Ways,
    /// Used once.
    pub nonce: [u8; 32],
    /// The store's number.
    pub store: u128,
    /// The longest data of a frame, either way: the lesser of both sides' limits.
    pub data_max: u32,
    /// Requests that may be under way at once; more wait unread.
    pub requests_max: u32,
    /// The longest write.
    pub write_max: u32,
    /// A client that sends nothing for so many milliseconds is cut; a ping is enough.
    pub idle_ms: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawClient {
    magic: [u8; 8],
    version_min: U16,
    version_max: U16,
    data_max: U32,
    nonce: [u8; 32],
    reserved: [u8; 12],
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawServer {
    magic: [u8; 8],
    version: U16,
    version_min: U16,
    version_max: U16,
    ways: U16,
    nonce: [u8; 32],
    store: [u8; 16],
    data_max: U32,
    requests_max: U32,
    write_max: U32,
    idle_ms: U32,
    reserved: [u8; 12],
    crc: U32,
}

const _: () = assert!(size_of::<RawClient>() == CLIENT_HELLO_LEN);
const _: () = assert!(size_of::<RawServer>() == SERVER_HELLO_LEN);

/// Magic and checksum, which every version of the protocol keeps.
fn check(whose: &str, magic: [u8; 8], crc: U32, bytes: &[u8]) -> Result<(), Malformed> {
    if magic != MAGIC {
        return Err(Malformed(format!(
            "{whose} hello does not begin with {:?}: that is not a peer of a store",
            String::from_utf8_lossy(&MAGIC)
        )));
    }
    if crc.get() != crc32c(bytes) {
        return Err(Malformed(format!(
            "the checksum of {whose} hello differs: it was damaged on its way"
        )));
    }
    Ok(())
}

impl ClientHello {
    /// As bytes.
    pub fn encode(&self) -> [u8; CLIENT_HELLO_LEN] {
        let mut raw = RawClient {
            magic: MAGIC,
            version_min: self.version_min.into(),
            version_max: self.version_max.into(),
            data_max: self.data_max.into(),
            nonce: self.nonce,
            reserved: [0; 12],
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..CLIENT_HELLO_LEN - 4]).into();
        zerocopy::transmute!(raw)
    }

    /// What `bytes` say. What a later version may put into the reserved bytes is not looked at.
    pub fn parse(bytes: &[u8; CLIENT_HELLO_LEN]) -> Result<ClientHello, Malformed> {
        let raw: &RawClient = zerocopy::transmute_ref!(bytes);
        check(
            "the client's",
            raw.magic,
            raw.crc,
            &bytes[..CLIENT_HELLO_LEN - 4],
        )?;
        Ok(ClientHello {
            version_min: raw.version_min.get(),
            version_max: raw.version_max.get(),
            data_max: raw.data_max.get(),
            nonce: raw.nonce,
        })
    }
}

impl Ways {
    fn bits(self) -> u16 {
        u16::from(self.open) | u16::from(self.node_key) << 1 | u16::from(self.capability) << 2
    }
}

impl ServerHello {
    /// As bytes.
    pub fn encode(&self) -> [u8; SERVER_HELLO_LEN] {
        let mut raw = RawServer {
            magic: MAGIC,
            version: self.version.into(),
            version_min: self.version_min.into(),
            version_max: self.version_max.into(),
            ways: self.ways.bits().into(),
            nonce: self.nonce,
            store: self.store.to_le_bytes(),
            data_max: self.data_max.into(),
            requests_max: self.requests_max.into(),
            write_max: self.write_max.into(),
            idle_ms: self.idle_ms.into(),
            reserved: [0; 12],
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..SERVER_HELLO_LEN - 4]).into();
        zerocopy::transmute!(raw)
    }

    /// What `bytes` say.
    pub fn parse(bytes: &[u8; SERVER_HELLO_LEN]) -> Result<ServerHello, Malformed> {
        let raw: &RawServer = zerocopy::transmute_ref!(bytes);
        check(
            "the server's",
            raw.magic,
            raw.crc,
            &bytes[..SERVER_HELLO_LEN - 4],
        )?;
        let ways = raw.ways.get();
        Ok(ServerHello {
            version: raw.version.get(),
            version_min: raw.version_min.get(),
            version_max: raw.version_max.get(),
            ways: Ways {
                open: ways & 1 != 0,
                node_key: ways & 2 != 0,
                capability: ways & 4 != 0,
            },
            nonce: raw.nonce,
            store: u128::from_le_bytes(raw.store),
            data_max: raw.data_max.get(),
            requests_max: raw.requests_max.get(),
            write_max: raw.write_max.get(),
            idle_ms: raw.idle_ms.get(),
        })
    }
}
