//! Do the seeds take the steps that are recorded in `digests.txt`?
//!
//! `trace` is of tasks, which one ran at which nanosecond; `requests` of what the device was asked, in order.

#[path = "../../../../device/tests/recorded/noted.rs"]
pub mod noted;
#[path = "../../../../device/tests/recorded/mod.rs"]
mod recorded;

use std::path::Path;
use std::rc::Rc;

use noted::Requests;

use super::{PLAIN, Plan, run_on};

/// Each seed does something of everything: plain writes, management, a store that is nearly full.
fn plan(seed: u64) -> Plan {
    let managed = Plan {
        management: true,
        ..PLAIN
    };
    let plans = [
        PLAIN,
        managed,
        Plan {
            units: 4,
            ..managed
        },
    ];
    Plan {
        cuts: 2,
        ..plans[(seed % 3) as usize]
    }
}

#[test]
fn a_seed_takes_the_steps_that_are_recorded() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/crash_run/digests.txt");
    let command = "cargo test -p store crash_run::digests";
    recorded::compare(&file, command, |seed| {
        let runtime = env::Runtime::simulated(seed);
        let requests = Rc::new(Requests::default());
        if let Err(why) = run_on(&runtime, plan(seed), &requests) {
            panic!("seed {seed}: {why}");
        }
        vec![
            ("trace", runtime.trace_hash()),
            ("requests", requests.digest()),
        ]
    });
}
