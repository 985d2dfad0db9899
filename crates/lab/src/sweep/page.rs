//! What does a sweep look like? Each measured value against one of the parameters, and a table of all of it.

use base::Bytes;
use report::{Axis, Cell, Chart, Facts, Note, Page, Repeat, Section, Series, Table, Unit};

use super::{Figure, Plan, Results};

/// More curves in a chart cannot be distinguished.
const CURVES_MAX: usize = 16;
/// More measured values are in the table only, unless asked for.
const FIRST_MAX: usize = 6;
/// A longer table is folded at first.
const ROWS_OPEN: usize = 60;

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The parameter the charts run along; without one, the first that has several numbers.
    pub x: Option<String>,
    /// The measured values that get a chart; without any, the first few numbers.
    pub y: Vec<String>,
    /// The command that made the page.
    pub command: String,
    /// The plan as it was written.
    pub plan: Option<(String, String)>,
}

impl View {
    /// Can charts run along what it names, once the points of `plan` are there?
    ///
    /// # Errors
    /// What they cannot run along, and what there is.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), String> {
        let Some(x) = &self.x else { return Ok(()) };
        let grid = plan.grid();
        let units: Option<Vec<Unit>> = grid
            .values(x)
            .map(|figure| Some(value(figure)?.1))
            .collect();
        let along =
            |units: Vec<Unit>| !units.is_empty() && units.windows(2).all(|pair| pair[0] == pair[1]);
        match x == "seed" || units.is_some_and(along) {
            true => Ok(()),
            false => {
                let known: Vec<&str> = ["seed"].into_iter().chain(grid.keys()).collect();
                Err(no_numbers(x, &known.join(", ")))
            }
        }
    }

    /// Is everything there that it looks at?
    ///
    /// # Errors
    /// What is not, and what is.
    pub fn check(&self, results: &Results) -> Result<(), String> {
        if let Some(x) = &self.x
            && values(results, x).is_none()
        {
            return Err(no_numbers(x, &results.parameters().join(", ")));
        }
        let measured: Vec<&str> = results.measured().collect();
        match self.y.iter().find(|y| !measured.contains(&y.as_str())) {
            None => Ok(()),
            Some(y) => Err(format!(
                "'{y}' was not measured; there are {}",
                measured.join(", ")
            )),
        }
    }
}

fn no_numbers(x: &str, known: &str) -> String {
    format!("'{x}' is no parameter with numbers to draw along; there are {known}")
}

/// The page of a sweep: charts, and a table of every row.
pub fn page(results: &Results, view: &View) -> Page {
    let (plan, program) = results.identity();
    let failed = results.failed();
    let mut facts = Facts::new()
        .fact("rows", results.rows().to_string())
        .fact("failed points", failed.len().to_string())
        .fact("parameters", (results.parameters().len() - 1).to_string())
        .fact("plan", plan);
    match results.origins().as_slice() {
        [] => {}
        [one] => facts = facts.fact("trace", *one),
        [first, rest @ ..] => {
            facts = facts.fact("traces", format!("{first}, and {} more", rest.len()));
        }
    }
    let mut page = Page::new(format!("Sweep: {}", results.kind()))
        .lead("One simulation for each point; curves are means over what is not told apart, such as seeds.")
        .facts(facts);
    let x = view.x.clone().or_else(|| first_numeric(results));
    let mut charts = Section::new("Charts");
    match &x {
        Some(x) => {
            let drawn = charted(results, view);
            if drawn.is_empty() {
                charts = charts.put(Note::new("No measured number varies; the table has them."));
            }
            for y in drawn {
                charts = charts.put(chart(results, x, &y));
            }
        }
        None => {
            charts = charts.put(Note::new(
                "No parameter has several numbers to draw a chart along.",
            ));
        }
    }
    page = page
        .section(charts)
        .section(Section::new("All points").put(table(results)));
    if !failed.is_empty() {
        let head = ["point", "reason"];
        let rows = failed.iter().fold(
            Table::new("Failed points", head),
            |rows, (point, reason)| rows.row([Cell::from(*point), Cell::from(*reason)]),
        );
        page = page.section(Section::new("Failures").put(rows));
    }
    let mut repeat =
        Repeat::new(&view.command).input("plan", format!("{plan}, run by tanada {program}"));
    if let Some((name, text)) = &view.plan {
        repeat = repeat.configuration(name, text);
    }
    page.section(Section::new("Repeat").put(repeat))
}

