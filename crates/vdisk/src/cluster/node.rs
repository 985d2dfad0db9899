//! What all parts of a cluster stand on: how this node takes part, the records, its stores, open volumes and lease.

use super::lease::NodeLease;
use super::levels::Levels;
use super::records::MetaRecords;
use super::settings::Settings;
use super::slots::Slots;
use super::stores::StoreTable;
use crate::record::Name;
use std::rc::Rc;

/// One node of the cluster.
pub(super) struct Node {
    pub settings: Settings,
    pub meta: MetaRecords,
    pub stores: Rc<StoreTable>,
    pub slots: Rc<Slots>,
    pub lease: NodeLease,
    pub levels: Rc<Levels>,
}

impl Node {
    /// What it is called.
    pub fn name(&self) -> &Name {
        &self.settings.node
    }
}
