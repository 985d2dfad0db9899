//! What predictions must be worth, judged by the mean errors of the devices on the line and of those held out.
//!
//! ```text
//! errors: mean_error of "on the line", "held out" -> no more than the nearest device? than the published method?
//! ```
//!
//! Choice: a prediction is worth its fit if it errs no more than the result of the nearest device, which costs nothing, by
//! whichever form is nearer to the truth; ours must err no more than the published one, too.
//!
//! Always true: every claim is made of rows that the experiment shows, too; where a device is missing, or methods predicted
//! other cells, nothing is claimed.

use report::{Row, Value};

use super::devices::Role;
use super::figures::row;

/// The devices' speed at which claims are judged, as it was written down before the first whole run.
pub const JUDGED_AT: f64 = 100.0;

/// What costs nothing.
const NEAREST: &[&str] = &["nearest", "nearest, floor apart"];
const PUBLISHED: &[&str] = &["as published"];

/// Who is judged, beside the best of whom, and what must hold.
const CLAIMS: [(&str, &[&str], &str); 5] = [
    ("model", NEAREST, "no more than the nearest device"),
    (
        "model, floor apart",
        NEAREST,
        "no more than the nearest device",
    ),
    ("as published", NEAREST, "no more than the nearest device"),
    ("model", PUBLISHED, "no more than the published method"),
    (
        "model, floor apart",
        PUBLISHED,
        "no more than the published method",
    ),
];

/// The claims, from all other rows; a short run says how they stand and judges nothing.
pub fn claims(rows: &[Row], short: bool) -> Vec<Row> {
    let mut claims = Vec::new();
    for role in [Role::OnTheLine, Role::HeldOut] {
        for (method, others, words) in CLAIMS {
            let Some((ours, of)) = mean_error(rows, role.name(), method) else {
                continue;
            };
            let others = others.iter().filter_map(|other| {
                let (error, same) = mean_error(rows, role.name(), other)?;
                (same == of).then_some((error, *other))
            });
            let Some((bar, other)) = others.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                continue;
            };
            let case = format!("{}: {words}", role.name());
            let note = format!(
                "{JUDGED_AT} times slower, one run of the whole; mean of {of}; the bar is what `{other}` errs by"
            );
            let row = row("claims", &case, method, "mean_error", "%", &[ours]);
            let row = row.evidence(role.evidence()).claimed(bar, ours <= bar);
            claims.push(row.noted(note).unjudged_if(short));
        }
    }
    claims
}

/// The mean error of a method over devices of one kind, and of how many predictions it is.
fn mean_error<'a>(rows: &'a [Row], kind: &str, method: &str) -> Option<(f64, &'a str)> {
    let row = rows.iter().find(|row| {
        [&*row.table, &*row.case, &*row.method, &*row.metric]
            == ["errors", kind, method, "mean_error"]
    })?;
    let ours = row.ours.as_ref().and_then(Value::number)?;
    Some((ours, &row.note))
}

#[cfg(test)]
mod tests {
    use report::Verdict;

    use super::*;

    fn errors(kind: &str, of: &[(&str, f64)]) -> Vec<Row> {
        let row = |&(method, error): &(&str, f64)| {
            row("errors", kind, method, "mean_error", "%", &[error]).noted("8 predictions")
        };
        of.iter().map(row).collect()
    }

    #[test]
    fn each_kind_of_device_is_judged_apart_and_a_loss_is_one_of_the_label() {
        let mut rows = errors(
            "held out",
            &[("model", 38.8), ("as published", 31.7), ("nearest", 34.8)],
        );
        rows.extend(errors(
            "on the line",
            &[("model", 12.5), ("as published", 16.1), ("nearest", 26.7)],
        ));
        let said: Vec<_> = claims(&rows, false)
            .into_iter()
            .map(|row| (row.case, row.method, row.verdict.unwrap()))
            .collect();
        let claim = |kind: &str, beside: &str, method: &str, verdict| {
            (
                format!("{kind}: no more than the {beside}"),
                method.to_owned(),
                verdict,
            )
        };
        let (device, method) = ("nearest device", "published method");
        assert_eq!(
            said,
            [
                claim("on the line", device, "model", Verdict::Holds),
                claim("on the line", device, "as published", Verdict::Holds),
                claim("on the line", method, "model", Verdict::Holds),
                claim("held out", device, "model", Verdict::FailsOutside),
                claim("held out", device, "as published", Verdict::Holds),
                claim("held out", method, "model", Verdict::FailsOutside),
            ]
        );
        assert!(claims(&rows, false)[0].note.contains("`nearest` errs by"));
        // The other form of the nearest device is nearer to the truth, once it says as much.
        rows.extend(errors("held out", &[("nearest, floor apart", 30.0)]));
        let bars = |rows: &[Row]| {
            claims(rows, false)
                .iter()
                .filter_map(|row| row.bar)
                .collect::<Vec<_>>()
        };
        assert_eq!(bars(&rows)[3..], [30.0, 30.0, 31.7]);
        rows.last_mut().unwrap().note = "7 predictions".to_owned();
        assert_eq!(bars(&rows)[3..], [34.8, 34.8, 31.7]);
        let short = claims(&rows, true);
        assert!(
            short
                .iter()
                .all(|row| row.verdict == Some(Verdict::NotJudged))
        );
        assert_eq!(claims(&rows[..2], false).len(), 1, "nearest is missing");
    }
}
