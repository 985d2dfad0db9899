//! Can what is booked be had under a volume's caps, and may caps be set beneath what is booked?
//!
//! Both ways are asked: a booking above a cap could never be had, so whichever comes second is refused.
//!
//! Pure: nothing is asked of the cluster.

use policy::share::BytesPerSec;
use policy::share::cap::check_booked;

use crate::error::ReservationError;
use crate::record::{Promise, Reservation, Target};
use crate::stores::Facts;

/// Does what is asked for stay beneath the volume's caps?
///
/// # Errors
/// [`ReservationError::Request`] with both, and what to do.
pub(crate) fn check_caps(
    facts: &Facts,
    target: &Target,
    promise: &Promise,
) -> Result<(), ReservationError> {
    let Target::Volume { id, name } = target else {
        return Ok(());
    };
    let Some(volume) = facts.volumes.get(id) else {
        return Ok(());
    };
    let booked = [promise.read, promise.write].map(BytesPerSec);
    check_booked(&volume.caps, booked).map_err(|why| {
        ReservationError::Request(format!(
            "volume {name} cannot be booked so: {why}; ask for at most {}, or raise the cap \
             (`tanada volume set {name} max_{}={}` or more) first",
            why.cap.floored(),
            why.direction.name(),
            why.booked.to_string().replace(' ', "")
        ))
    })
}

/// The largest rates of reads and of writes that are booked of the volume `id`, now or later.
pub fn largest_of<'a>(records: impl Iterator<Item = &'a Reservation>, id: u32) -> [BytesPerSec; 2] {
    let of = |it: &&Reservation| {
        let same = matches!(&it.target, Target::Volume { id: of, .. } if *of == id);
        same && it.over_since.is_none()
    };
    let none = [BytesPerSec(0); 2];
    records.filter(of).fold(none, |[read, write], it| {
        [
            read.max(BytesPerSec(it.promise.read)),
            write.max(BytesPerSec(it.promise.write)),
        ]
    })
}
