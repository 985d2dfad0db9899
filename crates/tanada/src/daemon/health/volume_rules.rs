//! What is wrong with a volume of either kind?

use base::Nanos;
use config::tier::time_text;
use report::terminal::table::size;

use super::codes::{
    CACHE_DETACHED, CACHE_LOST, CHECKSUM, DIRTY_OLD, STORE_FULL, VOLUME_DEGRADED, VOLUME_OFFLINE,
    VOLUME_READ_ONLY,
};
use super::recent::Recent;
use crate::api::cluster::Disk;
use crate::api::health::HealthCheck;
use crate::api::volume::Volume;

/// Dirty data are old after so long, unless energy mode lets them wait longer.
const DIRTY_OLD_SECONDS: f64 = 7200.0;
/// A bad checksum counts for so long.
const CHECKSUM_SPAN: Nanos = Nanos::secs(3600);

/// Of a hybrid.
pub fn hybrid(of: &Volume, recent: &mut Recent, out: &mut Vec<HealthCheck>) {
    out.extend(state(of));
    out.extend(dirty(of));
    out.extend(checksums(of, recent));
}

/// What is wrong, and why as far as that is said.
fn because(words: &str, why: &str) -> String {
    match why.is_empty() {
        true => words.to_owned(),
        false => format!("{words}: {why}"),
    }
}

fn state(of: &Volume) -> Option<HealthCheck> {
    let name = of.name.as_str();
    let (code, words, todo) = match of.health.as_str() {
        "failed" | "closed" => (
            VOLUME_OFFLINE,
            "it answers no requests",
            "look at its devices and the log; what was flushed is on them".to_owned(),
        ),
        "cache-lost" => (
            CACHE_LOST,
            "it answers no requests, since its cache is not there",
            format!(
                "connect the device of its cache and start the daemon again; if that is lost, `tanada volume attach {name} \
                 --new-cache --lose-dirty` goes on without what only it had"
            ),
        ),
        "degraded" if of.cache.clean_failures > 0 => (
            VOLUME_DEGRADED,
            "its slow device does not take what the cleaner writes",
            format!(
                "see to {}: what is dirty is on the fast device alone, so keep both together",
                of.slow
            ),
        ),
        "degraded" => (
            VOLUME_DEGRADED,
            "its fast device fails",
            format!(
                "replace its fast device: `tanada volume detach {name}`, then attach another one"
            ),
        ),
        "pass-through" | "evacuating" => (
            CACHE_DETACHED,
            "it runs without its fast device",
            format!("`tanada volume attach {name}` gives it a fast device again"),
        ),
        _ => return None,
    };
    Some(code.raised(Some(name), because(words, &of.why), todo))
}

fn dirty(of: &Volume) -> Option<HealthCheck> {
    let age = of.cache.dirty_age_ns as f64 / 1e9;
    let limit = of.settings.age_limit_seconds.filter(|_| of.settings.energy);
    // Energy mode means to let them wait; at twice its limit it did not come to write them.
    let limit = limit.map_or(DIRTY_OLD_SECONDS, |it| DIRTY_OLD_SECONDS.max(2.0 * it));
    if of.cache.dirty_bytes == 0 || age <= limit {
        return None;
    }
    let what = format!(
        "{} are on {} alone for {}",
        size(of.cache.dirty_bytes),
        of.fast.as_deref().unwrap_or("its fast device"),
        time_text(Nanos::secs(age as u64))
    );
    let todo = format!(
        "look whether {} takes writes; `tanada volume set {} write=through` adds no more",
        of.slow, of.name
    );
    Some(DIRTY_OLD.raised(Some(&of.name), what, todo))
}

fn checksums(of: &Volume, recent: &mut Recent) -> Option<HealthCheck> {
    let (name, cache) = (of.name.as_str(), &of.cache);
    let rose = recent.rose(CHECKSUM.name, name, cache.bad_checksums, CHECKSUM_SPAN);
    if cache.unreadable_dirty_bytes > 0 {
        let bytes = size(cache.unreadable_dirty_bytes);
        let what = format!("{bytes} that only the fast device has cannot be read");
        let todo = format!(
            "restore them from a backup; `tanada volume rescue {name}` saves what can be read"
        );
        return Some(CHECKSUM.raised(Some(name), what, todo));
    }
    let what = format!(
        "{} pages of its fast device were not what was written",
        cache.bad_checksums
    );
    let todo =
        "they were read from the slow device instead; replace the fast one if there are more";
    rose.then(|| CHECKSUM.raised(Some(name), what, todo))
}

/// Of a virtual disk.
pub fn virtual_disk(of: &Disk) -> Option<HealthCheck> {
    let name = of.terms.name.as_str();
    let show = format!("`tanada volume show {name}` says which stores; see to them first");
    let (code, words, todo) = match of.health.as_str() {
        "offline" => (VOLUME_OFFLINE, "it answers no requests", show),
        "read-only" => (VOLUME_READ_ONLY, "writes are refused", show),
        "full" => (
            STORE_FULL,
            "its stores have no room, and writes fail",
            "add a store, or delete snapshots".to_owned(),
        ),
        "degraded" => (VOLUME_DEGRADED, "it has fewer copies than it should", show),
        "resyncing" => (
            VOLUME_DEGRADED,
            "copies are being made",
            "nothing: look again when they are done".to_owned(),
        ),
        _ => return None,
    };
    Some(code.raised(Some(name), because(words, &of.why), todo))
}
