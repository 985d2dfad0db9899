//! Which micro-benchmarks a device's own figures come from: the paper's grid as runs of fio.
//!
//! ```text
//! block sizes x directions x runs -> Job: a name for its output, fio's arguments -> fio -> JSON -> import
//! ```
//!
//! All jobs of the first run come first, then all of the second: what changes over time (a device that warms up, a
//! neighbour) meets every job alike.
//!
//! Source: SCM 4.2.1 (fio; random reads and writes of 1, 4, 16, 64, 256 KiB; five runs).
//!
//! Choice: one access at a time unless set, by time and after a ramp, past the page cache.

use std::process::{Command, Stdio};

use base::Bytes;

/// The paper's block sizes.
pub const SIZES: [Bytes; 5] = [
    Bytes::kib(1),
    Bytes::kib(4),
    Bytes::kib(16),
    Bytes::kib(64),
    Bytes::kib(256),
];

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Random reads.
    Read,
    /// Random writes.
    Write,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
        }
    }
}

/// What is measured, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Block sizes; multiples of 512 bytes.
    pub sizes: Vec<Bytes>,
    /// Which ways.
    pub ways: Vec<Way>,
    /// Accesses under way at a time.
    pub depth: u32,
    /// Seconds that count, of each job.
    pub seconds: u32,
    /// Seconds before them that do not.
    pub ramp: u32,
    /// How often everything is repeated.
    pub runs: u32,
    /// Past the page cache?
    pub direct: bool,
    /// Of the target, from its start on; `None`: all of it.
    pub span: Option<Bytes>,
}

impl Default for Grid {
    /// The paper's sizes, both ways, one access at a time, 10 s after a ramp of 2 s, five runs, direct.
    fn default() -> Grid {
        Grid {
            sizes: SIZES.to_vec(),
            ways: vec![Way::Read, Way::Write],
            depth: 1,
            seconds: 10,
            ramp: 2,
            runs: 5,
            direct: true,
            span: None,
        }
    }
}

/// One run of fio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name; says what was measured and how, so equal names are equal measurements.
    pub name: String,
    /// fio's arguments.
    pub arguments: Vec<String>,
}

impl Job {
    /// Runs it; what fio printed.
    ///
    /// # Errors
    /// A sentence: fio is not there, or could not do it, and what would help.
    pub fn run(&self) -> Result<Vec<u8>, String> {
        let done = Command::new("fio")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run fio: {error}"))?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.trim();
        let hint = match said.contains("Invalid argument") {
            true => {
                "; a device with larger sectors takes no such small blocks (--sizes), and a memory file system \
                 none past the page cache (--io buffered)"
            }
            false => "",
        };
        Err(format!("fio could not do {}: {said}{hint}", self.name))
    }
}

/// A size as fio and our regressors write it: 16K.
fn short(size: Bytes) -> String {
    match size.0.is_multiple_of(1024) {
        true => format!("{}K", size.0 / 1024),
        false => size.0.to_string(),
    }
}

impl Grid {
    /// The jobs on `target`, in their order.
    ///
    /// # Example
    /// ```
    /// use predict::grid::Grid;
    /// let jobs = Grid::default().jobs("/dev/nvme0n1");
    /// assert_eq!(jobs.len(), 5 * 2 * 5);
    /// assert_eq!(jobs[0].name, "read-1K-qd1-10s-run1");
    /// assert!(jobs[0].arguments.contains(&"--bs=1k".to_owned()));
    /// ```
    pub fn jobs(&self, target: &str) -> Vec<Job> {
        let mut jobs = Vec::new();
        for run in 1..=self.runs {
            for way in &self.ways {
                for size in &self.sizes {
                    jobs.push(self.job(target, *way, *size, run));
                }
            }
        }
        jobs
    }

    /// How long it all takes, in seconds, near enough.
    pub fn duration(&self) -> u64 {
        let jobs = self.sizes.len() as u64 * self.ways.len() as u64 * u64::from(self.runs);
        jobs * u64::from(self.seconds + self.ramp + 1)
    }

    fn job(&self, target: &str, way: Way, size: Bytes, run: u32) -> Job {
        let block = short(size);
        let buffered = if self.direct { "" } else { "-buffered" };
        let name = format!(
            "{}-{block}-qd{}-{}s{buffered}-run{run}",
            way.name(),
            self.depth,
            self.seconds
        );
        // One at a time needs no queue, and fio's own cost is least without one.
        let engine = if self.depth == 1 { "psync" } else { "libaio" };
        let mut arguments = vec![
            format!("--name={name}"),
            // A colon would name another file.
            format!("--filename={}", target.replace(':', "\\:")),
            format!("--rw=rand{}", way.name()),
            format!("--bs={}", block.to_lowercase()),
            format!("--ioengine={engine}"),
            format!("--iodepth={}", self.depth),
            format!("--direct={}", u8::from(self.direct)),
            "--time_based=1".to_owned(),
            format!("--runtime={}", self.seconds),
            format!("--ramp_time={}", self.ramp),
            "--norandommap=1".to_owned(),
            "--randrepeat=0".to_owned(),
            // Other places in each run, the same when it is done again.
            format!("--randseed={}", 1_000 + run),
            "--thread=1".to_owned(),
            "--output-format=json".to_owned(),
        ];
        if way == Way::Write {
            // Devices that compress or deduplicate are not to profit.
            arguments.push("--refill_buffers=1".to_owned());
        }
        if let Some(span) = self.span {
            arguments.push(format!("--size={}", span.0));
        }
        Job { name, arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_a_name_of_its_own_and_runs_follow_each_other_as_wholes() {
        let grid = Grid {
            sizes: vec![Bytes(512), Bytes::kib(4)],
            runs: 3,
            depth: 8,
            direct: false,
            ..Grid::default()
        };
        let names: Vec<String> = grid.jobs("x").into_iter().map(|job| job.name).collect();
        assert_eq!(names[0], "read-512-qd8-10s-buffered-run1");
        assert_eq!(names[3], "write-4K-qd8-10s-buffered-run1");
        assert_eq!(names[4], "read-512-qd8-10s-buffered-run2");
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
        assert_eq!(grid.duration(), 2 * 2 * 3 * 13);
    }

    #[test]
    fn a_target_with_a_colon_is_one_file() {
        let job = &Grid::default().jobs("/dev/disk/by-path/pci-0000:00:1f")[0];
        let file = "--filename=/dev/disk/by-path/pci-0000\\:00\\:1f".to_owned();
        assert!(job.arguments.contains(&file));
    }
}
