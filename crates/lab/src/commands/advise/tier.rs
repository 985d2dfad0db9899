//! `tanada advise TRACE --tier`: cache, tier or both, and with which parameters?

use device::model::Spec;
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress::bar;
use report::terminal::table::{share, size, table};
use sim::advise::tier::{TierAdvice, TierAdviser, TierOptions};
use sim::on_threads;

use crate::commands::advise::{Advise, SIMULATIONS, micros};

/// Advises and prints.
pub fn run(arguments: &Advise) -> anyhow::Result<()> {
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    if arguments.size.len() > 1 {
        let what = "--tier looks at one size; name one with --size";
        return Err(Usage(what.to_owned()).into());
    }
    arguments.check_endurance()?;
    let options = TierOptions {
        slow: Spec::find(&arguments.slow).map_err(|error| usage(&error))?,
        fast: Spec::find(&arguments.fast).map_err(|error| usage(&error))?,
        size: arguments.size.first().copied(),
        endurance: arguments.endurance,
        engine_requests: arguments.replay,
        seed: arguments.seed,
    };
    let mut adviser = TierAdviser::new(options).map_err(|error| usage(&error))?;
    arguments.feed(|request| {
        adviser.push(request);
        Ok(())
    })?;
    let trying = bar(SIMULATIONS, 0);
    let advice = on_threads(arguments.jobs, || {
        adviser.advise(&|done, of| {
            trying.set_length(of as u64);
            trying.set_position(done as u64);
        })
    })??;
    trying.finish_and_clear();
    terminal::answer(arguments.json, &advice, || text(&advice))
}

fn text(advice: &TierAdvice) -> String {
    let mut text = String::new();
    for reason in &advice.reasons {
        text.push_str(&format!("{reason}\n"));
    }
    if let Some(configuration) = &advice.configuration {
        text.push_str("\nIn [[hybrid]] of the configuration:\n");
        for line in configuration.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    let heads = [
        "",
        "MODE",
        "PARAMETERS",
        "FAST",
        "MEAN",
        "P95",
        "P99",
        "READ",
        "WRITE",
        "SLOW I/O SAVED",
        "FLASH/DAY",
        "POWER",
    ];
    text.push('\n');
    text.push_str(&table(&heads, &lines(advice)));
    text.push_str(&format!(
        "\n{} and {} (of it, {}) are modelled, at the trace's own pace; each row is the engine of tanada serve over the \
         last {} of {} reads and writes, after {} requests of warm-up. FAST: requests whose data all lived on the fast \
         device when they came, warm-up included.\n",
        advice.slow,
        advice.fast,
        size(advice.size_bytes),
        advice.timed_requests,
        advice.requests,
        advice.warm_up_requests
    ));
    text
}

/// The slow device alone, and what each way made of it.
fn lines(advice: &TierAdvice) -> Vec<Vec<String>> {
    let alone = &advice.alone;
    let mut lines = vec![vec![
        String::new(),
        "(none)".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        micros(alone.response_us_mean),
        "-".to_owned(),
        "-".to_owned(),
        micros(alone.read_us_mean),
        micros(alone.write_us_mean),
        "-".to_owned(),
        "-".to_owned(),
        format!("{:.2} W", alone.watts),
    ]];
    for (at, row) in advice.rows.iter().enumerate() {
        let chosen = if advice.chosen == Some(at) { "*" } else { "" };
        let parameters = match (row.learned, row.mode.as_str()) {
            (true, _) => "learned",
            (false, "cache") => "-",
            (false, _) => "default",
        };
        lines.push(vec![
            chosen.to_owned(),
            row.mode.clone(),
            parameters.to_owned(),
            share(row.fast_share, 1.0),
            micros(row.response_us_mean),
            micros(row.response_us_p95),
            micros(row.response_us_p99),
            micros(row.read_us_mean),
            micros(row.write_us_mean),
            format!("{:.1} %", 100.0 * row.slow_requests_saved),
            size(row.flash_bytes_per_day as u64),
            format!("{:.2} W", row.watts),
        ]);
    }
    lines
}
