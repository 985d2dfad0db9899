//! `tanada sim cache`: what would each policy miss, at each cache size?

use std::path::PathBuf;

use anyhow::Context;
use base::{Bytes, SECTOR};
use clap::Args;
use hybrid::{Admission, WriteMode};
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress::bar;
use report::terminal::table::{count, share, size, table};
use report::{Note, Section};
use sim::cache::{
    Builder, Compact, Curves, Method, Mode, NamedCurve, Ops, Plan, Row, SHARES, Size, Unit, page,
};
use sim::on_threads;
use trace::{Format, Requests, Trace};

use crate::reading::{ReadBar, ReadTrace, remarks};

#[derive(Args)]
#[command(after_help = "\
Units: with `request` each request is one object, named by its first block address. With a block \
such as 4KiB requests are split, and each block counts as one request of the cache; a whole request \
is a hit only if all its blocks are (trace_request_misses in the JSON).

Example: tanada sim cache trace.csv.zst --policy lru,s3-fifo,belady --size 1%,5%,24GiB")]
pub struct SimCache {
    /// Trace files of one recording, merged by time.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Policies, separated by commas: lru, fifo, clock, sieve, s3-fifo, arc, w-tinylfu, belady; or all.
    #[arg(long, default_value = "all", value_name = "LIST")]
    pub policy: String,
    /// Cache sizes: percent of the different objects (1%), bytes (24GiB), objects (4897obj).
    /// [default: 0.1%,1%,5%,10%,25%]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<Size>,
    /// What one object is: request, or the size of a block. [default: request for traces that name objects
    /// (oracle-general, cache-csv), else 4KiB]
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<Unit>,
    /// Which requests count: all, reads, writes.
    #[arg(long, default_value_t, value_name = "OPS")]
    pub ops: Ops,
    /// Where writes go: back, through, around, only-writes.
    #[arg(long, default_value_t, value_name = "MODE")]
    pub write: WriteMode,
    /// Which reads come into the cache: always, second-access.
    #[arg(long, default_value_t = Admission::Always, value_name = "RULE")]
    pub admission: Admission,
    /// Work out miss-ratio curves as well; without --size only these.
    #[arg(long)]
    pub curve: bool,
    /// Make the curves from this share of the objects, such as 1%. [default: all of a short trace, less of a long one]
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "curve")]
    pub sample: Option<f64>,
    /// Which objects are in the sample.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many threads work. [default: one per processor]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    #[command(flatten)]
    pub read: ReadTrace,
    /// Print JSON: an array with one entry per policy and size.
    #[arg(long)]
    pub json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How far apart objects without a place are taken to lie.
const SECTOR_SIZE: Bytes = Bytes(SECTOR);

/// A share such as `1%`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    match number {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(format!(
            "'{text}' is no share; say percent above 0 and at most 100, such as 1%"
        )),
    }
}

/// What is to be simulated: the sizes asked for, or the usual ones unless curves were asked for.
fn plan(arguments: &SimCache) -> anyhow::Result<Plan> {
    let methods = Method::list(&arguments.policy).map_err(|error| Usage(error.to_string()))?;
    let mut sizes = arguments.size.clone();
    if sizes.is_empty() && !arguments.curve {
        sizes.extend(Size::USUAL);
    }
    if arguments.write == WriteMode::Pass {
        let what = "--write pass caches nothing, so there is nothing to simulate";
        return Err(Usage(what.to_owned()).into());
    }
    let mode = Mode {
        write: arguments.write,
        admission: arguments.admission,
    };
    Ok(Plan {
        methods,
        sizes,
        mode,
    })
}

/// Simulates and prints.
pub fn run(arguments: &SimCache) -> anyhow::Result<()> {
    let plan = plan(arguments)?;
    let mode = plan.mode;
    let trace = arguments.read.open(&arguments.traces)?;
    let unit = unit(arguments.unit, trace.format());
    for size in &plan.sizes {
        size.check(unit).map_err(|error| Usage(error.to_string()))?;
    }
    let (trace, generated) = load(trace, unit, arguments.ops)?;
    let curves = Curves {
        methods: plan.methods.clone(),
        mode,
        rate: arguments.sample,
        seed: arguments.seed,
    };
    let bar = bar("{bar:30} {pos}/{len} {msg}", 0);
    let done = |what: &'static str| {
        let bar = &bar;
        move |done: usize, of: usize| {
            bar.set_message(what);
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        }
    };
    let (rows, curves) = on_threads(arguments.jobs, || {
        let rows = plan.run(&trace, &done("simulations"));
        let curves = match arguments.curve {
            true => curves.run(&trace, &done("curves")),
            false => Vec::new(),
        };
        (rows, curves)
    })?;
    bar.finish_and_clear();
    let rows = rows?;
    if let Some(file) = &arguments.html {
        let command = terminal::own_command();
        let (traces, seed) = (&arguments.traces, arguments.seed);
        let mut page = page(traces, &trace, &rows, &curves, &command, seed);
        if let Some(generated) = generated {
            page = page.section(Section::new("The trace").put(Note::new(generated)));
        }
        std::fs::write(file, page.html())
            .with_context(|| format!("cannot write the report to {}", file.display()))?;
    }
    match arguments.json {
        true => {
            let points = curves.iter().flat_map(|curve| curve.rows(&trace, mode));
            terminal::json(&rows.iter().cloned().chain(points).collect::<Vec<Row>>())
        }
        false => terminal::text(&text(&trace, &rows, &curves)),
    }
}

