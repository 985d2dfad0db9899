//! Does what holds on the workloads that the choices were made on hold on others, too?
//!
//! ```text
//! workloads of other seeds, and of a generator fitted to nothing -> some methods -> "held-out"
//!     -> the same claims as on the fitted ones, and which mode is the default -> "held-out claims"
//! ```
//!
//! Which workloads and seeds these are was written down (`experiments/tiering/README.md`) before the first of them ran.
//!
//! Always true: nothing here depends on how the fitted workloads came out.

use base::Nanos;
use report::{Evidence, Row, Verdict};

use super::bed::{self, PLACED};
use super::listing::LISTING;
use super::runs::{Run, Samples, measure};
use super::work::HELD_OUT;
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress};

/// Seeds of the workloads, and of the disks' platters with them.
const SEEDS: std::ops::RangeInclusive<u64> = 2..=6;
/// Of a short run.
const QUICK_SEEDS: std::ops::RangeInclusive<u64> = 2..=2;

/// What is compared: the paper's methods and ours, without the steps between.
const METHODS: [&str; 8] = [
    "hdd-only",
    "static",
    "lru-cache-run1",
    "lru-cache-run2",
    "otf-published",
    "tanada-cache",
    "tanada-tier",
    "tanada",
];

const METRICS: [(&str, &str); 5] = [
    ("fast_share_percent", "percent"),
    ("mean_ms", "ms"),
    ("p95_ms", "ms"),
    ("p99_ms", "ms"),
    ("joules", "J"),
];

/// `both` becomes the default if it is never worse than `cache` by more than this.
const WORSE_MAX: f64 = 1.02;

/// The names of the cases.
pub(super) fn cases() -> [&'static str; 3] {
    HELD_OUT.map(|case| case.name)
}

