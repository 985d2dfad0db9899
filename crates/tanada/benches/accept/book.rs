//! Reserving at three stores whose calendars are nearly full.
//!
//! ```text
//! 8 clients at three nodes -> 9,500 reservations, each beside tens of others -> 500 that are measured
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use env::Rng;
use serde_json::json;

use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// Reservations in each calendar before it is measured.
const BEFORE: u64 = 9_500;
/// Those that are measured fill it.
const ALL: u64 = 10_000;
const CLIENTS: usize = 8;
/// Slots begin in so many seconds, and last up to so many: about forty are there at a time.
const OVER: u64 = 200_000;
const LONGEST: u64 = 1_600;
/// A store promises about 44 MB/s. Most get in, some do not.
const RATES: (u64, u64) = (100, 1_500);

/// How long answers took, in milliseconds.
#[derive(Default)]
struct Took {
    accepted: Vec<f64>,
    refused: Vec<f64>,
}

/// Books until there are `until` reservations.
fn books(
    nodes: &Nodes,
    client: usize,
    (begin, made, until): (u64, &AtomicU64, u64),
) -> Result<Took, String> {
    let text = |error: Box<dyn Error>| error.to_string();
    let mut http = nodes.node(1 + client % 3).connect().map_err(text)?;
    let mut rng = Rng::from_seed(until * 100 + client as u64);
    let mut took = Took::default();
    for nth in 0.. {
        // A place that is taken and then refused is given back.
        if made.fetch_add(1, Ordering::Relaxed) >= until {
            made.fetch_sub(1, Ordering::Relaxed);
            break;
        }
        let from = begin + rng.below(OVER);
        let from = jiff::Timestamp::from_second(from as i64).map_err(|it| it.to_string())?;
        let asked = json!({
            "name": format!("job{until}-{client}-{nth}"),
            "target": { "stores": ["s1", "s2", "s3"], "scope": "a/" },
            "read": format!("{}kB/s", RATES.0 + rng.below(RATES.1 - RATES.0)),
            "from": from.to_string(),
            "for": format!("{}s", 1 + rng.below(LONGEST)),
        });
        let begun = Instant::now();
        let (status, answer) = http.ask("POST", "/v2/reservations", &asked).map_err(text)?;
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        match status {
            201 => took.accepted.push(millis),
            409 => {
                made.fetch_sub(1, Ordering::Relaxed);
                took.refused.push(millis);
            }
            _ => return Err(format!("{asked}: status {status}: {answer}")),
        }
    }
    Ok(took)
}

/// All clients at once.
fn all_book(nodes: &Nodes, of: (u64, &AtomicU64, u64)) -> Result<Took, Box<dyn Error>> {
    let mut all = Took::default();
    scope(|scope| {
        let clients = (0..CLIENTS).map(|client| scope.spawn(move || books(nodes, client, of)));
        for client in clients.collect::<Vec<_>>() {
            let took = client.join().map_err(|_| "a client panicked")??;
            all.accepted.extend(took.accepted);
            all.refused.extend(took.refused);
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(all)
}

pub fn book(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Files)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Nothing begins or ends meanwhile.
    let begin = (now + Duration::from_secs(7200)).as_secs();
    let made = AtomicU64::new(0);
    let filling = Instant::now();
    all_book(&nodes, (begin, &made, BEFORE))?;
    report.note(&format!(
        "filled in {:.0} s",
        filling.elapsed().as_secs_f64()
    ));
    let took = all_book(&nodes, (begin, &made, ALL))?;
    for (what, mut took) in [("accepted", took.accepted), ("refused", took.refused)] {
        if took.is_empty() {
            report.note(&format!("none was {what}"));
            continue;
        }
        took.sort_by(f64::total_cmp);
        let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
        let metric = format!("p99 of what was {what}, three parts");
        report.row(&metric, at(0.99), "ms", Bar::Most(250.0));
        report.figure(&format!("latest of what was {what}"), at(1.0), "ms");
        report.note(&format!("{} of them, median {:.1} ms", took.len(), at(0.5)));
    }
    let calendar = nodes.node(1).connect()?.get("/v1/stores/s1")?;
    let committed = calendar["node"]["calendar"]["committed"]
        .as_f64()
        .unwrap_or(0.0);
    report.row(
        "reservations in the calendar",
        committed,
        "",
        Bar::Exactly(ALL as f64),
    );
    Ok(())
}
