//! `tanada predict estimate`: one device, by our method or by the published one.

use super::predict::{Estimate, Mode, form, lines, read_for, usage};
use super::predict_pages::percent;
use predict::data::Reduced;
use predict::interval::{Basis, Interval};
use predict::judge::Verdict;
use predict::model::Group;
use predict::paper::{Candidate, CellFit, Line};
use predict::queue::Load;
use predict::study::{self, Ask, Outside, Study, Target};
use predict::units::Kind;
use report::terminal;
use report::terminal::table::table;
use serde::Serialize;

/// The device asked for, with the figures given on the command line.
pub(super) fn target(data: &Reduced, arguments: &Estimate) -> anyhow::Result<Target> {
    let mut target = match &arguments.device {
        Some(device) => Target::of(data, device).ok_or_else(|| {
            usage(format!(
                "the data set has no device '{device}'; it has {}",
                data.devices.join(", ")
            ))
        })?,
        None if arguments.at.is_empty() => {
            return Err(usage(
                "which device? --device NAME takes one of the data set, --at REGRESSOR=VALUE describes one",
            ));
        }
        None => Target::described(),
    };
    for one in &arguments.at {
        let (name, value) = one.split_once('=').ok_or_else(|| {
            usage(format!(
                "--at {one}: write REGRESSOR=VALUE, such as write-64K-latency=50us"
            ))
        })?;
        target
            .give(data, name, value)
            .map_err(|error| usage(format!("--at {one}: {error}")))?;
    }
    Ok(target)
}

pub(super) fn estimate(arguments: &Estimate) -> anyhow::Result<()> {
    if !(arguments.level > 0.0 && arguments.level < 1.0) {
        return Err(usage("--level is a share between 0 and 1, such as 0.95"));
    }
    let positive = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value > 0.0);
    if !positive(arguments.clients) || !positive(arguments.cores) {
        return Err(usage("--clients and --cores are numbers above zero"));
    }
    let data = read_for(&arguments.data, &arguments.terms, arguments.mode)?;
    let target = target(&data, arguments)?;
    if arguments.mode == Mode::Paper {
        return estimate_as_published(&data, &target, arguments);
    }
    if !arguments.sizes.is_empty() {
        return Err(usage(
            "--sizes needs --mode paper: the model fits all sizes together and predicts the same for each",
        ));
    }
    let study = study::study(&data, &form(&arguments.terms)?).map_err(|e| usage(e.to_string()))?;
    let ask = Ask {
        level: arguments.level,
        extrapolate: arguments.extrapolate,
        load: arguments.clients.map(|clients| Load {
            clients,
            cores: arguments.cores,
        }),
    };
    let estimates = study::estimate(&data, &study, &target, ask)?;
    terminal::answer(arguments.data.json, &estimates, || {
        page(&study, &target, &estimates)
    })
}

/// Every estimate as a row, and what is to be said of them.
fn page(study: &Study, target: &Target, estimates: &[study::Estimate]) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for one in estimates {
        rows.push(row(one));
        let outside = one.outside.iter();
        notes.extend(outside.map(|it| format!("extrapolation: {}", it.sentence())));
        let queued = one.queued.as_ref();
        notes.extend(queued.into_iter().flat_map(|queued| queued.notes.clone()));
        if !matches!(one.verdict, Verdict::Model { .. }) {
            notes.push(format!("{}: {}", one.group, one.verdict.sentence()));
        }
    }
    let head = [
        "GROUP",
        "US",
        "BETWEEN",
        "INTERVAL",
        "NEAREST",
        "RANK",
        "WITH CLIENTS, BOTTLENECK",
        "RECOMMENDED",
    ];
    notes.sort();
    notes.dedup();
    format!(
        "{} on {}{}\n\n{}{}\n{}\n",
        study.form.sentence(),
        target.name,
        floor_line(study),
        table(&head, &rows),
        listed(&notes),
        study.verdict.sentence()
    )
}

