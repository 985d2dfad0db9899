//! A study as one HTML page: how well it would have predicted, the lines, the residuals.
//!
//! ```text
//! data + study + lines as published -> errors | fits | results over the regressor (SCM figure 3) |
//!                                      results over the data size (SCM figure 4) | left-out predictions -> html
//! ```
//!
//! Source: SCM figures 3, 4.

use report::{Axis, Cell, Chart, Facts, Note, Page, Repeat, Section, Series, Table, Unit};

use super::data::Reduced;
use super::judge::{Method, Score, Verdict};
use super::model::Group;
use super::paper::{CellFit, Line};
use super::study::Study;

/// More charts of single cells than this are left out: a page is to be read.
const CELLS_MAX: usize = 60;

/// The page for `study` and the lines in `cells`; `command` repeats it.
pub fn page(data: &Reduced, study: &Study, cells: &[CellFit], command: &str) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut facts = Facts::new();
    for score in &study.scores {
        if matches!(score.method, Method::Model | Method::Nearest | Method::Mean) {
            facts = facts.fact(
                format!("{}, left out", score.method.name()),
                percent(score.mean),
            );
        }
    }
    let mut page = Page::new("Prediction")
        .lead(format!(
            "{}. Fitted for each workload and metric over all sizes, nothing negative, relative errors least.",
            study.form.sentence()
        ))
        .lead(study.verdict.sentence())
        .facts(facts);
    page = page.section(errors(study));
    page = page.section(fits(study));
    let mut lines = Section::new("Results over the regressor, as published")
        .text("Each cell's best regressor, its line, and the devices. With few devices and many candidates a good fit is easily had by chance.");
    for fit in cells.iter().take(CELLS_MAX) {
        lines = lines.put(line_chart(data, fit));
    }
    if cells.len() > CELLS_MAX {
        lines = lines.put(Note::new(format!(
            "{} more cells are not drawn",
            cells.len() - CELLS_MAX
        )));
    }
    page = page.section(lines);
    let mut sizes = Section::new("Results over the data size");
    for group in Group::all(data, &study.form.pooled) {
        if let Some(chart) = size_chart(data, &group, &study.form.pooled) {
            sizes = sizes.put(chart);
        }
    }
    page.section(sizes)
        .section(residuals(study))
        .section(Section::new("Repeat").put(Repeat::new(command)))
        .html()
}

fn score_cells(name: &str, score: &Score) -> [Cell; 5] {
    let percent = |share: f64| Cell::shown(share, format!("{:.1} %", share * 100.0));
    [
        Cell::from(name),
        Cell::from(score.method.name()),
        percent(score.mean),
        percent(score.worst),
        Cell::from(score.predictions as u64),
    ]
}

fn errors(study: &Study) -> Section {
    let head = ["group", "method", "mean error", "worst", "predictions"];
    let mut table = Table::new("Errors with each device left out in turn", head);
    for score in &study.scores {
        table = table.row(score_cells("all", score));
    }
    for group in &study.groups {
        for score in &group.scores {
            table = table.row(score_cells(&group.group, score));
        }
    }
    let mut section = Section::new("Left-out errors").put(table);
    for group in &study.groups {
        if let Verdict::Nearest { .. } = group.verdict {
            let text = format!("{}: {}", group.group, group.verdict.sentence());
            section = section.put(Note::warning(text));
        }
    }
    for text in study.warnings.iter().chain(&study.judgement.silent) {
        section = section.put(Note::warning(text.clone()));
    }
    section
}

fn fits(study: &Study) -> Section {
    let mut head = vec!["group".to_owned(), "cpu (us)".to_owned()];
    head.extend(
        study
            .form
            .terms
            .iter()
            .map(|t| format!("n of {}", t.regressor)),
    );
    head.extend(["rank", "rule", "rms error", "devices"].map(str::to_owned));
    let mut table = Table::new("", head);
    let mut section = Section::new("Fits");
    for group in &study.groups {
        let Some(fit) = &group.fit else {
            let why = group.why_not.clone().unwrap_or_default();
            section = section.put(Note::warning(why));
            continue;
        };
        let mut row = vec![
            Cell::from(group.group.as_str()),
            Cell::shown(fit.cpu, format!("{:.1}", fit.cpu)),
        ];
        row.extend(
            fit.counts
                .iter()
                .map(|n| Cell::shown(*n, format!("{n:.3}"))),
        );
        row.push(Cell::from(format!("{} of {}", fit.rank, fit.unknowns)));
        row.push(Cell::from(fit.rule.sentence()));
        row.push(Cell::shown(
            fit.rms_error,
            format!("{:.1} %", fit.rms_error * 100.0),
        ));
        row.push(Cell::from(fit.devices.join(", ")));
        table = table.row(row);
    }
    section.put(table)
}

