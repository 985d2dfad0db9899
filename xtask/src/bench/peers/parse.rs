//! What a guest wrote down, as figures.
//!
//! ```text
//! PEER.PHASE.before, .after, .json, .seconds -> Sample
//! ```
//!
//! Always true: the same files give the same sample, and a file that is not what the guest writes is an error that says
//! which line.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Ticks in a second of `/proc/stat` and `/proc/PID/stat` (USER_HZ).
const TICKS: f64 = 100.0;

/// What a disk did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Disk {
    pub(super) reads: u64,
    pub(super) kib_read: u64,
    pub(super) writes: u64,
    pub(super) kib_written: u64,
}

impl Disk {
    /// Of the words of `/sys/block/NAME/stat`: requests, merged, sectors, milliseconds, of reads and then of writes.
    fn of(words: &[&str]) -> Result<Disk> {
        let number = |at: usize| -> Result<u64> {
            let word = words.get(at).context("a disk's counters end early")?;
            word.parse()
                .with_context(|| format!("`{word}` is no counter of a disk"))
        };
        Ok(Disk {
            reads: number(0)?,
            kib_read: number(2)? / 2,
            writes: number(4)?,
            kib_written: number(6)? / 2,
        })
    }

    fn since(self, before: Disk) -> Disk {
        Disk {
            reads: self.reads.saturating_sub(before.reads),
            kib_read: self.kib_read.saturating_sub(before.kib_read),
            writes: self.writes.saturating_sub(before.writes),
            kib_written: self.kib_written.saturating_sub(before.kib_written),
        }
    }

    fn requests(self) -> u64 {
        self.reads + self.writes
    }
}

/// The machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counters {
    /// Processor time of the whole guest that was not idle, in seconds.
    busy: f64,
    /// Of the daemon, in seconds.
    server: Option<f64>,
    slow: Disk,
    fast: Disk,
    dirty_kib: Option<u64>,
}

impl Counters {
    pub(super) fn of(text: &str) -> Result<Counters> {
        let words = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.map(|line| line.split_whitespace().skip(1).collect::<Vec<&str>>())
        };
        let needed = |name: &str| words(name).with_context(|| format!("no line `{name}`"));
        let server = words("server ").map(|it| ticks(&it, &[11, 12]));
        Ok(Counters {
            busy: ticks(&needed("cpu ")?, &[0, 1, 2, 5, 6, 7])?,
            server: server.transpose()?,
            slow: Disk::of(&needed("slow ")?)?,
            fast: Disk::of(&needed("fast ")?)?,
            dirty_kib: words("dirty ").and_then(|it| dirty_kib(&it)),
        })
    }
}

/// The sum of some words, which count ticks, in seconds.
fn ticks(words: &[&str], places: &[usize]) -> Result<f64> {
    let mut sum = 0_u64;
    for at in places {
        let word = words.get(*at).context("processor times end early")?;
        let count: u64 = word
            .parse()
            .with_context(|| format!("`{word}` is no processor time"))?;
        sum += count;
    }
    Ok(sum as f64 / TICKS)
}

/// What waits for the slow disk, in each peer's own words; `None` where it does not say.
fn dirty_kib(words: &[&str]) -> Option<u64> {
    let (peer, rest) = words.split_first()?;
    let number = |at: usize| rest.get(at)?.parse::<u64>().ok();
    match *peer {
        "bcache" => human_kib(rest.first()?),
        // Start, length, "cache", metadata block and use, block in sectors, use, hits and misses of reads and writes,
        // demotions, promotions, dirty blocks.
        "dm-cache" => Some(number(13)? * number(5)? / 2),
        // Start, length, "writecache", error, blocks of 4 KiB, free ones.
        "dm-writecache" => Some(number(4)?.checked_sub(number(5)?)? * 4),
        "tanada" => {
            let (_, bytes) = rest.first()?.rsplit_once(':')?;
            Some(bytes.parse::<u64>().ok()? / 1024)
        }
        _ => None,
    }
}

/// `320.0M` as KiB.
fn human_kib(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let (number, kib) = match unit.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 1.0),
        'm' => (&text[..text.len() - 1], 1024.0),
        'g' => (&text[..text.len() - 1], 1024.0 * 1024.0),
        _ => (text, 1.0 / 1024.0),
    };
    Some((number.parse::<f64>().ok()? * kib) as u64)
}

/// What fio says of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Job {
    pub(super) iops: f64,
    pub(super) mean_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) requests: u64,
    /// Of fio itself, in seconds.
    pub(super) cpu: f64,
}

