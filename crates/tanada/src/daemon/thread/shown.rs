//! Converts the status of engines into the types of the admin API; `tier` does so for tiers.
//!
//! ```text
//! hybrid, device, trace, sim -> types of `api`
//! ```

use std::os::unix::fs::FileTypeExt;

use config::{Backing, ExportConfig, Kind};
use device::Device;
use env::net::Address;
use front::Counters;
use front::nbd::{ConnectionSnapshot, ServerSnapshot};

use super::DataThread;
use super::behind::missing_cache;
use super::gates::AtGates;
use super::open::OpenDevice;
use crate::api;
use crate::api::clients::Which;
use crate::api::figures::{self, Latency, Operation, Power, Share, Written};
use crate::api::status::{DiskRequests, NbdRequests, Spindle};
use crate::api::volume::AdviceSeen;
use crate::api::volume::{Advice, AdviceAtSize, AdvicePoint, Attachment, Cache, Settings, Trace};

/// Connections of NBD clients to an export now, and what they asked so far.
#[derive(Default)]
struct OfClients {
    connections: u64,
    errors: u64,
    requests: NbdRequests,
}

/// What servers and gates say of an export's clients; of a volume's not those that it counts itself.
fn of_clients(thread: &DataThread, export: &ExportConfig, gates: &[AtGates]) -> OfClients {
    let mut all = OfClients::default();
    let mut count = |snapshot: &ServerSnapshot| {
        for of in snapshot.exports.iter().filter(|of| of.name == export.name) {
            all.connections += of.connections;
            all.errors += of.counts.errors;
            all.requests = all.requests.and(&of.counts.into());
        }
    };
    let is_here = |address: &Address| export.nbd.contains(address);
    for at in gates.iter().filter(|at| is_here(&at.configured)) {
        count(&at.snapshot);
    }
    let servers = thread.entrances.servers();
    for server in servers.iter().filter(|it| is_here(&it.configured)) {
        count(&server.server.snapshot());
    }
    all
}

/// An export as `/v1/status` shows it.
pub(super) fn export_of(
    thread: &DataThread,
    export: &ExportConfig,
    gates: &[AtGates],
) -> api::status::Export {
    let disk = thread.disk(export);
    let ublk = disk.as_ref().map(|disk| disk.path.display().to_string());
    let ublk_requests = disk.map(|disk| disk.requests());
    let failed = ublk_requests.map_or(0, |requests| requests.errors);
    let machine = thread.entrances.socket(export);
    let vhost_user = machine.as_ref().map(|machine| machine.address.to_string());
    let machine = machine.map(|machine| machine.server.snapshot());
    let vhost_user_requests = machine.as_ref().map(|of| DiskRequests::from(of.requests));
    let failed = failed + vhost_user_requests.map_or(0, |requests| requests.errors);
    let machines = u64::from(machine.is_some_and(|of| of.client.is_some()));
    let clients = of_clients(thread, export, gates);
    if let Some(volume) = thread.cluster.as_ref().and_then(|open| open.export(export)) {
        let report = volume.report();
        return api::status::Export {
            ublk,
            ublk_requests,
            nbd_requests: Some(
                clients
                    .requests
                    .and(&report.nbd_requests.unwrap_or_default()),
            ),
            vhost_user,
            vhost_user_requests,
            // Clients of gates are counted by the volume itself.
            connections: report.connections + machines,
            errors: report.errors + clients.errors + failed,
            why: report.why.or(thread.entrances.disks.why_away(&export.name)),
            ..report
        };
    }
    let size = thread.find(&export.device).map(|meter| meter.info().size);
    api::status::Export {
        name: export.name.clone(),
        device: export.device.clone(),
        size_bytes: size.unwrap_or_default().0,
        nbd: places_of(thread, export),
        ublk,
        ublk_requests,
        nbd_requests: Some(clients.requests),
        vhost_user,
        vhost_user_requests,
        read_only: export.read_only || thread.is_read_only(&export.device),
        tls: export.tls.is_some(),
        terms: api::status::ExportTerms {
            caps: thread
                .caps
                .of(export)
                .and_then(|it| super::caps::shown(&it)),
            ..Default::default()
        },
        connections: clients.connections + machines,
        errors: clients.errors + failed,
        why: missing_cache(thread, &export.device).and_then(|it| it.why_withheld()),
    }
}

fn places_of(thread: &DataThread, export: &ExportConfig) -> Vec<String> {
    let addresses = thread.entrances.addresses(export);
    addresses.iter().map(Address::to_string).collect()
}

