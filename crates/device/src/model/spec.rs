//! What is a model made of? Figures in TOML, each with its source.
//!
//! ```text
//! catalogue/NAME.toml | own file -> figures with sources -> checked parameters -> a timing core
//! ```
//!
//! A figure is written `key = value` or `key = { value = ..., source = "..." }`; its unit is the ending
//! of its key. A source that is a key of the `[sources]` table stands for the text there.
//!
//! Always true:
//! 1. A specification in hand has been checked whole; every refusal names the key.
//! 2. Every figure of the catalogue has a source (a test sees to it).

use std::path::Path;

use base::Bytes;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::constant::ConstantModel;
use super::hdd::HddModel;
use super::ssd::SsdModel;
use super::timing::Timing;

/// The models that come with the program.
const CATALOGUE: [(&str, &str); 11] = [
    ("hdd-10k-sas", include_str!("catalogue/hdd-10k-sas.toml")),
    (
        "hdd-7200-sata",
        include_str!("catalogue/hdd-7200-sata.toml"),
    ),
    (
        "hdd-5400-mobile",
        include_str!("catalogue/hdd-5400-mobile.toml"),
    ),
    ("ssd-sata-mlc", include_str!("catalogue/ssd-sata-mlc.toml")),
    ("ssd-sata-slc", include_str!("catalogue/ssd-sata-slc.toml")),
    ("ssd-nvme-tlc", include_str!("catalogue/ssd-nvme-tlc.toml")),
    ("scm", include_str!("catalogue/scm.toml")),
    ("dram", include_str!("catalogue/dram.toml")),
    ("nand", include_str!("catalogue/nand.toml")),
    ("scm1", include_str!("catalogue/scm1.toml")),
    ("scm2", include_str!("catalogue/scm2.toml")),
];

/// Why a model is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Neither a model of the catalogue nor a file.
    #[error(
        "no model '{asked}': the catalogue has {known}; or give the path of a .toml file of your own"
    )]
    Unknown {
        /// What was asked for.
        asked: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the model file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The text is not TOML, or a key is missing, unknown or of the wrong type.
    #[error("the model {model} cannot be read: {why}")]
    Parse {
        /// The model or file.
        model: String,
        /// Which key, and what is wrong with it.
        why: String,
    },
    /// A value that no device could have.
    #[error("the model {model} has {key} = {value}: {why}")]
    Value {
        /// The model or file.
        model: String,
        /// The key, with its table.
        key: String,
        /// The value found.
        value: String,
        /// What it must be.
        why: String,
    },
    /// The size asked for is none the model can have.
    #[error("the model {model} cannot hold {asked}: {why}")]
    Size {
        /// The model.
        model: String,
        /// What was asked for.
        asked: Bytes,
        /// What it can hold.
        why: String,
    },
}

/// One figure of a model, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The key in the model's file, with its table.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// The unit; empty for a count, a flag or a name.
    pub unit: &'static str,
    /// Where the figure comes from.
    pub source: String,
}

/// A checked model. Make one with [`Spec::find`] or [`Spec::parse`].
#[derive(Debug, Clone)]
pub struct Spec {
    /// The model's name.
    pub name: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// One line about it.
    pub about: String,
    /// How much such a device holds, unless the user says otherwise.
    pub size: Bytes,
    /// The unit it writes without reading first.
    pub physical_block: Bytes,
    /// The longest single request.
    pub max_io: Bytes,
    /// The parameters of its kind.
    pub kind: Kind,
    /// What it draws in which state.
    pub power: PowerSpec,
    /// Every figure with unit and source, in the order of the keys.
    pub figures: Vec<Figure>,
}

/// The kinds of model.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A disk with an arm and a spindle.
    Hdd(HddSpec),
    /// NAND flash behind a controller.
    Ssd(SsdSpec),
    /// Latency by size, bandwidth, parallelism.
    Constant(ConstantSpec),
}

impl Kind {
    /// The kind's name in a model file.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Hdd(_) => "hdd",
            Kind::Ssd(_) => "ssd",
            Kind::Constant(_) => "constant",
        }
    }
}