impl Job {
    /// Of fio's answer with `--lat_percentiles=1`; notes may stand before the JSON.
    pub(super) fn of(text: &str) -> Result<Job> {
        let start = text.find('{').context("fio answered without JSON")?;
        let answer: Value =
            serde_json::from_str(&text[start..]).context("fio's answer is no JSON")?;
        let job = &answer["jobs"][0];
        let number = |value: &Value, what: &str| {
            value
                .as_f64()
                .with_context(|| format!("fio's answer lacks {what}"))
        };
        let error = number(&job["error"], "`error`")?;
        if error != 0.0 {
            bail!("fio met error {error}");
        }
        let side = match job["read"]["total_ios"].as_u64() {
            Some(0) => &job["write"],
            _ => &job["read"],
        };
        let requests = number(&side["total_ios"], "`total_ios`")? as u64;
        if requests == 0 {
            bail!("fio did nothing");
        }
        let share = number(&job["usr_cpu"], "`usr_cpu`")? + number(&job["sys_cpu"], "`sys_cpu`")?;
        let latency = &side["lat_ns"];
        Ok(Job {
            iops: number(&side["iops"], "`iops`")?,
            mean_ms: number(&latency["mean"], "`lat_ns`")? / 1e6,
            p99_ms: number(
                &latency["percentile"]["99.000000"],
                "percentiles of `lat_ns`",
            )? / 1e6,
            requests,
            cpu: share / 100.0 * number(&job["job_runtime"], "`job_runtime`")? / 1e3,
        })
    }
}

/// What the slow disk did while nothing was asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rest {
    pub(super) requests: u64,
    /// The longest time without a request, in seconds: a disk sleeps after less than a minute only if this is long.
    pub(super) longest_quiet: f64,
}

impl Rest {
    /// Of lines with a moment and the disk's counters.
    pub(super) fn of(text: &str) -> Result<Rest> {
        let mut points = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (moment, counters) = words.split_first().context("an empty line")?;
            let moment: f64 = moment
                .parse()
                .with_context(|| format!("`{moment}` is no moment"))?;
            points.push((moment, Disk::of(counters)?.requests()));
        }
        let (first, last) = points
            .first()
            .zip(points.last())
            .context("no moment was noted")?;
        let requests = last.1.saturating_sub(first.1);
        let (mut longest_quiet, mut since) = (0.0_f64, first.0);
        for pair in points.windows(2) {
            if pair[0].1 != pair[1].1 {
                since = pair[1].0;
            }
            longest_quiet = longest_quiet.max(pair[1].0 - since);
        }
        Ok(Rest {
            requests,
            longest_quiet,
        })
    }
}

/// `copied 2048 MiB from 30.1 to 60.2` as MiB per second.
pub(super) fn copied(text: &str) -> Result<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["copied", size, "MiB", "from", begun, "to", ended] = words[..] else {
        bail!("`{}` says nothing of a copy", text.trim());
    };
    let number = |word: &str| {
        word.parse::<f64>()
            .with_context(|| format!("`{word}` is no number"))
    };
    let took = number(ended)? - number(begun)?;
    anyhow::ensure!(took > 0.0, "a copy that took no time");
    Ok(number(size)? / took)
}

/// What reached the slow disk while a client wrote: of lines with what the peer and what the slow disk had written, up to
/// the last one at which the peer had written more than before.
pub(super) fn written_during(text: &str) -> Result<u64> {
    let mut points = Vec::new();
    for line in text.lines() {
        let (peer, slow) = line
            .split_once(' ')
            .with_context(|| format!("`{line}` is no sample"))?;
        let number = |word: &str| {
            word.parse::<u64>()
                .with_context(|| format!("`{line}` is no sample"))
        };
        points.push((number(peer)?, number(slow)?));
    }
    let first = points.first().context("no sample was taken")?;
    let grown = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let last = grown.map(|pair| pair[1].1).next_back();
    Ok(last.map_or(0, |slow| slow - first.1))
}

/// One phase of one peer in one round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) job: Option<Job>,
    pub(super) copy_mib_per_s: Option<f64>,
    pub(super) rest: Option<Rest>,
    /// Writes of the slow disk until the client's last write.
    pub(super) slow_during: Option<u64>,
    /// Of the whole guest, in seconds.
    pub(super) cpu: f64,
    /// Of the daemon.
    pub(super) server_cpu: Option<f64>,
    pub(super) slow: Disk,
    pub(super) fast: Disk,
    pub(super) dirty_kib: Option<u64>,
}

