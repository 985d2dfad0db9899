//! What did fio measure of the device?
//!
//! ```text
//! jobs[n].read | write -> mean latency, bandwidth, IOPS -> read-16K-latency, read-16K-throughput, read-16K-iops
//! jobs[n].sync         -> flush-latency
//! ```
//!
//! Names: direction, block size, then what differs from one random access at a time: `-seq` for sequential jobs, `-qd32` for 32
//! accesses under way. So `read-16K-latency` always means: random, one at a time.
//!
//! Version 3 writes nanoseconds (`lat_ns`) and `bw_bytes`; version 2 microseconds (`lat`) and `bw` in KiB/s.
//!
//! Always true:
//! 1. A job that failed is refused.
//! 2. The block size is the one the job states; where it states none, what its bandwidth and IOPS say.

use serde_json::Value;

use super::{Figure, Output, Said, Wrong};
use crate::units::Unit;

/// Engines that wait for each access, whatever the queue depth asked for.
const WAITING: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Reads fio's JSON; lines before its first brace are fio's warnings.
pub fn read(text: &str) -> Result<Output, Wrong> {
    let start = text
        .find('{')
        .ok_or_else(|| Wrong::whole("no JSON; run fio with --output-format=json"))?;
    // Warnings may follow, too: only the first value counts.
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let json: Value = match values.next() {
        Some(Ok(json)) => json,
        Some(Err(error)) => {
            let before = text[..start].lines().count().max(1) - 1;
            return Err(Wrong::at(
                (before + error.line()) as u64,
                format!("no JSON as fio writes it: {error}"),
            ));
        }
        None => return Err(Wrong::whole("no JSON; run fio with --output-format=json")),
    };
    let none = Vec::new();
    let jobs = json["jobs"].as_array().unwrap_or(&none);
    if jobs.is_empty() {
        return Err(Wrong::whole("fio's JSON has no jobs"));
    }
    let mut output = Output::default();
    for job in jobs {
        let name = job["jobname"].as_str().unwrap_or("unnamed");
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            return Err(Wrong::whole(format!(
                "job '{name}' ended with error {error}"
            )));
        }
        for direction in ["read", "write"] {
            side(&mut output, &json, job, name, direction)?;
        }
        let flush = mean(&job["sync"]);
        if let Some((value, unit)) = flush {
            device(&mut output, "flush-latency".to_owned(), value, unit);
        }
    }
    match output.figures.is_empty() {
        false => Ok(output),
        true => Err(Wrong::whole("fio's jobs did no reads, writes or flushes")),
    }
}

/// An option of the job, or of all jobs.
fn option<'a>(json: &'a Value, job: &'a Value, name: &str) -> Option<&'a str> {
    job["job options"][name]
        .as_str()
        .or_else(|| json["global options"][name].as_str())
}

/// The figures of one direction of a job, if it went that way.
fn side(
    output: &mut Output,
    json: &Value,
    job: &Value,
    name: &str,
    direction: &str,
) -> Result<(), Wrong> {
    let side = &job[direction];
    let iops = side["iops"].as_f64().unwrap_or(0.0);
    if iops <= 0.0 {
        return Ok(());
    }
    // Version 2 has KiB/s alone; version 3 has both, `bw` rounded.
    let (bandwidth, unit, bytes) = match side["bw_bytes"].as_f64() {
        Some(bytes) => (bytes, Unit::BPerS, bytes),
        None => {
            let kib = side["bw"].as_f64().unwrap_or(0.0);
            (kib, Unit::KibPerS, kib * 1024.0)
        }
    };
    let stated = ["bs", "blocksize"]
        .iter()
        .find_map(|key| option(json, job, key))
        .map(|text| block(text, direction, name))
        .transpose()?;
    let block = match stated {
        Some(block) => block,
        None => measured_block(bytes / iops, name)?,
    };
    let mut stem = format!("{direction}-{}", size(block));
    let pattern = ["rw", "readwrite"]
        .iter()
        .find_map(|key| option(json, job, key));
    if pattern.is_some_and(|pattern| !pattern.starts_with("rand")) {
        stem.push_str("-seq");
    }
    let depth = depth(json, job);
    if depth > 1 {
        stem.push_str(&format!("-qd{depth}"));
    }
    if let Some((value, unit)) = mean(side) {
        device(output, format!("{stem}-latency"), value, unit);
    }
    if bandwidth > 0.0 {
        device(output, format!("{stem}-throughput"), bandwidth, unit);
    }
    device(output, format!("{stem}-iops"), iops, Unit::PerS);
    Ok(())
}

