//! What a calibration reads and writes: streams of bytes, in a store or on any other ground.

use std::future::Future;
use std::pin::Pin;

use base::{Bytes, View};
use device::Class;
use policy::share::Direction;

use crate::object::error::StoreError;
use crate::object::store::Store;
use crate::object::types::Change;

/// Objects of its own begin so.
const PREFIX: &str = ".tanada/calibration/";

/// An answer under way.
pub type Answer = Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;

/// What requests go to: streams of bytes, each read or written in sequence, again from the beginning at its end.
pub trait Ground {
    /// Reads or writes `len` bytes of `stream` from byte `at`; the caller keeps within [`reach`](Self::reach).
    fn ask(&self, stream: u32, direction: Direction, at: u64, len: Bytes, class: Class) -> Answer;

    /// The length of each stream.
    fn reach(&self) -> Bytes;
}

/// Objects of a store as ground.
pub(super) struct Objects {
    pub store: Store,
    pub reach: Bytes,
    pub data: View,
}

pub(super) fn name(stream: u32) -> String {
    format!("{PREFIX}{stream}")
}

impl Ground for Objects {
    fn ask(&self, stream: u32, direction: Direction, at: u64, len: Bytes, class: Class) -> Answer {
        let (store, data) = (self.store.clone(), self.data.clone());
        Box::pin(async move {
            let object = name(stream);
            match direction {
                Direction::Read => store.read(&object, at, len.0, class).await.map(drop),
                Direction::Write => {
                    let change = Change::default().class(class);
                    let data = data.slice(0, len.usize());
                    store.write(&object, at, data, change).await.map(drop)
                }
            }
        })
    }

    fn reach(&self) -> Bytes {
        self.reach
    }
}

/// Deletes all objects of a calibration.
pub(super) async fn clear(store: &Store) -> Result<(), StoreError> {
    loop {
        let left = store.list(PREFIX, None, 64).objects;
        if left.is_empty() {
            return Ok(());
        }
        for object in left {
            store.delete(&object.name, Change::default()).await?;
        }
        store.flush().await?;
    }
}