impl Sample {
    /// What happened between two moments.
    pub(super) fn between(before: &Counters, after: &Counters) -> Sample {
        let server = before.server.zip(after.server);
        Sample {
            cpu: after.busy - before.busy,
            server_cpu: server.map(|(before, after)| after - before),
            slow: after.slow.since(before.slow),
            fast: after.fast.since(before.fast),
            dirty_kib: after.dirty_kib,
            ..Sample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a guest: bcache, 4 KiB reads that hit.
    const FIO: &str = include_str!("testdata/bcache.warm-read-1.json");
    const BEFORE: &str = include_str!("testdata/tanada-ublk.burst.before");
    const AFTER: &str = include_str!("testdata/tanada-ublk.burst.after");
    const IDLE: &str = include_str!("testdata/tanada-ublk.idle.seconds");

    #[test]
    fn fio_is_read_as_it_wrote() {
        let job = Job::of(FIO).expect("fio's answer");
        assert_eq!(job.requests, 4560);
        let figures = [job.iops, job.mean_ms, job.p99_ms, job.cpu];
        let expected = [2275.449102, 0.42414958596499996, 4.554752, 0.7789999902];
        for (figure, expected) in figures.iter().zip(expected) {
            assert!((figure - expected).abs() < 1e-6, "{figure} {expected}");
        }
        let noted = format!("a note of fio's\n{FIO}");
        assert_eq!(Job::of(&noted).expect("notes may stand before"), job);
    }

    #[test]
    fn an_answer_without_figures_is_an_error_that_says_what_lacks() {
        let why = |text: &str| Job::of(text).expect_err("no answer").to_string();
        assert!(why("fio: no such file\n").contains("without JSON"));
        assert!(why("{\"jobs\": []}").contains("`error`"));
        let failed = FIO.replacen("\"error\" : 0", "\"error\" : 5", 1);
        assert_eq!(why(&failed), "fio met error 5");
        let idle = FIO.replace("\"total_ios\" : 4560", "\"total_ios\" : 0");
        assert_eq!(why(&idle), "fio did nothing");
        let other = FIO.replace("lat_ns", "clat_ns");
        assert!(why(&other).contains("lat_ns"));
    }

    #[test]
    fn a_sample_is_the_difference_of_two_moments() {
        let (before, after) = (
            Counters::of(BEFORE).expect("counters"),
            Counters::of(AFTER).expect("counters"),
        );
        let sample = Sample::between(&before, &after);
        assert!((sample.cpu - 4.88).abs() < 1e-9, "{}", sample.cpu);
        let server = sample.server_cpu.expect("a daemon");
        assert!((server - 3.51).abs() < 1e-9, "{server}");
        let slow = Disk {
            reads: 5,
            kib_read: 20,
            writes: 6018,
            kib_written: 50_608,
        };
        assert_eq!(sample.slow, slow);
        assert_eq!(sample.fast.kib_written, (614_381 - 482_533) / 2);
        assert_eq!(sample.dirty_kib, Some(11_141_120 / 1024));
    }

    #[test]
    fn counters_that_end_early_are_an_error() {
        let cut =
            |from: &str, to: &str| Counters::of(&AFTER.replacen(from, to, 1)).expect_err("cut");
        assert_eq!(cut("slow ", "slaw ").to_string(), "no line `slow `");
        assert!(cut("cpu  1843", "cpu  x").to_string().contains("`x`"));
        let short = "cpu 1 2 3 4 5 6 7 8\nslow 1 2\nfast 1 2\n";
        assert!(Counters::of(short).is_err());
    }

    #[test]
    fn each_peer_says_in_its_own_words_what_is_dirty() {
        let of = |line: &str| dirty_kib(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(of("bcache 320.0M"), Some(320 * 1024));
        assert_eq!(of("bcache 0.0k"), Some(0));
        assert_eq!(of("bcache 512"), Some(0));
        let cache = "dm-cache 0 16777216 cache 8 14/4096 512 1321/4032 52544 1664 36347 0 0 1321 119 1 writeback 2 \
                     migration_threshold 2048 smq 0 rw -";
        assert_eq!(of(cache), Some(119 * 256));
        let cache = "dm-writecache 0 16777216 writecache 0 261123 179203 0 294424 13947 104595 532 22143 0 81920 0 1 0";
        assert_eq!(of(cache), Some(81_920 * 4));
        assert_eq!(of("tanada \"dirty_bytes\":8192"), Some(8));
        assert_eq!(of("tanada"), None);
        assert_eq!(of("dm-writeboost 1 2 3"), None);
    }

    #[test]
    fn the_longest_quiet_is_between_two_requests_or_at_the_end() {
        let quiet = Rest::of(IDLE).expect("moments");
        assert_eq!(quiet.requests, 0);
        assert!((quiet.longest_quiet - 11.42).abs() < 1e-9, "{quiet:?}");
        let disk = |moment: f64, writes: u64| format!("{moment} 5 0 0 0 {writes} 0 0 0\n");
        let written = [
            disk(1.0, 0),
            disk(2.0, 7),
            disk(3.0, 7),
            disk(4.0, 8),
            disk(9.0, 8),
        ]
        .concat();
        let rest = Rest::of(&written).expect("moments");
        assert_eq!((rest.requests, rest.longest_quiet), (8, 5.0));
        assert!(Rest::of("").is_err() && Rest::of("now 1 2 3\n").is_err());
    }

    #[test]
    fn what_is_written_after_the_last_write_of_a_client_is_not_beside_it() {
        let beside = |text: &str| written_during(text).ok();
        assert_eq!(beside("10 5\n90 5\n200 7\n200 90\n200 200\n"), Some(2));
        assert_eq!(beside("10 5\n10 80\n"), Some(0), "nothing was written");
        assert_eq!(beside("10 5\n11 80\n"), Some(75));
        assert!(beside("").is_none() && beside("1 x\n").is_none());
    }

    #[test]
    fn a_copy_says_how_much_and_how_long() {
        assert_eq!(
            copied("copied 256 MiB from 112.0 to 116.0\n").ok(),
            Some(64.0)
        );
        assert!(copied("copied 256 MiB from 116.0 to 116.0").is_err());
        assert!(copied("dd: no room").is_err());
    }
}
