//! By which flow is a session served at the queue, and what did it get there?

use std::cell::Cell;

use base::Bytes;
use device::Class;
use policy::share::{
    Account, OpenError as Full, Priority, SessionCounters, SessionId, Terms, Windows,
};

use super::link::LinkFlows;
use super::rights::Granted;
use crate::qos::state::Core;

/// What a session got.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub delivered: Bytes,
    pub requests: u64,
    pub windows: Windows,
}

impl Sums {
    fn with(mut self, figures: &SessionCounters) -> Sums {
        self.delivered += figures.delivered;
        self.requests += figures.requests;
        self.windows.kept += figures.windows.kept;
        self.windows.no_demand += figures.windows.no_demand;
        self.windows.capacity += figures.windows.capacity;
        self.windows.scheduler += figures.windows.scheduler;
        self
    }
}

/// A session's flow.
#[derive(Default)]
pub(super) struct Flow {
    /// At the queue; `None`: the one all others share.
    now: Cell<Option<SessionId>>,
    /// The same at the node's link.
    pub link: LinkFlows,
    /// What it got in flows it had before.
    before: Cell<Sums>,
    /// Whose its requests are beside others, where nothing is promised.
    pub priority: Cell<Priority>,
}

impl Flow {
    /// Takes a flow of `account` with what is `promised`, or for best effort, and leaves the one it had.
    ///
    /// # Errors
    /// [`Full`] if a promise finds no flow.
    pub fn open(
        &self,
        core: &Core,
        account: Account,
        promised: Option<&Granted>,
    ) -> Result<(), Full> {
        self.leave(core);
        if let Some(network) = &core.options.network {
            let whose = (account, self.priority.get());
            self.link.open(network, whose, promised)?;
        }
        let queue = &core.queue;
        let best_effort_max = core.options.queue.share.limits.sessions_max / 2;
        let flow = match promised {
            Some(granted) => {
                let flow = queue.open(Terms {
                    account,
                    ..granted.terms()
                })?;
                let mut flows = core.log.flows.borrow_mut();
                flows.insert(flow, granted.reservation);
                Some(flow)
            }
            // Half of the flows are for promises.
            None if queue.totals().open >= best_effort_max => None,
            None => {
                let terms = Terms {
                    account,
                    priority: self.priority.get(),
                    ..Terms::best_effort()
                };
                queue.open(terms).ok()
            }
        };
        self.now.set(flow);
        Ok(())
    }

    /// Leaves it for the one all others share.
    pub fn leave(&self, core: &Core) {
        if let Some(flow) = self.now.take()
            && let Some(closed) = core.queue.close(flow)
        {
            self.before.set(self.before.get().with(&closed.figures));
            // What was broken at the end must find whose it was.
            core.take_events();
            core.log.flows.borrow_mut().remove(&flow);
        }
    }

    /// Whose its requests to the device are.
    pub fn class(&self) -> Class {
        match self.now.get() {
            Some(flow) => Class::Session(flow.0),
            None => Class::Foreground,
        }
    }

    /// The figures of all its flows, and what is outstanding.
    pub fn sums(&self, core: &Core) -> (Sums, Bytes) {
        let before = self.before.get();
        let figures = self.now.get().and_then(|flow| core.queue.figures(flow));
        match figures {
            Some(figures) => (before.with(&figures), figures.outstanding),
            None => (before, Bytes(0)),
        }
    }
}
