//! `tanada status` and the pieces other listings share.

use std::fmt::Write as _;
use std::process::ExitCode;

use policy::share::Second;
use report::terminal::table::{count, megabytes_per_second, share, size, span, table};
use report::terminal::{Ending, Refused};
use serde::Serialize;
use utoipa::ToSchema;

pub use report::terminal::{answer, json, own_command, quoted, text};

use super::ask::Ask;
use super::client::Client;
use super::frame::title;
use super::{cluster_pages, cluster_upgrade, health};
use crate::api::cluster::{Disk, Here};
use crate::api::level::ClusterLevel;
use crate::api::status::{Device, Export, Status};
use crate::api::store as api;
use crate::api::tier::Tier;
use crate::api::volume::Volume;
use crate::daemon::common::when;

/// What `tanada status` prints.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatusPage {
    #[serde(flatten)]
    status: Status,
    /// Virtual disks; hybrids are among the `volumes`. Left out where the cluster did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    disks: Option<Vec<Disk>>,
    /// By which policy this node's virtual disks choose copies, such as `tanada`. Left out where the cluster did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica_choice: Option<String>,
}

/// Runs `tanada status`: the verdict first, and the exit status says it too.
pub fn status(ask: &Ask) -> anyhow::Result<ExitCode> {
    let client = Client::new(ask.admin.clone())?;
    let status: Status = client.get("/v1/status")?;
    let ended = Ending::from(status.machine.health.status).into();
    let here: Option<Here> = client.get("/v1/cluster").ok();
    let page = StatusPage {
        status,
        disks: client.get("/v1/cluster/volumes").ok(),
        replica_choice: here.as_ref().map(|it| it.replica_choice.clone()),
    };
    if ask.json {
        json(&page)?;
        return Ok(ended);
    }
    let level = here.and_then(|it| it.level);
    text(&status_page(&page, level.as_ref()))?;
    Ok(ended)
}

/// The verdict, both kinds of volumes, and what they stand on.
fn status_page(page: &StatusPage, level: Option<&ClusterLevel>) -> String {
    let StatusPage {
        status,
        disks,
        replica_choice,
    } = page;
    let verdict = health::page(&status.machine.health);
    let mut page = format!(
        "{}\nconfiguration: {}\n\n{verdict}",
        title(status),
        status.config
    );
    if let Some(level) = level {
        page.push_str(&format!("\n{}", cluster_upgrade::line(level)));
    }
    // A daemon of before says nothing.
    if let Some(policy) = replica_choice.as_ref().filter(|it| !it.is_empty()) {
        page.push_str(&format!("\ncopies are chosen by {policy}\n"));
    }
    if !status.volumes.is_empty() {
        page.push_str(&format!("\n{}", volumes(&status.volumes)));
    }
    if let Some(disks) = disks.as_ref().filter(|it| !it.is_empty()) {
        page.push_str(&format!("\n{}", cluster_pages::disks(disks)));
    }
    if !status.stores.is_empty() {
        let stores = stores_table(&status.stores);
        page.push_str(&format!("\n{stores}"));
    }
    page.push_str(&format!("\n{}", devices(&status.devices)));
    if !status.exports.is_empty() {
        page.push_str(&format!("\n{}", exports(&status.exports)));
    }
    page
}

/// The one that is called `name`, of all of a kind.
///
/// # Errors
/// There is none; which there are.
pub fn only<T>(
    all: Vec<T>,
    (kind, name): (&str, &str),
    called: impl Fn(&T) -> &String,
) -> anyhow::Result<T> {
    let known: Vec<&str> = all.iter().map(|it| called(it).as_str()).collect();
    let known = match known.is_empty() {
        true => "there is none".to_owned(),
        false => format!("there are {}", known.join(", ")),
    };
    let mut found = all.into_iter().filter(|it| called(it) == name);
    let missing = || Refused(format!("there is no {kind} '{name}'; {known}")).into();
    found.next().ok_or_else(missing)
}

