//! What happened between two looks at a daemon, as rows of figures for people.
//!
//! ```text
//! earlier status, later status -> differences per second -> cells -> text (--once) or screen (top)
//! ```

use report::terminal::table::{count, megabytes_per_second, share, size, span};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::rates::{Rates, watts};
use crate::api::status::{Device, Export, Status, Thread};
use crate::api::store::Store;
use crate::api::tier::Tier;
use crate::api::volume::Volume;

/// One frame of `tanada top`: what happened in a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Frame {
    pub title: String,
    pub volumes: Vec<VolumeRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionRow>,
    pub devices: Vec<DeviceRow>,
    pub exports: Vec<Export>,
}

/// A volume in that time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct VolumeRow {
    pub name: String,
    pub health: String,
    #[serde(flatten)]
    pub rates: Rates,
    /// Bytes read from the fast device, of all bytes read.
    pub hit_share: Option<f64>,
    pub dirty_bytes: u64,
    /// Its tier, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierRow>,
}

/// The tier of a volume in that time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TierRow {
    pub regions_up: u32,
    pub regions: u32,
    pub held_bytes: u64,
    pub moves_under_way: u32,
    /// Copied by moves, both ways.
    pub moved_bytes_per_second: f64,
    /// What flow control lets moves copy.
    pub flow_bytes_per_second: Option<f64>,
}

/// One holder's access to a store in that time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SessionRow {
    pub store: String,
    pub session: u64,
    /// Such as `s0/7`; absent: best effort.
    pub reservation: Option<String>,
    pub holder: String,
    pub direction: Option<String>,
    pub state: String,
    pub promised_bytes_per_second: u64,
    pub delivered_bytes_per_second: f64,
    /// Windows that ended in that time, by how.
    pub kept: u64,
    pub violated_capacity: u64,
    pub violated_scheduler: u64,
    /// What the store gives up now.
    pub shed: String,
}

/// A device in that time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DeviceRow {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub rates: Rates,
    /// Mean power, for a model.
    pub watts: Option<f64>,
    pub standby: bool,
}

/// A table for people.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub head: Vec<&'static str>,
    pub cells: Vec<Vec<String>>,
}

impl Frame {
    /// What happened from `earlier` to `later`. A daemon that was restarted in between counts from zero.
    pub fn between(earlier: &Status, later: &Status) -> Frame {
        let same_run =
            earlier.pid == later.pid && earlier.started_unix_seconds == later.started_unix_seconds;
        let volumes = later.volumes.iter().map(|volume| {
            let found = earlier.volumes.iter().find(|old| old.name == volume.name);
            volume_row(found.filter(|_| same_run), volume)
        });
        let devices = later.devices.iter().map(|device| {
            let found = earlier.devices.iter().find(|old| old.name == device.name);
            device_row(found.filter(|_| same_run), device)
        });
        Frame {
            title: title(later),
            volumes: volumes.collect(),
            sessions: session_rows(earlier, later, same_run),
            devices: devices.collect(),
            exports: later.exports.clone(),
        }
    }

    /// Volumes, sessions at stores, devices and exports as tables.
    pub fn tables(&self) -> [Rows; 4] {
        let mut volumes = Rows {
            head: vec![
                "VOLUME", "HEALTH", "READ/S", "MB/S", "WRITE/S", "MB/S", "HITS", "DIRTY", "P50",
                "P99",
            ],
            cells: self.volumes.iter().map(volume_cells).collect(),
        };
        if self.volumes.iter().any(|volume| volume.tier.is_some()) {
            volumes.head.extend(["UP", "HELD", "MOVES", "MOVED MB/S"]);
            for (cells, volume) in volumes.cells.iter_mut().zip(&self.volumes) {
                cells.extend(tier_cells(volume.tier.as_ref()));
            }
        }
        let devices = Rows {
            head: vec![
                "DEVICE", "KIND", "READ/S", "MB/S", "WRITE/S", "MB/S", "QUEUE", "BUSY", "P50",
                "P99", "POWER",
            ],
            cells: self.devices.iter().map(device_cells).collect(),
        };
        let exports = self.exports.iter().map(|export| {
            vec![
                export.name.clone(),
                export.device.clone(),
                size(export.size_bytes),
                export
                    .terms
                    .priority
                    .clone()
                    .unwrap_or_else(|| "-".to_owned()),
                export.connections.to_string(),
                export.errors.to_string(),
                export.places(),
            ]
        });
        let exports = Rows {
            head: vec![
                "EXPORT", "OF", "SIZE", "PRIORITY", "CLIENTS", "ERRORS", "ADDRESS",
            ],
            cells: exports.collect(),
        };
        let sessions = Rows {
            head: vec![
                "STORE",
                "SESSION",
                "HOLDER",
                "OF",
                "STATE",
                "PROMISED",
                "MB/S",
                "KEPT",
                "CAPACITY",
                "SCHEDULER",
                "SHED",
            ],
            cells: self.sessions.iter().map(session_cells).collect(),
        };
        [volumes, sessions, devices, exports]
    }
}

