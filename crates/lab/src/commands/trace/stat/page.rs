//! The page for a terminal.

use std::time::Duration;

use report::terminal::table::{count, megabytes_per_second, size, table};
use trace::stat::{Concentration, SizeFigures, Summary};

use super::Looked;
use super::drawing::{chart, heat};

const NAME: usize = 14;
const HEAT_ROWS: usize = 16;
/// Shorter series are drawn by their finer bars.
const MINUTES_MIN: usize = 15;

/// Everything about a trace in `width` columns.
pub fn page(one: &Looked, width: usize) -> String {
    let summary = &one.summary;
    let mut page = format!("{} ({})\n\n", one.file, one.format);
    for (name, text) in facts(one) {
        page.push_str(&wrapped(name, &text, width));
    }
    page.push_str(&format!("\nSizes\n{}", sizes(summary, width)));
    page.push_str(&format!("\n{}", concentration(summary, width)));
    if summary.totals.devices > 1 {
        page.push_str(&format!("\nDevices\n{}", devices(one)));
    }
    page.push_str(&format!("\n{}", load(summary, width)));
    page.push_str(&format!("\n{}", heat_map(summary, width)));
    page
}

/// What is said in one line each.
pub fn facts(one: &Looked) -> Vec<(&'static str, String)> {
    let summary = &one.summary;
    let requests = format!(
        "{} in {} on {}",
        summary.totals.requests,
        span(summary.totals.span_s),
        several(summary.totals.devices, "device")
    );
    let mut facts = vec![("requests", requests), ("mix", mix(summary))];
    facts.extend(rates(summary));
    facts.extend(places(summary));
    if let Some(order) = &summary.order.sequentiality {
        let text = format!(
            "{} % start where the last one ended, {} % where one of 32 streams did; runs of {} \
             on average, {} at most",
            order.sequential_pct, order.streams_pct, order.run_mean, order.run_max
        );
        facts.push(("sequential", text));
    }
    if one.malformed > 0 {
        facts.push(("malformed", format!("{} records left out", one.malformed)));
    }
    if one.disordered > 0 {
        let text = format!("{} requests put in order of time", one.disordered);
        facts.push(("disorder", text));
    }
    facts
}

/// Which requests there are of each kind.
fn mix(summary: &Summary) -> String {
    let ops = &summary.ops;
    let mut mix = format!(
        "{} reads ({} % of I/O, {} % of bytes), {} writes",
        ops.read.requests,
        summary.totals.read_pct,
        summary.totals.read_bytes_pct,
        ops.write.requests
    );
    for (op, name) in [(ops.discard, "discards"), (ops.flush, "flushes")] {
        if op.requests > 0 {
            mix.push_str(&format!(", {} {name}", op.requests));
        }
    }
    mix
}

/// How fast requests come.
fn rates(summary: &Summary) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let rates = &summary.rates;
    if let (Some(mean), Some(peak)) = (rates.iops_mean, rates.iops_peak_minute) {
        let text = format!(
            "{mean} IOPS on average, {peak} in the busiest minute, {} in the busiest second",
            rates.iops_peak_second
        );
        facts.push(("load", text));
    }
    if let (Some(mean), Some(peak)) = (
        rates.bytes_per_second_mean,
        rates.bytes_per_second_peak_minute,
    ) {
        let text = format!(
            "{} MB/s on average, {} in the busiest minute",
            megabytes_per_second(mean),
            megabytes_per_second(peak)
        );
        facts.push(("bandwidth", text));
    }
    if let Some(gaps) = &summary.order.interarrival {
        let mut text = format!(
            "{} ms on average, median {}, 99 % up to {}, longest {}",
            gaps.mean_ms, gaps.p50_ms, gaps.p99_ms, gaps.max_ms
        );
        if let Some(cv) = gaps.cv {
            text.push_str(&format!("; coefficient of variation {cv}"));
        }
        facts.push(("gaps", text));
    }
    facts
}

