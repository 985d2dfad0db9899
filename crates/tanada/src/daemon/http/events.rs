//! The stream of samples that the dashboard draws: one task makes one a second for all who look, and none for none.
//!
//! ```text
//! GET /v1/events -> viewer -> the first one starts the sampler -> each second: status -> Sample, once -> all viewers
//!                         \-> the last one leaves: the sampler ends with its next beat
//! ```
//!
//! Always true:
//! 1. A sample is made and written as JSON once, however many look.
//! 2. A viewer that reads slowly misses samples and holds up no other.
//! 3. A stream ends after [`STREAM_MAX`], so that who lost the right to it loses it soon.
//! 4. The total counts a client's request once: not again at a hybrid that a store or another hybrid stands on.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body_util::channel::{Channel, Sender};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use vdisk::VolumeId;

use super::cluster_thread::ClusterThread;
use super::control::{Control, Failure, query};
use super::health;
use crate::api::events::{EventsAsk, PowerSample, Sample, StoreSample, VolumeSample};
use crate::api::figures::{Counters, Power};
use crate::api::health::Health;
use crate::api::rates::{Rates, watts};
use crate::api::refusal::Refusal;
use crate::api::status::Status;
use crate::api::store::Store;
use crate::api::volume::Volume;
use crate::daemon::common::when::unix_seconds;

/// From one sample to the next.
const BEAT: Duration = Duration::from_secs(1);
/// A stream ends after so long; who may go on opens it again.
const STREAM_MAX: Duration = Duration::from_secs(300);

/// The newest sample, and the task that makes them while there are viewers.
#[derive(Default)]
pub struct Sampler {
    /// As it goes over the wire.
    newest: watch::Sender<Bytes>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Sampler {
    /// One more viewer; the first one starts the sampler.
    fn join(self: &Arc<Sampler>, control: &Arc<Control>) -> watch::Receiver<Bytes> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            self.newest.send_replace(Bytes::new());
            let work = sample(Arc::clone(self), Arc::clone(control));
            *task = Some(tokio::spawn(work));
        }
        self.newest.subscribe()
    }

    /// Has the last viewer left? Then the sampler is gone for the next one.
    fn is_left(&self) -> bool {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = self.newest.receiver_count() == 0;
        if is_left {
            *task = None;
        }
        is_left
    }
}

/// Makes samples until no viewer is left.
async fn sample(sampler: Arc<Sampler>, control: Arc<Control>) {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<Look> = None;
    loop {
        beat.tick().await;
        if sampler.is_left() {
            return;
        }
        let look = Look::take(&control).await;
        let line = event(&look.sample(before.as_ref(), &control));
        before = Some(look);
        sampler.newest.send_replace(line);
    }
}

/// An event as the stream has it.
fn event(sample: &Sample) -> Bytes {
    let data = serde_json::to_string(sample).unwrap_or_default();
    Bytes::from(format!("data: {data}\n\n"))
}

/// What the daemon was at one moment.
struct Look {
    at: tokio::time::Instant,
    status: Status,
    disks: Vec<OpenDisk>,
}

/// A virtual disk that is open on this node.
struct OpenDisk {
    id: VolumeId,
    /// What its clients asked since it was opened.
    figures: Counters,
}

impl Look {
    async fn take(control: &Control) -> Look {
        let status = control.status_within(health::TIMEOUT);
        let (status, disks) = tokio::join!(status, open_disks(control));
        let at = tokio::time::Instant::now();
        Look { at, status, disks }
    }

