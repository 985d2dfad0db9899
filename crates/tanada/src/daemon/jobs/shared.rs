//! The registry as all handlers of the admin API share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Registry;

/// The long work of a daemon.
#[derive(Default)]
pub struct Jobs {
    registry: Mutex<Registry>,
    /// Held while work is begun, and while it is looked at.
    pub looking: tokio::sync::Mutex<()>,
}

impl Jobs {
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
