//! Reservations over the cluster in texts and numbers: what is asked for, how it is shown, what would fit.
//!
//! Pure: no store and no record is asked.

use axum::http::StatusCode;
use policy::share::{BytesPerSec, Second};
use reservations::ask::{Ask, AskTerms, TargetAsk};
use reservations::offer::Offer;
use reservations::record::{PlanKind, Promise, Reservation, Target};
use reservations::records::Versioned;
use reservations::stores::Facts;
use reservations::sweep::promised_now;

use super::control::Failure;
use crate::api::reservation::{
    AllotmentAsk, PromisedNow, ReservationAsk, ReservationOffer, ReservationPart,
    ReservationTarget, WholeLacks, WholeReservation, WholeTerms,
};
use crate::daemon::common::when;

/// A request that could be sent.
pub(super) const ASK: &str = r#"{"name": "nightly", "target": {"volume": "vm1"}, "read": "200MB/s", "from": "20:00", "for": "2h"}"#;
/// A change that could be.
pub(super) const CHANGE: &str = r#"{"read": "100MB/s", "for": "2h"}"#;

pub(super) fn unprocessable(error: impl Into<String>, todo: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
}

// --- texts ----------------------------------------------------------------------------------------------

pub(super) fn rate(text: Option<&String>) -> Result<u64, Failure> {
    let Some(text) = text else { return Ok(0) };
    let rate: Result<BytesPerSec, _> = text.parse();
    rate.map(|it| it.0).map_err(|why| {
        unprocessable(
            format!("'{text}' is no rate: {why}"),
            "write such as 200MB/s",
        )
    })
}

fn space(text: Option<&String>) -> Result<u64, Failure> {
    let Some(text) = text else { return Ok(0) };
    let space: Result<base::Bytes, _> = text.parse();
    space.map(|it| it.0).map_err(|why| {
        unprocessable(
            format!("'{text}' is no size: {why}"),
            "write such as 100GiB",
        )
    })
}

pub(super) fn seconds(text: &str) -> Result<u64, Failure> {
    let span = config::read_span(text).map_err(|why| unprocessable(why, "write such as 2h"))?;
    match span.0.div_ceil(1_000_000_000) {
        0 => Err(unprocessable(
            "it lasts no time",
            "give it a second at least",
        )),
        seconds => Ok(seconds),
    }
}

pub(super) fn target(asked: &ReservationTarget) -> Result<TargetAsk, Failure> {
    match (&asked.volume, &asked.stores[..], &asked.export) {
        (Some(volume), [], None) => Ok(TargetAsk::Volume(volume.clone())),
        (None, [_, ..], None) => Ok(TargetAsk::Stores {
            stores: asked.stores.clone(),
            stripe: asked.stripe,
            scope: asked.scope.clone().unwrap_or_default(),
        }),
        (None, [], Some(name)) => Ok(TargetAsk::Export {
            name: name.clone(),
            node: asked.node.clone(),
        }),
        _ => Err(unprocessable(
            "a target is exactly one of volume, stores and export",
            format!("send such as {ASK}"),
        )),
    }
}

pub(super) fn plan_kind(text: Option<&str>) -> Result<PlanKind, Failure> {
    match text {
        None | Some("any") => Ok(PlanKind::Any),
        Some("spread") => Ok(PlanKind::Spread),
        Some(other) => Err(unprocessable(
            format!("'{other}' is no plan"),
            "write any or spread",
        )),
    }
}

