//! How a manager is run.

use std::rc::Rc;

use base::{Bytes, Nanos};
use device::AccountCaps;
use policy::share::{BytesPerSec, Costs, Headroom, Kind};

use crate::qos::network::Network;
use crate::qos::queue::QueueOptions;

/// How fast data are read over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bytes per second, as far as users leave room for it.
    pub rate: BytesPerSec,
    /// So long after a round ended the next one begins.
    pub pause: Nanos,
}

impl Default for ScrubOptions {
    /// 16 MiB/s, a day between rounds.
    fn default() -> Self {
        ScrubOptions {
            rate: BytesPerSec(16 << 20),
            pause: Nanos::secs(24 * 3600),
        }
    }
}

/// How a manager is run.
#[derive(Clone)]
pub struct ManagerOptions {
    /// The scheduler, what the device is taken to cost until it was calibrated, and background's floor and ceiling.
    pub queue: QueueOptions,
    /// What must stay free until it was calibrated.
    pub headroom: Headroom,
    /// Signs capabilities: 32 secret bytes.
    pub signer: [u8; 32],
    /// A client that has these 32 secret bytes may do everything.
    pub node_key: Option<[u8; 32]>,
    /// May clients that show nothing do everything, too? At the beginning.
    pub unauthenticated: bool,
    /// Buffer memory, split among sessions by their rates.
    pub memory: Bytes,
    /// Seconds by which clocks may differ, at the beginning.
    pub skew: u64,
    /// `None`: data are never read over.
    pub scrub: Option<ScrubOptions>,
    /// What tells the device from another one of its name and size, where that is known: what another one was seen to do
    /// does not count.
    pub device_identity: Option<String>,
    /// What accounts get at most, here and wherever else these are used: of clients that come in for themselves. What the
    /// node key does is capped where its clients are.
    pub account_caps: Option<Rc<AccountCaps>>,
    /// The link that what clients read and write crosses, where its speed is known.
    pub network: Option<Rc<Network>>,
    /// Nothing can be promised, for this reason.
    pub best_effort_only: Option<String>,
}

impl ManagerOptions {
    /// Reservation tags on a device that costs this; 64 MiB of buffers, clocks within 5 s, and a scrub.
    pub fn new(costs: Costs, signer: [u8; 32]) -> ManagerOptions {
        ManagerOptions {
            queue: QueueOptions::new(costs),
            headroom: Headroom::default(),
            signer,
            node_key: None,
            unauthenticated: false,
            memory: Bytes::mib(64),
            skew: 5,
            scrub: Some(ScrubOptions::default()),
            device_identity: None,
            account_caps: None,
            network: None,
            best_effort_only: None,
        }
    }

    /// The length in which the scheduler reckons promises.
    pub(crate) fn unit(&self) -> Bytes {
        match self.queue.kind {
            Kind::Tags => self.queue.share.tags.quantum,
            Kind::Fifo | Kind::Rounds | Kind::RoundsJoin => self.queue.share.rounds.unit,
        }
    }
}
