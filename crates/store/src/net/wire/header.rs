//! The forty bytes every frame begins with.

use base::crc::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fields::Malformed;

/// Bytes of a frame before its meta.
pub const HEADER_LEN: usize = 40;

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From a client.
    Request,
    /// From a server.
    Response,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Request => *b"TaRq",
            Kind::Response => *b"TaRp",
        }
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The operation's number; see [`crate::net::wire::Op`].
    pub op: u16,
    /// Of an answer: 0 if it was done, else a failure's number. 0 in requests.
    pub status: u16,
    /// The client's number of the request; the answer has the same.
    pub id: u64,
    /// Bytes of meta.
    pub meta_len: u32,
    /// Bytes of data.
    pub data_len: u32,
    /// CRC-32C of the meta.
    pub meta_crc: u32,
    /// CRC-32C of the data.
    pub data_crc: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    op: U16,
    status: U16,
    id: U64,
    meta_len: U32,
    data_len: U32,
    meta_crc: U32,
    data_crc: U32,
    reserved: U32,
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == HEADER_LEN);

impl Header {
    /// For a frame with this meta and data.
    pub fn of(op: u16, status: u16, id: u64, meta: &[u8], data: &[u8]) -> Header {
        Header {
            op,
            status,
            id,
            meta_len: meta.len() as u32,
            data_len: data.len() as u32,
            meta_crc: crc32c(meta),
            data_crc: crc32c(data),
        }
    }

    /// As bytes.
    pub fn encode(&self, kind: Kind) -> [u8; HEADER_LEN] {
        let mut raw = Raw {
            magic: kind.magic(),
            op: self.op.into(),
            status: self.status.into(),
            id: self.id.into(),
            meta_len: self.meta_len.into(),
            data_len: self.data_len.into(),
            meta_crc: self.meta_crc.into(),
            data_crc: self.data_crc.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..HEADER_LEN - 4]).into();
        zerocopy::transmute!(raw)
    }

    /// What `bytes` say, if they are a header of this kind.
    pub fn parse(bytes: &[u8; HEADER_LEN], kind: Kind) -> Result<Header, Malformed> {
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        if raw.magic != kind.magic() {
            return Err(Malformed::new(
                "a frame begins with the wrong magic: either side has lost count, or does not speak this protocol",
            ));
        }
        let crc = crc32c(&bytes[..HEADER_LEN - 4]);
        if raw.crc.get() != crc {
            return Err(Malformed(format!(
                "the checksum of a frame's header is {crc:08x}, {:08x} is written there: it was damaged on its way",
                raw.crc.get()
            )));
        }
        if raw.reserved.get() != 0 {
            return Err(Malformed::new("a frame's reserved field is not zero"));
        }
        if kind == Kind::Request && raw.status.get() != 0 {
            return Err(Malformed::new("a request has a status"));
        }
        Ok(Header {
            op: raw.op.get(),
            status: raw.status.get(),
            id: raw.id.get(),
            meta_len: raw.meta_len.get(),
            data_len: raw.data_len.get(),
            meta_crc: raw.meta_crc.get(),
            data_crc: raw.data_crc.get(),
        })
    }

    /// Is this the frame's meta?
    pub fn check_meta(&self, meta: &[u8]) -> Result<(), Malformed> {
        check(self.id, "fields", self.meta_crc, meta)
    }

    /// Are these the frame's data?
    pub fn check_data(&self, data: &[u8]) -> Result<(), Malformed> {
        check(self.id, "data", self.data_crc, data)
    }
}

fn check(id: u64, what: &str, asked: u32, bytes: &[u8]) -> Result<(), Malformed> {
    let found = crc32c(bytes);
    if found == asked {
        return Ok(());
    }
    Err(Malformed(format!(
        "the checksum of the {what} of frame {id} ({} bytes) is {found:08x}, its header says {asked:08x}: they \
         were damaged on their way",
        bytes.len()
    )))
}
