//! `tanada volume heat NAME`: where is it hot, when, and what lives on the fast device?
//!
//! ```text
//! pages of intervals -> Heat -> map for a terminal: regions upwards, time to the right, one sign a cell
//!                            -> page: the same as a picture, regions up over time
//!                            -> JSON
//! ```
//!
//! Always true: a cell gathers whole regions and whole intervals, and each request counts in one cell.
//!
//! Source: AST figure 6 (regions up over time).

use anyhow::Context;
use ratatui::crossterm::terminal;
use report::terminal::table::{count, share, size};
use report::{Axis, Chart, Facts, HeatMap, Page, Repeat, Section, Series, Unit};

use super::client::{Client, path};
use super::volume_moves::{moment, query};
use super::{options, show, volume_list};
use crate::api::tier::{Heat, HeatInterval};

/// As wide as a map is where there is no terminal.
const WIDTH: usize = 100;
/// No narrower map is drawn.
const WIDTH_MIN: usize = 40;
/// Rows of regions at most.
const ROWS: usize = 32;
/// From nothing to the most, on the slow device.
const SLOW: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// From nothing to the most, on the fast device.
const FAST: [char; 5] = ['○', '◔', '◑', '◕', '●'];
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Runs it.
pub fn run(arguments: &options::Heat) -> anyhow::Result<()> {
    let client = Client::new(arguments.ask.admin.clone())?;
    let heat = all(&client, arguments)?;
    if let Some(file) = &arguments.html {
        std::fs::write(file, html(&heat, &show::own_command()))
            .with_context(|| format!("cannot write the page to {}", file.display()))?;
    }
    if arguments.ask.json {
        return show::json(&heat);
    }
    let width = arguments
        .width
        .unwrap_or_else(|| terminal::size().map_or(WIDTH, |(columns, _)| usize::from(columns)));
    show::text(&map(&heat, width.max(WIDTH_MIN)))
}

