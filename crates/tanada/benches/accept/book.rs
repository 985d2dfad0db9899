//! Reserving at three stores whose calendars are nearly full.

use std::error::Error;
use std::time::Instant;

use serde_json::json;

use super::Report;
use super::daemon::post;
use super::nodes::{Disks, Nodes};

/// Reservations in each calendar before it is measured.
const BEFORE: u64 = 9_000;
/// Reservations that are measured.
const MEASURED: usize = 500;

pub fn book(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Files)?;
    let mut socket = nodes.node(1).connect()?;
    let mut took = Vec::new();
    for nth in 0..BEFORE + MEASURED as u64 {
        let asked = json!({
            "name": format!("job{nth}"),
            "target": { "stores": ["s1", "s2", "s3"], "scope": "a/" },
            "read": "10MB/s",
            "from": format!("+{}s", 3600 + 60 * nth),
            "for": "60s",
        });
        let begun = Instant::now();
        let (status, answer) = post(&mut socket, "/v2/reservations", &asked)?;
        if status != 201 {
            return Err(format!("reservation {nth}: status {status}: {answer}").into());
        }
        if nth >= BEFORE {
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    let (median, late) = (at(0.5), at(0.99));
    report.row(
        ("book", "p99 of a reservation of three parts", "ms"),
        &[late],
        "<= 250",
        late <= 250.0,
    );
    report.say(&format!(
        "         median {median:.1} ms, beside {BEFORE} in each calendar"
    ));
    Ok(())
}
