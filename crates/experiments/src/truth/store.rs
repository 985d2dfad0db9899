//! Four sessions at a store in virtual time, each on a reservation, as `setup::of_store` has them.
//!
//! ```text
//! requests -> session by capability -> tags -> Meter -> ModelDisk
//! ```

use std::rc::Rc;

use policy::share::{BytesPerSec, Direction, Second, Slot};
use store::qos::manager::{Manager, ReservationRequest};
use store::qos::session::{Access, Session};
use trace::Request;

use super::cases::{Extent, SESSIONS, reads};
use super::client::{Sessions, fill_objects, send};
use super::common::Trouble;
use super::sample::{Sample, since};
use super::setup::{RATE_MB, STORE, object};
use super::volume::{Below, counts};
use crate::app::process::Stop;

/// Runs it.
///
/// # Errors
/// What the store or a request said.
pub(super) fn run(requests: &[Request], extent: &Extent, seed: u64) -> Result<Sample, Trouble> {
    let (requests, extent) = (requests.to_vec(), *extent);
    env::Runtime::simulated(seed).block_on(async move {
        let disks = [Below::new(0, seed)?];
        let store = disks[0].store(STORE).await?;
        let open = store.open_session(Access::Open);
        let open = open.map_err(|error| error.to_string())?;
        fill_objects(&open, SESSIONS, extent.image).await?;
        drop(open);
        env::sleep(extent.settle).await;
        let mut sessions = Vec::new();
        for session in 0..SESSIONS {
            sessions.push(reserved(&store, session).await?);
        }
        let before = counts(&disks);
        let target = Rc::new(Sessions::new(sessions));
        let took = send(target, &requests, &Stop::default()).await?;
        let sample = Sample::new(&took, since(&before, &counts(&disks)));
        // What does not close well was measured before.
        let _ = store.close().await;
        Ok(sample)
    })
}

/// A session on a reservation of its own.
async fn reserved(store: &Rc<Manager>, session: u32) -> Result<Rc<Session>, String> {
    let direction = match reads(session) {
        true => Direction::Read,
        false => Direction::Write,
    };
    let now = store.now();
    let wanted = ReservationRequest::new(direction, BytesPerSec::mb(RATE_MB), Slot::new(now, 3600))
        .scope(&object(session));
    let until = Second(now.0 + 60);
    let id = store.hold(&wanted, None, until).await;
    let id = id.map_err(|error| error.to_string())?;
    let capability = store.commit(id).await.map_err(|error| error.to_string())?;
    let opened = store.open_session(Access::Capability(&capability));
    opened.map_err(|error| error.to_string())
}