/// The parameters of a disk.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSpec {
    /// Revolutions per minute.
    pub rpm: f64,
    /// Recording surfaces, each with a head.
    pub surfaces: u64,
    /// Zones of equal width, each with one number of sectors per track.
    pub zones: u64,
    /// Sustained rate at the outer edge, in MB/s (track switches included).
    pub outer_mb_s: f64,
    /// Sustained rate at the inner edge, in MB/s.
    pub inner_mb_s: f64,
    /// From one track to the next with the data following each other, in ms.
    pub switch_ms: f64,
    /// Read seek to the next track, mean over random pairs, and full stroke, in ms.
    pub read_seek_ms: [f64; 3],
    /// The same for writes (they settle longer).
    pub write_seek_ms: [f64; 3],
    /// From receiving a command to starting on it, in ms.
    pub overhead_ms: f64,
    /// Rate of the interface in MB/s.
    pub interface_mb_s: f64,
    /// Requests the disk orders by itself.
    pub queue_depth: u64,
    /// A request that waited this long goes first, in ms.
    pub age_limit_ms: f64,
    /// Does it hold writes in a volatile cache?
    pub write_cache: bool,
    /// Room in the write cache.
    pub write_cache_size: Bytes,
    /// Separate runs of sectors the write cache holds.
    pub write_cache_runs: u64,
    /// How far it reads ahead.
    pub read_ahead_size: Bytes,
    /// Runs of sectors read earlier that it keeps.
    pub read_segments: u64,
}

/// The parameters of a flash device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Flash inside, of which the size is what the user sees.
    pub raw_size: Bytes,
    /// Channels between controller and flash.
    pub channels: u64,
    /// Chips per channel.
    pub chips: u64,
    /// Dies per chip; each works by itself.
    pub dies: u64,
    /// Planes per die, programmed together.
    pub planes: u64,
    /// A page of one plane.
    pub page_size: Bytes,
    /// Pages per erase block.
    pub block_pages: u64,
    /// The unit of the mapping.
    pub mapping_size: Bytes,
    /// Sensing a page, in us.
    pub read_us: f64,
    /// Programming a page (of all planes), in us.
    pub program_us: f64,
    /// Erasing a block (of all planes), in us.
    pub erase_us: f64,
    /// Rate of one channel in MB/s.
    pub channel_mb_s: f64,
    /// Reading rate of the interface in MB/s.
    pub read_mb_s: f64,
    /// Writing rate of the interface in MB/s.
    pub write_mb_s: f64,
    /// From receiving a command to issuing it to the flash, in us.
    pub command_us: f64,
    /// Least time between two read commands, in us: the reciprocal of the highest read IOPS.
    pub read_gap_us: f64,
    /// Least time between two write commands, in us.
    pub write_gap_us: f64,
    /// What a read takes beyond controller, flash and interface, in us.
    pub read_extra_us: f64,
    /// What a write takes beyond controller and interface, in us.
    pub write_extra_us: f64,
    /// Requests it takes at once; more wait outside.
    pub queue_depth: u64,
    /// Write buffer.
    pub buffer_size: Bytes,
    /// Does the buffer survive a power loss? Then a flush has nothing to do.
    pub power_loss_protection: bool,
    /// Garbage is collected while less than this share of a die's blocks is free, in percent.
    pub collect_below_percent: f64,
}

/// The parameters of a memory-like device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantSpec {
    /// Latency of one read by size: pairs of bytes and us, straight lines between.
    pub read_us: Vec<(f64, f64)>,
    /// Latency of one write by size.
    pub write_us: Vec<(f64, f64)>,
    /// Requests served at the same time.
    pub parallel: u64,
    /// Reading rate of all together, in MB/s.
    pub read_mb_s: f64,
    /// Writing rate of all together, in MB/s.
    pub write_mb_s: f64,
}

/// What a device draws in which state. Zero seconds for a timer means never.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerSpec {
    /// Ready and doing nothing.
    pub idle_watts: f64,
    /// Reading.
    pub read_watts: f64,
    /// Writing.
    pub write_watts: f64,
    /// Moving the arm; as reading or writing where absent.
    pub seek_watts: Option<f64>,
    /// Moving the arm to write, where it differs.
    pub seek_write_watts: Option<f64>,
    /// Not spinning, or asleep; a device without it has no standby.
    pub standby_watts: Option<f64>,
    /// Seconds at rest after which the device goes to standby by itself.
    pub standby_after_s: f64,
    /// Gathering speed, or waking.
    pub spin_up_watts: f64,
    /// How long that takes, in seconds.
    pub spin_up_s: f64,
    /// Slowing down.
    pub spin_down_watts: f64,
    /// How long that takes, in seconds.
    pub spin_down_s: f64,
    /// A first step down while at rest.
    pub idle_b: Option<IdleStep>,
    /// A second one.
    pub idle_c: Option<IdleStep>,
}