/// What is asked for, the second being `now`.
pub(super) fn ask(asked: &ReservationAsk, account: String, now: Second) -> Result<Ask, Failure> {
    let from = match asked.from.as_deref() {
        None | Some("now") => now,
        Some(text) => when::read(text, now)
            .map_err(|why| unprocessable(why, "say when it begins, or leave it out for now"))?,
    };
    let window = asked.window.as_deref().unwrap_or("1s");
    let window = config::read_span(window).map_err(|why| unprocessable(why, "write such as 1s"))?;
    let percent = asked.probability_percent.unwrap_or(99.0);
    if !(percent > 0.0 && percent <= 100.0) {
        let error = format!("a probability of {percent} % makes no sense");
        return Err(unprocessable(error, "write more than 0 and at most 100"));
    }
    let span = match asked.span.as_str() {
        "" => {
            return Err(unprocessable(
                "it lasts no time",
                "say for how long: \"for\": \"2h\"",
            ));
        }
        text => seconds(text)?,
    };
    let terms = AskTerms {
        idle: asked.idle.as_deref().map(seconds).transpose()?,
        allotment: asked.allotment == Some(AllotmentAsk::Is(true)),
        within: match &asked.allotment {
            Some(AllotmentAsk::Inside(name)) => Some(name.clone()),
            _ => None,
        },
        agent: asked.agent.clone().filter(|it| !it.is_empty()),
        offline: asked.target.offline,
    };
    Ok(Ask {
        name: asked.name.clone(),
        account,
        target: target(&asked.target)?,
        promise: Promise {
            read: rate(asked.read.as_ref())?,
            write: rate(asked.write.as_ref())?,
            from: from.0,
            until: from.0.saturating_add(span),
            tolerate: asked.tolerate.unwrap_or(1),
            plan: plan_kind(asked.plan.as_deref())?,
            window_ns: window.0,
            probability_ppm: (percent * 10_000.0).round() as u32,
            space: space(asked.space.as_ref())?,
        },
        tolerate_said: asked.tolerate.is_some(),
        from_said: !matches!(asked.from.as_deref(), None | Some("now")),
        terms,
    })
}

// --- answers --------------------------------------------------------------------------------------------

/// What for, by its names.
fn target_shown(target: &Target, facts: &Facts) -> ReservationTarget {
    match target {
        Target::Volume { name, .. } => ReservationTarget {
            volume: Some(name.clone()),
            ..ReservationTarget::default()
        },
        Target::Stores {
            stores,
            stripe,
            scope,
        } => ReservationTarget {
            stores: stores.iter().map(|it| facts.label(*it)).collect(),
            stripe: *stripe,
            scope: Some(scope.clone()).filter(|it| !it.is_empty()),
            ..ReservationTarget::default()
        },
        Target::Export { node, name } => ReservationTarget {
            export: Some(name.clone()),
            node: Some(node.clone()),
            ..ReservationTarget::default()
        },
    }
}

/// A reservation as it is shown.
pub(super) fn whole(known: &Versioned, facts: &Facts) -> WholeReservation {
    let Reservation {
        name,
        account,
        target,
        promise,
        terms,
        state,
        cause,
        parts,
        ..
    } = &known.record;
    let (read, write) = promised_now(&known.record, facts);
    let part = |it: &reservations::record::Part| ReservationPart {
        store: facts.label(it.store),
        number: it.number,
        direction: it.direction().name().to_owned(),
        rate_bytes_per_second: it.rate,
    };
    WholeReservation {
        id: known.id.to_string(),
        name: name.clone(),
        account: account.clone(),
        target: target_shown(target, facts),
        state: state.name().to_owned(),
        cause: cause.clone(),
        read_bytes_per_second: promise.read,
        write_bytes_per_second: promise.write,
        promised_now: PromisedNow {
            read_bytes_per_second: read,
            write_bytes_per_second: write,
        },
        from_unix_seconds: promise.from,
        until_unix_seconds: promise.until,
        terms: WholeTerms {
            tolerate: promise.tolerate,
            plan: match promise.plan {
                PlanKind::Any => "any",
                PlanKind::Spread => "spread",
            }
            .to_owned(),
            idle_seconds: terms.idle,
            allotment: terms.allotment,
            from_allotment: terms.within.map(|it| it.to_string()),
            agent: terms.agent.clone(),
            offline: terms.offline,
        },
        parts: parts.iter().map(part).collect(),
        capability: None,
        lacks: WholeLacks::default(),
    }
}

/// What would fit, in numbers and texts.
pub(super) fn offered(offer: &Offer, promise: &Promise) -> ReservationOffer {
    let part = |of: u64| {
        let part = |permille: u32| (u128::from(of) * u128::from(permille) / 1000) as u64;
        offer.largest_permille.map(part).filter(|it| *it > 0)
    };
    let (read, write) = (part(promise.read), part(promise.write));
    ReservationOffer {
        fits: offer.fits,
        earliest_unix_seconds: offer.earliest.map(|at| at.0),
        largest_permille: offer.largest_permille,
        largest: read
            .or(write)
            .map(|it| BytesPerSec(it).floored().to_string()),
        largest_read_bytes_per_second: read,
        largest_write_bytes_per_second: write,
        longest_seconds: offer.longest_seconds,
        refused: offer
            .refused
            .iter()
            .map(|(store, why)| format!("on {store}: {why}"))
            .collect(),
    }
}

