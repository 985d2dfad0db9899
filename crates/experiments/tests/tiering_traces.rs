//! Other workloads than the paper's: on recorded traces our defaults are never worse than the disk alone.
//!
//! The traces lie outside the project (`TANADA_SHARED`, else `../shared` beside the workspace).

use std::path::{Path, PathBuf};

use experiments::tiering::traces::{WORSE_MAX, compare};

/// Of each trace so many requests: enough for hot places to show, few enough for a test.
const REQUESTS: u64 = 20_000;

/// The folder of traces; none (said aloud) where it is absent and not required.
fn traces() -> Option<PathBuf> {
    let shared = std::env::var_os("TANADA_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    let required = std::env::var("TANADA_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(!required, "no traces in {}", traces.display());
    println!("skipped: no shared traces");
    None
}

#[test]
fn our_defaults_are_never_two_per_cent_worse_than_the_disk_alone() {
    let Some(traces) = traces() else { return };
    let all = compare(&traces, Some(REQUESTS), 1, &mut |_, _| {}).expect("sound traces");
    assert!(all.len() >= 8, "{} traces have places and times", all.len());
    let mut worse = Vec::new();
    for one in &all {
        println!(
            "{}: {} requests{}, mean {:.3} ms for {:.3}",
            one.name,
            one.requests,
            if one.closed { " (closed loop)" } else { "" },
            one.ours_ms[0],
            one.disk_ms[0]
        );
        if !one.holds() {
            worse.push(format!("{}: {:.3} times", one.name, one.ratio()));
        }
    }
    assert!(
        worse.is_empty(),
        "more than {WORSE_MAX} times the disk's mean response: {worse:?}"
    );
}
