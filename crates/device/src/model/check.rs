//! Could there be a device with these figures? What could not is refused, by its key.

use base::Bytes;

use super::error::SpecError;
use super::timing::{ConstantSpec, HddSpec, PowerSpec, SsdSpec};

/// Refusals that name the key.
pub(super) struct Check<'a> {
    pub(super) model: &'a str,
}

impl Check<'_> {
    fn refuse(&self, key: &str, value: impl ToString, why: &str) -> SpecError {
        SpecError::Value {
            model: self.model.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            why: why.to_owned(),
        }
    }

    fn within(&self, key: &str, value: f64, from: f64, to: f64) -> Result<(), SpecError> {
        if (from..=to).contains(&value) {
            return Ok(());
        }
        Err(self.refuse(key, value, &format!("it must be from {from} to {to}")))
    }

    fn count(&self, key: &str, value: u64, to: u64) -> Result<(), SpecError> {
        if (1..=to).contains(&value) {
            return Ok(());
        }
        Err(self.refuse(key, value, &format!("it must be from 1 to {to}")))
    }

    pub(super) fn size(&self, key: &str, value: Bytes) -> Result<(), SpecError> {
        if value.0 > 0 && value.is_multiple_of(base::SECTOR) {
            return Ok(());
        }
        Err(self.refuse(
            key,
            value.0,
            "it must be a multiple of 512 bytes above zero",
        ))
    }

    pub(super) fn power_of_two(&self, key: &str, value: Bytes) -> Result<(), SpecError> {
        if value.0.is_power_of_two() {
            return Ok(());
        }
        Err(self.refuse(key, value.0, "it must be a power of two"))
    }
}

/// A billion of anything: an upper bound against slips of the keyboard.
const MUCH: f64 = 1e9;

pub(super) fn hdd(spec: &HddSpec, check: &Check<'_>) -> Result<(), SpecError> {
    check.within("hdd.rpm", spec.mechanics.rpm, 60.0, 1e6)?;
    check.count("hdd.surfaces", spec.mechanics.surfaces, 1000)?;
    check.count("hdd.zones", spec.mechanics.zones, 10_000)?;
    check.within("hdd.outer_mb_s", spec.mechanics.outer_mb_s, 0.1, MUCH)?;
    check.within(
        "hdd.inner_mb_s",
        spec.mechanics.inner_mb_s,
        0.1,
        spec.mechanics.outer_mb_s,
    )?;
    check.within(
        "hdd.switch_ms",
        spec.mechanics.switch_ms,
        0.0,
        60_000.0 / spec.mechanics.rpm,
    )?;
    for (key, seek) in [
        ("hdd.read_seek_ms", spec.mechanics.read_seek_ms),
        ("hdd.write_seek_ms", spec.mechanics.write_seek_ms),
    ] {
        let ordered = 0.0 <= seek[0] && seek[0] <= seek[1] && seek[1] <= seek[2];
        if !ordered || seek[2] > MUCH || seek.iter().any(|ms| ms.is_nan()) {
            return Err(check.refuse(
                key,
                format!("{seek:?}"),
                "it must be [next track, mean, full stroke], none below the one before",
            ));
        }
        if spec.mechanics.switch_ms < seek[0] {
            return Err(check.refuse(
                "hdd.switch_ms",
                spec.mechanics.switch_ms,
                "it must be at least the seek to the next track, or sequential runs lose a turn",
            ));
        }
    }
    check.within("hdd.overhead_ms", spec.commands.overhead_ms, 0.0, MUCH)?;
    check.within(
        "hdd.interface_mb_s",
        spec.commands.interface_mb_s,
        0.1,
        MUCH,
    )?;
    check.count("hdd.queue_depth", spec.commands.queue_depth, 65_536)?;
    check.within("hdd.age_limit_ms", spec.commands.age_limit_ms, 0.0, MUCH)?;
    check.size("hdd.write_cache_size", spec.buffers.write_cache_size)?;
    check.count(
        "hdd.write_cache_runs",
        spec.buffers.write_cache_runs,
        65_536,
    )?;
    check.size("hdd.read_ahead_size", spec.buffers.read_ahead_size)?;
    check.count("hdd.read_segments", spec.buffers.read_segments, 1024)
}