/// A step down in power while at rest.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleStep {
    /// After so many seconds at rest.
    pub after_s: f64,
    /// What it draws then.
    pub watts: f64,
    /// What a request then waits, in ms.
    pub recovery_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    about: String,
    size: Bytes,
    #[serde(default = "sector")]
    physical_block: Bytes,
    #[serde(default = "thirty_two_mebibytes")]
    max_io: Bytes,
    hdd: Option<HddSpec>,
    ssd: Option<SsdSpec>,
    constant: Option<ConstantSpec>,
    power: PowerSpec,
}

fn sector() -> Bytes {
    Bytes(base::SECTOR)
}

fn thirty_two_mebibytes() -> Bytes {
    // The most one ATA or NVMe command can ask for: 65,536 sectors.
    Bytes::mib(32)
}

/// The ending of a key names the unit.
fn unit_of(key: &str) -> &'static str {
    const ENDINGS: [(&str, &str); 8] = [
        ("_mb_s", "MB/s"),
        ("_ms", "ms"),
        ("_us", "us"),
        ("_s", "s"),
        ("watts", "W"),
        ("rpm", "1/min"),
        ("_percent", "%"),
        ("size", "bytes"),
    ];
    ENDINGS
        .iter()
        .find(|(ending, _)| key.ends_with(ending))
        .map_or("", |(_, unit)| unit)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Takes the sources out of a table and notes every figure in it.
fn strip(table: Table, path: &str, sources: &Table, figures: &mut Vec<Figure>) -> Table {
    let explain = |source: &str| match sources.get(source).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => source.to_owned(),
    };
    let mut plain = Table::new();
    for (key, value) in table {
        let full = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let (value, source) = match value {
            Value::Table(mut inner) if inner.contains_key("value") => {
                let source = inner.get("source").and_then(Value::as_str).map(explain);
                let value = inner.remove("value").expect("it is there");
                (value, source.unwrap_or_default())
            }
            Value::Table(inner) => {
                plain.insert(key, Value::Table(strip(inner, &full, sources, figures)));
                continue;
            }
            value => (value, String::new()),
        };
        if !matches!(full.as_str(), "name" | "about" | "aliases") {
            figures.push(Figure {
                value: text_of(&value),
                unit: unit_of(&full),
                key: full,
                source,
            });
        }
        plain.insert(key, value);
    }
    plain
}

impl Spec {
    /// The model `asked`: a name (or alias) of the catalogue, or the path of a TOML file.
    ///
    /// # Errors
    /// [`SpecError`]: no such model or file, or what is wrong with which key of it.
    ///
    /// # Example
    /// ```
    /// let disk = device::model::Spec::find("hdd-7200-sata")?;
    /// assert_eq!(disk.kind.name(), "hdd");
    /// # Ok::<(), device::model::SpecError>(())
    /// ```
    pub fn find(asked: &str) -> Result<Spec, SpecError> {
        if asked.ends_with(".toml") || asked.contains('/') {
            return Spec::load(Path::new(asked));
        }
        if let Some((name, text)) = CATALOGUE.iter().find(|(name, _)| *name == asked) {
            return Spec::parse(name, text);
        }
        let mut known = Vec::new();
        for spec in Spec::all() {
            if spec.aliases.iter().any(|alias| alias == asked) {
                return Ok(spec);
            }
            known.push(spec.name);
            known.extend(spec.aliases);
        }
        Err(SpecError::Unknown {
            asked: asked.to_owned(),
            known: known.join(", "),
        })
    }

    /// Every model of the catalogue.
    pub fn all() -> Vec<Spec> {
        CATALOGUE
            .iter()
            .map(|(name, text)| Spec::parse(name, text).expect("a test reads the whole catalogue"))
            .collect()
    }