    /// What happened since `before`.
    fn sample(&self, before: Option<&Look>, control: &Control) -> Sample {
        let seconds = before.map(|before| self.at.duration_since(before.at).as_secs_f64());
        let volumes = self.status.volumes.iter();
        let pairs: Vec<(&Volume, Option<&Volume>)> = volumes
            .map(|volume| (volume, before.and_then(|it| it.volume(&volume.name))))
            .collect();
        let read = pairs.iter().filter_map(|(now, old)| Some((*now, (*old)?)));
        let read: Vec<(&Volume, &Volume)> = read.collect();
        let nbd = self.status.nbd.iter();
        Sample {
            at_unix_seconds: unix_seconds(),
            seconds: seconds.unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_seconds: control.started.unix_seconds,
            uptime_seconds: control.started.at.elapsed().as_secs_f64(),
            cluster: control.threads.iter().any(|thread| thread.has.cluster),
            health: Health {
                // Who muted what has a name.
                mutes: Vec::new(),
                ..control.health.last()
            },
            silent: self.status.machine.silent.clone(),
            total: before.map(|before| Rates::of_all(self.of_clients(before))),
            hit_share: hit_share(&read),
            clients: nbd.map(|it| it.clients.len() as u64).sum(),
            volumes: pairs
                .iter()
                .map(|(now, old)| VolumeSample {
                    part_of: self.part_of(&now.name),
                    ..volume(now, *old)
                })
                .collect(),
            stores: self
                .status
                .stores
                .iter()
                .map(|store| store_sample(store, before, seconds))
                .collect(),
            power: self.power(before),
        }
    }

    /// Counters of what clients use, then and now: hybrids that are part of nothing, and virtual disks open here.
    fn of_clients<'a>(&'a self, before: &'a Look) -> Vec<(Option<&'a Counters>, &'a Counters)> {
        let own = self.status.volumes.iter();
        let own = own.filter(|it| self.part_of(&it.name).is_none());
        let hybrids =
            own.filter_map(|now| Some((&before.volume(&now.name)?.figures, &now.figures)));
        let disks = self.disks.iter().filter_map(|now| {
            let mut all = before.disks.iter();
            let old = all.find(|old| old.id == now.id)?;
            // One that was closed and opened meanwhile counts from nothing, for less time than before.
            let goes_on = now.figures.over_ns >= old.figures.over_ns;
            goes_on.then_some((&old.figures, &now.figures))
        });
        let all = hybrids.chain(disks);
        all.map(|(old, now)| (Some(old), now)).collect()
    }

    /// The store or hybrid that stands on a hybrid, whose requests are then no client's.
    fn part_of(&self, hybrid: &str) -> Option<String> {
        let stores = self.status.stores.iter().map(|it| &it.basics);
        let mut stores = stores.filter(|it| it.device == hybrid);
        let is_above = |it: &&Volume| it.slow == hybrid || it.fast.as_deref() == Some(hybrid);
        let above = self.status.volumes.iter().find(is_above);
        let store = stores.next().map(|it| &it.name);
        store.or(above.map(|it| &it.name)).cloned()
    }

    /// What devices that say so drew since `before`.
    fn power(&self, before: Option<&Look>) -> Vec<PowerSample> {
        let metered = |look: &Look| -> Vec<(String, Power)> {
            let metered = look.status.devices.iter();
            let metered = metered.filter_map(|it| Some((it.name.clone(), it.power.clone()?)));
            metered.collect()
        };
        let earlier = before.map(metered).unwrap_or_default();
        let sample = |(device, power): (String, Power)| {
            let old = earlier.iter().find(|old| old.0 == device);
            PowerSample {
                watts: old.and_then(|old| watts(Some(&old.1), &power)),
                standby: power.standby,
                device,
            }
        };
        metered(self).into_iter().map(sample).collect()
    }

    fn volume(&self, name: &str) -> Option<&Volume> {
        self.status.volumes.iter().find(|it| it.name == name)
    }

    fn store(&self, name: &str) -> Option<&Store> {
        let mut stores = self.status.stores.iter();
        stores.find(|it| it.basics.name == name)
    }
}

