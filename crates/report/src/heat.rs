//! Where on the device is it hot, and when?
//!
//! ```text
//! columns of counts (one for each step of time) -> rebinned to at most 320 x 128 cells -> shades 0..=31
//!   -> one picture for light and one for dark pages (PNG, inside the page)
//!   -> the cells' values as text, for the read-out
//! share of each cell on the fast tier -> the line around what lives there (SVG)
//! ```

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::chart::{Axis, Scales, caption, put_frame, unit_json};
use super::markup::{Ids, data, escape, put};
use super::scale::{self, Unit};

/// More steps of time are gathered: a column is then still three pixels wide on a wide page.
const COLUMNS_MAX: usize = 320;
/// More regions are gathered.
const ROWS_MAX: usize = 128;
/// Shades of a picture; 0 is nothing.
const SHADES: usize = 32;
/// A line of more corners is drawn for larger cells.
const CORNERS_MAX: usize = 12_000;

/// Counts by region and time, and what lived on the fast tier meanwhile.
///
/// Time runs to the right, addresses run upwards.
#[derive(Debug, Clone)]
pub struct HeatMap {
    title: String,
    about: String,
    counted: String,
    x: (Axis, f64, f64),
    y: (Axis, f64, f64),
    columns: Vec<Vec<f64>>,
    resident: Option<(String, Vec<Vec<f64>>)>,
}

impl HeatMap {
    /// A map called `title` of `columns`: one for each step of time, each from the lowest region up, counting
    /// `counted` ("requests"). What a short column lacks counts nothing.
    ///
    /// `x` and `y` are axes with the values where the first column (row) begins and the last one ends.
    pub fn new(
        title: impl Into<String>,
        counted: impl Into<String>,
        x: (Axis, f64, f64),
        y: (Axis, f64, f64),
        columns: Vec<Vec<f64>>,
    ) -> HeatMap {
        HeatMap {
            title: title.into(),
            about: String::new(),
            counted: counted.into(),
            x,
            y,
            columns,
            resident: None,
        }
    }

    /// A sentence beneath the title: how to read it.
    #[must_use]
    pub fn about(mut self, text: impl Into<String>) -> HeatMap {
        self.about = text.into();
        self
    }

    /// Draws a line around the cells of which half or more lived somewhere (`name`: "on the SSD"): shares from 0 to
    /// 1, in the order of the counts.
    #[must_use]
    pub fn resident(mut self, name: impl Into<String>, shares: Vec<Vec<f64>>) -> HeatMap {
        self.resident = Some((name.into(), shares));
        self
    }

    pub(super) fn put_into(&self, page: &mut String, ids: &mut Ids) {
        let id = ids.next();
        let cells = Grid::rebinned(&self.columns, Gather::Sum);
        let stretch =
            |(axis, from, to): &(Axis, f64, f64), had: usize, every: usize, now: usize| {
                // The last cell may reach beyond what was counted.
                let to = from + (to - from) * (now * every) as f64 / had.max(1) as f64;
                let axis = axis.clone().range(*from, to);
                (Scales::new(&axis, std::iter::empty(), false), *from, to)
            };
        let rows = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        let (x, x_from, x_to) = stretch(&self.x, self.columns.len(), cells.every.0, cells.columns);
        let (y, y_from, y_to) = stretch(&self.y, rows, cells.every.1, cells.rows);

        put(
            page,
            format_args!("<figure class=\"heat wide\" id=\"f{id}\">"),
        );
        caption(page, &self.title, &self.about);
        let most = cells.values.iter().copied().fold(0.0, f64::max);
        let least = cells.values.iter().copied().filter(|v| *v > 0.0);
        let shading = Shading::new(least.fold(f64::INFINITY, f64::min), most);
        self.put_scale(page, &shading);
        let description = self.description((x_from, x_to), (y_from, y_to), most);
        let resident = self.resident.as_ref();
        let resident = resident.map(|(name, shares)| (name, Grid::rebinned(shares, Gather::Mean)));
        put_frame(page, (&self.x.0, &x), (&self.y.0, &y), |page| {
            put_pictures(page, &cells, &shading, &description);
            if let Some((_, shares)) = &resident {
                put_outline(page, shares, (cells.columns, cells.rows));
            }
        });
        let direction = |axis: &(Axis, f64, f64), from: f64, to: f64| json!({"name": axis.0.name(), "unit": unit_json(axis.0.unit()), "from": from, "to": to});
        let resident = resident.map(|(name, shares)| {
            json!({"name": name, "columns": shares.columns, "rows": shares.rows,
                "cells": shares.text(|share| (share * 100.0).round())})
        });
        data(
            page,
            &json!({
                "x": direction(&self.x, x_from, x_to),
                "y": direction(&self.y, y_from, y_to),
                "counted": self.counted,
                "number": unit_json(&Unit::Number),
                "columns": cells.columns,
                "rows": cells.rows,
                "cells": cells.text(|value| format!("{value:.3e}").parse().unwrap_or(value)),
                "resident": resident,
            }),
        );
        page.push_str("</figure>\n");
    }

