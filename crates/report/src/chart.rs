//! What does a curve look like on the page?
//!
//! ```text
//! series + axes -> domains -> thinned points -> SVG paths (seen without any script)
//!                                            -> the points as data (read-outs, switching scales)
//! ```
//!
//! The lines are one SVG that stretches with the page; the labels are text beside it, which does not, so that a
//! phone shows them as large as a desk does.

use serde_json::json;

use super::markup::{Ids, data, escape, put};
use super::scale::{self, Domain, Step, Tick, Unit};

/// One direction of a chart: what it shows, in which unit, and how.
#[derive(Debug, Clone)]
pub struct Axis {
    name: String,
    unit: Unit,
    log: bool,
    range: Option<(f64, f64)>,
    floating: bool,
}

impl Axis {
    /// A linear axis called `name`.
    pub fn new(name: impl Into<String>, unit: Unit) -> Axis {
        Axis {
            name: name.into(),
            unit,
            log: false,
            range: None,
            floating: false,
        }
    }

    /// Logarithmic at first, where the values allow it; the reader can switch.
    #[must_use]
    pub fn log(mut self) -> Axis {
        self.log = true;
        self
    }

    /// From `low` to `high`, whatever the values are.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        self.range = Some((low, high));
        self
    }

    /// A vertical axis that need not begin at zero.
    #[must_use]
    pub fn floating(mut self) -> Axis {
        self.floating = true;
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn unit(&self) -> &Unit {
        &self.unit
    }
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    steps: bool,
}

impl Series {
    /// The curve called `name` through `points`, which may come in any order of x.
    ///
    /// A y that is not a number is a gap; a point whose x is not is left out.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let mut points: Vec<(f64, f64)> = points
            .into_iter()
            .filter(|(x, _)| x.is_finite())
            .map(|(x, y)| (x, if y.is_finite() { y } else { f64::NAN }))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            name: name.into(),
            points,
            steps: false,
        }
    }

    /// Each value holds until the next: a count, a cumulative distribution.
    #[must_use]
    pub fn steps(mut self) -> Series {
        self.steps = true;
        self
    }
}

/// Curves over a common axis: a distribution, a time series, a miss-ratio curve.
#[derive(Debug, Clone)]
pub struct Chart {
    title: String,
    about: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    marks: Vec<(f64, String)>,
    wide: bool,
}

/// A curve of no more points shows each of them as a dot.
const DOTS_MAX: usize = 24;
/// Colours in the style sheet; later curves begin again with other dashes.
const COLOURS: usize = 8;

