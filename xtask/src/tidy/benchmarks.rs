//! The page of all recorded benchmarks.
//!
//! ```text
//! benches/results/*.json -> records -> docs/benchmarks.md
//! ```
//!
//! A record is one run of one benchmark: what `--json` printed (`rows`), with date, commit, machine and command
//! (`xtask/src/bench/record.rs` writes it). Records from before there were such files say so in `note`.
//!
//! Always true: the same records give the same page, and `cargo xtask tidy` refuses another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::prose::{capital, number, wrapped};
use super::tree::Tree;

#[cfg(test)]
#[path = "../../../benches/figures.rs"]
mod figures;

/// The page.
pub const PAGE: &str = "docs/benchmarks.md";

/// The folder of the records.
pub const RESULTS: &str = "benches/results/";

/// (name, package, what it measures); each is `benches/NAME.rs` of its package.
pub const BENCHES: &[(&str, &str, &str)] = &[
    (
        "executor",
        "env",
        "timer and wake events per second in virtual time",
    ),
    (
        "model",
        "device",
        "simulated requests per CPU-second of each device model",
    ),
    (
        "remote",
        "device",
        "CPU per request of a device on another thread",
    ),
    (
        "gate",
        "front",
        "CPU per NBD request with and without a gate",
    ),
    (
        "policy",
        "policy",
        "requests per second of each cache policy",
    ),
    ("ledger", "ledger", "replaying the ledger's entries at open"),
    (
        "hit",
        "hybrid",
        "CPU per hit, memory per block, writes per write",
    ),
    (
        "store",
        "store",
        "large and small objects beside the bare device, plain files and redb",
    ),
    (
        "tls",
        "store",
        "three stores in TLS beside the same ones in the clear, and how fast a revoked client is cut",
    ),
    (
        "meta",
        "vdisk",
        "transactions per second of the meta stores, one client and many",
    ),
    (
        "volume",
        "vdisk",
        "a volume of one copy beside the store it is in, and of three copies beside the slowest of the three stores",
    ),
    (
        "reserve",
        "tanada",
        "what reserved clients get beside greedy ones, over TCP",
    ),
    (
        "s3",
        "tanada",
        "the S3 gateway beside the store's own client, and beside versitygw on the same file system",
    ),
    (
        "sim-cache",
        "sim",
        "requests per second of simulated caches and miss-ratio curves",
    ),
    (
        "sim-run",
        "sim",
        "requests per CPU-second through whole simulated stacks",
    ),
    (
        "trace",
        "trace",
        "records per second of the trace readers, beside the csv crate",
    ),
];

/// The server beside other NBD servers.
pub const NBD: &str = "nbd";
/// Disks made of a slow and a fast one, in guests.
pub const PEERS: &str = "peers";
/// The simulator as Python calls it.
pub const PYTHON: &str = "python";
/// The benchmarks that this program runs itself, and what they measure.
pub const OWN: &[(&str, &str)] = &[
    (
        NBD,
        "the server beside nbdkit, qemu-storage-daemon and fio on the bare file",
    ),
    (
        PEERS,
        "a hybrid beside bcache, dm-cache and others over the same two disks, in a guest's kernel",
    ),
    (
        PYTHON,
        "a simulation called from Python beside the same one on the command line",
    ),
];

/// So many methods get a column each; more of them a line each.
const COLUMNS_MAX: usize = 4;

const HEAD: &str = "# Benchmarks

Written by `cargo xtask bench --page` from the records in `benches/results`. `cargo xtask bench NAME --record` measures
one benchmark, replaces its record and writes this page; `cargo xtask bench --record` measures all of them. Do that on
an idle machine: the record holds how busy it was.

A figure is the median of the runs, with the lowest and the highest in parentheses. *Real* means that the time passed on
the machine named, *modelled* that a device model took it in virtual time, *emulated* that a device model took it in
real time, with real programs and sockets around. No benchmark fails for being slow: a figure that falls short of its
aim is marked `short`.
";

/// Writes the page.
///
/// # Errors
/// If a record cannot be read or the page cannot be written.
pub fn write(tree: &Tree) -> Result<()> {
    let path = tree.root.join(PAGE);
    fs::write(&path, page(&records(tree)?)).with_context(|| format!("cannot write {PAGE}"))
}

