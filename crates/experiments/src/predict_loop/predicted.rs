//! What was predicted of the devices that were not fitted, beside what was measured there.
//!
//! ```text
//! predictions: predicted, measured, error, for each method
//! errors:      the same, summed up: each device, those on the line, those held out
//! left-out:    what was to be expected: each of the fitted devices left out
//! ```
//!
//! Methods: the form of `docs/decisions/0007`, that with the floor apart (0018), each with the nearest device by it, and the
//! published one.
//!
//! Always true:
//! 1. No row sums up devices on the line together with devices held out.
//! 2. Nothing is predicted unless all devices that are to be fitted were measured.

use ::predict::data::{Cell, DataSet, Reduced, What};
use ::predict::judge::{self, Method};
use ::predict::model::{Form, Group, POOLED};
use ::predict::paper;
use ::predict::study::{self, Ask, Estimate, Study, Target};
use report::{Evidence, Row, Value};

use super::devices::{CASES, Case, Role};
use super::figures::{REDUCE, row};
use super::floor::{self, Apart};
use super::found::Found;

/// The ways to predict, in the order of tables.
pub const METHODS: [&str; 5] = [
    "model",
    "model, floor apart",
    "as published",
    "nearest",
    "nearest, floor apart",
];

/// What one method says of one cell on one device.
struct Said {
    device: &'static Case,
    cell: String,
    metric: String,
    method: &'static str,
    predicted: f64,
    bounds: Option<[Option<f64>; 2]>,
    measured: f64,
    note: String,
}

impl Said {
    /// Too high is positive, in percent.
    fn error(&self) -> f64 {
        100.0 * (self.predicted / self.measured - 1.0)
    }
}

/// Those rows of `data` for which `keep` holds of the device; none of `results` of the others.
fn without_results(data: &DataSet, of: &[&str]) -> DataSet {
    let mut kept = DataSet::default();
    for row in data.rows() {
        let hidden = of.contains(&&*row.device) && matches!(row.what, What::Result { .. });
        if !hidden {
            kept.add(row.clone()).expect("it was in a data set before");
        }
    }
    kept
}

/// Every row about predictions; none where a device that is to be fitted is missing.
///
/// # Errors
/// A sentence if nothing can be predicted at all.
pub fn rows(found: &Found) -> Result<Vec<Row>, String> {
    let fitted = |case: &&Case| case.role == Role::Fitted;
    if !CASES.iter().filter(fitted).all(|case| found.has(case.name)) {
        return Ok(Vec::new());
    }
    predictions(&found.data, &floor::apart(found)?)
}

