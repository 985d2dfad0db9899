//! A flush: one commit and one flush of the slow device.

use device::{DeviceError, Pending};
use env::sync::join_all;

use super::disk::Engine;
use crate::stats::Health;
use crate::tier::drain::drain_buffer;

/// Everything completed before this call is durable when it ends.
pub(super) async fn flush(engine: &Engine) -> Result<(), DeviceError> {
    drain_buffer(engine.tier()).await?;
    let Some(cache) = engine.live_cache() else {
        return engine.volume.slow.flush().await;
    };
    let mut answers = join_all([
        Box::pin(cache.committed()) as Pending<'_, ()>,
        Box::pin(cache.volume.slow.flush()),
    ])
    .await;
    let slow = answers.pop().expect("two were asked");
    let fast = answers.pop().expect("two were asked");
    match fast {
        // A fast device that failed with nothing dirty leaves the slow one in charge.
        Err(error) => {
            if !cache.health.is(Health::PassThrough) {
                return Err(error);
            }
            cache.volume.slow.flush().await
        }
        Ok(()) => slow,
    }
}
