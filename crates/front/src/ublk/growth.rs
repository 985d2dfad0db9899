//! Does the system know how large a disk is whose device grows while it is in use?
//!
//! ```text
//! each second: the device -> the server takes requests up to there -> the driver tells the system
//! ```
//!
//! Always true: the server takes a request before the system can send it.

use std::io;
use std::rc::Weak;

use base::{Bytes, Nanos};

use super::queue::Server;

/// Between two looks at the size of the device.
const LOOK_EVERY: Nanos = Nanos::secs(1);

/// Announces each growth of a disk that the system takes for `shown` bytes, until its server is gone. What could not be
/// announced is announced again.
pub async fn keep_size(
    server: Weak<Server>,
    mut shown: Bytes,
    announce: impl AsyncFn(Bytes) -> io::Result<()>,
) {
    let mut failed = false;
    loop {
        env::sleep(LOOK_EVERY).await;
        let Some(size) = server.upgrade().map(|server| server.grow()) else {
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
