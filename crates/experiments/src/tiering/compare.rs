//! Turns samples into rows: our figures beside the paper's, and a verdict on each claim.
//!
//! ```text
//! samples --mean, least, most over the seeds--> "measured"
//!         --tables 4 and 5, figures of the text--> "table 4", "table 5", "stated": published beside ours, and why
//!         --bars--> "claims": each one met or not, as it came out; a short run judges none
//! ```
//!
//! Always true:
//! 1. Every published figure has its row, whether ours agrees or not; so has every bar.
//! 2. Which rows there are does not depend on what was measured.

use report::{Evidence, Value};

use super::stated::{published, why};
use super::*;

pub(super) const TABLE4: &str =
    include_str!("../../../../experiments/tiering/table4_ssd_access_ratio.csv");
pub(super) const TABLE5: &str =
    include_str!("../../../../experiments/tiering/table5_mean_response.csv");
const STATED: &str = include_str!("../../../../experiments/tiering/stated_figures.csv");

/// What rows are made of.
pub(super) struct Comparison<'a> {
    pub workloads: &'a [Workload],
    pub samples: &'a Samples,
    /// Only the beginning of each window was run.
    pub short: bool,
}

/// A mean with its spread.
#[derive(Debug, Clone, Copy)]
struct Spread {
    mean: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().collect();
        (!values.is_empty()).then(|| Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// `row` with our figure and its spread over the seeds.
fn over_seeds(row: Row, spread: Option<Spread>) -> Row {
    row.measured(spread.map(|it| it.mean))
        .between(spread.map(|it| it.low), spread.map(|it| it.high))
}

/// A method of the paper's tables by its name there.
pub(super) fn method_of(published: &str) -> &'static str {
    match published {
        "OTF-AST" | "OTF-AST (temporary buffer hits)" => "otf-published",
        "OTF-AST without moves to HDD" => "otf-no-copy-back",
        "OTF-AST first 20 minutes" => "otf-published-first-20min",
        "static tiering" => "static",
        "FlashCache run 1" | "FlashCache run 1 (dirty write hits)" => "lru-cache-run1",
        "FlashCache run 2" | "FlashCache run 2 (dirty write hits)" => "lru-cache-run2",
        other => unreachable!("the paper's tables have no method {other}"),
    }
}

pub(super) fn case_of(published: &str) -> &'static str {
    match published {
        "src1_0" => "src1-0",
        "src1_1" => "src1-1",
        other => unreachable!("the paper's tables have no trace {other}"),
    }
}

/// The lines of a table, without its head.
pub(super) fn lines(csv: &str) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let line = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.expect("a table in the repository");
        record.iter().map(str::to_owned).collect()
    };
    reader.records().map(line).collect()
}

pub(super) fn number(text: &str) -> f64 {
    text.parse().expect("a figure in the repository")
}