/// A device, and what it was asked.
pub fn device(device: &Device) -> String {
    let rows = device.figures.operations.iter().map(|of| {
        vec![
            of.op.clone(),
            of.class.clone(),
            count(of.requests as f64),
            size(of.bytes),
            of.errors.to_string(),
            span(of.latency.p50_ns),
            span(of.latency.p99_ns),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut page = devices(std::slice::from_ref(device));
    if !rows.is_empty() {
        let asked = table(
            &["ASKED", "WORK", "REQUESTS", "BYTES", "ERRORS", "P50", "P99"],
            &rows,
        );
        page.push_str(&format!("\n{asked}"));
    }
    page
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
pub(super) fn tier_line(tier: &Tier) -> String {
    let flow = match tier.flow_bytes_per_second {
        Some(rate) => format!(" at up to {} MB/s", megabytes_per_second(rate)),
        None => String::new(),
    };
    format!(
        "{} of {} regions of {} are up, {} on the fast device; {} moves under way{flow}",
        tier.room.regions_up,
        tier.room.regions,
        size(tier.room.region_bytes),
        size(tier.room.held_bytes),
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
    let mut text = table(
        &[
            "DEVICE", "SIZE", "KIND", "PART OF", "READS", "READ", "WRITES", "WRITTEN", "ERRORS",
            "ENERGY",
        ],
        &rows,
    );
    for device in devices {
        if let Some(spindle) = &device.spindle {
            let since = when::shown(Second(spindle.since_unix_seconds));
            let _ = writeln!(text, "{}: {} since {since}", device.name, spindle.word());
        }
    }
    text
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
            let priority = export.terms.priority.as_ref();
            how.extend(priority.map(|class| format!("{class} priority")));
            how.extend(
                export
                    .terms
                    .fairness
                    .map(|times| format!("fairness {times}")),
            );
            how.extend(
                export
                    .terms
                    .caps
                    .as_ref()
                    .map(|caps| format!("at most {}", caps.words())),
            );
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
                export.places(),
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

/// Stores as a table, with what is wrong below it.
pub fn stores_table(stores: &[api::Store]) -> String {
    let rows: Vec<Vec<String>> = stores
        .iter()
        .map(|store| {
            let (space, calendar) = (&store.node.space, &store.node.calendar);
            vec![
                store.basics.name.clone(),
                size(space.total_bytes),
                size(space.used_bytes),
                size(space.reserved_bytes),
                count(space.objects as f64),
                store.node.sessions.to_string(),
                format!("{:.1} %", calendar.now.promised_percent),
                windows(store).1.to_string(),
                store.node.queue.shed.clone(),
                store.basics.listen.join(" "),
            ]
        })
        .collect();
    let mut text = table(
        &[
            "STORE", "ROOM", "USED", "RESERVED", "OBJECTS", "SESSIONS", "PROMISED", "VIOLATED",
            "SHED", "ADDRESS",
        ],
        &rows,
    );
    for store in stores {
        for trouble in troubles(store) {
            let _ = writeln!(text, "{}: {trouble}", store.basics.name);
        }
    }
    text
}

/// Windows of sessions still known: kept, violated.
fn windows(store: &api::Store) -> (u64, u64) {
    let all = store
        .sessions
        .iter()
        .map(|session| &session.delivery.windows);
    all.fold((0, 0), |(kept, violated), of| {
        (kept + of.kept, violated + of.capacity + of.scheduler)
    })
}

/// What the user should know.
pub fn troubles(store: &api::Store) -> Vec<String> {
    let mut all = Vec::new();
    if store.bad_blocks > 0 {
        all.push(format!(
            "{} pages are damaged, first {}; write them again from another copy",
            store.bad_blocks,
            store.first_bad.first().map_or("", String::as_str)
        ));
    }
    if let Some(why) = &store.scrub.failed {
        all.push(format!("the scrub ended early: {why}"));
    }
    if let Some(first) = store.node.calendar.overcommitted.first() {
        all.push(format!(
            "more is promised than the device can do, first from {} on: {:.1} % promised, {:.1} % to stay free",
            when::shown(Second(first.from)),
            first.promised_percent,
            first.headroom_percent
        ));
    }
    if store.node.capacity.calibration_due {
        all.push(
            "the device does no longer what it was measured to do: calibrate it again".to_owned(),
        );
    }
    all
}
