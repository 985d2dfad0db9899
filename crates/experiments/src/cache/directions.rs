//! The directions of the paper's text: does ours go the same way, and as far?
//!
//! ```text
//! "lower", "about -36" -> our ratio to the bare disk -> agrees | direction only | differs
//! ```
//!
//! The column of each disk in `experiments/cache/published_directions.csv` has how far, in percent of the bare disk: a
//! figure of the text, or what a word of degree stands for ("slightly": at most 10 %; "far": more than 50 %; "tends": at most
//! 25 %). Those were fixed before any result was judged by them. Most directions have no size in print: there, going the same
//! way is all that can be found.
//!
//! Source: DMSSD 6.2.

use super::compare::{CACHES, case_of, fields, ours_of};
use report::Verdict;

use super::spread::{ratio, row};
use super::*;

/// What the paper's text says of directions, line by line.
const DIRECTIONS: &str = include_str!("../../../../experiments/cache/published_directions.csv");

/// A change agrees if it is within so many times the published one.
const NEAR: f64 = 1.5;

/// How far the published change goes, in percent; negative: less.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    /// So far, as a figure of the text says.
    About(f64),
    /// No further than this.
    AtMost(f64),
    /// Further than this.
    MoreThan(f64),
}

impl Size {
    /// The size that a cell of the table holds, if it holds one.
    fn of(cell: &str) -> Option<Size> {
        let (kind, number) = cell.rsplit_once(' ')?;
        let number = number.parse().expect("a number in our own file");
        Some(match kind {
            "about" => Size::About(number),
            "at most" => Size::AtMost(number),
            "more than" => Size::MoreThan(number),
            other => unreachable!("no size '{other}'"),
        })
    }

    /// Is a change that goes the same way near this one?
    fn is_near(self, percent: f64) -> bool {
        match self {
            Size::About(of) => (of.abs() / NEAR..=of.abs() * NEAR).contains(&percent.abs()),
            Size::AtMost(of) => percent.abs() <= of.abs() * NEAR,
            Size::MoreThan(of) => percent.abs() >= of.abs() / NEAR,
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::About(of) => write!(f, "about {of:+} %"),
            Size::AtMost(of) => write!(f, "at most {of:+} %"),
            Size::MoreThan(of) => write!(f, "more than {of:+} %"),
        }
    }
}

/// Every direction the paper states, with the published engine on our models, and ours beside it.
pub(super) fn directions(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in DIRECTIONS.lines().skip(1) {
        let [test, system, quantity, _, word, sizes @ ..] = fields::<7>(line);
        let case = case_of(test);
        let metric = match quantity {
            "time" => "seconds",
            "mean power" => "watts",
            _ => "joules",
        };
        for ((disk, published, bare), size) in CACHES.into_iter().zip(sizes) {
            // A statement on one disk size is not one on the other.
            if system.contains(" in ") && !system.starts_with(disk) {
                continue;
            }
            for method in [published, ours_of(published)] {
                let ratio = ratio(measured, metric, (case, method), (case, bare));
                let shown = format!("{metric} against {bare}");
                let row = row("directions", case, method, &shown, "ratio", ratio);
                rows.push(if method == published {
                    let size = Size::of(size);
                    let verdict = verdict(word, size, ratio.mean);
                    let why = match (verdict, size) {
                        (Verdict::Agrees, _) => "",
                        (Verdict::DirectionOnly, None) => "; no size is printed",
                        _ => why_not(case, metric),
                    };
                    let far = size.map_or(String::new(), |size| format!(", {size}"));
                    row.beside(Value::Text(word.to_owned()))
                        .judged(verdict)
                        .noted(format!("the paper says {word}{far}{why}"))
                } else {
                    row.noted(format!("our engine, where the paper's is {word}"))
                });
            }
        }
    }
    rows
}

/// Do the models go where the paper says, and as far?
fn verdict(word: &str, size: Option<Size>, ratio: f64) -> Verdict {
    let percent = (ratio - 1.0) * 100.0;
    let goes_up = matches!(word, "higher" | "tends higher");
    match ((percent > 0.0) == goes_up, size) {
        (false, _) => Verdict::Differs,
        (true, Some(size)) if size.is_near(percent) => Verdict::Agrees,
        (true, _) => Verdict::DirectionOnly,
    }
}

/// Why the models do not show a published direction.
fn why_not(case: &str, metric: &str) -> &'static str {
    match (case, metric) {
        ("reread", "watts") => {
            "; the SSD of our models draws 2.4 W (its sheet has one figure for all work), more than a whole \
             2.5-inch disk that reads (1.3 W)"
        }
        ("write", "watts") => {
            "; each write waits for its block from the disk and then for the SSD, and the modelled disk rests \
             meanwhile (7.5 W, not 12); the SSD's 2.4 W is less than that spares"
        }
        ("reread", "seconds") => {
            "; the SSD reads four times as fast as the disk at its outer edge, by their sheets"
        }
        ("random", "seconds") => "; copying 4 KiB to the SSD takes a hundredth of the disk's seek",
        ("rewrite", _) => {
            "; the modelled SSD writes 2.5 times as fast as the disk, which rests meanwhile; the paper's writes came through a \
             file system that took its own time"
        }
        _ => "; the models of disk and SSD, made from data sheets alone, do not show it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_judged_beside_the_direction() {
        let of = |word, size, ratio| verdict(word, Size::of(size), ratio);
        assert_eq!(of("lower", "about -36", 0.7), Verdict::Agrees);
        assert_eq!(of("lower", "about -36", 0.46), Verdict::Agrees);
        assert_eq!(of("lower", "about -36", 0.45), Verdict::DirectionOnly);
        assert_eq!(of("lower", "about -36", 0.77), Verdict::DirectionOnly);
        assert_eq!(of("lower", "about -36", 1.36), Verdict::Differs);
        assert_eq!(of("slightly lower", "at most -10", 0.86), Verdict::Agrees);
        assert_eq!(
            of("slightly lower", "at most -10", 0.4),
            Verdict::DirectionOnly
        );
        assert_eq!(of("far lower", "more than -50", 0.66), Verdict::Agrees);
        assert_eq!(
            of("far lower", "more than -50", 0.7),
            Verdict::DirectionOnly
        );
        assert_eq!(of("higher", "", 1.5), Verdict::DirectionOnly);
        assert_eq!(of("higher", "", 0.9), Verdict::Differs);
    }
}
