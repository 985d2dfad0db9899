//! What is reported: each side by itself, the floor, by how much they differ, and whether that is little enough.
//!
//! ```text
//! samples -> "virtual time" | "real time", "floor" -> "difference": raw, less the floor -> "claims"
//! ```

use report::{Devices, Row};
use trace::Request;

use super::cases::{Case, Extent};
use super::common::{LISTING, REAL, VIRTUAL};
use super::sample::{Count, Sample, TIMES, bytes_off_percent, mean, off_percent};

/// The real mean and p99 are so near to the virtual ones, the floor taken off, in percent.
const NEAR: f64 = 5.0;
/// So near is each count of bytes.
const NEAR_BYTES: f64 = 1.0;
/// The method of differences of which the floor was taken off.
const LESS_FLOOR: &str = "real-less-floor";

/// All runs of one case.
pub(super) struct Found {
    case: &'static str,
    /// Is there anything to ask?
    is_there: bool,
    pub modelled: Vec<Sample>,
    pub real: Vec<Sample>,
}

impl Found {
    pub fn new(case: &Case, requests: &Option<Vec<Request>>) -> Found {
        Found {
            case: case.name,
            is_there: requests.is_some(),
            modelled: Vec::new(),
            real: Vec::new(),
        }
    }

    /// A row of this case; virtual figures are about models, all others about programs in real time.
    fn row(&self, table: &str, method: &str, metric: &str, unit: &str, values: &[f64]) -> Row {
        let devices = match method {
            VIRTUAL => Devices::Modelled,
            _ => Devices::Emulated,
        };
        Row::modelled(LISTING.name, table, self.case, method, metric, unit)
            .on(devices)
            .measured(mean(values))
            .over(values)
    }

    /// The figures of one side.
    fn side(&self, table: &str, method: &str, samples: &[Sample]) -> Vec<Row> {
        let Some(first) = samples.first() else {
            return Vec::new();
        };
        let mut rows: Vec<Row> = TIMES
            .iter()
            .enumerate()
            .map(|(at, metric)| self.row(table, method, metric, "ms", &time(samples, at)))
            .collect();
        let requests: Vec<f64> = samples.iter().map(|it| it.requests as f64).collect();
        rows.push(self.row(table, method, "requests", "requests", &requests));
        for (at, count) in first.counts.iter().enumerate() {
            let mb: Vec<f64> = bytes(samples, at).iter().map(|it| it / 1e6).collect();
            let metric = format!("{}_mb", count.name);
            rows.push(self.row(table, method, &metric, "MB", &mb));
        }
        rows
    }

    /// What the path takes by itself.
    fn floor(&self) -> Vec<Row> {
        let floors: Vec<[f64; 2]> = self.real.iter().filter_map(|it| it.floor).collect();
        if floors.is_empty() {
            return Vec::new();
        }
        let of = |at: usize| -> Vec<f64> { floors.iter().map(|it| it[at]).collect() };
        let names = ["mean_ms", "p50_ms"].iter().enumerate();
        names
            .map(|(at, metric)| self.row("floor", REAL, metric, "ms", &of(at)))
            .collect()
    }

    /// By how much times differ: as they came out, and without the floor.
    fn times_off(&self, at: usize, less_floor: bool) -> Vec<f64> {
        let of_run = |sample: &Sample| match less_floor {
            true => sample.less_floor()[at],
            false => sample.times[at],
        };
        let real: Vec<f64> = self.real.iter().map(of_run).collect();
        off_percent(&real, &time(&self.modelled, at))
    }

    /// By how much each count differs.
    fn counts_off(&self) -> Vec<(&Count, Vec<f64>)> {
        let names = self.modelled.first().map_or(&[][..], |it| &it.counts);
        let off = |at| bytes_off_percent(&bytes(&self.real, at), &bytes(&self.modelled, at));
        let each = names.iter().enumerate();
        each.map(|(at, count)| (count, off(at))).collect()
    }

