//! Does a thread still run its tasks? One of them says so each second.
//!
//! Always true: it waits for nothing but time, so a slow device does not stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Nanos;
use tokio::time::Instant;

/// Between two beats.
const EVERY: Nanos = Nanos::secs(1);

/// When a thread last ran, for other threads.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    since: Instant,
    /// Nanoseconds since then.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// It beats now.
    pub fn new() -> Heartbeat {
        Heartbeat {
            since: Instant::now(),
            last: Arc::default(),
        }
    }

    /// How long ago it beat.
    pub fn age(&self) -> Duration {
        let last = Duration::from_nanos(self.last.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }

    /// Beats until the runtime of the thread ends.
    pub async fn beat(self) {
        loop {
            let now = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.last.store(now, Ordering::Relaxed);
            env::sleep(EVERY).await;
        }
    }
}
