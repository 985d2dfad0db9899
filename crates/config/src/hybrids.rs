//! `[[hybrid]]`: a slow and a fast device that are seen as one.
//!
//! ```text
//! names of all -> each: its two parts, its settings -> in the order they can be made
//! ```
//!
//! Always true: a hybrid comes after those it stands on, and each of its parts has no other use.

use base::{Bytes, Nanos};
use hybrid::{Energy, Mode, Settings, WriteMode};

use super::caps::read_caps;
use super::keys::{At, Keys};
use super::scheduling::read_queue;
use super::tier::read_tier;
use super::types::{DeviceConfig, HybridConfig};
use super::values::{Things, read_name, read_span};

/// The age limit of energy mode unless configured.
pub const AGE_LIMIT: Nanos = Nanos::secs(30 * 60);
/// How long a slow device in energy mode stays idle before it sleeps, unless configured.
pub const STANDBY_AFTER: Nanos = Nanos::secs(60);

/// The mode of a new hybrid whose configuration names none.
///
/// Choice: only where both devices take part in everything is the gain of `both` measured. What writes past the cache
/// cannot have a tier, `only-writes` wants no reads on the fast device, and moves would wake a slow device that sleeps.
pub fn usual_mode(write: WriteMode, energy: bool) -> Mode {
    match write == WriteMode::Back && !energy {
        true => Mode::Both,
        false => Mode::Cache,
    }
}

