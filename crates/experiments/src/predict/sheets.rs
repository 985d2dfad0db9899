//! The paper's tables as they stand in `experiments/predict`.
//!
//! ```text
//! CSV texts, one a table -> lines of fields;   tables 4-7, figure 2, assumed devices -> a data set
//! ```
//!
//! Source: SCM tables 4-14, figure 2, 4.2.4.
//!
//! Always true:
//! 1. The texts are those of the repository; only tests change a figure.

use ::predict::data::{DataSet, Parameters, Row, What};
use ::predict::model::POOLED;
use ::predict::units::{Quantity, Unit};

macro_rules! sheet {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../experiments/predict/", $name)),
        )
    };
}

/// Every table: the name of its file and its text.
const SHEETS: [(&str, &str); 13] = [
    sheet!("table4_fio_read_latency.csv"),
    sheet!("table5_fio_write_latency.csv"),
    sheet!("table6_fio_read_throughput.csv"),
    sheet!("table7_fio_write_throughput.csv"),
    sheet!("figure2_ycsb_mysql_engine.csv"),
    sheet!("assumed_scm_devices.csv"),
    sheet!("table8_r2_write_only_16gb.csv"),
    sheet!("table9_best_r2_read.csv"),
    sheet!("table10_best_r2_write.csv"),
    sheet!("table11_mean_best_r2.csv"),
    sheet!("table12_scm_regression.csv"),
    sheet!("table13_scm_unseen_data.csv"),
    sheet!("table14_r2_over_data.csv"),
];

/// The tables.
pub struct Sheets {
    texts: Vec<(&'static str, String)>,
}

impl Sheets {
    /// As they are part of the program.
    pub fn embedded() -> Sheets {
        Sheets {
            texts: SHEETS
                .iter()
                .map(|(name, text)| (*name, (*text).to_owned()))
                .collect(),
        }
    }

    /// The lines of the file whose name begins with `name` and an underscore, without the head.
    fn lines(&self, name: &str) -> Vec<Vec<String>> {
        let (_, text) = self
            .texts
            .iter()
            .find(|(file, _)| file.split('_').next() == Some(name))
            .expect("every table is embedded");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader
            .records()
            .map(|line| {
                let line = line.expect("the embedded tables are CSV");
                line.iter().map(str::to_owned).collect()
            })
            .collect()
    }

    pub fn table8(&self) -> Vec<Vec<String>> {
        self.lines("table8")
    }

    pub fn table9(&self) -> Vec<Vec<String>> {
        self.lines("table9")
    }

    pub fn table10(&self) -> Vec<Vec<String>> {
        self.lines("table10")
    }

    pub fn table12(&self) -> Vec<Vec<String>> {
        self.lines("table12")
    }

    pub fn table13(&self) -> Vec<Vec<String>> {
        self.lines("table13")
    }

    pub fn table14(&self) -> Vec<Vec<String>> {
        self.lines("table14")
    }

    /// Tables 4-7, figure 2 and the assumed devices as one data set.
    ///
    /// The order of the regressors is that of the paper's table 8: latencies, then throughputs, smaller blocks first.
    pub fn data_set(&self) -> DataSet {
        let mut data = DataSet::default();
        let mut add = |device: &str, what: What, value: &str, unit: Unit, source: &str| {
            let row = Row {
                device: device.to_owned(),
                what,
                quantity: Quantity {
                    value: number(value),
                    unit,
                },
                run: 1,
                source: source.to_owned(),
            };
            data.add(row).expect("the paper's figures are measurements");
        };
        for (table, direction, metric, unit) in [
            ("table4", "read", "latency", Unit::Us),
            ("table5", "write", "latency", Unit::Us),
            ("table6", "read", "throughput", Unit::MbPerS),
            ("table7", "write", "throughput", Unit::MbPerS),
        ] {
            let source = format!("SCM table {}, mean of three runs", &table[5..]);
            for line in self.lines(table) {
                let regressor = format!("{direction}-{}-{metric}", line[0]);
                add(
                    &line[1],
                    What::Device { regressor },
                    &line[2],
                    unit,
                    &source,
                );
            }
        }
        for line in self.lines("figure2") {
            for (direction, value) in [("read", &line[3]), ("write", &line[4])] {
                if value.is_empty() {
                    continue;
                }
                let mut parameters = Parameters::default();
                parameters.set(POOLED, &line[1]);
                let what = What::Result {
                    workload: line[0].to_ascii_lowercase(),
                    parameters,
                    metric: format!("{direction}_latency"),
                };
                let source = "SCM figure 2, mean of three runs";
                add(&line[2], what, value, Unit::Us, source);
            }
        }
        for line in self.lines("assumed") {
            let regressor = "write-64K-latency".to_owned();
            let what = What::Device { regressor };
            add(&line[0], what, &line[2], Unit::Us, "SCM 4.2.4, assumed");
        }
        data
    }

    /// Changes one figure wherever it stands.
    #[cfg(test)]
    pub fn replace(&mut self, from: &str, to: &str) {
        let mut found = false;
        for (_, text) in &mut self.texts {
            found |= text.contains(from);
            *text = text.replace(from, to);
        }
        assert!(found, "no table says {from}");
    }
}

/// The mean best R2 of an engine (table 11).
pub fn engine_mean(sheets: &Sheets, direction: &str, engine: &str) -> f64 {
    let lines = sheets.lines("table11");
    let line = lines
        .iter()
        .find(|line| line[0] == direction && line[1] == engine)
        .expect("table 11 has both engines");
    number(&line[2])
}

/// A figure of a table.
pub fn number(text: &str) -> f64 {
    text.parse().expect("the tables hold numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_tables_are_those_of_the_paper() {
        let Some(papers) = testkit::traces::beside("papers") else {
            return;
        };
        for (name, text) in SHEETS {
            let path = papers.join(format!("seed004_{name}"));
            let original = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, original, "{name}");
        }
    }
}
