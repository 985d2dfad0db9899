//! What is asked for, against what there is: a target found, a promise completed, parts planned. Pure.

use std::collections::BTreeSet;

use policy::share::Second;
use vdisk::StoreNumber;

use crate::error::ReservationError;
use crate::plan::{self, Rounding, Wanted};
use crate::record::{Promise, QUEUE, Reservation, ReservationId, Target, Terms};
use crate::stores::{Facts, VolumeFact};

/// What is reserved for, by names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetAsk {
    /// A virtual disk.
    Volume(String),
    /// An export of a node's hybrid that has a queue.
    Export {
        /// Its name.
        name: String,
        /// The node that has it, if it was said.
        node: Option<String>,
    },
    /// Stores.
    Stores {
        /// Their names.
        stores: Vec<String>,
        /// The rate is that of all together.
        stripe: bool,
        /// Objects whose names begin so.
        scope: String,
    },
}

/// What else is to hold for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskTerms {
    /// As [`Terms::idle`].
    pub idle: Option<u64>,
    /// As [`Terms::allotment`].
    pub allotment: bool,
    /// The name or id of the allotment that it is booked inside.
    pub within: Option<String>,
    /// As [`Terms::agent`].
    pub agent: Option<String>,
    /// As [`Terms::offline`].
    pub offline: bool,
}

/// A reservation as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its name.
    pub name: String,
    /// Whose it is to be; empty: the cluster's owner.
    pub account: String,
    /// What for.
    pub target: TargetAsk,
    /// What is to be promised; `tolerate` as far as the target allows.
    pub promise: Promise,
    /// `tolerate` was said, and is not to be less.
    pub tolerate_said: bool,
    /// The begin was said: it is not just now.
    pub from_said: bool,
    /// What else is to hold.
    pub terms: AskTerms,
}

/// A reservation that could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What for.
    pub target: Target,
    /// What is to be promised.
    pub promise: Promise,
    /// Of which parts.
    pub wanted: Vec<Wanted>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ReservationError> {
    Err(ReservationError::Request(why.into()))
}

impl Ask {
    /// What it comes to in this cluster.
    ///
    /// # Errors
    /// [`ReservationError::Request`] with what makes no sense, and what would do.
    pub fn plan(&self, facts: &Facts) -> Result<Planned, ReservationError> {
        let promise = &self.promise;
        if promise.space > 0 && self.terms.allotment {
            return refuse("room is for what is written; ask for it with what is booked inside");
        }
        if promise.space > 0 && promise.write == 0 {
            return refuse("room is for what is written; reserve writes with it");
        }
        let (target, tolerate) = match &self.target {
            TargetAsk::Volume(name) => self.volume(name, facts)?,
            TargetAsk::Export { name, node } => (self.export(name, node.as_deref(), facts)?, 0),
            TargetAsk::Stores {
                stores,
                stripe,
                scope,
            } => (self.stores(stores, *stripe, scope, facts)?, 0),
        };
        let promise = Promise {
            tolerate,
            ..promise.clone()
        };
        let whose = (&*self.name, &*self.account);
        let terms = Terms {
            idle: self.terms.idle,
            allotment: self.terms.allotment,
            // Which it is, its records say.
            within: self.terms.within.as_ref().map(|_| ReservationId(0)),
            agent: self.terms.agent.clone(),
            offline: self.terms.offline,
        };
        let record = Reservation {
            terms,
            ..Reservation::holding(whose, target.clone(), promise.clone(), "", Second(0))
        };
        record.check().map_err(ReservationError::Request)?;
        let wanted = parts(&target, &promise, &record.terms, facts);
        match wanted.is_empty() {
            true => refuse("the cluster has no stores that take data"),
            false => Ok(Planned {
                target,
                promise,
                wanted,
            }),
        }
    }

    /// The same in another slot, at a part of its rates in permille.
    pub(crate) fn with(&self, from: u64, seconds: u64, permille: u64) -> Ask {
        let part = |rate: u64| {
            let part = u128::from(rate) * u128::from(permille) / 1000;
            u64::try_from(part).unwrap_or(rate).max(u64::from(rate > 0))
        };
        Ask {
            promise: Promise {
                from,
                until: from.saturating_add(seconds),
                read: part(self.promise.read),
                write: part(self.promise.write),
                ..self.promise.clone()
            },
            ..self.clone()
        }
    }