/// Which places are asked for.
fn places(summary: &Summary) -> [(&'static str, String); 3] {
    let addresses = format!(
        "{} GiB to the highest byte, {} GiB between lowest and highest",
        summary.extent.max_offset_gib, summary.extent.address_span_gib
    );
    let print = &summary.extent.footprint;
    let footprint = format!(
        "{}{:.3} GiB in pages of 4 KiB ({:.3} read, {:.3} written), {} GiB in MiB; {} of {} regions",
        if print.exact { "" } else { "at least " },
        print.pages_gib,
        print.read_gib,
        print.written_gib,
        print.mib_gib,
        summary.extent.regions_touched,
        summary.extent.regions_total
    );
    let alignment = format!(
        "{} % of I/O begins and ends on 4 KiB, {} % begins there",
        summary.alignment.aligned_4kib_pct, summary.alignment.offset_aligned_4kib_pct
    );
    [
        ("addresses", addresses),
        ("footprint", footprint),
        ("alignment", alignment),
    ]
}

fn several(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// `2h 5m 7s`, or finer below two minutes.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s} s"),
        s => humantime::format_duration(Duration::from_secs(s.round() as u64)).to_string(),
    }
}

/// `text` behind a name, wrapped into `width` columns.
fn wrapped(name: &str, text: &str, width: usize) -> String {
    let mut lines = vec![format!("{name:<NAME$}")];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].chars().count() + word.chars().count() > width {
            lines.push(" ".repeat(NAME));
        }
        let last = lines.len() - 1;
        lines[last].push_str(word);
        lines[last].push(' ');
    }
    let mut all = String::new();
    for line in lines {
        all.push_str(line.trim_end());
        all.push('\n');
    }
    all
}

fn sizes(summary: &Summary, width: usize) -> String {
    let row = |name: &str, of: &Option<SizeFigures>| {
        of.as_ref().map(|of| {
            let figures = [of.mean, of.min, of.p50, of.p90, of.p99, of.max].map(size);
            let mut row = vec![name.to_owned(), count(of.requests as f64)];
            row.extend(figures);
            row
        })
    };
    let rows: Vec<Vec<String>> = [
        row("reads", &summary.sizes.read),
        row("writes", &summary.sizes.write),
        row("both", &summary.sizes.all),
    ]
    .into_iter()
    .flatten()
    .collect();
    let head = ["", "COUNT", "MEAN", "MIN", "50 %", "90 %", "99 %", "MAX"];
    let mut text = table(&head, &rows);
    let top: Vec<String> = summary
        .sizes
        .top
        .iter()
        .take(5)
        .map(|one| format!("{} {} %", size(one.size), one.pct))
        .collect();
    if !top.is_empty() {
        text.push_str(&wrapped("most frequent", &top.join(", "), width));
    }
    text
}

/// A share in percent, or `-`.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// How much of the I/O the hottest regions take: what, whole trace, mean, median.
pub fn hottest(summary: &Summary) -> Vec<Vec<String>> {
    let windows = &summary.per_window;
    let row = |what: &str, regions: u64, whole, mean, median| {
        let regions = match regions {
            0 => String::new(),
            n => format!(" ({})", several(n, "region")),
        };
        vec![
            format!("hottest {what}{regions}"),
            percent(whole),
            percent(mean),
            percent(median),
        ]
    };
    vec![
        row(
            "1 %",
            windows.top_regions,
            summary.hottest.whole_trace_top1pct_share,
            windows.top.top1pct_share_mean,
            windows.top.top1pct_share_p50,
        ),
        row(
            "10 %",
            windows.top10pct_regions,
            summary.hottest.whole_trace_top10pct_share,
            windows.top.top10pct_share_mean,
            windows.top.top10pct_share_p50,
        ),
        row("20 regions", 0, None, windows.top.top20_share_mean, None),
    ]
}