impl Chart {
    /// A chart called `title` with these axes and nothing in it yet.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.into(),
            about: String::new(),
            x,
            y,
            series: Vec::new(),
            marks: Vec::new(),
            wide: false,
        }
    }

    /// A sentence beneath the title: how to read it.
    #[must_use]
    pub fn about(mut self, text: impl Into<String>) -> Chart {
        self.about = text.into();
        self
    }

    /// One more curve.
    #[must_use]
    pub fn series(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// A place on the x axis worth pointing at: the size that is configured, the moment a device failed.
    #[must_use]
    pub fn mark(mut self, x: f64, label: impl Into<String>) -> Chart {
        if x.is_finite() {
            self.marks.push((x, label.into()));
        }
        self
    }

    /// Over the whole width of the page; charts share a line otherwise, where there is room.
    #[must_use]
    pub fn wide(mut self) -> Chart {
        self.wide = true;
        self
    }

    fn values(&self, of: impl Fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(of).filter(|value| value.is_finite())
    }

    pub(super) fn put_into(&self, page: &mut String, ids: &mut Ids) {
        let id = ids.next();
        let x = Scales::new(&self.x, self.values(|p| p.0), false);
        let y = Scales::new(&self.y, self.values(|p| p.1), !self.y.floating);
        let thinned: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|series| scale::thinned(&series.points, x.shown()))
            .collect();

        let wide = if self.wide { " wide" } else { "" };
        put(
            page,
            format_args!("<figure class=\"chart{wide}\" id=\"f{id}\">"),
        );
        caption(page, &self.title, &self.about);
        self.put_legend(page);
        put_frame(page, (&self.x, &x), (&self.y, &y), |page| {
            self.put_svg(page, id, &x, &y, &thinned);
            for (at, label) in &self.marks {
                let share = x.shown().share(*at);
                let side = if share > 0.6 { " class=\"left\"" } else { "" };
                put(
                    page,
                    format_args!(
                        "<span{side} data-mark=\"{at}\" style=\"left:{}%\">{}</span>",
                        percent(share),
                        escape(label)
                    ),
                );
            }
        });
        let series: Vec<_> = self
            .series
            .iter()
            .zip(&thinned)
            .map(|(series, points)| {
                json!({
                    "name": series.name,
                    "steps": series.steps,
                    "x": points.iter().map(|p| short(p.0)).collect::<Vec<_>>(),
                    "y": points.iter().map(|p| short(p.1)).collect::<Vec<_>>(),
                })
            })
            .collect();
        data(
            page,
            &json!({"x": x.json(), "y": y.json(), "series": series}),
        );
        page.push_str("</figure>\n");
    }

    fn put_legend(&self, page: &mut String) {
        page.push_str("<div class=\"bar\"><ul class=\"legend\">");
        for (n, series) in self.series.iter().enumerate() {
            put(
                page,
                format_args!(
                    "<li><svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 \
                     5H21\"/></svg>{}</li>",
                    class(n),
                    escape(&series.name)
                ),
            );
        }
        page.push_str("</ul></div>");
    }

    fn put_svg(
        &self,
        page: &mut String,
        id: usize,
        x: &Scales,
        y: &Scales,
        thinned: &[Vec<(f64, f64)>],
    ) {
        put(
            page,
            format_args!(
                "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" \
                 aria-labelledby=\"t{id} d{id}\"><title id=\"t{id}\">{}</title><desc id=\"d{id}\">{}</desc>",
                escape(&self.title),
                escape(&self.description(x, y))
            ),
        );
        put_grid(page, x.shown_ticks(), y.shown_ticks());
        for (at, _) in &self.marks {
            let at = scale::place(x.shown().share(*at));
            put(
                page,
                format_args!("<path class=\"mark\" d=\"M{at} 0V1000\"/>"),
            );
        }
        for (n, (series, points)) in self.series.iter().zip(thinned).enumerate() {
            let path = scale::path(points, x.shown(), y.shown(), series.steps);
            put(
                page,
                format_args!("<path class=\"{}\" d=\"{path}\"/>", class(n)),
            );
            if points.len() <= DOTS_MAX {
                let dots: Vec<(f64, f64)> =
                    points.iter().flat_map(|p| [*p, (p.0, f64::NAN)]).collect();
                let dots = scale::path(&dots, x.shown(), y.shown(), false).replace('M', "h0M");
                // A line of no length with a round cap: a dot that stays round when the picture is stretched.
                let dots = dots.strip_prefix("h0").map(|d| format!("{d}h0"));
                put(
                    page,
                    format_args!(
                        "<path class=\"{} dots\" data-n=\"{n}\" d=\"{}\"/>",
                        class(n),
                        dots.unwrap_or_default()
                    ),
                );
            }
        }
        page.push_str("</svg>");
    }

    /// What the picture shows, for those who do not see it.
    fn description(&self, x: &Scales, y: &Scales) -> String {
        let names: Vec<&str> = self.series.iter().map(|s| s.name.as_str()).collect();
        let end = |axis: &Axis, value: f64| axis.unit.show(value);
        format!(
            "{} over {}, from {} to {}, values from {} to {}. {}: {}.",
            self.y.name,
            self.x.name,
            end(&self.x, x.least),
            end(&self.x, x.most),
            end(&self.y, y.least),
            end(&self.y, y.most),
            match names.len() {
                1 => "One curve".to_owned(),
                n => format!("{n} curves"),
            },
            names.join(", ")
        )
    }
}

