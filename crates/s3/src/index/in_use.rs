//! Blobs that are being written or read now: nothing deletes their bytes meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::BlobRef;

/// How often each is in use, by its id.
#[derive(Debug, Default)]
pub struct InUse(Mutex<BTreeMap<String, usize>>);

/// They are in use until it is dropped.
#[derive(Debug)]
pub struct Use {
    of: Arc<InUse>,
    ids: Vec<String>,
}

impl InUse {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // Whole between any two of its operations.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses these blobs from now on.
    pub fn begin<'a>(self: &Arc<Self>, blobs: impl IntoIterator<Item = &'a BlobRef>) -> Use {
        let ids: Vec<String> = blobs.into_iter().map(|it| it.id.clone()).collect();
        let mut counts = self.counts();
        for id in &ids {
            *counts.entry(id.clone()).or_default() += 1;
        }
        drop(counts);
        Use {
            of: Arc::clone(self),
            ids,
        }
    }

    /// Is it in use?
    pub fn has(&self, id: &str) -> bool {
        self.counts().contains_key(id)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        for id in &self.ids {
            let left = counts.get_mut(id).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                counts.remove(id);
            }
        }
    }
}