impl Comparison<'_> {
    fn spread(&self, case: &'static str, method: &'static str, metric: &str) -> Option<Spread> {
        let samples = self.samples.get(&(case, method))?;
        Spread::of(samples.iter().filter_map(|sample| sample.of(metric)))
    }

    fn mean(&self, case: &'static str, method: &'static str, metric: &str) -> f64 {
        self.spread(case, method, metric)
            .map_or(f64::NAN, |spread| spread.mean)
    }

    fn row(&self, table: &str, case: &str, method: &str, metric: &str, unit: &str) -> Row {
        let of_case = self.workloads.iter().find(|workload| workload.case == case);
        let workload = of_case.or(self.workloads.first());
        let evidence = workload.map_or(Evidence::Measured, |workload| workload.evidence);
        Row::modelled(LISTING.name, table, case, method, metric, unit).evidence(evidence)
    }

    fn origin(&self, case: &str) -> &str {
        let workload = self.workloads.iter().find(|workload| workload.case == case);
        workload.map_or("", |workload| &workload.origin)
    }

    fn window(&self, case: &str) -> String {
        let workload = self.workloads.iter().find(|workload| workload.case == case);
        let minutes = workload.map_or(0, |workload| workload.length.0 / Nanos::secs(60).0);
        match self.short {
            true => format!("short run: the first {minutes} minutes of the window"),
            false => format!("the whole window of {minutes} minutes"),
        }
    }

    /// Every metric of every method.
    pub fn main_table(&self) -> Vec<Row> {
        let setups = bed::setups();
        let mut rows = Vec::new();
        for case in cases() {
            for setup in &setups {
                for (nth, method) in setup.methods.iter().enumerate() {
                    let part = match (nth, setup.twice()) {
                        (0, false) => self.window(case),
                        (0, true) => format!("first pass, cold cache; {}", self.window(case)),
                        (_, true) => format!("second pass, warm cache; {}", self.window(case)),
                        (_, false) => "requests due in the first 20 minutes".to_owned(),
                    };
                    for (metric, unit) in METRICS {
                        let row = self.row("measured", case, method, metric, unit);
                        let mut row = over_seeds(row, self.spread(case, method, metric));
                        row.published = self.published_of(case, method, metric);
                        row.note = format!("{}; {part}; {}", setup.about, self.origin(case));
                        rows.push(row);
                    }
                }
            }
        }
        rows
    }

    /// What tables 4 and 5 have for a figure.
    fn published_of(&self, case: &str, method: &str, metric: &str) -> Option<Value> {
        let found = published()
            .into_iter()
            .find(|known| (known.case, known.method, known.metric) == (case, method, metric));
        found.map(|known| Value::Number(known.value))
    }

    /// Tables 4 and 5 as printed, ours beside them, with the reason for each difference.
    pub fn published(&self) -> Vec<Row> {
        published()
            .into_iter()
            .map(|known| {
                let spread = self.spread(known.case, known.method, known.metric);
                let mut row = self.row(
                    known.table,
                    known.case,
                    known.method,
                    known.metric,
                    known.unit,
                );
                row.published = Some(Value::Number(known.value));
                let row = over_seeds(row, spread);
                why(&known, row, self.short)
            })
            .collect()
    }

    /// The figures of the paper's text.
    pub fn stated(&self) -> Vec<Row> {
        lines(STATED)
            .into_iter()
            .map(|line| {
                let [what, value, unit, section] = &line[..] else {
                    unreachable!("four columns in a table of the repository")
                };
                let (ours, note) = self.stated_figure(what);
                let case = match what {
                    _ if what.contains("src1_0") => "src1-0",
                    _ if what.contains("src1_1") => "src1-1",
                    _ => "both",
                };
                let mut row = self.row("stated", case, "paper", what, unit);
                row.published = Some(Value::Number(number(value)));
                row.ours = ours.filter(|ours| ours.is_finite()).map(Value::Number);
                row.note = format!("section {section}: {note}");
                row
            })
            .collect()
    }

    fn stated_figure(&self, what: &str) -> (Option<f64>, &'static str) {
        const PUBLISHED: &str = "otf-published";
        const FLIPPED: &str = "otf-no-copy-back";
        const WARM: &str = "lru-cache-run2";
        let mean = |case, method, metric| self.mean(case, method, metric);
        let ms = |case, method| mean(case, method, "mean_ms");
        let both = |of: &dyn Fn(&'static str) -> f64| {
            Some(
                cases()
                    .into_iter()
                    .map(of)
                    .fold(f64::NEG_INFINITY, f64::max),
            )
        };
        let share = |case| mean(case, PUBLISHED, "fast_share_percent");
        let up_max = |case| mean(case, PUBLISHED, "regions_up_max");
        match what {
            "largest SSD access ratio of OTF-AST" => (both(&share), "the larger of both cases"),
            "largest gain in SSD access ratio over static tiering" => {
                let gain = |case| share(case) - mean(case, "static", "fast_share_percent");
                (both(&gain), "the larger of both cases")
            }
            "largest gain in mean response over static tiering (abstract)" => {
                let gain = 100.0 * (1.0 - ms("src1-0", PUBLISHED) / ms("src1-0", "static"));
                (Some(gain), "src1-0")
            }
            "mean response, OTF-AST first 20 minutes, src1_0" => (
                Some(ms("src1-0", "otf-published-first-20min")),
                "requests due in the first 20 minutes",
            ),
            "gain in mean response over static tiering, src1_0" => (
                Some(ms("src1-0", "static") - ms("src1-0", PUBLISHED)),
                "negative: none",
            ),
            "FlashCache run 2 better than OTF-AST, src1_0" => (
                Some(ms("src1-0", PUBLISHED) - ms("src1-0", WARM)),
                "our LRU cache writes back through one cleaner in address order, the paper's does not",
            ),
            "FlashCache run 2 better than OTF-AST without moves to HDD, src1_0" => (
                Some(ms("src1-0", FLIPPED) - ms("src1-0", WARM)),
                "as the one before",
            ),
            "gain by skipping moves to HDD, src1_1" => (
                Some(ms("src1-1", PUBLISHED) - ms("src1-1", FLIPPED)),
                "on the way down the map flips and nothing is written",
            ),
            "HDD overload begins after the start of the replay" => (
                Some(mean("src1-0", PUBLISHED, "first_saturated_minute")),
                "the first 20 seconds in which all four disks are busy 98 % of the time, src1-0",
            ),
            "percentile where FlashCache overtakes OTF-AST, src1_0" => (
                self.overtaken("src1-0", PUBLISHED, WARM),
                "the first percentile from the 50th on at which the cache's distribution is ahead for good",
            ),
            "percentile up to which OTF-AST without moves to HDD leads, src1_1" => (
                self.overtaken("src1-1", FLIPPED, WARM),
                "the percentile up to which it leads",
            ),
            "response above which the overhead of src1_1 lies" => {
                let at = self.overtaken("src1-1", FLIPPED, WARM);
                let at = at.and_then(|percentile| {
                    let sample = self.samples.get(&("src1-1", FLIPPED))?.first()?;
                    Some(time_at(&sample.cdf, percentile / 100.0))
                });
                (at, "the response time at that percentile")
            }
            "most subLUNs on SSD at once (both traces)" => (
                both(&up_max),
                "the larger of both cases; the generator was made for at most 24",
            ),
            "that share of the LUN" => (
                both(&up_max).map(|most| most * 100.0 / 293.0),
                "of 293 regions",
            ),
            _ => (
                None,
                "cited there from other work; what the generator makes of it is in docs/generator.md",
            ),
        }
    }

    /// The percentile from which on `later` answers sooner than `first`.
    fn overtaken(
        &self,
        case: &'static str,
        first: &'static str,
        later: &'static str,
    ) -> Option<f64> {
        let cdf = |method| Some(&self.samples.get(&(case, method))?.first()?.cdf);
        let (first, later) = (cdf(first)?, cdf(later)?);
        let leads = |percent: &u32| {
            let share = f64::from(*percent) / 100.0;
            time_at(first, share) <= time_at(later, share)
        };
        // The last percentile at which `first` leads, of whole ones.
        (1..100).rev().find(leads).map(f64::from)
    }

    /// What must show, met or not.
    ///
    /// Choice: a short run judges nothing. It ends before most moves and fits the SSD as a whole, so what must show cannot, and
    /// what shows proves nothing.
    pub fn claims(&self) -> Vec<Row> {
        let methods = methods();
        let of_case = |case: &'static str| {
            let mean = |method, metric: &str| self.mean(case, method, metric);
            let claims = claims::of(case, &methods, &mean).into_iter();
            let rows = claims.map(|claim| {
                let row = self.row("claims", case, claim.method, claim.metric, claim.unit);
                claim.judged(row, self.short)
            });
            rows.collect::<Vec<_>>()
        };
        cases().into_iter().flat_map(of_case).collect()
    }
}

/// The time within which `share` of all were answered.
fn time_at(cdf: &[(f64, f64)], share: f64) -> f64 {
    let found = cdf.iter().find(|(_, within)| *within >= share);
    found.or(cdf.last()).map_or(f64::NAN, |(time, _)| *time)
}
