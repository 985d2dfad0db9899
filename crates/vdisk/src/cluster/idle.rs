//! Volumes that no client has open are kept well: reconciled after a crash, resynced, re-replicated.
//!
//! ```text
//! records, stores, nodes that are up -> which volumes gain by being open (`gain`), and whose turn is it?
//!    -> opened without a user -> the engine resyncs and re-replicates, in class low -> well | wanted elsewhere | stuck -> closed
//! ```
//!
//! What is to be done stands in the volumes' records alone, so any node goes on after any crash. The turn goes round with the
//! record's generation, which grows with each opening: a node that cannot reach the stores does not keep the others from it.
//!
//! Always true:
//! 1. One node at a time has such a volume open, and lets it go when another node wants it.
//! 2. No volume is opened to put more stores out than come back: what all stores of an idle volume have is the same.
//! 3. What its writer did not close is left to it for minutes: it may be cut off from the meta store alone, and its clients wait.
//! 4. What could not be made well is left alone for a time that grows, until stores or nodes change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::Semaphore;

use super::ClusterError;
use super::left::Left;
use super::node::Node;
use super::opened::Openings;
use super::slots::Slot;
use super::stores::{AllStores, StoreState};
use super::up::Up;
use crate::image::tree::Versioned;
use crate::names::{Generation, StoreNumber, VolumeId};
use crate::record::{VolumeRecord, VolumeState, writer_key};
use crate::volume::{Condition, Volume};

/// So many volumes have a place at once on one node.
const AT_ONCE: u64 = 4;
/// So many are open for this in all.
const OPEN_MOST: u64 = 16;
/// One that takes longer goes on without a place: others are not to wait for it.
const PLACE_MOST: Nanos = Nanos::secs(300);
/// Between two looks at how far a volume is.
pub(super) const LOOK: Nanos = Nanos::millis(200);
/// A volume is closed when nothing became better for so long.
const STUCK: Nanos = Nanos::secs(30);
/// A volume that could not be made well is left alone for so long, the first time and at most.
const LEFT_ALONE: Nanos = Nanos::secs(60);
const LEFT_ALONE_MOST: Nanos = Nanos::secs(3600);

/// Why a volume gains by being open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gain {
    /// Its writer did not close it: what may differ is made equal.
    Settled,
    /// Stores that miss changes are up again.
    Resynced,
    /// A store has left, or an extent has fewer copies than it should.
    Replicated,
}

/// Which idle volumes are looked after, and which are left alone.
struct Idle {
    places: Rc<Semaphore>,
    open: Rc<Semaphore>,
    under_way: RefCell<BTreeSet<VolumeId>>,
    stuck: RefCell<BTreeMap<VolumeId, LeftAlone>>,
    /// The stores and nodes there were.
    last: RefCell<(BTreeSet<StoreNumber>, Up)>,
}

#[derive(Clone, Copy)]
struct LeftAlone {
    until: Instant,
    wait: Nanos,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle {
            places: Semaphore::new(AT_ONCE),
            open: Semaphore::new(OPEN_MOST),
            under_way: RefCell::default(),
            stuck: RefCell::default(),
            last: RefCell::default(),
        }
    }
}

impl Idle {
    /// Other stores or nodes may do: what was left alone is tried again.
    fn changed(&self, stores: &AllStores, up: &Up) {
        let active = stores
            .values()
            .filter(|(it, _)| it.state == StoreState::Active);
        let now = (active.map(|(it, _)| it.number).collect(), up.clone());
        if self.last.replace(now.clone()) != now {
            self.stuck.borrow_mut().clear();
        }
    }

    fn is_free(&self, id: VolumeId) -> bool {
        let stuck = self.stuck.borrow();
        let waits = stuck.get(&id).is_some_and(|it| env::now() < it.until);
        !waits && !self.under_way.borrow().contains(&id)
    }

    fn leave_alone(&self, id: VolumeId) {
        let mut stuck = self.stuck.borrow_mut();
        let wait = stuck.get(&id).map_or(LEFT_ALONE, |it| {
            Nanos((it.wait.0 * 2).min(LEFT_ALONE_MOST.0))
        });
        let until = env::now() + wait;
        stuck.insert(id, LeftAlone { until, wait });
    }
}