    /// The picture in words.
    fn description(&self, x: (f64, f64), y: (f64, f64), most: f64) -> String {
        let range = |axis: &Axis, (from, to): (f64, f64)| {
            let (name, unit) = (axis.name(), axis.unit());
            format!("{name} from {} to {}", unit.show(from), unit.show(to))
        };
        format!(
            "{} by {} and {}; at most {} in a cell",
            self.counted,
            range(&self.x.0, x),
            range(&self.y.0, y),
            Unit::Number.show(most),
        )
    }

    /// What the colours mean.
    fn put_scale(&self, page: &mut String, shading: &Shading) {
        page.push_str("<div class=\"legend\">");
        if shading.most > 0.0 {
            put(
                page,
                format_args!(
                    "<span>{}</span><span class=\"ramp\" aria-hidden=\"true\"></span><span>{} {} in a cell{}</span>",
                    Unit::Number.show(shading.least),
                    Unit::Number.show(shading.most),
                    escape(&self.counted),
                    if shading.log { ", logarithmic" } else { "" }
                ),
            );
        } else {
            put(
                page,
                format_args!("<span>no {}</span>", escape(&self.counted)),
            );
        }
        if let Some((name, _)) = &self.resident {
            put(
                page,
                format_args!(
                    "<span class=\"resident\"><i class=\"box\" aria-hidden=\"true\"></i>{}</span>",
                    escape(name)
                ),
            );
        }
        page.push_str("</div>");
    }
}

/// How several cells become one.
#[derive(Clone, Copy, PartialEq)]
enum Gather {
    Sum,
    Mean,
}

/// Cells of equal size, column by column, each from the bottom up.
struct Grid {
    columns: usize,
    rows: usize,
    values: Vec<f64>,
    /// So many of the caller's columns and rows are one of ours.
    every: (usize, usize),
}

impl Grid {
    fn rebinned(columns: &[Vec<f64>], gather: Gather) -> Grid {
        let height = columns.iter().map(Vec::len).max().unwrap_or(0);
        Grid::gathered(
            columns,
            (
                columns.len().div_ceil(COLUMNS_MAX).max(1),
                height.div_ceil(ROWS_MAX).max(1),
            ),
            gather,
        )
    }

    /// Whole numbers of cells go into one: stripes of uneven cells would look like a pattern of the work.
    fn gathered(columns: &[Vec<f64>], every: (usize, usize), gather: Gather) -> Grid {
        let height = columns.iter().map(Vec::len).max().unwrap_or(0);
        let size = (
            columns.len().div_ceil(every.0).max(1),
            height.div_ceil(every.1).max(1),
        );
        let mut values = vec![0.0; size.0 * size.1];
        let mut counts = vec![0_u32; values.len()];
        for (x, column) in columns.iter().enumerate() {
            for (y, value) in column.iter().enumerate() {
                let cell = x / every.0 * size.1 + y / every.1;
                if value.is_finite() && *value > 0.0 {
                    values[cell] += value;
                }
                counts[cell] += 1;
            }
        }
        if gather == Gather::Mean {
            for (value, count) in values.iter_mut().zip(counts) {
                *value /= f64::from(count.max(1));
            }
        }
        Grid {
            columns: size.0,
            rows: size.1,
            values,
            every,
        }
    }

    fn at(&self, column: usize, row: usize) -> f64 {
        self.values[column * self.rows + row]
    }

    /// Numbers with commas between them, nothing for 0.
    fn text(&self, shown: impl Fn(f64) -> f64) -> String {
        let cells: Vec<String> = self
            .values
            .iter()
            .map(|value| match shown(*value) {
                0.0 => String::new(),
                number => number.to_string(),
            })
            .collect();
        cells.join(",")
    }
}

/// Which shade a count has: logarithmic where counts differ much.
struct Shading {
    least: f64,
    most: f64,
    log: bool,
}