/// One cell, its best regressor and line.
fn line_chart(data: &Reduced, fit: &CellFit) -> Chart {
    let chosen = fit.chosen();
    let r2 = match chosen.line.r2 {
        Some(r2) => format!("R2 {r2:.6}"),
        None => "results do not vary".to_owned(),
    };
    let mut about = format!("{r2} through {} devices", fit.devices);
    if fit.ties > 0 {
        about.push_str(&format!("; {} other candidates fit as well", fit.ties));
    }
    if !chosen.plausible {
        about.push_str("; a slower device would do better: not plausible");
    }
    let unit = |kind: super::units::Kind| Unit::Other(kind.unit().to_string());
    let kind = data
        .regressors
        .iter()
        .find(|r| r.name == chosen.regressor)
        .map_or(super::units::Kind::Latency, |r| r.kind);
    let cell = data.cells.iter().find(|cell| cell.name() == fit.cell);
    let result = cell.map_or(super::units::Kind::Latency, |cell| cell.kind);
    let mut chart = Chart::new(
        fit.cell.clone(),
        Axis::new(chosen.regressor.clone(), unit(kind)),
        Axis::new("result", unit(result)),
    )
    .about(about);
    let mut reach = [f64::INFINITY, 0.0_f64];
    for (device, value) in cell.into_iter().flat_map(|cell| &cell.values) {
        if let Some(x) = data.figure(device, &chosen.regressor) {
            reach = [reach[0].min(x), reach[1].max(x)];
            chart = chart.series(Series::new(device.clone(), [(x, value.value)]));
        }
    }
    chart.series(Series::new("line", reach.map(|x| (x, chosen.line.at(x)))))
}

/// One group over the pooled parameter: every device and its line.
fn size_chart(data: &Reduced, group: &Group, pooled: &str) -> Option<Chart> {
    let mut chart = Chart::new(
        group.name(),
        Axis::new(pooled, Unit::Number),
        Axis::new(
            "result",
            Unit::Other(data.cells[group.cells[0]].kind.unit().to_string()),
        ),
    );
    let mut drawn = false;
    let mut about = Vec::new();
    for device in &data.devices {
        let points: Vec<(f64, f64)> = group
            .cells
            .iter()
            .map(|n| &data.cells[*n])
            .filter_map(|cell| {
                let size = cell.parameters.number(pooled)?;
                Some((size, cell.values.get(device)?.value))
            })
            .collect();
        let Ok(line) = Line::fit(&points) else {
            continue;
        };
        drawn = true;
        if let Some(r2) = line.r2 {
            about.push(format!("{device}: R2 {r2:.3}"));
        }
        let ends = points.iter().fold([f64::INFINITY, 0.0_f64], |e, p| {
            [e[0].min(p.0), e[1].max(p.0)]
        });
        chart = chart
            .series(Series::new(device.clone(), points))
            .series(Series::new(
                format!("{device}, line"),
                ends.map(|x| (x, line.at(x))),
            ));
    }
    drawn.then(|| chart.about(about.join("; ")))
}

fn residuals(study: &Study) -> Section {
    let axis = |name: &str| Axis::new(name, Unit::Other("us".to_owned())).log();
    let mut chart = Chart::new(
        "Left out: predicted over measured",
        axis("measured"),
        axis("predicted"),
    )
    .about("On the line a prediction is right.")
    .wide();
    let all = &study.judgement.left_out;
    for method in [Method::Model, Method::Nearest, Method::Paper] {
        // Each device is a curve of its own, so that no line joins what does not belong together.
        let mut points: Vec<(f64, f64)> = all
            .iter()
            .filter_map(|one| Some((one.measured, *one.predicted.get(&method)?)))
            .filter(|(_, predicted)| *predicted > 0.0)
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !points.is_empty() {
            chart = chart.series(Series::new(method.name(), points));
        }
    }
    let ends = all.iter().fold([f64::INFINITY, 0.0_f64], |e, one| {
        [e[0].min(one.measured), e[1].max(one.measured)]
    });
    if ends[1] > 0.0 {
        chart = chart.series(Series::new("right", ends.map(|x| (x, x))));
    }
    let head = [
        "cell",
        "device",
        "measured (us)",
        "model (us)",
        "residual",
        "rank",
    ];
    let mut table = Table::new("Every left-out prediction of the model", head).folded();
    for one in all {
        let Some(said) = one.predicted.get(&Method::Model) else {
            continue;
        };
        let off = said / one.measured - 1.0;
        table = table.row([
            Cell::from(one.cell.as_str()),
            Cell::from(one.device.as_str()),
            Cell::shown(one.measured, format!("{:.1}", one.measured)),
            Cell::shown(*said, format!("{said:.1}")),
            Cell::shown(off, format!("{:+.1} %", off * 100.0)),
            Cell::from(format!("{} of {}", one.rank.0, one.rank.1)),
        ]);
    }
    let section = Section::new("Residuals");
    match all.is_empty() {
        true => section.put(Note::new("No device could be left out.")),
        false => section.put(chart).put(table),
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{DataSet, Reduce};
    use super::super::{model::Form, paper, study};
    use super::*;

    #[test]
    fn the_page_shows_errors_fits_lines_sizes_and_residuals() {
        let mut text = String::from("device,regressor,workload,data_gb,metric,value,unit\n");
        for (device, read) in [("a", 10.0), ("b", 60.0), ("c<script>", 200.0)] {
            text.push_str(&format!("{device},read-4K-latency,,,,{read},us\n"));
            for size in [1.0, 2.0, 4.0] {
                let y = 50.0 + 2.0 * read + size;
                text.push_str(&format!("{device},,w,{size},read_latency,{y},us\n"));
            }
        }
        let data = DataSet::read_csv(text.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default());
        let study = study::study(&data, &Form::of(&["read-4K-latency"])).unwrap();
        let devices = data.measured();
        let cells: Vec<CellFit> = data
            .cells
            .iter()
            .map(|cell| paper::fit(&data, cell, &devices).unwrap())
            .collect();
        let page = page(&data, &study, &cells, "tanada predict fit t.csv");
        for part in [
            "Left-out errors",
            "Fits",
            "Results over the regressor",
            "Results over the data size",
            "Residuals",
            "tanada predict fit t.csv",
            "w data_gb=2 read_latency",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("c<script>"));
    }
}