/// The daemon in one line.
pub fn title(status: &Status) -> String {
    let mut drivers = status.drivers.clone();
    drivers.dedup();
    let gates = status.gates.iter().filter(|gate| gate.dead);
    let dead = status.dead.iter().chain(gates.map(|gate| &gate.name));
    let dead: Vec<&str> = dead.map(String::as_str).collect();
    let dead = match dead.is_empty() {
        true => String::new(),
        false => format!("; DEAD (see the log): {}", dead.join(", ")),
    };
    let (spun, in_vain) = spun_percent(&status.threads);
    let spins = match spun >= 0.1 {
        true => format!("; polls {spun:.1} % of the time, {in_vain:.1} % in vain"),
        false => String::new(),
    };
    format!(
        "Tanada {}, pid {}, up {}, {}{spins}{dead}",
        status.version,
        status.pid,
        uptime(status.uptime_seconds),
        drivers.join(" and ")
    )
}

/// Percent of their time that data threads looked for work without sleeping, and percent of it in vain.
fn spun_percent(threads: &[Thread]) -> (f64, f64) {
    let sum = |part: fn(&Thread) -> f64| threads.iter().map(part).sum::<f64>();
    let whole = sum(|thread| thread.seconds).max(1e-9);
    let percent = |part| 100.0 * sum(part) / whole;
    (
        percent(|thread| thread.spun_seconds),
        percent(|thread| thread.spun_in_vain_seconds),
    )
}

/// `2d 3h`, `5m 12s`: the two largest units.
pub fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut rest = seconds;
    let parts: Vec<String> = units
        .iter()
        .filter_map(|(length, unit)| {
            let n = rest / length;
            rest %= length;
            (n > 0).then(|| format!("{n}{unit}"))
        })
        .take(2)
        .collect();
    match parts.is_empty() {
        true => "0s".to_owned(),
        false => parts.join(" "),
    }
}

fn volume_row(earlier: Option<&Volume>, volume: &Volume) -> VolumeRow {
    let (fast, all) = volume.cache.read_bytes();
    let (old_fast, old_all) = earlier.map_or((0, 0), |old| old.cache.read_bytes());
    let (fast, all) = (fast.saturating_sub(old_fast), all.saturating_sub(old_all));
    VolumeRow {
        name: volume.name.clone(),
        health: volume.health.clone(),
        rates: Rates::between(earlier.map(|old| &old.figures), &volume.figures),
        hit_share: (all > 0).then(|| fast as f64 / all as f64),
        dirty_bytes: volume.cache.dirty_bytes,
        tier: volume
            .tier
            .as_ref()
            .map(|tier| tier_row(earlier, volume, tier)),
    }
}

/// The sessions that are open, and what each got since.
fn session_rows(earlier: &Status, later: &Status, same_run: bool) -> Vec<SessionRow> {
    let seconds = (later.uptime_seconds - earlier.uptime_seconds).max(1e-9);
    let mut rows = Vec::new();
    for store in &later.stores {
        let found = earlier
            .stores
            .iter()
            .find(|old| old.basics.name == store.basics.name);
        let before = found.filter(|_| same_run);
        rows.extend(
            store
                .sessions
                .iter()
                .filter(|it| it.closed.is_none())
                .map(|it| {
                    let old = before.and_then(|store: &Store| {
                        let mut all = store.sessions.iter();
                        all.find(|old| old.session == it.session)
                    });
                    let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
                    let (got, old) = (&it.delivery, old.map(|old| &old.delivery));
                    let delivered = since(got.delivered_bytes, old.map(|old| old.delivered_bytes));
                    let (windows, old) = (&got.windows, old.map(|old| &old.windows));
                    SessionRow {
                        store: store.basics.name.clone(),
                        session: it.session,
                        reservation: it
                            .reservation
                            .map(|number| format!("{}/{number}", store.basics.name)),
                        holder: it.holder.clone(),
                        direction: it.direction.clone(),
                        state: it.phase.name().to_owned(),
                        promised_bytes_per_second: it.promised,
                        delivered_bytes_per_second: delivered as f64 / seconds,
                        kept: since(windows.kept, old.map(|old| old.kept)),
                        violated_capacity: since(windows.capacity, old.map(|old| old.capacity)),
                        violated_scheduler: since(windows.scheduler, old.map(|old| old.scheduler)),
                        shed: store.node.queue.shed.clone(),
                    }
                }),
        );
    }
    rows
}

