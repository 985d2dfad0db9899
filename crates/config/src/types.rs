//! A configuration, read and checked: one type for each table.

use std::fmt;
use std::path::PathBuf;

use base::{Bytes, Nanos};
use env::fs::Direct;
use env::net::Address;
use policy::poll::Setting;
use vdisk::record::Name;

use crate::cluster::ClusterConfig;
use crate::export::ExportConfig;
use crate::keys::Mistake;
use crate::log::LogLevel;
use crate::store::StoreConfig;

/// A configuration without mistakes.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where Tanada keeps what the configuration gives no other place.
    pub data_dir: PathBuf,
    /// Permissions of the Unix sockets that NBD clients and clients of stores connect to.
    pub socket_mode: u32,
    /// What data threads do while they have nothing to do, unless an export says otherwise.
    pub poll: Setting,
    /// `[[device]]` and `[[stripe]]`, those that others are made of first.
    pub devices: Vec<DeviceConfig>,
    /// In the order they can be made.
    pub hybrids: Vec<HybridConfig>,
    /// `[[store]]`.
    pub stores: Vec<StoreConfig>,
    /// `[cluster]`, if this daemon is a node of one.
    pub cluster: Option<ClusterConfig>,
    /// `[[export]]`.
    pub exports: Vec<ExportConfig>,
    /// `[[s3]]`.
    pub s3: Vec<S3Config>,
    /// `[admin]`.
    pub admin: AdminConfig,
    /// `[log]`.
    pub log: LogLevel,
}

/// `[[device]]`: something that holds blocks by itself; or `[[stripe]]`, several of them in one.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceConfig {
    /// Unique among devices, stripes and hybrids.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Nothing is ever written to it.
    pub read_only: bool,
    /// Open it although it is mounted or in use.
    pub force: bool,
    /// In energy mode, sleep after this long without a request.
    pub standby_after: Option<Nanos>,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A block device or regular file; a missing file is created if a size is given.
    Path {
        /// Where it is.
        path: PathBuf,
        /// Past the page cache, or through it.
        direct: Direct,
        /// The size of the file that is made where there is none.
        create: Option<Bytes>,
    },
    /// A model that takes the time a real device would, over a sparse file or memory.
    Model {
        /// A model by its name, or the TOML file of an own one.
        model: String,
        /// How much it holds.
        size: Bytes,
        /// Where its data are.
        backing: Backing,
    },
    /// Blocks in memory, gone when the daemon stops.
    Memory {
        /// How much it holds.
        size: Bytes,
    },
    /// `[[stripe]]`: several others, used as one. It comes after them.
    Striped {
        /// The names of the others, in order.
        members: Vec<String>,
        /// How much lies on one before the next follows.
        chunk: Bytes,
    },
}

/// Where the data of a modelled device are.
#[derive(Debug, Clone, PartialEq)]
pub enum Backing {
    /// In a sparse file.
    File(PathBuf),
    /// In memory, gone when the daemon stops.
    Memory,
}

/// `[[s3]]`: buckets over stores, or on a virtual disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Config {
    /// Unique among gateways.
    pub name: String,
    /// What its objects lie in.
    pub below: S3Below,
    /// Where its clients connect.
    pub listen: Vec<Address>,
    /// What clients call the place of its buckets.
    pub region: String,
}

/// What the objects of a gateway lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum S3Below {
    /// Stores of this node, in turns.
    Stores(Vec<String>),
    /// A volume of the cluster: served by the node that has it open.
    Volume(Name),
}

impl S3Config {
    /// Its stores; none where it lies on a volume.
    pub fn stores(&self) -> &[String] {
        match &self.below {
            S3Below::Stores(stores) => stores,
            S3Below::Volume(_) => &[],
        }
    }

    /// Its volume, if it lies on one.
    pub fn volume(&self) -> Option<&Name> {
        match &self.below {
            S3Below::Stores(_) => None,
            S3Below::Volume(volume) => Some(volume),
        }
    }
}

/// `[[hybrid]]`: one disk made of a slow and a fast one.
#[derive(Debug, Clone, PartialEq)]
pub struct HybridConfig {
    /// The name is in here. The mode is that of a new hybrid if none is named.
    pub settings: hybrid::Settings,
    /// Does the configuration name the mode? Else an older volume keeps its own (`volume_mode` of the daemon).
    pub mode_named: bool,
    /// The name of the slow device.
    pub slow: String,
    /// The name of the fast device.
    pub fast: String,
    /// Take the fast device even if it holds something else, which is then lost.
    pub force: bool,
    /// Compare every clean page with the slow device at the start; the command line's.
    pub verify: bool,
    /// How long the slow device is idle before energy mode sends it to sleep.
    pub standby_after: Nanos,
    /// Where to record what is asked of it, from the start on.
    pub trace: Option<PathBuf>,
    /// What the files of a trace may hold together.
    pub trace_max: Bytes,
    /// Whether a shadow watches for `tanada advise`, from the start on.
    pub advise: bool,
    /// What its clients get at most.
    pub caps: policy::share::cap::Caps,
    /// How the queue before its slow device is run, if there is one.
    pub queue: Option<crate::scheduling::HybridQueue>,
}

/// `[admin]` and `[web]`: where the admin API, the metrics and the dashboard are.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminConfig {
    /// Where it listens for commands.
    pub listen: Vec<Address>,
    /// Where browsers and Prometheus come.
    pub web: Vec<Address>,
    /// The configuration names them: one that is taken stops the start.
    pub web_named: bool,
    /// Names by which clients elsewhere may call this machine.
    pub hosts: Vec<String>,
    /// Permissions of its Unix sockets; who may do what there is decided by the peer's user.
    pub socket_mode: u32,
}

impl AdminConfig {
    /// All addresses at which it listens.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listen.iter().chain(&self.web)
    }

    /// Is one of them this?
    pub fn has(&self, address: &Address) -> bool {
        self.addresses().any(|own| own == address)
    }
}

/// Every mistake of a configuration at once.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// What was read, for people.
    pub origin: String,
    /// In the order of the text.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.mistakes.len() {
            1 => "1 mistake".to_owned(),
            n => format!("{n} mistakes"),
        };
        write!(f, "{} has {count}", self.origin)?;
        for mistake in &self.mistakes {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl HybridConfig {
    /// The name of the volume.
    pub fn name(&self) -> &str {
        &self.settings.name
    }
}