    /// The model in a file.
    ///
    /// # Errors
    /// [`SpecError`], naming the file and the key.
    pub fn load(path: &Path) -> Result<Spec, SpecError> {
        let text = std::fs::read_to_string(path).map_err(|source| SpecError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Spec::parse(&path.display().to_string(), &text)
    }

    /// The model in a text; `model` is what errors call it.
    ///
    /// # Errors
    /// [`SpecError`], naming the key.
    pub fn parse(model: &str, text: &str) -> Result<Spec, SpecError> {
        let refuse = |why: String| SpecError::Parse {
            model: model.to_owned(),
            why: why.trim().replace('\n', " "),
        };
        let mut table: Table = text
            .parse()
            .map_err(|err: toml::de::Error| refuse(err.to_string()))?;
        let sources = match table.remove("sources") {
            Some(Value::Table(sources)) => sources,
            Some(_) => return Err(refuse("`sources` must be a table of texts".to_owned())),
            None => Table::new(),
        };
        let mut figures = Vec::new();
        let plain = strip(table, "", &sources, &mut figures);
        let document: Document = Value::Table(plain)
            .try_into()
            .map_err(|err: toml::de::Error| refuse(err.to_string()))?;
        let kind = match (document.hdd, document.ssd, document.constant) {
            (Some(hdd), None, None) => Kind::Hdd(hdd),
            (None, Some(ssd), None) => Kind::Ssd(ssd),
            (None, None, Some(constant)) => Kind::Constant(constant),
            _ => {
                let why = "it must have exactly one of the tables `hdd`, `ssd` and `constant`";
                return Err(refuse(why.to_owned()));
            }
        };
        let spec = Spec {
            name: document.name,
            aliases: document.aliases,
            about: document.about,
            size: document.size,
            physical_block: document.physical_block,
            max_io: document.max_io,
            kind,
            power: document.power,
            figures,
        };
        spec.check(&Check { model })?;
        Ok(spec)
    }

    /// A timing core of this model, of `size` where it is to differ from the model's own; `seed` decides
    /// what chance decides in such a device (where the platters stand).
    ///
    /// # Errors
    /// [`SpecError::Size`] if the model cannot have that size.
    pub fn timing(&self, size: Option<Bytes>, seed: u64) -> Result<Box<dyn Timing>, SpecError> {
        let size = size.unwrap_or(self.size);
        let refuse = |why: String| {
            Err(SpecError::Size {
                model: self.name.clone(),
                asked: size,
                why,
            })
        };
        if size.0 == 0 || !size.is_multiple_of(self.physical_block.0) {
            return refuse(format!(
                "it must be a multiple of {} above zero",
                self.physical_block
            ));
        }
        match &self.kind {
            Kind::Hdd(hdd) => Ok(Box::new(HddModel::new(
                hdd,
                &self.power,
                self.size,
                size,
                seed,
            ))),
            Kind::Ssd(ssd) => {
                // The map counts units of flash in 32 bits; a quarter of them is left for rounding up.
                let most = Bytes((3 << 30) * ssd.mapping_size.0);
                let raw = size.0 as f64 * ssd.raw_size.0 as f64 / self.size.0 as f64;
                if raw > most.0 as f64 {
                    return refuse(format!("it can have at most {most} of flash"));
                }
                Ok(Box::new(SsdModel::new(ssd, &self.power, self.size, size)))
            }
            Kind::Constant(constant) => Ok(Box::new(ConstantModel::new(constant, &self.power))),
        }
    }

    fn check(&self, check: &Check<'_>) -> Result<(), SpecError> {
        check.size("size", self.size)?;
        check.size("physical_block", self.physical_block)?;
        check.power_of_two("physical_block", self.physical_block)?;
        check.size("max_io", self.max_io)?;
        match &self.kind {
            Kind::Hdd(hdd) => hdd.check(check)?,
            Kind::Ssd(ssd) => ssd.check(check, self.size)?,
            Kind::Constant(constant) => constant.check(check)?,
        }
        self.power.check(check)
    }
}

/// Refusals that name the key.
struct Check<'a> {
    model: &'a str,
}

