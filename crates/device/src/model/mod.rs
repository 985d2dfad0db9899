//! Models of devices: how long would a real one take, and what would it draw?
//!
//! ```text
//! TOML (figures with sources) -> Spec -> timing core (HDD | SSD | constant): pure, time comes from outside
//!                                            |
//!                     data store  +  env's clock  =  ModelDisk: a Device, in virtual and in real time
//! ```
//!
//! The catalogue holds the disks and flash devices of the papers; a model of one's own is a TOML file like
//! those in `catalogue/`. What each model can and cannot show stands in docs/models.md.
//!
//! Source: DMSSD 6.1 (the devices measured there), SCM tables 4-7.
//!
//! Always true:
//! 1. One model, one seed and one sequence of requests give the same times, to the nanosecond.
//! 2. A model decides when; the data store decides what. Neither knows the other.

pub mod bench;
mod check;
mod disk;
mod error;
mod figures;
mod spec;
mod store;
mod timing;

use serde::Serialize;

pub use disk::ModelDisk;
pub use error::SpecError;
pub use figures::Figure;
pub use spec::{Kind, Spec};
pub use store::Store;
pub use timing::{
    Buffers, ConstantModel, ConstantSpec, Done, FlashSpec, Found, Ftl, Geometry, HddCommands,
    HddModel, HddSpec, HostSide, IdleStep, Mechanics, PowerMeter, PowerSpec, ReadCacheSpec,
    Request, Row, SeekCurve, Shape, Spent, SsdModel, SsdSpec, State, Step, Timing, Work,
    WriteBuffer, WriteCacheSpec,
};

/// A model of the catalogue, for people and for `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelInfo {
    /// Its name, as `model = "..."` in a configuration.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// `hdd`, `ssd` or `constant`.
    pub kind: &'static str,
    /// One line about it.
    pub about: String,
    /// Every figure with unit and source.
    pub figures: Vec<Figure>,
}

/// Every model that comes with the program.
///
/// # Example
/// ```
/// let names: Vec<String> = device::model::catalogue().into_iter().map(|info| info.name).collect();
/// assert!(names.contains(&"ssd-nvme-tlc".to_owned()));
/// ```
pub fn catalogue() -> Vec<ModelInfo> {
    let info = |spec: Spec| ModelInfo {
        kind: spec.kind.name(),
        name: spec.name,
        aliases: spec.aliases,
        about: spec.about,
        figures: spec.figures,
    };
    Spec::all().into_iter().map(info).collect()
}