fn listed(record: &VolumeRecord, stores: &AllStores) -> BTreeSet<StoreNumber> {
    let listed = record.stores.clone();
    listed.unwrap_or_else(|| stores.keys().copied().collect())
}

fn is_up(number: StoreNumber, stores: &AllStores, up: &Up) -> bool {
    let store = stores.get(&number);
    store.is_some_and(|(it, _)| up.serves(it) != Some(false))
}

/// How many stores an opening would remove from the in-sync set now.
pub(super) fn missing(record: &VolumeRecord, stores: &AllStores, up: &Up) -> usize {
    let listed = listed(record, stores);
    let in_sync = listed.iter().filter(|it| !record.out.contains_key(it));
    in_sync.filter(|it| !is_up(**it, stores, up)).count()
}

/// What an idle volume gains if it is opened now; `None`: nothing, or less than it may lose.
pub(super) fn gain(record: &VolumeRecord, stores: &AllStores, up: &Up) -> Option<Gain> {
    let older = record.older_than.is_some_and(|it| it > record.generation);
    if record.state != VolumeState::Live || older {
        return None;
    }
    let (listed, missing) = (listed(record, stores), missing(record, stores, up));
    let is_up = |number: &StoreNumber| is_up(*number, stores, up);
    if missing >= usize::from(record.redundancy_floor.max(1)) {
        return None;
    }
    let back = record.out.keys().filter(|it| is_up(it)).count();
    let all = listed.iter().chain(record.out.keys());
    let left: BTreeSet<&StoreNumber> = all.filter(|it| !stores.contains_key(it)).collect();
    let fits = stores
        .values()
        .filter(|(it, _)| it.state == StoreState::Active && up.serves(it) != Some(false));
    let domains: BTreeSet<_> = fits.map(|(it, _)| &it.domain).collect();
    let room = domains.len() >= usize::from(record.copies);
    let replaced = if room { left.len() } else { 0 };
    if back + replaced > 0 {
        return (missing <= back + replaced).then_some(match back {
            0 => Gain::Replicated,
            _ => Gain::Resynced,
        });
    }
    match missing {
        0 if record.writer.is_some() => Some(Gain::Settled),
        0 if record.out.is_empty() && record.redundancy_floor < record.copies && room => {
            Some(Gain::Replicated)
        }
        _ => None,
    }
}

/// A number that is another one with each try, however many generations that takes: all nodes draw the same.
fn draw(id: VolumeId, tries: u64) -> u64 {
    let both = [u64::from(id.0).to_le_bytes(), tries.to_le_bytes()];
    u64::from(base::crc::crc32c(&both.concat()))
}

/// How far an engine is; something else each time that something became better.
fn progress(volume: &Volume) -> ([u64; 5], usize, u8) {
    let counters = volume.counters();
    let record = volume.record();
    let done = [
        counters.resynced,
        counters.reconciled,
        counters.relocated,
        counters.isr_expands,
        counters.commits,
    ];
    (done, record.out.len(), record.redundancy_floor)
}

/// Is there nothing left to do for a volume?
fn is_well(volume: &Volume, stores: &AllStores) -> bool {
    let record = volume.record();
    let listed = record.stores.iter().flatten();
    record.out.is_empty()
        && record.redundancy_floor == record.copies
        && listed.copied().all(|it| stores.contains_key(&it))
        && volume.is_settled()
        && volume.health().condition == Condition::Healthy
}

/// What keeps them well.
pub(super) struct IdleVolumes {
    node: Rc<Node>,
    openings: Rc<Openings>,
    left: Rc<Left>,
    idle: Idle,
}

impl IdleVolumes {
    pub fn new(node: &Rc<Node>, openings: &Rc<Openings>, left: &Rc<Left>) -> Rc<IdleVolumes> {
        Rc::new(IdleVolumes {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            left: Rc::clone(left),
            idle: Idle::default(),
        })
    }

    pub async fn keep_idle_well(self: &Rc<Self>) {
        if let Err(error) = self.look_for_idle().await {
            self.left.forget();
            tracing::debug!(%error, "idle volumes were not looked at");
        }
    }

