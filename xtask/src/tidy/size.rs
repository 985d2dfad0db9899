//! Are files and functions short enough to be read at once?
//!
//! What counts:
//!
//! - `files`: the lines of a Rust file with comments and blank ones, without items under `#[cfg(test)]` or `#[test]`.
//! - `functions`: the lines from `fn` to the last brace, with comments and blank ones; a function inside of another
//!   counts for itself as well. Macros are not looked into.
//!
//! Files that only tests see do not count at all (see `source`). `simtest/` and `xtask/` are programs like others.

use std::collections::BTreeMap;

use super::facts::Source;
use super::finding::Measure;
use super::source::Sources;

/// Product lines a file may have.
const FILE_MAX_LINES: usize = 500;

/// Lines a function may have.
const FUNCTION_MAX_LINES: usize = 60;

/// The product lines of each file.
#[must_use]
pub fn files(sources: &Sources) -> Vec<Measure> {
    let measure = |source: &Source| Measure {
        rule: "files",
        key: source.file.clone(),
        now: source.product_lines,
        limit: FILE_MAX_LINES,
        file: source.file.clone(),
        line: 0,
        what: format!(
            "has {} product lines; move a part out",
            source.product_lines
        ),
    };
    sources.product().map(measure).collect()
}

/// The lines of each function; of several with one name in a file, of the longest.
#[must_use]
pub fn functions(sources: &Sources) -> Vec<Measure> {
    let mut longest: BTreeMap<String, Measure> = BTreeMap::new();
    for source in sources.product() {
        for function in &source.functions {
            let key = format!("{}::{}", source.file, function.name);
            let measure = Measure {
                rule: "functions",
                key: key.clone(),
                now: function.lines,
                limit: FUNCTION_MAX_LINES,
                file: source.file.clone(),
                line: function.line,
                what: format!(
                    "`{}` has {} lines; give its parts names",
                    function.name, function.lines
                ),
            };
            let known = longest.entry(key).or_insert_with(|| measure.clone());
            if measure.now > known.now {
                *known = measure;
            }
        }
    }
    longest.into_values().collect()
}