/// A parameter on an axis: numbers, sizes and percentages as they are written.
fn value(figure: &Figure) -> Option<(f64, Unit)> {
    match figure {
        Figure::Text(text) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|share| share.trim().parse::<f64>().ok());
            if let Some(percent) = percent {
                return Some((percent / 100.0, Unit::Share));
            }
            let size = text.parse::<Bytes>().ok()?;
            Some((size.0 as f64, Unit::Bytes))
        }
        number => number.number().map(|number| (number, Unit::Number)),
    }
}

/// The values of a parameter and their common unit; `None` where some are no numbers or units differ.
fn values(results: &Results, name: &str) -> Option<(Vec<f64>, Unit)> {
    let column = results.column(name)?;
    let known: Option<Vec<(f64, Unit)>> = column.cells.iter().flatten().map(value).collect();
    let known = known.filter(|known| known.len() == results.rows())?;
    let unit = known.first()?.1.clone();
    let values = known.iter().all(|(_, other)| *other == unit);
    values.then(|| (known.into_iter().map(|(number, _)| number).collect(), unit))
}

fn first_numeric(results: &Results) -> Option<String> {
    let several = |name: &&String| {
        values(results, name)
            .is_some_and(|(values, _)| values.iter().any(|value| *value != values[0]))
    };
    // The seed comes first and is no parameter to look along, unless there is nothing else.
    let mut names = results
        .parameters()
        .iter()
        .skip(1)
        .chain(&results.parameters()[..1]);
    names.find(several).cloned()
}

/// The measured values looked at first: those asked for, else the first few numbers.
pub fn headline(results: &Results, view: &View) -> Vec<String> {
    match view.y.as_slice() {
        [] => numbers(results)
            .take(FIRST_MAX)
            .map(str::to_owned)
            .collect(),
        asked => asked.to_vec(),
    }
}

/// The measured values that are numbers at every point that has them.
fn numbers(results: &Results) -> impl Iterator<Item = &str> {
    let numeric = |name: &str| {
        let column = results.column(name);
        column.is_some_and(|column| {
            let mut cells = column.cells.iter().flatten();
            cells.clone().next().is_some() && cells.all(|cell| cell.number().is_some())
        })
    };
    results.measured().filter(move |name| numeric(name))
}

/// What gets a chart: as [`headline`], but what never changes makes none, unless it is asked for.
fn charted(results: &Results, view: &View) -> Vec<String> {
    if !view.y.is_empty() {
        return view.y.clone();
    }
    let changes = |name: &&str| {
        let column = results.column(name);
        column.is_some_and(|column| {
            let mut known = column.cells.iter().flatten();
            let first = known.next();
            known.any(|cell| Some(cell) != first)
        })
    };
    let names = numbers(results).filter(changes);
    names.take(FIRST_MAX).map(str::to_owned).collect()
}

/// The unit a name announces: `miss_ratio`, `p99_us`, `flash_bytes_written`.
fn unit_of(name: &str) -> (Unit, f64) {
    let words: Vec<&str> = name.split(['_', '.', '-']).collect();
    let has = |word: &str| words.contains(&word);
    if has("ratio") || has("share") {
        (Unit::Share, 1.0)
    } else if has("us") {
        (Unit::Seconds, 1e-6)
    } else if has("ns") {
        (Unit::Seconds, 1e-9)
    } else if has("ms") {
        (Unit::Seconds, 1e-3)
    } else if has("seconds") && !has("per") {
        (Unit::Seconds, 1.0)
    } else if has("bytes") && has("second") {
        (Unit::BytesPerSecond, 1.0)
    } else if has("bytes") {
        (Unit::Bytes, 1.0)
    } else if has("joules") {
        (Unit::Joules, 1.0)
    } else if has("watts") {
        (Unit::Watts, 1.0)
    } else if has("iops") {
        (Unit::PerSecond, 1.0)
    } else {
        (Unit::Number, 1.0)
    }
}

