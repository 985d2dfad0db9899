//! The `Device` trait and what travels through it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, SECTOR, Sector, Span, View};

/// An operation under way. Dropping it does not take the operation back: it may still happen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;

/// What a device is like. Fixed while it is open, but for `size` of a device that grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The device's name in the configuration, for errors and metrics.
    pub name: String,
    /// How much it holds; a multiple of 512 bytes.
    pub size: Bytes,
    /// The unit it writes without reading first; a power of two, at least 512 bytes.
    pub physical_block: Bytes,
    /// The longest single request it takes; longer ones are the caller's to split.
    pub max_io: Bytes,
    /// Does it hold completed writes in a volatile cache until a flush?
    pub volatile_cache: bool,
    /// Does `discard` free anything?
    pub discards: bool,
    /// Is there an arm that moves? Engines sort what they send to such a device.
    pub rotational: bool,
    /// Refuses every write.
    pub read_only: bool,
    /// Does it show every answered write after the death of this process alone, with the machine going on?
    pub crash_keeping: bool,
}

/// What a request is for: devices that schedule serve classes apart, and figures are kept by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// A user waits for it.
    #[default]
    Foreground,
    /// Metadata a user waits for.
    Metadata,
    /// No user waits: destaging, promotion, copying.
    Background,
    /// A user waits for it whose session at a queue below has this number; foreground to all else.
    Session(u64),
}

impl Class {
    /// Those that figures are kept apart for: sessions count as foreground.
    pub const KINDS: [Class; 3] = [Class::Foreground, Class::Metadata, Class::Background];

    /// Its place in [`KINDS`](Self::KINDS).
    pub const fn kind(self) -> usize {
        match self {
            Class::Foreground | Class::Session(_) => 0,
            Class::Metadata => 1,
            Class::Background => 2,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Foreground | Class::Session(_) => "foreground",
            Class::Metadata => "metadata",
            Class::Background => "background",
        })
    }
}

/// How a write is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// Complete only when this write itself is durable.
    pub fua: bool,
    /// What it is for.
    pub class: Class,
}

impl WriteFlags {
    /// Force unit access: durable at completion.
    pub const FUA: WriteFlags = WriteFlags {
        fua: true,
        class: Class::Foreground,
    };
    /// A background write.
    pub const BACKGROUND: WriteFlags = WriteFlags {
        fua: false,
        class: Class::Background,
    };
}

/// The kinds of request, for errors, figures and fault rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    WriteZeroes,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write zeroes",
        })
    }
}

/// Why a device did not do what it was asked. Cheap to clone: several waiters may share one failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Behind the end, or not in whole sectors.
    #[error(
        "cannot {op} {len} bytes at byte {at} of {device}: it holds {size} bytes in 512-byte sectors"
    )]
    OutOfRange {
        /// The device's name.
        device: String,
        /// What was asked.
        op: Op,
        /// First byte.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// The device's size in bytes.
        size: u64,
    },
    /// The device below answered with an error.
    #[error("cannot {op} {}{device}: {why}", place(*span))]
    Io {
        /// The device's name.
        device: String,
        /// What was asked.
        op: Op,
        /// Where; no bytes at all if it concerns the whole device.
        span: Span,
        /// The cause in words, with the system's error where there is one.
        why: String,
    },
    /// What was read is not what was written.
    #[error("{span} of {device} is damaged: {why}")]
    Corrupt {
        /// The device's name.
        device: String,
        /// Where.
        span: Span,
        /// What does not agree.
        why: String,
    },
    /// A write to a read-only device.
    #[error("cannot {op} on {device}: it is read-only")]
    ReadOnly {
        /// The device's name.
        device: String,
        /// What was asked.
        op: Op,
    },
    /// An earlier flush failed, so what it should have made durable may be lost.
    #[error("cannot flush {device}: an earlier flush failed ({why}); detach and repair it first")]
    FlushFailed {
        /// The device's name.
        device: String,
        /// The first failure.
        why: String,
    },
    /// No room is left where the data must go.
    #[error("cannot {op} on {device}: {why}")]
    NoSpace {
        /// The device's name.
        device: String,
        /// What was asked.
        op: Op,
        /// What is full and what would help.
        why: String,
    },
    /// It cannot be sent to sleep.
    #[error("cannot send {device} to sleep: {why}")]
    NoSleep {
        /// The device's name.
        device: String,
        /// What stands in the way, and what to do.
        why: String,
    },
    /// The device is gone: powered off, detached or shut down.
    #[error("cannot {op} on {device}: it is gone ({why})")]
    Gone {
        /// The device's name.
        device: String,
        /// What was asked.
        op: Op,
        /// Why it is gone.
        why: String,
    },
}

