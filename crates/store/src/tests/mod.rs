//! What the store's tests share: a journal of all changes in their order, and a reference model that makes the same.
//!
//! Every change the store makes is one step in memory, and notes itself in the journal in that step. The model of a store
//! after some change is the model before the first, with the journal up to there applied: `BTreeMap` and `Vec`, nothing
//! else.

mod accounts;
mod beside;
mod crash_run;
mod damage;
mod faults;
mod fence;
mod kept;
mod manager;
mod mistakes;
mod model;
mod network;
mod promises;
mod room;
mod terms;
mod trim;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, View};
use device::Class;

use crate::object::record::encode_attributes;
use crate::object::types::Change;
use crate::{Settings, Store, StoreError};

/// One change, as the journal has it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    name: String,
    stamp: Option<u64>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Create(Vec<u8>),
    Write(u64, View),
    Truncate(u64),
    Punch(Range<u64>),
    Attributes(Vec<u8>),
    Rename(String),
    Delete,
}

impl Step {
    fn new(name: &str, change: Change, what: What) -> Step {
        Step {
            name: name.to_owned(),
            stamp: change.stamp,
            what,
        }
    }

    pub fn create(name: &str, attributes: &[u8], change: Change) -> Step {
        Step::new(name, change, What::Create(attributes.to_vec()))
    }

    pub fn write(name: &str, offset: u64, data: &View, change: Change) -> Step {
        Step::new(name, change, What::Write(offset, data.clone()))
    }

    pub fn truncate(name: &str, size: u64, change: Change) -> Step {
        Step::new(name, change, What::Truncate(size))
    }

    pub fn punch(name: &str, hole: Range<u64>, change: Change) -> Step {
        Step::new(name, change, What::Punch(hole))
    }

    pub fn attributes(name: &str, attributes: &[u8], change: Change) -> Step {
        Step::new(name, change, What::Attributes(attributes.to_vec()))
    }

    pub fn rename(name: &str, to: &str, change: Change) -> Step {
        Step::new(name, change, What::Rename(to.to_owned()))
    }

    pub fn delete(name: &str) -> Step {
        Step::new(name, Change::default(), What::Delete)
    }
}

/// An object as the model has it.
#[derive(Clone, Default, PartialEq, Eq)]
struct ModelObject {
    bytes: Rc<Vec<u8>>,
    attributes: Vec<u8>,
    stamp: u64,
}

impl std::fmt::Debug for ModelObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} bytes, crc {:08x}, {} bytes of attributes, mark {}",
            self.bytes.len(),
            base::crc::crc32c(&self.bytes),
            self.attributes.len(),
            self.stamp
        )
    }
}

/// What a store should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model(BTreeMap<String, ModelObject>);

impl Model {
    fn apply(&mut self, step: &Step) {
        if let What::Delete = step.what {
            self.0
                .remove(&step.name)
                .expect("what is deleted was there");
            return;
        }
        if let What::Rename(to) = &step.what {
            let object = self
                .0
                .remove(&step.name)
                .expect("what is renamed was there");
            self.0.insert(to.clone(), object);
        }
        let name = match &step.what {
            What::Rename(to) => to,
            _ => &step.name,
        };
        let object = self.0.entry(name.clone()).or_default();
        object.stamp = step.stamp.unwrap_or(object.stamp);
        match &step.what {
            What::Create(attributes) | What::Attributes(attributes) => {
                object.attributes.clone_from(attributes);
            }
            What::Write(offset, data) => {
                let bytes = Rc::make_mut(&mut object.bytes);
                let (from, to) = (*offset as usize, *offset as usize + data.len());
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(data);
            }
            What::Truncate(size) => Rc::make_mut(&mut object.bytes).resize(*size as usize, 0),
            What::Punch(hole) => {
                let bytes = Rc::make_mut(&mut object.bytes);
                let end = bytes.len();
                bytes[(hole.start as usize).min(end)..(hole.end as usize).min(end)].fill(0);
            }
            What::Rename(_) | What::Delete => {}
        }
    }

    /// What the store holds, read through its doors.
    async fn of(store: &Store) -> Result<Model, StoreError> {
        let mut model = Model::default();
        let mut after: Option<String> = None;
        loop {
            let part = store.list("", after.as_deref(), 3);
            for stat in &part.objects {
                let read = store
                    .read(&stat.name, 0, stat.size, Class::Foreground)
                    .await?;
                let attributes = store.attributes(&stat.name)?;
                let pairs = attributes.iter().map(|(n, v)| (n.as_str(), v.as_slice()));
                let object = ModelObject {
                    bytes: Rc::new(read.to_vec()),
                    attributes: encode_attributes(pairs),
                    stamp: stat.stamp,
                };
                model.0.insert(stat.name.clone(), object);
            }
            match part.next {
                Some(next) => after = Some(next),
                None => return Ok(model),
            }
        }
    }
}

/// Units of 64 KiB, the smallest ledger.
fn small() -> Settings {
    Settings {
        name: "small".to_owned(),
        unit: Bytes::kib(64),
        zone: Bytes::kib(256),
        ledger: Some(Bytes(0)),
        ..Settings::default()
    }
}

/// A device that holds `units` units of [`small`].
fn small_size(units: u64) -> Bytes {
    Bytes::kib(320 + 64 * units)
}

/// Room is divided without a rest.
fn sums_hold(store: &Store) {
    let space = store.space();
    assert_eq!(space.free + space.reserved + space.used, space.total);
    assert!(space.waiting <= space.used);
}

fn pattern(seed: u64, len: usize) -> View {
    let mut bytes = vec![0; len];
    env::Rng::from_seed(seed).fill(&mut bytes);
    View::copy_of(&bytes)
}
