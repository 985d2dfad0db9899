//! `tanada device claim` and `release`: a disk for the daemon's group, and back.
//!
//! ```text
//! /dev/sdb -> what udev and the kernel say -> device_rule decides -> the rule's file -> udevadm -> is it the group's now?
//! ```
//!
//! Always true:
//! 1. Nothing on a disk is read or written.
//! 2. What is said to be done was looked at afterwards.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use device::OpenError;
use report::terminal::{self, Refused};
use serde::Serialize;
use utoipa::ToSchema;

use super::device_rule::{self, Decision, Disk, GROUP, RULES, Rule, Serial};
use crate::daemon::common::users;

#[derive(Debug, Args)]
pub struct Claim {
    /// The disk, such as /dev/sdb; for `release` also the name in its rule.
    #[arg(value_name = "DISK")]
    pub disk: String,
    /// Change nothing, and say what would be.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A disk that was claimed or released.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimedDisk {
    disk: String,
    /// The file of its rule.
    rule: String,
    /// Was the rule written or removed?
    changed: bool,
    /// Would it be, had it been no dry run?
    dry_run: bool,
}

impl Claim {
    fn answer(&self, rule: &Path, changed: bool, said: String) -> anyhow::Result<()> {
        let answer = ClaimedDisk {
            disk: self.disk.clone(),
            rule: rule.display().to_string(),
            changed,
            dry_run: self.dry_run,
        };
        terminal::answer(self.json, &answer, || said)
    }
}

/// Gives a disk to the daemon's group.
///
/// # Errors
/// It may not be, or this user may not.
pub fn claim(asked: &Claim) -> anyhow::Result<()> {
    let disk = look(&asked.disk)?;
    let decision = device_rule::decide(&disk, Path::exists).map_err(refused)?;
    let rule = match decision {
        Decision::Done(rule) => {
            let said = format!(
                "{} was claimed before, by {}; nothing was changed\n",
                asked.disk,
                rule.file.display()
            );
            return asked.answer(&rule.file, false, said);
        }
        Decision::Write(rule) => rule,
    };
    if asked.dry_run {
        let said = format!(
            "would write {}:\n{}nothing was changed\n",
            rule.file.display(),
            rule.text
        );
        return asked.answer(&rule.file, false, said);
    }
    let group = group()?;
    needs_root("claim", &asked.disk)?;
    write(&rule)?;
    apply(Path::new(&asked.disk)).with_context(|| in_force_later(&rule))?;
    if owner(&asked.disk)? != group {
        bail!(
            "{}, and {} is not the group's yet: another rule may come behind it (udevadm test shows them)",
            in_force_later(&rule),
            asked.disk
        );
    }
    let said = format!(
        "{} (serial number {}) is the group {GROUP}'s now and at every start of this machine, by {}\n\
         undo it: tanada device release {}\n",
        asked.disk,
        rule.serial,
        rule.file.display(),
        rule.serial
    );
    asked.answer(&rule.file, true, said)
}

/// Takes a disk back.
///
/// # Errors
/// It was not claimed, it is in use, or this user may not.
pub fn release(asked: &Claim) -> anyhow::Result<()> {
    let is_here = Path::new(&asked.disk).exists();
    let (file, in_use) = match is_here {
        true => {
            let disk = look(&asked.disk)?;
            let rule = device_rule::rule(&disk).map_err(refused)?;
            (rule.file, disk.in_use)
        }
        // The disk may be gone for good.
        false if device_rule::is_plain(&asked.disk) => (device_rule::file(&asked.disk), None),
        false => {
            return Err(refused(format!(
                "there is no {}; lsblk lists disks",
                asked.disk
            )));
        }
    };
    if !file.exists() {
        return Err(refused(format!(
            "{} is not claimed: there is no {}; `ls {RULES}/70-tanada-*` lists what is",
            asked.disk,
            file.display()
        )));
    }
    if let Some(what) = in_use {
        return Err(refused(format!(
            "{} is in use: {what}; nothing was changed. Take it out of the daemon's configuration first",
            asked.disk
        )));
    }
    if asked.dry_run {
        let said = format!("would remove {}; nothing was changed\n", file.display());
        return asked.answer(&file, false, said);
    }
    needs_root("release", &asked.disk)?;
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    if is_here {
        apply(Path::new(&asked.disk)).with_context(|| {
            format!(
                "{} is removed, and counts from the next start of this machine on",
                file.display()
            )
        })?;
    } else {
        udevadm(&["control", "--reload"])?;
    }
    let said = format!(
        "removed {}: {} is no longer the group {GROUP}'s\n",
        file.display(),
        asked.disk
    );
    asked.answer(&file, true, said)
}

