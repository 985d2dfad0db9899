//! The messages of vhost-user, as bytes.
//!
//! ```text
//! 12 bytes: request, flags, length of the payload | payload | descriptors beside the first byte
//! ```
//!
//! Little-endian, as all machines that run this. No I/O: what came is a [`Message`] or a [`MessageError`].
//!
//! Always true: a decoded message has whole fields, a queue below [`QUEUES_MAX`] and as many descriptors as it takes.

/// Bytes of a header.
pub const HEADER: usize = 12;
/// The longest payload that is taken.
pub const PAYLOAD_MAX: usize = 4096;
/// Regions of a memory table.
pub const REGIONS_MAX: usize = 8;
/// Queues that a message can name.
pub const QUEUES_MAX: u16 = 256;
/// Bytes of configuration that a message can carry.
pub const CONFIG_MAX: usize = 256;

/// What both sides may agree on beyond the first version.
pub mod protocol {
    /// Several queues.
    pub const MQ: u64 = 1 << 0;
    /// Any message can ask for an answer.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// A channel for messages of this side.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// The configuration space is this side's.
    pub const CONFIG: u64 = 1 << 9;
    /// The client keeps a record of what is in flight.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
}

pub(super) mod number {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// A queue's descriptor message without one.
pub(super) const NO_DESCRIPTOR: u64 = 1 << 8;

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Of another version, or an answer.
    #[error("flags {flags:#x} are no request of version 1")]
    Flags {
        /// What was there.
        flags: u32,
    },
    /// Longer than any message is.
    #[error("a payload of {len} bytes is longer than {PAYLOAD_MAX}")]
    TooLong {
        /// Its length.
        len: u32,
    },
    /// The payload is not what such a request has.
    #[error("request {request} has a payload of {len} bytes that it cannot have")]
    Payload {
        /// Its number.
        request: u32,
        /// Bytes of the payload.
        len: usize,
    },
    /// Too many or too few of them.
    #[error("request {request} came with {came} descriptors, and takes {takes}")]
    Descriptors {
        /// Its number.
        request: u32,
        /// How many came.
        came: usize,
        /// How many it takes.
        takes: usize,
    },
    /// There is no such queue.
    #[error("request {request} names queue {queue}")]
    Queue {
        /// Its number.
        request: u32,
        /// What it names.
        queue: u64,
    },
}

/// The first bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The request's number.
    pub request: u32,
    /// Must it be answered, also where nothing is asked?
    pub need_reply: bool,
    /// Bytes of the payload that follows.
    pub len: usize,
}

impl Header {
    /// Reads one.
    ///
    /// # Errors
    /// [`MessageError::Flags`], [`MessageError::TooLong`].
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, MessageError> {
        let mut fields = Fields(bytes);
        let [request, flags, len] = [(); 3].map(|()| fields.u32().expect("twelve bytes"));
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(MessageError::Flags { flags });
        }
        if len as usize > PAYLOAD_MAX {
            return Err(MessageError::TooLong { len });
        }
        Ok(Header {
            request,
            need_reply: flags & NEED_REPLY != 0,
            len: len as usize,
        })
    }

    /// As a client writes it.
    pub fn encode(&self) -> [u8; HEADER] {
        let need = if self.need_reply { NEED_REPLY } else { 0 };
        encoded(self.request, VERSION | need, self.len)
    }
}

fn encoded(request: u32, flags: u32, len: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&request.to_le_bytes());
    bytes[4..8].copy_from_slice(&flags.to_le_bytes());
    bytes[8..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

/// The answer to request `request`.
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = encoded(request, VERSION | REPLY, payload.len()).to_vec();
    bytes.extend(payload);
    bytes
}

/// What this side says of its own accord: look at the configuration space again.
pub fn config_changed() -> [u8; HEADER] {
    const CONFIG_CHANGE: u32 = 2;
    encoded(CONFIG_CHANGE, VERSION, 0)
}

/// A part of a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first address in the guest.
    pub guest: u64,
    /// Bytes.
    pub len: u64,
    /// Its first address in the client.
    pub client: u64,
    /// Where in the descriptor it begins.
    pub offset: u64,
}

/// Where the parts of a ring are, in the client's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The used ring.
    pub used: u64,
    /// The available ring.
    pub available: u64,
}

/// A record of what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightArea {
    /// Bytes.
    pub len: u64,
    /// Where in the descriptor it begins.
    pub offset: u64,
    /// Queues that it is for.
    pub queues: u16,
    /// Entries of each queue.
    pub size: u16,
}

impl InflightArea {
    /// As both sides write it, padding included.
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// What the other side wrote, if it is long enough.
    pub fn decode(payload: &[u8]) -> Option<InflightArea> {
        let mut fields = Fields(payload);
        Some(InflightArea {
            len: fields.u64()?,
            offset: fields.u64()?,
            queues: fields.u16()?,
            size: fields.u16()?,
        })
    }
}

/// A notifier of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notifies {
    /// The guest has put requests into the queue.
    Kick,
    /// Requests of it were answered.
    Call,
    /// It cannot go on.
    Error,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Features of the device? (answer: `u64`)
    GetFeatures,
    /// Those that the guest's driver takes.
    SetFeatures(u64),
    /// The client begins.
    SetOwner,
    /// No longer in use.
    ResetOwner,
    /// The guest's memory, a descriptor each.
    SetMemTable(Vec<Region>),
    /// Entries of a queue.
    SetVringNum {
        /// The queue.
        queue: u16,
        /// How many.
        size: u32,
    },
    /// Where it is.
    SetVringAddr {
        /// The queue.
        queue: u16,
        /// Its parts.
        at: Addresses,
    },
    /// The request to begin with.
    SetVringBase {
        /// The queue.
        queue: u16,
        /// The index.
        index: u32,
    },
    /// Stop; which request would be next? (answer: the same fields)
    GetVringBase {
        /// The queue.
        queue: u16,
    },
    /// A notifier of a queue; without a descriptor there is none.
    SetVringNotifier {
        /// The queue.
        queue: u16,
        /// Which.
        what: Notifies,
        /// Did a descriptor come?
        given: bool,
    },
    /// Features of the protocol? (answer: `u64`)
    GetProtocolFeatures,
    /// Those that the client takes.
    SetProtocolFeatures(u64),
    /// How many queues? (answer: `u64`)
    GetQueueNum,
    /// Begin or pause with a queue.
    SetVringEnable {
        /// The queue.
        queue: u16,
        /// Begin?
        on: bool,
    },
    /// A socket for messages of this side.
    SetBackendReq,
    /// Bytes of the configuration space? (answer: the same fields and the bytes)
    GetConfig {
        /// The first.
        offset: u32,
        /// How many.
        len: u32,
    },
    /// New bytes for it.
    SetConfig {
        /// The first.
        offset: u32,
        /// They.
        bytes: Vec<u8>,
    },
    /// A record of what is in flight, please. (answer: its size, and a descriptor)
    GetInflight(InflightArea),
    /// The record to use.
    SetInflight(InflightArea),
    /// Something that is not served here.
    Other(u32),
}

/// Fields of a payload, from its start on.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// All of it, and nothing more.
    pub fn only<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}
