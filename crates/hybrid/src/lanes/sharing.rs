//! Tells each lane what it may use of what is counted for the whole, every second.
//!
//! ```text
//! every second: what each lane used -> Divider -> what each may use        (values both ways)
//! ```
//!
//! Always true: a lane hears nothing of another one but what it may use itself.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use base::Nanos;
use env::sync::Event;

use super::Inner;
use super::divide::{Divider, Whole};
use crate::engine::{Hybrid, lane};

/// What a lane used is looked at so often.
const INTERVAL: Nanos = Nanos::secs(1);
/// ... and at once where a lane is at a limit, but not more often than this.
const INTERVAL_MIN: Nanos = Nanos::millis(20);

/// The one that divides, for a disk of several lanes.
#[derive(Default)]
pub(super) struct Sharing {
    divider: RefCell<Option<Divider>>,
}

impl Sharing {
    /// One division of `whole` among `lanes`, where there are several.
    pub fn share_out(&self, lanes: &[Hybrid], whole: Whole) {
        if lanes.len() == 1 {
            return;
        }
        let (now, uses) = (env::now(), lanes.iter().map(lane::take_use));
        let uses: Vec<_> = uses.collect();
        let limits = {
            let mut divider = self.divider.borrow_mut();
            let divider = divider.get_or_insert_with(|| Divider::new(whole, uses.len(), now));
            divider.divide(whole, now, &uses)
        };
        for (lane, limits) in lanes.iter().zip(limits) {
            lane::limit(lane, limits);
        }
    }
}

/// The task: divides until the disk is closed or gone. `asks`: a lane is at a limit.
pub(super) async fn share_out(disk: Weak<Inner>, asks: Rc<Event>) {
    loop {
        env::sleep(INTERVAL_MIN).await;
        let _ = env::timeout(INTERVAL.saturating_sub(INTERVAL_MIN), asks.wait()).await;
        match disk.upgrade() {
            Some(disk) if !disk.is_closed() => disk.share_out(),
            _ => return,
        }
    }
}
