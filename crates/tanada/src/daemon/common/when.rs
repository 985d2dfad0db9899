//! Times as people say and read them.
//!
//! ```text
//! now | +30m | 20:00 | tomorrow 08:00 | 2026-11-22 20:00 | 2026-11-22T20:00:00+09:00 -> second -> 2026-11-22 20:00:00 +09:00
//! ```
//!
//! What names no zone is meant in that of this machine (`TZ` overrides it); what is printed always says its
//! distance from UTC.

use base::Nanos;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use policy::share::Second;

/// What to write.
const FORMS: &str = "write now, +30m, 20:00, \"tomorrow 08:00\", \"2026-11-22 20:00\" or \
                     2026-11-22T20:00:00Z";

/// Seconds since 1970, now, with their fraction.
pub fn unix_seconds() -> f64 {
    env::wall_clock().0 as f64 / 1e9
}

/// The present by this machine's clock, for commands. Data threads ask `env::wall_clock`.
pub fn now() -> Nanos {
    let since = Timestamp::now().as_nanosecond();
    Nanos(u64::try_from(since).unwrap_or_default())
}

/// A moment of the calendar in the zone of this machine.
pub fn local(second: Second) -> Zoned {
    zoned(second, TimeZone::system())
}

fn zoned(second: Second, zone: TimeZone) -> Zoned {
    // What is later than year 9999 is shown as its last day.
    let seconds = i64::try_from(second.0).unwrap_or(i64::MAX);
    let stamp = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    stamp.to_zoned(zone)
}

/// `2026-11-22 20:00:00 +09:00`.
pub fn shown(second: Second) -> String {
    text(&local(second))
}

fn text(at: &Zoned) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
}

/// `2026-11-22T11:00:00Z`.
pub fn utc(second: Second) -> String {
    zoned(second, TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// Reads a moment, `now` being the present.
///
/// # Errors
/// What is wrong with the text, and what would do.
pub fn read(text: &str, now: Second) -> Result<Second, String> {
    read_in(text, &local(now))
}

fn read_in(text: &str, now: &Zoned) -> Result<Second, String> {
    let text = text.trim();
    let odd = || format!("'{text}' is not a time; {FORMS}");
    let at = match text.split_once(' ') {
        _ if text == "now" => now.timestamp(),
        _ if text.starts_with('+') => later(&text[1..], now)?,
        Some(("today", time)) => of_day(now.date(), time, now).ok_or_else(odd)?,
        Some(("tomorrow", time)) => {
            let day = now.date().tomorrow().map_err(|_| odd())?;
            of_day(day, time, now).ok_or_else(odd)?
        }
        _ => match text.parse::<Time>() {
            // The next time the clock shows it.
            Ok(_) if !text.contains(['-', 'T']) => next(text, now).ok_or_else(odd)?,
            _ => moment(text, now).ok_or_else(odd)?,
        },
    };
    u64::try_from(at.as_second()).map(Second).map_err(|_| odd())
}

fn later(span: &str, now: &Zoned) -> Result<Timestamp, String> {
    let span = config::read_span(span)?;
    let span = SignedDuration::from_nanos(i64::try_from(span.0).unwrap_or(i64::MAX));
    now.timestamp()
        .checked_add(span)
        .map_err(|_| format!("that is too far ahead; {FORMS}"))
}

fn of_day(day: Date, time: &str, now: &Zoned) -> Option<Timestamp> {
    let at = DateTime::from_parts(day, time.trim().parse().ok()?);
    Some(at.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

fn next(time: &str, now: &Zoned) -> Option<Timestamp> {
    let today = of_day(now.date(), time, now)?;
    match today < now.timestamp() {
        true => of_day(now.date().checked_add(1.day()).ok()?, time, now),
        false => Some(today),
    }
}

/// With a zone of its own, or a date and a time in that of `now`.
fn moment(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    let at: DateTime = text.parse().ok()?;
    Some(at.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz;

    /// 2026-11-22 19:30 in Tokyo.
    fn now() -> Zoned {
        zoned(Second(1_795_343_400), TimeZone::fixed(tz::offset(9)))
    }

    fn said(given: &str) -> Result<String, String> {
        read_in(given, &now()).map(utc)
    }

    #[test]
    fn a_time_is_the_next_one_of_this_machines_clock() {
        assert_eq!(text(&now()), "2026-11-22 19:30:00 +09:00");
        for (given, read) in [
            ("now", "2026-11-22T10:30:00Z"),
            ("20:00", "2026-11-22T11:00:00Z"),
            ("19:30", "2026-11-22T10:30:00Z"),
            ("19:00", "2026-11-23T10:00:00Z"),
            ("08:15:30", "2026-11-22T23:15:30Z"),
            ("+30m", "2026-11-22T11:00:00Z"),
            ("today 06:00", "2026-11-21T21:00:00Z"),
            ("tomorrow 06:00", "2026-11-22T21:00:00Z"),
            ("2026-12-01 00:00", "2026-11-30T15:00:00Z"),
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-01T00:00:00-05:00", "2026-12-01T05:00:00Z"),
        ] {
            assert_eq!(said(given).as_deref(), Ok(read), "{given}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_how_one_is_written() {
        for odd in [
            "",
            "soon",
            "25:00",
            "8pm",
            "tomorrow",
            "+",
            "2026-13-01 00:00",
        ] {
            let refused = said(odd).unwrap_err();
            assert!(refused.contains("write"), "{odd}: {refused}");
        }
    }
}
