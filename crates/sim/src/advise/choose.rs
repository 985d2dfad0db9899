//! Which candidate, and why?
//!
//! ```text
//! rows of the model -> knee: which size the other modes are tried at
//!                   -> shortlist: which rows the engine replays -> rows of the engine -> choice -> sentences
//! ```

use base::Bytes;
use hybrid::{Settings, WriteMode};
use policy::cache::Kind;

use super::{Alone, By, Candidate, Options, shown};
use crate::cache::NamedCurve;

/// The share of the best gain that is enough.
pub(super) const KNEE: f64 = 0.9;
/// How much slower what is safer or simpler may be.
const MARGIN: f64 = 1.05;
/// A lesser gain is none.
pub(super) const GAIN_MIN: f64 = 0.05;
/// At most so many rows are replayed.
pub(super) const SHORTLIST: usize = 4;

/// What comes of comparing; each names a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one.
    Advised(usize),
    /// None: not even the fastest, this one, gains enough.
    NoGain(usize),
    /// None: all that gain enough, this one the most, wear out the fast device.
    Worn(usize),
}

/// The share of the response time that is saved.
fn gain(alone: f64, row: &Candidate) -> f64 {
    1.0 - row.response_us_mean / alone.max(1e-9)
}

fn fastest(rows: &[Candidate], of: impl Iterator<Item = usize>) -> Option<usize> {
    of.min_by(|&a, &b| {
        rows[a]
            .response_us_mean
            .total_cmp(&rows[b].response_us_mean)
    })
}

fn keeps_data_of_its_own(row: &Candidate) -> bool {
    row.write == WriteMode::Back.to_string()
}

/// The rows a choice is made of: those of the engine, or without any all.
fn that_count(rows: &[Candidate]) -> Vec<usize> {
    let engine: Vec<usize> = (0..rows.len())
        .filter(|&at| rows[at].by == By::Engine)
        .collect();
    match engine.is_empty() {
        true => (0..rows.len()).collect(),
        false => engine,
    }
}

/// By the rules at the head of [`super`]; there is at least one row.
pub(super) fn choice(alone: &Alone, rows: &[Candidate], endurance: f64) -> Choice {
    let gain = |at: usize| gain(alone.response_us_mean, &rows[at]);
    let all = that_count(rows);
    let helping = all.iter().copied().filter(|&at| gain(at) >= GAIN_MIN);
    let helping: Vec<usize> = helping.collect();
    let Some(most) = fastest(rows, helping.iter().copied()) else {
        return Choice::NoGain(fastest(rows, all.into_iter()).unwrap_or(0));
    };
    let allowed: Vec<usize> = helping
        .into_iter()
        .filter(|&at| rows[at].device_writes_per_day <= endurance)
        .collect();
    let Some(best) = fastest(rows, allowed.iter().copied()) else {
        return Choice::Worn(most);
    };
    let enough = |at: &usize| gain(*at) >= KNEE * gain(best);
    let allowed: Vec<usize> = allowed.into_iter().filter(enough).collect();
    let size = allowed.iter().map(|&at| rows[at].size_bytes).min();
    let of_size = || {
        let these = allowed.iter().copied();
        these.filter(|&at| Some(rows[at].size_bytes) == size)
    };
    let limit = fastest(rows, of_size()).map_or(0.0, |at| rows[at].response_us_mean * MARGIN);
    let usual = Settings::default().sequential_bypass.map(|bypass| bypass.0);
    let near = of_size().filter(|&at| rows[at].response_us_mean <= limit);
    let chosen = near.min_by(|&a, &b| {
        let rank = |at: usize| {
            let row = &rows[at];
            (
                keeps_data_of_its_own(row),
                row.sequential_bypass_bytes != usual,
            )
        };
        let faster = rows[a]
            .response_us_mean
            .total_cmp(&rows[b].response_us_mean);
        rank(a).cmp(&rank(b)).then(faster)
    });
    Choice::Advised(chosen.unwrap_or(best))
}

