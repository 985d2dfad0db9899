//! What a manager does each second: slots begin and end, capacity is watched, history is written.
//!
//! ```text
//! each second: sessions (who begins, who ends) | book (what is over) | queue -> capacity -> calendar | events -> log
//! ```

use std::rc::{Rc, Weak};

use base::Nanos;

use super::reserve::Reserver;
use super::watch::Watch;
use crate::qos::session::table::Sessions;

/// The task of each second, until the manager is gone.
pub(super) async fn every_second(sessions: Weak<Sessions>) {
    loop {
        // Slots are in seconds of the wall clock.
        let into = env::wall_clock().0 % 1_000_000_000;
        env::sleep(Nanos(1_000_000_000 - into)).await;
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        if sessions.core.stopped.get() {
            return;
        }
        second(&sessions).await;
    }
}

async fn second(sessions: &Rc<Sessions>) {
    let core = &sessions.core;
    let now = core.now();
    sessions.second(now);
    if !core.bookings.over(now).is_empty() {
        let _changing = core.bookings.changing.acquire(1).await;
        if let Err(error) = Reserver(Rc::clone(sessions)).expire().await {
            tracing::warn!(store = %core.store.name(), %error, "what is over cannot be forgotten yet");
        }
    }
    core.look_at_promises();
    Watch(core).second();
    core.take_events();
    if let Err(error) = core.history.write(&core.store).await {
        tracing::warn!(store = %core.store.name(), %error, "history cannot be written yet");
    }
    if let Err(error) = core.write_trust().await {
        tracing::warn!(store = %core.store.name(), %error, "the speed that was seen cannot be written yet");
    }
}
