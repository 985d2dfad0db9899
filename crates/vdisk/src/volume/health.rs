//! How a volume is, and why, for operators.
//!
//! Always true: the worst is said first; what is said names the stores it is about.

use std::rc::Rc;

use super::error::in_words;
use super::replica::Replica;
use super::room::Room;
use super::state::Core;
use super::status::{Condition, Health};
use crate::names::StoreNumber;
use crate::record::OnMetaLoss;

/// Says how the volume is.
#[derive(Clone, Copy)]
pub(super) struct HealthReport<'a> {
    core: &'a Rc<Core>,
}

impl<'a> HealthReport<'a> {
    pub fn of(core: &'a Rc<Core>) -> HealthReport<'a> {
        HealthReport { core }
    }

    pub(super) fn health(self) -> Health {
        let core = self.core;
        let record = core.volume_record().clone();
        let report = |condition, why: String| Health { condition, why };
        if let Err(error) = core.usable() {
            return report(Condition::Offline, error.to_string());
        }
        let lease = self.health_of_lease();
        let offline = |it: &&Health| it.condition == Condition::Offline;
        if let Some(health) = lease.as_ref().filter(offline) {
            return health.clone();
        }
        let out: Vec<StoreNumber> = record.out.keys().copied().collect();
        let redundancy_floor = core.redundancy_floor(&record.out, record.copies);
        let silent = self.silent();
        if !silent.is_empty() && silent.len() >= usize::from(redundancy_floor) {
            let why = format!(
                "an extent may have only {redundancy_floor} in-sync copies, and these do not answer: {}",
                in_words(&Room::of(core).out_in_words(&silent))
            );
            return report(Condition::Offline, why);
        }
        if redundancy_floor < record.terms.min_isr {
            let why = format!(
                "an extent has {redundancy_floor} in-sync copies, and writes must reach {}; out: {}",
                record.terms.min_isr,
                in_words(&Room::of(core).out_in_words(&out))
            );
            return report(Condition::ReadOnly, why);
        }
        if let Some(mut why) = Room::of(core).full_in_words() {
            if !out.is_empty() {
                why = format!(
                    "{why}; out: {}",
                    in_words(&Room::of(core).out_in_words(&out))
                );
            }
            return report(Condition::Full, why);
        }
        if let Some(why) = self.resyncing_in_words(&out) {
            return report(Condition::Resyncing, why);
        }
        if !out.is_empty() || !silent.is_empty() {
            return report(Condition::Degraded, away_in_words(core, &out, &silent));
        }
        if redundancy_floor < record.copies {
            let copies = record.copies;
            let why = format!("an extent has {redundancy_floor} of {copies} copies");
            return report(Condition::Degraded, why);
        }
        if let Some(why) = self.lost_in_words() {
            return report(Condition::Degraded, why);
        }
        lease.unwrap_or_else(|| report(Condition::Healthy, String::new()))
    }

    /// What is being resynced of the stores that are out, and what holds it up; none if nothing is.
    fn resyncing_in_words(self, out: &[StoreNumber]) -> Option<String> {
        let replicas = || out.iter().filter_map(|one| self.core.replicas.get(*one));
        if replicas().all(|it| it.state().synced.is_empty()) {
            return None;
        }
        let mut held = replicas().filter_map(|it| it.resync_error.borrow().clone());
        let held = held.next().map_or(String::new(), |why| format!("; {why}"));
        let stores = in_words(&Room::of(self.core).out_in_words(out));
        Some(format!("bringing back {stores}{held}"))
    }

    /// Stores that are in sync, have something of the volume, and do not answer for some time.
    fn silent(self) -> Vec<StoreNumber> {
        let record = self.core.volume_record();
        let listed = record.stores.as_ref();
        let uses = |it: &&Replica| {
            let number = it.info.number;
            listed.is_none_or(|all| all.contains(&number)) && it.is_needed()
        };
        let long = self.core.settings.timeout;
        let silent =
            |it: &&Replica| it.connection().is_none() && env::now().since(it.answered.get()) > long;
        let all = self.core.replicas.values().filter(uses).filter(silent);
        all.map(|it| it.info.number).collect()
    }

    /// What the lease says of the volume's health, if it says anything.
    fn health_of_lease(self) -> Option<Health> {
        let age = self.core.lease.age();
        let requests = match self.core.volume_record().terms.on_meta_loss {
            OnMetaLoss::Wait => "wait until it does".to_owned(),
            OnMetaLoss::Fail => format!("fail after {}", self.core.settings.deadline),
        };
        let on = self.core.volume_record().terms.on_meta_loss.as_str();
        if !self.core.lease.holds() {
            let why = format!(
                "the meta store has not answered for {age}, and the lease has run out: requests {requests} (on_meta_loss = {on})"
            );
            let condition = Condition::Offline;
            return Some(Health { condition, why });
        }
        let settings = &self.core.settings;
        let counted = settings.counted(settings.lease);
        if age.0 < self.core.settings.lease.0 / 2 {
            return None;
        }
        let why = format!(
            "the meta store has not answered for {age}; from {} on requests {requests} (on_meta_loss = {on})",
            counted
        );
        let condition = Condition::Degraded;
        Some(Health { condition, why })
    }

    /// The first of what no in-sync copy has, in words; `None`: there is nothing.
    fn lost_in_words(self) -> Option<String> {
        self.core.repairing.last.borrow().lost_in_words()
    }

    /// Why a store is refused, if one is.
    fn refused_store(self) -> Option<String> {
        let mut replicas = self.core.replicas.values();
        replicas.find_map(|it| {
            let why = it.age.borrow().refused().map(str::to_owned);
            why.filter(|_| !self.core.replicas.has_left(it.info.number))
        })
    }
}

/// Which stores are out or do not answer, and which were refused.
fn away_in_words(core: &Rc<Core>, out: &[StoreNumber], silent: &[StoreNumber]) -> String {
    let of = |what: &str, which: &[StoreNumber]| match which.is_empty() {
        true => None,
        false => Some(format!(
            "{what}: {}",
            in_words(&Room::of(core).out_in_words(which))
        )),
    };
    let why = [of("out", out), of("not answering", silent)];
    let why = why
        .into_iter()
        .flatten()
        .chain(HealthReport::of(core).refused_store());
    why.collect::<Vec<String>>().join("; ")
}
