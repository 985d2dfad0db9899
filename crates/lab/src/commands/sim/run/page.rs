//! The report of `tanada sim run`: one page with the comparison, distributions, what happened when, and where.

use report::{Axis, Chart, Facts, HeatMap, Note, Page, Repeat, Section, Series, Table, Unit};
use sim::run::{Heat, Outcome, Point};

use crate::commands::sim::run::{Source, comparison, lead, long, remarks};

/// The page; `command` is what does the same again.
pub fn page(outcomes: &[Outcome], trace: &Source, command: &str) -> String {
    let first = &outcomes[0];
    let mut facts = Facts::new()
        .fact("requests", Unit::Number.show(first.counts.requests as f64))
        .fact("trace", long(first.speed.trace_seconds));
    for outcome in outcomes {
        let mean = outcome.response("all").map_or(0.0, |all| all.mean_us / 1e6);
        let name = format!("mean response, {}", outcome.setup.stack);
        facts = facts.fact(name, Unit::Seconds.show(mean));
    }
    let mut page = Page::new("A trace on modelled storage")
        .lead(lead(first, &trace.name()))
        .facts(facts);
    if let Some(generated) = &trace.generated {
        page = page.section(Section::new("The trace").put(Note::new(generated)));
    }
    page = page
        .section(summary(outcomes))
        .section(distributions(outcomes))
        .section(over_time(outcomes));
    for outcome in outcomes {
        if let Some(section) = devices(outcome) {
            page = page.section(section);
        }
    }
    if let Some(section) = regions(outcomes) {
        page = page.section(section);
    }
    page.section(repeat(outcomes, trace, command)).html()
}

fn summary(outcomes: &[Outcome]) -> Section {
    let mut head = vec![String::new()];
    head.extend(outcomes.iter().map(|outcome| outcome.setup.stack.clone()));
    let mut section = Section::new("Side by side");
    for (group, lines) in comparison(outcomes) {
        let mut table = Table::new(group, head.clone()).fixed();
        for line in lines {
            let mut cells = vec![line.what.clone()];
            cells.extend(line.cells(outcomes));
            table = table.row(cells);
        }
        section = section.put(table);
    }
    for remark in remarks(outcomes) {
        section = section.put(Note::warning(remark));
    }
    section.put(Note::new(
        "Devices are modelled and time is virtual; the engine is the one that serves. Contents are left out: \
         everything written is zeroes.",
    ))
}

fn distributions(outcomes: &[Outcome]) -> Section {
    let mut section = Section::new("Response times");
    let single = outcomes
        .iter()
        .all(|outcome| outcome.speed.responses.len() == 2);
    for op in ["all", "read", "write"] {
        if op != "all" && single {
            continue;
        }
        let mut chart = Chart::new(
            match op {
                "all" => "All requests".to_owned(),
                op => format!("{}{}s", op[..1].to_uppercase(), &op[1..]),
            },
            Axis::new("response time", Unit::Seconds).log(),
            Axis::new("answered within it", Unit::Share).range(0.0, 1.0),
        );
        let mut any = false;
        for outcome in outcomes {
            if let Some(response) = outcome.response(op) {
                let points = response.cdf.iter().map(|(us, share)| (us / 1e6, *share));
                chart = chart.series(Series::new(&outcome.setup.stack, points).steps());
                any = true;
            }
        }
        if any {
            section = section.put(chart);
        }
    }
    section
}

/// One curve for each outcome.
fn curves(
    outcomes: &[Outcome],
    title: &str,
    unit: Unit,
    value: impl Fn(&Point) -> Option<f64>,
) -> Option<Chart> {
    let y = Axis::new(title.to_lowercase(), unit);
    let mut chart = Chart::new(title, Axis::new("time", Unit::Seconds), y);
    let mut any = false;
    for outcome in outcomes {
        let points = outcome.series.points.iter();
        let points: Vec<(f64, f64)> = points
            .map(|point| (point.at_s, value(point).unwrap_or(f64::NAN)))
            .collect();
        any |= points.iter().any(|(_, y)| y.is_finite());
        // Also one that says nothing here: each stack has its colour in all charts.
        chart = chart.series(Series::new(&outcome.setup.stack, points));
    }
    any.then_some(chart)
}

