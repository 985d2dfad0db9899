//! Reservations in words: what was reserved, what there is, why not and what would fit.

use std::fmt::Write as _;
use std::time::Duration;

use policy::share::{BytesPerSec, Second};
use report::terminal::Refused;
use report::terminal::table::table;

use crate::api::reservation::{
    ReservationOffer, ReservationRefusal, ReservationTarget, WholeReservation,
};
use crate::daemon::common::when;

/// `vm1`, `s0 and s1, objects run7/*`.
pub fn target(of: &ReservationTarget) -> String {
    let mut text = match (&of.volume, &of.export) {
        (Some(volume), _) => format!("volume {volume}"),
        (None, Some(export)) => match &of.node {
            Some(node) => format!("export {export} of node {node}"),
            None => format!("export {export}"),
        },
        (None, None) => of.stores.join(" and "),
    };
    if of.stripe {
        text.push_str(" together");
    }
    if let Some(scope) = &of.scope {
        let _ = write!(text, ", objects {scope}*");
    }
    text
}

/// `200 MB/s of reads and 50 MB/s of writes`.
pub fn rates(read: u64, write: u64) -> String {
    let of = |rate: u64, what: &str| format!("{} of {what}", BytesPerSec(rate));
    match (read, write) {
        (read, 0) => of(read, "reads"),
        (0, write) => of(write, "writes"),
        (read, write) => format!("{} and {}", of(read, "reads"), of(write, "writes")),
    }
}

fn whose(one: &WholeReservation) -> String {
    match one.account.as_str() {
        "" => one.name.clone(),
        account => format!("{} of {account}", one.name),
    }
}

/// What a reservation is, in one line.
pub fn sentence(one: &WholeReservation) -> String {
    let at = |second| when::shown(Second(second));
    let mut text = format!(
        "{} ({}): {} of {}, from {} to {}",
        whose(one),
        one.id,
        rates(one.read_bytes_per_second, one.write_bytes_per_second),
        target(&one.target),
        at(one.from_unix_seconds),
        at(one.until_unix_seconds)
    );
    match one.terms.tolerate {
        0 => {}
        1 => text.push_str(", also with one store lost"),
        n => {
            let _ = write!(text, ", also with {n} stores lost");
        }
    }
    text
}

/// What is not promised with it, if anything: the links of these nodes.
pub fn links_not_booked(nodes: &[String]) -> Option<String> {
    let (links, are) = match nodes.len() {
        0 => return None,
        1 => ("link", "is"),
        _ => ("links", "are"),
    };
    Some(format!(
        "tanada: the {links} of {} {are} not booked, only the stores behind; set `[network] speed` there to book it",
        nodes.join(" and ")
    ))
}