/// Is the page what the records say?
///
/// # Errors
/// If a record cannot be read.
pub fn is_current(tree: &Tree) -> Result<bool> {
    let records = records(tree)?;
    let there = tree.text(PAGE);
    // A tree without records needs no page.
    Ok(match records.is_empty() {
        true => there.is_none(),
        false => there.is_some_and(|text| text == page(&records)),
    })
}

fn records(tree: &Tree) -> Result<Vec<Value>> {
    let files = tree
        .with_extension("json")
        .filter(|file| file.starts_with(RESULTS));
    let read = |file: &str| {
        let text = tree.text(file).context("is no text")?;
        let record: Value = serde_json::from_str(&text).context("is no JSON")?;
        anyhow::ensure!(record["bench"].is_string(), "has no `bench`");
        let rows = record["rows"].as_array().context("has no `rows`")?;
        for row in rows.iter().filter(|row| row["metric"].is_string()) {
            check_devices(row)?;
        }
        anyhow::Ok(record)
    };
    files
        .map(|file| read(file).with_context(|| file.to_owned()))
        .collect()
}

/// Does a figure say in one of three words what it was measured on?
fn check_devices(row: &Value) -> Result<()> {
    let said = row["devices"].as_str();
    anyhow::ensure!(
        said.is_some_and(|it| ["modelled", "emulated", "real"].contains(&it)),
        "has a row of {} with `devices` {}; it is `modelled`, `emulated` or `real`",
        row["metric"],
        row["devices"]
    );
    Ok(())
}

/// The page of these records: known benchmarks in the order of `cargo xtask bench --help`, then others by name.
#[must_use]
pub fn page(records: &[Value]) -> String {
    let mut sorted: Vec<&Value> = records.iter().collect();
    let name = |record: &Value| record["bench"].as_str().unwrap_or_default().to_owned();
    sorted.sort_by_key(|record| (place(&name(record)), name(record)));
    let mut out = HEAD.to_owned();
    for record in sorted {
        section(&mut out, record);
    }
    out
}

/// Where a benchmark stands in the list; others are behind all of it.
fn place(name: &str) -> usize {
    let own = OWN.iter().map(|(name, _)| *name);
    let known = BENCHES.iter().map(|(name, ..)| *name).chain(own);
    known
        .into_iter()
        .position(|known| known == name)
        .unwrap_or(usize::MAX)
}

/// What a benchmark measures.
fn about(name: &str) -> Option<&'static str> {
    let known = BENCHES.iter().map(|(known, _, what)| (*known, *what));
    let mut all = known.chain(OWN.iter().copied());
    all.find(|(known, _)| *known == name).map(|(_, what)| what)
}