fn place(span: Span) -> String {
    match span.len {
        Bytes(0) => String::new(),
        _ => format!("{span} of "),
    }
}

/// Power a modelled device has drawn so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Power {
    /// Energy since it was opened, in joules.
    pub joules: f64,
    /// Time that covers.
    pub over: Nanos,
    /// How often the spindle was spun up.
    pub spin_ups: u64,
    /// Is it in standby now?
    pub standby: bool,
}

/// A device's spindle, or what else of it rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spindle {
    /// Does it stand still? Else it turns.
    pub asleep: bool,
    /// Since when it does, as far as was seen.
    pub since: Instant,
}

impl Spindle {
    /// Of devices that are asleep together when each is; `None` if one does not say.
    pub(crate) fn of_all(devices: &[Rc<dyn Device>]) -> Option<Spindle> {
        let all: Option<Vec<Spindle>> = devices.iter().map(|it| it.spindle()).collect();
        let later = |one: Spindle, other: Spindle| match (one.asleep, other.asleep) {
            (true, true) if other.since > one.since => other,
            (false, false) if other.since < one.since => other,
            (true, false) => other,
            _ => one,
        };
        all?.into_iter().reduce(later)
    }
}

/// Each of `devices` may sleep from now on.
pub(crate) async fn prepare_all(devices: &[Rc<dyn Device>]) -> Result<(), DeviceError> {
    for device in devices {
        device.prepare_sleep().await?;
    }
    Ok(())
}

/// A block device. Held as `Rc<dyn Device>`; lives on one thread.
///
/// Requests run at the same time and may complete in any order; two that overlap have no order between
/// them. The future owns its buffer: dropping it leaves the request to finish by itself.
pub trait Device {
    /// What the device is like.
    fn info(&self) -> Info;

    /// Fills `buf` from `at`. The answer may be another buffer of the same length.
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf>;

    /// Fills `bufs`, one after the other, from `at`, as one request; each holds whole sectors. For a caller whose
    /// neighbouring sectors belong to different places in memory.
    ///
    /// A device that cannot scatter reads into one buffer and copies.
    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let whole = self.read(at, Buf::for_read(len), class);
        Box::pin(async move { Ok(scattered(&whole.await?, bufs)) })
    }

    /// Writes `data` to `at`.
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()>;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> Pending<'_, ()>;

    /// Gives the span up: it reads as zeroes or as before until written, the same until then.
    fn discard(&self, span: Span) -> Pending<'_, ()>;

    /// Makes the span read as zeroes. With `flags.fua`, durable at completion.
    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()>;

    /// Which parts of `span` may hold data: (length in bytes, is it data?) from the start on. A device
    /// that does not know answers one piece of data.
    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        ready(Ok(vec![(span.len.0, true)]))
    }

    /// Energy drawn so far, where the device is a model or reports it.
    fn power(&self) -> Option<Power> {
        None
    }

    /// Finds out whether it can be sent to sleep, which does not wake it. From then on [`Device::spindle`] says how it is.
    ///
    /// # Errors
    /// [`DeviceError::NoSleep`] if it cannot.
    fn prepare_sleep(&self) -> Pending<'_, ()> {
        let device = self.info().name;
        let why =
            "it has no spindle to stop; name a SATA or SAS disk, or a model of a disk".to_owned();
        ready(Err(DeviceError::NoSleep { device, why }))
    }

    /// Is it asleep, and since when? `None` where that is not known. Asking does not wake it.
    fn spindle(&self) -> Option<Spindle> {
        None
    }

    /// Asks a device that can to spin down now (true if it will). What was written is flushed before.
    fn standby(&self) -> bool {
        false
    }

    /// Requests sent to it and not completed.
    fn in_flight(&self) -> usize {
        0
    }
}