    /// Begins with the idle volumes whose turn it is on this node.
    async fn look_for_idle(self: &Rc<Self>) -> Result<(), ClusterError> {
        let (stores, up) = (self.node.stores.all().await?, self.node.stores.up().await?);
        self.idle.changed(&stores, &up);
        let held = self.node.meta.held().await?;
        let records = self.node.meta.volumes().await?;
        self.left.looked(records.values(), &held);
        for known in records.values() {
            let record = &known.record;
            if !self.idle.is_free(record.id) {
                continue;
            }
            let Some(gain) = self.gain_here(known, &stores, &up, &held) else {
                continue;
            };
            tracing::debug!(volume = %record.name, ?gain, "an idle volume is to be made well");
            self.begin_with(record.id);
        }
        Ok(())
    }

    /// What a volume gains if this node opens it now, if it is this node's turn and no node has it open.
    fn gain_here(
        &self,
        known: &Versioned<VolumeRecord>,
        stores: &AllStores,
        up: &Up,
        held: &BTreeSet<String>,
    ) -> Option<Gain> {
        let (record, node) = (&known.record, self.node.name().as_str());
        let Generation(tries) = record.generation;
        let turn = up.turn(draw(record.id, tries));
        let writer = record.writer.as_ref();
        let written = writer.is_some_and(|it| held.contains(&writer_key(it.lease)));
        let ours = turn == Some(node) || writer.is_some_and(|it| it.node == node);
        let free =
            !written && self.node.slots.get(record.id).is_none() && self.left.is_free(known, node);
        let gain = || gain(record, stores, up);
        (ours && free).then(gain).flatten()
    }

    /// Opens a volume until it is well, if it still gains by that. May others try at once?
    async fn make_well(&self, id: VolumeId) -> Result<bool, ClusterError> {
        let (stores, up) = (self.node.stores.all().await?, self.node.stores.up().await?);
        let (held, known) = (
            self.node.meta.held().await?,
            self.node.meta.images.volume(id).await?,
        );
        if self.gain_here(&known, &stores, &up, &held).is_none() {
            return Ok(true);
        }
        self.openings
            .visit(id, async |slot| self.watch(slot).await)
            .await
    }

    fn begin_with(self: &Rc<Self>, id: VolumeId) {
        let own = Rc::clone(self);
        self.idle.under_way.borrow_mut().insert(id);
        env::spawn(async move {
            let place = own.idle.places.acquire(1).await;
            let _open = own.idle.open.acquire(1).await;
            // Much may be another way by now.
            let mut visit = std::pin::pin!(own.make_well(id));
            let well = match env::timeout(PLACE_MOST, &mut visit).await {
                Ok(well) => well,
                Err(_) => {
                    drop(place);
                    visit.await
                }
            };
            match well {
                Ok(true) => drop(own.idle.stuck.borrow_mut().remove(&id)),
                Ok(false) => own.idle.leave_alone(id),
                Err(error) => {
                    tracing::debug!(volume = %id, %error, "an idle volume is not well");
                    own.idle.leave_alone(id);
                }
            }
            own.idle.under_way.borrow_mut().remove(&id);
        });
    }

