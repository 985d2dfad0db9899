//! `tanada volume set NAME --priority ...`: what is set on a virtual disk that is there.

use std::fmt::Write as _;

use clap::Args;
use hyper::Method;
use report::terminal::Usage;
use vdisk::record::{Fairness, Name};

use super::ask::Ask;
use super::cluster::{a_meta_loss, a_priority, path};
use crate::api::cluster::{Disk as Shown, DiskChange};

/// What is set on a virtual disk that is there.
#[derive(Args)]
#[group(id = "setting", multiple = true, conflicts_with = "changes")]
pub struct SetDisk {
    /// Of a virtual disk: its clients beside others at the same disks: low, normal, high.
    #[arg(long, value_name = "CLASS", value_parser = a_priority)]
    priority: Option<String>,
    /// Of a virtual disk: how far clients of one class are kept apart, 1 to 100.
    #[arg(long, value_name = "TIMES")]
    fairness: Option<Fairness>,
    /// Of a virtual disk: how many copies a write must reach at least.
    #[arg(long, value_name = "N")]
    min_copies: Option<u8>,
    /// Of a virtual disk: its requests are attached to what this holder has reserved at the stores.
    #[arg(long, value_name = "WHO", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    holder: Option<String>,
    /// Of a virtual disk: its requests are attached to no reservation any more.
    #[arg(long, conflicts_with = "holder")]
    no_holder: bool,
    /// Of a virtual disk: what requests do while the meta store does not answer and the writer's lease has run out: wait, fail.
    #[arg(long, value_name = "WHAT", value_parser = a_meta_loss)]
    on_meta_loss: Option<String>,
    /// Of a virtual disk: what its clients read at most in a second, all together, such as 100MB/s; off: as much as there is.
    #[arg(long, value_name = "RATE")]
    max_read: Option<String>,
    /// The same of writes.
    #[arg(long, value_name = "RATE")]
    max_write: Option<String>,
    /// Of a virtual disk: how many reads pass at most in a second, such as 500; off: as many as there are.
    #[arg(long, value_name = "N")]
    max_read_iops: Option<String>,
    /// The same of writes.
    #[arg(long, value_name = "N")]
    max_write_iops: Option<String>,
}

impl SetDisk {
    /// The option that sets `key`, if one does.
    pub fn option(key: &str) -> Option<String> {
        let name = key.replace('_', "-");
        let all = SetDisk::augment_args(clap::Command::new("set"));
        let mut known = all.get_arguments().filter_map(clap::Arg::get_long);
        known.any(|long| long == name).then_some(name)
    }

    /// Is anything of a virtual disk to be set?
    pub fn is_asked(&self) -> bool {
        self.change() != DiskChange::default()
    }

    fn change(&self) -> DiskChange {
        DiskChange {
            priority: self.priority.clone(),
            fairness: self.fairness.map(Fairness::as_f64),
            min_copies: self.min_copies,
            holder: match self.no_holder {
                true => Some(String::new()),
                false => self.holder.clone(),
            },
            on_meta_loss: self.on_meta_loss.clone(),
            max_read: self.max_read.clone(),
            max_write: self.max_write.clone(),
            max_read_iops: self.max_read_iops.clone(),
            max_write_iops: self.max_write_iops.clone(),
            ..DiskChange::default()
        }
    }
}

/// `tanada volume set NAME --priority ...`.
pub fn set(name: &str, disk: &SetDisk, ask: Ask) -> anyhow::Result<()> {
    let name: Name = name.parse().map_err(|error| Usage(format!("{error}")))?;
    let change = disk.change();
    ask.send(Method::PATCH, &path(&name, ""), &change, |disk| {
        kept(&name, disk)
    })
}

/// How it is kept from now on.
fn kept(name: &Name, disk: &Shown) -> String {
    let mut said = format!(
        "{name} has {} priority, fairness {}; a write reaches at least {} of {} copies",
        disk.terms.priority,
        disk.terms.fairness.unwrap_or(1.0),
        disk.terms.min_copies,
        disk.terms.copies
    );
    if let Some(holder) = &disk.terms.holder {
        let _ = write!(said, "; it is under what {holder} has reserved");
    }
    if disk.terms.on_meta_loss == "fail" {
        said.push_str("; requests fail while the meta store is away");
    }
    if let Some(caps) = &disk.terms.caps {
        let _ = write!(said, "; its clients get at most: {}", caps.words());
    }
    said.push('\n');
    said
}
