//! The commands that other threads send to a data thread, and its answers.
//!
//! ```text
//! ThreadHandle -> Command -> mailbox of the data thread -> Reply
//! ```
//!
//! Always true: an answer whose asker has gone away is dropped.

use std::rc::Rc;
use std::thread::JoinHandle;

use config::{ExportConfig, HybridConfig, StoreConfig};
use env::Poster;
use env::net::Address;
use hybrid::WriteMode;
use policy::share::cap::Caps;
use policy::tier::Parameters;
use sim::advise::tier::{History, Terms};
use tokio::sync::oneshot;
use vdisk::record::Name;

use super::caps::AccountTerms;
use super::cluster::OpenCluster;
use super::gateway::OnVolume;
use super::queued::Queued;
use super::refused::Refused;
use super::store::OpenStore;
use crate::api;
use crate::api::clients::{Gone, Which};
use crate::api::settings::Override;
use crate::api::volume::{Attach, Change};
use crate::daemon::common::heartbeat::Heartbeat;

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<T>;

/// The queue beneath the hybrid of an export.
pub struct QueueOf {
    pub queued: Rc<Queued>,
    /// How the hybrid writes.
    pub write: WriteMode,
    /// What clients get at most: of the export, and of its volume.
    pub caps: [Caps; 2],
}

/// A command about one hybrid.
pub enum VolumeCommand {
    Detach {
        volume: String,
        reply: Reply<Result<api::volume::Volume, Refused>>,
    },
    Attach {
        volume: String,
        attach: Attach,
        reply: Reply<Result<api::volume::Volume, Refused>>,
    },
    Settings(SettingsCommand),
    Advice {
        volume: String,
        reply: Reply<Result<api::volume::Advice, Refused>>,
    },
    Heat {
        volume: String,
        ask: api::tier::Ask,
        reply: Reply<Result<api::tier::Heat, Refused>>,
    },
    Moves {
        volume: String,
        ask: api::tier::Ask,
        reply: Reply<Result<api::tier::Moves, Refused>>,
    },
    /// What a volume with a tier counted.
    TierState {
        volume: String,
        /// By a client; else by the task that keeps parameters current.
        asked: bool,
        reply: Reply<Result<TierState, Refused>>,
    },
}

/// A command about the settings of one hybrid.
pub enum SettingsCommand {
    Change {
        volume: String,
        change: Box<Change>,
        /// It is to be kept, too.
        lasts: bool,
        /// Whose change it is, for the log.
        who: String,
        reply: Reply<Result<api::volume::Volume, Refused>>,
    },
    /// A change is written, and lasts.
    Saved {
        volume: String,
        change: Box<Change>,
        reply: Reply<Result<(), Refused>>,
    },
    /// These settings go back to what the configuration says.
    Reset {
        volume: String,
        keys: Vec<String>,
        /// Whose change it is, for the log.
        who: String,
        reply: Reply<Result<api::volume::Volume, Refused>>,
    },
    /// The configuration was read anew.
    Configure {
        volume: String,
        config: Box<HybridConfig>,
        /// Only whether it can go by that.
        is_check: bool,
        reply: Reply<Result<api::volume::Volume, Refused>>,
    },
    /// Which settings are not as the configuration says?
    Overrides {
        volume: String,
        reply: Reply<Result<Vec<Override>, Refused>>,
    },
}

impl From<SettingsCommand> for VolumeCommand {
    fn from(command: SettingsCommand) -> VolumeCommand {
        VolumeCommand::Settings(command)
    }
}

/// A step of a change that several threads make together, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Can it be made? What it needs is opened.
    Check,
    Apply,
    /// Another thread cannot: what was opened is closed.
    GiveUp,
}

/// A step towards these exports, and stores on these terms.
pub struct EntrancesChange {
    pub step: Step,
    pub exports: Vec<ExportConfig>,
    /// Those that are open.
    pub stores: Vec<StoreConfig>,
    pub reply: Reply<Result<(), Refused>>,
}