/// Which rows of the model the engine is to replay: the one that would be advised, the fastest of its size that
/// keeps no data of its own, then the fastest; those within the endurance before others.
pub(super) fn shortlist(alone: &Alone, rows: &[Candidate], endurance: f64) -> Vec<usize> {
    let (Choice::Advised(first) | Choice::NoGain(first) | Choice::Worn(first)) =
        choice(alone, rows, endurance);
    let mut list = vec![first];
    let safe = (0..rows.len()).filter(|&at| {
        rows[at].size_bytes == rows[first].size_bytes && !keeps_data_of_its_own(&rows[at])
    });
    list.extend(fastest(rows, safe));
    let mut rest: Vec<usize> = (0..rows.len()).collect();
    rest.sort_by(|&a, &b| {
        let worn = |at: usize| rows[at].device_writes_per_day > endurance;
        let faster = rows[a]
            .response_us_mean
            .total_cmp(&rows[b].response_us_mean);
        worn(a).cmp(&worn(b)).then(faster)
    });
    for at in rest {
        if !list.contains(&at) {
            list.push(at);
        }
    }
    list.dedup();
    list.truncate(SHORTLIST);
    list
}

/// Rows of the model that would be advised by their own figures where nothing of the engine's is: before "no" is said the
/// engine tries them.
pub(super) fn untried(alone: &Alone, rows: &[Candidate], endurance: f64) -> Vec<usize> {
    if let Choice::Advised(_) = choice(alone, rows, endurance) {
        return Vec::new();
    }
    let promises = |&at: &usize| {
        let row = &rows[at];
        row.by == By::Model
            && gain(alone.response_us_mean, row) >= GAIN_MIN
            && row.device_writes_per_day <= endurance
    };
    let mut list: Vec<usize> = (0..rows.len()).filter(promises).collect();
    list.sort_by(|&a, &b| {
        rows[a]
            .response_us_mean
            .total_cmp(&rows[b].response_us_mean)
    });
    list.truncate(SHORTLIST);
    list
}

/// Of rows in order of size: the least with most of the gain, among those within the endurance if there are any.
pub(super) fn knee(alone: f64, rows: &[Candidate], endurance: f64) -> usize {
    let within = |row: &&Candidate| row.device_writes_per_day <= endurance;
    let some = rows.iter().any(|row| within(&row));
    let counts = |row: &Candidate| !some || within(&row);
    let gains = rows.iter().filter(|row| counts(row));
    let best = gains.map(|row| gain(alone, row)).fold(f64::MIN, f64::max);
    let enough = |row: &Candidate| counts(row) && gain(alone, row) >= KNEE * best;
    // Where nothing gains the best one may fall short of its own nine tenths, being below zero.
    rows.iter()
        .position(enough)
        .or_else(|| rows.iter().position(|row| gain(alone, row) == best))
        .unwrap_or(0)
}

/// Why this size, of rows of the model in order of size.
pub(super) fn of_size(alone: f64, rows: &[Candidate], knee: usize) -> String {
    let best = fastest(rows, 0..rows.len()).unwrap_or(knee);
    let saved = |at: usize| {
        let most = alone - rows[best].response_us_mean;
        100.0 * (alone - rows[at].response_us_mean) / most.max(1e-9)
    };
    let size = |at: usize| Bytes(rows[at].size_bytes);
    let mut text = format!(
        "The knee is at {} in the quick model: it saves {:.0} % of the response time that {}, the best size looked at, \
         would save",
        size(knee),
        saved(knee),
        size(best)
    );
    if let Some(smaller) = knee.checked_sub(1) {
        text.push_str(&format!(", {} only {:.0} %", size(smaller), saved(smaller)));
    }
    text + "."
}

/// Why this policy, at a cache of so many pages.
pub(super) fn of_policy(policy: Kind, pages: f64, curves: &[NamedCurve]) -> String {
    let mut ratios: Vec<(f64, String)> = curves
        .iter()
        .map(|named| (named.curve.at(pages).miss_ratio, named.method.to_string()))
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let list: Vec<String> = ratios
        .iter()
        .map(|(ratio, name)| format!("{name} {:.1} %", 100.0 * ratio))
        .collect();
    format!(
        "{policy} misses least over the sizes looked at; there the policies miss, page by page: {}.",
        list.join(", ")
    )
}

/// The row in words, such as `s3-fifo in write-back mode without sequential bypass`.
fn named(row: &Candidate) -> String {
    let bypass = match (row.by, row.sequential_bypass_bytes) {
        (By::Engine, None) => " without sequential bypass",
        _ => "",
    };
    format!("{} in write-{} mode{bypass}", row.policy, row.write)
}