/// The class of the n-th curve: a colour, and dashes from the fifth on.
fn class(n: usize) -> String {
    format!("line c{} dash{}", n % COLOURS, (n / 4) % 4)
}

/// Seven significant digits: more than a screen shows, less than half the text.
fn short(value: f64) -> Option<f64> {
    value
        .is_finite()
        .then(|| format!("{value:.6e}").parse().unwrap_or(value))
}

pub(super) fn caption(page: &mut String, title: &str, about: &str) {
    put(page, format_args!("<figcaption><h3>{}</h3>", escape(title)));
    if !about.is_empty() {
        put(page, format_args!("<p>{}</p>", escape(about)));
    }
    page.push_str("</figcaption>");
}

/// The plot between its axes, which stand with name and labels to the left of it and below.
pub(super) fn put_frame(
    page: &mut String,
    (x_axis, x): (&Axis, &Scales),
    (y_axis, y): (&Axis, &Scales),
    put_plot: impl FnOnce(&mut String),
) {
    let (x_name, y_name) = (escape(&x_axis.name), escape(&y_axis.name));
    put(
        page,
        format_args!(
            "<div class=\"axis-name\">{y_name}</div><div class=\"frame\" style=\"--labels:{}ch\"><div class=\"ys\">",
            y.widest_label()
        ),
    );
    put_ticks(page, y.shown_ticks(), "bottom");
    page.push_str("</div><div class=\"plot\">");
    put_plot(page);
    page.push_str("</div><div class=\"xs\">");
    put_ticks(page, x.shown_ticks(), "left");
    put(
        page,
        format_args!("</div></div><div class=\"axis-name under\">{x_name}</div>"),
    );
}

/// Labels along an axis; every second one gives way on a narrow screen.
fn put_ticks(page: &mut String, ticks: &[Tick], side: &str) {
    for (n, tick) in ticks.iter().enumerate() {
        let class = if n % 2 == 1 { " class=\"odd\"" } else { "" };
        put(
            page,
            format_args!(
                "<span{class} style=\"{side}:{}%\">{}</span>",
                percent(tick.at),
                escape(&tick.label)
            ),
        );
    }
}

fn put_grid(page: &mut String, x: &[Tick], y: &[Tick]) {
    page.push_str("<path class=\"grid\" d=\"");
    for tick in x {
        put(page, format_args!("M{} 0V1000", scale::place(tick.at)));
    }
    for tick in y {
        put(
            page,
            format_args!("M0 {}H1000", scale::place(1.0 - tick.at)),
        );
    }
    page.push_str("\"/>");
}

fn percent(share: f64) -> f64 {
    scale::place(share) / 10.0
}

/// Both ways to show an axis, and which is shown first.
pub(super) struct Scales {
    unit: Unit,
    least: f64,
    most: f64,
    linear: (Domain, Vec<Tick>),
    log: Option<(Domain, Vec<Tick>)>,
    log_first: bool,
}