/// Reads all of them.
pub(super) fn read_hybrids(
    root: &mut Keys<'_, '_>,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Vec<HybridConfig> {
    // A hybrid may stand on a later one, so all names are known before references are checked.
    let mut tables = root.tables("hybrid");
    let named: Vec<Option<String>> = tables
        .iter_mut()
        .map(|keys| read_name(keys, things))
        .collect();
    let mut hybrids = Vec::new();
    for (mut keys, name) in tables.into_iter().zip(named) {
        let broken = name.is_none();
        let name = name.unwrap_or_default();
        let hybrid = read_hybrid(&mut keys, name, devices, things);
        if let (Some(hybrid), false) = (hybrid, broken) {
            hybrids.push((keys.at(), hybrid));
        }
        keys.finish();
    }
    in_order(hybrids, root)
}

fn read_hybrid(
    keys: &mut Keys<'_, '_>,
    name: String,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<HybridConfig> {
    let slow = read_part(keys, "slow", "big slow device", devices, things);
    let fast = read_part(keys, "fast", "small fast device", devices, things);
    let standby_after = devices
        .iter()
        .find(|device| slow.as_ref() == Some(&device.name))
        .and_then(|device| device.standby_after)
        .unwrap_or(STANDBY_AFTER);
    let (settings, mode_named) = read_settings(keys, name, standby_after);
    let trace = keys.value("trace");
    let trace_max = keys.take::<Bytes>("trace_max");
    if let Some(At { at, value }) = &trace_max
        && let Err(error) = trace::record::check_max(*value)
    {
        keys.complain_at(*at, "trace_max", error.to_string());
    }
    let advise = keys.is_on("advise");
    let force = keys.is_on("force");
    let caps = read_caps(keys);
    let queue = read_queue(keys, settings.energy.is_some());
    // Mistakes of its parts do not hide those of its settings.
    for mistake in settings.mistakes() {
        keys.complain("", mistake.to_string());
    }
    Some(HybridConfig {
        settings,
        mode_named,
        slow: slow?,
        fast: fast?,
        force,
        verify: false,
        standby_after,
        trace,
        trace_max: trace_max.map_or(trace::record::DEFAULT_MAX, |at| at.value),
        advise,
        caps,
        queue,
    })
}

/// Complains about queues whose flows no export uses: flows of another queue would be taken for theirs.
pub(super) fn check_queues(root: &Keys<'_, '_>, hybrids: &[HybridConfig], things: &Things) {
    for hybrid in hybrids.iter().filter(|hybrid| hybrid.queue.is_some()) {
        let Some(whole) = things.part_of.get(hybrid.name()) else {
            continue;
        };
        let what = format!(
            "[[hybrid]] \"{}\" has queue = true and is part of {whole}; rates are promised to exports of a hybrid, and this one \
             has none: take queue out there",
            hybrid.name()
        );
        root.complain("", what);
    }
}

/// The device or hybrid under `key`, which from now on has no other use.
fn read_part(
    keys: &mut Keys<'_, '_>,
    key: &'static str,
    what: &str,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<String> {
    let found = keys.take::<String>(key);
    let missing = format!("{key} is missing; name the {what}: {key} = \"...\"");
    let At { value: name, at } = keys.need(found, &missing)?;
    things.find(keys, key, &name, at)?;
    // A fast device that takes no writes can give its dirty data back.
    if key == "slow" && devices.iter().any(|d| d.name == name && d.read_only) {
        let what = format!("\"{name}\" is read_only, and a hybrid writes to its slow device");
        keys.complain_at(at, key, what);
        return None;
    }
    let twice = "is the slow and the fast device; it takes two different ones";
    things.take_part(keys, key, &name, at, Some(twice))?;
    Some(name)
}

/// How it works, and whether its mode is named.
fn read_settings(keys: &mut Keys<'_, '_>, name: String, standby_after: Nanos) -> (Settings, bool) {
    let usual = Settings::default();
    let mode = keys.parse("mode", str::parse::<Mode>);
    let tier = read_tier(keys);
    let policy = keys.parse_or("policy", usual.policy, str::parse);
    let write = keys.parse_or("write", usual.write, str::parse);
    let admission = keys.parse_or("admission", usual.admission, str::parse);
    let block = keys.value("block");
    let sequential_bypass = keys.parse_size_or_off("sequential_bypass");
    let dirty_low = keys.value("dirty_low");
    let dirty_high = keys.value("dirty_high");
    let energy = keys.is_on("energy");
    let age_limit = keys.parse("age_limit", read_span);
    if let Some(At { at, .. }) = age_limit
        && !energy
    {
        keys.complain_at(
            at,
            "age_limit",
            "has a meaning only in energy mode; add energy = true or take it out",
        );
    }
    let settings = Settings {
        name,
        block: block.unwrap_or(usual.block),
        policy,
        write,
        admission,
        sequential_bypass: sequential_bypass.unwrap_or(usual.sequential_bypass),
        dirty_low: dirty_low.unwrap_or(usual.dirty_low),
        dirty_high: dirty_high.unwrap_or(usual.dirty_high),
        energy: energy.then(|| Energy {
            age_limit: age_limit.map_or(AGE_LIMIT, |at| at.value),
            standby_after,
        }),
        flash_writes_per_day: keys.value("flash_writes_per_day"),
        fast_bytes: keys.value("fast_size"),
        mode: mode.map_or_else(|| usual_mode(write, energy), |at| at.value),
        tier,
        ..usual
    };
    (settings, mode.is_some())
}

/// Sorts hybrids so that each comes after those it stands on; complains about circles.
fn in_order(mut waiting: Vec<(usize, HybridConfig)>, root: &Keys<'_, '_>) -> Vec<HybridConfig> {
    let mut ordered: Vec<HybridConfig> = Vec::new();
    loop {
        let ready = waiting.iter().position(|(_, hybrid)| {
            waiting
                .iter()
                .all(|(_, other)| other.name() != hybrid.slow && other.name() != hybrid.fast)
        });
        match ready {
            Some(index) => ordered.push(waiting.remove(index).1),
            None => break,
        }
    }
    if let Some((at, first)) = waiting.first() {
        let circle: Vec<&str> = waiting.iter().map(|(_, hybrid)| hybrid.name()).collect();
        let what = format!(
            "\"{}\" is made of itself, by way of {}; a hybrid stands on devices or on other hybrids",
            first.name(),
            circle.join(", ")
        );
        root.complain_at(*at, "hybrid", what);
    }
    ordered
}
