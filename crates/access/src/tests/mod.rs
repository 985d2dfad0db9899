//! Records in a meta store that fails, hostile bytes, quotas beside a plain sum, and the file of what was done.

mod audit;
mod charging;
mod hostile;
mod limits;
mod registry;
mod removal;

use std::ops::Range;

/// The seeds to run: `TANADA_SEED=S` alone, or 0 to `TANADA_SEEDS` - 1, `least` of them unless asked otherwise.
fn seeds(least: u64) -> Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    match (number("TANADA_SEED"), number("TANADA_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, many) => 0..many.unwrap_or(least),
    }
}
