//! What do the load generators print?
//!
//! ```text
//! YCSB      [READ], AverageLatency(us), 812.5
//! go-ycsb   READ   - Takes(s): 10.0, Count: 1000, OPS: 100.0, Avg(us): 650, ...
//! sysbench  transactions: 12345 (205.70 per sec.)   ... avg: 38.88
//! pgbench   latency average = 11.013 ms              tps = 363.25 (without initial connection time)
//! ```
//!
//! Always true:
//! 1. Of figures printed again and again while a run goes on, the last counts.

use super::{Figure, Output, Said, Wrong};
use crate::units::Unit;

fn number(line: u64, text: &str) -> Result<f64, Wrong> {
    let text = text.trim();
    text.parse()
        .map_err(|_| Wrong::at(line, format!("'{text}' is no number")))
}

/// The metric of an operation; `updates` says whether the run also updates.
fn metric(operation: &str, updates: bool) -> Option<String> {
    let (intended, operation) = match operation.strip_prefix("Intended-") {
        Some(rest) => ("_intended", rest),
        None => ("", operation),
    };
    let name = match operation {
        "READ" => "read",
        "UPDATE" => "write",
        "INSERT" if updates => "insert",
        "INSERT" => "write",
        "SCAN" => "scan",
        "DELETE" => "delete",
        "READ-MODIFY-WRITE" | "READ_MODIFY_WRITE" => "read-modify-write",
        _ => return None,
    };
    Some(format!("{name}{intended}_latency"))
}

fn failed(line: u64, count: &str, operation: &str, how: &str) -> Wrong {
    Wrong::at(
        line,
        format!(
            "{count} {operation} operations ended with {how}: the run's times are not those of its operations"
        ),
    )
}

impl Output {
    /// Sets a metric; a later figure replaces an earlier one.
    fn result(&mut self, metric: &str, value: f64, unit: Unit, line: u64) {
        let same = |figure: &&mut Figure| matches!(&figure.said, Said::Result { metric: m } if m == metric);
        match self.figures.iter_mut().find(same) {
            Some(figure) => (figure.value, figure.unit, figure.line) = (value, unit, line),
            None => self.figures.push(Figure {
                said: Said::Result {
                    metric: metric.to_owned(),
                },
                value,
                unit,
                line,
            }),
        }
    }

    fn has(&self, metric: &str) -> bool {
        let is =
            |figure: &Figure| matches!(&figure.said, Said::Result { metric: m } if m == metric);
        self.figures.iter().any(is)
    }
}

