//! An account's quota, with 64 clients that ask at once for the last of it.

use std::error::Error;
use std::thread::Builder;

use serde_json::json;

use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// Requests at once.
const CLIENTS: usize = 64;
/// Of which so many fit the account's quota.
const FIT: usize = 10;

pub fn quota(report: &mut Report) -> Result<(), Box<dyn Error>> {
    // Stores that have room for all of them: it is the quota that refuses.
    let nodes = Nodes::start(Disks::Memory)?;
    let account = [
        "account", "create", "astro", "--role", "booker", "--rate", "100MB/s",
    ];
    nodes.text(1, &account)?;
    let mut asking = Vec::new();
    for nth in 0..CLIENTS {
        let mut socket = nodes.node(1 + nth % 3).connect()?;
        let asked = json!({
            "name": format!("job{nth}"),
            "account": "astro",
            "target": { "stores": [format!("s{}", 1 + nth / 3 % 3)], "scope": "a/" },
            "read": "10MB/s",
            "for": "1h",
        });
        let asked = move || {
            socket
                .ask("POST", "/v2/reservations", &asked)
                .map_err(|it| it.to_string())
        };
        asking.push(Builder::new().spawn(asked)?);
    }
    let (mut granted, mut others) = (0, Vec::new());
    for thread in asking {
        match thread.join().map_err(|_| "a client panicked")?? {
            (201, _) => granted += 1,
            (409, _) => {}
            (status, answer) => others.push(format!("status {status}: {answer}")),
        }
    }
    let all = nodes.node(1).connect()?.get("/v2/reservations")?;
    let all = all.as_array().ok_or("a list")?.iter();
    let standing = all.filter(|it| it["state"] == "committed");
    let rate: u64 = standing
        .filter_map(|it| it["read_bytes_per_second"].as_u64())
        .sum();
    let metric = "booked of 100 MB/s by 64 clients at three nodes";
    report.row(metric, rate as f64 / 1e6, "MB/s", Bar::Exactly(100.0));
    let metric = "answered as made, of 10 that fit";
    report.row(metric, granted as f64, "", Bar::Exactly(FIT as f64));
    let metric = "answered neither 201 nor 409";
    report.row(metric, others.len() as f64, "", Bar::Exactly(0.0));
    for other in others.iter().take(3) {
        report.note(other);
    }
    Ok(())
}
