//! Fits as people read them.

use super::predict::Published;
use predict::judge::Score;
use predict::study::Study;
use report::terminal::table::table;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn fit_table(study: &Study) -> String {
    let mut head = vec!["GROUP".to_owned(), "CPU US".to_owned()];
    let terms = study.form.terms.iter();
    head.extend(terms.map(|term| format!("N OF {}", term.regressor)));
    head.extend(["RANK", "RULE", "RMS ERROR", "DEVICES DIFFER", "RUNS DIFFER"].map(str::to_owned));
    let rows: Vec<Vec<String>> = study
        .groups
        .iter()
        .filter_map(|group| {
            let fit = group.fit.as_ref()?;
            let mut row = vec![group.group.clone(), format!("{:.1}", fit.cpu)];
            row.extend(fit.counts.iter().map(|n| format!("{n:.3}")));
            row.push(format!("{} of {}", fit.rank, fit.unknowns));
            row.push(fit.rule.sentence().to_owned());
            row.push(percent(fit.rms_error));
            row.push(percent(fit.spreads.between_devices));
            row.push(fit.spreads.between_runs.map_or("-".to_owned(), percent));
            Some(row)
        })
        .collect();
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
}

pub(super) fn score_table(study: &Study) -> String {
    let row = |group: &str, score: &Score| {
        vec![
            group.to_owned(),
            score.method.name().to_owned(),
            percent(score.mean),
            percent(score.worst),
            score.predictions.to_string(),
        ]
    };
    let mut rows: Vec<Vec<String>> = study.scores.iter().map(|s| row("all", s)).collect();
    for group in &study.groups {
        rows.extend(group.scores.iter().map(|s| row(&group.group, s)));
    }
    let head = ["LEFT OUT", "METHOD", "MEAN ERROR", "WORST", "PREDICTIONS"];
    table(&head, &rows)
}

pub(super) fn published_page(published: &Published) -> String {
    let rows: Vec<Vec<String>> = published
        .cells
        .iter()
        .map(|fit| {
            let best = fit.chosen();
            vec![
                fit.cell.clone(),
                best.regressor.clone(),
                best.line.r2.map_or("-".to_owned(), |r2| format!("{r2:.6}")),
                format!("{:.5}", best.line.slope),
                format!("{:.3}", best.line.intercept),
                fit.candidates.len().to_string(),
                fit.ties.to_string(),
            ]
        })
        .collect();
    let head = [
        "CELL",
        "BEST REGRESSOR",
        "R2",
        "SLOPE",
        "INTERCEPT",
        "CANDIDATES",
        "TIES",
    ];
    let mut text = table(&head, &rows);
    text.push('\n');
    for (metric, (mean, noise)) in &published.metrics {
        text.push_str(&format!("{metric}: mean best R2 {mean:.6}"));
        if let Some(noise) = noise {
            let [level, low, high] = noise.mean_of_cells;
            let inside = match (low..=high).contains(mean) {
                true => "inside noise",
                false => "outside noise",
            };
            text.push_str(&format!(
                "; pure noise scores {level:.3} ({low:.3} to {high:.3}) with the best of {}: {inside}",
                noise.candidates
            ));
        }
        text.push('\n');
    }
    for warning in &published.warnings {
        text.push_str(&format!("  - {warning}\n"));
    }
    text
}