fn session_cells(row: &SessionRow) -> Vec<String> {
    let or_dash = |text: &str| match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    vec![
        row.store.clone(),
        match &row.reservation {
            Some(reservation) => reservation.clone(),
            None => format!("#{}", row.session),
        },
        or_dash(&row.holder),
        or_dash(row.direction.as_deref().unwrap_or_default()),
        row.state.clone(),
        match row.promised_bytes_per_second {
            0 => "-".to_owned(),
            rate => megabytes_per_second(rate as f64),
        },
        megabytes_per_second(row.delivered_bytes_per_second),
        row.kept.to_string(),
        row.violated_capacity.to_string(),
        row.violated_scheduler.to_string(),
        row.shed.clone(),
    ]
}

fn tier_row(earlier: Option<&Volume>, volume: &Volume, tier: &Tier) -> TierRow {
    let moved = |tier: &Tier| tier.up_bytes + tier.down_bytes;
    let (before, since) = earlier.map_or((0, 0), |old| {
        (old.tier.as_ref().map_or(0, moved), old.figures.over_ns)
    });
    let seconds = volume.figures.over_ns.saturating_sub(since).max(1) as f64 / 1e9;
    TierRow {
        regions_up: tier.room.regions_up,
        regions: tier.room.regions,
        held_bytes: tier.room.held_bytes,
        moves_under_way: tier.moves_under_way,
        moved_bytes_per_second: moved(tier).saturating_sub(before) as f64 / seconds,
        flow_bytes_per_second: tier.flow_bytes_per_second,
    }
}

fn device_row(earlier: Option<&Device>, device: &Device) -> DeviceRow {
    let old_power = earlier.and_then(|old| old.power.as_ref());
    DeviceRow {
        name: device.name.clone(),
        kind: device.model.clone().unwrap_or_else(|| device.kind.clone()),
        rates: Rates::between(earlier.map(|old| &old.figures), &device.figures),
        watts: device
            .power
            .as_ref()
            .and_then(|power| watts(old_power, power)),
        standby: device.power.as_ref().is_some_and(|power| power.standby)
            || device.spindle.is_some_and(|spindle| spindle.asleep),
    }
}

fn flow_cells(rates: &Rates) -> [String; 4] {
    [
        count(rates.reads_per_second),
        megabytes_per_second(rates.read_bytes_per_second),
        count(rates.writes_per_second),
        megabytes_per_second(rates.write_bytes_per_second),
    ]
}

fn time(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), span)
}

fn volume_cells(row: &VolumeRow) -> Vec<String> {
    let mut cells = vec![row.name.clone(), row.health.clone()];
    cells.extend(flow_cells(&row.rates));
    cells.extend([
        row.hit_share
            .map_or("-".to_owned(), |hits| share(hits, 1.0)),
        size(row.dirty_bytes),
        time(row.rates.latency_ns_p50),
        time(row.rates.latency_ns_p99),
    ]);
    cells
}

fn tier_cells(row: Option<&TierRow>) -> [String; 4] {
    match row {
        None => ["-", "-", "-", "-"].map(str::to_owned),
        Some(row) => [
            format!("{}/{}", row.regions_up, row.regions),
            size(row.held_bytes),
            row.moves_under_way.to_string(),
            megabytes_per_second(row.moved_bytes_per_second),
        ],
    }
}

fn device_cells(row: &DeviceRow) -> Vec<String> {
    let mut cells = vec![row.name.clone(), row.kind.clone()];
    cells.extend(flow_cells(&row.rates));
    cells.extend([
        format!("{:.1}", row.rates.queue_mean),
        share(row.rates.busy_share.min(1.0), 1.0),
        time(row.rates.latency_ns_p50),
        time(row.rates.latency_ns_p99),
        match (row.watts, row.standby) {
            (None, false) => "-".to_owned(),
            (None, true) => "asleep".to_owned(),
            (Some(watts), false) => format!("{watts:.2} W"),
            (Some(watts), true) => format!("{watts:.2} W asleep"),
        },
    ]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uptime_has_two_units() {
        assert_eq!(uptime(0.4), "0s");
        assert_eq!(uptime(75.0), "1m 15s");
        assert_eq!(uptime(86_400.0 * 2.0 + 3_600.0), "2d 1h");
    }
}
