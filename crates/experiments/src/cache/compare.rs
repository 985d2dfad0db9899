//! Turns samples into rows: our figures beside the paper's.
//!
//! ```text
//! samples --mean, least, most over the seeds--> rows of the main table
//!         --ratios seed by seed--> rows beside the paper's words and figures: agree or differ, and why
//! ```
//!
//! The paper prints its times and energies as bar charts without figures; what its text states is in
//! `experiments/cache/published_*.csv`.
//!
//! Always true: every published direction and figure has its rows, whether ours agrees or not.

use super::spread::{Spread, metric_of, of, ratio, row};
use super::*;

/// What it says in figures.
const FIGURES: &str = include_str!("../../../../experiments/cache/published_figures.csv");

// --- the main table -------------------------------------------------------------------------------

/// Every case of every method: seconds, watts, joules.
pub(super) fn main_table(measured: &Measured, options: Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in CASES {
        for setup in &METHODS {
            if !options.part.has(case, setup.method) {
                continue;
            }
            let samples = of(measured, case, setup.method);
            let seconds = Spread::of(samples.iter().map(|sample| sample.seconds));
            let joules = Spread::of(samples.iter().map(|sample| sample.joules));
            let watts = Spread {
                // So that the means, too, multiply.
                mean: joules.mean / seconds.mean,
                ..Spread::of(samples.iter().map(Sample::watts))
            };
            let note = note_of(case, setup, options);
            let rhythm = DAYS.iter().find(|rhythm| rhythm.name == case);
            let evidence = rhythm.map_or(Evidence::Measured, |it| it.evidence_of(setup.method));
            for ((metric, unit), spread) in METRICS.into_iter().zip([seconds, watts, joules]) {
                let row = row("measured", case, setup.method, metric, unit, spread);
                rows.push(row.evidence(evidence).noted(&*note));
            }
        }
    }
    rows
}

fn note_of(case: &str, setup: &Setup, options: Options) -> String {
    let what = match case {
        "read" => "1 GiB in 128 KiB requests, two at a time",
        "reread" => "the same file again, two minutes later",
        "write" => "1 GiB in 128 KiB requests one by one, a flush at the end",
        "rewrite" => "the same file again, two minutes later",
        "random" => {
            "1,000 pages of 4 KiB within 10 GiB one by one; the paper's 1 KB reads fetch a page each"
        }
        "random-reread" => "the same pages again, two minutes later",
        "day" => {
            "24 hours, a user at work for four of them; the second of two days; seconds are the day's"
        }
        other => unreachable!("no case {other}"),
    };
    let day = case == "day";
    let how = match setup.engine {
        Engine::Bare if day => "; always on",
        Engine::Bare | Engine::Timer(_) | Engine::CacheTimer => "",
        Engine::Published if day => "; as published, always on",
        Engine::Published => "; as published",
        Engine::Ours if day => "; as it comes, always on",
        Engine::Ours => "; every read admitted, no bypass of streams",
        Engine::Energy if day => "; as it comes, energy mode on the 3.5-inch disk",
        Engine::Energy => {
            "; every read admitted, no bypass of streams; energy mode on the 3.5-inch disk"
        }
        Engine::Defaults | Engine::Both => "; as it comes",
    };
    let short = if options.quick && !case.starts_with("random") && !day {
        "; short run: 64 MiB, seconds and joules of all but the first MiB multiplied by 16.24"
    } else {
        ""
    };
    format!("{what}{how}{short}")
}

// --- beside the paper's words ---------------------------------------------------------------------

pub(super) fn case_of(test: &str) -> &'static str {
    match test {
        "Read 1G" => "read",
        "Reread 1G" => "reread",
        "Write 1G" => "write",
        "Rewrite 1G" => "rewrite",
        "Read at random" => "random",
        "Reread at random" => "random-reread",
        other => unreachable!("the paper has no test '{other}'"),
    }
}

/// Published and ours, each with the bare disk below it.
pub(super) const CACHES: [(&str, &str, &str); 2] = [
    ("2.5 in", "dmssd-2.5", "hdd-2.5"),
    ("3.5 in", "dmssd-3.5", "hdd-3.5"),
];

pub(super) fn ours_of(published: &str) -> &'static str {
    match published {
        "dmssd-2.5" => "tanada-2.5",
        _ => "tanada-3.5",
    }
}

pub(super) fn fields<const N: usize>(line: &str) -> [&str; N] {
    let mut fields = line.split(',');
    std::array::from_fn(|_| fields.next().expect("our own files have all their fields"))
}

// --- beside the paper's figures -------------------------------------------------------------------

