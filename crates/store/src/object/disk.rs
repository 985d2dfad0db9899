//! The device under a store, how it is laid out, and what goes wrong on it in the store's words.

use std::rc::Rc;

use base::{Buf, Bytes};
use device::{Class, Device, DeviceError};

use crate::object::error::StoreError;
use crate::object::layout::Superblock;
use crate::object::record::SEGMENTS_MAX;
use crate::object::segment::PAGES;

/// What never changes while a store is open.
pub(crate) struct Disk {
    /// The store's name, for errors.
    pub name: String,
    pub device: Rc<dyn Device>,
    pub device_name: String,
    pub superblock: Superblock,
    /// Bytes of a page.
    pub page: u64,
    /// Pages of the longest single request to the device.
    pub io_pages: u64,
    /// Free pages only overwrites may take.
    pub spare: u64,
}

impl Disk {
    pub fn new(device: Rc<dyn Device>, superblock: Superblock) -> Disk {
        let info = device.info();
        let page = superblock.page.0;
        let pages = u64::from(superblock.pages());
        Disk {
            name: superblock.name.clone(),
            device,
            device_name: info.name,
            page,
            io_pages: (info.max_io.0.min(4 << 20) / page).max(1),
            spare: (pages / 256).clamp(1, 1024),
            superblock,
        }
    }

    /// Reads `count` pages in a row from page `place` on.
    pub async fn read(&self, place: u32, count: usize, class: Class) -> Result<Buf, DeviceError> {
        let buf = Buf::for_read(count * self.page as usize);
        let sector = self.superblock.sector(place);
        self.device.read(sector, buf, class).await
    }

    /// The longest object in bytes.
    pub fn size_max(&self) -> u64 {
        SEGMENTS_MAX * PAGES * self.page
    }

    /// How many segments one step may empty or drop: 32 bytes each, half of a commit.
    pub fn segments_at_once(&self) -> usize {
        (self.superblock.stage_max() / 64).min(4096) as usize
    }

    // --- errors -----------------------------------------------------------------------------------

    pub fn not_found(&self, object: &str) -> StoreError {
        StoreError::NotFound {
            store: self.name.clone(),
            object: object.to_owned(),
        }
    }

    pub fn exists(&self, object: &str) -> StoreError {
        StoreError::Exists {
            store: self.name.clone(),
            object: object.to_owned(),
        }
    }

    pub fn refuse(&self, what: &str, object: &str, why: String) -> StoreError {
        StoreError::Request {
            what: format!("{what} {object:?} in {}", self.name),
            why,
        }
    }

    pub fn device_error(
        &self,
        what: &'static str,
        object: &str,
        source: DeviceError,
    ) -> StoreError {
        StoreError::Device {
            store: self.name.clone(),
            what,
            object: object.to_owned(),
            source: Box::new(source),
        }
    }

    /// The store takes nothing more.
    pub fn failed(&self, why: String) -> StoreError {
        StoreError::Failed {
            store: self.name.clone(),
            why,
        }
    }

    pub fn no_space(&self, asked: Bytes, available_pages: u64) -> StoreError {
        StoreError::NoSpace {
            store: self.name.clone(),
            asked,
            available: Bytes(available_pages * self.page),
            total: Bytes(u64::from(self.superblock.pages()) * self.page),
        }
    }
}
