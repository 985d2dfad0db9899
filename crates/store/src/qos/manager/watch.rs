//! Watches what the device does, and sets in the calendar what it can be trusted to do.

use std::rc::Rc;

use policy::share::capacity::{Drift, Observed};

use super::{beside, scrub};
use crate::qos::state::Core;
use crate::qos::state::log::Logged;

/// So many pieces of the scrub's are read where nothing else shows how fast the device is.
const PROBE_PIECES: u32 = 4;

/// What watches the capacity.
pub(super) struct Watch<'a>(pub &'a Rc<Core>);

impl Watch<'_> {
    /// Looks at what the queue did in the last second.
    pub fn second(&self) {
        let core = self.0;
        let interval = core.queue.take_interval();
        if core.bookings.calibrating.get().is_some() {
            // It is charged by other costs than those in use.
            return;
        }
        let (observed, due) = core.capacity.borrow_mut().observe(&interval);
        self.say(observed);
        if due {
            self.reckon();
        }
        if core.capacity.borrow_mut().wants_probe(interval.active) {
            self.probe();
        }
    }

    fn say(&self, observed: Observed) {
        let core = self.0;
        match observed {
            Observed::Drifted(mix, drift) => {
                let which = match drift {
                    Drift::Up => "faster",
                    Drift::Down => "slower",
                };
                tracing::warn!(store = %core.store.name(), mix = mix.name(), "the device is {which} than it was: a calibration is due");
                core.log.push(Logged::drift(core.now(), mix, which));
            }
            Observed::Recovered(mix, speed) => {
                tracing::info!(store = %core.store.name(), mix = mix.name(), %speed, "the device is as fast again as it was taken to be");
                core.log.push(Logged::drift(core.now(), mix, "faster"));
                core.set_trusted_capacity();
            }
            _ => {}
        }
    }

    /// Reckons what the device can be trusted to do, and sets it in the calendar.
    fn reckon(&self) {
        let core = self.0;
        let surest = core.bookings.surest();
        if !core.capacity.borrow_mut().reckon(surest) {
            return;
        }
        core.set_trusted_capacity();
        let now = core.now();
        let over = core.bookings.calendar.borrow().overcommitted(now);
        if let Some(first) = over.first() {
            tracing::warn!(store = %core.store.name(), from = %first.slot.start, promised = %first.promised,
                "the device became slower than what is promised");
            core.log.push(Logged::overcommitted(now, first));
        }
    }

    /// Reads some data over.
    fn probe(&self) {
        let core = Rc::clone(self.0);
        env::spawn(async move {
            if core.beside {
                return beside::probe(&core, PROBE_PIECES).await;
            }
            for _ in 0..PROBE_PIECES {
                if core.stopped.get() || scrub::read_piece(&core).await.is_err() {
                    return;
                }
            }
        });
    }
}
