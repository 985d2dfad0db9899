//! What is seen of long work in what a daemon and its cluster say of themselves; pure.
//!
//! Always true: of what gave no answer nothing is seen, and no job of it ends.

use super::{Kind, Progress, State, Work};
use crate::api::cluster::{ClusterStore, Disk};
use crate::api::status::Status;
use crate::api::store::Store;
use crate::api::volume::Volume;
use crate::daemon::metrics::page::ClusterSnapshot;

/// Work on one thing, as it is at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    pub work: Work,
    pub now: Now,
}

/// How it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Now {
    /// It runs: how far it is, and what it does.
    Running(Progress, String),
    /// None runs; so the last one ended, if there was one.
    Ended(State, String),
}

/// All that was seen at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    pub seen: Vec<Sighting>,
    /// Kinds of which everything is seen that is there.
    pub whole: Vec<Kind>,
}

impl Look {
    /// What `status` has of a daemon, and `cluster` of its cluster, if that answered.
    pub fn at(status: &Status, cluster: Option<&ClusterSnapshot>) -> Look {
        let mut look = Look::default();
        for store in &status.stores {
            look.of(Kind::Scrub, &store.basics.name, scrub(store));
            look.of(Kind::Calibrate, &store.basics.name, calibration(store));
        }
        for volume in &status.volumes {
            look.of(Kind::Detach, &volume.name, dirty(volume));
            look.of(Kind::Evacuate, &volume.name, evacuation(volume));
        }
        // One whose records' store is silent shows what it read last: that a drain ended, or began, is not known.
        let heard = cluster.filter(|it| it.meta_silent_seconds.unwrap_or_default() <= 0.0);
        let Some(cluster) = heard else { return look };
        look.whole = vec![Kind::Drain, Kind::Resync];
        for store in &cluster.stores {
            look.of(Kind::Drain, &store.name, drain(store));
        }
        for disk in &cluster.disks {
            look.of(Kind::Repair, &disk.terms.name, resync(disk));
            look.of(Kind::Resync, &disk.terms.name, resync(disk));
        }
        look
    }

    fn of(&mut self, kind: Kind, name: &str, now: Now) {
        let work = Work::new(kind, name);
        self.seen.push(Sighting { work, now });
    }
}

/// A round of a store's scrub.
fn scrub(store: &Store) -> Now {
    let scrub = &store.scrub;
    let progress = Progress::Of {
        done: scrub.read_bytes,
        total: scrub.of_bytes,
    };
    match (&scrub.failed, scrub.bad) {
        _ if scrub.running => Now::Running(progress, String::new()),
        (Some(why), _) => Now::Ended(State::Failed, why.clone()),
        (None, 0) => Now::Ended(State::Done, "no page is bad".to_owned()),
        (None, bad) => Now::Ended(State::Done, format!("{bad} pages are bad")),
    }
}

fn calibration(store: &Store) -> Now {
    let calibrating = &store.calibrating;
    let progress = Progress::Of {
        done: calibrating.done_percent as u64,
        total: 100,
    };
    match &calibrating.failed {
        _ if calibrating.running => Now::Running(progress, calibrating.what.clone()),
        Some(why) => Now::Ended(State::Failed, why.clone()),
        None => Now::Ended(State::Done, String::new()),
    }
}

/// What only the fast device has.
fn dirty(volume: &Volume) -> Now {
    Now::Running(Progress::Left(volume.cache.dirty_bytes), String::new())
}

/// Dirty data leave a fast device that fails.
fn evacuation(volume: &Volume) -> Now {
    match volume.health.as_str() {
        "evacuating" => Now::Running(Progress::Left(volume.cache.dirty_bytes), volume.why.clone()),
        "failed" => Now::Ended(State::Failed, volume.why.clone()),
        _ => Now::Ended(State::Done, String::new()),
    }
}

/// A store is emptied; all nodes see it.
fn drain(store: &ClusterStore) -> Now {
    let left = store.volumes_left.as_deref().unwrap_or_default();
    match (store.state.as_str(), left) {
        ("draining", []) => Now::Ended(State::Done, "nothing is left on it".to_owned()),
        ("draining", left) => Now::Running(
            Progress::Left(left.len() as u64),
            format!("it has something of {}", left.join(", ")),
        ),
        _ => Now::Ended(State::Cancelled, "new data go there again".to_owned()),
    }
}

/// Stores get the writes of a volume that they miss.
fn resync(disk: &Disk) -> Now {
    match &disk.resync {
        Some(resync) if resync.left_bytes > 0 => {
            Now::Running(Progress::Left(resync.left_bytes), disk.why.clone())
        }
        Some(_) => Now::Ended(State::Done, String::new()),
        None => Now::Ended(State::Cancelled, "it is not open here any more".to_owned()),
    }
}
