//! The power of devices that can lose it: when does it go, counted in operations?
//!
//! Always true: power that is off stays off.

use std::cell::Cell;
use std::rc::Rc;

use env::sync::Event;

/// The power of one or more [`Crash`](super::Crash) devices, and the count of their operations.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::crash::{Crash, PowerSupply};
/// use device::{DeviceError, DeviceExt};
/// let supply = PowerSupply::new();
/// let slow = Crash::on(&supply, "slow", Bytes::mib(16), env::Rng::from_seed(1));
/// let fast = Crash::on(&supply, "fast", Bytes::mib(16), env::Rng::from_seed(2));
/// supply.cut_at(1); // operation 0 completes, operation 1 is under way when the power goes
/// env::Runtime::simulated(1).block_on(async move {
///     let data = View::copy_of(&[1; 512]);
///     assert_eq!(fast.write_at(Sector(0), data.clone()).await, Ok(()));
///     let cut = slow.write_at(Sector(0), data).await;
///     assert!(matches!(cut, Err(DeviceError::Gone { .. })));
///     let fast = fast.restart(env::Rng::from_seed(3));
///     let sector = fast.read_at(Sector(0), Bytes(512)).await.unwrap();
///     assert!(sector[0] <= 1); // it was never flushed
/// });
/// ```
#[derive(Default)]
pub struct PowerSupply {
    steps: Cell<u64>,
    cut_at: Cell<Option<u64>>,
    off: Cell<bool>,
    went_off: Event,
}

impl PowerSupply {
    /// Power that is on.
    pub fn new() -> Rc<PowerSupply> {
        Rc::default()
    }

    /// Operations begun so far on all devices, reads and flushes included.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Cuts the power while operation number `step` (from 0, over all devices) is under way: it does
    /// not complete, but may have happened in part. A step that is past cuts at the next operation.
    pub fn cut_at(&self, step: u64) {
        self.cut_at.set(Some(step));
    }

    /// Cuts the power now.
    pub fn cut_now(&self) {
        self.off.set(true);
        self.went_off.notify_all();
    }

    /// Is the power on?
    pub fn is_on(&self) -> bool {
        !self.off.get()
    }

    /// Waits until the power is off.
    pub async fn wait_for_cut(&self) {
        while self.is_on() {
            self.went_off.wait().await;
        }
    }

    /// Counts an operation of something else that this power feeds, such as a file beside the devices. False if the
    /// power is off, or goes off while the operation is under way: it may have happened then.
    pub fn operate(&self) -> bool {
        if self.is_on() {
            self.step();
        }
        self.is_on()
    }

    /// Counts one operation; the power may go off while it is under way.
    pub(super) fn step(&self) {
        let step = self.steps.get();
        self.steps.set(step + 1);
        if self.cut_at.get().is_some_and(|cut| cut <= step) {
            self.cut_now();
        }
    }
}