/// Runs what of it is a part of `options`, at most `at_most` of each window, and judges it if all of it is.
///
/// # Errors
/// As of any run.
pub(super) fn run(
    options: &Options<'_>,
    at_most: Option<Nanos>,
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, ExperimentError> {
    let part = options.part;
    let seeds = match at_most {
        Some(_) => QUICK_SEEDS,
        None => SEEDS,
    };
    let mut setups = bed::setups();
    setups.retain(|setup| {
        let mut methods = setup.methods.iter();
        methods.any(|method| METHODS.contains(method) && part.has_method(method))
    });
    let mut samples = Samples::new();
    let wanted = HELD_OUT.iter().filter(|case| part.has_case(case.name));
    let rounds: Vec<_> = wanted
        .flat_map(|case| seeds.clone().map(move |seed| (case, seed)))
        .collect();
    for (n, (case, seed)) in rounds.iter().enumerate() {
        // One workload at a time: each takes a hundred megabytes.
        let mut workload = case.load(*seed, None, at_most)?;
        workload.busiest.truncate(PLACED);
        let runs = setups.iter().map(|setup| Run {
            workload: &workload,
            setup,
            seed: *seed,
        });
        let share = |done: f64| (n as f64 + done) / rounds.len() as f64;
        let mut of_round = |what: &str, done: f64| progress(what, share(done));
        measure(runs.collect(), &mut samples, journal, &mut of_round)?;
    }
    let found = HeldOut {
        samples,
        short: at_most.is_some(),
    };
    let mut rows = found.rows();
    if part.is_whole() {
        rows.extend(found.claims());
    }
    Ok(rows)
}

struct HeldOut {
    samples: Samples,
    short: bool,
}

/// A bar, the figure that is judged by it, and whether more of it is better.
struct Claim {
    case: &'static str,
    method: &'static str,
    metric: String,
    unit: &'static str,
    bar: f64,
    ours: f64,
    more: bool,
    what: String,
}

impl HeldOut {
    fn values(&self, case: &'static str, method: &'static str, metric: &str) -> Vec<f64> {
        let samples = self
            .samples
            .get(&(case, method))
            .map_or(&[][..], Vec::as_slice);
        samples
            .iter()
            .filter_map(|sample| sample.of(metric))
            .collect()
    }

    fn mean(&self, case: &'static str, method: &'static str, metric: &str) -> f64 {
        let values = self.values(case, method, metric);
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for case in cases() {
            for method in METHODS
                .into_iter()
                .filter(|method| self.samples.contains_key(&(case, *method)))
            {
                for (metric, unit) in METRICS {
                    let values = self.values(case, method, metric);
                    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
                    let ours = (!values.is_empty()).then_some(mean);
                    rows.push(
                        row("held-out", case, method, metric, unit)
                            .measured(ours)
                            .over(&values),
                    );
                }
            }
        }
        rows
    }

    fn claims(&self) -> Vec<Row> {
        let mut claims = Vec::new();
        for case in cases() {
            claims.extend(self.published(case));
            claims.extend(self.weakness(case));
            claims.push(self.fast_share(case));
            claims.extend(self.ours(case));
            claims.push(self.default_mode(case));
        }
        claims.into_iter().map(|claim| self.judged(claim)).collect()
    }

    /// The published method finds what is hot now: more than static tiering has.
    fn published(&self, case: &'static str) -> [Claim; 3] {
        let share = |method| self.mean(case, method, "fast_share_percent");
        let points = match case {
            "src1-0 held-out" => 20.0,
            "src1-1 held-out" => 40.0,
            _ => 0.0,
        };
        let others = [
            ("static", points),
            ("lru-cache-run1", 0.0),
            ("lru-cache-run2", 0.0),
        ];
        others.map(|(other, bar)| Claim {
            case,
            method: "otf-published",
            metric: format!("points of fast share above {other}"),
            unit: "points",
            bar,
            ours: share("otf-published") - share(other),
            more: true,
            what: "the published method serves more from the SSD".to_owned(),
        })
    }

    /// Where the paper saw moving cost more than it brings.
    fn weakness(&self, case: &'static str) -> Vec<Claim> {
        let ms = |method| self.mean(case, method, "mean_ms");
        let beside = |other: &'static str| Claim {
            case,
            method: "otf-published",
            metric: format!("ms of mean response above {other}"),
            unit: "ms",
            bar: 0.0,
            ours: ms("otf-published") - ms(other),
            more: true,
            what: "the published weakness appears: moving costs more than it brings".to_owned(),
        };
        match case {
            "src1-1 held-out" => Vec::from(["static", "lru-cache-run2"].map(beside)),
            _ => Vec::new(),
        }
    }

    /// Ours serves as much from the SSD as the best of all others.
    fn fast_share(&self, case: &'static str) -> Claim {
        let share = |method: &'static str| (self.mean(case, method, "fast_share_percent"), method);
        let rivals = METHODS.into_iter().filter(|method| *method != "tanada");
        let best = rivals.map(share).max_by(|a, b| a.0.total_cmp(&b.0));
        let (bar, best) = best.expect("there are others");
        Claim {
            case,
            method: "tanada",
            metric: "fast share".to_owned(),
            unit: "percent",
            bar,
            ours: share("tanada").0,
            more: true,
            what: format!("at least the share of the best method, {best}"),
        }
    }

    /// Our defaults beside the best of the others.
    fn ours(&self, case: &'static str) -> [Claim; 3] {
        const RIVALS: [&str; 3] = ["static", "lru-cache-run2", "otf-published"];
        ["mean_ms", "p95_ms", "p99_ms"].map(|metric| {
            let of = |method: &'static str| (self.mean(case, method, metric), method);
            let rivals = RIVALS.map(of).into_iter();
            let (bar, best) = rivals.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are three");
            Claim {
                case,
                method: "tanada",
                metric: metric.to_owned(),
                unit: "ms",
                bar,
                ours: self.mean(case, "tanada", metric),
                more: false,
                what: format!("no more than the best of static tiering, the warm LRU cache and the published method: {best}"),
            }
        })
    }

    /// Which mode should be the default?
    fn default_mode(&self, case: &'static str) -> Claim {
        let ms = |method| self.mean(case, method, "mean_ms");
        Claim {
            case,
            method: "tanada",
            metric: "mean response over tanada-cache's".to_owned(),
            unit: "times",
            bar: WORSE_MAX,
            ours: ms("tanada") / ms("tanada-cache"),
            more: false,
            what: "cache and tier together are no worse than the cache alone by more than 2 %"
                .to_owned(),
        }
    }

    fn judged(&self, claim: Claim) -> Row {
        let is_met = match claim.more {
            true => claim.ours >= claim.bar,
            false => claim.ours <= claim.bar,
        };
        let row = row(
            "held-out claims",
            claim.case,
            claim.method,
            &claim.metric,
            claim.unit,
        )
        .measured(claim.ours.is_finite().then_some(claim.ours))
        .claimed(claim.bar, is_met)
        .noted(claim.what);
        match self.short {
            true => row.judged(Verdict::NotJudged),
            false => row,
        }
    }
}

fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str) -> Row {
    Row::modelled(LISTING.name, table, case, method, metric, unit).evidence(Evidence::HeldOut)
}