/// One form of the model, fitted.
struct Fitted {
    /// What its predictions are called, and those of the device nearest by it.
    names: [&'static str; 2],
    /// What a fit may see.
    known: Reduced,
    study: Study,
    /// The figures by which devices are near to each other.
    near_by: Reduced,
}

impl Fitted {
    fn of(names: [&'static str; 2], data: &DataSet, near_by: &DataSet) -> Result<Fitted, String> {
        let asked = names_of(&|role| role != Role::Fitted);
        let known = without_results(data, &asked).reduce(REDUCE);
        Ok(Fitted {
            names,
            study: study::study(&known, &Form::default()).map_err(|error| error.to_string())?,
            near_by: without_results(near_by, &asked).reduce(REDUCE),
            known,
        })
    }

    /// What it says of every group on `device`; none where that was not measured.
    fn estimates(&self, device: &str) -> Result<Option<Vec<Estimate>>, String> {
        let Some(target) = Target::of(&self.known, device) else {
            return Ok(None);
        };
        let ask = Ask {
            extrapolate: true,
            ..Ask::default()
        };
        let estimates = study::estimate(&self.known, &self.study, &target, ask);
        estimates.map(Some).map_err(|error| error.to_string())
    }

    /// The fitted device that is nearest to `device`.
    fn nearest(&self, device: &str, fitted: &[&'static str]) -> Option<&'static str> {
        let form = Form::default();
        let latencies = form.latencies(&self.near_by, device)?;
        judge::nearest(&self.near_by, &form, &latencies, fitted)
    }
}

/// The devices of these roles.
fn names_of(of: &dyn Fn(Role) -> bool) -> Vec<&'static str> {
    let of = CASES.iter().filter(|case| of(case.role));
    of.map(|case| case.name).collect()
}

fn predictions(data: &DataSet, apart: &Apart) -> Result<Vec<Row>, String> {
    let forms = [
        Fitted::of(["model", "nearest"], data, data)?,
        Fitted::of(
            ["model, floor apart", "nearest, floor apart"],
            &apart.with_path,
            &apart.own,
        )?,
    ];
    let all = data.reduce(REDUCE);
    let mut said = Vec::new();
    for case in CASES.iter().filter(|case| case.role != Role::Fitted) {
        for (n, form) in forms.iter().enumerate() {
            // In a part of the experiment some are not there.
            let Some(estimates) = form.estimates(case.name)? else {
                continue;
            };
            for cell in all.cells.iter().filter(|it| it.metric.ends_with("latency")) {
                let Some(measured) = cell.values.get(case.name) else {
                    continue;
                };
                let ours = by_model(form, cell, case, &estimates);
                let theirs = (n == 0).then(|| published(&form.known, cell, case));
                for (method, predicted, bounds, note) in
                    ours.into_iter().chain(theirs.into_iter().flatten())
                {
                    said.push(Said {
                        device: case,
                        cell: cell.workload.clone(),
                        metric: cell.metric.clone(),
                        method,
                        predicted,
                        bounds,
                        measured: measured.value,
                        note,
                    });
                }
            }
        }
    }
    Ok(prediction_rows(&said, &forms))
}

/// A method, what it predicts, between which bounds, and what supports it.
type Words = (&'static str, f64, Option<[Option<f64>; 2]>, String);

/// What a form says of one cell, and the device that is nearest by it.
fn by_model(form: &Fitted, cell: &Cell, case: &Case, estimates: &[Estimate]) -> Vec<Words> {
    let group = Group {
        workload: cell.workload.clone(),
        parameters: cell.parameters.without(POOLED),
        metric: cell.metric.clone(),
        cells: Vec::new(),
    };
    let group = group.name();
    let Some(estimate) = estimates.iter().find(|estimate| estimate.group == group) else {
        return Vec::new();
    };
    let bounds = estimate.interval.as_ref().map(|it| [Some(it.low), it.high]);
    let mut note = format!(
        "{}, rank {} of {}",
        estimate.rule, estimate.rank.0, estimate.rank.1
    );
    for outside in &estimate.outside {
        note.push_str(&format!("; extrapolation: {}", outside.sentence()));
    }
    let mut said = vec![(form.names[0], estimate.latency, bounds, note)];
    let fitted = names_of(&|role| role == Role::Fitted);
    if let Some(nearest) = form.nearest(case.name, &fitted)
        && let Some(value) = cell.values.get(nearest)
    {
        said.push((form.names[1], value.value, None, format!("as on {nearest}")));
    }
    said
}

/// What the published method says of one cell.
fn published(known: &Reduced, cell: &Cell, case: &Case) -> Option<Words> {
    let known_cell = known.cells.iter().find(|it| {
        (&it.workload, &it.parameters, &it.metric)
            == (&cell.workload, &cell.parameters, &cell.metric)
    })?;
    let fitted = names_of(&|role| role == Role::Fitted);
    let fit = paper::fit(known, known_cell, &fitted).ok()?;
    let chosen = fit.chosen();
    let x = known.figure(case.name, &chosen.regressor)?;
    let r2 = chosen.line.r2.unwrap_or(0.0);
    let note = format!("by {}, R2 {r2:.4}", chosen.regressor);
    Some(("as published", chosen.line.at(x), None, note))
}

fn prediction_rows(said: &[Said], forms: &[Fitted]) -> Vec<Row> {
    let mut rows = beside_measured(said);
    rows.extend(error_rows(said));
    for (n, form) in forms.iter().enumerate() {
        let study = &form.study;
        let note = format!(
            "{}; each of the three fitted devices left out in turn. {}",
            study.form.sentence(),
            study.verdict.sentence()
        );
        for score in &study.scores {
            let method = match (n, score.method) {
                (0, method) => method.name(),
                (_, Method::Model) => form.names[0],
                _ => continue,
            };
            for (metric, value) in [("mean_error", score.mean), ("worst_error", score.worst)] {
                let one = row("left-out", "all", method, metric, "%", &[value * 100.0]);
                rows.push(one.noted(&note));
            }
        }
    }
    rows
}

/// What was predicted, what was measured, and the error.
fn beside_measured(said: &[Said]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut measured: Vec<(&str, &str, &str)> = Vec::new();
    for one in said {
        let case = format!("{} {}", one.device.name, one.cell);
        let of = |method, metric: &str, unit, value| {
            row("predictions", &case, method, metric, unit, &[value])
                .evidence(one.device.role.evidence())
        };
        let key = (one.device.name, &*one.cell, &*one.metric);
        if !measured.contains(&key) {
            measured.push(key);
            rows.push(of("measured", &one.metric, "us", one.measured));
        }
        let [low, high] = one.bounds.unwrap_or([None, None]);
        rows.push(Row {
            low: low.map(Value::Number),
            high: high.map(Value::Number),
            note: one.note.clone(),
            ..of(one.method, &one.metric, "us", one.predicted)
        });
        let metric = format!("{}_error", one.metric);
        rows.push(of(one.method, &metric, "%", one.error()));
    }
    rows
}

/// Some of what was said: its name, and what belongs to it.
type Part<'a> = (&'a str, &'a dyn Fn(&Said) -> bool);

/// The mean and the worst error of each method: of each device; of those on the line and of those held out together, and of
/// these by metric and by application.
fn error_rows(said: &[Said]) -> Vec<Row> {
    let mut sets: Vec<(String, Role, Vec<&Said>)> = Vec::new();
    for case in CASES.iter().filter(|case| case.role != Role::Fitted) {
        let of = |one: &&Said| one.device == case;
        let of = said.iter().filter(of).collect();
        sets.push((case.name.to_owned(), case.role, of));
    }
    for role in [Role::OnTheLine, Role::HeldOut] {
        let devices: Vec<&Case> = CASES.iter().filter(|case| case.role == role).collect();
        let is_there = |case: &&Case| said.iter().any(|one| one.device == *case);
        if !devices.iter().all(is_there) {
            continue;
        }
        let is_rocksdb = |one: &Said| one.cell.starts_with("rocksdb-");
        let parts: [Part<'_>; 5] = [
            ("", &|_| true),
            (", reads", &|one| one.metric == "read_latency"),
            (", writes", &|one| one.metric == "write_latency"),
            (", MariaDB", &|one| !is_rocksdb(one)),
            (", RocksDB", &is_rocksdb),
        ];
        for (name, of) in parts {
            let of = said.iter().filter(|one| one.device.role == role && of(one));
            sets.push((format!("{}{name}", role.name()), role, of.collect()));
        }
    }
    let mut rows = Vec::new();
    for (case, role, set) in sets {
        for method in METHODS {
            rows.extend(errors(&case, role.evidence(), method, &set));
        }
    }
    rows
}

fn errors(case: &str, evidence: Evidence, method: &str, set: &[&Said]) -> Vec<Row> {
    let of_method = set.iter().filter(|one| one.method == method);
    let errors: Vec<f64> = of_method.map(|one| one.error().abs()).collect();
    if errors.is_empty() {
        return Vec::new();
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let row = |metric, value| {
        row("errors", case, method, metric, "%", &[value])
            .evidence(evidence)
            .noted(format!("{} predictions", errors.len()))
    };
    vec![row("mean_error", mean), row("worst_error", worst)]
}

#[cfg(test)]
mod tests {
    use super::super::found::{Floor, OfDevice};
    use super::*;

    /// Devices that follow a law exactly, and results of those that are predicted multiplied by `times`.
    fn by_law(times: f64) -> DataSet {
        let mut text = String::from("device,regressor,workload,data_gb,metric,value,unit\n");
        for (n, case) in CASES.iter().enumerate() {
            let read = [
                2000.0, 300.0, 60.0, 250.0, 100.0, 2000.0, 700.0, 500.0, 300.0,
            ][n];
            let write = [
                1700.0, 400.0, 180.0, 350.0, 210.0, 600.0, 1700.0, 900.0, 400.0,
            ][n];
            let name = case.name;
            text.push_str(&format!("{name},read-16K-latency,,,,{read},us\n"));
            text.push_str(&format!("{name},write-64K-latency,,,,{write},us\n"));
            let times = match case.role {
                Role::Fitted => 1.0,
                _ => times,
            };
            let reads = (100.0 + 0.5 * read) * times;
            let writes = (200.0 + 0.6 * read + 1.2 * write) * times;
            text.push_str(&format!("{name},,workload-a,0.1,read_latency,{reads},us\n"));
            text.push_str(&format!(
                "{name},,workload-a,0.1,write_latency,{writes},us\n"
            ));
            text.push_str(&format!("{name},,workload-a,0.1,throughput,{n}1,ops/s\n"));
        }
        DataSet::read_csv(text.as_bytes(), "law").unwrap()
    }

    /// The rows of that law, with a floor of 10 us beneath every read of 16 KiB.
    fn of_law(times: f64) -> Vec<Row> {
        let data = by_law(times);
        let mut found = Found::default();
        for case in &CASES {
            let floor = Floor {
                way: "read".to_owned(),
                size: base::Bytes::kib(16),
                latency: 10.0,
            };
            let of = OfDevice {
                floors: vec![floor],
                ..OfDevice::default()
            };
            found
                .add(case.name, of.with(&part_of(&data, case.name)))
                .unwrap();
        }
        rows(&found).unwrap()
    }

    fn part_of(data: &DataSet, device: &str) -> DataSet {
        let mut part = DataSet::default();
        for row in data.rows().iter().filter(|row| row.device == device) {
            part.add(row.clone()).unwrap();
        }
        part
    }

    fn number(rows: &[Row], case: &str, method: &str, metric: &str) -> f64 {
        let mut found = rows.iter().filter(|row| {
            (&*row.table, &*row.case, &*row.method, &*row.metric)
                == ("predictions", case, method, metric)
        });
        let row = found
            .next()
            .unwrap_or_else(|| panic!("no {case} {method} {metric}"));
        row.ours.as_ref().and_then(Value::number).unwrap()
    }

    #[test]
    fn a_law_is_found_on_three_devices_and_holds_on_the_two_others() {
        let rows = of_law(1.0);
        for case in ["SCM1 workload-a", "SCM2 workload-a"] {
            for metric in ["read_latency_error", "write_latency_error"] {
                for method in ["model", "model, floor apart"] {
                    let error = number(&rows, case, method, metric);
                    assert!(error.abs() < 1e-6, "{case} {method} {metric}: {error}");
                }
            }
        }
        // SCM1 is nearest to 3D XPoint: 250 against 225 for a read.
        let nearest = number(&rows, "SCM1 workload-a", "nearest", "read_latency");
        assert!((nearest - 250.0).abs() < 1e-9, "{nearest}");
        assert!(rows.iter().all(|row| !row.metric.contains("throughput")));
    }

    #[test]
    fn what_is_held_out_is_labelled_and_never_summed_up_with_what_is_not() {
        let rows = of_law(1.5);
        let labels = |case: &str| -> Vec<Evidence> {
            let of = rows.iter().filter(|row| match &*row.table {
                "predictions" => row.case == format!("{case} workload-a"),
                "errors" => row.case == case,
                _ => false,
            });
            of.map(|row| row.evidence).collect()
        };
        for case in CASES.iter().filter(|case| case.role != Role::Fitted) {
            let labels = labels(case.name);
            assert!(labels.len() > 10, "{case:?}");
            assert!(labels.iter().all(|label| *label == case.role.evidence()));
        }
        for (case, label, predictions) in [
            ("on the line", Evidence::Calibrated, "4 predictions"),
            ("held out", Evidence::HeldOut, "8 predictions"),
            ("held out, reads", Evidence::HeldOut, "4 predictions"),
        ] {
            let labels = labels(case);
            assert_eq!(labels, vec![label; 2 * METHODS.len()], "{case}");
            let mut of = rows.iter().filter(|row| row.case == case);
            assert!(of.all(|row| row.note == predictions));
        }
        assert!(rows.iter().all(|row| row.case != "held out, RocksDB"));
    }

    #[test]
    fn nothing_is_predicted_until_all_fitted_devices_are_there() {
        let whole = by_law(1.0);
        let part = |of: &[&'static str]| {
            let mut found = Found::default();
            for name in of {
                let data = part_of(&whole, name);
                found.add(name, OfDevice::default().with(&data)).unwrap();
            }
            rows(&found).unwrap()
        };
        assert_eq!(part(&["NAND", "DRAM", "depth"]), []);
        let rows = part(&["NAND", "3D XPoint", "DRAM", "depth"]);
        assert!(rows.iter().any(|row| row.case == "depth workload-a"));
        assert!(
            rows.iter()
                .any(|row| row.table == "errors" && row.case == "depth")
        );
        // The others are missing: no figure speaks of all that are held out.
        assert!(rows.iter().all(|row| !row.case.starts_with("held out")));
    }

    #[test]
    fn what_is_predicted_is_not_looked_at_before() {
        let (one, other) = (of_law(1.0), of_law(3.0));
        for method in METHODS {
            for case in ["SCM1 workload-a", "SCM2 workload-a"] {
                for metric in ["read_latency", "write_latency"] {
                    let said = |rows: &[Row]| number(rows, case, method, metric);
                    assert_eq!(said(&one), said(&other), "{case} {method} {metric}");
                }
            }
        }
        let error = number(&other, "SCM1 workload-a", "model", "read_latency_error");
        assert!(
            (error + 200.0 / 3.0).abs() < 1e-6,
            "a third of what was measured: {error}"
        );
    }
}
