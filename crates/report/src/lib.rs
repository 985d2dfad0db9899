//! Figures for people: a page, a terminal, rows.
//!
//! ```text
//! terminal: JSON, tables, units, errors with their exit status, progress
//! manual:   a command line as pages of man
//! Row:      one figure of an experiment, published and ours
//! Page: title, lead, facts
//!   Section: Table, Chart, HeatMap, Facts, Code, Repeat, Note ... -> html(): one self-contained file
//! rows of an experiment -> html(rows, title) ----------------------^
//! ```
//!
//! Charts are drawn here, as SVG; the page's own small script adds read-outs under the pointer, switches curves and
//! scales and sorts tables. Without it everything is still there to see.
//!
//! Always true of a page:
//! 1. The page loads nothing: no scripts, no fonts, no pictures from elsewhere.
//! 2. No text handed to it is taken for markup.
//! 3. Its size is bounded by what a screen can show, however much was measured.
//! 4. The same parts give the same bytes.
//!
//! # Example
//! ```
//! use report::{Axis, Cell, Chart, Facts, HeatMap, Page, Repeat, Section, Series, Table, Unit};
//!
//! let curve = Chart::new(
//!     "Miss-ratio curves",
//!     Axis::new("cache size", Unit::Bytes).log(),
//!     Axis::new("miss ratio", Unit::Share).range(0.0, 1.0),
//! )
//! .series(Series::new("lru", [(1e9, 0.9), (4e9, 0.5), (16e9, 0.2)]))
//! .series(Series::new("s3-fifo", [(1e9, 0.8), (4e9, 0.4), (16e9, 0.2)]))
//! .mark(4e9, "configured");
//!
//! let table = Table::new("Policies", ["policy", "miss ratio", "requests"])
//!     .row([Cell::from("lru"), Cell::of(0.5, &Unit::Share), Cell::from(1_000_000_u64)])
//!     .row([Cell::from("s3-fifo"), Cell::of(0.4, &Unit::Share).best(), Cell::from(1_000_000_u64)]);
//!
//! // One column for each minute, each from the lowest region up.
//! let map = HeatMap::new(
//!     "Where the requests go",
//!     "requests",
//!     (Axis::new("time", Unit::Seconds), 0.0, 120.0),
//!     (Axis::new("address", Unit::Bytes), 0.0, 3e9),
//!     vec![vec![10.0, 0.0, 200.0], vec![20.0, 1.0, 0.0]],
//! )
//! .resident("on the SSD", vec![vec![0.0, 0.0, 1.0], vec![1.0, 0.0, 1.0]]);
//!
//! let page = Page::new("A trace and two policies")
//!     .lead("S3-FIFO misses a fifth less than LRU at 4 GB.")
//!     .facts(Facts::new().fact("requests", Unit::Number.show(1e6)).fact("best", "s3-fifo"))
//!     .section(Section::new("Miss ratios").put(table).put(curve))
//!     .section(Section::new("Heat").put(map))
//!     .section(Section::new("Repeat").put(Repeat::new("tanada sim cache trace.csv").seed(1)))
//!     .html();
//! assert!(page.starts_with("<!doctype html>"));
//! ```

mod chart;
mod experiment;
mod heat;
pub mod manual;
mod markup;
mod page;
mod row;
mod scale;
mod table;
pub mod terminal;
mod text;

pub use chart::{Axis, Chart, Series};
pub use experiment::{Bars, html, html_with};
pub use heat::HeatMap;
pub use page::{Block, Page, Section};
pub use row::{Devices, Evidence, Row, Value, Verdict};
pub use scale::Unit;
pub use table::{Cell, Facts, Table};
pub use text::{Code, Note, Repeat};
