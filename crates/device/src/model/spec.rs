//! What is a model made of? Figures in TOML, each with its source.
//!
//! ```text
//! catalogue/NAME.toml | own file -> figures with sources -> checked parameters -> a timing core
//! ```
//!
//! Always true:
//! 1. A specification in hand has been checked whole; every refusal names the key.
//! 2. Every figure of the catalogue has a source (a test sees to it).

use std::path::Path;

use base::Bytes;
use serde::Deserialize;
use toml::{Table, Value};

use super::check::{self, Check};
use super::error::SpecError;
use super::figures::{Figure, groups, strip};
use super::timing::{
    ConstantModel, ConstantSpec, HddModel, HddSpec, PowerSpec, SsdModel, SsdSpec, Timing,
};

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
    hdd: Option<Table>,
    ssd: Option<Table>,
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

fn read_hdd(table: &Table) -> Result<HddSpec, toml::de::Error> {
    let (mechanics, commands, buffers) = groups("hdd", table)?;
    Ok(HddSpec {
        mechanics,
        commands,
        buffers,
    })
}

fn read_ssd(table: &Table) -> Result<SsdSpec, toml::de::Error> {
    let (flash, host, buffer) = groups("ssd", table)?;
    Ok(SsdSpec {
        flash,
        host,
        buffer,
    })
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
        let misread = |err: toml::de::Error| refuse(err.to_string());
        let mut table: Table = text.parse().map_err(misread)?;
        let sources = match table.remove("sources") {
            Some(Value::Table(sources)) => sources,
            Some(_) => return Err(refuse("`sources` must be a table of texts".to_owned())),
            None => Table::new(),
        };
        let mut figures = Vec::new();
        let plain = strip(table, "", &sources, &mut figures);
        let document: Document = Value::Table(plain).try_into().map_err(misread)?;
        let kind = match (document.hdd, document.ssd, document.constant) {
            (Some(hdd), None, None) => Kind::Hdd(read_hdd(&hdd).map_err(misread)?),
            (None, Some(ssd), None) => Kind::Ssd(read_ssd(&ssd).map_err(misread)?),
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
                let most = Bytes((3 << 30) * ssd.flash.mapping_size.0);
                let raw = size.0 as f64 * ssd.flash.raw_size.0 as f64 / self.size.0 as f64;
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
            Kind::Hdd(hdd) => check::hdd(hdd, check)?,
            Kind::Ssd(ssd) => check::ssd(ssd, check, self.size)?,
            Kind::Constant(constant) => check::constant(constant, check)?,
        }
        check::power(&self.power, check)
    }
}