/// All intervals that are asked for, page by page.
fn all(client: &Client, arguments: &options::Heat) -> anyhow::Result<Heat> {
    let mut all = Heat::default();
    let mut after = None;
    let name = volume_list::hybrid(client, &arguments.name)?;
    loop {
        let query = query(&[
            ("after", after.map(|after: u64| after.to_string())),
            (
                "last_seconds",
                arguments.last.map(|last| last.secs_f64().to_string()),
            ),
        ]);
        let mut page: Heat = client.get(&path(&name, &format!("/heat{query}"))?)?;
        page.intervals.splice(0..0, all.intervals);
        all = page;
        match all.next.take() {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Requests and residency gathered into rows of regions and columns of intervals.
struct Grid {
    /// Regions in a row.
    tall: usize,
    /// Intervals in a column.
    wide: usize,
    /// Column by column, each from the lowest regions up.
    requests: Vec<Vec<u64>>,
    /// Did a region of the cell live on the fast device at its end?
    lives: Vec<Vec<bool>>,
    /// The most regions up at the end of an interval of each column.
    up: Vec<usize>,
}

impl Grid {
    /// At most `columns` by `rows`.
    fn of(heat: &Heat, columns: usize, rows: usize) -> Grid {
        let regions = heat.regions.max(1) as usize;
        let tall = regions.div_ceil(rows);
        let rows = regions.div_ceil(tall);
        let wide = heat.intervals.len().div_ceil(columns).max(1);
        let mut grid = Grid {
            tall,
            wide,
            requests: Vec::new(),
            lives: Vec::new(),
            up: Vec::new(),
        };
        let row = |region: u32| (region.max(1) as usize - 1) / tall;
        for gathered in heat.intervals.chunks(wide) {
            let mut requests = vec![0; rows];
            for of in gathered.iter().flat_map(|interval| &interval.counts) {
                // A volume that grew meanwhile has regions that were not there before.
                if let Some(cell) = requests.get_mut(row(of.region)) {
                    *cell += of.reads + of.writes;
                }
            }
            let mut lives = vec![false; rows];
            let last = gathered.last().expect("chunks are not empty");
            for region in &last.up {
                if let Some(cell) = lives.get_mut(row(*region)) {
                    *cell = true;
                }
            }
            grid.requests.push(requests);
            grid.lives.push(lives);
            let up = gathered.iter().map(|interval| interval.up.len());
            grid.up.push(up.max().unwrap_or(0));
        }
        grid
    }

    /// The regions of a row, the first and the last, of `regions`.
    fn regions_of(&self, row: usize, regions: u32) -> String {
        let low = row * self.tall + 1;
        let high = ((row + 1) * self.tall).min(regions as usize);
        match low == high {
            true => low.to_string(),
            false => format!("{low}-{high}"),
        }
    }

    /// One row: a sign for each column, `most` being the most requests of a cell.
    fn signs_of(&self, row: usize, most: u64) -> String {
        let cells = self.requests.iter().zip(&self.lives);
        let sign = |(requests, lives): (&Vec<u64>, &Vec<bool>)| {
            let shade = shade(requests[row], most);
            // Of a row of many regions one counts: what is up is what is looked for.
            match lives[row] {
                true => FAST[shade],
                false => SLOW[shade],
            }
        };
        cells.map(sign).collect()
    }

    /// A bar for each column: how many regions were up, `most` being the most.
    fn bars(&self, most: usize) -> String {
        let bar = |up: &usize| match (*up, most) {
            (0, _) | (_, 0) => ' ',
            (up, most) => BARS[(up * BARS.len()).div_ceil(most) - 1],
        };
        self.up.iter().map(bar).collect()
    }

    fn rows(&self) -> usize {
        self.requests.first().map_or(0, Vec::len)
    }
}

/// 0 for nothing, then 1 to 4 on a logarithmic scale up to `most`.
fn shade(value: u64, most: u64) -> usize {
    if value == 0 || most == 0 {
        return 0;
    }
    let share = (value as f64).ln_1p() / (most as f64).ln_1p();
    ((share * 4.0).ceil() as usize).clamp(1, 4)
}

/// The map for a terminal of `width` columns.
fn map(heat: &Heat, width: usize) -> String {
    let (Some(first), Some(last)) = (heat.intervals.first(), heat.intervals.last()) else {
        return format!(
            "No interval of {} has ended yet; its statistics begin with the first one.\n",
            heat.volume
        );
    };
    let label = heat.regions.to_string().len() * 2 + 1;
    let grid = Grid::of(heat, width - label - 3, ROWS);
    let most = grid.requests.iter().flatten().copied().max().unwrap_or(0);
    let requests: u64 = grid.requests.iter().flatten().sum();
    let mut text = format!(
        "{}: {} requests in {} intervals from {} to {} (UTC), {} regions of {}\n",
        heat.volume,
        count(requests as f64),
        heat.intervals.len(),
        moment(first.start_unix_seconds),
        moment(last.start_unix_seconds + last.seconds),
        heat.regions,
        size(heat.region_bytes),
    );
    for row in (0..grid.rows()).rev() {
        let name = grid.regions_of(row, heat.regions);
        let signs = grid.signs_of(row, most);
        text.push_str(&format!("{name:>label$} │{signs}│\n"));
    }
    let up_most = grid.up.iter().copied().max().unwrap_or(0);
    let bars = grid.bars(up_most);
    text.push_str(&format!("{:>label$} │{bars}│ at most {up_most}\n\n", "up"));
    text.push_str(&legend(heat, &grid, most));
    text
}

/// What the signs of a map say.
fn legend(heat: &Heat, grid: &Grid, most: u64) -> String {
    let signs = |signs: &[char]| {
        signs
            .iter()
            .map(|sign| format!(" {sign}"))
            .collect::<String>()
    };
    let many = |n: usize, one: &str, more: &str| match n {
        1 => one.to_owned(),
        n => format!("{n} {more}"),
    };
    format!(
        "requests in a cell, from few to {}:{} on the slow device,{} (in part) on the fast one; {} without any\n\
         a row is {} (the lowest address below), a column {}; {} of the requests went to regions that were up\n",
        count(most as f64),
        signs(&SLOW[1..]),
        signs(&FAST[1..]),
        FAST[0],
        many(grid.tall, "a region", "regions"),
        many(grid.wide, "an interval", "intervals"),
        to_regions_up(heat)
    )
}

/// The share of requests to regions that lived on the fast device when their interval began.
fn to_regions_up(heat: &Heat) -> String {
    let mut up: &[u32] = &[];
    let (mut fast, mut all) = (0, 0);
    for interval in &heat.intervals {
        for of in &interval.counts {
            let requests = of.reads + of.writes;
            all += requests;
            if up.binary_search(&of.region).is_ok() {
                fast += requests;
            }
        }
        up = &interval.up;
    }
    share(fast as f64, all as f64)
}

/// The page: the map as a picture, and curves over time.
fn html(heat: &Heat, command: &str) -> String {
    let all: u64 = heat.intervals.iter().map(requests).sum();
    let up_most = heat
        .intervals
        .iter()
        .map(|interval| interval.up.len())
        .max();
    let facts = Facts::new()
        .fact("requests", Unit::Number.show(all as f64))
        .fact("to regions up", to_regions_up(heat))
        .fact("most regions up", up_most.unwrap_or(0).to_string());
    Page::new(format!("Heat of {}", heat.volume))
        .lead(format!(
            "{} regions of {} from {} on (UTC): what was asked of each, and which lived on the fast device.",
            heat.regions,
            size(heat.region_bytes),
            moment(begin(heat))
        ))
        .facts(facts)
        .section(Section::new("Where and when").put(picture(heat)))
        .section(over_time(heat))
        .section(Section::new("Repeat").put(Repeat::new(command)))
        .html()
}

/// When the first interval began, in seconds since 1970.
fn begin(heat: &Heat) -> f64 {
    let first = heat.intervals.first();
    first.map_or(0.0, |first| first.start_unix_seconds)
}

/// All requests of an interval.
fn requests(interval: &HeatInterval) -> u64 {
    interval.counts.iter().map(|of| of.reads + of.writes).sum()
}

/// The map as a picture.
fn picture(heat: &Heat) -> HeatMap {
    let begin = begin(heat);
    let last = heat.intervals.last();
    let end = last.map_or(0.0, |last| last.start_unix_seconds - begin + last.seconds);
    let regions = heat.regions as usize;
    let column = |values: &mut dyn Iterator<Item = (u32, f64)>| {
        let mut column = vec![0.0; regions];
        for (region, value) in values {
            if let Some(cell) = column.get_mut(region.max(1) as usize - 1) {
                *cell = value;
            }
        }
        column
    };
    let asked = |interval: &HeatInterval| {
        let counts = interval.counts.iter();
        column(&mut counts.map(|of| (of.region, (of.reads + of.writes) as f64)))
    };
    let lives = |interval: &HeatInterval| column(&mut interval.up.iter().map(|it| (*it, 1.0)));
    let address = Axis::new("address", Unit::Bytes);
    HeatMap::new(
        "Requests by region",
        "requests",
        (Axis::new("time", Unit::Seconds), 0.0, end),
        (address, 0.0, regions as f64 * heat.region_bytes as f64),
        heat.intervals.iter().map(asked).collect(),
    )
    .about("Outlined: regions that lived on the fast device at the end of the interval, in whole or in part.")
    .resident(
        "on the fast device",
        heat.intervals.iter().map(lives).collect(),
    )
}

/// The curves: a chart each, with its series.
fn over_time(heat: &Heat) -> Section {
    type Curve<'a> = (&'a str, &'a dyn Fn(&HeatInterval) -> f64);
    let begin = begin(heat);
    let curve = |title: &str, unit: Unit, series: &[Curve<'_>]| {
        let time = Axis::new("time", Unit::Seconds);
        let mut chart = Chart::new(title, time, Axis::new(title.to_lowercase(), unit));
        for (name, value) in series {
            let points = heat
                .intervals
                .iter()
                .map(|interval| (interval.start_unix_seconds - begin, value(interval)));
            chart = chart.series(Series::new(*name, points).steps());
        }
        chart
    };
    let regions: [Curve<'_>; 2] = [
        ("up", &|interval| interval.up.len() as f64),
        ("hot", &|interval| interval.candidates.len() as f64),
    ];
    let data: [Curve<'_>; 1] = [("of all regions", &|interval| {
        interval.resident.iter().map(|of| of.bytes as f64).sum()
    })];
    let rate: [Curve<'_>; 1] = [("all", &|interval| {
        requests(interval) as f64 / interval.seconds.max(1e-9)
    })];
    Section::new("Over time")
        .put(curve("Regions", Unit::Number, &regions))
        .put(curve("Data on the fast device", Unit::Bytes, &data))
        .put(curve("Requests", Unit::PerSecond, &rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tier::{RegionCount, RegionResident};

    /// Region 2 becomes hot, then lives on the fast device; region 4 is asked once.
    fn heat() -> Heat {
        let interval = |number: u64, requests: u64, up: bool| HeatInterval {
            number,
            start_unix_seconds: 1_700_000_000.0 + number as f64 * 60.0,
            seconds: 60.0,
            counts: match requests {
                0 => vec![],
                reads => vec![RegionCount {
                    region: 2,
                    reads,
                    writes: 0,
                }],
            },
            candidates: if requests > 100 { vec![2] } else { vec![] },
            resident: vec![RegionResident {
                region: 3,
                bytes: 4096,
            }],
            up: if up { vec![2] } else { vec![] },
        };
        let mut intervals = vec![
            interval(0, 0, false),
            interval(1, 1000, false),
            interval(2, 1000, true),
            interval(3, 1000, true),
            interval(4, 0, true),
        ];
        intervals[1].counts.push(RegionCount {
            region: 4,
            reads: 0,
            writes: 1,
        });
        Heat {
            volume: "vol0".into(),
            region_bytes: 16 << 20,
            regions: 4,
            intervals,
            next: None,
        }
    }

    #[test]
    fn a_map_shows_where_it_is_hot_and_what_is_up() {
        let text = map(&heat(), 100);
        let rows: Vec<&str> = text.lines().skip(1).take(5).collect();
        assert_eq!(
            rows,
            [
                "  4 │ ░   │",
                "  3 │     │",
                "  2 │ █●●○│",
                "  1 │     │",
                " up │  ███│ at most 1",
            ]
        );
        assert!(
            text.starts_with(
                "vol0: 3001 requests in 5 intervals from 2023-11-14 22:13:20 to 2023-11-14 22:18:20"
            ),
            "{text}"
        );
        // Of three thousand and one, those of interval 3 came when region 2 was up already.
        assert!(
            text.contains("33.3 % of the requests went to regions that were up"),
            "{text}"
        );
    }

    #[test]
    fn a_small_terminal_gathers_intervals_and_regions() {
        let mut heat = heat();
        heat.regions = 100;
        let grid = Grid::of(&heat, 2, 10);
        assert_eq!(
            (grid.tall, grid.wide, grid.rows(), grid.requests.len()),
            (10, 3, 10, 2)
        );
        assert_eq!(grid.requests[0][0], 2001);
        assert_eq!(grid.up, [1, 1]);
        let widest = map(&heat, WIDTH_MIN)
            .lines()
            .take(30)
            .map(|l| l.chars().count())
            .max();
        assert!(widest.is_some());
    }

    #[test]
    fn shades_grow_with_the_logarithm() {
        assert_eq!(shade(0, 10), 0);
        assert_eq!(shade(1, 1), 4);
        assert_eq!(shade(1, 1_000_000), 1);
        assert_eq!(shade(1_000_000, 1_000_000), 4);
        assert!(shade(1000, 1_000_000) < 4);
    }

    #[test]
    fn before_the_first_interval_ends_there_is_nothing_to_show() {
        let text = map(
            &Heat {
                volume: "vol0".into(),
                ..Heat::default()
            },
            80,
        );
        assert!(text.starts_with("No interval of vol0 has ended"), "{text}");
    }

    #[test]
    fn the_page_has_the_map_and_regions_up_over_time() {
        let page = html(&heat(), "tanada volume heat vol0 --html h.html");
        for expected in [
            "Heat of vol0",
            "Requests by region",
            "outline",
            "Regions",
            "33.3 %",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
    }
}