/// Everything about one.
pub fn page(one: &WholeReservation) -> String {
    let mut text = format!("{}\nstate: {}\n", sentence(one), one.state);
    if let Some(cause) = &one.cause {
        let _ = writeln!(text, "cause: {cause}");
    }
    if one.terms.allotment {
        text.push_str("an allotment: its account books out of it\n");
    }
    if let Some(allotment) = &one.terms.from_allotment {
        let _ = writeln!(text, "inside the allotment {allotment}");
    }
    if let Some(agent) = &one.terms.agent {
        let _ = writeln!(text, "account {agent} may have its capability, too");
    }
    if one.terms.offline {
        text.push_str(
            "its capabilities are good to its end, also where the meta store is out of reach\n",
        );
    }
    if let Some(idle) = one.terms.idle_seconds {
        let idle = humantime::format_duration(Duration::from_secs(idle));
        let _ = writeln!(
            text,
            "ends by itself when nothing is asked under it for {idle}"
        );
    }
    let now = (
        one.promised_now.read_bytes_per_second,
        one.promised_now.write_bytes_per_second,
    );
    if now != (one.read_bytes_per_second, one.write_bytes_per_second) {
        let _ = writeln!(text, "promised now: {}", rates(now.0, now.1));
    }
    if one.parts.is_empty() {
        return text;
    }
    let part = |part: &crate::api::reservation::ReservationPart| {
        vec![
            format!("{}/{}", part.store, part.number),
            part.direction.clone(),
            BytesPerSec(part.rate_bytes_per_second).to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = one.parts.iter().map(part).collect();
    text + "\n" + &table(&["PART", "OF", "RATE"], &rows)
}

/// All of them, a line each.
pub fn list(all: &[WholeReservation]) -> String {
    let rate = |rate: u64| match rate {
        0 => "-".to_owned(),
        rate => BytesPerSec(rate).to_string(),
    };
    let row = |one: &WholeReservation| {
        vec![
            one.name.clone(),
            match one.account.as_str() {
                "" => "-".to_owned(),
                account => account.to_owned(),
            },
            target(&one.target),
            rate(one.read_bytes_per_second),
            rate(one.write_bytes_per_second),
            when::shown(Second(one.from_unix_seconds)),
            when::shown(Second(one.until_unix_seconds)),
            one.state.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [
        "RESERVATION",
        "ACCOUNT",
        "OF",
        "READS",
        "WRITES",
        "FROM",
        "UNTIL",
        "STATE",
    ];
    table(&head, &rows)
}

/// Why not, and what would fit.
pub fn refused(refusal: &ReservationRefusal) -> Refused {
    Refused(match &refusal.offer {
        Some(offer) => format!("{}\n{}", refusal.error, instead(offer).trim_end()),
        None if refusal.what_to_do.is_empty() => refusal.error.clone(),
        None => format!("{}; {}", refusal.error, refusal.what_to_do),
    })
}

/// Why not, and what would fit, in one line: for a log, or the reason that a scheduler shows.
pub fn refused_line(refusal: &ReservationRefusal) -> String {
    let whole = refused(refusal).to_string();
    let words: Vec<&str> = whole.split_whitespace().collect();
    words.join(" ")
}

/// What would fit, a line each.
pub fn instead(offer: &ReservationOffer) -> String {
    let earliest = match offer.earliest_unix_seconds {
        Some(at) => format!("from {} on", when::shown(Second(at))),
        None => "never".to_owned(),
    };
    let largest = match (&offer.largest, offer.largest_permille) {
        (Some(rate), Some(permille)) if permille < 1000 => {
            format!(
                "at most {rate} ({}.{} % of it)",
                permille / 10,
                permille % 10
            )
        }
        (Some(rate), _) => format!("at most {rate}"),
        (None, _) => "nothing".to_owned(),
    };
    let longest = match offer.longest_seconds {
        Some(seconds) => format!(
            "for {}",
            humantime::format_duration(Duration::from_secs(seconds))
        ),
        None => "not for a second".to_owned(),
    };
    format!(
        "  as asked it would fit:     {earliest}\n  at that time would fit:    {largest}\n  from then on it would fit: \
         {longest}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> ReservationOffer {
        ReservationOffer {
            fits: false,
            earliest_unix_seconds: Some(1_795_345_200),
            largest_permille: Some(700),
            largest: Some("140MB/s".to_owned()),
            largest_read_bytes_per_second: Some(140_000_000),
            largest_write_bytes_per_second: None,
            longest_seconds: Some(3000),
            refused: vec!["s0: full".to_owned()],
        }
    }

    #[test]
    fn a_refusal_says_what_would_fit() {
        let refusal = ReservationRefusal {
            error: "cannot reserve 200 MB/s of reads of vm1".to_owned(),
            what_to_do: "ask for less".to_owned(),
            offer: Some(offer()),
        };
        let said = refused(&refusal).to_string();
        for part in [
            "cannot reserve 200 MB/s",
            "at most 140MB/s (70.0 % of it)",
            "for 50m",
        ] {
            assert!(said.contains(part), "{part} is not in\n{said}");
        }
        assert!(!refused_line(&refusal).contains('\n'));
        let none = ReservationRefusal {
            offer: None,
            ..refusal
        };
        assert!(refused(&none).to_string().ends_with("vm1; ask for less"));
    }

    #[test]
    fn rates_and_targets_are_said_in_words() {
        assert_eq!(rates(200_000_000, 0), "200 MB/s of reads");
        assert_eq!(
            rates(1_000_000, 2_000_000),
            "1 MB/s of reads and 2 MB/s of writes"
        );
        let stores = ReservationTarget {
            stores: vec!["s0".to_owned(), "s1".to_owned()],
            stripe: true,
            scope: Some("run7/".to_owned()),
            ..ReservationTarget::default()
        };
        assert_eq!(target(&stores), "s0 and s1 together, objects run7/*");
    }
}