fn device(output: &mut Output, regressor: String, value: f64, unit: Unit) {
    output.figures.push(Figure {
        said: Said::Device { regressor },
        value,
        unit,
        line: 0,
    });
}

/// The mean latency from submission to completion, in whichever unit this version writes.
fn mean(side: &Value) -> Option<(f64, Unit)> {
    [
        ("lat_ns", Unit::Ns),
        ("lat", Unit::Us),
        ("clat_ns", Unit::Ns),
        ("clat", Unit::Us),
    ]
    .into_iter()
    .find_map(|(key, unit)| {
        let mean = side[key]["mean"].as_f64().filter(|mean| *mean > 0.0)?;
        Some((mean, unit))
    })
}

/// How many accesses are under way at once.
fn depth(json: &Value, job: &Value) -> u64 {
    let of = |name: &str| {
        option(json, job, name)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(1)
    };
    // fio's own choice on Linux where none is named is psync.
    let engine = option(json, job, "ioengine").unwrap_or("psync");
    let each = match WAITING.contains(&engine) {
        true => 1,
        false => of("iodepth"),
    };
    each * of("numjobs")
}

/// A block size as fio takes it: `16k`, `16384`, or `4k,64k` for reads and writes.
fn block(text: &str, direction: &str, job: &str) -> Result<u64, Wrong> {
    let mut parts = text.split(',');
    let read = parts.next().unwrap_or_default();
    let part = match direction {
        "write" => parts.next().filter(|part| !part.is_empty()).unwrap_or(read),
        _ => read,
    };
    let lower = part.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let times = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "ki" | "kib" => 1024,
        "m" | "mb" | "mi" | "mib" => 1 << 20,
        _ => 0,
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(times))
        .filter(|block| *block > 0)
        .ok_or_else(|| {
            Wrong::whole(format!(
                "job '{job}' has block size '{text}': one size for each direction is needed, such as bs=16k"
            ))
        })
}

/// The block size that bandwidth and IOPS imply: a power of two within 2 %.
fn measured_block(bytes: f64, job: &str) -> Result<u64, Wrong> {
    let near = 2f64.powf(bytes.log2().round());
    if bytes.is_finite() && (bytes / near - 1.0).abs() < 0.02 {
        return Ok(near as u64);
    }
    Err(Wrong::whole(format!(
        "job '{job}' does not say its block size, and its accesses are {bytes:.0} bytes on average: state bs="
    )))
}