/// The virtual disks that are open here; none if their thread does not say so in time.
async fn open_disks(control: &Control) -> Vec<OpenDisk> {
    let cluster = ClusterThread(control);
    if !cluster.has_cluster() {
        return Vec::new();
    }
    // What this node has in memory: no record is read, and no meta store asked.
    let asked = cluster.at_open(async |open| {
        let open = open.cluster.openings.open_volumes();
        let disk = |volume: &Rc<vdisk::volume::Volume>| OpenDisk {
            id: volume.record().id,
            figures: volume.requests().into(),
        };
        open.iter().map(disk).collect()
    });
    let answer = tokio::time::timeout(health::TIMEOUT, asked).await;
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// Bytes read from the fast devices, of all that these volumes read between two looks.
fn hit_share(volumes: &[(&Volume, &Volume)]) -> Option<f64> {
    let mut sums = (0, 0);
    for (now, old) in volumes {
        let (now, old) = (now.cache.read_bytes(), old.cache.read_bytes());
        sums.0 += now.0.saturating_sub(old.0);
        sums.1 += now.1.saturating_sub(old.1);
    }
    (sums.1 > 0).then(|| sums.0 as f64 / sums.1 as f64)
}

fn volume(now: &Volume, old: Option<&Volume>) -> VolumeSample {
    VolumeSample {
        name: now.name.clone(),
        health: now.health.clone(),
        why: now.why.clone(),
        size_bytes: now.size_bytes,
        rates: old.map(|old| Rates::between(Some(&old.figures), &now.figures)),
        hit_share: old.and_then(|old| hit_share(&[(now, old)])),
        cache_bytes: now.cache.cache_bytes,
        cached_bytes: now.cache.cached_bytes,
        part_of: None,
        dirty_bytes: now.cache.dirty_bytes,
        moves_under_way: now.tier.as_ref().map_or(0, |tier| tier.moves_under_way),
    }
}

fn store_sample(now: &Store, before: Option<&Look>, seconds: Option<f64>) -> StoreSample {
    let old = before.and_then(|it| it.store(&now.basics.name));
    let rate = |of: fn(&Store) -> u64| {
        let (old, seconds) = (old?, seconds.filter(|it| *it > 0.0)?);
        Some(of(now).saturating_sub(of(old)) as f64 / seconds)
    };
    let node = &now.node;
    StoreSample {
        name: now.basics.name.clone(),
        total_bytes: node.space.total_bytes,
        free_bytes: node.space.free_bytes,
        read_bytes_per_second: rate(|it| it.node.queue.read_bytes),
        write_bytes_per_second: rate(|it| it.node.queue.written_bytes),
        promised_percent: node.calendar.now.promised_percent,
        in_flight: node.queue.in_flight,
        bad_pages: now.bad_blocks,
    }
}

/// Server-sent events: a [`Sample`] a second as the data of each.
#[utoipa::path(get, path = "/v1/events", params(EventsAsk), responses(
    (status = 200, description = "A stream of samples", body = Sample, content_type = "text/event-stream"),
    (status = 422, body = Refusal),
))]
pub(super) async fn get_events(
    State(control): State<Arc<Control>>,
    Extension(sampler): Extension<Arc<Sampler>>,
    asked: Result<Query<EventsAsk>, QueryRejection>,
) -> Result<Response, Failure> {
    let ask = query(asked, "the key is samples, a number")?;
    let viewer = sampler.join(&control);
    let (to, body) = Channel::new(1);
    tokio::spawn(feed(viewer, to, ask.samples.unwrap_or(u64::MAX)));
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((head, Body::new(body)).into_response())
}

/// Sends a viewer what comes, until it has gone, has had enough, or its time is over.
async fn feed(mut viewer: watch::Receiver<Bytes>, mut to: Sender<Bytes>, samples: u64) {
    let end = tokio::time::Instant::now() + STREAM_MAX;
    for number in 0..samples {
        if number > 0 {
            match tokio::time::timeout_at(end, viewer.changed()).await {
                Ok(Ok(())) => {}
                // Over, or the daemon ends.
                _ => return,
            }
        }
        let fresh = viewer.wait_for(|line| !line.is_empty());
        let line = match tokio::time::timeout_at(end, fresh).await {
            Ok(Ok(line)) => line.clone(),
            _ => return,
        };
        // One that does not read has no longer time than others.
        if !matches!(
            tokio::time::timeout_at(end, to.send_data(line)).await,
            Ok(Ok(()))
        ) {
            return;
        }
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