impl Shading {
    fn new(least: f64, most: f64) -> Shading {
        Shading {
            least: least.min(most),
            most,
            log: least > 0.0 && most / least > 30.0,
        }
    }

    fn shade(&self, value: f64) -> u8 {
        if value <= 0.0 {
            return 0;
        }
        let share = match self.log {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        };
        // The only value there is is the greatest.
        let share = if share.is_finite() { share } else { 1.0 };
        1 + (share * (SHADES - 2) as f64).round() as u8
    }
}

type Stops = [[u8; 3]; 6];

/// From little to much: from near the paper to far from it. The style sheet draws the same ramps.
const LIGHT: Stops = [
    [0xe3, 0xee, 0xec],
    [0xac, 0xd6, 0xcd],
    [0x63, 0xb1, 0xb1],
    [0x2c, 0x82, 0x9e],
    [0x20, 0x50, 0x86],
    [0x1a, 0x24, 0x58],
];
const DARK: Stops = [
    [0x22, 0x33, 0x4a],
    [0x21, 0x57, 0x78],
    [0x2a, 0x88, 0x8b],
    [0x5f, 0xb5, 0x7c],
    [0xb9, 0xd5, 0x5c],
    [0xfb, 0xee, 0x6e],
];

fn palette(stops: &Stops) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    for shade in 0..SHADES - 1 {
        let along = shade as f64 / (SHADES - 2) as f64 * (stops.len() - 1) as f64;
        let from = (along as usize).min(stops.len() - 2);
        let share = along - from as f64;
        for (a, b) in stops[from].into_iter().zip(stops[from + 1]) {
            let mixed = f64::from(a) + (f64::from(b) - f64::from(a)) * share;
            bytes.push(mixed.round() as u8);
        }
    }
    bytes
}

fn put_pictures(page: &mut String, cells: &Grid, shading: &Shading, description: &str) {
    put(
        page,
        format_args!(
            "<picture><source media=\"screen and (prefers-color-scheme:dark)\" srcset=\"{}\"><img src=\"{}\" alt=\"{}\"></picture>",
            picture(cells, shading, &DARK),
            picture(cells, shading, &LIGHT),
            escape(description)
        ),
    );
}

/// The line around what lives on the fast tier.
fn put_outline(page: &mut String, shares: &Grid, of: (usize, usize)) {
    put(
        page,
        format_args!(
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path \
             class=\"outline-under\" d=\"{0}\"/><path class=\"outline\" d=\"{0}\"/></svg>",
            outline(shares, of)
        ),
    );
}

/// The cells as a picture of one pixel each, as an address that holds the picture.
fn picture(grid: &Grid, shading: &Shading, stops: &Stops) -> String {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, grid.columns as u32, grid.rows as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    encoder.set_palette(palette(stops));
    // Where nothing was counted the page is seen.
    encoder.set_trns(vec![0_u8]);
    let mut pixels = Vec::with_capacity(grid.values.len());
    for row in (0..grid.rows).rev() {
        pixels.extend((0..grid.columns).map(|column| shading.shade(grid.at(column, row))));
    }
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&pixels))
        .expect("memory takes a picture of the size it was announced with");
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(&bytes))
}

/// The line around the cells of a half or more, in a square of a thousand units.
///
/// `size`: the cells of the counts, whose edges the line follows.
fn outline(shares: &Grid, size: (usize, usize)) -> String {
    let mut every = 1;
    loop {
        let columns: Vec<Vec<f64>> = (0..shares.columns)
            .map(|column| (0..shares.rows).map(|row| shares.at(column, row)).collect())
            .collect();
        let coarse = Grid::gathered(&columns, (every, every), Gather::Mean);
        let (path, corners) = edges(&coarse, every, size);
        if corners <= CORNERS_MAX || (coarse.columns == 1 && coarse.rows == 1) {
            return path;
        }
        every *= 2;
    }
}