/// What one object is, unless it is `asked` for. Objects with names of their own stay apart.
fn unit(asked: Option<Unit>, format: Format) -> Unit {
    match asked {
        None => Unit::usual(format),
        Some(unit) => {
            if let Unit::Block(block) = unit
                && block > SECTOR_SIZE
                && format.names_objects()
            {
                eprintln!(
                    "tanada: {format} names objects, which are taken to lie 512 B apart: in units of {unit} up to \
                     {} of them count as one; --unit request keeps them apart",
                    block.0 / SECTOR_SIZE.0
                );
            }
            unit
        }
    }
}

/// Reads the whole trace, reports what was left out. Answers too what the trace says of its being generated.
fn load(mut trace: Trace, unit: Unit, ops: Ops) -> anyhow::Result<(Compact, Option<String>)> {
    let bar = ReadBar::new(&trace)?;
    let mut builder = Builder::new(unit, ops);
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch)? {
        for request in &batch {
            builder.push(request)?;
        }
        bar.show(&trace);
    }
    bar.end();
    remarks(&trace);
    let generated = trace.generated().map(str::to_owned);
    Ok((builder.finish()?, generated))
}

/// What is printed for people.
fn text(trace: &Compact, rows: &[Row], curves: &[NamedCurve]) -> String {
    let mut text = format!(
        "{} requests over {}, {} written; in units of {}: {} accesses to {} different objects ({} in memory)\n",
        count(trace.requests() as f64),
        trace.span(),
        share(trace.written() as f64, trace.bytes() as f64),
        trace.unit(),
        count(trace.accesses() as f64),
        count(f64::from(trace.footprint())),
        trace.memory(),
    );
    if !rows.is_empty() {
        text.push_str("\nMiss ratio per access (* least of its size; belady is the bound)\n");
        text.push_str(&matrix(rows, |row| format!("{:.4}", row.miss_ratio), true));
        text.push_str("\nMissed bytes per byte\n");
        text.push_str(&matrix(
            rows,
            |row| format!("{:.4}", row.byte_miss_ratio),
            false,
        ));
        text.push_str("\nWritten to the fast device\n");
        let written = |row: &Row| {
            row.traffic
                .flash_bytes_written
                .map_or_else(|| "-".to_owned(), size)
        };
        text.push_str(&matrix(rows, written, false));
    }
    if !curves.is_empty() {
        text.push_str("\nMiss ratio by cache size\n");
        text.push_str(&curve_table(trace, curves));
        let origins = curves
            .iter()
            .map(|curve| format!("{}: {}", curve.method, curve.origin()));
        text.push_str(&format!(
            "  - {}\n",
            origins.collect::<Vec<String>>().join("; ")
        ));
    }
    text
}

/// Policies down, sizes across.
fn matrix(rows: &[Row], show: impl Fn(&Row) -> String, mark_best: bool) -> String {
    let mut sizes: Vec<&str> = Vec::new();
    for row in rows {
        if !sizes.contains(&row.size.as_str()) {
            sizes.push(&row.size);
        }
    }
    let least: Vec<Option<u64>> = sizes
        .iter()
        .map(|size| {
            let here = rows
                .iter()
                .filter(|row| row.size == *size && row.policy != "belady");
            here.map(|row| row.misses).min()
        })
        .collect();
    let mut lines = Vec::new();
    for of_policy in rows.chunk_by(|a, b| a.policy == b.policy) {
        let mut line = vec![of_policy[0].policy.clone()];
        for (size, least) in sizes.iter().zip(&least) {
            let row = of_policy.iter().find(|row| row.size == *size);
            line.push(row.map_or_else(String::new, |row| {
                let best = mark_best && row.policy != "belady" && *least == Some(row.misses);
                format!("{}{}", show(row), if best { "*" } else { " " })
            }));
        }
        lines.push(line);
    }
    let heads: Vec<&str> = ["POLICY"].into_iter().chain(sizes).collect();
    table(&heads, &lines)
}

/// Sizes down, policies across, twelve sizes.
fn curve_table(trace: &Compact, curves: &[NamedCurve]) -> String {
    let sizes = SHARES.map(|percent| (percent, Size::Percent(percent).objects(trace)));
    let lines: Vec<Vec<String>> = sizes
        .into_iter()
        .filter_map(|(percent, objects)| Some((percent, objects.ok()? as f64)))
        .map(|(percent, objects)| {
            let room = match trace.unit() {
                Unit::Request => count(objects),
                Unit::Block(block) => size(objects as u64 * block.0),
            };
            let ratios = curves.iter().map(|named| {
                // A miniature says nothing of sizes below its own smallest.
                let first = named
                    .curve
                    .points()
                    .get(1)
                    .map_or(0.0, |point| point.objects);
                match named.rate < 1.0 && objects < first {
                    true => "-".to_owned(),
                    false => format!("{:.4}", named.curve.at(objects).miss_ratio),
                }
            });
            [format!("{percent} %"), room]
                .into_iter()
                .chain(ratios)
                .collect()
        })
        .collect();
    let names: Vec<String> = curves
        .iter()
        .map(|named| named.method.to_string())
        .collect();
    let heads = ["SHARE", "SIZE"]
        .into_iter()
        .chain(names.iter().map(String::as_str));
    table(&heads.collect::<Vec<&str>>(), &lines)
}
