//! Bars and heat maps out of characters.

use base::Bytes;
use report::terminal::table::count;
use trace::stat::HeatMap;

/// A cell filled from below by eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A cell with little in it to one with most.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// Rows of a bar chart.
const CHART_ROWS: usize = 6;
/// Characters for what a row stands for.
const LABEL: usize = 9;

/// Values as bars over `width` columns, with the greatest at the left edge. More values than columns are
/// joined, each bar showing the greatest of its own; fewer are widened. Also says how many values a bar
/// stands for.
pub fn chart(values: &[f64], width: usize) -> (String, usize) {
    let columns = width.saturating_sub(LABEL + 1).max(1);
    let joined = values.len().div_ceil(columns).max(1);
    let bars: Vec<f64> = values
        .chunks(joined)
        .map(|chunk| chunk.iter().copied().fold(0.0, f64::max))
        .collect();
    let widened = (columns / bars.len().max(1)).max(1);
    let most = bars.iter().copied().fold(0.0, f64::max);
    let mut chart = String::new();
    for row in (0..CHART_ROWS).rev() {
        let label = match row {
            _ if row + 1 == CHART_ROWS => count(most),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let mut line = format!("{label:>LABEL$} ");
        for bar in &bars {
            // A bar that is not empty shows at least one eighth.
            let eighths = match most > 0.0 {
                true => (bar / most * (8 * CHART_ROWS) as f64).ceil() as usize,
                false => 0,
            };
            let cell = EIGHTHS[eighths.saturating_sub(8 * row).min(8)];
            line.extend(std::iter::repeat_n(cell, widened));
        }
        chart.push_str(line.trim_end());
        chart.push('\n');
    }
    (chart, joined)
}

/// The map in `rows` lines of `width` columns, the highest address on top; darker is more, by the logarithm.
/// Also says how long a column is, in milliseconds.
pub fn heat(map: &HeatMap, rows: usize, width: usize) -> (String, u64) {
    let columns = width.saturating_sub(LABEL + 1).max(1);
    let map = map.rebinned(rows, columns);
    let most = f64::from(map.max()).ln_1p();
    let several = map.rows.iter().any(|row| row.device != map.rows[0].device);
    let used = map
        .rows
        .iter()
        .map(|row| row.counts.len())
        .max()
        .unwrap_or(1);
    let widened = (columns / used.max(1)).max(1);
    let mut text = String::new();
    for row in map.rows.iter().rev() {
        let label = match several {
            true => format!("{}:{}", row.device, short(row.offset)),
            false => short(row.offset),
        };
        let mut line = format!("{label:>LABEL$} ");
        for &count in &row.counts {
            let shade = match count {
                0 => 0,
                count => (f64::from(count).ln_1p() / most * 4.0).ceil() as usize,
            };
            line.extend(std::iter::repeat_n(SHADES[shade.min(4)], widened));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    (text, map.bar_ms)
}

/// A size in at most nine characters.
fn short(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
