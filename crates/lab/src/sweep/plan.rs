//! Which points does a plan ask for, and in which order?
//!
//! ```text
//! PLAN.toml -> base settings (a configuration file beneath, if named) + axes + seeds
//! number of a point -> one value of each axis, one seed -> base settings with those values put in
//! ```
//!
//! Always true:
//! 1. The same plan numbers the same points the same way, on every machine.
//! 2. Two plans of the same identity ask for the same points of the same files by the same program; where a plan lies
//!    and how it was named is no part of it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use base::Bytes;
use crc_fast::CrcAlgorithm::Crc64Nvme;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{Figure, SweepError};

/// More points than this are taken for a slip of the pen.
const POINTS_MAX: u64 = 10_000_000;

/// Which points a sweep runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    kind: String,
    base: Table,
    grid: Grid,
    /// Where the files it names are found.
    directory: PathBuf,
    identity: String,
}

/// The axes of a plan: all that is needed to number its points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    axes: Vec<Axis>,
    seeds: Vec<u64>,
}

/// Settings that change together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Axis {
    /// Where in the settings, with points between the steps: `hybrid.0.policy`.
    keys: Vec<String>,
    /// At each step one value for each key.
    steps: Vec<Vec<Figure>>,
}

/// One point of a plan: what to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its number in the plan, from 0.
    pub number: u64,
    /// The seed of everything in it that is left to chance.
    pub seed: u64,
    /// Every axis with its value here, as the plan writes it.
    pub parameters: Vec<(String, Figure)>,
    /// The base settings with the parameters put in; a trace is named so that it can be opened from here.
    pub settings: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: String,
    config: Option<String>,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default = "one")]
    repeats: u64,
    #[serde(default)]
    base: Table,
    #[serde(default)]
    parameters: Table,
    #[serde(default)]
    zip: Vec<Table>,
}

fn one() -> u64 {
    1
}

/// A row of values with equal distances (or equal ratios) between them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: Value,
    to: Value,
    step: Option<Value>,
    points: Option<u64>,
    #[serde(default)]
    log: bool,
}

impl Plan {
    /// Reads a plan. Files it names are found relative to it.
    ///
    /// # Errors
    /// [`SweepError::Plan`] if it cannot be read or makes no sense.
    pub fn read(file: &Path) -> Result<Plan, SweepError> {
        let refused = |why: String| SweepError::Plan {
            file: file.to_owned(),
            why,
        };
        let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
        let directory = file.parent().unwrap_or(Path::new(""));
        Plan::of(&text, directory).map_err(refused)
    }

    /// The plan written in `text`; files it names are found from `directory`.
    ///
    /// # Errors
    /// Why it makes no sense.
    pub(super) fn of(text: &str, directory: &Path) -> Result<Plan, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut base = match &written.config {
            None => Table::new(),
            Some(config) => {
                let path = directory.join(config);
                let text = fs::read_to_string(&path)
                    .map_err(|error| format!("its config {}: {error}", path.display()))?;
                toml::from_str(&text)
                    .map_err(|error| format!("its config {}: {error}", path.display()))?
            }
        };
        lay_over(&mut base, written.base);
        let grid = Grid::of(
            &written.parameters,
            &written.zip,
            written.seed,
            written.repeats,
        )?;
        let mut plan = Plan {
            kind: written.kind,
            base,
            grid,
            directory: directory.to_owned(),
            identity: String::new(),
        };
        // An axis that leads nowhere is found now, not at each point.
        plan.settings(&plan.grid.parameters(0).1)?;
        plan.identity = plan.identify()?;
        Ok(plan)
    }

    /// What its points are: `cache`, `run`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Sixteen hexadecimal digits: the plan, the files it names, and the version of the program.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The axes.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The point with this number.
    ///
    /// # Panics
    /// If there is none: numbers go to `grid().len() - 1`.
    pub fn point(&self, number: u64) -> Point {
        let (seed, parameters) = self.grid.parameters(number);
        let settings = self.settings(&parameters);
        Point {
            number,
            seed,
            settings: settings.expect("tried when the plan was read"),
            parameters,
        }
    }

    fn settings(&self, parameters: &[(String, Figure)]) -> Result<Table, String> {
        let mut settings = self.base.clone();
        for (key, value) in parameters {
            put(&mut settings, key, value.to_toml())?;
        }
        if let Some(Value::String(trace)) = settings.get_mut(TRACE) {
            *trace = self.directory.join(&*trace).display().to_string();
        }
        Ok(settings)
    }

    /// As they are written.
    fn traces(&self) -> impl Iterator<Item = &str> {
        let base = self.base.get(TRACE).and_then(Value::as_str);
        base.into_iter()
            .chain(self.grid.values(TRACE).filter_map(|value| match value {
                Figure::Text(trace) => Some(trace.as_str()),
                _ => None,
            }))
    }

    fn identify(&self) -> Result<String, String> {
        let mut text = serde_json::to_string(&(
            env!("CARGO_PKG_VERSION"),
            &self.kind,
            &self.base,
            &self.grid,
        ))
        .map_err(|error| error.to_string())?;
        for trace in self.traces() {
            let path = self.directory.join(trace);
            let mark =
                mark(&path).map_err(|error| format!("its trace {}: {error}", path.display()))?;
            text.push_str(&mark);
        }
        let sum = crc_fast::checksum(Crc64Nvme, text.as_bytes());
        Ok(format!("{sum:016x}"))
    }
}

