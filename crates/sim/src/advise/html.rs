//! Advice as one page.

use super::{Advice, By};
use report::{Axis, Cell, Chart, Code, Facts, Note, Page, Repeat, Section, Series, Table, Unit};

/// The page of `advice` on the trace called `name`; `command` repeats it.
pub fn page(advice: &Advice, name: &str, command: &str, seed: u64) -> Page {
    let mut page = Page::new(format!("Advice for {name}"));
    for reason in &advice.reasons {
        page = page.lead(reason);
    }
    let mut candidates = Section::new("Candidates").put(table(advice)).put(Note::new(format!(
        "Devices are modelled. All figures are of the last {} of {} reads and writes, at the trace's own pace. By engine: \
         simulated with the engine, after {} requests of warm-up. By model: a quick model without bypass and ledger, \
         after all of the trace before; where there are rows by the engine, it only ranks.",
        advice.timed_requests, advice.requests, advice.engine_warm_up_requests
    )));
    if let Some(configuration) = &advice.configuration {
        let lines = Code::new("In [[hybrid]] of the configuration", configuration.as_str());
        candidates = candidates.put(lines);
    }
    page.facts(facts(advice))
        .section(candidates)
        .section(Section::new("Curves").put(curves(advice)))
        .section(Section::new("Repeat").put(Repeat::new(command).seed(seed)))
}

fn seconds(micros: f64) -> f64 {
    micros / 1e6
}

fn facts(advice: &Advice) -> Facts {
    let alone = seconds(advice.alone.response_us_mean);
    let facts = Facts::new()
        .fact("requests", Unit::Number.show(advice.requests as f64))
        .fact("touched", Unit::Bytes.show(advice.touched_bytes as f64))
        .fact(
            format!("mean on {} alone", advice.slow),
            Unit::Seconds.show(alone),
        );
    let Some(chosen) = advice.chosen else {
        return facts;
    };
    let mean = seconds(advice.candidates[chosen].response_us_mean);
    facts.fact("mean as advised", Unit::Seconds.show(mean))
}

fn table(advice: &Advice) -> Table {
    let heads = [
        "policy",
        "size",
        "write",
        "bypass",
        "read hits",
        "mean",
        "mean read",
        "mean write",
        "slow requests saved",
        "flash written a day",
        "device written a day",
        "power",
        "by",
    ];
    let mut table = Table::new("Caches looked at", heads);
    for (at, one) in advice.candidates.iter().enumerate() {
        let mark = |cell: Cell| match advice.chosen == Some(at) {
            true => cell.best(),
            false => cell,
        };
        table = table.row([
            mark(Cell::from(one.policy.as_str())),
            mark(Cell::of(one.size_bytes as f64, &Unit::Bytes)),
            mark(Cell::from(one.write.as_str())),
            match one.sequential_bypass_bytes {
                Some(bypass) => Cell::of(bypass as f64, &Unit::Bytes),
                None => Cell::from("off"),
            },
            Cell::of(one.read_hit_ratio, &Unit::Share),
            mark(Cell::of(seconds(one.response_us_mean), &Unit::Seconds)),
            Cell::of(seconds(one.read_us_mean), &Unit::Seconds),
            Cell::of(seconds(one.write_us_mean), &Unit::Seconds),
            Cell::of(one.slow_requests_saved, &Unit::Share),
            Cell::of(one.flash_bytes_per_day, &Unit::Bytes),
            Cell::shown(
                one.device_writes_per_day,
                format!("{:.3}", one.device_writes_per_day),
            ),
            Cell::shown(one.watts, format!("{:.2} W", one.watts)),
            Cell::from(match one.by {
                By::Model => "model",
                By::Engine => "engine",
            }),
        ]);
    }
    table
}

fn curves(advice: &Advice) -> Chart {
    let mut chart = Chart::new(
        "Miss ratio by cache size",
        Axis::new("cache size", Unit::Bytes).log(),
        Axis::new("miss ratio", Unit::Share).range(0.0, 1.0),
    )
    .wide();
    for named in &advice.curves {
        let points = named.curve.points().iter();
        let points = points.filter(|point| point.objects > 0.0);
        let points = points.map(|point| (point.objects * super::PAGE as f64, point.miss_ratio));
        chart = chart.series(Series::new(named.method.to_string(), points));
    }
    match advice.chosen {
        Some(chosen) => chart.mark(advice.candidates[chosen].size_bytes as f64, "advised"),
        None => chart,
    }
}
