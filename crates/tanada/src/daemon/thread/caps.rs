//! Caps of exports and volumes as they are open here: who shares one, and what `/v1/status` shows of it.
//!
//! ```text
//! client of an export -> its cap (ours) -> the volume's (the hybrid's, or the cluster's slot's) -> volume
//! ```
//!
//! Always true: all clients of an export share its cap, wherever they come in.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use config::ExportConfig;
use device::cap::Passed;
use device::{AccountCaps, Capped, Device, Throttle};
use policy::share::BytesPerSec;
use policy::share::cap;
use store::qos::manager::{Manager, set_account_weights};

use crate::api::caps as api;

/// What accounts have that is not as usual.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccountTerms {
    /// Their parts of what is not promised.
    pub weights: BTreeMap<String, u32>,
    /// What they get at most.
    pub caps: BTreeMap<String, cap::Caps>,
}

/// The caps of the exports of one data thread, and of accounts there.
#[derive(Default)]
pub struct ThreadCaps {
    exports: Vec<(ExportConfig, Rc<Throttle>)>,
    accounts: Rc<AccountCaps>,
    stores: Vec<Weak<Manager>>,
}

impl ThreadCaps {
    /// There are these exports, each with what its configuration says.
    pub fn set_exports(&mut self, exports: &[ExportConfig]) {
        let of = |export: &ExportConfig| (export.clone(), Throttle::new(export.caps));
        self.exports = exports.iter().map(of).collect();
    }

    /// What accounts get at most.
    pub fn of_accounts(&self) -> &Rc<AccountCaps> {
        &self.accounts
    }

    /// Accounts weigh at this store what [`ThreadCaps::set_accounts`] says.
    pub fn add_store(&mut self, store: &Rc<Manager>) {
        self.stores.push(Rc::downgrade(store));
    }

    /// What accounts weigh, and get at most, from now on.
    pub fn set_accounts(&self, terms: &AccountTerms) {
        self.accounts.set_all(terms.caps.clone());
        for store in self.stores.iter().filter_map(Weak::upgrade) {
            set_account_weights(&store, terms.weights.clone());
        }
    }

    /// That of one, if it has one.
    pub fn of(&self, export: &ExportConfig) -> Option<&Rc<Throttle>> {
        let found = self.exports.iter().find(|(known, _)| known == export);
        let throttle = &found?.1;
        (!throttle.caps().is_none()).then_some(throttle)
    }

    /// What waits may go on: the daemon stops, and answers what it took.
    pub fn lift(&self) {
        for (_, throttle) in &self.exports {
            throttle.set(cap::Caps::default());
        }
        self.accounts.lift();
    }

    /// The device as one client, or all that come in at one place, have it.
    pub fn capped(&self, export: &ExportConfig, device: Rc<dyn Device>) -> Rc<dyn Device> {
        match self.of(export) {
            Some(throttle) => Capped::new(device, throttle),
            None => device,
        }
    }
}

/// For `/v1/status`; nothing where nothing is capped.
pub fn shown(throttle: &Throttle) -> Option<api::Caps> {
    let caps = throttle.caps();
    let figures = throttle.counters();
    (!caps.is_none()).then(|| api::Caps {
        read: Some(passed(figures.read)),
        write: Some(passed(figures.write)),
        ..set(caps)
    })
}

/// As they are set.
pub fn set(caps: cap::Caps) -> api::Caps {
    let rate = |rate: Option<BytesPerSec>| rate.map(|rate| rate.0);
    api::Caps {
        max_read: rate(caps.read.bytes),
        max_write: rate(caps.write.bytes),
        max_read_iops: caps.read.requests,
        max_write_iops: caps.write.requests,
        read: None,
        write: None,
    }
}

fn passed(of: Passed) -> api::Passed {
    api::Passed {
        requests: of.requests,
        bytes: of.bytes.0,
        waited: of.waited,
        waited_seconds: of.wait.secs_f64(),
        waiting: of.waiting,
    }
}
