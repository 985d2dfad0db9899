//! What was measured and predicted, as rows.
//!
//! ```text
//! served:      what the model says | what it took | what fio sees | the floor
//! results:     what the database did on each device
//! predictions: predicted, measured, error, for each method
//! errors, left-out: the same, summed up
//! ```

use ::predict::data::{Cell, DataSet, Reduce, Reduced, What};
use ::predict::model::{Form, Group, POOLED};
use ::predict::paper;
use ::predict::study::{self, Ask, Estimate, Study, Target};
use base::Bytes;
use report::{Devices, Evidence, Row, Value};

use super::{CASES, LISTING};
use crate::app::Plan;
use crate::app::outcome::Outcome;

/// How repeated runs become one figure here.
const REDUCE: Reduce = Reduce::Median;

/// One access of one device along its way, in us.
#[derive(Debug, Clone, PartialEq)]
pub struct Path4 {
    /// The device.
    pub device: &'static str,
    /// `read` or `write`.
    pub way: String,
    /// How large.
    pub size: Bytes,
    /// What the model says.
    pub modelled: f64,
    /// What it took in the serving process, its timers' lateness in it.
    pub kept: f64,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Found {
    /// Devices' own figures and results.
    pub data: DataSet,
    /// One entry for each of fio's runs.
    pub paths: Vec<Path4>,
    /// What everything but the model takes: way and size, us.
    pub floors: Vec<((String, Bytes), f64)>,
    /// Each run of the database.
    pub counts: Vec<(&'static str, Outcome)>,
}

/// A row about devices that a model slows down in real time, its spread over `values`.
fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str, values: &[f64]) -> Row {
    let ours = (!values.is_empty()).then(|| REDUCE.of(values));
    Row::modelled(LISTING.name, table, case, method, metric, unit)
        .on(Devices::Emulated)
        .evidence(evidence_of(table))
        .measured(ours)
        .over(values)
}

/// Both predicted devices lie on the line between two of those that were fitted: an error there says little.
fn evidence_of(table: &str) -> Evidence {
    match table {
        "predictions" | "errors" => Evidence::Calibrated,
        _ => Evidence::Measured,
    }
}

/// Every row of the experiment.
///
/// # Errors
/// A sentence if nothing can be predicted at all.
pub fn rows(found: &Found, plan: &Plan, slower: f64) -> Result<Vec<Row>, String> {
    let mut rows = served(found, slower);
    rows.extend(results(found, plan));
    rows.extend(predictions(&found.data)?);
    Ok(rows)
}

// --- devices and results --------------------------------------------------------------------------

fn served(found: &Found, slower: f64) -> Vec<Row> {
    let note = format!(
        "device modelled, {slower} times slower than its sheet; one access at a time; NBD, FUSE and loop device real. model: what it \
         says; server: what it took, timers' lateness in it; floor: fio with the model switched off; fio: all together"
    );
    let mut rows = Vec::new();
    let mut done: Vec<(&str, &str, Bytes)> = Vec::new();
    for path in &found.paths {
        let key = (path.device, &*path.way, path.size);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let kib = path.size.0 / 1024;
        let case = format!("{} {} {kib}K", path.device, path.way);
        let same = |other: &&Path4| (other.device, &*other.way, other.size) == key;
        let kept: Vec<f64> = found.paths.iter().filter(same).map(|p| p.kept).collect();
        let floor: Vec<f64> = found
            .floors
            .iter()
            .filter(|((way, size), _)| (&**way, *size) == (&*path.way, path.size))
            .map(|(_, floor)| *floor)
            .collect();
        let seen = of_device(
            &found.data,
            path.device,
            &format!("{}-{kib}K-latency", path.way),
        );
        for (method, values) in [
            ("model", vec![path.modelled]),
            ("server", kept),
            ("floor", floor),
            ("fio", seen),
        ] {
            rows.push(row("served", &case, method, "latency", "us", &values).noted(&note));
        }
    }
    rows
}

/// Every run of a device's own figure.
fn of_device(data: &DataSet, device: &str, name: &str) -> Vec<f64> {
    let rows = data.rows().iter();
    let of = rows.filter(|row| {
        row.device == device && matches!(&row.what, What::Device { regressor } if regressor == name)
    });
    of.map(|row| row.quantity.reckoned()).collect()
}

fn results(found: &Found, plan: &Plan) -> Vec<Row> {
    let database = found.counts.first().map_or("", |(_, one)| &one.database);
    let note = format!(
        "{database}, {} of data, buffer pool {}, past the page cache, durable commits; {} client(s), closed loop, {} s each; device \
         modelled, database and CPU real; spread: over {} run(s)",
        Bytes(plan.records.bytes()),
        plan.server.buffer_pool,
        plan.clients,
        plan.counts.0 as f64 / 1e9,
        plan.runs
    );
    type Figure = (&'static str, &'static str, fn(&Outcome) -> Option<f64>);
    let figures: [Figure; 6] = [
        ("read_latency", "us", |it| Some(it.reads?.mean_us)),
        ("write_latency", "us", |it| Some(it.updates?.mean_us)),
        ("throughput", "ops/s", |it| Some(it.throughput())),
        ("device_reads", "per op", |it| {
            Some(it.device?.reads as f64 / it.operations_all as f64)
        }),
        ("device_writes", "per op", |it| {
            Some(it.device?.writes as f64 / it.operations_all as f64)
        }),
        ("device_flushes", "per op", |it| {
            Some(it.device?.flushes as f64 / it.operations_all as f64)
        }),
    ];
    let mut rows = Vec::new();
    for case in CASES {
        for workload in &plan.workloads {
            let name = workload.to_string();
            let of = |(device, it): &&(&str, Outcome)| *device == case.name && it.workload == name;
            for (metric, unit, figure) in figures {
                let each: Vec<f64> = found
                    .counts
                    .iter()
                    .filter(of)
                    .filter_map(|(_, it)| figure(it))
                    .collect();
                if !each.is_empty() {
                    rows.push(row("results", &name, case.name, metric, unit, &each).noted(&note));
                }
            }
        }
    }
    rows
}

// --- predictions ----------------------------------------------------------------------------------

/// What one method says of one cell on one device.
struct Said {
    device: &'static str,
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

fn predictions(data: &DataSet) -> Result<Vec<Row>, String> {
    let names = |predicted: bool| -> Vec<&'static str> {
        let of = CASES.iter().filter(|case| case.predicted == predicted);
        of.map(|case| case.name).collect()
    };
    let (fitted, asked) = (names(false), names(true));
    let all = data.reduce(REDUCE);
    let known = without_results(data, &asked).reduce(REDUCE);
    let study = study::study(&known, &Form::default()).map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    for device in asked {
        let target = Target::of(&known, device).ok_or_else(|| format!("{device} is missing"))?;
        let ask = Ask {
            extrapolate: true,
            ..Ask::default()
        };
        let estimates = study::estimate(&known, &study, &target, ask).map_err(|e| e.to_string())?;
        for cell in all
            .cells
            .iter()
            .filter(|cell| cell.metric.ends_with("latency"))
        {
            let Some(measured) = cell.values.get(device) else {
                continue;
            };
            said.extend(by_methods(
                &known,
                cell,
                device,
                &fitted,
                &estimates,
                measured.value,
            ));
        }
    }
    Ok(prediction_rows(&said, &study))
}

fn by_methods(
    known: &Reduced,
    cell: &Cell,
    device: &'static str,
    fitted: &[&str],
    estimates: &[Estimate],
    measured: f64,
) -> Vec<Said> {
    let one = |method, predicted, bounds, note| Said {
        device,
        cell: cell.workload.clone(),
        metric: cell.metric.clone(),
        method,
        predicted,
        bounds,
        measured,
        note,
    };
    let mut said = Vec::new();
    let group = Group {
        workload: cell.workload.clone(),
        parameters: cell.parameters.without(POOLED),
        metric: cell.metric.clone(),
        cells: Vec::new(),
    };
    let group = group.name();
    if let Some(estimate) = estimates.iter().find(|estimate| estimate.group == group) {
        let bounds = estimate.interval.as_ref().map(|it| [Some(it.low), it.high]);
        let mut note = format!(
            "{}, rank {} of {}",
            estimate.rule, estimate.rank.0, estimate.rank.1
        );
        for outside in &estimate.outside {
            note.push_str(&format!("; extrapolation: {}", outside.sentence()));
        }
        said.push(one("model", estimate.latency, bounds, note));
        if let Some((nearest, value)) = &estimate.nearest {
            said.push(one("nearest", *value, None, format!("as on {nearest}")));
        }
    }
    let known_cell = known.cells.iter().find(|it| {
        (&it.workload, &it.parameters, &it.metric)
            == (&cell.workload, &cell.parameters, &cell.metric)
    });
    if let Some(fit) = known_cell.and_then(|it| paper::fit(known, it, fitted).ok()) {
        let chosen = fit.chosen();
        if let Some(x) = known.figure(device, &chosen.regressor) {
            let r2 = chosen.line.r2.unwrap_or(0.0);
            let note = format!("by {}, R2 {r2:.4}", chosen.regressor);
            said.push(one("as published", chosen.line.at(x), None, note));
        }
    }
    said
}

fn prediction_rows(said: &[Said], study: &Study) -> Vec<Row> {
    let mut rows = beside_measured(said);
    rows.extend(error_rows(said));
    let note = format!(
        "{}; each of the three fitted devices left out in turn. {}",
        study.form.sentence(),
        study.verdict.sentence()
    );
    for score in &study.scores {
        let method = score.method.name();
        for (metric, value) in [("mean_error", score.mean), ("worst_error", score.worst)] {
            let one = row("left-out", "all", method, metric, "%", &[value * 100.0]);
            rows.push(one.noted(&note));
        }
    }
    rows
}

/// What was predicted, what was measured, and the error.
fn beside_measured(said: &[Said]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut measured: Vec<(&str, &str, &str)> = Vec::new();
    for one in said {
        let case = format!("{} {}", one.device, one.cell);
        let of = |method, metric: &str, unit, value| {
            row("predictions", &case, method, metric, unit, &[value])
        };
        let key = (one.device, &*one.cell, &*one.metric);
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

/// The mean and the worst error of each method: of all, by device, by metric.
fn error_rows(said: &[Said]) -> Vec<Row> {
    let mut sets: Vec<(&str, Vec<&Said>)> = vec![("all", said.iter().collect())];
    for case in CASES.iter().filter(|case| case.predicted) {
        let of = |one: &&Said| one.device == case.name;
        sets.push((case.name, said.iter().filter(of).collect()));
    }
    for metric in ["read_latency", "write_latency"] {
        let of = |one: &&Said| one.metric == metric;
        sets.push((metric, said.iter().filter(of).collect()));
    }
    let mut rows = Vec::new();
    for (case, set) in sets {
        for method in ["model", "as published", "nearest"] {
            let errors: Vec<f64> = set
                .iter()
                .filter(|one| one.method == method)
                .map(|one| one.error().abs())
                .collect();
            if errors.is_empty() {
                continue;
            }
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let worst = errors.iter().copied().fold(0.0, f64::max);
            rows.push(row("errors", case, method, "mean_error", "%", &[mean]));
            rows.push(row("errors", case, method, "worst_error", "%", &[worst]));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that follow a law exactly, and results of the two that are predicted multiplied by `times`.
    fn by_law(times: f64) -> DataSet {
        let mut text = String::from("device,regressor,workload,data_gb,metric,value,unit\n");
        for (n, case) in CASES.iter().enumerate() {
            let read = [2000.0, 300.0, 60.0, 250.0, 100.0][n];
            let write = [1700.0, 400.0, 180.0, 350.0, 210.0][n];
            let name = case.name;
            text.push_str(&format!("{name},read-16K-latency,,,,{read},us\n"));
            text.push_str(&format!("{name},write-64K-latency,,,,{write},us\n"));
            let times = if case.predicted { times } else { 1.0 };
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
        let rows = predictions(&by_law(1.0)).unwrap();
        for case in ["SCM1 workload-a", "SCM2 workload-a"] {
            for metric in ["read_latency_error", "write_latency_error"] {
                let error = number(&rows, case, "model", metric);
                assert!(error.abs() < 1e-6, "{case} {metric}: {error}");
            }
        }
        // SCM1 is nearest to 3D XPoint: 250 against 225 for a read.
        let nearest = number(&rows, "SCM1 workload-a", "nearest", "read_latency");
        assert!((nearest - 250.0).abs() < 1e-9, "{nearest}");
        assert!(rows.iter().all(|row| !row.metric.contains("throughput")));
    }

    #[test]
    fn what_is_predicted_is_not_looked_at_before() {
        let (one, other) = (predictions(&by_law(1.0)), predictions(&by_law(3.0)));
        let (one, other) = (one.unwrap(), other.unwrap());
        for method in ["model", "as published", "nearest"] {
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
