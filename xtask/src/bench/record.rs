//! Runs a benchmark and keeps what it finds: figures, date, commit, machine, how busy the machine was.
//!
//! ```text
//! benchmark --json -> rows --+
//! git, /proc, /sys ----------+-> benches/results/NAME.json -> docs/benchmarks.md (tidy/benchmarks.rs)
//! ```

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell::{answer, show};
use crate::tidy::benchmarks::{self, RESULTS};
use crate::tidy::experiments;
use crate::tidy::tree::{Tree, project_root};

/// Runs `command`, which prints an array of rows, writes the record of benchmark `name`, and the page anew.
///
/// # Errors
/// If the benchmark cannot run, prints no array, or a file cannot be written.
pub fn record(name: &str, command: &mut Command, args: &[String]) -> Result<()> {
    let load = loads(&fs::read_to_string("/proc/loadavg").unwrap_or_default());
    eprintln!("bench {name}: load average {load}; figures go to {RESULTS}{name}.json");
    let shown = show(command);
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(out.status.success(), "`{shown}` failed ({})", out.status);
    let rows = rows(&String::from_utf8_lossy(&out.stdout)).with_context(|| shown.clone())?;
    let words: Vec<&str> = ["cargo", "xtask", "bench", name]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    let record = json!({
        "bench": name,
        "command": words.join(" "),
        "date": answer("date", &["-u", "+%F"]).map(|it| it.trim().to_owned()),
        "commit": commit(),
        "machine": machine(&measured_folder(args)),
        "load": load,
        "rows": rows,
    });
    let root = project_root();
    let path = root.join(RESULTS).join(format!("{name}.json"));
    fs::create_dir_all(root.join(RESULTS))?;
    let text = serde_json::to_string_pretty(&record)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    benchmarks::write(&Tree::of_project()?)
}

/// The array in what a benchmark printed; other lines may stand before it.
fn rows(text: &str) -> Result<Value> {
    let start = text
        .find("[{")
        .or_else(|| text.find("[\n"))
        .context("printed no array of rows; does it take --json?")?;
    let rows: Value =
        serde_json::from_str(&text[start..]).context("printed rows that are no JSON")?;
    let count = rows.as_array().map_or(0, Vec::len);
    anyhow::ensure!(count > 0, "printed no rows");
    Ok(rows)
}

/// The commit that was measured; `+` behind it where files differ from it.
pub(super) fn commit() -> Option<String> {
    let root = project_root();
    let root = root.to_str()?;
    let head = answer("git", &["-C", root, "rev-parse", "--short=12", "HEAD"])?;
    let changed = answer("git", &["-C", root, "status", "--porcelain", "-uno"])?;
    let own = |line: &str| {
        let made = [RESULTS, experiments::RESULTS, experiments::TABLES];
        let pages = [benchmarks::PAGE, experiments::INDEX];
        made.iter().any(|folder| line.contains(folder))
            || pages.iter().any(|page| line.ends_with(page))
    };
    let mark = if changed.lines().all(own) { "" } else { "+" };
    Some(format!("{}{mark}", head.trim()))
}

/// Where a benchmark on a disk has its files: what `--dir` says, else the project.
fn measured_folder(args: &[String]) -> String {
    let at = args.iter().position(|arg| arg == "--dir");
    let named = at.and_then(|at| args.get(at + 1)).cloned();
    named.unwrap_or_else(|| project_root().display().to_string())
}

pub(super) fn machine(folder: &str) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = rustix::system::uname();
    json!({
        "cpu": processor(&read("/proc/cpuinfo")),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_gib": memory_gib(&read("/proc/meminfo")),
        "kernel": format!("Linux {}", kernel.release().to_string_lossy()),
        "disk": disk(folder),
    })
}

/// The processor's name from `/proc/cpuinfo`, and whether it is a virtual machine's.
fn processor(cpuinfo: &str) -> Option<String> {
    let of = |key: &str| {
        let mut lines = cpuinfo.lines();
        lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let virtual_machine = of("flags").is_some_and(|flags| flags.contains("hypervisor"));
    let name = of("model name")?;
    Some(match virtual_machine {
        true => format!("{name} (virtual machine)"),
        false => name,
    })
}

/// In tenths of a GiB.
fn memory_gib(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some((kib / 1024.0 / 102.4).round() / 10.0)
}

/// What the folder lies on: its file system, and the disk as far as the kernel names it.
fn disk(folder: &str) -> Option<String> {
    let text = answer("findmnt", &["-n", "-o", "FSTYPE,SOURCE", "-T", folder])?;
    let mut words = text.split_whitespace();
    let (file_system, source) = (words.next()?, words.next()?);
    let Some(device) = source.strip_prefix("/dev/") else {
        return Some(format!("{file_system} on {source}"));
    };
    let whole = whole_disk(device);
    let read = |path: String| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let sys = format!("/sys/block/{whole}");
    let spinning = read(format!("{sys}/queue/rotational")).is_ok_and(|it| it == "1");
    let kind = match (whole.starts_with("vd"), spinning) {
        (true, _) => "virtual disk",
        (false, true) => "hard disk",
        (false, false) => "solid-state disk",
    };
    let model = read(format!("{sys}/device/model")).unwrap_or_default();
    let known = Path::new(&sys).exists();
    Some(match (known, model.is_empty()) {
        (false, _) => format!("{file_system} on {source}"),
        (true, true) => format!("{file_system} on {whole}, a {kind}"),
        (true, false) => format!("{file_system} on {whole}, a {kind} ({model})"),
    })
}

/// `vda` of `vda1`, `nvme0n1` of `nvme0n1p3`.
fn whole_disk(device: &str) -> &str {
    let cut = device.trim_end_matches(|c: char| c.is_ascii_digit());
    match device.starts_with("nvme") || device.starts_with("mmcblk") {
        true => match cut.strip_suffix('p') {
            Some(whole) if cut.len() < device.len() => whole,
            _ => device,
        },
        false => cut,
    }
}

pub(super) fn loads(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_behind_other_lines() {
        let text = "warming\n[{\"case\": \"a\"},\n {\"case\": \"b\"}]\n";
        let rows = rows(text).expect("two rows");
        assert_eq!(rows[1]["case"], "b");
        assert!(super::rows("no rows\n").is_err());
        assert!(super::rows("[\n]\n").is_err());
    }

    #[test]
    fn a_machine_is_named_from_what_the_kernel_says() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        let name = processor(cpuinfo);
        assert_eq!(name.as_deref(), Some("A CPU @ 2 GHz (virtual machine)"));
        let meminfo = "MemTotal:       16315892 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_gib(meminfo), Some(15.6));
        assert_eq!(loads("0.10 0.20 0.30 1/100 42\n"), "0.10 0.20 0.30");
    }

    #[test]
    fn a_partition_belongs_to_its_disk() {
        let disks = ["vda", "vda1", "sdb12", "nvme0n1", "nvme0n1p3"].map(whole_disk);
        assert_eq!(disks, ["vda", "vda", "sdb", "nvme0n1", "nvme0n1"]);
    }
}