/// A device as `/v1/status` shows it.
pub(super) fn device_of(thread: &DataThread, device: &OpenDevice) -> api::status::Device {
    let config = &device.config;
    let info = device.meter.info();
    let (kind, model, path) = match &config.kind {
        Kind::Path { path, .. } => {
            let is_block =
                std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
            let kind = if is_block { "block device" } else { "file" };
            (kind, None, Some(path))
        }
        Kind::Model {
            model,
            backing: Backing::File(file),
            ..
        } => ("model", Some(model.clone()), Some(file)),
        Kind::Model { model, .. } => ("model", Some(model.clone()), None),
        Kind::Memory { .. } => ("memory", None, None),
        Kind::Striped { .. } => ("stripe", None, None),
    };
    let stripe = thread.stripe_of(&config.name);
    let owner = thread
        .volumes
        .iter()
        .find(|volume| volume.uses(&config.name));
    let owner = owner.map(|volume| volume.config.name());
    let owner = owner.or(stripe).or(thread.store_on(&config.name));
    // A stripe's energy is that of its members, which report it.
    let is_whole = matches!(config.kind, Kind::Striped { .. });
    api::status::Device {
        name: config.name.clone(),
        kind: kind.to_owned(),
        model,
        path: path.map(|path| path.display().to_string()),
        size_bytes: info.size.0,
        physical_block_bytes: info.physical_block.0,
        rotational: info.rotational,
        read_only: info.read_only || config.read_only,
        part_of: owner.map(str::to_owned),
        figures: device.meter.snapshot().into(),
        power: device
            .meter
            .power()
            .filter(|_| !is_whole)
            .map(api::figures::Power::from),
        spindle: thread
            .volumes
            .iter()
            .any(|volume| volume.lets_sleep(&config.name))
            .then(|| device.meter.spindle().map(Spindle::from))
            .flatten(),
    }
}

impl From<device::Spindle> for Spindle {
    fn from(spindle: device::Spindle) -> Spindle {
        let ago = env::now().since(spindle.since);
        let since = env::wall_clock().saturating_sub(ago);
        Spindle {
            asleep: spindle.asleep,
            since_unix_seconds: since.secs_f64() as u64,
        }
    }
}

impl From<front::nbd::Counters> for NbdRequests {
    fn from(of: front::nbd::Counters) -> NbdRequests {
        NbdRequests {
            reads: of.reads,
            read_bytes: of.read_bytes,
            writes: of.writes,
            written_bytes: of.written_bytes,
            flushes: of.flushes,
            discards: of.trims,
            write_zeroes: of.zeroes,
        }
    }
}

impl NbdRequests {
    /// Both together.
    pub fn and(&self, other: &NbdRequests) -> NbdRequests {
        NbdRequests {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            flushes: self.flushes + other.flushes,
            discards: self.discards + other.discards,
            write_zeroes: self.write_zeroes + other.write_zeroes,
        }
    }
}

impl From<Counters> for DiskRequests {
    fn from(counters: Counters) -> DiskRequests {
        DiskRequests {
            in_flight: counters.under_way,
            reads: counters.reads,
            read_bytes: counters.bytes_read,
            writes: counters.writes,
            written_bytes: counters.bytes_written,
            flushes: counters.flushes,
            discards: counters.discards,
            write_zeroes: counters.zeroes,
            forced: counters.forced,
            errors: counters.failed,
        }
    }
}

impl From<hybrid::AttachmentId> for Attachment {
    fn from(attachment: hybrid::AttachmentId) -> Attachment {
        Attachment {
            cache: format!("{:032x}", attachment.cache),
            generation: attachment.generation,
        }
    }
}

impl From<trace::record::Recording> for Trace {
    fn from(recording: trace::record::Recording) -> Trace {
        Trace {
            file: recording.file.display().to_string(),
            max_bytes: recording.max.0,
            requests: recording.written,
            dropped: recording.dropped,
            written_bytes: recording.bytes.0,
            failed: recording.failed,
        }
    }
}

