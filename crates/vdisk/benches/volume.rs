//! What does a volume cost beside the stores it is in?
//!
//! ```text
//! cargo bench -p vdisk --bench volume -- [--dir DIR] [--runs N] [--json]
//!
//! 1 MiB in order, 4 at once: written where nothing is, over that, read | 4 KiB anywhere, 16 at once: written, read
//! each write durable before it is answered
//! store: the objects of a store in this process | volume: the same store through a volume of one copy
//!
//! 4 KiB, 64 KiB, 1 MiB anywhere, one at a time, three copies
//! slowest: the same to three stores at once, until the last has it | volume: a volume of three copies in them
//! ```
//!
//! On real files of a folder (the working directory unless an argument names another), written over once before anything is measured, all in
//! this process; the meta store is in memory. Rates are the median of the runs with the lowest and the highest; a ratio is one of rates of
//! the same run. The store comes first in every other run.
#![allow(clippy::print_stdout)]

#[path = "../tests/beside/mod.rs"]
mod beside;
#[path = "../../../benches/figures.rs"]
mod figures;

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Sector, View};
use device::{DeviceExt, FileOptions};
use env::Runtime;
use env::fs::Direct;
use env::sync::join_all;
use store::Change;
use store::qos::manager::Manager;
use vdisk::replica::connect::{Connector, LocalConnector};

use beside::{Amount, CASES, EXTENT, MIB, Rates, anywhere};
use figures::Results;

/// Of which each run makes its rates.
const AMOUNT: Amount = Amount {
    mib: 1024,
    small: 20_000,
};

/// A store of its own on the file.
async fn node(path: &Path) -> Rc<Manager> {
    let options = FileOptions {
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    let disk = device::File::open("bench", path, options).expect("the file was just made");
    beside::node(disk).await
}

/// The store or the volume, each in a store of its own on the same file.
fn on(path: &Path, through: bool) -> Rates {
    let path = path.to_path_buf();
    let runtime = Runtime::real(env::RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let node = node(&path).await;
        beside::of(node, through, AMOUNT).await
    })
}

/// Once each; who comes first changes.
fn run(path: &Path, nth: usize) -> [Rates; 2] {
    if nth.is_multiple_of(2) {
        [on(path, false), on(path, true)]
    } else {
        let volume = on(path, true);
        [on(path, false), volume]
    }
}

// --- three copies -------------------------------------------------------------------------------------

const LENGTHS: [u64; 3] = [4 << 10, 64 << 10, MIB];
/// Of each length.
const WRITES: u64 = 1_000;
/// What is written over: all of it is there before.
const RANGE: u64 = 128 * MIB;

/// Median and 99th percentile of writes one after the other, in microseconds.
async fn latency<F: Future<Output = ()>>(len: u64, write: impl Fn(u64) -> F) -> [f64; 2] {
    let mut took = Vec::new();
    for at in 0..WRITES {
        let begun = env::now();
        write(anywhere(at, RANGE / MIB) / len * len).await;
        took.push(env::now().since(begun).0 as f64 / 1e3);
    }
    took.sort_by(f64::total_cmp);
    [took[took.len() / 2], took[took.len() * 99 / 100]]
}

/// For each length: at the slowest store, through the volume.
async fn of_copies(paths: &[PathBuf]) -> Vec<[[f64; 2]; 2]> {
    let mut nodes = Vec::new();
    for path in paths {
        nodes.push(node(path).await);
    }
    let mut links = Vec::new();
    for node in &nodes {
        let connector = LocalConnector(Rc::clone(node));
        links.push(connector.open("g/bench", 1).await.expect("sealed"));
    }
    let volume = beside::volume(&nodes, RANGE).await;
    let all = View::copy_of(&vec![7; MIB as usize]);
    let direct = async |at: u64, data: View| {
        let name = format!("object {}", at / EXTENT);
        let change = Change::FUA.creating();
        let each = links
            .iter()
            .map(|link| link.write(&name, at % EXTENT, data.clone(), change));
        for wrote in join_all(each.collect::<Vec<_>>()).await {
            wrote.expect("a write");
        }
    };
    let through = async |at: u64, data: View| {
        volume
            .write_at(Sector(at / 512), data)
            .await
            .expect("a write");
    };
    for at in 0..RANGE / MIB {
        direct(at * MIB, all.clone()).await;
        through(at * MIB, all.clone()).await;
    }
    let mut rates = Vec::new();
    for len in LENGTHS {
        let data = View::copy_of(&vec![8; len as usize]);
        rates.push([
            latency(len, |at| direct(at, data.clone())).await,
            latency(len, |at| through(at, data.clone())).await,
        ]);
    }
    volume.close().await.expect("a close");
    rates
}

