//! Reservations that are renewed, cancelled and that end, under load.

use std::error::Error;
use std::io::Read;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Report;
use super::load::{Load, Pattern};
use super::nodes::{Disks, Nodes};
use super::windows::{reserve, seconds, volumes};

/// Renewals.
const RENEWALS: usize = 100;
/// Cancels, and as many ends.
const CUTS: usize = 100;
/// What is reserved, in MB/s.
const RATE: u64 = 40;

pub fn amend(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes)?;
    reserve(&nodes, RATE, &["--tolerate", "0", "--for", "30s"])?;
    let _greedy = Load::start(&greedy, 4, Pattern::Random);
    let load = Load::start(&[booked], 8, Pattern::Random);
    sleep(Duration::from_secs(3));
    let mut got = Vec::new();
    for nth in 0..RENEWALS {
        // Now a little more, now a little less, always longer.
        let rate = format!("{}MB/s", RATE + nth as u64 % 3);
        nodes.text(
            1,
            &[
                "reservation",
                "set",
                "night",
                "--read",
                &rate,
                "--for",
                "30s",
            ],
        )?;
        got.extend(seconds(&load, 1));
    }
    let broken = got.iter().filter(|it| **it < RATE as f64).count();
    report.row(
        ("amend", "windows broken in 100 renewals", ""),
        &[broken as f64],
        "0",
        broken == 0,
    );
    Ok(())
}

/// A client of store s1 that reads until it is cut; how long after `end` its last byte came.
fn last_byte(
    nodes: &Nodes,
    capability: &str,
    end: impl FnOnce() -> Result<Instant, Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut client = nodes
        .node(1)
        .tanada(&[
            "object",
            "get",
            "cut/big",
            "-",
            "--store",
            "unix:s.sock",
            "--capability",
            capability,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = client.stdout.take().expect("piped");
    let reader = std::thread::Builder::new().spawn(move || {
        let mut buf = vec![0; 64 << 10];
        let mut last = Instant::now();
        while let Ok(1..) = output.read(&mut buf) {
            last = Instant::now();
        }
        last
    })?;
    sleep(Duration::from_millis(300));
    let ended = end()?;
    let last = reader.join().map_err(|_| "the reader panicked")?;
    let status = client.wait()?;
    if status.success() {
        return Err("it was read to its end before it was cut".into());
    }
    Ok(last.saturating_duration_since(ended).as_secs_f64())
}

/// Reserves reads of the objects in `cut/`; the capability set.
fn reserved(nodes: &Nodes, name: &str, span: &str) -> Result<String, Box<dyn Error>> {
    let of = [
        "--store", "s1", "--read", "20MB/s", "--scope", "cut/", "--for", span,
    ];
    nodes.text(1, &[&["reservation", "create", name], &of[..]].concat())
}

pub fn cut(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let object = vec![7; 200 << 20];
    let key = nodes.dir(1).join("../cluster.node");
    let key = key.to_str().ok_or("a path")?;
    nodes.node(1).feed(
        &[
            "object",
            "put",
            "-",
            "cut/big",
            "--store",
            "unix:s.sock",
            "--node-key",
            key,
        ],
        &object,
    )?;
    let (mut cancelled, mut over): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for nth in 0..CUTS {
        let name = format!("cancel{nth}");
        let set = reserved(&nodes, &name, "1h")?;
        cancelled.push(last_byte(&nodes, set.trim(), || {
            let asked = Instant::now();
            nodes.text(1, &["reservation", "delete", &name])?;
            Ok(asked)
        })?);
    }
    for nth in 0..CUTS {
        let name = format!("end{nth}");
        let set = reserved(&nodes, &name, "2s")?;
        let shown = nodes.json(1, &["reservation", "show", &name, "--json"])?;
        let until = shown["until_unix_seconds"].as_u64().ok_or("an end")?;
        over.push(last_byte(&nodes, set.trim(), || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            Ok(Instant::now() + Duration::from_secs(until).saturating_sub(now))
        })?);
    }
    for (of, all) in [("after 100 cancels", cancelled), ("after 100 ends", over)] {
        let most = all.iter().copied().fold(0.0, f64::max);
        report.row(
            ("cut", &format!("latest last byte {of}"), "s"),
            &[most],
            "<= 1",
            most <= 1.0,
        );
    }
    Ok(())
}