/// Every figure of the paper's text.
pub(super) fn stated(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in FIGURES.lines().skip(1) {
        // The first field is quoted and may hold commas.
        let (figure, rest) = line
            .trim_start_matches('"')
            .split_once("\",")
            .expect("the figure's name is quoted");
        let [how, value, _, section] = fields(rest);
        let value: f64 = value.parse().expect("a number");
        let stated = Stated {
            figure,
            how,
            value,
            section,
        };
        rows.extend(figure_rows(measured, stated));
    }
    rows
}

/// What the paper's text says of one figure.
#[derive(Clone, Copy)]
struct Stated<'a> {
    figure: &'a str,
    how: &'a str,
    value: f64,
    section: &'a str,
}

impl Stated<'_> {
    /// Does ours agree?
    fn agrees(&self, ours: f64) -> bool {
        let value = self.value;
        match self.how {
            "about" => (ours / value - 1.0).abs() <= 0.25,
            "almost" => (ours / value - 1.0).abs() <= 0.1,
            "more than" => ours > value,
            "below" => ours < value,
            other => unreachable!("no comparison '{other}'"),
        }
    }

    /// A row beside it; `why` ours may differ.
    fn row(&self, what: What<'_>, spread: Spread, why: &str) -> Row {
        let (how, value, section) = (self.how, self.value, self.section);
        let row = row("stated", what.0, what.1, what.2, what.3, spread);
        if what.1.starts_with("tanada") {
            return row.noted(format!("our engine, where the paper's shows {how} {value}"));
        }
        let is_near = self.agrees(spread.mean);
        let why = match is_near {
            true if self.figure.contains("energy saved") => BY_TWO_DIFFERENCES,
            true => "",
            false => why,
        };
        let colon = if why.is_empty() { "" } else { ": " };
        row.beside(Value::Number(value))
            .against(is_near)
            .noted(format!(
                "the paper ({section}) says {how} {value}{colon}{why}"
            ))
    }
}

/// Case, method, metric and unit of a row.
type What<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The part that a method saves of what the bare disk of 2.5 inches takes to read again, in percent.
fn saved(measured: &Measured, metric: &str, method: &'static str) -> Spread {
    let ratio = ratio(measured, metric, ("reread", method), ("reread", "hdd-2.5"));
    Spread {
        mean: (1.0 - ratio.mean) * 100.0,
        low: (1.0 - ratio.high) * 100.0,
        high: (1.0 - ratio.low) * 100.0,
    }
}

fn figure_rows(measured: &Measured, stated: Stated<'_>) -> Vec<Row> {
    let figure = stated.figure;
    let both = ["dmssd-2.5", "tanada-2.5", "dmssd-3.5", "tanada-3.5"];
    let (small, large) = (&both[..2], &both[2..]);
    let rows = |methods: &[&'static str], one: &dyn Fn(&'static str) -> Row| -> Vec<Row> {
        methods.iter().map(|method| one(method)).collect()
    };
    if figure.contains("time saved") {
        return rows(small, &|method| {
            let what = ("reread", method, "time saved against hdd-2.5", "percent");
            stated.row(what, saved(measured, "seconds", method), FASTER_SSD)
        });
    }
    if figure.contains("energy saved") {
        return rows(small, &|method| {
            let what = ("reread", method, "energy saved against hdd-2.5", "percent");
            stated.row(what, saved(measured, "joules", method), "")
        });
    }
    if figure.contains("SSD alone") {
        let case = match figure.starts_with("reread") {
            true => "reread",
            false => "rewrite",
        };
        return rows(&both, &|method| {
            let spread = ratio(measured, "seconds", (case, method), (case, "ssd"));
            stated.row((case, method, "seconds against ssd", "ratio"), spread, "")
        });
    }
    if figure.starts_with("first random read") {
        return rows(large, &|method| {
            let bare = ("random", "hdd-3.5");
            let spread = ratio(measured, "seconds", ("random", method), bare);
            let what = ("random", method, "seconds against hdd-3.5", "ratio");
            stated.row(what, spread, CHEAP_COPY)
        });
    }
    if figure.starts_with("random reread") {
        return rows(&both, &|method| {
            let samples = of(measured, "random-reread", method);
            let spread = Spread::of(samples.iter().map(|sample| sample.seconds));
            stated.row(("random-reread", method, "seconds", "s"), spread, "")
        });
    }
    vec![power_row(measured, &stated)]
}

/// How far the mean power of random reads lies below that of streams.
fn power_row(measured: &Measured, stated: &Stated<'_>) -> Row {
    let below = power_below(measured);
    let (at, metric) = match stated.figure.ends_with("least") {
        true => (below.low, "mean power below that of the 1 GB reads, least"),
        false => (below.high, "mean power below that of the 1 GB reads, most"),
    };
    let spread = Spread {
        mean: at,
        low: at,
        high: at,
    };
    let what = ("random", "all published", metric, "percent");
    stated.row(what, spread, ONE_ACTIVE_FIGURE)
}

