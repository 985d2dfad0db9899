//! Clients of a volume: reads, writes and discards of a few blocks that all of them share.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::Rng;
use vdisk::volume::Volume;

use super::history::History;
use crate::linear::{Tag, ZERO};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Where blocks lie: at both ends of three extents and in the middle. A request may reach over the end of an extent.
pub const PLACES: [u64; 7] = [0, 1, 700, 1023, 1024, 1500, 2560];
/// Only here zeroes are written.
pub const ZEROED: u64 = 2560;

/// What all clients of a run share.
#[derive(Default)]
pub struct World {
    /// What they saw.
    pub history: History,
    /// They are to end.
    pub over: Cell<bool>,
}

fn tagged(tag: Tag, count: u64) -> View {
    View::copy_of(&tag.to_le_bytes().repeat((count * BLOCK / 8) as usize))
}

fn sector(block: u64) -> Sector {
    Sector(block * BLOCK / 512)
}

impl World {
    /// That of a clone.
    pub fn of_clone(nth: u64) -> World {
        World {
            history: History::of_clone(nth),
            over: Cell::new(false),
        }
    }

    /// Reads blocks, and remembers what they hold.
    ///
    /// # Errors
    /// The volume's.
    ///
    /// # Panics
    /// Never.
    pub async fn read(&self, volume: &Volume, who: u32, block: u64, count: u64) -> Answer {
        let began = self.history.reads();
        let buf = Buf::for_read((count * BLOCK) as usize);
        let buf = volume.read(sector(block), buf, Class::Foreground).await?;
        let mut tags = Vec::new();
        for (at, bytes) in buf.chunks(BLOCK as usize).enumerate() {
            let first: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
            if bytes.chunks(8).any(|part| part != first) {
                self.history
                    .torn(format!("block {} is torn", block + at as u64));
            }
            tags.push(Tag::from_le_bytes(first));
        }
        self.history.read(who, began, block, &tags);
        Ok(())
    }

    /// Writes a new tag to blocks.
    ///
    /// # Errors
    /// The volume's: then it is indeterminate whether it was written.
    pub async fn write(&self, volume: &Volume, who: u32, block: u64, count: u64) -> Answer {
        let tag = self.history.tag();
        let asked = self.history.writes(who, block, count, tag);
        let data = tagged(tag, count);
        volume
            .write(sector(block), data, WriteFlags::default())
            .await?;
        self.history.wrote(&asked);
        Ok(())
    }

    async fn zero(&self, volume: &Volume, who: u32, block: u64, discards: bool) -> Answer {
        let asked = self.history.writes(who, block, 1, ZERO);
        let span = Span::new(sector(block), Bytes(BLOCK));
        match discards {
            true => volume.discard(span).await?,
            false => volume.write_zeroes(span, WriteFlags::default()).await?,
        }
        self.history.wrote(&asked);
        Ok(())
    }
}

/// How a request ended.
pub type Answer = Result<(), DeviceError>;

/// One client, until the run is over or the volume is gone. `writes`: not reads alone.
pub async fn client(volume: Rc<Volume>, world: Rc<World>, who: u32, writes: bool, mut rng: Rng) {
    while !world.over.get() {
        let block = PLACES[rng.below(PLACES.len() as u64) as usize];
        let count = 1 + u64::from((block == 0 || block == 1023) && rng.chance(0.3));
        let kind = if writes { rng.below(10) } else { 9 };
        let answer = match kind {
            0..4 => world.write(&volume, who, block, count).await,
            4 if block == ZEROED => world.zero(&volume, who, block, rng.chance(0.5)).await,
            5 => volume.flush().await,
            _ => world.read(&volume, who, block, count).await,
        };
        match answer {
            Ok(()) => {}
            Err(DeviceError::Gone { .. }) => return,
            Err(_) => env::sleep(Nanos::millis(5)).await,
        }
        env::sleep(Nanos::micros(rng.below(6_000))).await;
    }
}
