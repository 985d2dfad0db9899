//! How far is a long command? A line on a terminal, nothing where there is none.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `length` steps on standard error, drawn by `template`, a constant in the words of `indicatif`. It draws
/// nothing where that is no terminal.
pub fn bar(template: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant that was tried");
    ProgressBar::new(length).with_style(style)
}
