//! A store that no daemon serves: made, and checked.

use super::consent::{self, Loss};
use super::one_store::name_of;
use super::show::{self};
use super::store::{Check, spinner};
use super::store::{Create, on_device};
use anyhow::anyhow;
use base::Bytes;
use config::{self};
use device::FileOptions;
use env::fs::Direct;
use report::terminal::Usage;
use report::terminal::table::{count, size};
use serde::Serialize;
use std::fmt::Write as _;
use store::{Report, Settings, SpaceFigures};
use utoipa::ToSchema;

/// No device is smaller.
const SECTOR: u64 = 512;

/// A store that was made.
#[derive(Serialize, ToSchema)]
pub struct Made {
    pub(super) device: String,
    pub(super) name: String,
    pub(super) uuid: String,
    #[serde(flatten)]
    pub(super) space: Room,
}

#[derive(Serialize, ToSchema)]
pub struct Room {
    pub(super) total_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) unit_bytes: u64,
    pub(super) units: u64,
    pub(super) page_bytes: u64,
    pub(super) table_max_bytes: u64,
}

impl From<SpaceFigures> for Room {
    fn from(space: SpaceFigures) -> Room {
        Room {
            total_bytes: space.total.0,
            used_bytes: space.used.0,
            reserved_bytes: space.reserved.0,
            free_bytes: space.free.0,
            unit_bytes: space.unit.0,
            units: space.units,
            page_bytes: space.page.0,
            table_max_bytes: space.table_max.0,
        }
    }
}

pub(super) fn create(create: &Create) -> anyhow::Result<()> {
    let name = match &create.name {
        Some(name) => name.clone(),
        None => name_of(&create.device),
    };
    config::check_name(&name).map_err(Usage)?;
    check_size(create.size)?;
    let settings = Settings {
        name,
        unit: create.unit,
        force: create.force,
        ..Settings::default()
    };
    let options = FileOptions {
        direct: Direct::Auto,
        create: create.size,
        ..FileOptions::default()
    };
    let is_new = !create.device.exists();
    if create.force && !is_new && !may_replace(create)? {
        return Ok(());
    }
    let made = on_device(&create.device, options, async |device| {
        let store = store::Store::format(device, settings).await?;
        let (name, uuid, space) = (store.name().to_owned(), store.uuid(), store.space());
        store.close().await?;
        Ok((name, uuid, space))
    });
    if made.is_err() && is_new {
        // A file that was made for nothing; the first error is the one to report.
        let _ = std::fs::remove_file(&create.device);
    }
    let (name, uuid, space) = made?;
    let device = create.device.display().to_string();
    let made = Made {
        name,
        uuid: format!("{uuid:032x}"),
        space: space.into(),
        device,
    };
    if create.json {
        return show::json(&made);
    }
    show::text(&format!(
        "made the store {} on {}: {} for objects, in units of {}\n\nServe it:\n  tanada serve --store {}\n",
        made.name,
        made.device,
        size(made.space.total_bytes),
        size(made.space.unit_bytes),
        show::quoted(&made.device)
    ))
}

/// Refuses a file that is too small to be a device, before it is made.
fn check_size(size: Option<Bytes>) -> Result<(), Usage> {
    match size {
        Some(Bytes(bytes)) if bytes < SECTOR => Err(Usage(format!(
            "--size: {bytes} bytes are less than one sector of {SECTOR}; sizes have a unit, such as {bytes}GiB"
        ))),
        _ => Ok(()),
    }
}

/// May what the device holds be lost?
fn may_replace(create: &Create) -> anyhow::Result<bool> {
    let options = FileOptions {
        read_only: true,
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    let held = on_device(&create.device, options, async |device| {
        Ok(store::occupant(&device).await?)
    })?;
    let device = create.device.display().to_string();
    let loss = Loss {
        // A blank device has nothing to lose.
        yes: create.yes || held.is_none(),
        dry_run: create.dry_run,
    };
    let lost = match held {
        Some(held) => format!("{device} holds {held}, which would be lost"),
        None => format!("{device} is blank"),
    };
    consent::is_given(&device, &lost, &loss, create.json)
}

/// What a check found, for programs.
#[derive(Serialize, ToSchema)]
pub struct Checked {
    pub(super) device: String,
    pub(super) clean: bool,
    pub(super) findings: Vec<String>,
    pub(super) findings_count: usize,
    pub(super) objects: u64,
    /// Deletions that the next start goes on with.
    pub(super) deletions_pending: u64,
    pub(super) pages_read: u64,
    /// Were the data read, too?
    pub(super) data: bool,
    #[serde(flatten)]
    pub(super) space: Room,
}

pub(super) fn check(check: &Check) -> anyhow::Result<()> {
    let options = FileOptions {
        read_only: true,
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    let data = check.data;
    let working = spinner(&format!("checking {}", check.device.display()));
    let report = on_device(&check.device, options, async move |device| {
        Ok(store::check(device, data).await?)
    });
    working.finish_and_clear();
    let report = report?;
    let is_clean = report.is_clean();
    let device = check.device.display().to_string();
    match check.json {
        true => show::json(&checked(device, report, data))?,
        false => show::text(&checked_page(&device, &report, data))?,
    }
    match is_clean {
        true => Ok(()),
        false => Err(anyhow!(
            "{} is not as it should be; keep a copy of it before anything writes there",
            check.device.display()
        )),
    }
}

pub(super) fn checked(device: String, report: Report, data: bool) -> Checked {
    Checked {
        device,
        clean: report.is_clean(),
        findings: report.findings.iter().map(ToString::to_string).collect(),
        findings_count: report.count,
        objects: report.objects,
        deletions_pending: report.deleting,
        pages_read: report.pages_read,
        data,
        space: report.space.into(),
    }
}

pub(super) fn checked_page(device: &str, report: &Report, data: bool) -> String {
    let space = &report.space;
    let mut page = format!(
        "{device}: {} objects, {} used, {} reserved, {} free of {}\n",
        count(report.objects as f64),
        space.used,
        space.reserved,
        space.free,
        space.total
    );
    if report.deleting > 0 {
        let _ = writeln!(
            page,
            "{} deletions were cut off; the next start goes on with them",
            report.deleting
        );
    }
    for finding in &report.findings {
        let _ = writeln!(page, "  {finding}");
    }
    if report.count > report.findings.len() {
        let more = report.count - report.findings.len();
        let _ = writeln!(page, "  and {more} more");
    }
    let what = match data {
        true => format!(
            "tables, and {} of data against their checksums",
            Bytes(report.pages_read * space.page.0)
        ),
        false => "tables (--data reads all data, too)".to_owned(),
    };
    let verdict = match report.count {
        0 => "clean".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let _ = writeln!(page, "{verdict}: {what}");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_without_its_unit_is_refused_before_a_file_is_made() {
        assert!(check_size(None).is_ok() && check_size(Some(Bytes(SECTOR))).is_ok());
        let said = check_size(Some(Bytes(64))).unwrap_err().0;
        assert!(said.contains("such as 64GiB"), "{said}");
    }
}