fn edges(grid: &Grid, every: usize, size: (usize, usize)) -> (String, usize) {
    let inside = |column: Option<usize>, row: Option<usize>| match (column, row) {
        (Some(column), Some(row)) if column < grid.columns && row < grid.rows => {
            grid.at(column, row) >= 0.5
        }
        _ => false,
    };
    let along = |n: usize, of: usize| scale::place((n * every) as f64 / of as f64);
    let x = |column: usize| along(column, size.0).min(1000.0);
    let y = |row: usize| (1000.0 - along(row, size.1)).max(0.0);
    let mut path = String::new();
    let mut corners = 0;
    // Lines across: between row - 1 and row.
    for row in 0..=grid.rows {
        let mut column = 0;
        while column < grid.columns {
            let edge = |c: usize| inside(Some(c), row.checked_sub(1)) != inside(Some(c), Some(row));
            let start = column;
            while column < grid.columns && edge(column) {
                column += 1;
            }
            if column > start {
                put(
                    &mut path,
                    format_args!("M{} {}H{}", x(start), y(row), x(column)),
                );
                corners += 1;
            }
            column += 1;
        }
    }
    for column in 0..=grid.columns {
        let mut row = 0;
        while row < grid.rows {
            let edge =
                |r: usize| inside(column.checked_sub(1), Some(r)) != inside(Some(column), Some(r));
            let start = row;
            while row < grid.rows && edge(row) {
                row += 1;
            }
            if row > start {
                put(
                    &mut path,
                    format_args!("M{} {}V{}", x(column), y(start), y(row)),
                );
                corners += 1;
            }
            row += 1;
        }
    }
    (path, corners)
}

#[cfg(test)]
mod tests {
    use super::super::markup::drawn;
    use super::super::{Page, Section};
    use super::*;

    fn axes() -> [(Axis, f64, f64); 2] {
        [
            (Axis::new("time", Unit::Seconds), 0.0, 600.0),
            (Axis::new("address", Unit::Bytes), 0.0, 1e9),
        ]
    }

    fn page(columns: Vec<Vec<f64>>, resident: Option<Vec<Vec<f64>>>) -> String {
        let [x, y] = axes();
        let mut map = HeatMap::new("Heat <map>", "requests", x, y, columns);
        if let Some(shares) = resident {
            map = map.resident("on the SSD", shares);
        }
        let page = Page::new("t").section(Section::new("s").put(map)).html();
        drawn(&page).to_owned()
    }

    #[test]
    fn a_large_map_is_gathered_and_nothing_is_lost() {
        let columns = vec![vec![2.0; 1000]; 1000];
        let grid = Grid::rebinned(&columns, Gather::Sum);
        assert_eq!((grid.columns, grid.rows, grid.every), (250, 125, (4, 8)));
        assert_eq!(grid.values.iter().sum::<f64>(), 2e6);
        let noise: Vec<Vec<f64>> = (0..1000_u64)
            .map(|x| {
                (0..1000)
                    .map(|y| ((x * 7919 + y * 104_729) % 1009) as f64)
                    .collect()
            })
            .collect();
        let shares = noise
            .iter()
            .map(|c| c.iter().map(|v| v / 1009.0).collect())
            .collect();
        let page = page(noise, Some(shares));
        assert!(page.len() < 900_000, "{} bytes", page.len());
    }

    #[test]
    fn the_line_goes_around_what_lives_there() {
        let shares = vec![vec![0.0, 1.0], vec![0.0, 1.0]];
        let grid = Grid::rebinned(&shares, Gather::Mean);
        assert_eq!(
            outline(&grid, (2, 2)),
            "M0 500H1000M0 0H1000M0 500V0M1000 500V0"
        );
        assert_eq!(
            outline(&Grid::rebinned(&[vec![0.2]], Gather::Mean), (1, 1)),
            ""
        );
    }

    #[test]
    fn much_is_far_from_the_paper_and_nothing_is_the_paper() {
        let shading = Shading::new(1.0, 1000.0);
        assert!(shading.log);
        assert_eq!(
            [0.0, 1.0, 1000.0].map(|v| shading.shade(v)),
            [0, 1, SHADES as u8 - 1]
        );
        assert_eq!(Shading::new(5.0, 5.0).shade(5.0), SHADES as u8 - 1);
        assert_eq!(palette(&LIGHT).len(), SHADES * 3);
        let lightness = |stops: &Stops| -> Vec<u32> {
            let weighed = |c: &[u8; 3]| 3 * u32::from(c[0]) + 6 * u32::from(c[1]) + u32::from(c[2]);
            stops.iter().map(weighed).collect()
        };
        // Without colours the order is the same.
        assert!(lightness(&LIGHT).is_sorted_by(|a, b| a > b));
        assert!(lightness(&DARK).is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn an_empty_or_ragged_map_is_still_a_map() {
        for columns in [
            vec![],
            vec![vec![]],
            vec![vec![1.0], vec![], vec![0.0, f64::NAN]],
        ] {
            let page = page(columns, Some(vec![]));
            assert!(page.contains("<picture>") && page.contains("Heat &lt;map&gt;"));
            assert!(!page.contains("NaN"));
        }
    }
}