/// A point of a curve: the mean of several rows.
struct Mean {
    x: f64,
    sum: f64,
    count: u32,
}

fn chart(results: &Results, x: &str, y: &str) -> Chart {
    let (xs, unit) = values(results, x).unwrap_or((Vec::new(), Unit::Number));
    let (y_unit, factor) = unit_of(y);
    let spread = xs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = xs.iter().copied().fold(0.0, f64::max);
    let mut x_axis = Axis::new(x, unit);
    if spread > 0.0 && most / spread >= 30.0 {
        x_axis = x_axis.log();
    }
    let curves = curves(results, (x, &xs), (y, factor));
    let mut chart = Chart::new(format!("{y} by {x}"), x_axis, Axis::new(y, y_unit));
    if curves.len() > CURVES_MAX {
        chart = chart.about(format!(
            "The first {CURVES_MAX} of {} curves; the table has them all.",
            curves.len()
        ));
    }
    for (name, points) in curves.into_iter().take(CURVES_MAX) {
        let means = points
            .into_iter()
            .map(|point| (point.x, point.sum / f64::from(point.count)));
        chart = chart.series(Series::new(name, means));
    }
    chart
}

/// Means of `y` along `x`: a curve for each combination of the other parameters that vary.
fn curves(
    results: &Results,
    (x, xs): (&str, &[f64]),
    (y, factor): (&str, f64),
) -> Vec<(String, Vec<Mean>)> {
    let others: Vec<&String> = results
        .parameters()
        .iter()
        .skip(1)
        .filter(|name| *name != x && varies(results, name))
        .collect();
    let mut curves: Vec<(String, Vec<Mean>)> = Vec::new();
    for (row, x) in xs.iter().enumerate() {
        let Some(number) = results.cell(row, y).and_then(Figure::number) else {
            continue;
        };
        let name = match others.as_slice() {
            [] => y.to_owned(),
            others => {
                let values = others
                    .iter()
                    .filter_map(|name| Some(results.cell(row, name)?.to_string()));
                values.collect::<Vec<_>>().join(", ")
            }
        };
        let at = curves.iter().position(|(known, _)| *known == name);
        let at = at.unwrap_or_else(|| {
            curves.push((name, Vec::new()));
            curves.len() - 1
        });
        let points = &mut curves[at].1;
        match points.iter_mut().find(|point| point.x == *x) {
            Some(point) => {
                point.sum += number * factor;
                point.count += 1;
            }
            None => points.push(Mean {
                x: *x,
                sum: number * factor,
                count: 1,
            }),
        }
    }
    curves
}

fn varies(results: &Results, name: &str) -> bool {
    let column = results.column(name);
    column.is_some_and(|column| column.cells.iter().any(|cell| *cell != column.cells[0]))
}

fn table(results: &Results) -> Table {
    let names: Vec<&str> = ["point"]
        .into_iter()
        .chain(results.parameters().iter().map(String::as_str))
        .chain(results.measured())
        .collect();
    let mut table = Table::new(format!("{} rows", results.rows()), names.clone());
    for row in 0..results.rows() {
        table = table.row(names.iter().map(|name| match results.cell(row, name) {
            None => Cell::none(),
            Some(Figure::Real(number)) => {
                let (unit, factor) = unit_of(name);
                Cell::of(number * factor, &unit)
            }
            Some(Figure::Whole(number)) if *number >= 0 => Cell::from(*number as u64),
            Some(Figure::Whole(number)) => Cell::shown(*number as f64, number.to_string()),
            Some(other) => match value(other) {
                Some((number, _)) => Cell::shown(number, other.to_string()),
                None => Cell::from(other.to_string()),
            },
        }));
    }
    match results.rows() > ROWS_OPEN {
        true => table.folded(),
        false => table,
    }
}
