//! A manager of a device that holds no store, such as the slow one of a hybrid: what is promised of it is kept in a small
//! store beside it.
//!
//! ```text
//! exports -> what stands on the device (a hybrid) -> Queue -> device      promised, watched
//! Manager -> Store -> book, a small device of its own                     reservations, keys, trust
//! ```
//!
//! All that a manager does with reservations it does here too, crash safety included: the book is a store like any other.
//! What the device can do is seen by the requests that pass through the queue; idle, it is read itself to see.
//!
//! Always true:
//! 1. Nothing is written to the device but what its users write.
//! 2. No room is booked: there are no objects on it.

use std::rc::Rc;

use base::{Buf, Bytes, Sector};
use device::{Class, Device};

use super::{Manager, ManagerOptions, over};
use crate::object::error::OpenError;
use crate::qos::queue::Queue;
use crate::qos::state::Core;
use crate::{Settings, Store};

/// The shortest allocation unit: a book has many small objects.
const UNIT: Bytes = Bytes::kib(64);
/// Read in one go to see how fast the device is, and from how many places.
const PROBE: Bytes = Bytes::mib(1);

/// Opens a manager of `device`, which holds no store: its reservations are kept on `book`, where a blank one becomes a book. What
/// uses the device goes through [`Manager::queue`].
///
/// # Errors
/// As for [`Manager::open`] and [`Store::format`], of the book.
pub async fn open_beside(
    book: Rc<dyn Device>,
    device: Rc<dyn Device>,
    mut options: ManagerOptions,
) -> Result<Rc<Manager>, OpenError> {
    options.queue.discards = true;
    let store = open_book(book).await?;
    let queue = Queue::new(device, options.queue);
    // What stands on the device flushes for itself, and hears of what fails.
    queue.on_commit(Rc::new(|| Box::pin(async {})));
    over(store, queue, options, true).await
}

/// The store on `book`; a blank one becomes one.
async fn open_book(book: Rc<dyn Device>) -> Result<Store, OpenError> {
    match Store::open(Rc::clone(&book)).await {
        Err(OpenError::NoStore { .. }) => {
            let settings = Settings {
                name: book.info().name,
                unit: UNIT,
                ..Settings::default()
            };
            Store::format(book, settings).await
        }
        done => done,
    }
}

/// Reads a little from all over the device, as background work.
pub(super) async fn probe(core: &Core, pieces: u32) {
    let queue = &core.queue;
    let size = queue.info().size;
    let apart = size.0 / u64::from(pieces.max(1)) / 4096 * 4096;
    for piece in 0..u64::from(pieces) {
        let at = Sector::containing(piece * apart);
        let len = PROBE.0.min(apart.max(4096)).min(size.0);
        let buf = Buf::for_read(Bytes(len).usize());
        if core.stopped.get() || queue.read(at, buf, Class::Background).await.is_err() {
            return;
        }
    }
}