const FASTER_SSD: &str = "the SSD's sheet says 250 MB/s and the disk reads 63 MB/s at its outer edge, so a \
    quarter of the time is left; the paper's file system and bus took their share of both";
const CHEAP_COPY: &str = "copying 4 KiB to the SSD takes a hundredth of the disk's seek; nothing in the \
    published flow costs two more, and the paper, which blames its algorithm, does not say what did";
const ONE_ACTIVE_FIGURE: &str = "the sheets give the SSD one figure for all work, and seeking draws a little more \
    than reading; while a cache waits for the disk its SSD rests, at 0.06 W";

const BY_TWO_DIFFERENCES: &str = "out of two differences: less of the time is left than the paper saw, \
    and that at more power";

/// By how much random reads draw less than the 1 GB reads, over the paper's systems: in percent.
fn power_below(measured: &Measured) -> Spread {
    let systems = ["hdd-2.5", "hdd-3.5", "ssd", "dmssd-2.5", "dmssd-3.5"];
    let pairs = [("random", "read"), ("random-reread", "reread")];
    Spread::of(systems.into_iter().flat_map(|method| {
        let rereads = usize::from(method.starts_with("dmssd"));
        pairs[..=rereads].iter().map(move |(random, read)| {
            let ratio = ratio(measured, "watts", (random, method), (read, method));
            (1.0 - ratio.mean) * 100.0
        })
    }))
}

// --- ours beside theirs ---------------------------------------------------------------------------

/// Our engine against the published one and against the bare disk, case by case.
pub(super) fn against_published(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in CASES {
        for (_, published, bare) in CACHES {
            let ours = ours_of(published);
            for other in [published, bare] {
                for metric in ["seconds", "joules"] {
                    let ratio = ratio(measured, metric, (case, ours), (case, other));
                    let shown = format!("{metric} against {other}");
                    let verdict = match ratio.mean {
                        less if less < 0.995 => "less",
                        more if more > 1.005 => loss(case, other == published),
                        _ => "as much, within half a percent",
                    };
                    rows.push(row("ours", case, ours, &shown, "ratio", ratio).noted(verdict));
                }
            }
        }
    }
    rows
}

/// Why ours takes more of something.
fn loss(case: &str, than_published: bool) -> &'static str {
    match (case, than_published) {
        ("rewrite", true) => {
            "more, a loss of ours: the cleaner writes to the disk meanwhile, which the published one leaves for \
             later (see 'bring home')"
        }
        ("day", _) => {
            "more, a loss of ours: two devices draw power all day, and the cleaner wakes the disk's heads"
        }
        ("read" | "random", false) => {
            "more, a loss of ours: what is read is written to the SSD as well"
        }
        _ => "more: a loss of ours",
    }
}

/// Streams through our engine as it comes.
pub(super) fn as_it_comes(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((case, method), samples) in &measured.as_it_comes {
        let how = match method.contains("both") {
            true => "as a new hybrid comes: cache and tier together",
            false => {
                "as `mode = \"cache\"` comes: a read is copied on its second access, streams of 1 MiB and more bypass"
            }
        };
        for (metric, unit) in METRICS {
            let spread = Spread::of(samples.iter().map(|sample| metric_of(sample, metric)));
            rows.push(row("as it comes", case, method, metric, unit, spread).noted(how));
        }
    }
    rows
}

/// What is still to be done when the rewrite has ended, and what both took together.
pub(super) fn destage(measured: &Measured, options: Options) -> Vec<Row> {
    const LATER: &str =
        "after the rewrite: until the disk has what only the SSD held; the paper counts none of it";
    let short = if options.quick {
        "; short run: multiplied from 64 MiB, of which our cleaner has more written by then"
    } else {
        ""
    };
    let mut rows = Vec::new();
    for ((case, method), destages) in &measured.destage {
        for (metric, unit) in METRICS {
            let spread = Spread::of(destages.iter().map(|destage| metric_of(destage, metric)));
            rows.push(
                row("bring home", case, method, metric, unit, spread)
                    .noted(format!("{LATER}{short}")),
            );
        }
        let pairs = of(measured, case, method).iter().zip(destages);
        let both = Spread::of(pairs.map(|(rewrite, destage)| rewrite.then(*destage).joules));
        rows.push(
            row("bring home", case, method, "joules of both", "J", both).noted(format!(
                "the rewrite and destaging it: what is not written now is written later{short}"
            )),
        );
    }
    rows
}
