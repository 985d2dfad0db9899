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
//! 3. Only a book made just now is formatted.

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

/// Where reservations are kept.
#[derive(Clone)]
pub enum BookDevice {
    /// A device made just now: it becomes a book.
    New(Rc<dyn Device>),
    /// One that is a book already. Where there is none on it something was lost, and it is not made one.
    Existing(Rc<dyn Device>),
}

/// Opens a manager of `device`, which holds no store: its reservations are kept on `book`. What uses the device goes through
/// [`Manager::queue`].
///
/// # Errors
/// As for [`Manager::open`], and of a new book as for [`Store::format`].
pub async fn open_beside(
    book: BookDevice,
    device: Rc<dyn Device>,
    mut options: ManagerOptions,
) -> Result<Rc<Manager>, OpenError> {
    options.queue.discards = true;
    let store = match book {
        BookDevice::New(book) => format_book(book).await?,
        BookDevice::Existing(book) => Store::open(book).await?,
    };
    let queue = Queue::new(device, options.queue);
    // What stands on the device flushes for itself, and hears of what fails.
    queue.on_commit(Rc::new(|| Box::pin(async {})));
    over(store, queue, options, true).await
}

async fn format_book(book: Rc<dyn Device>) -> Result<Store, OpenError> {
    let settings = Settings {
        name: book.info().name,
        unit: UNIT,
        ..Settings::default()
    };
    Store::format(book, settings).await
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