/// The setting that names a file.
const TRACE: &str = "trace";

/// What distinguishes a file from another without reading it all: its length, and sums over both of its ends.
fn mark(path: &Path) -> std::io::Result<String> {
    const END: u64 = 1 << 20;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    (&mut file).take(END).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    file.take(END).read_to_end(&mut bytes)?;
    let sum = crc_fast::checksum(Crc64Nvme, &bytes);
    Ok(format!(" {length} {sum:016x}"))
}

impl Axis {
    /// The values of a `[[zip]]`, paired off.
    fn paired(group: &Table) -> Result<Axis, String> {
        let (keys, columns): (Vec<_>, Vec<_>) = flat(group)?.into_iter().unzip();
        let steps = columns.first().map_or(0, Vec::len);
        if columns.iter().any(|column| column.len() != steps) {
            let lengths = keys.iter().zip(&columns);
            let lengths = lengths.map(|(key, values)| format!("{key} has {}", values.len()));
            return Err(format!(
                "a [[zip]] pairs values off and needs as many of each: {}",
                lengths.collect::<Vec<_>>().join(", ")
            ));
        }
        let step = |step: usize| columns.iter().map(|column| column[step].clone()).collect();
        Ok(Axis {
            keys,
            steps: (0..steps).map(step).collect(),
        })
    }
}

impl Grid {
    fn of(parameters: &Table, zip: &[Table], seed: u64, repeats: u64) -> Result<Grid, String> {
        let mut axes = zip
            .iter()
            .map(Axis::paired)
            .collect::<Result<Vec<_>, _>>()?;
        for (key, values) in flat(parameters)? {
            axes.push(Axis {
                keys: vec![key],
                steps: values.into_iter().map(|value| vec![value]).collect(),
            });
        }
        let mut keys: Vec<&String> = axes.iter().flat_map(|axis| &axis.keys).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("'{}' is varied twice; once is enough", twice[0]));
        }
        if let Some(empty) = axes.iter().find(|axis| axis.steps.is_empty()) {
            return Err(format!(
                "'{}' has no values; give it some",
                empty.keys.join(", ")
            ));
        }
        if repeats == 0 {
            return Err("repeats = 0 asks for nothing; at least 1".to_owned());
        }
        let last = seed
            .checked_add(repeats - 1)
            .filter(|seed| i64::try_from(*seed).is_ok());
        let points = axes.iter().try_fold(repeats, |product, axis| {
            product.checked_mul(axis.steps.len() as u64)
        });
        match (last, points) {
            (Some(last), Some(1..=POINTS_MAX)) => Ok(Grid {
                axes,
                seeds: (seed..=last).collect(),
            }),
            (None, _) => Err(format!(
                "seeds end at {}; {seed} and {repeats} repeats go beyond",
                i64::MAX
            )),
            (_, points) => Err(format!(
                "it asks for {} points, and {POINTS_MAX} is the most; take values away",
                points.map_or("more than 2^64".to_owned(), |n| n.to_string())
            )),
        }
    }

    /// How many points there are.
    pub fn len(&self) -> u64 {
        let steps = self.axes.iter().map(|axis| axis.steps.len() as u64);
        steps.product::<u64>() * self.seeds.len() as u64
    }

    /// Never: a plan has a point at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of all parameters, in the order of [`Point::parameters`].
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes
            .iter()
            .flat_map(|axis| &axis.keys)
            .map(String::as_str)
    }

    /// All that a parameter is set to; nothing if there is no such parameter.
    pub(super) fn values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Figure> {
        let place = self.axes.iter().find_map(|axis| {
            let at = axis.keys.iter().position(|known| known == key)?;
            Some((axis, at))
        });
        place
            .into_iter()
            .flat_map(|(axis, at)| axis.steps.iter().map(move |step| &step[at]))
    }

    /// Seed and parameters of a point: seeds change fastest, then the last axis.
    pub(super) fn parameters(&self, number: u64) -> (u64, Vec<(String, Figure)>) {
        assert!(number < self.len(), "point {number} of {}", self.len());
        let seeds = self.seeds.len() as u64;
        let seed = self.seeds[(number % seeds) as usize];
        let mut left = number / seeds;
        let mut chosen: Vec<&Vec<Figure>> = Vec::new();
        for axis in self.axes.iter().rev() {
            let steps = axis.steps.len() as u64;
            chosen.push(&axis.steps[(left % steps) as usize]);
            left /= steps;
        }
        let values = chosen.into_iter().rev().flatten().cloned();
        (seed, self.keys().map(str::to_owned).zip(values).collect())
    }
}