/// The life of hot spots.
pub fn hot_spots(windows: &Concentration) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if windows.hot.hot_regions > 0 {
        let runs = format!(
            "{} in {}; runs of {} windows on average, {} last 3 or more, {} 10 or more ({} and {} of \
             their I/O)",
            several(windows.hot.hot_regions, "region"),
            several(windows.runs.hot_runs, "run"),
            windows.runs.hot_run_mean.unwrap_or(0.0),
            percent(windows.runs.hot_runs_ge3),
            percent(windows.runs.hot_runs_ge10),
            percent(windows.runs.hot_io_in_runs_ge3),
            percent(windows.runs.hot_io_in_runs_ge10),
        );
        facts.push(("hot", runs));
        let back = format!(
            "{} of {} begin where one was before, {} next to one; {} of the regions come back",
            percent(windows.hot.hot_starts_revisit),
            several(windows.hot.hot_starts, "later run"),
            percent(windows.hot.hot_starts_adjacent),
            percent(windows.hot.hot_regions_again),
        );
        facts.push(("recurrence", back));
    }
    let areas = &windows.areas;
    if let (Some(mean), Some(most), Some(life)) =
        (areas.size_mean_gib, areas.size_p90_gib, areas.life_mean)
    {
        let text = format!(
            "{} of hot neighbours, {mean} GiB on average, 90 % up to {most} GiB, with {} of the I/O; {life} \
             windows long on average, {} last 3 or more, {} 10 or more; {} of their regions recur",
            several(areas.concentrations, "area"),
            percent(areas.io_share),
            percent(areas.lasting_ge3),
            percent(areas.lasting_ge10),
            percent(areas.recurring),
        );
        facts.push(("areas", text));
    }
    facts
}

fn concentration(summary: &Summary, width: usize) -> String {
    let windows = &summary.per_window;
    let mut text = format!(
        "Concentration: regions of {}, {} busy {} of {} s\n",
        size(summary.asked.region_bytes),
        windows.windows_busy,
        if windows.windows_busy == 1 {
            "window"
        } else {
            "windows"
        },
        summary.asked.window_s
    );
    let head = ["SHARE OF I/O", "WHOLE TRACE", "WINDOWS, MEAN", "MEDIAN"];
    text.push_str(&table(&head, &hottest(summary)));
    for (name, fact) in hot_spots(windows) {
        text.push_str(&wrapped(name, &fact, width));
    }
    text
}

/// One row for each device of the trace.
pub fn devices(one: &Looked) -> String {
    let name = |device: u32| {
        let mut named = one.device_names.iter();
        let named = named.find(|(number, _)| *number == device);
        named.map_or_else(
            || device.to_string(),
            |(_, name)| format!("{device} {name}"),
        )
    };
    let rows: Vec<Vec<String>> = one
        .summary
        .per_device
        .iter()
        .take(20)
        .map(|disk| {
            vec![
                name(disk.device),
                count(disk.requests as f64),
                format!("{:.1} %", disk.read_pct),
                size(disk.mean_size),
                format!("{:.3} GiB", disk.pages_gib),
                format!("{:.3} GiB", disk.max_offset_gib),
            ]
        })
        .collect();
    let head = [
        "DEVICE",
        "COUNT",
        "READS",
        "MEAN SIZE",
        "TOUCHED",
        "HIGHEST",
    ];
    let mut text = table(&head, &rows);
    let more = one.summary.totals.devices as usize - rows.len();
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// Requests per second: (seconds per value, values).
pub fn iops(summary: &Summary) -> (f64, Vec<f64>) {
    if summary.minutes.iops_per_minute.len() >= MINUTES_MIN {
        let seconds = summary.minutes.minute_s as f64;
        let values = summary.minutes.iops_per_minute.iter();
        return (seconds, values.map(|&n| n as f64 / seconds).collect());
    }
    let seconds = summary.series.bar_ms as f64 / 1e3;
    let series = &summary.series;
    let bars = series.reads.iter().zip(&series.writes).zip(&series.others);
    let values = bars.map(|((reads, writes), others)| (reads + writes + others) as f64 / seconds);
    (seconds, values.collect())
}

fn load(summary: &Summary, width: usize) -> String {
    let (seconds, values) = iops(summary);
    let (bars, joined) = chart(&values, width);
    let each = match joined {
        1 => format!("a bar: {}", span(seconds)),
        n => format!("a bar: the busiest of {n} times {}", span(seconds)),
    };
    format!("IOPS over time ({each})\n{bars}")
}

fn heat_map(summary: &Summary, width: usize) -> String {
    let (map, column_ms) = heat(&summary.heat, HEAT_ROWS, width);
    let mut text = format!(
        "Where, when (a column: {}; darker is more)\n{map}",
        span(column_ms as f64 / 1e3)
    );
    if summary.heat.devices_left_out > 0 {
        let left_out = several(summary.heat.devices_left_out, "device");
        text.push_str(&format!("{left_out} not shown\n"));
    }
    text
}