pub(super) fn ssd(spec: &SsdSpec, check: &Check<'_>, size: Bytes) -> Result<(), SpecError> {
    check.size("ssd.raw_size", spec.flash.raw_size)?;
    if spec.flash.raw_size.0 <= size.0 + size.0 / 50 {
        return Err(check.refuse(
            "ssd.raw_size",
            spec.flash.raw_size.0,
            "it must exceed `size` by more than 2 %, or there is no room to collect garbage",
        ));
    }
    check.count("ssd.channels", spec.flash.channels, 1024)?;
    check.count("ssd.chips", spec.flash.chips, 1024)?;
    check.count("ssd.dies", spec.flash.dies, 64)?;
    check.count("ssd.planes", spec.flash.planes, 64)?;
    check.size("ssd.page_size", spec.flash.page_size)?;
    check.size("ssd.mapping_size", spec.flash.mapping_size)?;
    check.power_of_two("ssd.mapping_size", spec.flash.mapping_size)?;
    if !spec
        .flash
        .page_size
        .is_multiple_of(spec.flash.mapping_size.0)
    {
        return Err(check.refuse(
            "ssd.page_size",
            spec.flash.page_size.0,
            "it must be a multiple of `mapping_size`",
        ));
    }
    check.count("ssd.block_pages", spec.flash.block_pages, 65_536)?;
    check.within("ssd.read_us", spec.flash.read_us, 0.0, MUCH)?;
    check.within("ssd.program_us", spec.flash.program_us, 0.0, MUCH)?;
    check.within("ssd.erase_us", spec.flash.erase_us, 0.0, MUCH)?;
    check.within("ssd.channel_mb_s", spec.flash.channel_mb_s, 0.1, MUCH)?;
    check.within("ssd.read_mb_s", spec.host.read_mb_s, 0.1, MUCH)?;
    check.within("ssd.write_mb_s", spec.host.write_mb_s, 0.1, MUCH)?;
    check.within("ssd.command_us", spec.host.command_us, 0.0, MUCH)?;
    check.within("ssd.read_gap_us", spec.host.read_gap_us, 0.0, MUCH)?;
    check.within("ssd.write_gap_us", spec.host.write_gap_us, 0.0, MUCH)?;
    check.within("ssd.read_extra_us", spec.host.read_extra_us, 0.0, MUCH)?;
    check.within("ssd.write_extra_us", spec.host.write_extra_us, 0.0, MUCH)?;
    check.count("ssd.queue_depth", spec.host.queue_depth, 1 << 20)?;
    let row = spec.flash.page_size.0 * spec.flash.planes;
    let rows = row * spec.flash.channels * spec.flash.chips * spec.flash.dies;
    if spec.buffer.buffer_size.0 < 2 * row {
        return Err(check.refuse(
            "ssd.buffer_size",
            spec.buffer.buffer_size.0,
            &format!("it must hold at least two pages of all planes of a die, {} bytes (one for every die is {rows})", 2 * row),
        ));
    }
    check.within(
        "ssd.collect_below_percent",
        spec.flash.collect_below_percent,
        0.0,
        50.0,
    )
}

pub(super) fn constant(spec: &ConstantSpec, check: &Check<'_>) -> Result<(), SpecError> {
    let hits = spec.read_cache.as_ref().map(|cache| &cache.hit_us);
    for (key, points) in [
        ("constant.read_us", &spec.read_us),
        ("constant.write_us", &spec.write_us),
        ("constant.read_cache.hit_us", hits.unwrap_or(&spec.read_us)),
    ] {
        let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let sane = points
            .iter()
            .all(|&(bytes, us)| (0.0..MUCH).contains(&bytes) && (0.0..MUCH).contains(&us));
        if points.is_empty() || !rising || !sane {
            return Err(check.refuse(
                key,
                format!("{points:?}"),
                "it must be pairs [bytes, us] by rising size, at least one",
            ));
        }
    }
    check.count("constant.parallel", spec.parallel, 65_536)?;
    check.within("constant.read_mb_s", spec.read_mb_s, 0.1, MUCH)?;
    check.within("constant.write_mb_s", spec.write_mb_s, 0.1, MUCH)?;
    let each = spec.each_in_flight_percent;
    check.within("constant.each_in_flight_percent", each, 0.0, 1e4)?;
    if let Some(cache) = &spec.write_cache {
        check.size("constant.write_cache.size", cache.size)?;
        let (refill, times) = (cache.refill_mb_s, cache.beyond_times);
        check.within("constant.write_cache.refill_mb_s", refill, 0.0, MUCH)?;
        check.within("constant.write_cache.beyond_times", times, 1.0, 1e4)?;
    }
    if let Some(cache) = &spec.read_cache {
        check.size("constant.read_cache.size", cache.size)?;
    }
    Ok(())
}

pub(super) fn power(spec: &PowerSpec, check: &Check<'_>) -> Result<(), SpecError> {
    for (key, value) in [
        ("power.idle_watts", spec.idle_watts),
        ("power.read_watts", spec.read_watts),
        ("power.write_watts", spec.write_watts),
        ("power.seek_watts", spec.seek_watts.unwrap_or(0.0)),
        (
            "power.seek_write_watts",
            spec.seek_write_watts.unwrap_or(0.0),
        ),
        ("power.standby_watts", spec.standby_watts.unwrap_or(0.0)),
        ("power.standby_after_s", spec.standby_after_s),
        ("power.spin_up_watts", spec.spin_up_watts),
        ("power.spin_up_s", spec.spin_up_s),
        ("power.spin_down_watts", spec.spin_down_watts),
        ("power.spin_down_s", spec.spin_down_s),
    ] {
        check.within(key, value, 0.0, MUCH)?;
    }
    if spec.standby_after_s > 0.0 && spec.standby_watts.is_none() {
        return Err(check.refuse(
            "power.standby_after_s",
            spec.standby_after_s,
            "it needs `standby_watts` beside it",
        ));
    }
    let mut before = 0.0;
    for (name, step) in [("idle_b", spec.idle_b), ("idle_c", spec.idle_c)] {
        let Some(step) = step else { continue };
        check.within(&format!("power.{name}.watts"), step.watts, 0.0, MUCH)?;
        check.within(
            &format!("power.{name}.recovery_ms"),
            step.recovery_ms,
            0.0,
            MUCH,
        )?;
        if step.after_s.is_nan() || step.after_s <= before {
            return Err(check.refuse(
                &format!("power.{name}.after_s"),
                step.after_s,
                &format!("it must be above {before}, when the state before begins"),
            ));
        }
        before = step.after_s;
    }
    Ok(())
}