    /// Waits until a volume is well, has users, is wanted elsewhere, or nothing becomes better. May others try at once?
    async fn watch(&self, slot: &Slot) -> bool {
        let volume = slot.volume();
        let mut last = (progress(volume), env::now());
        loop {
            if slot.users() > 0 || slot.is_given_up() || self.openings.is_stopping() {
                return true;
            }
            let well = is_well(volume, &self.node.stores.known());
            if well {
                return true;
            }
            let now = progress(volume);
            if now != last.0 {
                last = (now, env::now());
            } else if env::now().since(last.1) >= STUCK {
                tracing::info!(volume = %slot.name(), health = ?volume.health(), "cannot be made well now");
                return false;
            }
            env::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::level::LevelRange;
    use crate::cluster::stores::NewStore;
    use crate::cluster::up::Alive;
    use crate::meta::Revision;
    use crate::names::ImageId;
    use crate::record::Writer;

    /// Stores 1 to 4, each on a node of its own.
    fn stores() -> AllStores {
        let record = |number: u16| {
            let new = NewStore {
                name: format!("s{number}").parse().unwrap(),
                uuid: u128::from(number),
                node: format!("n{number}").parse().unwrap(),
                address: "unix:s".to_owned(),
                domain: format!("d{number}").parse().unwrap(),
                rotating: false,
                leased: true,
                number: None,
            };
            let number = StoreNumber(number);
            let record = crate::cluster::stores::StoreRecord::new(&new, number, StoreState::Active);
            (number, (record, Revision(1)))
        };
        (1..=4).map(record).collect()
    }

    fn up(nodes: &[u16]) -> Up {
        let mut up = Up::default();
        for node in nodes {
            up.add(&format!("n{node}"), b"1");
        }
        up
    }

    /// Two copies, on stores 1 and 2.
    fn record(out: &[u16]) -> VolumeRecord {
        let name = "vm1".parse().unwrap();
        let mut record = VolumeRecord::new(VolumeId(3), name, 2, 1, ImageId(9));
        record.generation = Generation(12);
        record.stores = Some([1, 2].map(StoreNumber).into());
        for store in out {
            record.out.insert(StoreNumber(*store), Generation(11));
            record.redundancy_floor -= 1;
        }
        record
    }

    #[test]
    fn an_idle_volume_is_opened_when_it_gains_and_loses_no_copy() {
        let all = [1, 2, 3, 4];
        let mut left = stores();
        left.remove(&StoreNumber(2));
        let (few, mut lone) = (up(&[1]), left.clone());
        lone.retain(|number, _| number.0 == 1);
        let mut unclosed = record(&[]);
        unclosed.writer = Some(Writer {
            node: "n1".to_owned(),
            lease: 7,
            waits: false,
        });
        let mut thin = record(&[]);
        thin.redundancy_floor = 1;
        let mut beyond = record(&[2]);
        beyond.older_than = Some(Generation(1 << 40));
        let (resynced, replicated) = (Some(Gain::Resynced), Some(Gain::Replicated));
        for (what, record, stores, up, expected) in [
            ("well", record(&[]), stores(), up(&all), None),
            (
                "a store is down",
                record(&[]),
                stores(),
                up(&[1, 3, 4]),
                None,
            ),
            (
                "the store that is out is down",
                record(&[2]),
                stores(),
                up(&[1, 3]),
                None,
            ),
            ("it is up again", record(&[2]), stores(), up(&all), resynced),
            (
                "it is up, and the one in sync is not",
                record(&[2]),
                stores(),
                up(&[2, 3]),
                None,
            ),
            (
                "it has left",
                record(&[2]),
                left.clone(),
                up(&all),
                replicated,
            ),
            (
                "it has left, and no other is up",
                record(&[2]),
                left.clone(),
                few.clone(),
                None,
            ),
            (
                "it has left, and no other is there",
                record(&[2]),
                lone,
                up(&all),
                None,
            ),
            (
                "one in sync has left",
                record(&[]),
                left,
                up(&all),
                replicated,
            ),
            (
                "not closed",
                unclosed.clone(),
                stores(),
                up(&all),
                Some(Gain::Settled),
            ),
            (
                "not closed, a store is down",
                unclosed,
                stores(),
                up(&[1, 3]),
                None,
            ),
            ("thin", thin.clone(), stores(), up(&all), replicated),
            (
                "thin, a store is down",
                thin,
                stores(),
                up(&[1, 3, 4]),
                None,
            ),
            ("older than its stores", beyond, stores(), up(&all), None),
        ] {
            assert_eq!(gain(&record, &stores, &up), expected, "{what}");
        }
    }

    /// What a node says that serves this store.
    fn alive(uuid: &str) -> Vec<u8> {
        let stores = Some([uuid.to_owned()].into());
        Alive::new(stores, LevelRange::of_program()).encode()
    }

    #[test]
    fn a_store_that_its_node_does_not_serve_any_more_is_down() {
        let stores = stores();
        let (first, _) = &stores[&StoreNumber(1)];
        let mut up = up(&[2]);
        assert_eq!(up.serves(first), Some(false));
        up.add("n1", b"1");
        assert_eq!(
            up.serves(first),
            Some(true),
            "it does not say which it serves"
        );
        up.add("n1", &alive("ff"));
        assert_eq!(up.serves(first), Some(false));
        up.add("n1", &alive(&first.uuid));
        assert_eq!(up.serves(first), Some(true));
    }

    #[test]
    fn the_turn_goes_round_with_each_try() {
        let up = up(&[1, 2, 3]);
        let turns: Vec<_> = (7..11).map(|number| up.turn(number).unwrap()).collect();
        assert_eq!(turns, ["n2", "n3", "n1", "n2"]);
        assert_eq!(Up::default().turn(7), None);
    }
}
