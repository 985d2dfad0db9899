//! Where does a value lie on an axis, how is it written, and which points of a curve can be seen at all?
//!
//! ```text
//! values -> domain (linear, logarithmic) -> ticks with labels
//! value  -> share of the axis, 0..=1
//! points -> as many as a screen can show, the highest and lowest of each column of pixels among them
//! ```
//!
//! Always true:
//! 1. A value is written the same way by the page's script and by us: both read [`Unit::steps`].
//! 2. Thinning never loses the least or the greatest value of a curve.

use std::borrow::Cow;
use std::fmt::Write;

/// What a figure is counted in; it says how the figure is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// A plain number: 12.3 M.
    Number,
    /// Seconds, written as ns, us, ms, s, min, h or d.
    Seconds,
    /// Bytes, written as KiB, MiB and so on.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Something per second, such as requests.
    PerSecond,
    /// A share of one, written in per cent.
    Share,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Any other unit, written behind the number.
    Other(String),
}

/// From `from` on, a value is divided by `by` and followed by `suffix`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub from: f64,
    pub by: f64,
    pub suffix: Cow<'static, str>,
}

const KIB: f64 = 1024.0;

/// Steps: from which value on, divided by what, and what stands behind the number.
fn fixed(steps: &[(f64, f64, &'static str)]) -> Vec<Step> {
    let step = |&(from, by, suffix): &(f64, f64, &'static str)| Step {
        from,
        by,
        suffix: Cow::Borrowed(suffix),
    };
    steps.iter().map(step).collect()
}

impl Unit {
    /// How values of this unit are written, the smallest first.
    pub(super) fn steps(&self) -> Vec<Step> {
        match self {
            Unit::Number => fixed(&[
                (0.0, 1.0, ""),
                (1e4, 1e3, " k"),
                (1e6, 1e6, " M"),
                (1e9, 1e9, " G"),
                (1e12, 1e12, " T"),
            ]),
            Unit::Seconds => fixed(&[
                (0.0, 1e-9, " ns"),
                (1e-6, 1e-6, " us"),
                (1e-3, 1e-3, " ms"),
                (1.0, 1.0, " s"),
                (120.0, 60.0, " min"),
                (7200.0, 3600.0, " h"),
                (172_800.0, 86_400.0, " d"),
            ]),
            Unit::Bytes => fixed(&[
                (0.0, 1.0, " B"),
                (KIB, KIB, " KiB"),
                (KIB * KIB, KIB * KIB, " MiB"),
                (KIB * KIB * KIB, KIB * KIB * KIB, " GiB"),
                (KIB.powi(4), KIB.powi(4), " TiB"),
                (KIB.powi(5), KIB.powi(5), " PiB"),
            ]),
            Unit::BytesPerSecond => fixed(&[
                (0.0, 1.0, " B/s"),
                (1e3, 1e3, " kB/s"),
                (1e6, 1e6, " MB/s"),
                (1e9, 1e9, " GB/s"),
            ]),
            Unit::PerSecond => fixed(&[
                (0.0, 1.0, "/s"),
                (1e4, 1e3, " k/s"),
                (1e6, 1e6, " M/s"),
                (1e9, 1e9, " G/s"),
            ]),
            Unit::Share => fixed(&[(0.0, 0.01, " %")]),
            Unit::Watts => fixed(&[(0.0, 1e-3, " mW"), (1.0, 1.0, " W"), (1e3, 1e3, " kW")]),
            Unit::Joules => fixed(&[
                (0.0, 1e-3, " mJ"),
                (1.0, 1.0, " J"),
                (1e3, 1e3, " kJ"),
                (1e6, 1e6, " MJ"),
            ]),
            Unit::Other(name) => vec![Step {
                from: 0.0,
                by: 1.0,
                suffix: Cow::Owned(format!(" {name}")),
            }],
        }
    }

    fn step(&self, value: f64) -> Step {
        let mut steps = self.steps();
        let at = steps.iter().rposition(|step| value.abs() >= step.from);
        steps.swap_remove(at.unwrap_or(0))
    }

    /// `value` for a reader: four significant digits and the unit.
    ///
    /// # Example
    /// ```
    /// use report::Unit;
    ///
    /// assert_eq!(Unit::Seconds.show(0.004_217_9), "4.218 ms");
    /// assert_eq!(Unit::Bytes.show(24.0 * 1024.0 * 1024.0 * 1024.0), "24 GiB");
    /// assert_eq!(Unit::Share.show(0.345), "34.5 %");
    /// assert_eq!(Unit::Number.show(1_234_567.0), "1.235 M");
    /// ```
    pub fn show(&self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        if value == 0.0 {
            return self.zero();
        }
        let step = self.step(value);
        format!("{}{}", digits(value / step.by), step.suffix)
    }

    /// Nothing is nothing, whatever it is counted in; shares keep their sign.
    fn zero(&self) -> String {
        match self {
            Unit::Share => "0 %".to_owned(),
            _ => "0".to_owned(),
        }
    }

    /// Is it halved and doubled rather than divided by ten?
    fn is_binary(&self) -> bool {
        *self == Unit::Bytes
    }

    /// Steps between ticks that read well, in this unit's own measure, of which the next is taken.
    fn round_step(&self, raw: f64, by: f64) -> f64 {
        const TIMES: [f64; 18] = [
            1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0,
            7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0,
        ];
        if *self == Unit::Seconds
            && raw > 1.0
            && let Some(step) = TIMES.into_iter().find(|step| *step >= raw)
        {
            return step;
        }
        if self.is_binary() {
            return 2.0_f64.powi(raw.log2().ceil() as i32);
        }
        let scaled = raw / by;
        let power = 10.0_f64.powi(scaled.log10().floor() as i32);
        let factor = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|factor| factor * power >= scaled * 0.999_999)
            .unwrap_or(10.0);
        factor * power * by
    }
}

/// Four significant digits, no zeros at the end.
fn digits(value: f64) -> String {
    let whole = value.abs().log10().floor();
    if !(-5.0..15.0).contains(&whole) {
        return format!("{value:.3e}");
    }
    let decimals = (3.0 - whole).clamp(0.0, 8.0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// The part of the numbers an axis shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Domain {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Domain {
    /// Where `value` lies: 0 at the low end, 1 at the high end; beyond them the end itself.
    pub fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            if value <= self.low {
                return 0.0;
            }
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Linear, over these values.
    ///
    /// `from_zero`: the axis begins at nothing, so that lengths can be compared; its far end is then rounded up to
    /// a tick.
    pub fn linear(unit: &Unit, least: f64, most: f64, from_zero: bool) -> Domain {
        let (mut low, mut high) = (least, most);
        if from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low >= high {
            // One value only: room on both sides.
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            high += room;
            if !from_zero || low < 0.0 {
                low -= room;
            }
        }
        if from_zero {
            let step = tick_step(unit, low, high, TICKS);
            high = (high / step - 1e-9).ceil() * step;
            low = (low / step + 1e-9).floor() * step;
        }
        Domain {
            low,
            high,
            log: false,
        }
    }

    /// Logarithmic, if the positive values span enough to be worth it.
    pub fn log(least_positive: f64, most: f64, whole_decades: bool) -> Option<Domain> {
        if !(least_positive > 0.0 && most >= least_positive * LOG_SPAN_MIN) {
            return None;
        }
        let (mut low, mut high) = (least_positive, most);
        if whole_decades {
            low = 10.0_f64.powi((low.log10() + 1e-9).floor() as i32);
            high = 10.0_f64.powi((high.log10() - 1e-9).ceil() as i32);
        }
        Some(Domain {
            low,
            high,
            log: true,
        })
    }

    /// Places and labels of the ticks.
    pub fn ticks(&self, unit: &Unit) -> Vec<Tick> {
        match self.log {
            true => self.log_ticks(unit),
            false => self.linear_ticks(unit),
        }
    }

    fn linear_ticks(&self, unit: &Unit) -> Vec<Tick> {
        let step = tick_step(unit, self.low, self.high, TICKS);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let scale = unit.step(self.low.abs().max(self.high.abs()));
        // As many decimals as the step needs.
        let needed = (0..9)
            .find(|decimals| {
                let scaled = step / scale.by * 10.0_f64.powi(*decimals);
                (scaled - scaled.round()).abs() < 1e-6 * scaled
            })
            .unwrap_or(9) as usize;
        (first..=last)
            .map(|n| {
                let value = n as f64 * step;
                let label = match n {
                    0 => unit.zero(),
                    _ if unit.is_binary() => unit.show(value),
                    _ => {
                        let number = format!("{:.needed$}", value / scale.by);
                        format!("{number}{}", scale.suffix)
                    }
                };
                Tick {
                    at: self.share(value),
                    label,
                }
            })
            .collect()
    }

    fn log_ticks(&self, unit: &Unit) -> Vec<Tick> {
        let values: Vec<f64> = match unit.is_binary() {
            true => {
                let (first, last) = (self.low.log2(), self.high.log2());
                // Ten doublings lead from one name to the next: on halves and wholes of that, whole MiB are met.
                let wanted = (last - first) / TICKS;
                let every = [1, 2, 5, 10].into_iter().find(|n| f64::from(*n) >= wanted);
                let every = every.unwrap_or(20);
                let first = (first - 1e-9).ceil() as i32;
                let last = (last + 1e-9).floor() as i32;
                let first = first + (-first).rem_euclid(every);
                (first..=last)
                    .step_by(every as usize)
                    .map(|n| 2.0_f64.powi(n))
                    .collect()
            }
            false => {
                let (first, last) = (self.low.log10(), self.high.log10());
                let within: &[f64] = if last - first < 1.7 {
                    &[1.0, 2.0, 5.0]
                } else if last - first < 3.2 {
                    &[1.0, 3.0]
                } else {
                    &[1.0]
                };
                let every = ((last - first) / TICKS).ceil().max(1.0) as usize;
                (first.floor() as i32..=last.ceil() as i32)
                    .step_by(every)
                    .flat_map(|n| within.iter().map(move |m| m * 10.0_f64.powi(n)))
                    .filter(|v| (self.low * 0.999_999..=self.high * 1.000_001).contains(v))
                    .collect()
            }
        };
        values
            .into_iter()
            .map(|value| Tick {
                at: self.share(value),
                label: match unit {
                    // 1000 s, not 16.67 min: decades are what is counted here.
                    Unit::Seconds if value >= 1.0 => format!("{} s", digits(value)),
                    _ => unit.show(value),
                },
            })
            .collect()
    }
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Where, as a share of the axis.
    pub at: f64,
    pub label: String,
}

/// Values that differ by less gain nothing from a logarithmic axis.
const LOG_SPAN_MIN: f64 = 10.0;
/// About so many ticks on an axis.
const TICKS: f64 = 7.0;

fn tick_step(unit: &Unit, low: f64, high: f64, ticks: f64) -> f64 {
    let by = unit.step(low.abs().max(high.abs())).by;
    unit.round_step((high - low) / ticks, by)
}

/// As many columns of pixels a curve is thinned to; each keeps its least and its greatest value.
const COLUMNS: usize = 640;

/// At most twice [`COLUMNS`] of the `points` (in order of x), the least and greatest of each column among them.
///
/// A point without a number (a gap) stays if its column has no other.
pub(super) fn thinned(points: &[(f64, f64)], domain: Domain) -> Vec<(f64, f64)> {
    if points.len() <= 2 * COLUMNS {
        return points.to_vec();
    }
    let column = |x: f64| (domain.share(x) * (COLUMNS - 1) as f64) as usize;
    let mut kept = Vec::with_capacity(2 * COLUMNS);
    for group in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let numbers = || group.iter().enumerate().filter(|(_, p)| p.1.is_finite());
        let least = numbers().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let most = numbers().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        match (least, most) {
            (Some((a, _)), Some((b, _))) => {
                kept.push(group[a.min(b)]);
                if a != b {
                    kept.push(group[a.max(b)]);
                }
            }
            _ => kept.push(group[0]),
        }
    }
    kept
}

/// The path of a curve in a square of a thousand units, y upwards in value and downwards in place.
///
/// The script draws the same path when a scale is switched.
pub(super) fn path(points: &[(f64, f64)], x: Domain, y: Domain, steps: bool) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    for &(px, py) in points {
        if !py.is_finite() {
            pen_down = false;
            continue;
        }
        let (at, up) = (place(x.share(px)), place(1.0 - y.share(py)));
        let text = match (pen_down, steps) {
            (false, _) => write!(path, "M{at} {up}"),
            (true, false) => write!(path, "L{at} {up}"),
            (true, true) => write!(path, "H{at}V{up}"),
        };
        text.expect("a string takes everything");
        pen_down = true;
    }
    path
}

