//! Do the seeds take the steps that are recorded in `digests.txt`?
//!
//! `trace` is of tasks, which one ran at which nanosecond; `requests` of what the devices were asked, in order.

#[path = "../../../device/tests/recorded/noted.rs"]
pub mod noted;
#[path = "../../../device/tests/recorded/mod.rs"]
mod recorded;

use std::path::Path;
use std::rc::Rc;

use noted::Requests;

use super::{DIRECT_MOVES, MOVES, PLAIN, Plan, managed_moves, run_on};
use crate::{Mover, WriteMode};

/// Each seed does something of everything: caches, moves of both movers, management.
fn plan(seed: u64) -> Plan {
    let plain = Plan {
        modes: &WriteMode::ALL,
        management: true,
        ..PLAIN
    };
    let plans = [plain, MOVES, DIRECT_MOVES, managed_moves(&[Mover::Direct])];
    Plan {
        cuts: 1,
        ..plans[(seed % 4) as usize]
    }
}

#[test]
fn a_seed_takes_the_steps_that_are_recorded() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/crash_run/digests.txt");
    let command = "cargo test -p hybrid crash_run::digests";
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
