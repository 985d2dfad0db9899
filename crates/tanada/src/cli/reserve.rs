//! Reservations at stores one by one, by the calendar of a running daemon's stores.
//!
//! ```text
//! create -> POST /v1/reservations -> a capability for each store | why not, and what would fit instead
//! a dry run: the same without setting anything aside; list, show, delete, calendar: what there is
//! ```
//!
//! `reservation` comes here for a holder, for a part by its number, and where the daemon is in no cluster.
//! Times are read in the zone of this machine and printed with their distance from UTC.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use base::Nanos;
use clap::Args;
use config::read_span;
use hyper::Method;
use policy::share::{BytesPerSec, Second};
use report::terminal::table::{size, table};
use report::terminal::{Refused, Usage};

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::store::{Calendar, Offer, Reservation, ReserveAsk, ReserveRefusal, Store};
use crate::daemon::common::when;

/// Throughput at stores one by one.
#[derive(Debug)]
pub struct Parts {
    pub stores: Vec<String>,
    pub direction: &'static str,
    pub rate: BytesPerSec,
    pub from: String,
    pub span: Nanos,
    pub window: Option<Nanos>,
    pub probability: Option<f64>,
    pub space_bytes: u64,
    pub scope: Option<String>,
    pub holder: String,
}

#[derive(Debug, Args)]
pub struct ShowCalendar {
    /// Only this store.
    store: Option<String>,
    /// From when on.
    #[arg(long, default_value = "now", value_name = "TIME")]
    from: String,
    /// For how long [default: until the last reservation ends, a day at least]
    #[arg(long = "for", value_name = "SPAN", value_parser = read_span)]
    span: Option<Nanos>,
    #[command(flatten)]
    ask: Ask,
}

/// `s0/7`.
pub(super) fn reservation_id(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('/');
    let id = parts.and_then(|(store, number)| Some((store.to_owned(), number.parse().ok()?)));
    let id = id.filter(|(store, _)| config::check_name(store).is_ok());
    id.ok_or_else(|| format!("'{text}' is no reservation; write such as s0/7"))
}

/// Lists what stores have promised, part by part.
pub fn list(ask: Ask) -> anyhow::Result<()> {
    let all: Vec<Reservation> = Client::new(ask.admin)?.get("/v1/reservations")?;
    show::answer(ask.json, &all, || match all.is_empty() {
        true => "nothing is reserved\n".to_owned(),
        false => listed(&all),
    })
}

fn path((store, number): &(String, u64)) -> String {
    format!("/v1/reservations/{store}/{number}")
}

/// Shows the part of one store.
pub(super) fn show_part(id: &(String, u64), ask: Ask) -> anyhow::Result<()> {
    let one: Reservation = Client::new(ask.admin)?.get(&path(id))?;
    show::answer(ask.json, &one, || page(&one))
}

/// Prints the capability of the part of one store once more.
pub(super) fn print_capability(id: &(String, u64), ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let path = format!("{}/capability", path(id));
    let one: Reservation = client.send_json(Method::POST, &path, &())?;
    match &one.given.capability {
        _ if ask.json => show::json(&one),
        Some(capability) => show::text(&format!("{capability}\n")),
        None => Err(Refused(format!(
            "reservation {} is {}: there is no capability yet",
            one.id, one.state
        ))
        .into()),
    }
}

/// Gives the part of one store up; over several stores, all of it.
pub fn delete_part(id: &(String, u64), ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let gone: Vec<Reservation> = client.send_json(Method::DELETE, &path(id), &())?;
    if ask.json {
        return show::json(&gone);
    }
    let gone: Vec<&str> = gone.iter().map(|one| one.id.as_str()).collect();
    show::text(&format!("cancelled {}\n", gone.join(" and ")))
}

/// What is asked for, by the clock of the daemon: this machine's may differ.
fn asked(wanted: &Parts, client: &Client) -> anyhow::Result<ReserveAsk> {
    if wanted.span < Nanos::secs(1) {
        return Err(Usage("--for is at least a second".to_owned()).into());
    }
    let from = match wanted.from.as_str() {
        "now" => None,
        other => Some(when::read(other, now(client)?).map_err(Usage)?.0),
    };
    Ok(ReserveAsk {
        stores: wanted.stores.clone(),
        direction: wanted.direction.to_owned(),
        rate_bytes_per_second: wanted.rate.0,
        from_unix_seconds: from,
        for_seconds: wanted.span.0.div_ceil(Nanos::secs(1).0),
        window_ns: wanted.window.map(|window| window.0),
        probability_percent: wanted.probability,
        space_bytes: wanted.space_bytes,
        scope: wanted.scope.clone(),
        holder: wanted.holder.clone(),
    })
}

/// The daemon's clock.
fn now(client: &Client) -> anyhow::Result<Second> {
    let stores: Vec<Store> = client.get("/v1/stores")?;
    match stores.first() {
        Some(store) => Ok(Second(store.node.now)),
        None => Err(anyhow!(
            "this daemon has no stores: its configuration has no [[store]]"
        )),
    }
}