impl Scales {
    /// `lengths`: values are compared by their distance from zero.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, lengths: bool) -> Scales {
        let (mut least, mut most, mut positive) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for value in values {
            (least, most) = (least.min(value), most.max(value));
            if value > 0.0 {
                positive = positive.min(value);
            }
        }
        if let Some((low, high)) = axis.range {
            (least, most) = (low, high);
            positive = if low > 0.0 { low } else { positive.min(high) };
        }
        if least > most {
            (least, most) = (0.0, 1.0);
        }
        let from_zero = lengths && axis.range.is_none();
        let linear = Domain::linear(&axis.unit, least, most, from_zero);
        let log = Domain::log(positive, most, from_zero);
        let with_ticks = |domain: Domain| (domain, domain.ticks(&axis.unit));
        Scales {
            unit: axis.unit.clone(),
            least,
            most,
            linear: with_ticks(linear),
            log_first: axis.log && log.is_some(),
            log: log.map(with_ticks),
        }
    }

    fn both(&self) -> &(Domain, Vec<Tick>) {
        match &self.log {
            Some(log) if self.log_first => log,
            _ => &self.linear,
        }
    }

    pub(super) fn shown(&self) -> Domain {
        self.both().0
    }

    pub(super) fn shown_ticks(&self) -> &[Tick] {
        &self.both().1
    }

    /// In characters, over both scales: switching moves nothing.
    pub(super) fn widest_label(&self) -> usize {
        let log = self.log.iter().flat_map(|(_, ticks)| ticks);
        let all = self.linear.1.iter().chain(log);
        all.map(|tick| tick.label.chars().count())
            .max()
            .unwrap_or(1)
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let scale = |(domain, ticks): &(Domain, Vec<Tick>)| {
            let ticks: Vec<_> = ticks
                .iter()
                .map(|t| json!([short(t.at), t.label]))
                .collect();
            json!({"low": domain.low, "high": domain.high, "log": domain.log, "ticks": ticks})
        };
        json!({
            "unit": unit_json(&self.unit),
            "linear": scale(&self.linear),
            "log": self.log.as_ref().map(scale),
            "shown": if self.log_first { "log" } else { "linear" },
        })
    }
}

/// How the script writes a value.
pub(super) fn unit_json(unit: &Unit) -> serde_json::Value {
    let steps: Vec<_> = unit
        .steps()
        .into_iter()
        .map(|Step { from, by, suffix }| json!([from, by, suffix]))
        .collect();
    json!({"steps": steps, "zero": unit.show(0.0)})
}

#[cfg(test)]
mod tests {
    use super::super::markup::drawn;
    use super::super::{Page, Section};
    use super::*;

    fn page(chart: Chart) -> String {
        let page = Page::new("t").section(Section::new("s").put(chart)).html();
        drawn(&page).to_owned()
    }

    fn chart() -> Chart {
        Chart::new(
            "Response <time>",
            Axis::new("time", Unit::Seconds).log(),
            Axis::new("share", Unit::Share).range(0.0, 1.0),
        )
    }

    #[test]
    fn a_chart_is_drawn_without_its_script() {
        let curve = [(0.001, 0.0), (0.01, 0.5), (0.1, 1.0)];
        let page = page(
            chart()
                .series(Series::new("a & b", curve))
                .mark(0.01, "<here>"),
        );
        assert!(page.contains("d=\"M0 1000L500 500L1000 0\""), "{page}");
        assert!(page.contains("a &amp; b") && page.contains("Response &lt;time&gt;"));
        assert!(page.contains("&lt;here&gt;") && !page.contains("<here>"));
        assert!(page.contains("1 ms</span>") && page.contains("40 %</span>"));
        assert!(page.contains("from 1 ms to 100 ms"), "described in words");
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        for points in [
            vec![],
            vec![(1.0, 1.0)],
            vec![(f64::NAN, 1.0), (0.0, f64::INFINITY)],
        ] {
            let page = page(chart().series(Series::new("none", points)));
            assert!(page.contains("<figure") && !page.contains("NaN") && !page.contains("inf"));
        }
    }

    #[test]
    fn a_million_points_make_a_page_of_bounded_size() {
        let many = (0..1_000_000).map(|n| (f64::from(n), f64::from(n % 1009 * 7919 % 1009)));
        let axes = [Unit::Seconds, Unit::PerSecond].map(|unit| Axis::new("axis", unit));
        let [x, y] = axes;
        let page = page(Chart::new("much", x, y).series(Series::new("all", many)));
        assert!(page.len() < 100_000, "{} bytes", page.len());
    }
}
