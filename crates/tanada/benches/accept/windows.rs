//! A booked volume beside greedy clients: how many one-second windows does it keep, also when a node dies?

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Report;
use super::load::{Load, Pattern, Target, fill};
use super::nodes::{Disks, Nodes};

/// What is reserved, in MB/s.
const RATE: u64 = 60;
/// Windows counted.
const SECONDS: usize = 120;
/// Windows counted without a reservation, and after a node was lost.
const FEWER: usize = 30;
/// Bytes of the booked volume.
const SIZE: u64 = 128 << 20;
/// Volumes of greedy clients, one client each.
const GREEDY: usize = 16;
const GREEDY_SIZE: u64 = 16 << 20;

/// The booked volume and those of greedy clients: two copies on three nodes, filled, each open at the node that made it.
pub fn volumes(nodes: &Nodes) -> Result<(Target, Vec<Target>), Box<dyn Error>> {
    let make = |export: String, nth: usize, size: u64| -> Result<Target, Box<dyn Error>> {
        let bytes = size.to_string();
        nodes.text(
            nth,
            &[
                "volume", "create", &export, "--size", &bytes, "--copies", "2",
            ],
        )?;
        let target = Target {
            socket: nodes.dir(nth).join("disks.sock"),
            export,
            from: 0,
            size,
        };
        fill(&target);
        Ok(target)
    };
    let booked = make("vm1".to_owned(), 1, SIZE)?;
    let others = (0..GREEDY).map(|nth| make(format!("greedy{nth}"), 1 + nth % 2, GREEDY_SIZE));
    Ok((booked, others.collect::<Result<_, _>>()?))
}

/// Promises reads of vm1.
pub fn reserve(nodes: &Nodes, rate: u64, more: &[&str]) -> Result<(), Box<dyn Error>> {
    let rate = format!("{rate}MB/s");
    let asked = [
        "reservation",
        "create",
        "night",
        "--volume",
        "vm1",
        "--read",
        &rate,
    ];
    nodes.text(1, &[&asked, more].concat())?;
    Ok(())
}

/// What a load gets in each of so many seconds, in MB.
pub fn seconds(load: &Load, count: usize) -> Vec<f64> {
    let mut all = Vec::new();
    let (mut before, mut at) = (load.bytes(), Instant::now());
    for _ in 0..count {
        sleep(Duration::from_secs(1));
        let (now, then) = (load.bytes(), Instant::now());
        let span = then.duration_since(at).as_secs_f64();
        all.push((now - before) as f64 / 1e6 / span);
        (before, at) = (now, then);
    }
    all
}

/// The share of windows with at least `rate`.
pub fn kept(got: &[f64], rate: u64) -> f64 {
    let kept = got.iter().filter(|it| **it >= rate as f64).count();
    kept as f64 / got.len() as f64
}

/// Mean and least of what came in a second.
pub fn pace(got: &[f64]) -> String {
    let least = got.iter().copied().fold(f64::MAX, f64::min);
    let mean = got.iter().sum::<f64>() / got.len() as f64;
    format!("{mean:.1} MB/s, least in a second {least:.1}")
}

pub fn cluster(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes)?;
    let _greedy = Load::start(&greedy, 4, Pattern::Random);
    let load = Load::start(&[booked], 8, Pattern::Random);
    sleep(Duration::from_secs(3));
    let before = seconds(&load, FEWER);
    reserve(&nodes, RATE, &["--tolerate", "0", "--for", "1h"])?;
    sleep(Duration::from_secs(3));
    let got = seconds(&load, SECONDS);
    let share = kept(&got, RATE);
    report.row(
        ("cluster", "one-second windows kept, of 120", ""),
        &[share],
        ">= .99",
        share >= 0.99,
    );
    report.figure(
        ("cluster", "the same without a reservation, of 30", ""),
        &[kept(&before, RATE)],
    );
    report.say(&format!("         got {}", pace(&got)));
    report.say(&format!("         without a reservation {}", pace(&before)));
    Ok(())
}

/// What a list says of the reservation: its state, and which parts it has at which stores.
fn standing(nodes: &Nodes) -> Result<String, Box<dyn Error>> {
    let shown = nodes.json(1, &["reservation", "show", "night", "--json"])?;
    let parts = shown["parts"].as_array().into_iter().flatten();
    let parts: Vec<String> = parts
        .map(|it| format!("{} {}", it["store"], it["number"]))
        .collect();
    Ok(format!("{} {}", shown["state"], parts.join(", ")))
}

pub fn loss(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes)?;
    let _greedy = Load::start(&greedy, 4, Pattern::Random);
    let load = Load::start(&[booked], 8, Pattern::Random);
    reserve(&nodes, RATE, &["--plan", "spread", "--for", "1h"])?;
    sleep(Duration::from_secs(3));
    let whole = seconds(&load, FEWER);
    let before = standing(&nodes)?;
    let killed = Instant::now();
    nodes.kill(3);
    let mut got = Vec::new();
    let mut known = None;
    for _ in 0..SECONDS {
        got.extend(seconds(&load, 1));
        if known.is_none() && standing(&nodes)? != before {
            known = Some(killed.elapsed().as_secs_f64());
        }
    }
    let known = known.unwrap_or(f64::INFINITY);
    report.row(
        ("loss", "until the reservation says so", "s"),
        &[known],
        "<= 20",
        known <= 20.0,
    );
    let broken = got.iter().filter(|it| **it < RATE as f64).count();
    report.row(
        ("loss", "windows broken after a node was killed", ""),
        &[broken as f64],
        "<= 2",
        broken <= 2,
    );
    report.figure(
        ("loss", "windows kept before, of 30", ""),
        &[kept(&whole, RATE)],
    );
    report.say(&format!("         before {}", pace(&whole)));
    report.say(&format!("         after {}", pace(&got)));
    Ok(())
}