    fn differences(&self) -> Vec<Row> {
        if self.modelled.is_empty() || self.real.is_empty() {
            return Vec::new();
        }
        let row = |method, metric: &str, values: &[f64]| {
            self.row("difference", method, metric, "percent", values)
        };
        let mut rows = Vec::new();
        for (method, less_floor) in [(REAL, false), (LESS_FLOOR, true)] {
            for (at, metric) in TIMES.iter().enumerate() {
                rows.push(row(method, metric, &self.times_off(at, less_floor)));
            }
        }
        for (count, off) in self.counts_off() {
            rows.push(row(REAL, &format!("{}_mb", count.name), &off));
        }
        rows
    }

    fn claims(&self, quick: bool) -> Vec<Row> {
        if self.modelled.is_empty() || self.real.is_empty() {
            return Vec::new();
        }
        let claim = |metric: &str, bar: f64, off: &[f64], note: String| {
            let is_met = mean(off).is_some_and(|off| off.abs() <= bar);
            let row = self.row("claims", REAL, metric, "percent", off);
            row.claimed(bar, is_met).noted(note).unjudged_if(quick)
        };
        let mut rows = Vec::new();
        for (metric, at) in [("mean_off", 0), ("p99_off", 3)] {
            let raw = mean(&self.times_off(at, false)).unwrap_or_default();
            let note = format!(
                "beside virtual time, the floor taken off; {raw:.1} % with it; {}",
                spread(&time(&self.modelled, at))
            );
            rows.push(claim(metric, NEAR, &self.times_off(at, true), note));
        }
        let size = |off: &[f64]| mean(off).unwrap_or_default().abs();
        let counts = self.counts_off().into_iter().enumerate();
        let counts = counts.filter(|(_, (count, _))| !count.is_drawn);
        if let Some((at, (count, off))) =
            counts.max_by(|a, b| size(&a.1.1).total_cmp(&size(&b.1.1)))
        {
            let note = format!(
                "of all counts the one that differs most: {}; {}",
                count.name,
                spread(&bytes(&self.modelled, at))
            );
            rows.push(claim("bytes_off", NEAR_BYTES, &off, note));
        }
        rows
    }
}

/// How far runs that ought to be alike are apart: what differs by less than that is not told by these runs.
fn spread(virtual_runs: &[f64]) -> String {
    let middle = mean(virtual_runs).unwrap_or_default();
    let off = virtual_runs
        .iter()
        .map(|it| (it / middle - 1.0).abs() * 100.0);
    let most = off.filter(|it| it.is_finite()).fold(0.0, f64::max);
    format!("runs in virtual time lie up to {most:.1} % from their mean")
}

fn time(samples: &[Sample], at: usize) -> Vec<f64> {
    samples.iter().map(|it| it.times[at]).collect()
}

fn bytes(samples: &[Sample], at: usize) -> Vec<f64> {
    let of_run = |sample: &Sample| sample.counts.get(at).map(|it| it.bytes as f64);
    samples.iter().filter_map(of_run).collect()
}

/// All rows, table by table. Claims are judged where nothing is left out.
pub(super) fn rows(found: &[Found], extent: &Extent, whole: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = found.iter().filter_map(absent).collect();
    rows.extend(
        found
            .iter()
            .flat_map(|it| it.side("virtual time", VIRTUAL, &it.modelled)),
    );
    rows.extend(
        found
            .iter()
            .flat_map(|it| it.side("real time", REAL, &it.real)),
    );
    rows.extend(found.iter().flat_map(Found::floor));
    rows.extend(found.iter().flat_map(Found::differences));
    if whole {
        rows.extend(found.iter().flat_map(|it| it.claims(extent.quick)));
    }
    rows
}

/// A case that was left out says so.
fn absent(found: &Found) -> Option<Row> {
    let row = || found.row("left out", VIRTUAL, "requests", "requests", &[]);
    let why = "left out: the recorded trace is not in the folder of public traces (TANADA_SHARED)";
    (!found.is_there).then(|| row().noted(why))
}

#[cfg(test)]
mod tests {
    use report::{Value, Verdict};

    use super::super::cases::CASES;
    use super::*;
    use crate::experiment::Options;