/// `bufs` filled from `whole`, which is as long as all of them.
pub(crate) fn scattered(whole: &Buf, mut bufs: Vec<Buf>) -> Vec<Buf> {
    let mut from = 0;
    for buf in &mut bufs {
        let upto = from + buf.len();
        buf.copy_from_slice(&whole[from..upto]);
        from = upto;
    }
    bufs
}

/// An operation whose answer is known.
pub fn ready<'a, T: 'a>(answer: Result<T, DeviceError>) -> Pending<'a, T> {
    Box::pin(std::future::ready(answer))
}

/// Short forms for callers.
pub trait DeviceExt: Device {
    /// Reads `len` bytes from `at` in the foreground.
    fn read_at(&self, at: Sector, len: Bytes) -> Pending<'_, Buf> {
        self.read(at, Buf::for_read(len.usize()), Class::Foreground)
    }

    /// Writes `data` to `at` in the foreground, to be made durable by a later flush.
    fn write_at(&self, at: Sector, data: View) -> Pending<'_, ()> {
        self.write(at, data, WriteFlags::default())
    }
}

impl<D: Device + ?Sized> DeviceExt for D {}

impl Info {
    /// Refuses a request that is not in whole sectors or not within the device, and a write to a
    /// read-only one.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], [`DeviceError::ReadOnly`].
    pub fn check(&self, op: Op, at: Sector, len: u64) -> Result<(), DeviceError> {
        let end =
            at.0.checked_mul(SECTOR)
                .and_then(|from| from.checked_add(len));
        let fits = end.is_some_and(|end| end <= self.size.0) && len.is_multiple_of(SECTOR);
        if !fits {
            return Err(DeviceError::OutOfRange {
                device: self.name.clone(),
                op,
                at: at.0.saturating_mul(SECTOR),
                len,
                size: self.size.0,
            });
        }
        if self.read_only && op != Op::Read && op != Op::Flush {
            return Err(DeviceError::ReadOnly {
                device: self.name.clone(),
                op,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_place_where_there_is_one() {
        let error = |op, span| DeviceError::Io {
            device: "ssd0".to_owned(),
            op,
            span,
            why: "no answer".to_owned(),
        };
        assert_eq!(
            error(Op::Write, Span::bytes(4096, 1024)).to_string(),
            "cannot write sectors 8..10 of ssd0: no answer"
        );
        assert_eq!(
            error(Op::Flush, Span::default()).to_string(),
            "cannot flush ssd0: no answer"
        );
    }

    #[test]
    fn a_request_is_checked_up_to_the_last_byte_and_without_overflow() {
        let info = Info {
            name: "ssd0".to_owned(),
            size: Bytes(4096),
            physical_block: Bytes(512),
            max_io: Bytes(4096),
            volatile_cache: false,
            discards: false,
            rotational: false,
            read_only: true,
            crash_keeping: false,
        };
        assert_eq!(info.check(Op::Read, Sector(7), 512), Ok(()));
        assert_eq!(info.check(Op::Read, Sector(8), 0), Ok(()));
        for (at, len) in [
            (8, 512),
            (0, 4608),
            (0, 100),
            (u64::MAX, 512),
            (1, u64::MAX - 511),
        ] {
            let refused = info.check(Op::Read, Sector(at), len);
            assert!(
                matches!(refused, Err(DeviceError::OutOfRange { .. })),
                "{at} {len}"
            );
        }
        assert_eq!(info.check(Op::Flush, Sector(0), 0), Ok(()));
        for op in [Op::Write, Op::Discard, Op::WriteZeroes] {
            let refused = info.check(op, Sector(0), 512);
            assert!(matches!(refused, Err(DeviceError::ReadOnly { .. })), "{op}");
        }
    }
}
