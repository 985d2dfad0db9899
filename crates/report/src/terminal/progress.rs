//! How far is a long command? A bar on a terminal; elsewhere nothing, or a line now and then.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A bar over `length` steps on standard error, drawn by `template`, a constant in the words of `indicatif`. It draws
/// nothing where that is no terminal.
pub fn bar(template: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant that was tried");
    ProgressBar::new(length).with_style(style)
}

/// Shows on standard error how far long work is: a bar with a sentence on a terminal, else the sentence each 10 s.
#[derive(Debug)]
pub struct Shown {
    /// `None`: standard error is no terminal.
    bar: Option<ProgressBar>,
    /// When the next line is due, since the work was begun to be watched.
    due: Duration,
}

impl Shown {
    /// Shows nothing yet.
    #[must_use]
    pub fn new() -> Shown {
        let is_terminal = io::stderr().is_terminal();
        Shown {
            bar: is_terminal.then(|| bar("{bar:30} {wide_msg}", 1)),
            due: LINE_EVERY,
        }
    }

    /// So much of `total` is done after `spent`; `line` says so in words.
    pub fn at(&mut self, (done, total): (u64, u64), spent: Duration, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.max(1));
            bar.set_position(done);
            bar.set_message(line.to_owned());
        } else if self.is_due(spent) {
            eprintln!("{line}");
        }
    }

    /// Is a line due after `spent`? The next one is 10 s later.
    fn is_due(&mut self, spent: Duration) -> bool {
        let is_due = spent >= self.due;
        if is_due {
            self.due = spent + LINE_EVERY;
        }
        is_due
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Default for Shown {
    fn default() -> Shown {
        Shown::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_a_line_is_due_each_ten_seconds() {
        let mut shown = Shown {
            bar: None,
            due: LINE_EVERY,
        };
        let spent = [0, 9, 10, 11, 19, 25, 34, 35].map(Duration::from_secs);
        let due = spent.map(|spent| shown.is_due(spent));
        assert_eq!(due, [false, false, true, false, false, true, false, true]);
    }
}
