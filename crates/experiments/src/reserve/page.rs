//! Figures 3 to 6 of the paper, with ours in them.
//!
//! Source: PROBS figures 3 (spread by SROUND), 4 and 5 (two accesses), 6 (overhead and lost throughput by accesses).

use report::{Axis, Chart, Section, Series, Unit};
use serde::{Deserialize, Serialize};

/// A part of a curve: points of the same figure, chart and name are one curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    pub figure: u32,
    pub chart: String,
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

fn axes(figure: u32, chart: &str) -> (Axis, Axis) {
    match figure {
        3 => (
            Axis::new("throughput of a round", Unit::BytesPerSecond),
            Axis::new("share of rounds at most as fast", Unit::Share).range(0.0, 1.0),
        ),
        4 | 5 => (
            Axis::new("set aside of what one access gets", Unit::Share),
            Axis::new("violated measurements", Unit::Share),
        ),
        _ => (
            Axis::new("accesses", Unit::Number),
            Axis::new(chart, Unit::Share),
        ),
    }
}

fn title(figure: u32) -> &'static str {
    match figure {
        3 => "One access: spread by the length of a round (the paper's figure 3)",
        4 => "Two accesses in equal parts (the paper's figure 4)",
        5 => "Two accesses, 2 to 1 (the paper's figure 5)",
        _ => "By the number of accesses, at most 10 % violated (the paper's figure 6)",
    }
}

/// All figures.
pub(super) fn sections(curves: &[Curve]) -> Vec<Section> {
    let mut sections = Vec::new();
    for figure in 3..=6 {
        let mut section = Section::new(title(figure));
        let mut charts: Vec<&str> = Vec::new();
        for curve in curves.iter().filter(|curve| curve.figure == figure) {
            if !charts.contains(&&*curve.chart) {
                charts.push(&curve.chart);
            }
        }
        charts.sort_unstable();
        for chart in charts {
            let (x, y) = axes(figure, chart);
            let mut drawn = Chart::new(chart, x, y).wide();
            let mut names: Vec<&str> = Vec::new();
            let here = || {
                let here = curves.iter();
                here.filter(move |curve| curve.figure == figure && curve.chart == chart)
            };
            for curve in here() {
                if !names.contains(&&*curve.name) {
                    names.push(&curve.name);
                }
            }
            for name in names {
                let points = here().filter(|curve| curve.name == name);
                let points = points.flat_map(|curve| curve.points.iter().copied());
                let series = Series::new(name, points);
                drawn = drawn.series(if figure == 3 { series.steps() } else { series });
            }
            section = section.put(drawn);
        }
        sections.push(section);
    }
    sections
}