/// YCSB's summary.
pub fn ycsb(text: &str) -> Result<Output, Wrong> {
    let mut output = Output::default();
    let updates = text.contains("[UPDATE]");
    let mut latencies = false;
    for (n, line) in text.lines().enumerate() {
        let at = n as u64 + 1;
        let mut parts = line.splitn(3, ',').map(str::trim);
        let (Some(section), Some(name), Some(value)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some(section) = section.strip_prefix('[').and_then(|s| s.strip_suffix(']')) else {
            continue;
        };
        if section == "OVERALL" && name.starts_with("Throughput") {
            output.result("throughput", number(at, value)?, Unit::PerS, at);
        }
        let Some(metric) = metric(section, updates) else {
            continue;
        };
        if let Some(code) = name.strip_prefix("Return=") {
            // 0 and OK are success; a key that is not there is an answer, too.
            if !matches!(code, "OK" | "0" | "NOT_FOUND") && value != "0" {
                return Err(failed(at, value, section, code));
            }
        }
        if let Some(unit) = name.strip_prefix("AverageLatency") {
            let unit = unit.trim_matches(['(', ')']);
            let unit: Unit = unit
                .parse()
                .map_err(|e: crate::units::UnitError| Wrong::at(at, e.to_string()))?;
            output.result(&metric, number(at, value)?, unit, at);
            latencies = true;
        }
    }
    match latencies {
        true => Ok(output),
        false => Err(Wrong::whole(
            "no line such as '[READ], AverageLatency(us), 812.5'",
        )),
    }
}

/// go-ycsb's summary, in its plain style.
pub fn go_ycsb(text: &str) -> Result<Output, Wrong> {
    let mut output = Output::default();
    let updates = text.lines().any(|line| line.starts_with("UPDATE "));
    for (n, line) in text.lines().enumerate() {
        let at = n as u64 + 1;
        let Some((operation, figures)) =
            line.split_once('-').filter(|_| line.contains("Takes(s):"))
        else {
            continue;
        };
        // `READ_MODIFY_WRITE - Takes(s): ...` has its dash behind the name.
        let operation = operation.trim();
        let field = |name: &str| {
            figures.split(',').find_map(|part| {
                let (key, value) = part.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        if let Some(operation) = operation.strip_suffix("_ERROR") {
            let count = field("Count").unwrap_or("some");
            return Err(failed(at, count, operation, "ERROR"));
        }
        if operation == "TOTAL" {
            if let Some(ops) = field("OPS") {
                output.result("throughput", number(at, ops)?, Unit::PerS, at);
            }
            continue;
        }
        if let (Some(metric), Some(average)) = (metric(operation, updates), field("Avg(us)")) {
            output.result(&metric, number(at, average)?, Unit::Us, at);
        }
    }
    match output.figures.is_empty() {
        false => Ok(output),
        true => Err(Wrong::whole(
            "no line such as 'READ - Takes(s): 10.0, Count: 1000, OPS: 100.0, Avg(us): 650'",
        )),
    }
}

/// sysbench's summary.
pub fn sysbench(text: &str) -> Result<Output, Wrong> {
    let mut output = Output::default();
    let mut in_latency = false;
    for (n, line) in text.lines().enumerate() {
        let at = n as u64 + 1;
        let (key, value) = match line.split_once(':') {
            Some((key, value)) => (key.trim(), value.trim()),
            None => continue,
        };
        match key {
            "Number of threads" => output.parameters.set("clients", value),
            "Latency (ms)" | "per-request statistics" | "response time" => in_latency = true,
            "Threads fairness" => in_latency = false,
            "transactions" => {
                let rate = value
                    .split_once('(')
                    .and_then(|(_, rate)| rate.split_whitespace().next())
                    .ok_or_else(|| {
                        Wrong::at(
                            at,
                            format!("'{value}' has no rate such as (205.70 per sec.)"),
                        )
                    })?;
                output.result("throughput", number(at, rate)?, Unit::PerS, at);
            }
            "avg" if in_latency => {
                let value = value.strip_suffix("ms").unwrap_or(value);
                output.result("latency", number(at, value)?, Unit::Ms, at);
            }
            _ => {}
        }
    }
    match output.has("latency") {
        true => Ok(output),
        false => Err(Wrong::whole(
            "no average latency; sysbench prints one under 'Latency (ms):'",
        )),
    }
}

/// pgbench's summary.
pub fn pgbench(text: &str) -> Result<Output, Wrong> {
    let mut output = Output::default();
    let mut rate = None;
    for (n, line) in text.lines().enumerate() {
        let at = n as u64 + 1;
        if let Some(clients) = line.strip_prefix("number of clients: ") {
            output.parameters.set("clients", clients.trim());
        }
        if let Some(scale) = line.strip_prefix("scaling factor: ") {
            output.parameters.set("scale", scale.trim());
        }
        // 9.4 to 9.6 wrote a colon.
        if let Some(latency) = line
            .strip_prefix("latency average = ")
            .or_else(|| line.strip_prefix("latency average: "))
        {
            let latency = latency.trim().strip_suffix("ms").unwrap_or(latency);
            output.result("latency", number(at, latency)?, Unit::Ms, at);
        }
        if let Some(tps) = line.strip_prefix("tps = ") {
            let (tps, how) = tps.split_once(' ').unwrap_or((tps, ""));
            // Versions before 14 print it twice; the time to connect is not the database's.
            if rate.is_none() || !how.contains("including") {
                rate = Some(number(at, tps)?);
            }
            output.result("throughput", rate.unwrap_or_default(), Unit::PerS, at);
        }
    }
    let Some(rate) = rate else {
        return Err(Wrong::whole("no line such as 'tps = 363.25'"));
    };
    if !output.has("latency") {
        // Before 9.4 it was not printed; each client always waits for one transaction.
        let clients = output.parameters.number("clients").unwrap_or(1.0);
        output.result("latency", clients / rate * 1e3, Unit::Ms, 0);
    }
    Ok(output)
}
