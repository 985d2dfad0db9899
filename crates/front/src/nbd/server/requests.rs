//! How is one allowed request carried out on a device?
//!
//! ```text
//! Command -> pieces of at most max_io -> Device -> Response
//! ```
//!
//! Always true: an answer that says "done" was preceded by "done" from the device for every piece.

use std::rc::Rc;

use base::{Bytes, SECTOR, Span, View};
use device::{Device, DeviceError};

use super::super::proto::{Command, Errno, state};
use crate::pieces::{AT_ONCE, Pieces, SCRATCH};

/// A structured read this long asks the device first which parts are holes.
const HOLES_FROM: u32 = 256 << 10;
/// A status request looks this far at most; a client asks again for the rest.
const STATUS_REACH: u64 = 1 << 30;
/// Extents in one status reply; a client asks again for the rest.
const EXTENTS_MAX: usize = 1024;

/// The result of a request, ready to be put into replies.
#[derive(Debug)]
pub(super) enum Response {
    Done,
    Failed(Errno, String),
    /// The data of a read from byte `at` on.
    Data {
        at: u64,
        data: View,
    },
    /// The data and holes of a read, in order.
    Parts(Vec<Part>),
    /// Extents of a status request: length and flags.
    Extents(Vec<(u32, u32)>),
}

/// A part of a read.
#[derive(Debug)]
pub(super) enum Part {
    Data { at: u64, data: View },
    Hole { at: u64, len: u32 },
}

/// The device behind an export.
pub(super) struct Target {
    pieces: Pieces,
}

impl From<DeviceError> for Response {
    fn from(error: DeviceError) -> Response {
        Response::Failed(Errno::of_device(&error), error.to_string())
    }
}

impl Target {
    pub(super) fn new(device: Rc<dyn Device>) -> Target {
        Target {
            pieces: Pieces::new(device),
        }
    }

    /// Carries one request out; `data` is a write's payload.
    pub(super) async fn carry_out(
        &self,
        command: Command,
        data: Option<View>,
        structured: bool,
    ) -> Response {
        let outcome = match command {
            Command::Read { at, len, whole } if len < HOLES_FROM || whole || !structured => self
                .pieces
                .read(at, u64::from(len))
                .await
                .map(|data| Response::Data { at, data }),
            Command::Read { at, len, .. } => self.read_parts(at, u64::from(len)).await,
            Command::Write { at, fua, .. } => {
                let data = data.expect("a write is started with its payload");
                self.pieces
                    .write(at, data, fua)
                    .await
                    .map(|()| Response::Done)
            }
            Command::Flush => self.pieces.device().flush().await.map(|()| Response::Done),
            Command::Trim { at, len, fua } => self.trim(at, u64::from(len), fua).await,
            Command::WriteZeroes {
                at,
                len,
                fua,
                no_hole,
                fast,
            } => {
                self.write_zeroes(at, u64::from(len), fua, no_hole, fast)
                    .await
            }
            Command::BlockStatus { at, len, one } => self.status(at, u64::from(len), one).await,
            Command::Cache { at, len } => self.warm(at, u64::from(len)).await,
            Command::Disconnect => Ok(Response::Done),
        };
        outcome.unwrap_or_else(Response::from)
    }

    async fn read_parts(&self, at: u64, len: u64) -> Result<Response, DeviceError> {
        let extents = self.extents(at, len, EXTENTS_MAX).await?;
        let covered: u64 = extents.iter().map(|(len, _)| len).sum();
        if covered < len || extents.iter().all(|(_, data)| *data) {
            let data = self.pieces.read(at, len).await?;
            return Ok(Response::Data { at, data });
        }
        let mut parts = Vec::with_capacity(extents.len());
        let mut from = at;
        for (len, is_data) in extents {
            parts.push(if is_data {
                Part::Data {
                    at: from,
                    data: self.pieces.read(from, len).await?,
                }
            } else {
                Part::Hole {
                    at: from,
                    len: len as u32,
                }
            });
            from += len;
        }
        Ok(Response::Parts(parts))
    }

    /// Extents from `at` on in whole sectors, neighbours of one kind joined, none empty, none behind
    /// `at + len`; at most `most` of them.
    async fn extents(
        &self,
        at: u64,
        len: u64,
        most: usize,
    ) -> Result<Vec<(u64, bool)>, DeviceError> {
        let ranges = self
            .pieces
            .device()
            .allocation(Span::bytes(at, len))
            .await?;
        let mut extents: Vec<(u64, bool)> = Vec::new();
        let mut rest = len;
        for (len, is_data) in ranges {
            let len = len.min(rest);
            if len == 0 || !len.is_multiple_of(SECTOR) {
                break;
            }
            rest -= len;
            let full = extents.len() == most;
            match extents.last_mut() {
                Some(last) if last.1 == is_data => last.0 += len,
                _ if full => break,
                _ => extents.push((len, is_data)),
            }
        }
        if extents.is_empty() {
            // A device that reports nothing useful: it may all be data.
            extents.push((len, true));
        }
        Ok(extents)
    }

    async fn trim(&self, at: u64, len: u64, fua: bool) -> Result<Response, DeviceError> {
        self.pieces.discard(at, len).await?;
        if fua {
            self.pieces.device().flush().await?;
        }
        Ok(Response::Done)
    }

    async fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        fua: bool,
        no_hole: bool,
        fast: bool,
    ) -> Result<Response, DeviceError> {
        if fast {
            // Choice: the only zeroing known to be fast on every device is the one already done.
            let zero = !no_hole && {
                let extents = self.extents(at, len.min(STATUS_REACH), 2).await?;
                extents[..] == [(len, false)]
            };
            if !zero {
                let why = "zeroing this range may take as long as writing it".to_owned();
                return Ok(Response::Failed(Errno::NotSupported, why));
            }
            if fua {
                self.pieces.device().flush().await?;
            }
            return Ok(Response::Done);
        }
        self.pieces.write_zeroes(at, len, fua, no_hole).await?;
        Ok(Response::Done)
    }

    async fn status(&self, at: u64, len: u64, one: bool) -> Result<Response, DeviceError> {
        let most = if one { 1 } else { EXTENTS_MAX };
        let extents = self.extents(at, len.min(STATUS_REACH), most).await?;
        let ranges = extents.iter().map(|&(len, is_data)| {
            (
                len as u32,
                if is_data {
                    0
                } else {
                    state::HOLE | state::ZERO
                },
            )
        });
        Ok(Response::Extents(ranges.collect()))
    }

    /// Reads the range and forgets it: what caches below keep of it is their business.
    async fn warm(&self, at: u64, len: u64) -> Result<Response, DeviceError> {
        self.pieces.warm(at, len).await?;
        Ok(Response::Done)
    }
}

/// The most memory a request may hold at once, in bytes.
pub(super) fn charge(command: &Command) -> Bytes {
    const SMALL: u64 = 4096;
    let at_once = |len: u32| u64::from(len).min(AT_ONCE as u64 * SCRATCH);
    Bytes(match *command {
        Command::Read { len, .. } | Command::Write { len, .. } => u64::from(len).max(SMALL),
        Command::Cache { len, .. } => at_once(len),
        Command::WriteZeroes {
            len, no_hole: true, ..
        } => u64::from(len).min(SCRATCH),
        // 1,024 extents of 8 bytes, before and after they are encoded.
        Command::BlockStatus { .. } => 16 << 10,
        _ => SMALL,
    })
}
