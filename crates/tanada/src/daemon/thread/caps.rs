//! Caps of exports and volumes as they are open here: who shares one, and what `/v1/status` shows of it.
//!
//! ```text
//! client of an export -> its cap (ours) -> the volume's (the hybrid's, or the cluster's slot's) -> volume
//! ```
//!
//! Always true: all clients of an export share its cap, wherever they come in.

use std::cell::RefCell;
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
    exports: RefCell<Vec<(ExportConfig, Rc<Throttle>)>>,
    accounts: Rc<AccountCaps>,
    stores: RefCell<Vec<Weak<Manager>>>,
    /// As they were set last.
    weights: RefCell<BTreeMap<String, u32>>,
}

impl ThreadCaps {
    /// There are these exports, each with what its configuration says; of one that was there and differs in nothing else the
    /// clients get the new caps at once.
    pub fn set_exports(&self, exports: &[ExportConfig]) {
        let mut own = self.exports.borrow_mut();
        let of = |export: &ExportConfig| {
            let known = own.iter().find(|(known, _)| is_but_capped(known, export));
            let throttle = match known {
                Some((_, throttle)) => Rc::clone(throttle),
                None => Throttle::new(export.caps),
            };
            throttle.set(export.caps);
            (export.clone(), throttle)
        };
        let all = exports.iter().map(of).collect();
        *own = all;
    }

    /// What accounts get at most.
    pub fn of_accounts(&self) -> &Rc<AccountCaps> {
        &self.accounts
    }

    /// Accounts weigh at this store what [`ThreadCaps::set_accounts`] says.
    pub fn add_store(&self, store: &Rc<Manager>) {
        set_account_weights(store, self.weights.borrow().clone());
        let mut stores = self.stores.borrow_mut();
        stores.retain(|it| it.strong_count() > 0);
        stores.push(Rc::downgrade(store));
    }

    /// What accounts weigh, and get at most, from now on.
    pub fn set_accounts(&self, terms: &AccountTerms) {
        self.accounts.set_all(terms.caps.clone());
        self.weights.borrow_mut().clone_from(&terms.weights);
        for store in self.stores.borrow().iter().filter_map(Weak::upgrade) {
            set_account_weights(&store, terms.weights.clone());
        }
    }

    /// That of one, if it has one.
    pub fn of(&self, export: &ExportConfig) -> Option<Rc<Throttle>> {
        let exports = self.exports.borrow();
        let found = exports.iter().find(|(known, _)| known == export);
        let throttle = &found?.1;
        (!throttle.caps().is_none()).then(|| Rc::clone(throttle))
    }

    /// What waits may go on: the daemon stops, and answers what it took.
    pub fn lift(&self) {
        for (_, throttle) in &*self.exports.borrow() {
            throttle.set(cap::Caps::default());
        }
        self.accounts.lift();
    }

    /// The device as one client, or all that come in at one place, have it.
    pub fn capped(&self, export: &ExportConfig, device: Rc<dyn Device>) -> Rc<dyn Device> {
        match self.of(export) {
            Some(throttle) => Capped::new(device, &throttle),
            None => device,
        }
    }
}

/// Do these differ in nothing but how much their clients get at most? One without caps is another export: its clients do
/// not pass any.
pub fn is_but_capped(one: &ExportConfig, other: &ExportConfig) -> bool {
    let same = ExportConfig {
        caps: other.caps,
        ..one.clone()
    };
    same == *other && one.caps.is_none() == other.caps.is_none()
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
