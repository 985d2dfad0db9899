//! Requests on objects, and what comes of them.

use base::View;
use device::Class;
use policy::place::Op;

use crate::object::damage::Damage;
use crate::object::types::{AllocatedRange, Change, Listing, SpaceFigures, Stat, Version};

/// A request on objects. [`crate::ops::ObjectCalls`] says what each does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the operations of `Store`.
pub enum Request {
    Create {
        object: String,
        attributes: Vec<(String, Vec<u8>)>,
        change: Change,
    },
    Write {
        object: String,
        offset: u64,
        data: View,
        change: Change,
    },
    Read {
        object: String,
        offset: u64,
        len: u64,
        /// Whose it is at the device; a session and a server say it themselves.
        class: Class,
    },
    Truncate {
        object: String,
        size: u64,
        change: Change,
    },
    Punch {
        object: String,
        offset: u64,
        len: u64,
        change: Change,
    },
    Delete {
        object: String,
        change: Change,
    },
    Rename {
        object: String,
        to: String,
        replace: bool,
        change: Change,
    },
    List {
        prefix: String,
        after: Option<String>,
        most: usize,
    },
    Attributes {
        object: String,
    },
    SetAttributes {
        object: String,
        changes: Vec<(String, Option<Vec<u8>>)>,
        change: Change,
    },
    Stat {
        object: String,
    },
    AllocatedRanges {
        object: String,
        offset: u64,
        len: u64,
    },
    Flush,
    Space,
    /// Of objects with this prefix, from that byte of that object on.
    Damage {
        prefix: String,
        object: String,
        offset: u64,
        most: usize,
    },
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // They are what the operations of `Store` give.
pub enum Response {
    /// It is done, and there is nothing to say.
    Done,
    Version(Version),
    /// The bytes of a read.
    Data(View),
    Stat(Stat),
    Listing(Listing),
    Attributes(Vec<(String, Vec<u8>)>),
    AllocatedRanges {
        allocated_ranges: Vec<AllocatedRange>,
        /// There are more behind the last.
        more: bool,
    },
    Space(SpaceFigures),
    Damage {
        damage: Vec<Damage>,
        /// There is more behind the last.
        more: bool,
    },
}

impl Request {
    /// What figures keep apart: bytes, objects made and gone, other changes, looks, flushes.
    pub const KINDS: [&str; 7] = [
        "read", "write", "create", "delete", "change", "look", "flush",
    ];

    /// Its place in [`KINDS`](Self::KINDS).
    pub fn kind(&self) -> usize {
        match self {
            Request::Read { .. } => 0,
            Request::Write { .. } => 1,
            Request::Create { .. } => 2,
            Request::Delete { .. } => 3,
            Request::Truncate { .. }
            | Request::Punch { .. }
            | Request::Rename { .. }
            | Request::SetAttributes { .. } => 4,
            Request::List { .. }
            | Request::Attributes { .. }
            | Request::Stat { .. }
            | Request::AllocatedRanges { .. }
            | Request::Space
            | Request::Damage { .. } => 5,
            Request::Flush => 6,
        }
    }

    /// Bytes of data that it reads or writes.
    pub fn data_len(&self) -> u64 {
        match self {
            Request::Read { len, .. } => *len,
            Request::Write { data, .. } => data.len() as u64,
            _ => 0,
        }
    }

    /// How the change is to be done, if it changes an object.
    pub fn change(&self) -> Option<&Change> {
        match self {
            Request::Create { change, .. }
            | Request::Write { change, .. }
            | Request::Truncate { change, .. }
            | Request::Punch { change, .. }
            | Request::Delete { change, .. }
            | Request::Rename { change, .. }
            | Request::SetAttributes { change, .. } => Some(change),
            _ => None,
        }
    }

    /// The same, to be set.
    pub fn change_mut(&mut self) -> Option<&mut Change> {
        match self {
            Request::Create { change, .. }
            | Request::Write { change, .. }
            | Request::Truncate { change, .. }
            | Request::Punch { change, .. }
            | Request::Delete { change, .. }
            | Request::Rename { change, .. }
            | Request::SetAttributes { change, .. } => Some(change),
            _ => None,
        }
    }

    /// The object it names, or the prefix of a list; nothing for what concerns the whole store.
    pub fn object(&self) -> Option<&str> {
        match self {
            Request::Create { object, .. }
            | Request::Write { object, .. }
            | Request::Read { object, .. }
            | Request::Truncate { object, .. }
            | Request::Punch { object, .. }
            | Request::Delete { object, .. }
            | Request::Rename { object, .. }
            | Request::Attributes { object }
            | Request::SetAttributes { object, .. }
            | Request::Stat { object }
            | Request::AllocatedRanges { object, .. } => Some(object),
            Request::List { prefix, .. } | Request::Damage { prefix, .. } => Some(prefix),
            Request::Flush | Request::Space => None,
        }
    }

    /// Can it leave something other than it was? A flush makes durable what was not.
    pub fn changes(&self) -> bool {
        // Each by its name: of one that is taken for a look a lost answer would say that nothing was done.
        match self {
            Request::Create { .. }
            | Request::Write { .. }
            | Request::Truncate { .. }
            | Request::Punch { .. }
            | Request::Delete { .. }
            | Request::Rename { .. }
            | Request::SetAttributes { .. }
            | Request::Flush => true,
            Request::Read { .. }
            | Request::Attributes { .. }
            | Request::Stat { .. }
            | Request::AllocatedRanges { .. }
            | Request::List { .. }
            | Request::Damage { .. }
            | Request::Space => false,
        }
    }

    /// Of a read or a write: which, of which object, from which byte on, and how many bytes.
    pub fn transfer(&self) -> Option<(Op, &str, u64, u64)> {
        match self {
            Request::Read {
                object,
                offset,
                len,
                ..
            } => Some((Op::Read, object, *offset, *len)),
            Request::Write {
                object,
                offset,
                data,
                ..
            } => Some((Op::Write, object, *offset, data.len() as u64)),
            _ => None,
        }
    }
}
