//! Does the system know how large a disk is whose device grows while it is in use?
//!
//! ```text
//! each second: the device -> the server takes requests up to there -> the driver tells the system
//! ```
//!
//! Always true:
//! 1. The server takes a request before the system can send it.
//! 2. No announcement begins after a tag has ended, or after the end of a [`Growth`]: some drivers crash where the disk
//!    is gone.

use std::io;
use std::rc::{Rc, Weak};

use base::{Bytes, Nanos};
use env::sync::Semaphore;

use super::queue::Server;

/// Between two looks at the size of the device.
const LOOK_EVERY: Nanos = Nanos::secs(1);

/// [`keep_size`] as a task, which is gone when this is dropped.
pub struct Growth {
    /// One permit, held by the announcement under way.
    announcing: Rc<Semaphore>,
    task: env::CancelOnDrop<()>,
}

impl Growth {
    /// Begins it.
    pub fn begin(
        server: Weak<Server>,
        shown: Bytes,
        announce: impl AsyncFn(Bytes) -> io::Result<()> + 'static,
    ) -> Growth {
        let announcing = Semaphore::new(1);
        let announce = {
            let announcing = Rc::clone(&announcing);
            async move |size| {
                let _announcing = announcing.acquire(1).await;
                announce(size).await
            }
        };
        let task = env::cancel_scope(env::spawn(keep_size(server, shown, announce)));
        Growth { announcing, task }
    }

    /// Ends it, once an announcement under way is over. Before that the disk must not be stopped.
    pub async fn end(self) {
        // Kept until the task is gone, so that no other announcement begins.
        let _last = self.announcing.acquire(1).await;
        drop(self.task);
    }
}

/// Announces each growth of a disk that the system takes for `shown` bytes, until its server is gone or no longer serves.
/// What could not be announced is announced again.
pub async fn keep_size(
    server: Weak<Server>,
    mut shown: Bytes,
    announce: impl AsyncFn(Bytes) -> io::Result<()>,
) {
    let mut failed = false;
    loop {
        env::sleep(LOOK_EVERY).await;
        let server = server.upgrade().filter(|server| server.serves());
        let Some(size) = server.map(|server| server.grow()) else {
            return;
        };
        if size <= shown {
            continue;
        }
        match announce(size).await {
            Ok(()) => {
                tracing::info!(from = %shown, to = %size, "a disk of the kernel has grown");
                shown = size;
                failed = false;
            }
            Err(error) if !failed => {
                tracing::warn!(%size, %error, "the system does not know of a new size yet; it is announced again");
                failed = true;
            }
            Err(_) => {}
        }
    }
}
