//! Prints the rows of the cache experiment, one a line. `--quick` for a short run.

use lens::experiment::{Options, cache};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quick = std::env::args().any(|word| word == "--quick");
    let options = Options {
        quick,
        ..Options::default()
    };
    let rows = cache::run(options, &mut |what, share| {
        eprintln!("{:3.0} % {what}", share * 100.0)
    })?;
    for row in rows {
        println!("{}", serde_json::to_string(&row)?);
    }
    Ok(())
}