    fn volume(&self, name: &str, facts: &Facts) -> Result<(Target, u8), ReservationError> {
        let mut volumes = facts.volumes.iter();
        let Some((id, volume)) = volumes.find(|(_, it)| it.name == *name) else {
            let known: Vec<&str> = facts.volumes.values().map(|it| &*it.name).collect();
            let known = match known.is_empty() {
                true => "there are none".to_owned(),
                false => format!("the volumes are {}", known.join(", ")),
            };
            return refuse(format!("there is no volume {name}; {known}"));
        };
        if volume.holder.is_some() {
            // Its holder may be another account.
            return refuse(format!(
                "volume {name} goes by what a holder of its own reserved at each store; free it with \
                 `tanada volume set {name} holder=` first"
            ));
        }
        if self.promise.space > 0 {
            return refuse("a volume's room is given out extent by extent; leave the room out");
        }
        let most = tolerable(volume, &facts.stores_of(volume));
        let tolerate = self.promise.tolerate;
        if self.tolerate_said && tolerate > most {
            return refuse(format!(
                "volume {name} has {} copies, so at most {most} stores may be lost; ask for tolerate {most}",
                volume.copies
            ));
        }
        let target = Target::Volume {
            name: name.to_owned(),
            id: *id,
        };
        Ok((target, tolerate.min(most)))
    }

    fn export(
        &self,
        name: &str,
        node: Option<&str>,
        facts: &Facts,
    ) -> Result<Target, ReservationError> {
        if let Some(node) = node.filter(|it| *it != facts.node) {
            return refuse(format!(
                "the calendar of an export is its node's alone, and this is node {}; ask at node {node}",
                facts.node
            ));
        }
        if !facts.exports.contains_key(name) {
            let known: Vec<&str> = facts.exports.keys().map(|it| &**it).collect();
            let known = match known.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", known.join(", ")),
            };
            return refuse(format!(
                "node {} has no export {name} of a hybrid with queue = true ({known}); ask at the node that has it",
                facts.node
            ));
        }
        if self.promise.space > 0 {
            return refuse("an export has no room to set aside; leave the room out");
        }
        Ok(Target::Export {
            node: facts.node.clone(),
            name: name.to_owned(),
        })
    }

    fn stores(
        &self,
        names: &[String],
        stripe: bool,
        scope: &str,
        facts: &Facts,
    ) -> Result<Target, ReservationError> {
        if scope.is_empty() && !self.terms.allotment {
            return refuse(
                "no scope is given, or an empty one: the names of its objects begin with it, such as results/",
            );
        }
        let mut stores: Vec<StoreNumber> = Vec::new();
        for name in names {
            let mut known = facts.stores.iter();
            let Some((number, _)) = known.find(|(_, it)| it.name == *name) else {
                let known: Vec<&str> = facts.stores.values().map(|it| &*it.name).collect();
                let known = known.join(", ");
                return refuse(format!(
                    "there is no store {name} in the cluster; the stores are {known}"
                ));
            };
            if stores.contains(number) {
                return refuse(format!("store {name} is named twice; name each once"));
            }
            stores.push(*number);
        }
        Ok(Target::Stores {
            stores,
            stripe,
            scope: scope.to_owned(),
        })
    }
}

/// How many stores of a volume may be lost at most.
fn tolerable(volume: &VolumeFact, stores: &BTreeSet<StoreNumber>) -> u8 {
    let stores = u8::try_from(stores.len()).unwrap_or(u8::MAX);
    volume.copies.min(stores).saturating_sub(1)
}

/// The parts that a reservation of `target` needs, the cluster being so; none where its volume is gone.
pub fn parts(target: &Target, promise: &Promise, terms: &Terms, facts: &Facts) -> Vec<Wanted> {
    let rounding = match terms.within {
        Some(_) => Rounding::Down,
        None => Rounding::Up,
    };
    match target {
        Target::Volume { id, .. } => match facts.volumes.get(id) {
            Some(volume) => {
                let stores = facts.stores_of(volume);
                plan::of_volume(promise, volume.copies, &stores, rounding)
            }
            None => Vec::new(),
        },
        Target::Stores { stores, stripe, .. } => {
            plan::of_stores(promise, *stripe, stores, rounding)
        }
        Target::Export { .. } => plan::of_stores(promise, false, &[QUEUE], rounding),
    }
}

/// Over how many stores a volume's reads are spread, or may be asked for: `c` or `n` of the plan.
pub fn spread_over(record: &Reservation, facts: &Facts) -> u64 {
    match (&record.target, record.promise.plan) {
        (Target::Volume { id, .. }, plan) => {
            let Some(volume) = facts.volumes.get(id) else {
                return 1;
            };
            match plan {
                crate::record::PlanKind::Any => u64::from(volume.copies),
                crate::record::PlanKind::Spread => facts.stores_of(volume).len() as u64,
            }
        }
        (Target::Stores { stores, .. }, _) => stores.len() as u64,
        (Target::Export { .. }, _) => 1,
    }
}
