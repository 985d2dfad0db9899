//! Hybrids of several lanes through power cuts, faults and deaths of the process: the same runs, with units so short that
//! requests meet all lanes. Each lane has a record of pairs and a restart log of its own.
//!
//! Also with users who reach each lane through a gate, as from another thread: over rings that run full, with delays drawn from
//! the seed.

use std::rc::Rc;

use base::Bytes;
use device::shared::Joined;
use device::{Device, ready, remote};
use env::{Rng, Runtime};

use super::digests::noted::Requests;
use super::restarts::RESTARTS;
use super::{DIRECT_MOVES, PLAIN, Plan, catch, faults, run_on, survive};
use crate::lanes::layout::tests::UNIT;
use crate::mutation::Mutation;
use crate::{Lanes, Mode, WriteMode};

/// Seeds that continuous integration runs of each test here.
const SEEDS: u64 = 120;
/// ... and of each with faults.
const FAULT_SEEDS: u64 = 60;
/// Of each number of lanes so many seeds are run twice.
const TWICE: u64 = 6;

/// From now on new caches of this thread deal out units so short that a request meets several lanes.
pub(super) fn shorten_units(rng: &mut Rng, plan: Plan) {
    let unit = (plan.lanes > 1).then(|| Bytes::kib(16 << rng.below(3)));
    UNIT.set(unit);
}

/// Fewer than the users have requests under way now and then.
const DEPTH: usize = 2;

/// The disk as a thread sees it that owns none of its lanes.
pub(super) async fn through_gate(disk: &Lanes) -> Rc<dyn Device> {
    let mut parts: Vec<Rc<dyn Device>> = Vec::new();
    for lane in disk.lanes() {
        let (gate, owner) = remote::link(DEPTH);
        let lane: Rc<dyn Device> = Rc::new(lane.clone());
        env::spawn(owner.serve(move |_| ready(Ok(remote::Opened::of(Rc::clone(&lane))))));
        let opened = gate.join().open("lane").await;
        parts.push(opened.expect("its owner is there"));
    }
    Joined::new("vol", parts, disk.unit())
}

const MANAGED: Plan = Plan {
    modes: &WriteMode::ALL,
    management: true,
    ..PLAIN
};

const TIERS: Plan = Plan {
    modes: &[WriteMode::Back, WriteMode::OnlyWrites],
    uses: &[Mode::Tier, Mode::Both, Mode::Cache],
    management: true,
    ..PLAIN
};

fn of_lanes(lanes: u32, plan: Plan) -> Plan {
    Plan { lanes, ..plan }
}

#[test]
fn two_lanes_survive_power_cuts() {
    survive(
        "lanes::two_lanes_survive_power_cuts",
        SEEDS,
        of_lanes(2, PLAIN),
    );
}

#[test]
fn four_lanes_survive_power_cuts() {
    survive(
        "lanes::four_lanes_survive_power_cuts",
        SEEDS,
        of_lanes(4, PLAIN),
    );
}

#[test]
fn eight_lanes_survive_power_cuts() {
    survive(
        "lanes::eight_lanes_survive_power_cuts",
        SEEDS,
        of_lanes(8, PLAIN),
    );
}

#[test]
fn two_lanes_under_management_survive_power_cuts() {
    let test = "lanes::two_lanes_under_management_survive_power_cuts";
    survive(test, SEEDS, of_lanes(2, MANAGED));
}

#[test]
fn eight_lanes_under_management_survive_power_cuts() {
    let test = "lanes::eight_lanes_under_management_survive_power_cuts";
    survive(test, SEEDS, of_lanes(8, MANAGED));
}

#[test]
fn four_lanes_with_a_tier_survive_power_cuts() {
    let test = "lanes::four_lanes_with_a_tier_survive_power_cuts";
    survive(test, SEEDS, of_lanes(4, TIERS));
}

#[test]
fn lanes_behind_gates_survive_power_cuts() {
    let plan = Plan {
        remote: true,
        ..of_lanes(4, MANAGED)
    };
    survive("lanes::lanes_behind_gates_survive_power_cuts", SEEDS, plan);
}

