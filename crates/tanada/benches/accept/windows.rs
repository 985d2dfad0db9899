//! A booked volume beside greedy clients: how many one-second windows does it keep?

use std::error::Error;

use base::Nanos;

use super::Report;
use super::load::{Load, Target, fill};
use super::nodes::{Disks, Nodes};

/// What is reserved, in MB/s.
pub const RATE: u64 = 60;
/// Windows counted.
const SECONDS: usize = 120;
pub const SIZE: u64 = 128 << 20;

/// Two volumes of two copies on three nodes, filled.
pub fn volumes(nodes: &Nodes) -> Result<[Target; 2], Box<dyn Error>> {
    let mut targets = Vec::new();
    for (volume, nth) in [("vm1", 1), ("vm2", 2)] {
        let size = SIZE.to_string();
        nodes.text(
            nth,
            &["volume", "create", volume, "--size", &size, "--copies", "2"],
        )?;
        let target = Target {
            socket: nodes.dir(nth).join("disks.sock"),
            volume,
            size: SIZE,
        };
        fill(&target);
        targets.push(target);
    }
    targets.try_into().map_err(|_| "two volumes".into())
}

/// What a load gets in each of so many seconds, in MB.
pub fn seconds(nodes: &Nodes, load: &Load, count: usize) -> Vec<f64> {
    let mut all = Vec::new();
    let (mut before, mut at) = (load.bytes(), std::time::Instant::now());
    for _ in 0..count {
        nodes.sleep(Nanos::secs(1));
        let (now, then) = (load.bytes(), std::time::Instant::now());
        let span = then.duration_since(at).as_secs_f64();
        all.push((now - before) as f64 / 1e6 / span);
        (before, at) = (now, then);
    }
    all
}

pub fn cluster(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let [booked, greedy] = volumes(&nodes)?;
    let rate = format!("{RATE}MB/s");
    let before = {
        let _greedy = Load::start(&greedy, 16, 4);
        let load = Load::start(&booked, 1, 8);
        nodes.sleep(Nanos::secs(3));
        seconds(&nodes, &load, 10)
    };
    nodes.text(
        1,
        &[
            "reservation",
            "create",
            "night",
            "--volume",
            "vm1",
            "--read",
            &rate,
            "--tolerate",
            "0",
            "--for",
            "1h",
        ],
    )?;
    let _greedy = Load::start(&greedy, 16, 4);
    let load = Load::start(&booked, 1, 8);
    nodes.sleep(Nanos::secs(3));
    let got = seconds(&nodes, &load, SECONDS);
    let kept = got.iter().filter(|it| **it >= RATE as f64).count();
    let share = kept as f64 / got.len() as f64;
    let least = got.iter().copied().fold(f64::MAX, f64::min);
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    report.row(
        ("cluster", "one-second windows kept, of 120", ""),
        &[share],
        ">= .99",
        share >= 0.99,
    );
    report.say(&format!(
        "         got {:.1} MB/s, least in a second {least:.1}; without a reservation {:.1}",
        mean(&got),
        mean(&before)
    ));
    Ok(())
}
