//! The death of the process alone: with a restart log every answered write is there afterwards.
//!
//! ```text
//! work, faults, ends as in `faults`; each write to the log's memory counts as a step at which the life may end
//! both devices kept what they had -> every answered write must show
//! both devices lost their power -> another boot, with the old log still in memory: it must count for nothing
//! one device lost its power -> another boot, or the same one: what was flushed must be there all the same
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::crash::PowerSupply;
use env::{Mapping, Rng};

use super::faults::{catch, survive};
use super::{Oracle, PLAIN, Plan};
use crate::RestartPlace;
use crate::mutation::{Mutation, plant_at_open};
use crate::{Mode, WriteMode};

/// Memory of the kernel's.
pub(super) struct Shared {
    memory: Mapping,
    boot: Cell<u128>,
    keeps_boot: bool,
    /// Drawn for this alone.
    pub(super) rng: RefCell<Rng>,
    /// The tick at which this life began.
    pub(super) begun: Cell<u64>,
}

impl Shared {
    /// Of a size under which halves are full now and then.
    pub(super) fn new(mutation: Option<Mutation>) -> Rc<Shared> {
        plant_at_open(mutation);
        let mut rng: Rng = env::rng("shared memory");
        let records = [8, 40, 400, 4000][rng.below(4) as usize];
        Rc::new(Shared {
            memory: Mapping::simulated(4096 + 2 * 32 * records),
            boot: Cell::new(1),
            keeps_boot: mutation == Some(Mutation::LogOverReboot),
            rng: RefCell::new(rng),
            begun: Cell::default(),
        })
    }

    /// As the process of this life maps it.
    pub(super) fn of_life(&self, supply: &Rc<PowerSupply>) -> RestartPlace {
        let supply = Rc::clone(supply);
        RestartPlace {
            memory: Rc::new(self.memory.of_process(move || supply.operate())),
            boot: self.boot.get(),
        }
    }

    /// The machine starts anew. What was in memory stays here, as the worst that may be.
    pub(super) fn reboot(&self) {
        if !self.keeps_boot {
            self.boot.set(self.boot.get() + 1);
        }
    }
}

/// Seeds that continuous integration runs of each test here.
const SEEDS: u64 = 60;

impl Oracle {
    /// The process died alone: whatever was answered since tick `begun` stays.
    pub(super) fn survived(&mut self, begun: u64) {
        for version in self.sectors.values_mut().flatten() {
            version.kept |= version.ended.is_some_and(|ended| ended > begun) && !version.advice;
        }
    }

    /// A device lost its power: only what is durable stays.
    pub(super) fn lost_power(&mut self) {
        let versions = self.sectors.values_mut().flatten();
        versions.for_each(|version| version.kept = false);
    }
}

pub(super) const RESTARTS: Plan = Plan {
    modes: &WriteMode::ALL,
    faults: true,
    pairs: true,
    restarts: true,
    ..PLAIN
};

const TIERS: Plan = Plan {
    modes: &[WriteMode::Back, WriteMode::OnlyWrites],
    uses: &[Mode::Tier, Mode::Both],
    ..RESTARTS
};

#[test]
fn a_killed_process_loses_no_answered_write() {
    survive("a_killed_process_loses_no_answered_write", SEEDS, RESTARTS);
}

#[test]
fn a_killed_process_with_a_tier_loses_no_answered_write() {
    survive(
        "a_killed_process_with_a_tier_loses_no_answered_write",
        SEEDS,
        TIERS,
    );
}

#[test]
fn a_killed_process_under_management_loses_no_answered_write() {
    let plan = Plan {
        management: true,
        ..RESTARTS
    };
    survive(
        "a_killed_process_under_management_loses_no_answered_write",
        SEEDS,
        plan,
    );
}

#[test]
fn an_answer_before_its_record_in_the_log_is_caught() {
    let plan = Plan {
        modes: &[WriteMode::Back],
        ..RESTARTS
    };
    catch(Mutation::AnsweredBeforeLog, plan);
}

#[test]
fn a_log_that_counts_after_a_reboot_is_caught() {
    let plan = Plan {
        modes: &[WriteMode::Back],
        ..RESTARTS
    };
    catch(Mutation::LogOverReboot, plan);
}