fn print_copies(figures: &mut Results, all: &[Vec<[[f64; 2]; 2]>]) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        for (which, name) in ["median", "p99"].into_iter().enumerate() {
            let of = |through: usize| -> Vec<f64> {
                all.iter().map(|run| run[n][through][which]).collect()
            };
            let ratio = all.iter().map(|run| run[n][1][which] / run[n][0][which]);
            let ratio: Vec<f64> = ratio.collect();
            let case = format!("write {} KiB x 1, three copies, {name}", len >> 10);
            figures.add((&case, "store", "time", "us"), &of(0), "real");
            figures.add((&case, "volume", "time", "us"), &of(1), "real");
            figures.add((&case, "ratio", "volume / store", ""), &ratio, "real");
            figures.say(&format!(
                "{case:<42}: slowest copy {} us, volume {} us, ratio {}",
                spread(of(0)),
                spread(of(1)),
                spread(ratio)
            ));
        }
    }
}

/// A file that is all there.
fn filled(path: &Path, mib: u64) {
    let mut file = std::fs::File::create(path).expect("the folder takes files");
    for _ in 0..mib {
        file.write_all(&vec![0; MIB as usize])
            .expect("there is room");
    }
    file.sync_all().expect("the disk is well");
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (median, last) = (values[values.len() / 2], values.len() - 1);
    match median >= 10.0 {
        true => format!("{median:.0} ({:.0} to {:.0})", values[0], values[last]),
        false => format!("{median:.3} ({:.3} to {:.3})", values[0], values[last]),
    }
}

fn value(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|it| it == name)?;
    args.get(at + 1).cloned()
}

fn main() {
    let dir = value("--dir").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let runs = value("--runs").map_or(5, |it| it.parse().expect("--runs wants a number"));
    let dir = tempfile::Builder::new()
        .prefix("tanada-bench-")
        .tempdir_in(dir)
        .expect("--dir wants a folder that takes files");
    let path = dir.path().join("disk");
    filled(&path, 2 * AMOUNT.mib);
    let all: Vec<[Rates; 2]> = (0..runs).map(|nth| run(&path, nth)).collect();
    let mut figures = Results::new("volume");
    figures.say(&format!(
        "a real file, {runs} runs: median (lowest to highest)"
    ));
    for (n, (case, unit)) in CASES.into_iter().enumerate() {
        let of = |which: usize| -> Vec<f64> { all.iter().map(|run| run[which][n]).collect() };
        let ratio: Vec<f64> = all.iter().map(|run| run[1][n] / run[0][n]).collect();
        figures.add((case, "store", "rate", unit), &of(0), "real");
        figures.add((case, "volume", "rate", unit), &of(1), "real");
        figures.add((case, "ratio", "volume / store", ""), &ratio, "real");
        figures.say(&format!(
            "{case:<20} store {} {unit}, volume {} {unit}, ratio {}",
            spread(of(0)),
            spread(of(1)),
            spread(ratio)
        ));
    }
    let paths: Vec<PathBuf> = (1..=3)
        .map(|n| dir.path().join(format!("copy {n}")))
        .collect();
    for path in &paths {
        filled(path, 8 * RANGE / MIB);
    }
    let copies = (0..runs).map(|_| {
        let (paths, config) = (paths.clone(), env::RealConfig::default());
        let runtime = Runtime::real(config).expect("a runtime");
        runtime.block_on(async move { of_copies(&paths).await })
    });
    print_copies(&mut figures, &copies.collect::<Vec<_>>());
    figures.finish();
}
