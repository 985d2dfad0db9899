//! What the paper and our model claim of their accuracy, judged on the paper's own data.
//!
//! ```text
//! mean R2 of table 11 <- above 95 of 100 draws of noise?
//! left-out errors     <- no more than those of the nearest device?
//! ```
//!
//! Source: SCM 4.2.2, table 11 (the mean R2 of the best of ten stands for how well devices explain results).
//!
//! Choice: an R2 is evidence if 95 of 100 tables of noise score less (the usual 5 %); a prediction is worth its fit if it
//! errs no more than the result of the nearest device, which costs nothing.
//!
//! Always true: every claim is made of rows that the experiment shows, too.

use report::{Row, Value};

use super::{PUBLISHED, evidence_of, row};

/// The claims, from all other rows.
pub(super) fn claims(rows: &[Row]) -> Vec<Row> {
    let above_noise = ["read", "write"].map(|direction| above_noise(rows, direction));
    let errors = ["paper", "model"].map(|method| below_nearest(rows, method));
    above_noise.into_iter().chain(errors).collect()
}

fn find<'a>(
    rows: &'a [Row],
    [table, case, method, metric]: [&str; 4],
) -> impl Iterator<Item = &'a Row> {
    let wanted = [table, case, method, metric].map(str::to_owned);
    rows.iter()
        .filter(move |row| [&row.table, &row.case, &row.method, &row.metric] == wanted.each_ref())
}

fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::number).unwrap_or(f64::NAN)
}

/// Is the mean R2 of a direction more than ten candidates score on nothing?
fn above_noise(rows: &[Row], direction: &str) -> Row {
    let case = format!("{direction} mysql");
    let mean = find(rows, ["11", &case, PUBLISHED, "r2"]).next();
    let mean = number(mean.and_then(|row| row.ours.as_ref()));
    let noise = find(rows, ["noise", direction, "pure noise", "r2_mean_of_cells"]).next();
    let (middle, bar) = (
        number(noise.and_then(|row| row.ours.as_ref())),
        number(noise.and_then(|row| row.high.as_ref())),
    );
    Row {
        method: PUBLISHED.to_owned(),
        ..row(
            "claims",
            format!("{direction}s: the mean R2 is above what noise scores"),
            "mean_r2",
            "1",
        )
    }
    .measured(Some(mean))
    .claimed(bar, mean > bar)
    .noted(format!(
        "table 11's mean of the best of ten; noise has {middle:.3} on average, the bar in 95 of 100 draws"
    ))
}

/// Does `method` err less than what costs nothing?
fn below_nearest(rows: &[Row], method: &str) -> Row {
    let error = |method: &str| {
        let row = find(rows, ["left-out", "all", method, "mean_error"]).next();
        number(row.and_then(|row| row.ours.as_ref()))
    };
    let (ours, bar) = (error(method), error("nearest"));
    Row {
        method: method.to_owned(),
        ..row(
            "claims",
            "with each device left out: no more than the nearest device".to_owned(),
            "mean_error",
            "%",
        )
    }
    .evidence(evidence_of(method))
    .measured(Some(ours))
    .claimed(bar, ours <= bar)
    .noted("mean of 126 predictions: 42 cells, three devices")
}
