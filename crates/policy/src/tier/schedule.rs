//! May moves begin now? Windows of the day.
//!
//! ```text
//! 22:00-06:00, 12:00-13:00 --Schedule--> is it open at this time of the day, and if not, when will it be?
//! ```
//!
//! A window reaches from its first moment up to, and without, its last. One that ends before it begins goes over
//! midnight. A move that has begun goes on after its window.

use std::fmt;
use std::str::FromStr;

use base::Nanos;

/// A day. Days with a leap second are not known here.
pub const DAY: Nanos = Nanos::secs(24 * 3600);

/// A window of the day, by the time since midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// It opens; before 24:00.
    pub from: Nanos,
    /// It closes; at 24:00 at the latest.
    pub to: Nanos,
}

/// Why something is no window of the day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no window of the day: {why}; say from and to, such as 22:00-06:00")]
pub struct WindowError {
    text: String,
    why: &'static str,
}

impl Window {
    /// The window from `from` to `to`.
    ///
    /// # Errors
    /// If it begins after the day or ends after it, or is empty (a whole day is 00:00-24:00).
    pub fn new(from: Nanos, to: Nanos) -> Result<Window, WindowError> {
        let window = Window { from, to };
        let why = match () {
            () if from >= DAY => "it begins after the day's end",
            () if to > DAY => "it ends after the day's end",
            () if from == to => "it is empty; a whole day is 00:00-24:00",
            () => return Ok(window),
        };
        Err(WindowError {
            text: window.to_string(),
            why,
        })
    }

    fn holds(&self, time: Nanos) -> bool {
        match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => time >= self.from || time < self.to,
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |time: Nanos| {
            let seconds = time.0 / 1_000_000_000;
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            match seconds {
                0 => format!("{hours:02}:{minutes:02}"),
                _ => format!("{hours:02}:{minutes:02}:{seconds:02}"),
            }
        };
        f.pad(&format!("{}-{}", clock(self.from), clock(self.to)))
    }
}

impl FromStr for Window {
    type Err = WindowError;
    /// Reads `22:00-06:00`, also with seconds.
    fn from_str(text: &str) -> Result<Window, WindowError> {
        let refuse = |why| WindowError {
            text: text.to_owned(),
            why,
        };
        let number = |part: &str| match part.len() {
            1 | 2 if part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse::<u64>().ok(),
            _ => None,
        };
        let clock = |part: &str| {
            let parts: Option<Vec<u64>> = part.trim().split(':').map(number).collect();
            let (hours, minutes, seconds) = match parts.as_deref() {
                Some([hours, minutes]) => (*hours, *minutes, 0),
                Some([hours, minutes, seconds]) => (*hours, *minutes, *seconds),
                _ => return Err(refuse("a time of the day is hours:minutes")),
            };
            match minutes < 60 && seconds < 60 {
                true => Ok(Nanos::secs(hours * 3600 + minutes * 60 + seconds)),
                false => Err(refuse("an hour has 60 minutes and a minute 60 seconds")),
            }
        };
        let (from, to) = text
            .split_once('-')
            .ok_or_else(|| refuse("'-' is missing"))?;
        let window = Window::new(clock(from)?, clock(to)?);
        window.map_err(|error| refuse(error.why))
    }
}

/// When moves may begin.
///
/// # Example
/// ```
/// use base::Nanos;
/// use policy::tier::schedule::Schedule;
/// let schedule = Schedule::new(vec!["22:00-06:00".parse()?]);
/// assert!(schedule.is_open(Nanos::secs(3 * 3600)));
/// assert_eq!(schedule.opens_in(Nanos::secs(21 * 3600)), Nanos::secs(3600));
/// # Ok::<(), policy::tier::schedule::WindowError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    windows: Vec<Window>,
}

impl Schedule {
    /// Moves may begin in these windows; without any, always.
    pub fn new(windows: Vec<Window>) -> Schedule {
        Schedule { windows }
    }

    /// May moves begin at this time of the day? A time after the day's end is one of the next day.
    pub fn is_open(&self, time: Nanos) -> bool {
        let time = Nanos(time.0 % DAY.0);
        self.windows.is_empty() || self.windows.iter().any(|window| window.holds(time))
    }

    /// How long it is until moves may begin; zero if they may.
    pub fn opens_in(&self, time: Nanos) -> Nanos {
        if self.is_open(time) {
            return Nanos(0);
        }
        let time = time.0 % DAY.0;
        let until = |window: &Window| Nanos((window.from.0 + DAY.0 - time) % DAY.0);
        self.windows.iter().map(until).min().unwrap_or(Nanos(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hours(hours: u64) -> Nanos {
        Nanos::secs(hours * 3600)
    }

    #[test]
    fn without_windows_moves_may_always_begin() {
        assert!(Schedule::default().is_open(hours(5)));
        assert_eq!(Schedule::default().opens_in(hours(5)), Nanos(0));
    }

    #[test]
    fn a_window_over_midnight_has_both_ends() {
        let schedule = Schedule::new(vec!["22:00-06:00".parse().unwrap()]);
        let open: Vec<u64> = (0..24)
            .filter(|hour| schedule.is_open(hours(*hour)))
            .collect();
        assert_eq!(open, [0, 1, 2, 3, 4, 5, 22, 23]);
        assert!(!schedule.is_open(hours(22) - Nanos(1)));
        assert!(schedule.is_open(hours(6) - Nanos(1)));
        assert!(schedule.is_open(hours(24 + 23)));
        assert_eq!(schedule.opens_in(hours(6)), hours(16));
    }

    #[test]
    fn windows_are_read_as_they_are_written() {
        for text in ["22:00-06:00", "00:00-24:00", "06:30-06:30:01"] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        let refusals = [
            ("22:00", "'-' is missing"),
            ("22-6", "a time of the day is hours:minutes"),
            ("+2:00-06:00", "a time of the day is hours:minutes"),
            (
                "22:60-06:00",
                "an hour has 60 minutes and a minute 60 seconds",
            ),
            ("24:00-06:00", "it begins after the day's end"),
            ("22:00-24:01", "it ends after the day's end"),
            ("06:00-06:00", "it is empty; a whole day is 00:00-24:00"),
        ];
        for (text, why) in refusals {
            let said = text.parse::<Window>().unwrap_err().to_string();
            let expected = format!(
                "'{text}' is no window of the day: {why}; say from and to, such as 22:00-06:00"
            );
            assert_eq!(said, expected);
        }
    }

    proptest! {
        #[test]
        fn a_walk_through_the_day_finds_the_same(
            windows in prop::collection::vec((0u64..24, 0u64..=24), 0..4),
            now in 0u64..24,
        ) {
            let windows: Vec<(u64, u64)> = windows.into_iter().filter(|(from, to)| from != to).collect();
            let schedule = Schedule::new(
                windows.iter().map(|(from, to)| Window::new(hours(*from), hours(*to)).unwrap()).collect(),
            );
            // Mark the hours of each window by walking from its first to its last.
            let mut open = [windows.is_empty(); 24];
            for (from, to) in windows {
                let mut at = from;
                loop {
                    open[at as usize % 24] = true;
                    at += 1;
                    if at % 24 == to % 24 {
                        break;
                    }
                }
            }
            prop_assert_eq!(schedule.is_open(hours(now)), open[now as usize]);
            let until = (0..24).find(|later| open[(now + later) as usize % 24]).unwrap_or(0);
            prop_assert_eq!(schedule.opens_in(hours(now)), hours(until));
        }
    }
}
