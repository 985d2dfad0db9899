//! What becomes of a reservation, for people: why it was refused, what would fit, how it stands.

use policy::share::calendar::Refusal as Refuse;
use policy::share::{self as share, BytesPerSec, Second};
use store::qos::manager::Reserved;

use crate::api::store::{Offer, Reservation, ReservationGiven};
use crate::daemon::common::when;

/// A refusal for people, in times of the day.
pub fn said(store: &str, refusal: &Refuse) -> String {
    match refusal {
        Refuse::Full {
            asked,
            at,
            promised,
            sessions,
            headroom,
            floors,
            left,
            needed,
            ..
        } => {
            let others = match sessions {
                1 => "1 other".to_owned(),
                n => format!("{n} others"),
            };
            format!(
                "cannot reserve {} of {}s on {store}: at {} {promised} of the device is promised to {others}, \
                 {headroom} must stay free and {floors} is for background work, which leaves {left} where \
                 {needed} is needed",
                asked.rate,
                asked.direction,
                when::utc(*at)
            )
        }
        Refuse::NoTime { slot, now } => format!(
            "cannot reserve from {} to {}: it is {} now",
            when::utc(slot.start),
            when::utc(slot.end),
            when::utc(*now)
        ),
        Refuse::Space(cause) => format!("cannot reserve room on {store}: {cause}"),
        other => format!("{store}: {other}"),
    }
}

/// What would fit, in a sentence.
pub fn instead(offer: &Offer) -> String {
    let earliest = offer.earliest_unix_seconds.map(|at| when::utc(Second(at)));
    let largest = offer
        .largest_bytes_per_second
        .map(|it| BytesPerSec(it).floored());
    match (earliest, largest) {
        (Some(at), Some(rate)) => format!("ask for it from {at} on, or for at most {rate}"),
        (Some(at), None) => format!("ask for it from {at} on"),
        (None, Some(rate)) => format!("ask for at most {rate}"),
        (None, None) => "it fits at no time: ask for less".to_owned(),
    }
}

pub fn shown(store: &str, it: &Reserved) -> Reservation {
    let ask = &it.request;
    Reservation {
        id: format!("{store}/{}", it.id.0),
        store: store.to_owned(),
        state: match it.state {
            share::calendar::State::Tentative { .. } => "held",
            share::calendar::State::Committed => "committed",
        }
        .to_owned(),
        direction: ask.direction.name().to_owned(),
        rate_bytes_per_second: ask.rate.0,
        window_ns: ask.window.0,
        probability_percent: f64::from(ask.probability.0) / 10_000.0,
        from_unix_seconds: ask.slot.start.0,
        until_unix_seconds: ask.slot.end.0,
        space_bytes: ask.space.0,
        space_left_bytes: it.space_left.0,
        scope: ask.scope.clone(),
        holder: ask.holder.clone(),
        group: it.group.as_ref().map(|group| format!("{:032x}", group.id)),
        given: ReservationGiven::default(),
    }
}