impl Check<'_> {
    fn refuse(&self, key: &str, value: impl ToString, why: &str) -> SpecError {
        SpecError::Value {
            model: self.model.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            why: why.to_owned(),
        }
    }

    fn within(&self, key: &str, value: f64, from: f64, to: f64) -> Result<(), SpecError> {
        if (from..=to).contains(&value) {
            return Ok(());
        }
        Err(self.refuse(key, value, &format!("it must be from {from} to {to}")))
    }

    fn count(&self, key: &str, value: u64, to: u64) -> Result<(), SpecError> {
        if (1..=to).contains(&value) {
            return Ok(());
        }
        Err(self.refuse(key, value, &format!("it must be from 1 to {to}")))
    }

    fn size(&self, key: &str, value: Bytes) -> Result<(), SpecError> {
        if value.0 > 0 && value.is_multiple_of(base::SECTOR) {
            return Ok(());
        }
        Err(self.refuse(
            key,
            value.0,
            "it must be a multiple of 512 bytes above zero",
        ))
    }

    fn power_of_two(&self, key: &str, value: Bytes) -> Result<(), SpecError> {
        if value.0.is_power_of_two() {
            return Ok(());
        }
        Err(self.refuse(key, value.0, "it must be a power of two"))
    }
}

/// A billion of anything: an upper bound against slips of the keyboard.
const MUCH: f64 = 1e9;

impl HddSpec {
    fn check(&self, check: &Check<'_>) -> Result<(), SpecError> {
        check.within("hdd.rpm", self.rpm, 60.0, 1e6)?;
        check.count("hdd.surfaces", self.surfaces, 1000)?;
        check.count("hdd.zones", self.zones, 10_000)?;
        check.within("hdd.outer_mb_s", self.outer_mb_s, 0.1, MUCH)?;
        check.within("hdd.inner_mb_s", self.inner_mb_s, 0.1, self.outer_mb_s)?;
        check.within("hdd.switch_ms", self.switch_ms, 0.0, 60_000.0 / self.rpm)?;
        for (key, seek) in [
            ("hdd.read_seek_ms", self.read_seek_ms),
            ("hdd.write_seek_ms", self.write_seek_ms),
        ] {
            let ordered = 0.0 <= seek[0] && seek[0] <= seek[1] && seek[1] <= seek[2];
            if !ordered || seek[2] > MUCH || seek.iter().any(|ms| ms.is_nan()) {
                return Err(check.refuse(
                    key,
                    format!("{seek:?}"),
                    "it must be [next track, mean, full stroke], none below the one before",
                ));
            }
            if self.switch_ms < seek[0] {
                return Err(check.refuse(
                    "hdd.switch_ms",
                    self.switch_ms,
                    "it must be at least the seek to the next track, or sequential runs lose a turn",
                ));
            }
        }
        check.within("hdd.overhead_ms", self.overhead_ms, 0.0, MUCH)?;
        check.within("hdd.interface_mb_s", self.interface_mb_s, 0.1, MUCH)?;
        check.count("hdd.queue_depth", self.queue_depth, 65_536)?;
        check.within("hdd.age_limit_ms", self.age_limit_ms, 0.0, MUCH)?;
        check.size("hdd.write_cache_size", self.write_cache_size)?;
        check.count("hdd.write_cache_runs", self.write_cache_runs, 65_536)?;
        check.size("hdd.read_ahead_size", self.read_ahead_size)?;
        check.count("hdd.read_segments", self.read_segments, 1024)
    }
}

