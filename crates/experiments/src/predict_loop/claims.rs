//! What predictions must be worth, judged by the mean errors of the devices on the line and of those held out.
//!
//! ```text
//! errors: mean_error of "on the line", "held out" -> no more than the nearest device? than the published method?
//! ```
//!
//! Choice: a prediction is worth its fit if it errs no more than the result of the nearest device, which costs nothing; ours
//! must err no more than the published one, too.
//!
//! Always true: every claim is made of rows that the experiment shows, too; where a device is missing nothing is claimed.

use report::{Row, Value};

use super::devices::Role;
use super::figures::row;

/// Who is judged, beside whom, and what must hold.
const CLAIMS: [(&str, &str, &str); 5] = [
    ("model", "nearest", "no more than the nearest device"),
    (
        "model, floor apart",
        "nearest",
        "no more than the nearest device",
    ),
    ("as published", "nearest", "no more than the nearest device"),
    ("model", "as published", "no more than the published method"),
    (
        "model, floor apart",
        "as published",
        "no more than the published method",
    ),
];

/// The claims, from all other rows; a short run says how they stand and judges nothing.
pub fn claims(rows: &[Row], quick: bool) -> Vec<Row> {
    let mut claims = Vec::new();
    for role in [Role::OnTheLine, Role::HeldOut] {
        for (method, beside, words) in CLAIMS {
            let of = |method| mean_error(rows, role.name(), method);
            let (Some((ours, note)), Some((bar, _))) = (of(method), of(beside)) else {
                continue;
            };
            let case = format!("{}: {words}", role.name());
            let claim = row("claims", &case, method, "mean_error", "%", &[ours])
                .evidence(role.evidence())
                .claimed(bar, ours <= bar)
                .noted(format!(
                    "mean of {note}; the bar is what `{beside}` errs by"
                ));
            claims.push(claim.unjudged_if(quick));
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
        let short = claims(&rows, true);
        assert!(
            short
                .iter()
                .all(|row| row.verdict == Some(Verdict::NotJudged))
        );
        assert_eq!(claims(&rows[..2], false).len(), 1, "nearest is missing");
    }
}
