//! Outcomes of several stacks beside each other, for people.

use base::{Bytes, Nanos};
use report::terminal::table::{count, share, size, span};
use sim::run::{Outcome, Pace};

/// What a row of the comparison says of one outcome; `-` where it has no such thing.
pub(super) type Says = Box<dyn Fn(&Outcome) -> String>;

/// One line of the comparison.
pub struct Line {
    /// What it is about.
    pub what: String,
    pub(super) says: Says,
}

impl Line {
    /// One cell for each outcome.
    pub fn cells(&self, outcomes: &[Outcome]) -> Vec<String> {
        outcomes
            .iter()
            .map(|outcome| (self.says)(outcome))
            .collect()
    }
}

pub(super) fn line(what: impl Into<String>, says: impl Fn(&Outcome) -> String + 'static) -> Line {
    Line {
        what: what.into(),
        says: Box::new(says),
    }
}

pub(super) fn micros(us: f64) -> String {
    span((us * 1e3).round() as u64)
}

/// A span of virtual time: seconds below two minutes, else hours, minutes and seconds.
pub fn long(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => span((s * 1e9).round() as u64),
        s => humantime::format_duration(Nanos::secs(s.round() as u64).duration()).to_string(),
    }
}

pub(super) fn joules(joules: f64) -> String {
    match joules {
        j if j < 10_000.0 => format!("{j:.0} J"),
        j if j < 3.6e6 => format!("{:.1} kJ", j / 1e3),
        j => format!("{:.2} kWh", j / 3.6e6),
    }
}

/// The comparison, in groups of lines that belong together.
pub fn comparison(outcomes: &[Outcome]) -> Vec<(&'static str, Vec<Line>)> {
    let work = vec![
        line("requests", |o| count(o.counts.requests as f64)),
        line("time", |o| long(o.speed.seconds)),
        line("requests/s", |o| count(o.speed.iops)),
        line("data/s", |o| {
            format!("{}/s", Bytes(o.speed.bytes_per_second as u64))
        }),
    ];
    let mut groups = vec![("work", work), ("response time", time_lines(outcomes))];
    if outcomes.iter().any(|outcome| !outcome.caches.is_empty()) {
        groups.push(("cache", cache_lines()));
    }
    let mut devices = vec![
        line("queue, mean", |o| {
            format!("{:.1}", o.speed.queue_depth_mean)
        }),
        line("queue, most", |o| count(o.speed.queue_depth_max as f64)),
    ];
    let mut names: Vec<&str> = Vec::new();
    for device in outcomes.iter().flat_map(|outcome| &outcome.devices) {
        if !names.contains(&device.name.as_str()) {
            names.push(&device.name);
        }
    }
    for name in names {
        devices.extend(device_lines(name));
    }
    groups.push(("devices", devices));
    groups.push((
        "energy",
        vec![
            line("energy", |o| joules(o.energy.joules)),
            line("power", |o| format!("{:.2} W", o.energy.watts)),
            line("spin-ups", |o| count(o.energy.spin_ups as f64)),
        ],
    ));
    let late = outcomes
        .iter()
        .any(|outcome| outcome.speed.backlog.late > 0);
    if late {
        groups.push((
            "backlog",
            vec![
                line("sent late", |o| count(o.speed.backlog.late as f64)),
                line("latest by", |o| long(o.speed.backlog.late_max_s)),
            ],
        ));
    }
    groups
}

/// How long requests took: of all, and of each kind where there is more than one.
fn time_lines(outcomes: &[Outcome]) -> Vec<Line> {
    type Time = fn(&sim::run::Response) -> f64;
    const TIMES: [(&str, Time); 6] = [
        ("mean", |r| r.mean_us),
        ("p50", |r| r.p50_us),
        ("p95", |r| r.p95_us),
        ("p99", |r| r.p99_us),
        ("p99.9", |r| r.p999_us),
        ("max", |r| r.max_us),
    ];
    let mut lines = Vec::new();
    for op in ["all", "read", "write", "discard", "flush"] {
        let is_there = outcomes.iter().any(|it| it.response(op).is_some());
        // All are of one kind: once is enough.
        let only = op != "all" && outcomes.iter().all(|o| o.speed.responses.len() == 2);
        if !is_there || only {
            continue;
        }
        for (name, time) in TIMES {
            let what = match op {
                "all" => name.to_owned(),
                op => format!("{op} {name}"),
            };
            lines.push(line(what, move |o: &Outcome| {
                o.response(op)
                    .map_or_else(|| "-".to_owned(), |response| micros(time(response)))
            }));
        }
    }
    lines
}