impl SsdSpec {
    fn check(&self, check: &Check<'_>, size: Bytes) -> Result<(), SpecError> {
        check.size("ssd.raw_size", self.raw_size)?;
        if self.raw_size.0 <= size.0 + size.0 / 50 {
            return Err(check.refuse(
                "ssd.raw_size",
                self.raw_size.0,
                "it must exceed `size` by more than 2 %, or there is no room to collect garbage",
            ));
        }
        check.count("ssd.channels", self.channels, 1024)?;
        check.count("ssd.chips", self.chips, 1024)?;
        check.count("ssd.dies", self.dies, 64)?;
        check.count("ssd.planes", self.planes, 64)?;
        check.size("ssd.page_size", self.page_size)?;
        check.size("ssd.mapping_size", self.mapping_size)?;
        check.power_of_two("ssd.mapping_size", self.mapping_size)?;
        if !self.page_size.is_multiple_of(self.mapping_size.0) {
            return Err(check.refuse(
                "ssd.page_size",
                self.page_size.0,
                "it must be a multiple of `mapping_size`",
            ));
        }
        check.count("ssd.block_pages", self.block_pages, 65_536)?;
        check.within("ssd.read_us", self.read_us, 0.0, MUCH)?;
        check.within("ssd.program_us", self.program_us, 0.0, MUCH)?;
        check.within("ssd.erase_us", self.erase_us, 0.0, MUCH)?;
        check.within("ssd.channel_mb_s", self.channel_mb_s, 0.1, MUCH)?;
        check.within("ssd.read_mb_s", self.read_mb_s, 0.1, MUCH)?;
        check.within("ssd.write_mb_s", self.write_mb_s, 0.1, MUCH)?;
        check.within("ssd.command_us", self.command_us, 0.0, MUCH)?;
        check.within("ssd.read_gap_us", self.read_gap_us, 0.0, MUCH)?;
        check.within("ssd.write_gap_us", self.write_gap_us, 0.0, MUCH)?;
        check.within("ssd.read_extra_us", self.read_extra_us, 0.0, MUCH)?;
        check.within("ssd.write_extra_us", self.write_extra_us, 0.0, MUCH)?;
        check.count("ssd.queue_depth", self.queue_depth, 1 << 20)?;
        let row = self.page_size.0 * self.planes;
        let rows = row * self.channels * self.chips * self.dies;
        if self.buffer_size.0 < 2 * row {
            return Err(check.refuse(
                "ssd.buffer_size",
                self.buffer_size.0,
                &format!("it must hold at least two pages of all planes of a die, {} bytes (one for every die is {rows})", 2 * row),
            ));
        }
        check.within(
            "ssd.collect_below_percent",
            self.collect_below_percent,
            0.0,
            50.0,
        )
    }
}

impl ConstantSpec {
    fn check(&self, check: &Check<'_>) -> Result<(), SpecError> {
        for (key, points) in [
            ("constant.read_us", &self.read_us),
            ("constant.write_us", &self.write_us),
        ] {
            let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let sane = points
                .iter()
                .all(|&(bytes, us)| (0.0..MUCH).contains(&bytes) && (0.0..MUCH).contains(&us));
            if points.is_empty() || !rising || !sane {
                return Err(check.refuse(
                    key,
                    format!("{points:?}"),
                    "it must be pairs [bytes, us] by rising size, at least one",
                ));
            }
        }
        check.count("constant.parallel", self.parallel, 65_536)?;
        check.within("constant.read_mb_s", self.read_mb_s, 0.1, MUCH)?;
        check.within("constant.write_mb_s", self.write_mb_s, 0.1, MUCH)
    }
}

impl PowerSpec {
    fn check(&self, check: &Check<'_>) -> Result<(), SpecError> {
        for (key, value) in [
            ("power.idle_watts", self.idle_watts),
            ("power.read_watts", self.read_watts),
            ("power.write_watts", self.write_watts),
            ("power.seek_watts", self.seek_watts.unwrap_or(0.0)),
            (
                "power.seek_write_watts",
                self.seek_write_watts.unwrap_or(0.0),
            ),
            ("power.standby_watts", self.standby_watts.unwrap_or(0.0)),
            ("power.standby_after_s", self.standby_after_s),
            ("power.spin_up_watts", self.spin_up_watts),
            ("power.spin_up_s", self.spin_up_s),
            ("power.spin_down_watts", self.spin_down_watts),
            ("power.spin_down_s", self.spin_down_s),
        ] {
            check.within(key, value, 0.0, MUCH)?;
        }
        if self.standby_after_s > 0.0 && self.standby_watts.is_none() {
            return Err(check.refuse(
                "power.standby_after_s",
                self.standby_after_s,
                "it needs `standby_watts` beside it",
            ));
        }
        let mut before = 0.0;
        for (name, step) in [("idle_b", self.idle_b), ("idle_c", self.idle_c)] {
            let Some(step) = step else { continue };
            check.within(&format!("power.{name}.watts"), step.watts, 0.0, MUCH)?;
            check.within(
                &format!("power.{name}.recovery_ms"),
                step.recovery_ms,
                0.0,
                MUCH,
            )?;
            if step.after_s.is_nan() || step.after_s <= before {
                return Err(check.refuse(
                    &format!("power.{name}.after_s"),
                    step.after_s,
                    &format!("it must be above {before}, when the state before begins"),
                ));
            }
            before = step.after_s;
        }
        Ok(())
    }
}
