//! Runs the cache experiment: prints its rows, one a line, or writes the report.
//!
//! `cargo run --release -p experiments --example cache -- [--quick] [--html FILE]`

use experiments::{Options, cache};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let options = Options {
        quick: words.iter().any(|word| word == "--quick"),
        ..Options::default()
    };
    let mut progress = |what: &str, share: f64| eprintln!("{:3.0} % {what}", share * 100.0);
    let rows = cache::run(options, &mut progress)?;
    if let Some(at) = words.iter().position(|word| word == "--html") {
        let file = words.get(at + 1).ok_or("--html wants a file")?;
        std::fs::write(file, report::html(&rows, cache::LISTING.about))?;
        return Ok(());
    }
    for row in rows {
        println!("{}", serde_json::to_string(&row)?);
    }
    Ok(())
}