#[test]
fn one_lane_behind_a_gate_survives_power_cuts() {
    let plan = Plan {
        remote: true,
        ..PLAIN
    };
    survive(
        "lanes::one_lane_behind_a_gate_survives_power_cuts",
        SEEDS,
        plan,
    );
}

/// What a run did, to the last step.
fn hash(seed: u64, plan: Plan) -> (u64, u64) {
    let runtime = Runtime::simulated(seed);
    let requests = Rc::new(Requests::default());
    if let Err(why) = run_on(&runtime, plan, &requests) {
        panic!("seed {seed}, {} lanes: {why}", plan.lanes);
    }
    (runtime.trace_hash(), requests.digest())
}

#[test]
fn one_seed_gives_one_run_whatever_the_number_of_lanes() {
    for lanes in [1, 2, 4, 8] {
        let mut before = None;
        for seed in 0..TWICE {
            let plans = [MANAGED, TIERS];
            let plan = Plan {
                remote: seed % 3 == 2,
                ..of_lanes(lanes, plans[(seed % 2) as usize])
            };
            let first = hash(seed, plan);
            assert_eq!(first, hash(seed, plan), "seed {seed}, {lanes} lanes");
            assert_ne!(before.replace(first), Some(first));
        }
    }
}

#[test]
fn a_flush_of_one_lane_alone_is_caught() {
    catch(Mutation::OneLaneFlushed, of_lanes(4, PLAIN));
}

#[test]
fn bugs_of_one_lane_are_caught_in_several() {
    catch(Mutation::SkippedFlush, of_lanes(4, PLAIN));
    catch(Mutation::EarlyClean, of_lanes(2, PLAIN));
    catch(Mutation::StaleFill, of_lanes(2, DIRECT_MOVES));
}

#[test]
fn two_lanes_survive_faults() {
    let test = "lanes::two_lanes_survive_faults";
    faults::survive(test, FAULT_SEEDS, of_lanes(2, faults::FAULTS));
}

#[test]
fn four_lanes_in_every_mode_survive_faults_under_management() {
    let test = "lanes::four_lanes_in_every_mode_survive_faults_under_management";
    faults::survive(test, FAULT_SEEDS, of_lanes(4, faults::EVERY_MODE));
}

#[test]
fn eight_lanes_survive_faults() {
    let test = "lanes::eight_lanes_survive_faults";
    faults::survive(test, FAULT_SEEDS, of_lanes(8, faults::FAULTS));
}

#[test]
fn two_lanes_with_a_tier_survive_faults() {
    let test = "lanes::two_lanes_with_a_tier_survive_faults";
    faults::survive(test, FAULT_SEEDS, of_lanes(2, faults::TIERS));
}

#[test]
fn a_killed_process_of_two_lanes_loses_no_answered_write() {
    let test = "lanes::a_killed_process_of_two_lanes_loses_no_answered_write";
    faults::survive(test, FAULT_SEEDS, of_lanes(2, RESTARTS));
}

#[test]
fn a_killed_process_of_eight_lanes_loses_no_answered_write() {
    let test = "lanes::a_killed_process_of_eight_lanes_loses_no_answered_write";
    faults::survive(test, FAULT_SEEDS, of_lanes(8, RESTARTS));
}

#[test]
fn a_killed_process_of_four_lanes_under_management_loses_no_answered_write() {
    let test = "lanes::a_killed_process_of_four_lanes_under_management_loses_no_answered_write";
    let plan = Plan {
        management: true,
        ..of_lanes(4, RESTARTS)
    };
    faults::survive(test, FAULT_SEEDS, plan);
}

#[test]
fn a_mistake_in_the_record_of_one_of_several_lanes_is_caught() {
    faults::catch(Mutation::UnrecordedDirty, of_lanes(4, faults::FAULTS));
    faults::catch(Mutation::OlderAccepted, of_lanes(2, faults::FAULTS));
}

#[test]
fn a_mistake_in_the_log_of_one_of_several_lanes_is_caught() {
    let plan = Plan {
        modes: &[WriteMode::Back],
        ..of_lanes(4, RESTARTS)
    };
    faults::catch(Mutation::AnsweredBeforeLog, plan);
    faults::catch(Mutation::LogOverReboot, plan);
}