/// `over` on top of `under`: tables are joined, all else is replaced.
fn lay_over(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => lay_over(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Puts a value where a key such as `hybrid.0.policy` points.
fn put(settings: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let mut steps = key.split('.').peekable();
    let first = steps.next().unwrap_or_default();
    let mut place = settings
        .entry(first)
        .or_insert_with(|| Value::Table(Table::new()));
    for step in steps {
        place = match place {
            Value::Table(table) => table
                .entry(step)
                .or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
                let length = list.len();
                let at: Option<usize> = step.parse().ok();
                at.and_then(|at| list.get_mut(at)).ok_or_else(|| {
                    format!("parameter '{key}': '{step}' is none of the {length} entries of its list, counted from 0")
                })?
            }
            other => {
                return Err(format!(
                    "parameter '{key}': the settings hold {} where it looks for '{step}'",
                    other.type_str()
                ));
            }
        };
    }
    *place = value;
    Ok(())
}

/// Every key with its values; tables in tables are keys with points between.
fn flat(table: &Table) -> Result<Vec<(String, Vec<Figure>)>, String> {
    let mut all = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(range) if range.contains_key("from") => {
                let range: Range = Value::Table(range.clone())
                    .try_into()
                    .map_err(|error| format!("parameter '{key}': {error}"))?;
                let values = range
                    .values()
                    .map_err(|why| format!("parameter '{key}': {why}"))?;
                all.push((key.clone(), values));
            }
            Value::Table(inner) => {
                let inner = flat(inner)?.into_iter();
                all.extend(inner.map(|(rest, values)| (format!("{key}.{rest}"), values)));
            }
            Value::Array(values) => {
                let values: Option<Vec<Figure>> = values.iter().map(Figure::of_toml).collect();
                let values = values.ok_or_else(|| {
                    format!("parameter '{key}': its values are numbers, words, true and false")
                })?;
                all.push((key.clone(), values));
            }
            _ => {
                return Err(format!(
                    "parameter '{key}' is one value; write a list, such as [1, 2], or a range, such as \
                     {{ from = 1, to = 9, step = 2 }}"
                ));
            }
        }
    }
    Ok(all)
}