impl Advice {
    /// What was found, and what the cache itself counted.
    pub fn new(volume: &str, found: sim::advise::shadow::Findings, cache: &Cache) -> Advice {
        let advised_bytes = found.chosen.map(|chosen| found.sizes[chosen].size_bytes);
        let (fast, all) = cache.read_bytes();
        let sizes = found.sizes.into_iter().map(|at| AdviceAtSize {
            size_bytes: at.size_bytes,
            hit_ratio: at.hit_ratio,
            read_hit_ratio: at.read_hit_ratio,
            lru_hit_ratio: at.lru_hit_ratio,
            slow_pages: at.slow_pages,
            slow_saved: at.slow_saved,
            flash_bytes_per_day: at.flash_bytes_per_day,
        });
        let lru = found.lru.into_iter().map(|point| AdvicePoint {
            size_bytes: point.size_bytes,
            hit_ratio: point.hit_ratio,
        });
        Advice {
            seen: AdviceSeen {
                volume: volume.to_owned(),
                watched_seconds: found.watched_seconds,
                requests: found.requests,
                pages: found.pages,
                passed_pages: found.passed_pages,
                sampled: found.sampled,
                sampling_rate: found.rate,
                footprint_bytes: found.footprint_bytes,
            },
            policy: found.cache.policy,
            write: found.cache.write,
            admission: found.cache.admission,
            present_bytes: found.present_bytes,
            measured_read_share: (all > 0).then(|| fast as f64 / all as f64),
            sizes: sizes.collect(),
            lru: lru.collect(),
            advised_bytes,
            reasons: found.reasons,
            memory_bytes: found.memory_bytes,
        }
    }
}

impl From<device::meter::Snapshot> for figures::Counters {
    fn from(figures: device::meter::Snapshot) -> figures::Counters {
        let operations = figures.operations.into_iter().map(|of| Operation {
            op: of.op,
            class: of.class,
            requests: of.requests,
            bytes: of.bytes,
            errors: of.errors,
            abandoned: of.abandoned,
            latency: Latency {
                count: of.latency.count,
                sum_ns: of.latency.sum_ns,
                p50_ns: of.latency.p50_ns,
                p90_ns: of.latency.p90_ns,
                p99_ns: of.latency.p99_ns,
                p999_ns: of.latency.p999_ns,
                max_ns: of.latency.max_ns,
                buckets: of.latency.buckets,
            },
        });
        figures::Counters {
            over_ns: figures.over_ns,
            in_flight: figures.in_flight,
            depth_time_ns: figures.depth_time_ns,
            busy_ns: figures.busy_ns,
            operations: operations.collect(),
        }
    }
}

impl From<device::Power> for Power {
    fn from(power: device::Power) -> Power {
        Power {
            joules: power.joules,
            over_ns: power.over.0,
            spin_ups: power.spin_ups,
            standby: power.standby,
        }
    }
}

impl From<hybrid::Share> for Share {
    fn from(share: hybrid::Share) -> Share {
        Share {
            requests_fast: share.requests_fast,
            requests_slow: share.requests_slow,
            requests_both: share.requests_both,
            bytes_fast: share.bytes_fast,
            bytes_slow: share.bytes_slow,
        }
    }
}

impl From<hybrid::Written> for Written {
    fn from(written: hybrid::Written) -> Written {
        Written {
            requests: written.requests,
            bytes: written.bytes,
        }
    }
}

impl From<&hybrid::Settings> for Settings {
    fn from(settings: &hybrid::Settings) -> Settings {
        let energy = settings.energy;
        Settings {
            mode: settings.mode.to_string(),
            policy: settings.policy.to_string(),
            write: settings.write.to_string(),
            admission: settings.admission.to_string(),
            block_bytes: settings.block.0,
            sequential_bypass_bytes: settings.sequential_bypass.map(|bytes| bytes.0),
            dirty_low: settings.dirty_low,
            dirty_high: settings.dirty_high,
            energy: energy.is_some(),
            age_limit_seconds: energy.map(|energy| energy.age_limit.secs_f64()),
            standby_after_seconds: energy.map(|energy| energy.standby_after.secs_f64()),
            flash_writes_per_day_bytes: settings.flash_writes_per_day.map(|bytes| bytes.0),
            fast_size_bytes: settings.fast_bytes.map(|bytes| bytes.0),
            tier: settings.mode.has_tier().then(|| (&settings.tier).into()),
        }
    }
}

impl Which {
    pub fn means(&self, listener: &str, client: &ConnectionSnapshot) -> bool {
        let there = self.listener.as_ref().is_none_or(|it| it == listener);
        let number = self.id.is_none_or(|id| id == client.id);
        let export = self.export.is_none() || self.export == client.export;
        there && number && export
    }

    /// Does it say enough that not every client is meant by an oversight?
    pub fn is_some(&self) -> bool {
        self.export.is_some() || (self.listener.is_some() && self.id.is_some())
    }
}