fn section(out: &mut String, record: &Value) {
    let name = record["bench"].as_str().unwrap_or_default();
    let about = record["about"].as_str().or_else(|| about(name));
    let _ = write!(out, "\n## {name}\n\n");
    if let Some(about) = about {
        let _ = writeln!(out, "{}\n", wrapped(&format!("{}.", capital(about))));
    }
    let figures: Vec<Figure> = record["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Figure::of)
        .collect();
    let devices: BTreeSet<&str> = figures.iter().map(|it| &*it.devices).collect();
    let _ = writeln!(out, "{}\n", origin(record, &figures, &devices));
    table(out, &figures, devices.len() > 1);
    let verdicts: Vec<String> = record["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(verdict)
        .collect();
    if !verdicts.is_empty() {
        let _ = write!(out, "\nAims:\n\n{}", verdicts.concat());
    }
}

/// Where, when and how the figures were made.
fn origin(record: &Value, figures: &[Figure], devices: &BTreeSet<&str>) -> String {
    let devices = match devices.len() {
        1 => capital(devices.first().copied().unwrap_or_default()),
        _ => "Real unless marked".to_owned(),
    };
    let mut parts = vec![devices];
    let runs: BTreeSet<u64> = figures.iter().filter_map(|figure| figure.runs).collect();
    match (runs.first(), runs.last()) {
        (Some(1), Some(1)) => parts.push("one run".to_owned()),
        (Some(least), Some(most)) if least == most => parts.push(format!("{most} runs")),
        (Some(least), Some(most)) => parts.push(format!("{least} to {most} runs")),
        _ => {}
    }
    let date = record["date"].as_str().unwrap_or("date unknown");
    parts.push(date.to_owned());
    match record["commit"].as_str() {
        Some(commit) => parts.push(format!("commit `{commit}`")),
        None => parts.push("commit unknown".to_owned()),
    }
    parts.push(machine(&record["machine"]));
    if let Some(load) = record["load"].as_str() {
        parts.push(format!("load average before: {load}"));
    }
    if let Some(command) = record["command"].as_str() {
        parts.push(format!("`{command}`"));
    }
    let mut text = wrapped(&format!("{}.", parts.join("; ")));
    if let Some(note) = record["note"].as_str() {
        let _ = write!(text, "\n\n{}", wrapped(note));
    }
    text
}

fn machine(machine: &Value) -> String {
    if let Some(text) = machine.as_str() {
        return text.to_owned();
    }
    let text = |key: &str| machine[key].as_str().map(str::to_owned);
    let parts: Vec<String> = [
        text("cpu"),
        machine["cores"].as_u64().map(|n| format!("{n} cores")),
        machine["memory_gib"]
            .as_f64()
            .map(|n| format!("{} GiB of memory", number(n))),
        text("kernel"),
        text("disk"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match parts.is_empty() {
        true => "machine unknown".to_owned(),
        false => parts.join(", "),
    }
}

/// One figure of one method in one case.
struct Figure {
    case: String,
    method: String,
    metric: String,
    /// What it was measured on: modelled, emulated or real ones.
    devices: String,
    runs: Option<u64>,
    /// Do methods stand in columns however many there are?
    wide: bool,
    text: String,
}

impl Figure {
    /// None if the row is an aim with its verdict, no figure at all, or kept in the record alone.
    fn of(row: &Value) -> Option<Figure> {
        if row["aside"] == Value::Bool(true) {
            return None;
        }
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let metric = row["metric"].as_str()?.to_owned();
        let case = [text("device"), text("case")].join(" ");
        Some(Figure {
            case: case.trim().to_owned(),
            method: text("method"),
            metric,
            devices: text("devices"),
            runs: row["runs"].as_u64(),
            wide: row["wide"] == Value::Bool(true),
            text: figure(row)?,
        })
    }
}

/// `2,763 (2,500 to 2,900) MiB/s; 0.93 (0.86 to 1.05) times the first`, with its aim.
fn figure(row: &Value) -> Option<String> {
    let mut text = spread(row, "ours", "low", "high")?;
    match row["unit"].as_str() {
        None | Some("") => {}
        Some(unit) => text = format!("{text} {unit}"),
    }
    if let Some(ratio) = spread(row, "ratio", "ratio_low", "ratio_high") {
        let _ = write!(text, "; {ratio} times the first");
    }
    if let Some(ratio) = spread(row, "over_bcache", "over_bcache_low", "over_bcache_high") {
        let _ = write!(text, "; {ratio} of bcache");
    }
    let over = ["", "_low", "_high"].map(|end| format!("tanada_over_this{end}"));
    if let Some(ratio) = spread(row, &over[0], &over[1], &over[2]) {
        let _ = write!(text, "; tanada: {ratio} times");
    }
    if let Some(aim) = row["aim"].as_f64() {
        let short = row["ours"].as_f64().is_some_and(|ours| ours < aim);
        let _ = write!(
            text,
            "; aim {}{}",
            number(aim),
            if short { ": short" } else { "" }
        );
    }
    if let Some(aim) = row["aim_at_most"].as_f64() {
        let short = row["ours"].as_f64().is_some_and(|ours| ours > aim);
        let end = if short { ": short" } else { "" };
        let _ = write!(text, "; aim at most {}{end}", number(aim));
    }
    Some(text)
}

/// `- file 4k-randread-qd32: IOPS over qemu-storage-daemon 1.07 (1.01 to 1.2), at least 1.15: short`, if it is one.
fn verdict(row: &Value) -> Option<String> {
    let (what, word) = (row["aim"].as_str()?, row["verdict"].as_str()?);
    let bound = row["bound"].as_f64()?;
    let at = match row["at_most"].as_bool() {
        Some(true) => "at most",
        _ => "at least",
    };
    Some(format!(
        "- {} {}: {what} {}, {at} {}: {word}\n",
        row["device"].as_str().unwrap_or_default(),
        row["case"].as_str().unwrap_or_default(),
        spread(row, "ours", "low", "high")?,
        number(bound)
    ))
}

fn spread(row: &Value, middle: &str, low: &str, high: &str) -> Option<String> {
    let middle = number(row[middle].as_f64()?);
    match (row[low].as_f64(), row[high].as_f64()) {
        (Some(low), Some(high)) if low < high => {
            Some(format!("{middle} ({} to {})", number(low), number(high)))
        }
        _ => Some(middle),
    }
}

fn table(out: &mut String, figures: &[Figure], mark_devices: bool) {
    let methods = in_order(figures.iter().map(|figure| figure.method.as_str()));
    let in_columns = methods.len() <= COLUMNS_MAX || figures.iter().any(|figure| figure.wide);
    let mut lines: Vec<(&str, &str)> = Vec::new();
    let mut cells: BTreeMap<(&str, &str), Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        let (case, method) = (figure.case.as_str(), figure.method.as_str());
        let line = (case, if in_columns { "" } else { method });
        if !lines.contains(&line) {
            lines.push(line);
        }
        cells.entry((case, method)).or_default().push(figure);
    }
    // A figure alone in its cell needs no name.
    let named = cells.values().any(|figures| figures.len() > 1);
    let cell = |case: &str, method: &str| {
        let figures = cells.get(&(case, method)).into_iter().flatten();
        let texts: Vec<String> = figures
            .map(|figure| {
                let name = if named {
                    format!("{}: ", figure.metric)
                } else {
                    String::new()
                };
                let devices = match mark_devices && figure.devices != "real" {
                    true => format!(" ({})", figure.devices),
                    false => String::new(),
                };
                format!("{name}{}{devices}", figure.text)
            })
            .collect();
        texts.join("<br>").replace('|', "\\|")
    };
    let columns = if in_columns {
        methods.clone()
    } else {
        vec!["method", "figures"]
    };
    let _ = writeln!(out, "| case | {} |", columns.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(columns.len()));
    for (case, method) in lines {
        let cells: Vec<String> = if in_columns {
            methods.iter().map(|method| cell(case, method)).collect()
        } else {
            vec![method.to_owned(), cell(case, method)]
        };
        let _ = writeln!(
            out,
            "| {} | {} |",
            case.replace('|', "\\|"),
            cells.join(" | ")
        );
    }
}

/// Each once, in the order in which they come.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(case: &str, method: &str, ours: f64) -> Value {
        json!({"case": case, "method": method, "metric": "rate", "unit": "1/s", "ours": ours,
               "low": ours / 2.0, "high": ours * 2.0, "runs": 5, "devices": "real"})
    }

    fn record(name: &str, rows: &[Value]) -> Value {
        json!({"bench": name, "date": "2026-11-24", "commit": "abc123", "command": "cargo xtask bench x",
               "load": "0.01 0.02 0.03", "rows": rows,
               "machine": {"cpu": "A processor", "cores": 2, "memory_gib": 15.6, "kernel": "Linux 6.1", "disk": "a disk"}})
    }

    #[test]
    fn few_methods_stand_in_columns_with_their_spread() {
        let rows = [
            row("read", "file", 1000.0),
            row("read", "etcd", 3.5),
            row("write", "file", 0.25),
        ];
        let page = page(&[record("meta", &rows)]);
        let table = "| case | file | etcd |\n|---|---|---|\n\
                     | read | 1,000 (500 to 2,000) 1/s | 3.5 (1.75 to 7) 1/s |\n\
                     | write | 0.25 (0.125 to 0.5) 1/s |  |\n";
        assert!(page.ends_with(table), "{page}");
        let origin = "Real; 5 runs; 2026-11-24; commit `abc123`; A processor, 2 cores, 15.6 GiB of memory, Linux 6.1, \
                      a disk; load average\nbefore: 0.01 0.02 0.03; `cargo xtask bench x`.\n\n";
        assert!(page.contains(origin), "{page}");
    }

    #[test]
    fn many_methods_stand_in_lines() {
        let rows: Vec<Value> = ["a", "b", "c", "d", "e"]
            .map(|method| row("all", method, 1.0))
            .into();
        let page = page(&[record("policy", &rows)]);
        assert!(
            page.contains("| case | method | figures |\n|---|---|---|\n| all | a |"),
            "{page}"
        );
    }

    #[test]
    fn wide_rows_stand_in_columns_however_many_there_are_and_rows_aside_stand_nowhere() {
        let mut rows: Vec<Value> = ["a", "b", "c", "d", "e", "f"]
            .map(|method| row("all", method, 1.0))
            .into();
        for row in &mut rows {
            row["wide"] = json!(true);
        }
        rows[1]["over_bcache"] = json!(0.5);
        rows[5]["aside"] = json!(true);
        let page = page(&[record("peers", &rows)]);
        assert!(page.contains("| case | a | b | c | d | e |\n"), "{page}");
        assert!(
            page.contains("| 1 (0.5 to 2) 1/s; 0.5 of bcache |"),
            "{page}"
        );
    }

    #[test]
    fn sections_follow_the_list_of_benchmarks_and_others_come_last() {
        let rows = [row("read", "file", 1.0)];
        let records = ["zzz", "volume", "executor"].map(|name| record(name, &rows));
        let page = page(&records);
        let at = |name: &str| page.find(&format!("\n## {name}\n")).expect("a section");
        assert!(at("executor") < at("volume") && at("volume") < at("zzz"));
    }

    #[test]
    fn what_falls_short_of_its_aim_is_said() {
        let mut rows = [row("read", "file", 1.0), row("write", "file", 1.0)];
        rows[0]["aim"] = json!(2.0);
        rows[1]["aim_at_most"] = json!(2.0);
        let nbd = json!({"device": "file", "case": "4k", "aim": "IOPS over a peer", "at_most": false, "bound": 1.15,
                         "ours": 1.1, "low": 1.0, "high": 1.2, "verdict": "short"});
        let page = page(&[record("x", &[&rows[..], &[nbd]].concat())]);
        assert!(page.contains("1/s; aim 2: short |"), "{page}");
        assert!(page.contains("1/s; aim at most 2 |"), "{page}");
        let aim = "- file 4k: IOPS over a peer 1.1 (1 to 1.2), at least 1.15: short\n";
        assert!(page.ends_with(aim), "{page}");
    }

    #[test]
    fn what_is_modelled_is_marked_beside_what_is_real() {
        let mut rows = [row("read", "file", 1.0), row("read", "file", 2.0)];
        rows[1]["metric"] = json!("time");
        rows[1]["devices"] = json!("modelled");
        let page = page(&[record("x", &rows)]);
        assert!(page.contains("\nReal unless marked; "), "{page}");
        let cell = "| read | rate: 1 (0.5 to 2) 1/s<br>time: 2 (1 to 4) 1/s (modelled) |\n";
        assert!(page.contains(cell), "{page}");
    }

    #[test]
    fn a_figure_says_in_one_of_three_words_what_it_was_measured_on() {
        for word in ["real", "emulated", "modelled"] {
            let row = json!({"metric": "rate", "devices": word});
            assert!(check_devices(&row).is_ok(), "{word}");
        }
        let said = check_devices(&json!({"metric": "rate", "modelled": false})).unwrap_err();
        assert_eq!(
            said.to_string(),
            "has a row of \"rate\" with `devices` null; it is `modelled`, `emulated` or `real`"
        );
        assert!(check_devices(&json!({"metric": "rate", "devices": "fast"})).is_err());
    }

    #[test]
    fn a_record_without_a_machine_says_so() {
        let earlier =
            json!({"bench": "old", "note": "Recorded earlier.", "rows": [row("a", "b", 1.0)]});
        let page = page(&[earlier]);
        let origin =
            "Real; 5 runs; date unknown; commit unknown; machine unknown.\n\nRecorded earlier.\n";
        assert!(page.contains(origin), "{page}");
    }

    #[test]
    fn rows_of_the_common_file_are_rows_of_a_record() {
        let mut figures = figures::Results::new("x");
        figures.say("a line");
        let case = "a \"case\"".to_owned();
        figures.add((&case, "m", "rate", "1/s"), &[3.0, 1.0, 2.0], "modelled");
        let rows: Value = serde_json::from_str(&figures.json()).expect("an array");
        let page = page(&[record("x", rows.as_array().expect("an array"))]);
        assert!(
            page.contains("\nModelled; 3 runs; ")
                && page.contains("| a \"case\" | 2 (1 to 3) 1/s |"),
            "{page}"
        );
        figures.finish();
    }
}