/// Reserves; prints a capability for each store.
pub fn create(wanted: &Parts, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let asked = asked(wanted, &client)?;
    let made: Result<Vec<Reservation>, ReserveRefusal> =
        client.send_or_refused(Method::POST, "/v1/reservations", &asked)?;
    match made {
        Ok(made) if ask.json => show::json(&made),
        Ok(made) => {
            // The token alone on stdout, so that a script can take it.
            let mut lines = String::new();
            for one in &made {
                eprintln!("{}", sentence(one));
                lines.push_str(one.given.capability.as_deref().unwrap_or_default());
                lines.push('\n');
            }
            // All stores of a daemon are behind one link.
            if let Some(one) = made.iter().find(|one| one.given.link_booked == Some(false)) {
                eprintln!(
                    "tanada: the link of {}'s node is not booked, only the store; set `[network] speed` there to book it",
                    one.store
                );
            }
            show::text(&lines)
        }
        Err(refusal) => {
            if ask.json {
                show::json(&refusal)?;
            }
            Err(refused(&refusal).into())
        }
    }
}

fn refused(refusal: &ReserveRefusal) -> Refused {
    Refused(match &refusal.offer {
        Some(offer) => format!("{}\n{}", refusal.error, instead(offer).trim_end()),
        None => format!("{}; {}", refusal.error, refusal.what_to_do),
    })
}

/// Would it fit? Nothing is set aside.
pub fn offer(wanted: &Parts, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let asked = asked(wanted, &client)?;
    let offer: Offer = client.send_json(Method::POST, "/v1/reservations/offer", &asked)?;
    if ask.json {
        show::json(&offer)?;
    } else if offer.fits {
        show::text(&format!(
            "it fits: {} of {}s on {} from {} to {}\n",
            BytesPerSec(asked.rate_bytes_per_second),
            asked.direction,
            asked.stores.join(" and "),
            when::shown(Second(offer.from_unix_seconds)),
            when::shown(Second(offer.until_unix_seconds))
        ))?;
    } else {
        let reasons: Vec<&str> = offer.refused.iter().map(|it| it.error.as_str()).collect();
        show::text(&format!("{}\n{}", reasons.join("\n"), instead(&offer)))?;
    }
    match offer.fits {
        true => Ok(()),
        false => Err(Refused("it does not fit as asked".to_owned()).into()),
    }
}

/// What would fit, a line each.
fn instead(offer: &Offer) -> String {
    let earliest = match offer.earliest_unix_seconds {
        Some(at) => format!("from {} on", when::shown(Second(at))),
        None => "never".to_owned(),
    };
    let largest = match offer.largest_bytes_per_second {
        Some(rate) => format!("at most {}", BytesPerSec(rate).floored()),
        None => "nothing".to_owned(),
    };
    format!("  at this rate it would fit:  {earliest}\n  in this slot would fit:     {largest}\n")
}

fn sentence(one: &Reservation) -> String {
    let room = match one.space_bytes {
        0 => String::new(),
        bytes => format!(", room for {}", size(bytes)),
    };
    let scope = match one.scope.as_str() {
        "" => String::new(),
        scope => format!(", objects {scope}*"),
    };
    format!(
        "reserved {}: {} of {}s from {} to {}, in {} % of windows of {}{room}{scope}",
        one.id,
        BytesPerSec(one.rate_bytes_per_second),
        one.direction,
        when::shown(Second(one.from_unix_seconds)),
        when::shown(Second(one.until_unix_seconds)),
        one.probability_percent,
        humantime::format_duration(Duration::from_nanos(one.window_ns)),
    )
}

fn listed(all: &[Reservation]) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let or_dash = |text: &str| match text {
                "" => "-".to_owned(),
                text => text.to_owned(),
            };
            vec![
                one.id.clone(),
                or_dash(&one.holder),
                one.direction.clone(),
                BytesPerSec(one.rate_bytes_per_second).to_string(),
                when::shown(Second(one.from_unix_seconds)),
                when::shown(Second(one.until_unix_seconds)),
                or_dash(&one.scope),
                match one.space_bytes {
                    0 => "-".to_owned(),
                    bytes => size(bytes),
                },
                match &one.group {
                    // Enough of it to see who belongs together.
                    Some(group) => group[..8.min(group.len())].to_owned(),
                    None => "-".to_owned(),
                },
                one.state.clone(),
            ]
        })
        .collect();
    table(
        &[
            "RESERVATION",
            "HOLDER",
            "OF",
            "RATE",
            "FROM",
            "UNTIL",
            "OBJECTS",
            "ROOM",
            "GROUP",
            "STATE",
        ],
        &rows,
    )
}