/// A command to a data thread.
pub enum Command {
    Report(Reply<ThreadReport>),
    /// Something to be done with a hybrid.
    Volume(VolumeCommand),
    /// End the connections of NBD clients; answers with those that were.
    Disconnect {
        which: Which,
        reply: Reply<Vec<Gone>>,
    },
    /// Something to be done with a store; the sender has its own way to learn of the end.
    Store {
        store: String,
        job: Box<dyn FnOnce(Rc<OpenStore>) + Send>,
    },
    /// The same with several, in this order; dropped where one of them is not here.
    Stores {
        stores: Vec<String>,
        job: Box<dyn FnOnce(Vec<Rc<OpenStore>>) + Send>,
    },
    /// Something to be done with the queue of the hybrid behind an export, if there is one here; and how that hybrid writes.
    Queue {
        export: String,
        job: Box<dyn FnOnce(Option<QueueOf>) + Send>,
    },
    /// The configuration has other exports for this thread, or stores on other terms.
    Entrances(EntrancesChange),
    /// What accounts weigh and get at most from now on.
    Accounts(AccountTerms),
    /// A gateway that keeps its objects on a volume of the cluster.
    Gateway {
        volume: Name,
        jobs: s3::Jobs,
        reply: Reply<anyhow::Result<OnVolume>>,
    },
    /// Something to be done with this node of a cluster; as with a store.
    Cluster(Box<dyn FnOnce(Rc<OpenCluster>) + Send>),
    /// Close everything and end; answers with what went wrong.
    Stop(Reply<Vec<String>>),
}

/// How a data thread is at one moment.
pub struct ThreadReport {
    pub driver: String,
    pub thread: api::status::Thread,
    /// Threads that serve its NBD clients.
    pub gates: Vec<api::status::Gate>,
    pub devices: Vec<api::status::Device>,
    pub volumes: Vec<api::volume::Volume>,
    pub stores: Vec<api::store::Store>,
    pub exports: Vec<api::status::Export>,
    pub nbd: Vec<api::clients::NbdListener>,
}

/// What a volume with a tier has counted, and the parameters it uses.
#[derive(Debug, Clone)]
pub struct TierState {
    pub history: History,
    pub parameters: Parameters,
    /// Are they kept current?
    pub auto: bool,
    pub terms: Terms,
    /// Is it time to look whether the parameters still suit, as `auto` does?
    pub due: bool,
}

/// What a data thread has built.
#[derive(Debug)]
pub struct Started {
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Size in bytes of every device and volume.
    pub sizes: Vec<(String, u64)>,
    pub exports: Vec<StartedExport>,
    pub stores: Vec<StartedStore>,
    pub cluster: Option<StartedCluster>,
}

/// A node of a cluster with the addresses it really has.
#[derive(Debug)]
pub struct StartedCluster {
    pub node: String,
    /// Where its records are, for people.
    pub meta: String,
    pub nbd: Vec<Address>,
    pub tls: bool,
}

/// An export with the addresses it really has.
#[derive(Debug)]
pub struct StartedExport {
    pub name: String,
    pub nbd: Vec<Address>,
    /// The block device of this machine that it is.
    pub ublk: Option<String>,
    /// Where virtual machines connect.
    pub vhost_user: Option<Address>,
    pub tls: bool,
}

/// A store with the addresses it really has.
#[derive(Debug)]
pub struct StartedStore {
    pub name: String,
    pub listen: Vec<Address>,
    pub unauthenticated: bool,
    /// For objects.
    pub bytes: u64,
}

/// The data thread has ended.
#[derive(Debug)]
pub struct Ended;

/// What lives on a data thread.
#[derive(Debug, Clone, Default)]
pub struct Things {
    pub devices: Vec<String>,
    /// Hybrids.
    pub volumes: Vec<String>,
    pub stores: Vec<String>,
    /// This node's part of a cluster.
    pub cluster: bool,
}

/// A data thread as other threads see it.
pub struct ThreadHandle {
    /// What stands at the top of it.
    pub names: Vec<String>,
    pub has: Things,
    /// Does it still run its tasks?
    pub heartbeat: Heartbeat,
    poster: Poster<Command>,
    thread: JoinHandle<()>,
}

impl ThreadHandle {
    pub fn new(
        names: Vec<String>,
        has: Things,
        (poster, heartbeat): (Poster<Command>, Heartbeat),
        thread: JoinHandle<()>,
    ) -> ThreadHandle {
        ThreadHandle {
            names,
            has,
            heartbeat,
            poster,
            thread,
        }
    }

    /// Sends a message, which is dropped if the thread has ended.
    pub fn post(&self, command: Command) -> Result<(), Ended> {
        self.poster.post(command).map_err(|_| Ended)
    }

    /// Another way to send it messages.
    pub fn poster(&self) -> Poster<Command> {
        self.poster.clone()
    }

    pub fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }
}
