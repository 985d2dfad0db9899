//! Requests of any length on a device that takes them up to some length.
//!
//! ```text
//! request -> pieces of at most max_io, some at once -> Device
//! ```
//!
//! Always true: every piece handed to the device is in whole sectors and at most as long as the device takes.

use std::rc::Rc;

use base::{Buf, SECTOR, Sector, Span, View};
use device::{Class, Device, DeviceError, Pending, WriteFlags};
use env::sync::join_all;

/// Zeroes written out, and reads that only warm a cache, go in pieces of this size.
pub(crate) const SCRATCH: u64 = 1 << 20;
/// Pieces of one discard, zeroing or warming under way at once.
pub(crate) const AT_ONCE: usize = 8;

/// A device, and what was learnt of it once.
pub(crate) struct Pieces {
    device: Rc<dyn Device>,
    /// The longest piece, in bytes: a multiple of 512.
    piece_max: u64,
}

impl Pieces {
    pub(crate) fn new(device: Rc<dyn Device>) -> Pieces {
        let max_io = device.info().max_io.0;
        Pieces {
            device,
            piece_max: (max_io - max_io % SECTOR).max(SECTOR),
        }
    }

    /// The device itself.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Reads `len` bytes from `at` on.
    ///
    /// # Errors
    /// The device's.
    pub(crate) async fn read(&self, at: u64, len: u64) -> Result<View, DeviceError> {
        let mut buf = Buf::for_read(len as usize);
        if len <= self.piece_max {
            let buf = self
                .device
                .read(Sector::containing(at), buf, Class::Foreground)
                .await?;
            return Ok(buf.freeze());
        }
        let mut pieces = Vec::new();
        let mut from = at;
        while !buf.is_empty() {
            let rest = buf.split_off(buf.len().min(self.piece_max as usize));
            let next = from + buf.len() as u64;
            pieces.push(
                self.device
                    .read(Sector::containing(from), buf, Class::Foreground),
            );
            (from, buf) = (next, rest);
        }
        let mut whole: Option<Buf> = None;
        for piece in join_all(pieces).await {
            match &mut whole {
                Some(whole) => whole.join(piece?),
                None => whole = Some(piece?),
            }
        }
        Ok(whole.map_or_else(View::empty, Buf::freeze))
    }

    /// Writes `data` at `at`; durable when it ends with `fua`.
    ///
    /// # Errors
    /// The device's, for any piece.
    pub(crate) async fn write(&self, at: u64, data: View, fua: bool) -> Result<(), DeviceError> {
        let flags = WriteFlags {
            fua,
            class: Class::Foreground,
        };
        let len = data.len() as u64;
        if len <= self.piece_max {
            return self.device.write(Sector::containing(at), data, flags).await;
        }
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < len {
            let piece = (len - from).min(self.piece_max);
            let view = data.slice(from as usize, piece as usize);
            pieces.push(
                self.device
                    .write(Sector::containing(at + from), view, flags),
            );
            from += piece;
        }
        join_all(pieces).await.into_iter().collect()
    }

    /// Runs `start` for each piece of at most `most` bytes, some at once; the first failure stops it.
    async fn in_pieces<'a, T>(
        &'a self,
        at: u64,
        len: u64,
        most: u64,
        start: impl Fn(&'a dyn Device, Span) -> Pending<'a, T>,
    ) -> Result<(), DeviceError> {
        let end = at + len;
        let mut from = at;
        while from < end {
            let mut pieces = Vec::new();
            while from < end && pieces.len() < AT_ONCE {
                let piece = (end - from).min(most);
                pieces.push(start(&*self.device, Span::bytes(from, piece)));
                from += piece;
            }
            for outcome in join_all(pieces).await {
                outcome?;
            }
        }
        Ok(())
    }

    /// Discards `len` bytes from `at` on.
    ///
    /// # Errors
    /// The device's, for any piece.
    pub(crate) async fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.in_pieces(at, len, self.piece_max, |device, span| device.discard(span))
            .await
    }

    /// Makes `len` bytes from `at` on read as zeroes; with `no_hole` they are written out, so that their space stays.
    ///
    /// # Errors
    /// The device's, for any piece.
    pub(crate) async fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        fua: bool,
        no_hole: bool,
    ) -> Result<(), DeviceError> {
        let flags = WriteFlags {
            fua,
            class: Class::Foreground,
        };
        if !no_hole {
            return self
                .in_pieces(at, len, self.piece_max, |device, span| {
                    device.write_zeroes(span, flags)
                })
                .await;
        }
        let most = self.piece_max.min(SCRATCH);
        let zeroes = Buf::zeroed(most.min(len) as usize).freeze();
        self.in_pieces(at, len, most, |device, span| {
            device.write(span.start, zeroes.slice(0, span.len.usize()), flags)
        })
        .await
    }

    /// Reads the range and forgets it: what caches below keep of it is their business.
    ///
    /// # Errors
    /// The device's, for any piece.
    pub(crate) async fn warm(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        let most = self.piece_max.min(SCRATCH);
        self.in_pieces(at, len, most, |device, span| {
            device.read(
                span.start,
                Buf::for_read(span.len.usize()),
                Class::Foreground,
            )
        })
        .await
    }
}