/// What of the terms is the path's, on a line of its own.
pub(super) fn floor_line(study: &Study) -> String {
    study
        .path_sentence()
        .map_or(String::new(), |it| format!("\n{it}"))
}

/// Notes below a table, one a line.
fn listed(notes: &[String]) -> String {
    let line = |note: &String| format!("  - {note}\n");
    notes.iter().map(line).collect()
}

fn row(one: &study::Estimate) -> Vec<String> {
    let basis = match one.interval.map(|interval| interval.basis) {
        Some(Basis::Student { freedom, level }) => {
            format!("{:.0} %, t with {freedom:.1}", level * 100.0)
        }
        Some(Basis::WorstLeftOut { error }) => format!("worst left out, {}", percent(error)),
        None => "nothing could be left out".to_owned(),
    };
    let (near, its) = one.nearest.clone().unwrap_or_default();
    vec![
        one.group.clone(),
        format!("{:.1}", one.latency),
        range(one.interval),
        basis,
        format!("{near}: {its:.1}"),
        format!("{} of {}, {}", one.rank.0, one.rank.1, one.rule),
        one.queued.as_ref().map_or("-".to_owned(), |queued| {
            format!("{:.1}, {}", queued.latency, queued.bottleneck)
        }),
        match one.verdict {
            Verdict::Model { .. } => "yes".to_owned(),
            _ => "no".to_owned(),
        },
    ]
}

pub(super) fn range(interval: Option<Interval>) -> String {
    match interval {
        Some(Interval {
            low,
            high: Some(high),
            ..
        }) => format!("{low:.1}..{high:.1}"),
        Some(Interval { low, .. }) => format!("from {low:.1}"),
        None => "-".to_owned(),
    }
}

/// A prediction of the published method.
#[derive(Serialize)]
pub(super) struct Said {
    pub(super) cell: String,
    pub(super) regressor: String,
    pub(super) r2: Option<f64>,
    pub(super) predicted: f64,
    pub(super) unit: String,
    pub(super) outside: Option<Outside>,
    pub(super) note: String,
}

/// Predictions for sizes that were never run.
#[derive(Serialize)]
pub(super) struct OverSize {
    pub(super) group: String,
    pub(super) size: f64,
    pub(super) predicted: f64,
    pub(super) r2: Option<f64>,
}

pub(super) fn estimate_as_published(
    data: &Reduced,
    target: &Target,
    arguments: &Estimate,
) -> anyhow::Result<()> {
    let (fits, mut notes) = lines(data);
    let mut said: Vec<Said> = Vec::new();
    for fit in &fits {
        match predicted(data, target, fit, arguments.extrapolate)? {
            Some(one) => said.push(one),
            None => notes.push(format!(
                "{}: {} has none of its candidates; give one with --at",
                fit.cell, target.name
            )),
        }
    }
    if said.is_empty() {
        anyhow::bail!("nothing could be predicted: {}", notes.join("; "));
    }
    let over = over_sizes(data, &said, arguments, &mut notes);
    if !arguments.data.json {
        return terminal::text(&said_page(&said, &over, &notes));
    }
    #[derive(Serialize)]
    struct All {
        cells: Vec<Said>,
        over_sizes: Vec<OverSize>,
        notes: Vec<String>,
    }
    terminal::json(&All {
        cells: said,
        over_sizes: over,
        notes,
    })
}

