//! Spellings of before 0.2, as they are still read: hidden, and carried out as the new ones (`current`).
//!
//! In 0.3 this file goes, with what includes it.

use std::path::PathBuf;

use base::{Bytes, Nanos};
use clap::{ArgGroup, Args, Subcommand};
use config::read_span;
use policy::share::BytesPerSec;
use vdisk::record::Name;

use super::ask::Ask;
use super::consent::Loss;
use super::named::SnapshotName;
use super::one_store;
use super::reservation::{Create, Delete, One, Set};
use super::reservation_run::Run;
use super::reserve::ShowCalendar;
use crate::daemon::common::log::LogFormat;

/// `90s`; a number alone is in seconds.
pub fn span_or_seconds(text: &str) -> Result<Nanos, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Nanos::secs(seconds.into())),
        Err(_) => read_span(text),
    }
}

/// Of `tanada volume`.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Snapshot {
        volume: Name,
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Snapshots {
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Clone {
        source: SnapshotName,
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Rollback {
        target: SnapshotName,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Resize(Resize),
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Rename {
        name: Name,
        new: Name,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
pub struct Resize {
    pub name: Name,
    pub size: Bytes,
    #[arg(long)]
    pub shrink: bool,
    #[arg(long, requires = "shrink")]
    pub yes: bool,
    #[arg(long, requires = "shrink")]
    pub dry_run: bool,
    #[command(flatten)]
    pub ask: Ask,
}

/// Of `tanada volume set`: what is set of virtual disks.
#[derive(Debug, Default, PartialEq, Eq, Args)]
#[group(id = "old_setting", multiple = true, conflicts_with = "changes")]
pub struct DiskOptions {
    #[arg(long, hide = true)]
    priority: Option<String>,
    #[arg(long, hide = true)]
    fairness: Option<String>,
    #[arg(long, hide = true)]
    min_copies: Option<String>,
    #[arg(long, hide = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    holder: Option<String>,
    #[arg(long, hide = true, conflicts_with = "holder")]
    no_holder: bool,
    #[arg(long, hide = true)]
    on_meta_loss: Option<String>,
    #[arg(long, hide = true)]
    max_read: Option<String>,
    #[arg(long, hide = true)]
    max_write: Option<String>,
    #[arg(long, hide = true)]
    max_read_iops: Option<String>,
    #[arg(long, hide = true)]
    max_write_iops: Option<String>,
}

impl DiskOptions {
    /// Each option that is given, and the same as `KEY=VALUE`.
    pub fn given(&self) -> Vec<(String, String)> {
        let all = [
            ("priority", &self.priority),
            ("fairness", &self.fairness),
            ("min_copies", &self.min_copies),
            ("holder", &self.holder),
            ("on_meta_loss", &self.on_meta_loss),
            ("max_read", &self.max_read),
            ("max_write", &self.max_write),
            ("max_read_iops", &self.max_read_iops),
            ("max_write_iops", &self.max_write_iops),
        ];
        let both = |(key, value): (&str, &Option<String>)| {
            let value = value.as_ref()?;
            let option = format!("--{} {value}", key.replace('_', "-"));
            Some((option, format!("{key}={value}")))
        };
        let none = || ("--no-holder".to_owned(), "holder=".to_owned());
        let none = self.no_holder.then(none);
        all.into_iter().filter_map(both).chain(none).collect()
    }
}

/// Of `tanada device`.
#[derive(Debug, Subcommand)]
pub enum Device {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Models {
        #[arg(long)]
        json: bool,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Bench {
        target: String,
        #[arg(long)]
        overwrite: bool,
        #[arg(long)]
        json: bool,
    },
}

/// Of `tanada client`.
#[derive(Debug, Subcommand)]
pub enum Client {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Disconnect {
        #[arg(required_unless_present = "export", conflicts_with = "export")]
        client: Option<String>,
        #[arg(long)]
        export: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Of `tanada node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Add {
        node: Name,
        #[arg(long)]
        store: Name,
        #[arg(long)]
        address: String,
        #[arg(long)]
        domain: Option<Name>,
        #[arg(long)]
        number: Option<u16>,
        #[arg(long)]
        rotating: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Remove {
        name: Name,
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        loss: Loss,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Of `tanada object`.
#[derive(Debug, Subcommand)]
pub enum Object {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Stat(super::object::One),
}

/// Of `tanada store`.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Status {
        name: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// An old spelling: used, it prints a note with the new one.
    #[command(hide = true)]
    Serve(Box<Serve>),
}

#[derive(Debug, Args)]
pub struct Serve {
    pub device: Option<PathBuf>,
    #[command(flatten)]
    pub options: one_store::Options,
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    #[arg(long)]
    pub print_config: bool,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// `tanada reserve`.
#[derive(Debug, Subcommand)]
pub enum Reserve {
    /// An old spelling: used, it prints a note with the new one.
    Add(Box<AddReservation>),
    /// An old spelling: used, it prints a note with the new one.
    Offer(Box<AddReservation>),
    /// An old spelling: used, it prints a note with the new one.
    List(Ask),
    /// An old spelling: used, it prints a note with the new one.
    Show(One),
    /// An old spelling: used, it prints a note with the new one.
    Cancel(One),
    /// An old spelling: used, it prints a note with the new one.
    Calendar(ShowCalendar),
    /// An old spelling: used, it prints a note with the new one.
    Create(Box<Create>),
    /// An old spelling: used, it prints a note with the new one.
    Set(Set),
    /// An old spelling: used, it prints a note with the new one.
    Capability(One),
    /// An old spelling: used, it prints a note with the new one.
    Delete(Delete),
    /// An old spelling: used, it prints a note with the new one.
    Run(Box<Run>),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rate").required(true).args(["read", "write"])))]
pub struct AddReservation {
    #[arg(long, required = true)]
    pub store: Vec<String>,
    #[arg(long)]
    pub read: Option<BytesPerSec>,
    #[arg(long)]
    pub write: Option<BytesPerSec>,
    #[arg(long, default_value = "now")]
    pub from: String,
    #[arg(long = "for", value_parser = read_span)]
    pub span: Nanos,
    #[arg(long, value_parser = read_span)]
    pub window: Option<Nanos>,
    #[arg(long)]
    pub probability: Option<f64>,
    #[arg(long)]
    pub space: Option<Bytes>,
    #[arg(long)]
    pub scope: String,
    #[arg(long)]
    pub holder: Option<String>,
    #[command(flatten)]
    pub ask: Ask,
}
