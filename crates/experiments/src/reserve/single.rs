//! Table 2 and figures 3 to 5: one access alone, and two.
//!
//! Source: PROBS 4.1 (table 2, figure 3), 4.2 (figures 4 and 5: the second access comes two seconds after the first).

use base::{Bytes, Instant};
use policy::share::violations::{Violations, Window, percent};
use policy::share::{BytesPerSec, Direction, Terms};

use super::bed::{Client, IO, Method, OBJECT, Run, run, with_rates};
use super::page::Curve;
use super::plan::{Base, Found, Job, Plan, mb, row, spread};
use super::vertex::Times;

/// The paper's table 2.
const TABLE2: &str = include_str!("../../../../experiments/reserve/table2_single_access.csv");
/// Rounds of the figures. Source: PROBS table 1 and 4.1.
const ROUNDS: [u64; 5] = [8, 16, 32, 64, 128];
/// Overheads of figures 4 and 5, in percent. Source: PROBS 4.2.
const OVERHEADS: [f64; 9] = [1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 20.0, 25.0, 30.0];

/// The paper's own sums: what they add to a read, 196 MB/s in place of 236.
const THEIR_SUMS: BytesPerSec = BytesPerSec(1_156_000_000);
/// Ours: CRC-32C of pages of 4 KiB, a core of 2020's. Measured where this was written, 27 to 36 GB/s; the least stands.
const OUR_SUMS: BytesPerSec = BytesPerSec(26_900_000_000);

fn alone(plan: &Plan, method: &Method, times: Times, direction: Direction, many: u64) -> Vec<Run> {
    let terms = Terms::reserved(direction, BytesPerSec::mb(100));
    let client = Client {
        outstanding: many,
        ..Client::new(terms, Instant(0))
    };
    let end = Instant(0) + plan.figures;
    plan.seeds()
        .map(|seed| run(method, times, &[client], end, seed))
        .collect()
}

fn throughputs(runs: &[Run], window: Bytes) -> Vec<f64> {
    let window = Window::Bytes(window);
    let all = runs.iter().flat_map(|run| run.got[0].throughputs(window));
    all.map(mb).collect()
}

/// One line of table 2.
fn table2(plan: &Plan, direction: Direction, configuration: &str) -> (f64, f64) {
    let store = Times::STORE;
    let (times, through) = match configuration {
        "Direct" => (Times::DIRECT, false),
        "Direct-INIT" => (Times::DIRECT.fresh(), false),
        "PROBS" => (store, true),
        "PROBS-INIT" => (store.fresh(), true),
        "PROBS-CSUM" => (store.with_sums(THEIR_SUMS), true),
        "tanada" => (store.with_sums(OUR_SUMS), true),
        other => unreachable!("no configuration {other}"),
    };
    // Directly, 1 MiB after the other; through the store objects of 4 MiB in rounds of as much.
    let (method, many, window) = match through {
        true => (Method::rounds(4), 4, OBJECT),
        false => (Method::direct(), 1, IO),
    };
    let runs = alone(plan, &method, times, direction, many);
    spread(&throughputs(&runs, window))
}

fn lines() -> impl Iterator<Item = (Direction, &'static str, f64, f64)> {
    TABLE2.lines().skip(1).map(|line| {
        let mut fields = line.split(',');
        let mut field = || fields.next().expect("our own files have all their fields");
        let direction = match field() {
            "Read" => Direction::Read,
            _ => Direction::Write,
        };
        let configuration = field();
        let mut number = || field().parse::<f64>().expect("a number");
        (direction, configuration, number(), number())
    })
}

fn table2_rows(plan: &Plan) -> Found {
    let mut found = Found::default();
    for (direction, configuration, mean, deviation) in lines() {
        let (ours, spread) = table2(plan, direction, configuration);
        let case = format!("{direction} {configuration}");
        let note = match (configuration, direction) {
            ("PROBS-CSUM", Direction::Write) => {
                "the model's sums take their time from every byte in turn; the paper's writes hid most of theirs"
            }
            ("PROBS-CSUM", _) => "the paper's sums as fast as its reads tell",
            _ => "what the model is calibrated to",
        };
        let row = |metric, published, ours| {
            row("table 2", &case, "model", metric, "MB/s", Some(ours))
                .printed(Some(published))
                .noted(note)
        };
        found.rows.push(row("mean_mb_s", mean, ours));
        found.rows.push(row("sd_mb_s", deviation, spread));
    }
    for direction in Direction::ALL {
        let (without, _) = table2(plan, direction, "PROBS");
        for (method, configuration) in [("published", "PROBS-CSUM"), ("tanada", "tanada")] {
            let (with, _) = table2(plan, direction, configuration);
            let cost = 100.0 * (1.0 - with / without);
            let printed = |of: &str| {
                let line = lines().find(|line| (line.0, line.1) == (direction, of));
                line.expect("the table has it").2
            };
            let published = 100.0 * (1.0 - printed("PROBS-CSUM") / printed("PROBS"));
            let case = format!("{direction} checksums");
            let note = match method {
                "tanada" => {
                    "CRC-32C of pages of 4 KiB at 26.9 GB/s: a constant, not measured in this run; nothing else at the device meanwhile"
                }
                _ => "at 1.16 GB/s, from the paper's reads",
            };
            let row = row(
                "checksums",
                &case,
                method,
                "cost_percent",
                "percent",
                Some(cost),
            );
            let published = (method == "published").then_some(published);
            found.rows.push(row.printed(published).noted(note));
        }
    }
    found
}