/// What the best candidate of a cell says of a device; nothing where the device has no figure for any.
fn predicted(
    data: &Reduced,
    target: &Target,
    fit: &CellFit,
    extrapolate: bool,
) -> anyhow::Result<Option<Said>> {
    // The best of those the device has a figure for: a sheet of a device one cannot buy has few.
    let r2 = |candidate: &Candidate| candidate.line.r2.unwrap_or(0.0);
    let best = fit
        .candidates
        .iter()
        .filter(|candidate| target.figures.contains_key(&candidate.regressor))
        .max_by(|a, b| r2(a).total_cmp(&r2(b)));
    let Some(best) = best else { return Ok(None) };
    let x = target.figures[&best.regressor];
    let measured = data.measured();
    let among = measured
        .iter()
        .filter_map(|d| data.figure(d, &best.regressor));
    let hull = among.fold([f64::INFINITY, 0.0_f64], |h, x| [h[0].min(x), h[1].max(x)]);
    let outside = Outside::of(&best.regressor, x, hull);
    if let Some(far) = outside.as_ref().filter(|far| far.times > study::FAR)
        && !extrapolate
    {
        anyhow::bail!(
            "cannot predict {} on {}: {}; beyond {} times nothing is predicted without --extrapolate",
            fit.cell,
            target.name,
            far.sentence(),
            study::FAR
        );
    }
    let kind = data.cells.iter().find(|cell| cell.name() == fit.cell);
    Ok(Some(Said {
        cell: fit.cell.clone(),
        regressor: best.regressor.clone(),
        r2: best.line.r2,
        predicted: best.line.at(x),
        unit: kind
            .map_or(Kind::Latency, |cell| cell.kind)
            .unit()
            .to_string(),
        note: match (&outside, best.regressor == fit.chosen().regressor) {
            (Some(outside), _) => format!("extrapolation: {}", outside.sentence()),
            (None, true) => String::new(),
            (None, false) => {
                format!("the best, {}, is not known of it", fit.chosen().regressor)
            }
        },
        outside,
    }))
}

fn said_page(said: &[Said], over: &[OverSize], notes: &[String]) -> String {
    let r2 = |r2: Option<f64>| r2.map_or("-".to_owned(), |r2| format!("{r2:.6}"));
    let row = |one: &Said| {
        vec![
            one.cell.clone(),
            format!("{:.3}", one.predicted),
            one.unit.clone(),
            one.regressor.clone(),
            r2(one.r2),
            one.note.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = said.iter().map(row).collect();
    let head = ["CELL", "PREDICTED", "UNIT", "REGRESSOR", "R2", "NOTE"];
    let mut text = table(&head, &rows);
    if !over.is_empty() {
        let row = |one: &OverSize| {
            vec![
                one.group.clone(),
                one.size.to_string(),
                format!("{:.3}", one.predicted),
                r2(one.r2),
            ]
        };
        let rows: Vec<Vec<String>> = over.iter().map(row).collect();
        let head = ["GROUP", "SIZE", "PREDICTED", "R2 OVER THE SIZE"];
        text.push_str(&format!("\n{}", table(&head, &rows)));
    }
    text.push_str(&listed(notes));
    text
}

/// The second line of the published method: predictions over the size, at sizes that were never run.
pub(super) fn over_sizes(
    data: &Reduced,
    said: &[Said],
    arguments: &Estimate,
    notes: &mut Vec<String>,
) -> Vec<OverSize> {
    let mut over = Vec::new();
    if arguments.sizes.is_empty() {
        return over;
    }
    for group in Group::all(data, &arguments.terms.pool) {
        let points: Vec<(f64, f64)> = group
            .cells
            .iter()
            .map(|n| &data.cells[*n])
            .filter_map(|cell| {
                let size = cell.parameters.number(&arguments.terms.pool)?;
                let one = said.iter().find(|one| one.cell == cell.name())?;
                Some((size, one.predicted))
            })
            .collect();
        match Line::fit(&points) {
            Ok(line) => over.extend(arguments.sizes.iter().map(|size| OverSize {
                group: group.name(),
                size: *size,
                predicted: line.at(*size),
                r2: line.r2,
            })),
            Err(error) => notes.push(format!(
                "{} over {}: {error}",
                group.name(),
                arguments.terms.pool
            )),
        }
    }
    over
}
