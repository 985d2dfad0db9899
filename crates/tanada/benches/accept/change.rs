//! Reservations that are renewed under load: is there a window that is not kept?
//!
//! ```text
//! this thread: set, set, set ...        load: what came in each tenth of a second
//!            '-> when each rate came into force -> each second of the whole run, by the least rate in it
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{Load, Pattern, Span, TICKS_PER_SECOND, tick};
use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};
use super::windows::{Beside, kept, pace, reserve, volumes};

/// Renewals.
const RENEWALS: u64 = 100;
/// What is reserved at least, in MB/s.
const RATE: u64 = 40;
/// Seconds without a reservation.
const FEWER: usize = 15;

/// Which rate was in force from which tick on, in MB/s.
struct InForce(Vec<(usize, u64)>);

impl InForce {
    /// The least that was promised at some time in these ticks.
    fn least(&self, from: usize, until: usize) -> u64 {
        let before = self.0.iter().rev().find(|(at, _)| *at <= from);
        let within = self.0.iter().filter(|(at, _)| *at > from && *at < until);
        let rates = before.into_iter().chain(within);
        rates.map(|(_, rate)| *rate).min().unwrap_or(0)
    }
}

pub fn amend(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes, 2, &[1, 2])?;
    let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
    let booked = Load::start(&[booked], 8, Pattern::RANDOM)?;
    let loads = Beside {
        booked: &booked,
        greedy: &greedy,
        rate: RATE as f64,
    };
    sleep(Duration::from_secs(3));
    loads.without(report, "before", Span::of(FEWER));
    reserve(&nodes, RATE, &["--tolerate", "0", "--for", "30s"])?;
    sleep(Duration::from_secs(3));
    let mut http = nodes.node(1).connect()?;
    let from = Span::begin();
    let mut force = InForce(vec![(from, RATE)]);
    let (mut rate, mut refused) = (RATE, Vec::new());
    for nth in 1..=RENEWALS {
        // Now a little more, now a little less, always longer.
        let next = RATE + nth % 3;
        force.0.push((tick(Instant::now()), rate.min(next)));
        let asked = json!({ "read": format!("{next}MB/s"), "for": "30s" });
        let (status, answer) = http.ask("PATCH", "/v2/reservations/night", &asked)?;
        if status == 200 {
            force.0.push((tick(Instant::now()) + 1, next));
            rate = next;
        } else {
            // It stays as it was.
            force.0.push((tick(Instant::now()) + 1, rate));
            refused.push(format!("renewal {nth}: status {status}: {answer}"));
        }
        sleep(Duration::from_millis(900));
    }
    let span = Span::since(from);
    report.row(
        "renewals refused",
        refused.len() as f64,
        "",
        Bar::Exactly(0.0),
    );
    refused.iter().take(2).for_each(|it| report.note(it));
    let got = booked.seconds(span);
    // What a window is short of its promise, or has beyond it.
    let rates = (0..got.len()).map(|nth| {
        let begin = span.from + nth * TICKS_PER_SECOND;
        force.least(begin, begin + TICKS_PER_SECOND) as f64
    });
    let beyond: Vec<f64> = got
        .iter()
        .zip(rates)
        .map(|(got, rate)| got - rate)
        .collect();
    let broken = beyond.iter().filter(|it| **it < 0.0).count();
    let metric = "windows broken in 100 renewals";
    report.row(metric, broken as f64, "", Bar::Exactly(0.0));
    report.note(&format!(
        "{} windows without a gap; {}; least beyond the promise {:.1}",
        got.len(),
        pace(&got),
        beyond.iter().copied().fold(f64::MAX, f64::min)
    ));
    report.figure("kept of the least rate", kept(&got, RATE as f64), "");
    loads.asked(report, "in renewals", span);
    Ok(())
}
