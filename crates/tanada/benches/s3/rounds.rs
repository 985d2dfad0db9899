//! What the runs found: a line for each method of each case, and the gateway beside each of the others.

use crate::figures::Results;
use crate::load::Done;
use crate::servers::{GATEWAY, PLAIN};

/// Beside this, at least so much of its rate.
pub const STORE: &str = "store's client";
const OF_THE_STORE: f64 = 0.9;

/// What is counted in one second.
#[derive(Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    /// So many in a request.
    pub each: f64,
}

/// One method of one case.
struct Line {
    case: String,
    method: &'static str,
    unit: Unit,
    runs: Vec<Done>,
}

impl Line {
    fn rates(&self) -> Vec<f64> {
        let rate = |it: &Done| it.per_second() * self.unit.each;
        self.runs.iter().map(rate).collect()
    }

    fn cpu(&self) -> Vec<f64> {
        self.runs.iter().map(|it| it.cpu_us()).collect()
    }
}

#[derive(Default)]
pub struct Rounds(Vec<Line>);

impl Rounds {
    /// One run of one method.
    pub fn add(&mut self, case: &str, method: &'static str, unit: Unit, done: Done) {
        let mut lines = self.0.iter_mut();
        match lines.find(|it| it.case == case && it.method == method) {
            Some(line) => line.runs.push(done),
            None => self.0.push(Line {
                case: case.to_owned(),
                method,
                unit,
                runs: vec![done],
            }),
        }
    }

    /// All rows: case by case its methods, then what the gateway has of each.
    pub fn show(&self, results: &mut Results) {
        let ours: Vec<&Line> = self.0.iter().filter(|it| it.method == GATEWAY).collect();
        for line in ours {
            let of_case = self.0.iter().filter(|it| it.case == line.case);
            for other in of_case.clone() {
                add(results, other, ("rate", other.unit.name), &other.rates());
                add(results, other, ("CPU a request", "us"), &other.cpu());
            }
            for other in of_case.filter(|it| it.method != GATEWAY) {
                beside(results, line, other);
            }
        }
    }
}

fn add(results: &mut Results, line: &Line, (metric, unit): (&str, &str), runs: &[f64]) {
    say(results, (&line.case, line.method, metric, unit), runs);
    let of = (&*line.case, line.method, metric, unit);
    results.add(of, runs, "real");
}

/// The gateway over another, run by run.
fn beside(results: &mut Results, ours: &Line, other: &Line) {
    let method = format!("{GATEWAY} / {}", other.method);
    let ratios = |ours: Vec<f64>, other: Vec<f64>| -> Vec<f64> {
        // What took no tick of the kernel's clock has no ratio.
        let pairs = ours.iter().zip(&other).filter(|it| *it.1 > 0.0);
        pairs.map(|(ours, other)| ours / other).collect()
    };
    let rate = match other.method {
        PLAIN => ",\"aim\":1".to_owned(),
        STORE => format!(",\"aim\":{OF_THE_STORE}"),
        _ => String::new(),
    };
    let cpu = match other.method {
        PLAIN => ",\"aim_at_most\":1",
        _ => "",
    };
    let rows = [
        ("rate", ratios(ours.rates(), other.rates()), &*rate),
        ("CPU a request", ratios(ours.cpu(), other.cpu()), cpu),
    ];
    for (metric, runs, aim) in rows {
        if runs.is_empty() {
            continue;
        }
        say(results, (&ours.case, &method, metric, "times"), &runs);
        results.more = aim.to_owned();
        results.add((&ours.case, &method, metric, "times"), &runs, "real");
        results.more.clear();
    }
}

fn say(results: &Results, (case, method, metric, unit): (&str, &str, &str, &str), runs: &[f64]) {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
    let median = sorted[sorted.len() / 2];
    results.say(&format!(
        "{case:<18} {method:<32} {metric:<14} {median:>10.2} ({low:.2} - {high:.2}) {unit}"
    ));
}
