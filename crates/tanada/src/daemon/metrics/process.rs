//! What the system says of this process: memory, processor time, open files, its start.
//!
//! The names are those that all programs use which Prometheus watches.
//!
//! Source: prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics".

use std::fmt::Error;

use procfs::WithCurrentSystemInfo;
use procfs::process::{LimitValue, Process};
use prometheus_client::encoding::DescriptorEncoder;

use super::family::Family;
use super::page::ProcessSnapshot;

/// Reads `/proc/self`; none where that cannot be read.
#[must_use]
pub fn look() -> Option<ProcessSnapshot> {
    let process = Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let ticks = procfs::ticks_per_second() as f64;
    let booted = procfs::boot_time_secs().ok()? as f64;
    let limit = process.limits().ok()?.max_open_files.soft_limit;
    Some(ProcessSnapshot {
        resident_bytes: stat.rss_bytes().get(),
        cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
        open_files: process.fd_count().ok()? as u64,
        open_files_max: match limit {
            LimitValue::Value(limit) => Some(limit),
            LimitValue::Unlimited => None,
        },
        started_unix_seconds: booted + stat.starttime as f64 / ticks,
    })
}

/// Writes it down.
pub(super) fn process(
    encoder: &mut DescriptorEncoder<'_>,
    of: &ProcessSnapshot,
) -> Result<(), Error> {
    let (name, help) = ("process_cpu_seconds", "User and system CPU time spent");
    Family::of_counters(encoder, name, help)?.single_counter(of.cpu_seconds)?;
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Resident memory size",
            Some(of.resident_bytes as f64),
        ),
        (
            "process_open_fds",
            "Number of open file descriptors",
            Some(of.open_files as f64),
        ),
        (
            "process_max_fds",
            "Maximum number of open file descriptors",
            of.open_files_max.map(|it| it as f64),
        ),
        (
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch",
            Some(of.started_unix_seconds),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            Family::of_gauges(encoder, name, help)?.single(value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_a_start() {
        let seen = look().expect("Linux has /proc");
        assert!(seen.resident_bytes > 1 << 20, "{seen:?}");
        assert!(seen.open_files >= 3 && seen.open_files_max > Some(seen.open_files));
        assert!(seen.started_unix_seconds > 1.6e9, "{seen:?}");
    }
}