impl Range {
    fn values(&self) -> Result<Vec<Figure>, String> {
        let from = number(&self.from)?;
        let to = number(&self.to)?;
        // Whole numbers and sizes stay what they are.
        let whole = ![&self.from, &self.to]
            .into_iter()
            .chain(&self.step)
            .any(Value::is_float);
        let values: Vec<f64> = match (&self.step, self.points) {
            (Some(step), None) if !self.log => {
                let step = number(step)?;
                let steps = (to - from) / step;
                if !(steps.is_finite() && steps >= 0.0 && steps < POINTS_MAX as f64) {
                    return Err(format!("steps of {step} do not lead from {from} to {to}"));
                }
                (0..=(steps + 1e-9) as u64)
                    .map(|n| from + n as f64 * step)
                    .collect()
            }
            (None, Some(points @ 2..=POINTS_MAX)) => {
                if self.log && !(from > 0.0 && to > 0.0) {
                    return Err("equal ratios (log) need both ends above 0".to_owned());
                }
                let last = points - 1;
                let at = |n: u64| match (n, self.log) {
                    (0, _) => from,
                    (n, _) if n == last => to,
                    (n, true) => from * (to / from).powf(n as f64 / last as f64),
                    (n, false) => from + (to - from) * (n as f64 / last as f64),
                };
                (0..points).map(at).collect()
            }
            _ => {
                return Err(
                    "a range has `step`, or `points` (2 or more), the latter with or without `log = true`"
                        .to_owned(),
                );
            }
        };
        if !whole {
            return Ok(values.into_iter().map(Figure::Real).collect());
        }
        let values: Vec<i64> = values.iter().map(|value| value.round() as i64).collect();
        match values.windows(2).any(|pair| pair[0] == pair[1]) {
            false => Ok(values.into_iter().map(Figure::Whole).collect()),
            true => Err(format!(
                "{} points from {from} to {to} are not as many whole numbers; take fewer points, or write {from:?} \
                 and {to:?} to have fractions",
                values.len()
            )),
        }
    }
}

