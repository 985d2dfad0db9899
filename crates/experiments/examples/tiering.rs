//! Runs some methods of the tiering experiment: their main table, one line for each method.
//!
//! `cargo run --release -p experiments --example tiering -- METHOD[,METHOD...] [MINUTES]`
//! `cargo run --release -p experiments --example tiering -- traces FOLDER`: our defaults beside the disk alone

use base::Nanos;
use experiments::{Options, tiering};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, folder] = &words[..]
        && word == "traces"
    {
        for one in tiering::traces::compare(folder.as_ref(), None, 1, &mut |_, _| {})? {
            let (disk, ours) = (one.disk_ms, one.ours_ms);
            println!(
                "{} {:.4} times: {ours:.3?} ms, the disk {disk:.3?}",
                one.name,
                one.ratio()
            );
        }
        return Ok(());
    }
    let methods: Vec<String> = match words.first() {
        Some(list) => list.split(',').map(str::to_owned).collect(),
        None => tiering::methods().into_iter().map(str::to_owned).collect(),
    };
    let minutes = words.get(1).map(|text| text.parse::<u64>()).transpose()?;
    let at_most = minutes.map(|minutes| Nanos::secs(60 * minutes));
    let mut progress = |what: &str, share: f64| eprintln!("{:3.0} % {what}", share * 100.0);
    let rows = tiering::run_some(Options::default(), &methods, at_most, &mut progress)?;
    for group in rows.chunk_by(|a, b| (&a.case, &a.method) == (&b.case, &b.method)) {
        println!("{} {}", group[0].case, group[0].method);
        for row in group {
            let figure = row
                .ours
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string);
            print!("  {} {figure}", row.metric);
        }
        println!();
    }
    Ok(())
}