/// A share of the axis in thousandths, to a tenth.
pub(super) fn place(share: f64) -> f64 {
    (share * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(domain: Domain, unit: &Unit) -> Vec<String> {
        let ticks = domain.ticks(unit);
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn figures_are_written_with_the_unit_that_fits() {
        let cases = [
            (Unit::Seconds, 250e-9, "250 ns"),
            (Unit::Seconds, 0.0999, "99.9 ms"),
            (Unit::Seconds, 90.0, "90 s"),
            (Unit::Seconds, 5400.0, "90 min"),
            (Unit::Seconds, 3.0 * 86_400.0, "3 d"),
            (Unit::Bytes, 1536.0, "1.5 KiB"),
            (Unit::PerSecond, 12_345.0, "12.35 k/s"),
            (Unit::Number, 0.0, "0"),
            (Unit::Number, 0.000_000_1, "1.000e-7"),
            (Unit::Number, f64::NAN, "-"),
            (Unit::Watts, -3.0, "-3 W"),
            (Unit::Other("writes".to_owned()), 7.0, "7 writes"),
        ];
        for (unit, value, shown) in cases {
            assert_eq!(unit.show(value), shown);
        }
    }

    #[test]
    fn ticks_are_round_in_the_unit_of_the_axis() {
        let day = Domain::linear(&Unit::Seconds, 0.0, 86_400.0, false);
        assert_eq!(
            labels(day, &Unit::Seconds),
            ["0", "6 h", "12 h", "18 h", "24 h"]
        );
        let share = Domain::linear(&Unit::Share, 0.1, 0.93, true);
        assert_eq!(
            labels(share, &Unit::Share),
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
        let size = Domain::log(KIB, 64.0 * KIB * KIB, false).unwrap();
        assert_eq!(labels(size, &Unit::Bytes)[0], "1 KiB");
        let wait = Domain::log(2e-5, 0.4, true).unwrap();
        assert_eq!(
            labels(wait, &Unit::Seconds),
            ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        let gib = Domain::linear(&Unit::Bytes, 0.0, 900.0 * KIB.powi(3), true);
        assert_eq!(labels(gib, &Unit::Bytes)[1..3], ["256 GiB", "512 GiB"]);
    }

    #[test]
    fn an_axis_of_one_value_has_room_around_it() {
        for value in [0.0, 5.0, -5.0] {
            let domain = Domain::linear(&Unit::Number, value, value, true);
            assert!(domain.low < domain.high, "{domain:?}");
            assert!((0.0..=1.0).contains(&domain.share(value)));
            assert!(domain.ticks(&Unit::Number).len() >= 2);
        }
        assert_eq!(Domain::log(5.0, 5.0, false), None);
        assert_eq!(Domain::log(0.0, 5.0, false), None);
    }

    #[test]
    fn thinning_keeps_every_extreme() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|n| {
                let y = if n == 41_234 { 1e6 } else { f64::from(n % 97) };
                (f64::from(n), y)
            })
            .collect();
        let domain = Domain::linear(&Unit::Number, 0.0, 99_999.0, false);
        let kept = thinned(&points, domain);
        assert!(kept.len() <= 2 * COLUMNS, "{}", kept.len());
        assert!(kept.contains(&(41_234.0, 1e6)));
        assert!(kept.iter().any(|point| point.1 == 0.0));
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_gap_in_a_curve_lifts_the_pen() {
        let unit = Domain::linear(&Unit::Number, 0.0, 4.0, false);
        let points = [(0.0, 0.0), (1.0, f64::NAN), (2.0, 2.0), (4.0, 4.0)];
        assert_eq!(path(&points, unit, unit, false), "M0 1000M500 500L1000 0");
        assert_eq!(
            path(&points[2..], unit, unit, true),
            "M500 500H1000V0",
            "steps go across, then up"
        );
    }
}
