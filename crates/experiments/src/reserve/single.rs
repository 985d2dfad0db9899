//! Table 2 and figures 3 to 5: one access alone, and two.
//!
//! Source: PROBS 4.1 (table 2, figure 3), 4.2 (figures 4 and 5: the second access comes two seconds after the first).

use base::{Bytes, Instant};
use policy::share::violations::{Violations, Window, percent};
use policy::share::{BytesPerSec, Direction, Terms};
use report::{Evidence, Row};

use super::bed::{Client, IO, Method, OBJECT, Run, run, with_rates};
use super::page::Curve;
use super::plan::{Base, Found, Piece, Plan, mb, piece, row, spread};
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
        let evidence = match (configuration, direction) {
            ("PROBS-CSUM", Direction::Write) => Evidence::Measured,
            _ => Evidence::Calibrated,
        };
        let row = |metric, published, ours| {
            row("table 2", &case, "model", metric, "MB/s", Some(ours))
                .printed(Some(published))
                .evidence(evidence)
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

/// Measures a single access.
pub(super) fn access(plan: &Plan) -> Base {
    Base {
        read: access_of(plan, Direction::Read, IO),
        write: access_of(plan, Direction::Write, IO),
    }
}

/// What a single access with requests of `io` gets.
pub(super) fn access_of(plan: &Plan, direction: Direction, io: Bytes) -> BytesPerSec {
    let terms = Terms::reserved(direction, BytesPerSec::mb(100));
    let client = Client::new(terms, Instant(0)).asking(io);
    let end = Instant(0) + plan.figures;
    let all = plan.seeds().map(|seed| {
        run(&Method::rounds(64), plan.times, &[client], end, seed)
            .total()
            .0
    });
    BytesPerSec(all.sum::<u64>() / plan.seeds)
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
    let pair = Pair {
        plan,
        base,
        direction,
        figure,
        parts: if figure == 4 { [1, 1] } else { [2, 1] },
    };
    let mut found = Found::default();
    for ios in ROUNDS {
        let runs = pair.runs(&Method::rounds(ios), 10.0);
        let values = OVERHEADS.map(|overhead| (overhead, pair.violated(&runs, ios, overhead)));
        pair.add(&mut found, ("rounds", ios), &values, &runs);
    }
    let runs = OVERHEADS.map(|overhead| pair.runs(&Method::all()[3], overhead));
    for ios in ROUNDS {
        let values = OVERHEADS.iter().zip(&runs);
        let values: Vec<(f64, Option<f64>)> = values
            .map(|(overhead, runs)| (*overhead, pair.violated(runs, ios, *overhead)))
            .collect();
        pair.add(&mut found, ("tags", ios), &values, &runs[3]);
    }
    found
}

/// Figure 4's figures of the published method with rounds of 64.
pub(super) fn two_equal(plan: &Plan, base: &Base, direction: Direction) -> Vec<Row> {
    let pair = Pair {
        plan,
        base,
        direction,
        figure: 4,
        parts: [1, 1],
    };
    let runs = pair.runs(&Method::rounds(64), 10.0);
    let values = OVERHEADS.map(|overhead| (overhead, pair.violated(&runs, 64, overhead)));
    let mut found = Found::default();
    pair.add(&mut found, ("rounds", 64), &values, &runs);
    found.rows
}

/// Two accesses, of a figure.
struct Pair<'a> {
    plan: &'a Plan,
    base: &'a Base,
    direction: Direction,
    figure: u32,
    /// Their parts of what is usable.
    parts: [u64; 2],
}

impl Pair<'_> {
    fn sum(&self) -> u64 {
        self.parts[0] + self.parts[1]
    }

    /// What each reserves where so much is set aside.
    fn rates(&self, overhead: f64) -> [BytesPerSec; 2] {
        let usable = self.base.of(self.direction).0 as f64 * (1.0 - overhead / 100.0);
        let sum = self.sum() as f64;
        self.parts
            .map(|part| BytesPerSec((usable * part as f64 / sum) as u64))
    }

    fn runs(&self, method: &Method, overhead: f64) -> Vec<Run> {
        let end = Instant(0) + self.plan.figures;
        let clients = with_rates(self.direction, &self.rates(overhead));
        self.plan
            .seeds()
            .map(|seed| run(method, self.plan.times, &clients, end, seed))
            .collect()
    }

    fn violated(&self, runs: &[Run], ios: u64, overhead: f64) -> Option<f64> {
        let mut each = [Violations::default(); 2];
        for run in runs {
            for (at, rate) in self.rates(overhead).iter().enumerate() {
                let window = (ios * self.parts[at]).div_ceil(self.sum());
                let window = Window::Bytes(Bytes(IO.0 * window));
                let seen = Violations::count(*rate, &run.got[at].throughputs(window));
                each[at].below += seen.below;
                each[at].of += seen.of;
            }
        }
        percent(&each)
    }

    /// Adds a method's rows and its curve: violated windows by overhead, and the total of `runs`.
    fn add(
        &self,
        found: &mut Found,
        (method, ios): (&str, u64),
        values: &[(f64, Option<f64>)],
        runs: &[Run],
    ) {
        let (figure, direction) = (self.figure, self.direction);
        let table = format!("figure {figure}");
        let mut add = |case: &str, metric, value| {
            let row = row(&table, case, method, metric, "percent", value);
            found.rows.push(row);
        };
        for (overhead, value) in values {
            let case = format!("{direction} sround={ios} overhead={overhead}%");
            add(&case, "violation_percent", *value);
        }
        let total = runs.iter().map(|run| mb(run.total())).sum::<f64>() / runs.len() as f64;
        let share = 100.0 * total / mb(self.base.of(direction));
        let case = format!("{direction} sround={ios}");
        add(&case, "total_percent_of_base", Some(share));
        let points = values.iter();
        found.curves.push(Curve {
            figure,
            chart: format!("Two {direction}s"),
            name: format!("{method}, SROUND {ios}"),
            points: points
                .filter_map(|(overhead, value)| Some((overhead / 100.0, (*value)? / 100.0)))
                .collect(),
        });
    }
}

pub(super) fn pieces<'a>(plan: &'a Plan, base: &'a Base) -> Vec<Piece<'a>> {
    let mut pieces = vec![piece("table 2", None, "the model", || table2_rows(plan))];
    for direction in Direction::ALL {
        let of = |figure| format!("figure {figure}, {direction}s");
        pieces.push(piece("figure 3", None, of(3), move || {
            figure3(plan, direction)
        }));
        for (table, figure) in [("figure 4", 4), ("figure 5", 5)] {
            pieces.push(piece(table, None, of(figure), move || {
                figures4_5(plan, base, direction, figure)
            }));
        }
    }
    pieces
}