/// What would fit, in a sentence.
pub(super) fn instead(offer: &ReservationOffer) -> String {
    let mut ways = Vec::new();
    if let Some(at) = offer.earliest_unix_seconds {
        ways.push(format!("the time from {} on", when::utc(Second(at))));
    }
    if let Some(rate) = &offer.largest {
        ways.push(format!("at most {rate}"));
    }
    if let Some(seconds) = offer.longest_seconds {
        ways.push(format!("at most {seconds} s"));
    }
    match ways.is_empty() {
        true => "it fits at no time: ask for less".to_owned(),
        false => format!("ask for {}", ways.join(", or for ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> ReservationAsk {
        serde_json::from_str(ASK).unwrap()
    }

    #[test]
    fn the_example_is_read_as_it_is_meant() {
        let read = ask(&asked(), String::new(), Second(1_795_345_200))
            .ok()
            .unwrap();
        assert_eq!(read.target, TargetAsk::Volume("vm1".to_owned()));
        assert_eq!((read.promise.read, read.promise.write), (200_000_000, 0));
        assert_eq!(read.promise.until - read.promise.from, 7200);
        assert!(read.from_said && !read.tolerate_said);
        assert_eq!(read.terms, AskTerms::default());
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_can() {
        let with = |change: fn(&mut ReservationAsk)| {
            let mut it = asked();
            change(&mut it);
            match ask(&it, String::new(), Second(1_795_345_200)) {
                Ok(_) => panic!("{it:?} was taken"),
                Err(failure) => (failure.refusal.error, failure.refusal.what_to_do),
            }
        };
        for (error, todo) in [
            with(|it| it.read = Some("fast".to_owned())),
            with(|it| it.span = String::new()),
            with(|it| it.span = "0s".to_owned()),
            with(|it| it.from = Some("yesteryear".to_owned())),
            with(|it| it.plan = Some("best".to_owned())),
            with(|it| it.probability_percent = Some(0.0)),
            with(|it| it.space = Some("much".to_owned())),
            with(|it| it.idle = Some("long".to_owned())),
            with(|it| it.target.export = Some("vol0".to_owned())),
            with(|it| it.target = ReservationTarget::default()),
            with(|it| it.target.stores = vec!["s0".to_owned()]),
        ] {
            assert!(!error.is_empty() && !todo.is_empty(), "{error}: {todo}");
        }
    }

    #[test]
    fn what_else_is_to_hold_is_read_in_words() {
        let asked = ReservationAsk {
            idle: Some("10m".to_owned()),
            allotment: Some(AllotmentAsk::Inside("pool".to_owned())),
            agent: Some("slurm-agent".to_owned()),
            target: ReservationTarget {
                export: Some("vol0".to_owned()),
                node: Some("n1".to_owned()),
                ..ReservationTarget::default()
            },
            ..asked()
        };
        let read = ask(&asked, String::new(), Second(1)).ok().unwrap();
        let terms = AskTerms {
            idle: Some(600),
            allotment: false,
            within: Some("pool".to_owned()),
            agent: Some("slurm-agent".to_owned()),
            offline: false,
        };
        assert_eq!(read.terms, terms);
        let export = TargetAsk::Export {
            name: "vol0".to_owned(),
            node: Some("n1".to_owned()),
        };
        assert_eq!(read.target, export);
    }

    #[test]
    fn what_is_offered_is_no_more_than_fits() {
        let offer = Offer {
            fits: false,
            earliest: None,
            largest_permille: Some(333),
            longest_seconds: None,
            refused: Vec::new(),
        };
        let mut promise = ask(&asked(), String::new(), Second(1))
            .ok()
            .unwrap()
            .promise;
        (promise.read, promise.write) = (29_999_999, 5);
        let shown = offered(&offer, &promise);
        assert_eq!(shown.largest_read_bytes_per_second, Some(9_989_999));
        assert_eq!(shown.largest_write_bytes_per_second, Some(1));
        // Rounded to the nearest it would be 9.99 MB/s, which does not fit.
        assert_eq!(shown.largest.as_deref(), Some("9.989 MB/s"));
        assert_eq!(instead(&shown), "ask for at most 9.989 MB/s");
        promise.read = 0;
        let of_writes = offered(&offer, &promise);
        assert_eq!(
            (
                of_writes.largest.as_deref(),
                of_writes.largest_read_bytes_per_second
            ),
            (Some("1 B/s"), None)
        );
    }
}
