//! What travels between a gate and an owner.
//!
//! Always true: nothing here has another owner on the thread it leaves.

use base::{Bytes, Parcel, Sector, Span};

use crate::{Class, DeviceError, Info, Op, WriteFlags};

/// A device that the gate has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle(pub u32);

/// One call of a device.
pub(super) enum Call {
    /// The device of this name, under the request's handle from now on.
    Open(String),
    /// The gate has it no more.
    Close,
    /// What it is like by now.
    Look,
    Read(Sector, Parcel, Class),
    Write(Sector, Parcel, WriteFlags),
    /// A write of so many zeroes, which do not travel.
    WriteZeroData(Sector, Bytes, WriteFlags),
    Flush,
    Discard(Span),
    WriteZeroes(Span, WriteFlags),
    Allocation(Span),
}

impl Call {
    /// For the error of one that is not carried out.
    pub(super) fn op(&self) -> Op {
        match self {
            Call::Write(..) | Call::WriteZeroData(..) => Op::Write,
            Call::Flush => Op::Flush,
            Call::Discard(_) => Op::Discard,
            Call::WriteZeroes(..) => Op::WriteZeroes,
            Call::Open(_) | Call::Close | Call::Look | Call::Read(..) | Call::Allocation(_) => {
                Op::Read
            }
        }
    }
}

/// A call on its way to the owner.
pub(super) struct Request {
    /// The gate's slot for the answer.
    pub slot: u32,
    pub device: Handle,
    pub call: Call,
}

/// What came of a call.
pub(super) enum Outcome {
    Info(Info),
    /// What was read, in the buffer that was sent.
    Read(Parcel),
    /// A write was done; its buffer, if the device kept none of it.
    Written(Option<Parcel>),
    Done,
    Allocation(Vec<(u64, bool)>),
}

/// An answer on its way back.
pub(super) struct Answer {
    pub slot: u32,
    pub outcome: Result<Outcome, DeviceError>,
}
