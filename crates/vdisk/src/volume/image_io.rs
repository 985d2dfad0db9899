//! The maps of the volume's older images, read into the tables.
//!
//! ```text
//! opened, a store comes back, now and then  -> records of the volume's images -> their maps, shared nodes once -> tables
//! a snapshot is taken                       -> all that the head has goes into the tables
//! ```
//!
//! Always true: the tables become whole only if the head is the same after the maps were read as before.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::error::VolumeError;
use super::node_io::NodeIo;
use super::older_images::{Tables, note};
use super::record_io::RecordIo;
use super::state::Core;
use crate::image::records::Images;
use crate::names::NodeName;

/// Reads what older images of the volume have.
#[derive(Clone, Copy)]
pub(super) struct ImageIo<'a> {
    core: &'a Rc<Core>,
}

impl<'a> ImageIo<'a> {
    pub fn of(core: &'a Rc<Core>) -> ImageIo<'a> {
        ImageIo { core }
    }

    /// Reads anew what the images before the head have.
    pub(super) async fn read_older_images(self) -> Result<(), VolumeError> {
        if self.core.replication.borrow().record.is_indeterminate() {
            // A rewritten map whose swap was indeterminate is in the meta store from here on, or never will be.
            RecordIo::of(self.core).change_record(|_| Ok(false)).await?;
        }
        let _reading = self.core.maps.older.read();
        let head = self.core.record.head.borrow().record.id;
        let images = Images {
            meta: Rc::clone(&self.core.meta),
        };
        let all = images
            .all()
            .await
            .map_err(|it| self.core.image_error(&it))?;
        let own = all.values().map(|known| &known.record);
        let older = own.filter(|it| it.volume == self.core.id && it.id != head && it.is_live());
        let mut seen: BTreeSet<NodeName> = BTreeSet::new();
        let read = Tables::default();
        for image in older {
            let walked = NodeIo::of(self.core).walk(image.root, &seen).await;
            let walked = walked.map_err(|error| self.core.image_error(&error))?;
            seen.extend(walked.nodes.iter().map(|(node, _)| node.name()));
            read.add(&walked.entries, &walked.nodes);
        }
        if self.core.record.head.borrow().record.id != head {
            return Err(self
                .core
                .image_error(&"a snapshot was taken while its images were read"));
        }
        self.core.maps.older.becomes(read);
        Ok(())
    }

    /// Reads it if it is not known, or may be too much.
    pub(super) async fn refresh_older_images(self, turn: u64) -> Result<(), VolumeError> {
        let (out, copies) = {
            let record = &self.core.volume_record();
            (record.out.clone(), record.copies)
        };
        let thin = self
            .core
            .maps
            .older
            .redundancy_floor(&out)
            .is_some_and(|least| least < copies);
        match !self.core.maps.older.is_known() || (thin && turn.is_multiple_of(64)) {
            true => self.read_older_images().await,
            false => Ok(()),
        }
    }

    /// A snapshot was taken: all that the head has is the snapshot's too.
    pub(super) fn add_head_to_older(self) {
        let mut older_images = self.core.maps.older.tables.extents.borrow_mut();
        for placed in self.core.extents.all.borrow().values() {
            for layer in placed.layers() {
                let stores = layer.stores();
                note(&mut older_images, layer.name, stores);
            }
        }
        self.core.maps.older.nodes().add_all(&self.core.maps.nodes);
    }
}
