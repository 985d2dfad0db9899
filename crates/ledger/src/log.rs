//! The region of a ledger on its device: where which block lies, and how it is read and written.

use std::rc::Rc;

use base::{Buf, Bytes, SECTOR, Sector, Span, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::sync::join_all;

use crate::error::LedgerError;
use crate::layout::BLOCK;

/// Blocks of the two superblocks.
pub(crate) const SUPERBLOCKS: u64 = 2;
/// A log shorter than this holds nothing useful.
const LOG_BLOCKS_MIN: u64 = 8;
/// Ledger metadata is urgent: users wait for it.
pub(crate) const DURABLE: WriteFlags = WriteFlags {
    fua: true,
    class: Class::Metadata,
};
/// A block that cannot be read is asked for so many times before it counts as lost.
const ATTEMPTS: u32 = 3;

/// The log on the device.
pub(crate) struct Log {
    pub device: Rc<dyn Device>,
    pub name: String,
    pub region: Span,
    /// First sector of the log.
    start: Sector,
    pub blocks: u64,
    /// The longest request in bytes; whole blocks.
    piece: usize,
}

impl Log {
    /// The log in `region`, if a ledger can live there.
    pub fn new(device: Rc<dyn Device>, region: Span) -> Result<Log, LedgerError> {
        let info = device.info();
        let refuse = |why: String| LedgerError::Region {
            device: info.name.clone(),
            region,
            why,
        };
        let block = BLOCK as u64;
        if !region.start.byte().is_multiple_of(block) || !region.len.is_multiple_of(block) {
            return Err(refuse(
                "start and length must be multiples of 4 KiB".to_owned(),
            ));
        }
        let end = region.start.byte().checked_add(region.len.0);
        if end.is_none_or(|end| end > info.size.0) {
            return Err(refuse(format!("the device holds {}", info.size)));
        }
        let least = SUPERBLOCKS + LOG_BLOCKS_MIN;
        if region.len.0 / block < least {
            return Err(refuse(format!(
                "at least {} are needed",
                Bytes(least * block)
            )));
        }
        if info.max_io.0 < block {
            return Err(refuse(format!(
                "the device takes {} at once, a block is 4 KiB",
                info.max_io
            )));
        }
        let piece = info.max_io.0.min(1 << 20) / block * block;
        Ok(Log {
            name: info.name,
            region,
            start: region.start.after(Bytes(SUPERBLOCKS * block)),
            blocks: region.len.0 / block - SUPERBLOCKS,
            piece: piece as usize,
            device,
        })
    }

    /// Where block `position` of the log lies.
    pub fn sector(&self, position: u64) -> Sector {
        Sector(self.start.0 + position % self.blocks * (BLOCK as u64 / SECTOR))
    }

    pub fn error(&self, doing: &'static str, source: DeviceError) -> LedgerError {
        LedgerError::Device {
            device: self.name.clone(),
            doing,
            region: self.region,
            source: Box::new(source),
        }
    }

    /// Starts to read `blocks` blocks that do not cross the log's end.
    pub fn read(&self, position: u64, blocks: u64) -> env::Task<Result<Buf, DeviceError>> {
        let device = Rc::clone(&self.device);
        let at = self.sector(position);
        env::spawn(async move {
            let buf = Buf::for_read(blocks as usize * BLOCK);
            device.read(at, buf, Class::Metadata).await
        })
    }

    /// As [`Log::read`] after that failed with `first`: one block at a time, each several times. What cannot be
    /// read is zeroes in the answer; with it the blocks that are.
    ///
    /// # Errors
    /// The device's, if it is gone.
    pub async fn read_singly(
        &self,
        position: u64,
        blocks: u64,
        first: DeviceError,
    ) -> Result<(Vec<u8>, Vec<u64>), DeviceError> {
        if matches!(first, DeviceError::Gone { .. }) {
            return Err(first);
        }
        let mut bytes = Vec::with_capacity(blocks as usize * BLOCK);
        let mut unreadable = Vec::new();
        for block in position..position + blocks {
            match self.read_block(block).await? {
                Some(read) => bytes.extend_from_slice(&read),
                None => {
                    bytes.resize(bytes.len() + BLOCK, 0);
                    unreadable.push(block);
                }
            }
        }
        Ok((bytes, unreadable))
    }

    /// One block, if one of several attempts can read it.
    async fn read_block(&self, position: u64) -> Result<Option<Buf>, DeviceError> {
        for _ in 0..ATTEMPTS {
            match self.read(position, 1).await {
                Ok(read) => return Ok(Some(read)),
                Err(gone @ DeviceError::Gone { .. }) => return Err(gone),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// The longest read from `position` on, up to `end`.
    pub fn stride(&self, position: u64, end: u64) -> u64 {
        ((self.piece / BLOCK) as u64)
            .min(self.blocks - position % self.blocks)
            .min(end - position)
    }

    /// Writes pieces durably, all at once.
    pub async fn write(&self, pieces: Vec<(u64, View)>) -> Result<(), DeviceError> {
        let write = |(at, slice)| self.device.write(self.sector(at), slice, DURABLE);
        let mut writes: Vec<_> = pieces.into_iter().map(write).collect();
        if writes.len() == 1 {
            return writes.remove(0).await;
        }
        let outcomes: Result<Vec<()>, DeviceError> = join_all(writes).await.into_iter().collect();
        outcomes.map(|_| ())
    }

    /// `view` from block `position` on, around the log's end if need be, in pieces that the device takes.
    pub fn pieces(&self, position: u64, view: &View) -> Vec<(u64, View)> {
        let mut pieces = Vec::with_capacity(1);
        let mut done = 0;
        while done < view.len() {
            let at = (position + (done / BLOCK) as u64) % self.blocks;
            let to_end = (self.blocks - at) as usize * BLOCK;
            let len = (view.len() - done).min(to_end).min(self.piece);
            pieces.push((at, view.slice(done, len)));
            done += len;
        }
        pieces
    }
}