/// It is not done, and nothing was changed.
fn refused(why: String) -> anyhow::Error {
    Refused(why).into()
}

fn in_force_later(rule: &Rule) -> String {
    format!(
        "{} is written, and counts from the next start of this machine on",
        rule.file.display()
    )
}

/// What udev and the kernel say of the disk at `path`.
fn look(path: &str) -> anyhow::Result<Disk> {
    let status =
        fs::metadata(path).with_context(|| format!("cannot look at {path}; lsblk lists disks"))?;
    if !status.file_type().is_block_device() {
        return Err(refused(format!(
            "{path} is no disk, and files need no claim: make it the daemon's (chown {GROUP} {path})"
        )));
    }
    let number = status.rdev();
    let folder = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    let folder = Path::new(&folder);
    let namespace = fs::read_to_string(folder.join("nsid")).ok();
    let properties = udevadm(&["info", "--query=property", "--name", path])?;
    Ok(Disk {
        path: path.to_owned(),
        is_partition: folder.join("partition").exists(),
        serial: Serial::from_properties(&properties),
        namespace: namespace.and_then(|text| text.trim().parse().ok()),
        in_use: in_use(Path::new(path))?,
    })
}

/// What holds the disk or a partition of it.
fn in_use(path: &Path) -> anyhow::Result<Option<String>> {
    match device::file::check_free(path) {
        Ok(()) => Ok(None),
        Err(OpenError::Mounted { part, at, .. }) => Ok(Some(format!("{part} is mounted on {at}"))),
        Err(OpenError::InUse { by, .. }) => Ok(Some(format!("held by {by}"))),
        Err(OpenError::Locked { pid, .. }) => Ok(Some(match pid {
            Some(pid) => format!("process {pid} has it open"),
            None => "a process has it open".to_owned(),
        })),
        Err(error) => Err(anyhow!(error).context("run it as root (sudo)")),
    }
}

/// The number of the daemon's group.
fn group() -> anyhow::Result<u32> {
    users::group(GROUP).map_err(|why| {
        anyhow!("{why}; the package makes it, as does: adduser --system --group {GROUP}")
    })
}

fn needs_root(verb: &str, disk: &str) -> anyhow::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(refused(format!(
            "rules of udev are root's; nothing was changed. Try: sudo tanada device {verb} {disk}"
        ))),
    }
}

/// The group of what is at `path`.
fn owner(path: &str) -> anyhow::Result<u32> {
    let status = fs::metadata(path).with_context(|| format!("cannot look at {path}"))?;
    Ok(status.gid())
}

/// Writes the rule beside its place and puts it there: udev reads the old one or the new one.
fn write(rule: &Rule) -> anyhow::Result<()> {
    let beside = rule.file.with_extension("new");
    fs::create_dir_all(RULES)
        .and_then(|()| fs::write(&beside, &rule.text))
        .and_then(|()| fs::rename(&beside, &rule.file))
        .with_context(|| format!("cannot write {}", rule.file.display()))
}

/// Has udev read its rules again and look at the disk once more.
fn apply(disk: &Path) -> anyhow::Result<()> {
    udevadm(&["control", "--reload"])?;
    let disk = disk
        .canonicalize()
        .with_context(|| format!("cannot look at {}", disk.display()))?;
    let name = disk.to_string_lossy();
    udevadm(&[
        "trigger",
        "--action=change",
        "--settle",
        "--name-match",
        &name,
    ])
    .map(drop)
}

/// What `udevadm` answers.
fn udevadm(arguments: &[&str]) -> anyhow::Result<String> {
    let shown = arguments.join(" ");
    let out = Command::new("udevadm")
        .args(arguments)
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow!("there is no udevadm on this machine; install udev, or give the disk away by hand: chgrp {GROUP} DISK")
            }
            _ => anyhow!("cannot start udevadm: {error}"),
        })?;
    if !out.status.success() {
        bail!(
            "`udevadm {shown}` failed: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