/// `16384` as `16K`.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{}M", bytes >> 20)
    } else if bytes.is_multiple_of(1024) {
        format!("{}K", bytes >> 10)
    } else {
        format!("{bytes}B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<String> {
        let output = read(text).unwrap_or_else(|wrong| panic!("{}", wrong.reason));
        let row = |figure: &Figure| match &figure.said {
            Said::Device { regressor } => {
                format!("{regressor} = {} {}", figure.value, figure.unit)
            }
            Said::Result { .. } => panic!("fio says nothing of applications"),
        };
        output.figures.iter().map(row).collect()
    }

    fn refused(text: &str) -> String {
        match read(text) {
            Ok(_) => panic!("{text} was taken"),
            Err(wrong) => wrong.reason,
        }
    }

    /// Version 3: nanoseconds, options of all jobs apart.
    const THREE: &str = r#"fio: a warning before the JSON
{"fio version": "fio-3.33",
 "global options": {"ioengine": "libaio", "iodepth": "1", "direct": "1"},
 "jobs": [
  {"jobname": "r16", "error": 0, "job options": {"rw": "randread", "bs": "16k"},
   "read": {"bw_bytes": 230014337, "bw": 224623, "iops": 14038.961,
            "lat_ns": {"mean": 69787.56, "N": 14053}, "clat_ns": {"mean": 69743.3}},
   "write": {"bw_bytes": 0, "bw": 0, "iops": 0.0, "lat_ns": {"mean": 0.0}},
   "sync": {"total_ios": 0, "lat_ns": {"mean": 0.0}}},
  {"jobname": "w64q", "error": 0, "job options": {"rw": "write", "bs": "4k,64k", "iodepth": "8", "numjobs": "2"},
   "read": {"iops": 0.0}, "write": {"bw_bytes": 655360000, "iops": 10000.0, "lat_ns": {"mean": 1600000.0}},
   "sync": {"total_ios": 50, "lat_ns": {"mean": 2500000.0}}}
 ]}"#;

    #[test]
    fn version_three_writes_nanoseconds_and_bytes() {
        assert_eq!(
            rows(THREE),
            [
                "read-16K-latency = 69787.56 ns",
                "read-16K-throughput = 230014337 B/s",
                "read-16K-iops = 14038.961 ops/s",
                "write-64K-seq-qd16-latency = 1600000 ns",
                "write-64K-seq-qd16-throughput = 655360000 B/s",
                "write-64K-seq-qd16-iops = 10000 ops/s",
                "flush-latency = 2500000 ns",
            ]
        );
    }

    #[test]
    fn version_two_writes_microseconds_and_kib_and_may_leave_out_its_options() {
        let two = r#"{"fio version" : "fio-2.2.10", "jobs" : [
            {"jobname" : "a", "error" : 0,
             "read" : {"io_bytes" : 123, "bw" : 8000, "iops" : 500.0,
                       "lat" : {"min" : 1, "max" : 9, "mean" : 1990.5, "stddev" : 1.0}},
             "write" : {"bw" : 0, "iops" : 0.0, "lat" : {"mean" : 0.0}}}]}"#;
        assert_eq!(
            rows(two),
            [
                "read-16K-latency = 1990.5 us",
                "read-16K-throughput = 8000 KiB/s",
                "read-16K-iops = 500 ops/s",
            ]
        );
        assert_eq!(
            refused(&two.replace("8000", "9000")),
            "job 'a' does not say its block size, and its accesses are 18432 bytes on average: state bs="
        );
    }

    #[test]
    fn engines_that_wait_have_one_access_under_way() {
        let waiting = THREE
            .replace("libaio", "psync")
            .replace(", \"numjobs\": \"2\"", "");
        assert_eq!(rows(&waiting)[3], "write-64K-seq-latency = 1600000 ns");
    }

    #[test]
    fn what_fio_did_not_finish_is_refused() {
        assert_eq!(
            refused(&THREE.replacen("\"error\": 0", "\"error\": 28", 1)),
            "job 'r16' ended with error 28"
        );
        assert_eq!(
            refused("fio: no"),
            "no JSON; run fio with --output-format=json"
        );
        assert_eq!(
            refused("{\"fio version\": \"3\"}"),
            "fio's JSON has no jobs"
        );
        let cut = &THREE[..THREE.len() / 2];
        assert!(
            refused(cut).starts_with("no JSON as fio writes it: EOF"),
            "{}",
            refused(cut)
        );
        assert_eq!(
            refused(&THREE.replace("\"16k\"", "\"4k-16k\"")),
            "job 'r16' has block size '4k-16k': one size for each direction is needed, such as bs=16k"
        );
    }
}
