//! `tanada status` and the pieces other listings share.

use report::terminal::table::{count, megabytes_per_second, share, size, table};

pub use report::terminal::{json, own_command, quoted, text};

use crate::admin::api::{Device, Export, Status, Volume};
use crate::admin::tier::Tier;
use crate::cli::Ask;
use crate::client::Client;
use crate::frame::title;

/// Runs `tanada status`.
pub fn status(ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let status: Status = client.get("/v1/status")?;
    if ask.json {
        return json(&status);
    }
    let mut page = format!("{}\nconfiguration: {}\n", title(&status), status.config);
    if !status.volumes.is_empty() {
        page.push_str(&format!("\n{}", volumes(&status.volumes)));
    }
    if !status.stores.is_empty() {
        let stores = crate::store_commands::stores_table(&status.stores);
        page.push_str(&format!("\n{stores}"));
    }
    page.push_str(&format!("\n{}", devices(&status.devices)));
    if !status.exports.is_empty() {
        page.push_str(&format!("\n{}", exports(&status.exports)));
    }
    text(&page)
}

/// The volumes as a table, with what is wrong below it.
pub fn volumes(volumes: &[Volume]) -> String {
    let rows: Vec<Vec<String>> = volumes
        .iter()
        .map(|volume| {
            let (fast, all) = volume.cache.read_bytes();
            vec![
                volume.name.clone(),
                size(volume.size_bytes),
                volume.health.clone(),
                volume.slow.clone(),
                volume.fast.clone().unwrap_or_else(|| "-".to_owned()),
                volume.settings.mode.clone(),
                volume.settings.write.clone(),
                volume.settings.policy.clone(),
                size(volume.cache.cached_bytes),
                size(volume.cache.dirty_bytes),
                share(fast as f64, all as f64),
            ]
        })
        .collect();
    let mut text = table(
        &[
            "VOLUME", "SIZE", "HEALTH", "SLOW", "FAST", "MODE", "WRITE", "POLICY", "CACHED",
            "DIRTY", "HITS",
        ],
        &rows,
    );
    for volume in volumes {
        if let Some(tier) = &volume.tier {
            text.push_str(&format!("{}: {}\n", volume.name, tier_line(tier)));
        }
    }
    for volume in volumes.iter().filter(|volume| !volume.why.is_empty()) {
        text.push_str(&format!("{}: {}\n", volume.name, volume.why));
    }
    text
}

/// A tier in one line.
fn tier_line(tier: &Tier) -> String {
    let flow = match tier.flow_bytes_per_second {
        Some(rate) => format!(" at up to {} MB/s", megabytes_per_second(rate)),
        None => String::new(),
    };
    format!(
        "{} of {} regions of {} are up, {} on the fast device; {} moves under way{flow}",
        tier.regions_up,
        tier.regions,
        size(tier.region_bytes),
        size(tier.held_bytes),
        tier.moves_under_way
    )
}

/// The devices as a table.
pub fn devices(devices: &[Device]) -> String {
    let sum = |device: &Device, op: &str| -> (u64, u64) {
        device
            .figures
            .operations
            .iter()
            .filter(|of| of.op == op)
            .fold((0, 0), |sum, of| (sum.0 + of.requests, sum.1 + of.bytes))
    };
    let rows: Vec<Vec<String>> = devices
        .iter()
        .map(|device| {
            let (reads, read_bytes) = sum(device, "read");
            let (writes, write_bytes) = sum(device, "write");
            let errors: u64 = device.figures.operations.iter().map(|of| of.errors).sum();
            vec![
                device.name.clone(),
                size(device.size_bytes),
                device.model.clone().unwrap_or_else(|| device.kind.clone()),
                device.part_of.clone().unwrap_or_else(|| "-".to_owned()),
                count(reads as f64),
                size(read_bytes),
                count(writes as f64),
                size(write_bytes),
                errors.to_string(),
                device
                    .power
                    .as_ref()
                    .map_or("-".to_owned(), |power| format!("{:.0} J", power.joules)),
            ]
        })
        .collect();
    table(
        &[
            "DEVICE", "SIZE", "KIND", "PART OF", "READS", "READ", "WRITES", "WRITTEN", "ERRORS",
            "ENERGY",
        ],
        &rows,
    )
}

fn exports(exports: &[Export]) -> String {
    let rows: Vec<Vec<String>> = exports
        .iter()
        .map(|export| {
            let mut how = Vec::new();
            if export.read_only {
                how.push("read-only".to_owned());
            }
            if export.tls {
                how.push("TLS".to_owned());
            }
            let priority = export.priority.as_ref();
            how.extend(priority.map(|class| format!("{class} priority")));
            how.extend(export.fairness.map(|times| format!("fairness {times}")));
            vec![
                export.name.clone(),
                export.device.clone(),
                match export.size_bytes {
                    0 => "-".to_owned(),
                    bytes => size(bytes),
                },
                export.connections.to_string(),
                if how.is_empty() {
                    "-".to_owned()
                } else {
                    how.join(", ")
                },
                export.nbd.join(" "),
            ]
        })
        .collect();
    let mut text = table(
        &["EXPORT", "OF", "SIZE", "CLIENTS", "HOW", "ADDRESS"],
        &rows,
    );
    for export in exports {
        if let Some(why) = &export.why {
            text.push_str(&format!("{}: {why}\n", export.name));
        }
    }
    text
}
