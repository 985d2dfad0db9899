//! Advice on tiers in words: why a row is advised, and the lines of the configuration.

use base::Bytes;

use super::search::{Learned, Setting};
use super::trace::{TierRow, choice};
use crate::advise::{Alone, shown};

/// Why a row is advised, or none.
pub(super) fn reasons(
    alone: &Alone,
    rows: &[TierRow],
    chosen: Option<usize>,
    learned: &Learned,
    (size, endurance): (Bytes, f64),
) -> Vec<String> {
    let name = |row: &TierRow| {
        let how = if row.learned {
            " with learned parameters"
        } else {
            ""
        };
        format!("mode \"{}\"{how}", row.mode)
    };
    let mut reasons = Vec::new();
    let Some(at) = chosen else {
        if let Some(at) = choice(alone, rows, learned.lasts(), f64::INFINITY) {
            reasons.push(worn(alone, &rows[at], &name(&rows[at]), endurance));
            return reasons;
        }
        reasons.push(format!(
            "Nothing is advised: with {size} of the fast device neither a cache nor a tier makes the mean response, {} on the slow device alone, a twentieth shorter.",
            shown(alone.response_us_mean)
        ));
        return reasons;
    };
    let row = &rows[at];
    reasons.push(format!(
        "Advised: {}, on {size} of the fast device; the mean response falls from {} to {}, and {:.0} % of the requests find their data on the fast device.",
        name(row),
        shown(alone.response_us_mean),
        shown(row.response_us_mean),
        100.0 * row.fast_share
    ));
    let other = rows
        .iter()
        .filter(|other| other.mode != row.mode && (learned.lasts() || !other.learned))
        .filter(|other| other.device_writes_per_day <= endurance)
        .min_by(|a, b| a.response_us_mean.total_cmp(&b.response_us_mean));
    if let Some(other) = other {
        reasons.push(format!(
            "The best of another mode is {}: {}.",
            name(other),
            shown(other.response_us_mean)
        ));
    }
    reasons.extend(of_learned(learned));
    reasons
}

/// Why what is fastest is not advised.
pub(super) fn worn(alone: &Alone, row: &TierRow, name: &str, endurance: f64) -> String {
    format!(
        "Nothing is advised: caches and tiers help here, but none within the endurance. The fastest, {name}, answers in {} on \
         average instead of {}, but would write the fast device over {:.3} times a day, and {endurance} are allowed. Look at \
         another size (--size) or a larger fast device (--fast), allow more (--endurance), or cap what is written with \
         flash_writes_per_day.",
        shown(row.response_us_mean),
        shown(alone.response_us_mean),
        row.device_writes_per_day
    )
}

/// What was learned, and whether it can be trusted.
fn of_learned(learned: &Learned) -> [String; 2] {
    let parameters = &learned.setting.parameters;
    let (found, held) = (&learned.score, &learned.held_out);
    let what = format!(
        "Learned: region {}, period {} s, iops_min {}, sub_luns_max {}, share_min {} %, streak_min {}, timeout {}. With them {:.0} % of the requests are to regions that are up, and {:.0} % of the slow device's time is saved, moves taken off; with the defaults {:.0} %.",
        learned.setting.region,
        parameters.period.secs_f64(),
        parameters.iops_min,
        parameters.sub_luns_max,
        parameters.share_min,
        parameters.streak_min,
        parameters.timeout,
        100.0 * found.share(),
        100.0 * found.net(),
        100.0 * learned.present.net(),
    );
    let trusted = match learned.lasts() {
        true => "what was learned lasts",
        false => "so what was learned is not advised, however it does below",
    };
    let lasting = format!(
        "Learned from the first half of the trace alone and tried on the second: {:.0} % saved, {:.0} % with the defaults; {trusted}.",
        100.0 * held.net(),
        100.0 * learned.present_held_out.net(),
    );
    [what, lasting]
}

/// A size as a configuration takes it.
fn written(size: Bytes) -> String {
    match size.0.is_multiple_of(1 << 30) {
        true => format!("{}GiB", size.0 >> 30),
        false => format!("{}MiB", size.0 >> 20),
    }
}

/// The lines under `[[hybrid]]`.
pub(super) fn configuration(mode: &str, setting: Option<&Setting>, size: Bytes) -> String {
    let mut text = format!("mode = \"{mode}\"\nfast_size = \"{}\"\n", written(size));
    if let Some(setting) = setting {
        let p = &setting.parameters;
        text.push_str(&format!(
            "[hybrid.tier]\nregion = \"{}\"\nperiod = \"{}s\"\niops_min = {}\nsub_luns_max = {}\nshare_min = {}\n\
             streak_min = {}\ntimeout = {}\n",
            written(setting.region),
            p.period.secs_f64(),
            p.iops_min,
            p.sub_luns_max,
            p.share_min,
            p.streak_min,
            p.timeout
        ));
    }
    text
}
