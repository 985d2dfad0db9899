//! Runs the product's path of the replica experiment alone: its rows, one a line.
//!
//! `cargo run --release -p experiments --example replica_product -- SECONDS SEEDS [CASE,CASE [METHOD,METHOD]]`

use base::Nanos;
use experiments::replica::product::{ProductPlan, run};
use experiments::{Options, Part};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| words.get(at).map_or(Ok(usual), |it| it.parse());
    let names = |at: usize| -> Vec<String> {
        let list = words.get(at).map(String::as_str).unwrap_or_default();
        let names = list.split(',').filter(|it| !it.is_empty());
        names.map(str::to_owned).collect()
    };
    let plan = ProductPlan {
        measured: Nanos::secs(number(0, 4)?),
        seed: 1,
        seeds: number(1, 2)?,
        extents: 32,
    };
    let (cases, methods) = (names(2), names(3));
    let options = Options {
        part: Part {
            cases: &cases,
            methods: &methods,
        },
        ..Options::default()
    };
    let mut progress = |what: &str, share: f64| eprintln!("{:3.0} % {what}", share * 100.0);
    for row in run(&plan, options, &mut progress)? {
        println!("{}", serde_json::to_string(&row)?);
    }
    Ok(())
}
