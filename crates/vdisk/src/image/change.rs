//! One transaction about images: what must be so, and what is done then.

use super::record::{ImageRecord, NUMBERS_KEY, Numbers, Versioned, image_key};
use crate::meta::{Compare, Op, Revision};
use crate::record::{VolumeRecord, volume_key, volume_name_key};

/// One transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// What must be so.
    pub compares: Vec<Compare>,
    /// What is done then.
    pub ops: Vec<Op>,
}

impl Change {
    pub(super) fn unchanged(&mut self, key: String, changed: Option<Revision>) {
        self.compares.push(match changed {
            Some(revision) => Compare::Unchanged(key, revision),
            None => Compare::Absent(key),
        });
    }

    pub(super) fn put(&mut self, key: String, value: Vec<u8>) {
        self.ops.push(Op::Put {
            key,
            value,
            lease: None,
        });
    }

    pub(super) fn volume(&mut self, known: &Versioned<VolumeRecord>, new: &VolumeRecord) {
        self.unchanged(volume_key(new.id), known.changed);
        self.put(volume_key(new.id), new.encode());
    }

    pub(super) fn image(&mut self, known: &Versioned<ImageRecord>, new: &ImageRecord) {
        self.unchanged(image_key(new.id), known.changed);
        self.put(image_key(new.id), new.encode());
    }

    pub(super) fn new_image(&mut self, new: &ImageRecord) {
        self.compares.push(Compare::Absent(image_key(new.id)));
        self.put(image_key(new.id), new.encode());
    }

    pub(super) fn new_volume(&mut self, new: &VolumeRecord) {
        let keys = [volume_key(new.id), volume_name_key(&new.name)];
        self.compares.extend(keys.map(Compare::Absent));
        self.put(volume_key(new.id), new.encode());
        self.put(volume_name_key(&new.name), new.id.to_string().into_bytes());
    }

    pub(super) fn numbers(&mut self, known: &Versioned<Numbers>, new: &Numbers) {
        self.unchanged(NUMBERS_KEY.to_owned(), known.changed);
        self.put(NUMBERS_KEY.to_owned(), new.encode());
    }
}