/// Figure 3: one access, how its throughput by rounds spreads.
fn figure3(plan: &Plan, direction: Direction) -> Found {
    let mut found = Found::default();
    for ios in ROUNDS {
        let runs = alone(plan, &Method::rounds(ios), Times::STORE, direction, 4);
        let mut rates = throughputs(&runs, IO * ios);
        let (mean, deviation) = spread(&rates);
        let case = format!("{direction} sround={ios}");
        let row = |metric, ours| {
            row("figure 3", &case, "rounds", metric, "MB/s", Some(ours)).over(&rates)
        };
        let remark = format!("one measurement a round, {} of them", rates.len());
        found.rows.push(row("mean_mb_s", mean).noted(&*remark));
        found.rows.push(row("sd_mb_s", deviation).noted(&*remark));
        rates.sort_by(f64::total_cmp);
        let n = rates.len() as f64;
        let points = rates.iter().enumerate();
        found.curves.push(Curve {
            figure: 3,
            chart: format!("Throughput of one access, {direction}s"),
            name: format!("SROUND {ios}"),
            points: points
                .map(|(at, rate)| (rate * 1e6, (at + 1) as f64 / n))
                .collect(),
        });
    }
    found
}

/// Figures 4 (equal parts) and 5 (2:1): two accesses, measured by their parts of a round.
fn figures4_5(plan: &Plan, base: &Base, direction: Direction, figure: u32) -> Found {
    let parts: [u64; 2] = if figure == 4 { [1, 1] } else { [2, 1] };
    let sum = parts[0] + parts[1];
    let rates_at = |overhead: f64| {
        let usable = base.of(direction).0 as f64 * (1.0 - overhead / 100.0);
        parts.map(|part| BytesPerSec((usable * part as f64 / sum as f64) as u64))
    };
    let end = Instant(0) + plan.figures;
    let runs_of = |method: &Method, overhead| -> Vec<Run> {
        let clients = with_rates(direction, &rates_at(overhead));
        plan.seeds()
            .map(|seed| run(method, Times::STORE, &clients, end, seed))
            .collect()
    };
    let violated = |runs: &[Run], ios: u64, overhead| {
        let mut each = [Violations::default(); 2];
        for run in runs {
            for (at, rate) in rates_at(overhead).iter().enumerate() {
                let window = Window::Bytes(Bytes(IO.0 * (ios * parts[at]).div_ceil(sum)));
                let seen = Violations::count(*rate, &run.got[at].throughputs(window));
                each[at].below += seen.below;
                each[at].of += seen.of;
            }
        }
        percent(&each)
    };
    let mut found = Found::default();
    let table = format!("figure {figure}");
    let mut add = |method: &str, ios: u64, values: Vec<(f64, Option<f64>)>, total: f64| {
        for (overhead, value) in &values {
            let case = format!("{direction} sround={ios} overhead={overhead}%");
            let row = row(
                &table,
                &case,
                method,
                "violation_percent",
                "percent",
                *value,
            );
            found.rows.push(row);
        }
        let case = format!("{direction} sround={ios}");
        let share = 100.0 * total / mb(base.of(direction));
        let row = row(
            &table,
            &case,
            method,
            "total_percent_of_base",
            "percent",
            Some(share),
        );
        found.rows.push(row);
        let points = values.iter();
        found.curves.push(Curve {
            figure,
            chart: format!("Two {direction}s"),
            name: format!("{method}, SROUND {ios}"),
            points: points
                .filter_map(|(overhead, value)| Some((overhead / 100.0, (*value)? / 100.0)))
                .collect(),
        });
    };
    let total =
        |runs: &[Run]| runs.iter().map(|run| mb(run.total())).sum::<f64>() / runs.len() as f64;
    for ios in ROUNDS {
        let runs = runs_of(&Method::rounds(ios), 10.0);
        let values = OVERHEADS.map(|overhead| (overhead, violated(&runs, ios, overhead)));
        add("rounds", ios, values.to_vec(), total(&runs));
    }
    let runs = OVERHEADS.map(|overhead| runs_of(&Method::all()[3], overhead));
    for ios in ROUNDS {
        let values = OVERHEADS.iter().zip(&runs);
        let values = values.map(|(overhead, runs)| (*overhead, violated(runs, ios, *overhead)));
        add("tags", ios, values.collect(), total(&runs[3]));
    }
    found
}

pub(super) fn jobs<'a>(plan: &'a Plan, base: &'a Base) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'a>> = vec![("table 2".to_owned(), Box::new(|| table2_rows(plan)))];
    for direction in Direction::ALL {
        let work = move || figure3(plan, direction);
        jobs.push((format!("figure 3, {direction}s"), Box::new(work)));
        for figure in [4, 5] {
            let work = move || figures4_5(plan, base, direction, figure);
            jobs.push((format!("figure {figure}, {direction}s"), Box::new(work)));
        }
    }
    jobs
}