/// A number, or a size such as `24GiB`, in bytes.
fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Float(number) if number.is_finite() => Ok(*number),
        Value::String(text) => text
            .parse::<Bytes>()
            .map(|size| size.0 as f64)
            .map_err(|error| error.to_string()),
        other => Err(format!("{other} is neither a number nor a size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        Plan::of(text, Path::new(""))
    }

    fn shown(plan: &Plan) -> Vec<String> {
        (0..plan.grid().len())
            .map(|n| {
                let point = plan.point(n);
                let values = point.parameters.iter().map(|(_, value)| value.to_string());
                let values: Vec<String> = values.chain([format!("seed {}", point.seed)]).collect();
                values.join(" ")
            })
            .collect()
    }

    #[test]
    fn points_are_the_full_grid_in_the_order_of_the_plan() {
        let plan = plan(
            "kind = 'test'\nseed = 7\nrepeats = 2\n\
             [parameters]\nsize = ['1%', '5%']\nb.c = [true]\n\
             [[zip]]\nlow = [1, 2]\nhigh = [3, 4]",
        )
        .unwrap();
        assert_eq!(
            shown(&plan),
            [
                "3 1 true 1% seed 7",
                "3 1 true 1% seed 8",
                "3 1 true 5% seed 7",
                "3 1 true 5% seed 8",
                "4 2 true 1% seed 7",
                "4 2 true 1% seed 8",
                "4 2 true 5% seed 7",
                "4 2 true 5% seed 8",
            ]
        );
        assert_eq!(
            plan.grid().keys().collect::<Vec<_>>(),
            ["high", "low", "b.c", "size"]
        );
    }

    #[test]
    fn parameters_are_put_into_the_settings_they_name() {
        let plan = plan(
            "kind = 'run'\n[[base.hybrid]]\nname = 'vol0'\npolicy = 'lru'\n\
             [parameters]\n'hybrid.0.policy' = ['arc']\nreplay.speed = [2.5]",
        )
        .unwrap();
        let settings = plan.point(0).settings;
        let expected = "[[hybrid]]\nname = 'vol0'\npolicy = 'arc'\n[replay]\nspeed = 2.5";
        assert_eq!(settings, toml::from_str::<Table>(expected).unwrap());
    }

    #[test]
    fn ranges_keep_whole_numbers_whole() {
        let plan = |range: &str| plan(&format!("kind = 't'\n[parameters]\nx = {range}"));
        let cases = [
            ("{ from = 10, to = 40, step = 15 }", "10, 25, 40"),
            (
                "{ from = 0.1, to = 0.4, step = 0.1 }",
                "0.1, 0.2, 0.30000000000000004, 0.4",
            ),
            (
                "{ from = '1GiB', to = '4GiB', points = 3, log = true }",
                "1073741824, 2147483648, 4294967296",
            ),
            ("{ from = 3, to = 1, points = 3 }", "3, 2, 1"),
            ("{ from = 3, to = 1, step = -1 }", "3, 2, 1"),
            ("{ from = 0, to = 100, points = 3 }", "0, 50, 100"),
            (
                "{ from = '0', to = '1GiB', points = 3 }",
                "0, 536870912, 1073741824",
            ),
            ("{ from = -1, to = 1, points = 3 }", "-1, 0, 1"),
            ("{ from = 0.0, to = 1.0, points = 3 }", "0.0, 0.5, 1.0"),
        ];
        for (range, expected) in cases {
            let plan = plan(range).unwrap();
            let values: Vec<String> = (0..plan.grid().len())
                .map(|n| match &plan.point(n).parameters[0].1 {
                    Figure::Real(number) => format!("{number:?}"),
                    value => value.to_string(),
                })
                .collect();
            assert_eq!(values.join(", "), expected, "{range}");
        }
        for range in [
            "{ from = 1, to = 9 }",
            "{ from = 1, to = 9, step = -1 }",
            "{ from = 1, to = 9, step = 0 }",
            "{ from = 0, to = 9, points = 3, log = true }",
            "{ from = 1, to = 9, points = 1 }",
            "{ from = 0, to = 1, points = 3 }",
            "{ from = 1, to = 4, points = 5, log = true }",
            "{ from = 'much', to = 9, points = 3 }",
            "{ from = 1, to = 9, points = 3, stride = 2 }",
        ] {
            assert!(plan(range).is_err(), "{range}");
        }
    }

    #[test]
    fn a_plan_that_makes_no_sense_is_refused_with_the_reason() {
        let cases = [
            ("kind = 't'\nspeling = 1", "speling"),
            ("kind = 't'\nrepeats = 0", "repeats = 0"),
            (
                "kind = 't'\n[parameters]\nx = 1",
                "'x' is one value; write a list",
            ),
            ("kind = 't'\n[parameters]\nx = []", "'x' has no values"),
            ("kind = 't'\n[parameters]\nx = [[1]]", "numbers, words"),
            (
                "kind = 't'\n[parameters]\nx = [1]\n[[zip]]\nx = [1]",
                "'x' is varied twice",
            ),
            (
                "kind = 't'\n[[zip]]\nx = [1]\ny = [1, 2]",
                "x has 1, y has 2",
            ),
            (
                "kind = 't'\nbase.a = [1]\n[parameters]\na.3.b = [1]",
                "none of the 1 entries",
            ),
            (
                "kind = 't'\nbase.a = 5\n[parameters]\na.b = [1]",
                "holds integer",
            ),
            (
                "kind = 't'\nrepeats = 20000000",
                "20000000 points, and 10000000 is the most",
            ),
            ("kind = 't'\nconfig = 'no/such/file'", "no/such/file"),
            ("kind = 't'\nbase.trace = 'no/such/trace'", "no/such/trace"),
        ];
        for (text, reason) in cases {
            let refusal = plan(text).expect_err(text).replace("hold ", "holds ");
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
    }

    #[test]
    fn the_identity_follows_the_plan_and_what_it_reads() {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("t.csv");
        fs::write(&trace, "1").unwrap();
        let identity = |text: &str| {
            Plan::of(text, directory.path())
                .unwrap()
                .identity()
                .to_owned()
        };
        let text = "kind = 't'\n[base]\ntrace = 't.csv'\nx = 1";
        let first = identity(text);
        assert_eq!(first, identity(&text.replace("x = 1", "# the same\nx = 1")));
        assert_ne!(first, identity(&text.replace("x = 1", "x = 2")));
        fs::write(&trace, "2").unwrap();
        assert_ne!(first, identity(text));
    }

    #[test]
    fn a_plan_is_the_same_in_any_folder_and_names_its_files_as_written() {
        let text = "kind = 't'\n[base]\ntrace = 'a.csv'\n[parameters]\ntrace = ['a.csv', 'b.csv']";
        let plans = [0, 1].map(|_| {
            let directory = tempfile::tempdir().unwrap();
            for (name, content) in [("plan.toml", text), ("a.csv", "1"), ("b.csv", "2")] {
                fs::write(directory.path().join(name), content).unwrap();
            }
            let here = Plan::read(&directory.path().join("plan.toml")).unwrap();
            let roundabout = Plan::read(&directory.path().join("./plan.toml")).unwrap();
            assert_eq!(here.identity(), roundabout.identity());
            let point = here.point(1);
            assert_eq!(
                point.parameters,
                [("trace".to_owned(), Figure::from("b.csv"))]
            );
            let opened = point.settings["trace"].as_str().unwrap();
            assert_eq!(fs::read_to_string(opened).unwrap(), "2");
            here
        });
        assert_eq!(plans[0].identity(), plans[1].identity());
        assert_eq!(plans[0].grid(), plans[1].grid());
    }
}