fn over_time(outcomes: &[Outcome]) -> Section {
    let charts = [
        curves(outcomes, "Requests answered", Unit::PerSecond, |point| {
            Some(point.iops)
        }),
        curves(outcomes, "Mean response time", Unit::Seconds, |point| {
            point.mean_us.map(|us| us / 1e6)
        }),
        curves(outcomes, "95 % answered within", Unit::Seconds, |point| {
            point.p95_us.map(|us| us / 1e6)
        }),
        curves(outcomes, "Under way", Unit::Number, |point| {
            Some(point.queue_depth)
        }),
        curves(
            outcomes,
            "Read bytes from the fast device",
            Unit::Share,
            |point| point.hit_share,
        ),
        caches(outcomes)
            .then(|| {
                curves(outcomes, "Dirty data", Unit::Bytes, |point| {
                    Some(point.dirty_bytes as f64)
                })
            })
            .flatten(),
        curves(outcomes, "Power", Unit::Watts, |point| Some(point.watts)),
        late(outcomes)
            .then(|| {
                curves(outcomes, "Sent late by", Unit::Seconds, |point| {
                    Some(point.late_max_s)
                })
            })
            .flatten(),
    ];
    charts
        .into_iter()
        .flatten()
        .fold(Section::new("Over time"), Section::put)
}

fn caches(outcomes: &[Outcome]) -> bool {
    outcomes.iter().any(|outcome| !outcome.caches.is_empty())
}

fn late(outcomes: &[Outcome]) -> bool {
    outcomes
        .iter()
        .any(|outcome| outcome.speed.backlog.late > 0)
}

/// The devices of one stack of several, over time.
fn devices(outcome: &Outcome) -> Option<Section> {
    if outcome.devices.len() < 2 {
        return None;
    }
    let points = &outcome.series.points;
    let chart = |title: &str, unit: Unit, value: fn(&Point, usize) -> f64| {
        let y = Axis::new(title.to_lowercase(), unit);
        let mut chart = Chart::new(title, Axis::new("time", Unit::Seconds), y);
        for (index, device) in outcome.devices.iter().enumerate() {
            let curve = points.iter().map(|point| (point.at_s, value(point, index)));
            chart = chart.series(Series::new(&device.name, curve));
        }
        chart
    };
    fn rate(point: &Point, bytes: u64) -> f64 {
        match point.seconds > 0.0 {
            true => bytes as f64 / point.seconds,
            false => 0.0,
        }
    }
    let section = Section::new(format!("Devices of {}", outcome.setup.stack))
        .put(chart("Read", Unit::BytesPerSecond, |point, index| {
            rate(point, point.devices[index].read_bytes)
        }))
        .put(chart("Written", Unit::BytesPerSecond, |point, index| {
            rate(point, point.devices[index].written_bytes)
        }))
        .put(chart("Under way", Unit::Number, |point, index| {
            point.devices[index].queue_depth
        }))
        .put(chart("Power", Unit::Watts, |point, index| {
            point.devices[index].watts
        }));
    Some(section)
}

fn regions(outcomes: &[Outcome]) -> Option<Section> {
    let mut section = None;
    for outcome in outcomes {
        if let Some(heat) = &outcome.heat {
            let open = section.unwrap_or_else(|| Section::new("Where"));
            section = Some(open.put(map(outcome, heat)));
        }
    }
    section
}

fn map(outcome: &Outcome, heat: &Heat) -> HeatMap {
    let counts = heat.bins.iter().map(|bin| {
        let counts = bin.requests.iter();
        counts.map(|count| f64::from(*count)).collect()
    });
    let height = heat.bins.first().map_or(0, |bin| bin.requests.len()) as f64;
    let span = outcome.series.interval_ns as f64 / 1e9 * heat.bins.len() as f64;
    let map = HeatMap::new(
        format!("Requests by region, {}", outcome.setup.stack),
        "requests",
        (Axis::new("time", Unit::Seconds), 0.0, span),
        (
            Axis::new("address", Unit::Bytes),
            0.0,
            height * heat.region_bytes as f64,
        ),
        counts.collect(),
    );
    if heat.bins.iter().all(|bin| bin.resident.is_empty()) {
        return map;
    }
    let resident = heat.bins.iter().map(|bin| {
        let shares = bin.resident.iter();
        shares.map(|share| f64::from(*share)).collect()
    });
    map.about("Outlined: regions of which the fast device holds half or more.")
        .resident("on the fast device", resident.collect())
}

fn repeat(outcomes: &[Outcome], trace: &Source, command: &str) -> Section {
    let survey = &trace.survey;
    let identity = format!(
        "{} requests over {}",
        survey.requests,
        long(survey.span.secs_f64())
    );
    let mut repeat = Repeat::new(command)
        .seed(outcomes[0].setup.seed)
        .input(trace.name(), identity);
    for outcome in outcomes {
        let name = format!(
            "{} (steps of the simulation: {})",
            outcome.setup.stack, outcome.setup.trace_hash
        );
        repeat = repeat.configuration(name, outcome.config.clone());
    }
    Section::new("Repeat").put(repeat)
}
