//! Reads all data over and over, as fast as it may, and says what is damaged.
//!
//! ```text
//! a piece -> wait as long as it may take at its rate -> the next piece; at the end of a round a pause
//! ```

use std::rc::Weak;

use base::{Bytes, Nanos};

use crate::object::error::StoreError;
use crate::object::scrub::ScrubStep;
use crate::qos::session::table::Sessions;
use crate::qos::state::Core;
use crate::qos::state::options::ScrubOptions;

/// Read in one go.
const PIECE: Bytes = Bytes::mib(1);

/// The scrub's task, until the manager is gone or its store takes nothing more.
pub(super) async fn scrub(sessions: Weak<Sessions>, options: ScrubOptions) {
    loop {
        let begun = env::now();
        let wait = {
            let Some(sessions) = sessions.upgrade() else {
                return;
            };
            if sessions.core.stopped.get() {
                return;
            }
            let Ok(step) = read_piece(&sessions.core).await else {
                return;
            };
            time_for(&step, options)
        };
        let spent = env::now().since(begun);
        env::sleep(wait.saturating_sub(spent)).await;
    }
}

/// How long the piece may have taken.
fn time_for(step: &ScrubStep, options: ScrubOptions) -> Nanos {
    let pause = match step.round_done {
        true => options.pause,
        false => Nanos(0),
    };
    options.rate.time_for(step.read) + pause
}

/// Reads the next piece of the round.
pub(super) async fn read_piece(core: &Core) -> Result<ScrubStep, StoreError> {
    let step = core.store.scrub_step(PIECE).await?;
    let mut scrubbed = core.scrubbed.get();
    scrubbed.rounds = step.rounds;
    scrubbed.bytes += step.read.0;
    scrubbed.bad += step.bad.len() as u64;
    for bad in &step.bad {
        tracing::error!(store = %core.store.name(), object = %bad.object, offset = bad.offset, why = %bad.why, "the scrub found damage");
    }
    if step.round_done {
        scrubbed.round_ended = Some(core.now());
    }
    core.scrubbed.set(scrubbed);
    Ok(step)
}
