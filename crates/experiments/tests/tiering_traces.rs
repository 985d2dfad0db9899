//! Other workloads than the paper's: on recorded traces our defaults are never worse than the disk alone.
//!
//! The traces lie outside the project (`TANADA_SHARED`, else `../shared` beside the workspace).

use experiments::tiering::traces::{WORSE_MAX, compare};

/// Of each trace so many requests: enough for hot places to show, few enough for a test.
const REQUESTS: u64 = 20_000;

#[test]
fn our_defaults_are_never_two_per_cent_worse_than_the_disk_alone() {
    let Some(traces) = testkit::traces::shared("") else {
        return;
    };
    let all = compare(&traces, Some(REQUESTS), 1, &mut |_, _| {}).expect("sound traces");
    assert!(all.len() >= 8, "{} traces have places and times", all.len());
    let mut worse = Vec::new();
    for one in &all {
        println!(
            "{}: {} requests{}, mean {:.3} ms for {:.3}, {:.3} of the cache alone",
            one.name,
            one.requests,
            if one.closed { " (closed loop)" } else { "" },
            one.ours_ms[0],
            one.disk_ms[0],
            one.cache_ms[0]
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