pub(super) fn cache_lines() -> Vec<Line> {
    let of = |what, says: fn(&sim::run::CacheOutcome) -> String| {
        line(what, move |o: &Outcome| {
            // The volume itself, where hybrids stand on hybrids.
            let cache = o.caches.iter().find(|cache| cache.name == o.setup.volume);
            cache.map_or_else(|| "-".to_owned(), says)
        })
    };
    vec![
        of("hits, bytes", |c| percent(c.hit_share)),
        of("hits, requests", |c| percent(c.request_hit_share)),
        of("promoted", |c| size(c.promoted_bytes)),
        of("written to flash", |c| {
            size(c.flash_data_bytes + c.flash_ledger_bytes)
        }),
        of("written back", |c| size(c.written_back_bytes)),
        of("dirty at the end", |c| size(c.dirty_bytes)),
        of("cached at the end", |c| size(c.cached_bytes)),
    ]
}

pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| share(part, 1.0))
}

pub(super) fn device_lines(name: &str) -> Vec<Line> {
    let of = |what: &str, says: fn(&sim::run::DeviceOutcome) -> String| {
        let name = name.to_owned();
        line(format!("{name} {what}"), move |o: &Outcome| {
            let device = o.devices.iter().find(|device| device.name == name);
            device.map_or_else(|| "-".to_owned(), says)
        })
    };
    vec![
        of("read", |d| size(d.read.bytes)),
        of("written", |d| size(d.written.bytes)),
        of("busy", |d| share(d.utilisation, 1.0)),
        of("queue, mean", |d| format!("{:.2}", d.queue_depth_mean)),
        of("queue, most", |d| count(d.queue_depth_max as f64)),
        of("energy", |d| joules(d.joules)),
    ]
}

/// What was replayed, and how, in one line.
pub fn lead(outcome: &Outcome, trace: &str) -> String {
    let pace = match outcome.setup.pace {
        Pace::Open { speed } => format!("at {speed}x its speed"),
        Pace::Closed { depth } => format!("{depth} at a time"),
    };
    let warm_up = match outcome.counts.warm_up_requests {
        0 => String::new(),
        requests => format!(" after {} of warm-up", count(requests as f64)),
    };
    format!(
        "{trace}: {} requests{warm_up}, {pace}; modelled devices, virtual time, seed {}",
        count(outcome.counts.requests as f64),
        outcome.setup.seed
    )
}

/// What has to be said beside the figures.
pub fn remarks(outcomes: &[Outcome]) -> Vec<String> {
    let mut remarks = Vec::new();
    for outcome in outcomes {
        let backlog = outcome.speed.backlog;
        if backlog.late > 0 && matches!(outcome.setup.pace, Pace::Open { .. }) {
            remarks.push(format!(
                "{}: did not keep up: {} requests were sent late, by {} at most, because {} were under way; \
                 response times count from when each should have come",
                outcome.setup.stack,
                count(backlog.late as f64),
                long(backlog.late_max_s),
                backlog.under_way_max
            ));
        }
        let left_out = outcome.counts.left_out;
        let reasons = [
            (left_out.beyond, "beyond the end of the volume"),
            (left_out.no_bytes, "of no bytes"),
        ];
        for (requests, why) in reasons {
            if requests > 0 {
                let requests = count(requests as f64);
                remarks.push(format!(
                    "{}: {requests} requests {why} were left out",
                    outcome.setup.stack
                ));
            }
        }
    }
    remarks
}

pub(super) fn text(outcomes: &[Outcome], trace: &str) -> String {
    let mut text = format!("{}\n\n", lead(&outcomes[0], trace));
    let mut head = vec![""];
    head.extend(outcomes.iter().map(|outcome| outcome.setup.stack.as_str()));
    let mut rows = Vec::new();
    for (group, lines) in comparison(outcomes) {
        let mut title = vec![String::new(); head.len()];
        title[0] = group.to_uppercase();
        rows.push(title);
        for line in lines {
            let mut row = vec![format!("  {}", line.what)];
            row.extend(line.cells(outcomes));
            rows.push(row);
        }
    }
    text.push_str(&side_by_side(&head, &rows));
    let remarks = remarks(outcomes);
    if !remarks.is_empty() {
        text.push_str(&format!("\n{}\n", remarks.join("\n")));
    }
    text
}

/// Columns as wide as their widest cell: the first one flush left, the others flush right.
pub(super) fn side_by_side(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| width(&row[column]));
        cells.chain([width(head[column])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(widest).collect();
    let mut text = String::new();
    let mut put = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            let pad = " ".repeat(widths[column] - width(cell));
            match column {
                0 => line.extend([cell, &pad]),
                _ => line.extend(["  ", &pad, cell]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    put(&mut head.iter().copied());
    for row in rows {
        put(&mut row.iter().map(String::as_str));
    }
    text
}
