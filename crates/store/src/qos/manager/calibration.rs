//! Takes the device for a calibration, and lets the manager reckon by what was found.

use std::rc::Rc;

use policy::share::Slot;

use crate::object::error::StoreError;
use crate::qos::book;
use crate::qos::book::record::Calibration;
use crate::qos::calibrate::{self, CalibrateError, Plan, Progress, Surface};
use crate::qos::session::table::Sessions;
use crate::qos::state::Core;
use crate::qos::state::capacity::Capacity;

/// From now on the device is taken to do what was measured.
pub(super) async fn set(core: &Core, mut calibration: Calibration) -> Result<(), StoreError> {
    calibration.identity = core.options.device_identity.clone();
    let _changing = core.bookings.changing.acquire(1).await;
    book::put_calibration(&core.store, &calibration).await?;
    let costs = calibration.costs;
    *core.capacity.borrow_mut() = Capacity::calibrated(calibration);
    core.queue.set_costs(costs);
    core.queue.take_interval();
    core.set_trusted_capacity();
    Ok(())
}

/// The device is a calibration's until this is dropped; then the queue goes by the manager's own figures again.
pub struct Taken {
    sessions: Rc<Sessions>,
    plan: Plan,
}

impl Taken {
    /// Takes it, if nothing is reserved for as long as the plan may take.
    pub(super) async fn by(sessions: &Rc<Sessions>, plan: Plan) -> Result<Taken, CalibrateError> {
        calibrate::streams(&plan)?;
        let core = &sessions.core;
        let bookings = &core.bookings;
        let _changing = bookings.changing.acquire(1).await;
        let store = || core.store.name().to_owned();
        if bookings.calibrating.get().is_some() {
            return Err(CalibrateError::Running { store: store() });
        }
        let slot = Slot::new(core.now(), plan.longest().0.div_ceil(1_000_000_000));
        if let Some((reservation, reserved)) = bookings.first_in(slot) {
            return Err(CalibrateError::Reserved {
                store: store(),
                reservation,
                reserved,
                needed: slot,
            });
        }
        bookings.calibrating.set(Some(slot));
        Ok(Taken {
            sessions: Rc::clone(sessions),
            plan,
        })
    }

    /// Measures by the plan; what is found is kept, and the manager goes by it from then on.
    ///
    /// # Errors
    /// [`CalibrateError`]; the manager goes by what it had before.
    pub async fn measure(self, progress: &mut Progress<'_>) -> Result<Surface, CalibrateError> {
        let core = &self.sessions.core;
        let found = calibrate::through(&core.store, &core.queue, &self.plan, progress).await?;
        set(core, found.calibration()).await?;
        Ok(found)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let core = &self.sessions.core;
        core.bookings.calibrating.set(None);
        core.queue.set_costs(core.capacity.borrow().costs);
        core.queue.take_interval();
    }
}
