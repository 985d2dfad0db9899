//! The figures of a benchmark: lines to read, or with `--json` one array of rows for `cargo xtask bench NAME --record`.
//!
//! A row is one figure of one method in one case, with the median, the least and the greatest of its runs. Benchmarks
//! include this file with `#[path]`, as they do `stopwatch.rs`.

/// What a benchmark found.
pub struct Results {
    bench: &'static str,
    as_json: bool,
    rows: Vec<String>,
    /// More fields of the rows that are added from now on, in JSON, each with a comma before it.
    pub more: String,
}

impl Results {
    /// None yet, of `cargo xtask bench` with this name; printed as the arguments of this program say.
    pub fn new(bench: &'static str) -> Results {
        Results {
            bench,
            as_json: std::env::args().any(|argument| argument == "--json"),
            rows: Vec::new(),
            more: String::new(),
        }
    }

    /// Prints a line for people; nothing where JSON is wanted.
    pub fn say(&self, line: &str) {
        if !self.as_json {
            println!("{line}");
        }
    }

    /// Adds a row: (case, method, metric, unit), the figure of each run, and what it was measured on: `real` devices,
    /// `modelled` ones (in virtual time) or `emulated` ones (a device model in real time).
    pub fn add(&mut self, of: (&str, &str, &str, &str), runs: &[f64], devices: &str) {
        let (case, method, metric, unit) = of;
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
        let median = sorted[sorted.len() / 2];
        self.rows.push(format!(
            "{{\"experiment\":\"bench-{}\",\"case\":{case:?},\"method\":{method:?},\"metric\":{metric:?},\
             \"unit\":{unit:?},\"ours\":{median},\"low\":{low},\"high\":{high},\"runs\":{},\"devices\":{devices:?}{}}}",
            self.bench,
            sorted.len(),
            self.more
        ));
    }

    /// All rows as one array.
    pub fn json(&self) -> String {
        format!("[{}]", self.rows.join(",\n "))
    }

    /// Prints the array, if it is wanted.
    pub fn finish(self) {
        if self.as_json {
            println!("{}", self.json());
        }
    }
}