/// The advice in one sentence.
pub(super) fn verdict(
    alone: &Alone,
    rows: &[Candidate],
    choice: Choice,
    options: &Options,
) -> String {
    let (Choice::Advised(at) | Choice::NoGain(at) | Choice::Worn(at)) = choice;
    let row = &rows[at];
    let (with, without) = (shown(row.response_us_mean), shown(alone.response_us_mean));
    match choice {
        Choice::Advised(_) => format!(
            "{} of {} with {}: {with} on average instead of {without} ({:.1} times as fast), {:.0} % of the requests \
             to the slow device saved.",
            Bytes(row.size_bytes),
            options.fast.name,
            named(row),
            alone.response_us_mean / row.response_us_mean.max(1e-9),
            100.0 * row.slow_requests_saved
        ),
        Choice::NoGain(_) => format!(
            "No cache looked at helps: the slow device alone answers in {without} on average, the best cache in \
             {with} ({} of {}).",
            named(row),
            Bytes(row.size_bytes)
        ),
        Choice::Worn(_) => format!(
            "Caches help here, but none within the endurance: the fastest that was replayed, {} of {}, answers in {with} on \
             average instead of {without}, but would write the fast device over {:.3} times a day, and {} are allowed. Look at \
             other sizes (--size) or a larger fast device (--fast), allow more (--endurance), or cap what is written with \
             flash_writes_per_day.",
            named(row),
            Bytes(row.size_bytes),
            row.device_writes_per_day,
            options.endurance
        ),
    }
}

/// Why row `at`, beside its size and policy, and what it costs.
pub(super) fn of_the_choice(
    alone: &Alone,
    rows: &[Candidate],
    at: usize,
    options: &Options,
) -> Vec<String> {
    let row = &rows[at];
    let mut reasons = Vec::new();
    let near = that_count(rows).into_iter().filter(|&other| {
        rows[other].size_bytes == row.size_bytes && rows[other].policy == row.policy
    });
    let near: Vec<String> = near
        .map(|other| {
            let one = &rows[other];
            let bypass = match (one.by, one.sequential_bypass_bytes) {
                (By::Engine, None) => " without bypass",
                _ => "",
            };
            format!("{}{bypass} {}", one.write, shown(one.response_us_mean))
        })
        .collect();
    let why = match keeps_data_of_its_own(row) {
        true => {
            "write-back is faster by enough to let the fast device hold data of its own for a while"
        }
        false => "this mode is about as fast as any and never holds data the slow device lacks",
    };
    reasons.push(format!("By write mode: {}; {why}.", near.join(", ")));
    let twin = rows.iter().find(|other| {
        other.by == By::Engine
            && (&other.policy, &other.write, other.size_bytes)
                == (&row.policy, &row.write, row.size_bytes)
            && other.sequential_bypass_bytes.is_some()
    });
    if let (By::Engine, None, Some(twin)) = (row.by, row.sequential_bypass_bytes, twin) {
        reasons.push(format!(
            "The sequential bypass, on by default, is in the way here: {} with it, {} without, so turn it off.",
            shown(twin.response_us_mean),
            shown(row.response_us_mean)
        ));
    }
    reasons.push(format!(
        "It writes {} a day to the fast device, {:.3} times its size, within the {} its endurance allows.",
        Bytes(row.flash_bytes_per_day as u64),
        row.device_writes_per_day,
        options.endurance
    ));
    reasons.push(format!(
        "Both devices draw {:.2} W on average, the slow one alone {:.2} W.",
        row.watts, alone.watts
    ));
    reasons
}

/// A size as a configuration takes it, exactly.
fn exact(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 30) == 0 => format!("{}GiB", b >> 30),
        b if b % (1 << 20) == 0 => format!("{}MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

/// What `[[hybrid]]` would have to say for `row`.
pub(super) fn configuration(row: &Candidate) -> String {
    let mut text = format!(
        "mode = \"cache\"\npolicy = \"{}\"\nwrite = \"{}\"\nfast_size = \"{}\"\n",
        row.policy,
        row.write,
        exact(row.size_bytes)
    );
    // The model knows of no bypass.
    if row.by == By::Engine {
        let bypass = row.sequential_bypass_bytes.map(exact);
        let bypass = bypass.unwrap_or_else(|| "off".to_owned());
        text.push_str(&format!("sequential_bypass = \"{bypass}\"\n"));
    }
    text
}