fn page(one: &Reservation) -> String {
    let mut text = format!("{}\n", sentence(one));
    if !one.holder.is_empty() {
        let _ = writeln!(text, "holder: {}", one.holder);
    }
    if one.space_bytes > 0 {
        let _ = writeln!(text, "room not yet written: {}", size(one.space_left_bytes));
    }
    if let Some(group) = &one.group {
        let _ = writeln!(text, "part of a reservation over several stores: {group}");
    }
    let _ = writeln!(
        text,
        "its capability: `tanada reservation capability {}`",
        one.id
    );
    text
}

pub(super) fn calendar(arguments: &ShowCalendar) -> anyhow::Result<()> {
    let client = Client::new(arguments.ask.admin.clone())?;
    let stores: Vec<String> = match &arguments.store {
        Some(store) => vec![store.clone()],
        None => {
            let all: Vec<Store> = client.get("/v1/stores")?;
            all.into_iter().map(|store| store.basics.name).collect()
        }
    };
    let mut query = Vec::new();
    if arguments.from != "now" {
        let from = when::read(&arguments.from, now(&client)?).map_err(Usage)?;
        query.push(format!("from_unix_seconds={}", from.0));
    }
    if let Some(span) = arguments.span {
        let seconds = span.0.div_ceil(Nanos::secs(1).0);
        query.push(format!("for_seconds={seconds}"));
    }
    let mut all: Vec<Calendar> = Vec::new();
    for store in &stores {
        config::check_name(store).map_err(Usage)?;
        let path = format!("/v1/stores/{store}/calendar?{}", query.join("&"));
        all.push(client.get(&path)?);
    }
    if arguments.ask.json {
        return show::json(&all);
    }
    let pages: Vec<String> = all.iter().map(calendar_page).collect();
    show::text(&pages.join("\n"))
}

/// How wide the load is drawn.
const BAR: usize = 20;

fn calendar_page(calendar: &Calendar) -> String {
    let zone = when::local(Second(calendar.now_unix_seconds));
    let mut text = format!(
        "{}, times at {} from UTC\n",
        calendar.store,
        zone.strftime("%:z")
    );
    let at = |second: u64| {
        when::local(Second(second))
            .strftime("%a %Y-%m-%d %H:%M:%S")
            .to_string()
    };
    let rows: Vec<Vec<String>> = calendar
        .stretches
        .iter()
        .map(|stretch| {
            let holders: Vec<String> = calendar
                .reservations
                .iter()
                .filter(|one| {
                    one.from_unix_seconds < stretch.until && stretch.from < one.until_unix_seconds
                })
                .map(|one| {
                    let number = one.id.rsplit('/').next().unwrap_or_default();
                    let way = one.direction.chars().next().unwrap_or('?');
                    let rate = BytesPerSec(one.rate_bytes_per_second);
                    match one.holder.as_str() {
                        "" => format!("{number}:{way} {rate}"),
                        holder => format!("{number}:{holder} {way} {rate}"),
                    }
                })
                .collect();
            let load = stretch.promised_percent;
            let filled = ((load / 100.0 * BAR as f64).round() as usize).min(BAR);
            vec![
                at(stretch.from),
                at(stretch.until),
                format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled)),
                format!("{load:.1} %"),
                format!("{:.1} %", stretch.headroom_percent),
                match holders.is_empty() {
                    true => "free".to_owned(),
                    false => holders.join(", "),
                },
            ]
        })
        .collect();
    text.push_str(&table(
        &["FROM", "UNTIL", "LOAD", "PROMISED", "KEPT FREE", "WHO"],
        &rows,
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::store::ReservationGiven;
    use store::qos::manager::StretchReport;

    #[test]
    fn a_reservation_is_called_by_its_store_and_number() {
        assert_eq!(reservation_id("s0/7"), Ok(("s0".to_owned(), 7)));
        for odd in ["7", "s0/", "s0/x", "../7", "/7"] {
            assert!(reservation_id(odd).unwrap_err().contains("s0/7"), "{odd}");
        }
    }

    #[test]
    fn a_calendar_shows_who_has_what_and_how_full_it_is() {
        let stretch = |from, until, promised| StretchReport {
            from,
            until,
            sessions: 1,
            reads: 85_000_000,
            writes: 0,
            promised_percent: promised,
            headroom_percent: 20.0,
        };
        let page = calendar_page(&Calendar {
            store: "s0".to_owned(),
            now_unix_seconds: 100,
            stretches: vec![stretch(100, 200, 50.0), stretch(200, 300, 0.0)],
            reservations: vec![Reservation {
                id: "s0/7".to_owned(),
                store: "s0".to_owned(),
                state: "committed".to_owned(),
                direction: "read".to_owned(),
                rate_bytes_per_second: 85_000_000,
                window_ns: 1_000_000_000,
                probability_percent: 99.0,
                from_unix_seconds: 100,
                until_unix_seconds: 200,
                space_bytes: 0,
                space_left_bytes: 0,
                scope: String::new(),
                holder: "ann".to_owned(),
                group: None,
                given: ReservationGiven::default(),
            }],
        });
        for expected in [
            "[##########..........]",
            "50.0 %",
            "7:ann r 85 MB/s",
            "free",
            "from UTC",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }
}