    fn sample(mean_ms: f64, bytes: u64, floor: Option<[f64; 2]>) -> Sample {
        Sample {
            requests: 10,
            times: [mean_ms, mean_ms, mean_ms, 2.0 * mean_ms],
            counts: vec![Count::new("hdd0_read", bytes), Count::new("hit", 0)],
            floor,
        }
    }

    fn found() -> Found {
        let floor = Some([0.5, 0.4]);
        Found {
            modelled: vec![
                sample(9.0, 100_000_000, None),
                sample(11.0, 100_000_000, None),
            ],
            real: vec![
                sample(10.5, 103_000_000, floor),
                sample(11.1, 103_000_000, floor),
            ],
            ..Found::new(&CASES[1], &Some(Vec::new()))
        }
    }

    fn made(quick: bool, whole: bool) -> Vec<Row> {
        let options = Options {
            quick,
            ..Options::default()
        };
        rows(&[found()], &Extent::of(&options), whole)
    }

    fn ours(rows: &[Row], table: &str, method: &str, metric: &str) -> f64 {
        let mut here = rows
            .iter()
            .filter(|row| row.table == table && row.method == method);
        let row = here.find(|row| row.metric == metric).expect("it is there");
        row.ours.as_ref().and_then(Value::number).unwrap()
    }

    #[test]
    fn the_difference_stands_with_the_floor_and_without() {
        let rows = made(false, true);
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        near(ours(&rows, "difference", REAL, "mean_ms"), 8.0);
        near(ours(&rows, "difference", LESS_FLOOR, "mean_ms"), 3.0);
        near(ours(&rows, "difference", LESS_FLOOR, "p99_ms"), 6.0);
        near(ours(&rows, "difference", REAL, "hdd0_read_mb"), 3.0);
        near(ours(&rows, "floor", REAL, "p50_ms"), 0.4);
        near(ours(&rows, "real time", REAL, "hdd0_read_mb"), 103.0);
    }

    #[test]
    fn claims_are_judged_by_their_bars_and_in_a_short_run_or_a_part_not_at_all() {
        let verdicts = |rows: &[Row]| -> Vec<(String, Option<Verdict>)> {
            let claims = rows.iter().filter(|row| row.table == "claims");
            claims
                .map(|row| (row.metric.clone(), row.verdict))
                .collect()
        };
        let named = |names: [&str; 3], verdict: [Verdict; 3]| -> Vec<(String, Option<Verdict>)> {
            let pairs = names.into_iter().zip(verdict);
            pairs
                .map(|(name, it)| (name.to_owned(), Some(it)))
                .collect()
        };
        let names = ["mean_off", "p99_off", "bytes_off"];
        let judged = [Verdict::Holds, Verdict::Fails, Verdict::Fails];
        assert_eq!(verdicts(&made(false, true)), named(names, judged));
        let rows = made(false, true);
        let mut claims = rows.iter().filter(|row| row.table == "claims");
        assert!(
            claims
                .next()
                .is_some_and(|row| row.note.ends_with("up to 10.0 % from their mean"))
        );
        assert_eq!(
            verdicts(&made(true, true)),
            named(names, [Verdict::NotJudged; 3])
        );
        assert!(verdicts(&made(false, false)).is_empty());
    }

    #[test]
    fn no_table_has_figures_of_both_sides() {
        let rows = made(false, true);
        for row in &rows {
            let same = rows.iter().filter(|other| other.table == row.table);
            assert!(same.map(|it| it.devices).all(|it| it == row.devices));
        }
        let mut names: Vec<_> = rows
            .iter()
            .map(|row| (&row.table, &row.case, &row.method, &row.metric))
            .collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_case_without_its_trace_says_why_it_is_left_out() {
        let absent = Found::new(&CASES[0], &None);
        let extent = Extent::of(&Options::default());
        let rows = rows(&[absent], &extent, true);
        assert_eq!(rows.len(), 1);
        assert!(rows[0].note.starts_with("left out: the recorded trace"));
    }
}
