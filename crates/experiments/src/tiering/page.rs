//! Figures 6 to 9 of the paper, and a chart that it lacks: which regions were hot, and which were on the SSD.
//!
//! Source: AST figures 6 (regions up over time), 7, 8, 9 (distributions of response times).

use base::Nanos;
use report::{Axis, Chart, HeatMap, Note, Section, Series, Unit};

use super::bed::{BEGINNING, REGION};
use super::runs::{Sample, Samples};
use super::work::Workload;

/// Regions of the paper's volume.
const REGIONS: usize = 293;
/// Methods whose distributions stand beside each other.
const COMPARED: [&str; 7] = [
    "hdd-only",
    "static",
    "lru-cache-run2",
    "otf-published",
    "otf-no-copy-back",
    "otf-published-first-20min",
    "tanada",
];

fn sample<'a>(
    samples: &'a Samples,
    case: &'static str,
    method: &'static str,
) -> Option<&'a Sample> {
    samples.get(&(case, method))?.first()
}

/// All figures; the first seed's.
pub(super) fn sections(workloads: &[Workload], samples: &Samples) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut up = Section::new("Regions on the SSD (the paper's figure 6)");
    for workload in workloads {
        up = up.put(regions_up(workload.case, samples));
    }
    sections.push(up);
    for workload in workloads {
        sections.push(heat(workload, samples));
    }
    for workload in workloads {
        let case = workload.case;
        let figures = if case == "src1-0" { "7 and 8" } else { "9" };
        let section = Section::new(format!(
            "Response times, {case} (the paper's figure {figures})"
        ))
        .put(distribution(case, samples))
        .put(over_time(workload, samples));
        sections.push(match overtaken(case, samples) {
            Some(note) => section.put(Note::new(note)),
            None => section,
        });
    }
    sections
}

/// Figure 6.
fn regions_up(case: &'static str, samples: &Samples) -> Chart {
    let x = Axis::new("since the beginning of the window", Unit::Seconds);
    let y = Axis::new("regions of 1 GiB that live on the SSD", Unit::Number);
    let mut chart = Chart::new(format!("Regions up, {case}"), x, y)
        .about("The paper saw at most 24 at once in both cases.")
        .wide();
    for method in ["otf-published", "otf-no-copy-back", "+extents", "tanada"] {
        if let Some(sample) = sample(samples, case, method) {
            let points = sample.regions_up.iter().copied();
            chart = chart.series(Series::new(method, points).steps());
        }
    }
    chart
}

/// Regions over time with what lives on the SSD.
fn heat(workload: &Workload, samples: &Samples) -> Section {
    let case = workload.case;
    let mut section = Section::new(format!("Heat and tier, {case}"));
    for method in ["otf-published", "tanada"] {
        let Some(heat) = sample(samples, case, method).and_then(|sample| sample.heat.as_ref())
        else {
            continue;
        };
        let Some(last) = heat.intervals.last() else {
            continue;
        };
        let blank = || vec![0.0; REGIONS];
        let (mut counts, mut on_ssd) = (Vec::new(), Vec::new());
        for interval in &heat.intervals {
            let (mut requests, mut resident) = (blank(), blank());
            for count in &interval.counts {
                if let Some(cell) = requests.get_mut(count.region.index()) {
                    *cell = count.all() as f64;
                }
            }
            for (region, bytes) in &interval.resident {
                if let Some(cell) = resident.get_mut(region.index()) {
                    *cell = (bytes.0 as f64 / heat.region.0 as f64).min(1.0);
                }
            }
            counts.push(requests);
            on_ssd.push(resident);
        }
        let begun = heat.intervals[0].start;
        let end = (last.start + last.length).since(begun);
        let from = begun.0.saturating_sub(last.start.0);
        let x = Axis::new("time", Unit::Seconds);
        let y = Axis::new("address", Unit::Bytes);
        let map = HeatMap::new(
            format!("Requests by region, {method}"),
            "requests",
            (x, from as f64 / 1e9, end.secs_f64()),
            (y, 0.0, (REGION.0 * REGIONS as u64) as f64),
            counts,
        )
        .about("The line surrounds regions of which half or more lived on the SSD. The last intervals that are kept.")
        .resident("on the SSD", on_ssd);
        section = section.put(map);
    }
    section
}

/// Figures 7, 8 and 9.
fn distribution(case: &'static str, samples: &Samples) -> Chart {
    let x = Axis::new("response time", Unit::Seconds).log();
    let y = Axis::new("share of requests answered within", Unit::Share).range(0.0, 1.0);
    let mut chart = Chart::new(format!("Distribution of response times, {case}"), x, y).wide();
    for method in COMPARED {
        if let Some(sample) = sample(samples, case, method) {
            let points = sample.cdf.iter().map(|(ms, share)| (ms / 1e3, *share));
            chart = chart.series(Series::new(method, points).steps());
        }
    }
    chart
}

/// Mean response by the minute in which requests were due.
fn over_time(workload: &Workload, samples: &Samples) -> Chart {
    let case = workload.case;
    let x = Axis::new("since the beginning of the window", Unit::Seconds);
    let y = Axis::new("mean response time of a minute's requests", Unit::Seconds).log();
    let mut chart = Chart::new(format!("Mean response over time, {case}"), x, y).wide();
    if workload.length > BEGINNING {
        chart = chart.mark(BEGINNING.secs_f64(), "20 minutes");
    }
    for method in COMPARED {
        let Some(sample) = sample(samples, case, method).filter(|_| !method.ends_with("20min"))
        else {
            continue;
        };
        let minute = Nanos::secs(60);
        let skip = (sample.from_ns / minute.0) as usize;
        let minutes = sample.minutes.iter().skip(skip).enumerate();
        let most = workload.length.0.div_ceil(minute.0) as usize;
        let points = minutes.take(most).filter(|(_, minute)| minute.requests > 0);
        let points = points.map(|(at, minute)| {
            let mean = minute.nanos as f64 / minute.requests as f64 / 1e9;
            (60.0 * at as f64, mean)
        });
        chart = chart.series(Series::new(method, points));
    }
    chart
}

/// Where the warm cache overtakes the published method.
fn overtaken(case: &'static str, samples: &Samples) -> Option<String> {
    let at = |method, share: f64| {
        let cdf = &sample(samples, case, method)?.cdf;
        let found = cdf.iter().find(|(_, within)| *within >= share);
        found.or(cdf.last()).map(|(ms, _)| *ms)
    };
    let leads = |percent: &u32| {
        let share = f64::from(*percent) / 100.0;
        matches!(
            (at("otf-published", share), at("lru-cache-run2", share)),
            (Some(first), Some(later)) if first <= later
        )
    };
    sample(samples, case, "otf-published")?;
    Some(match (1..100).rev().find(leads) {
        Some(percentile) => format!(
            "The warm LRU cache overtakes the published method at the {percentile}th percentile (the paper, src1_0: \
             about the 80th)."
        ),
        None => "The published method leads at no percentile.".to_owned(),
    })
}
