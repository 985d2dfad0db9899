//! Lines of a table, CSV or Parquet, to rows of a data set and back.

use super::{COLUMNS, DataError, DataSet, Parameters, Row, What};
use crate::units::{Quantity, Unit, UnitError};

/// A row as text, in the order of [`COLUMNS`].
pub(super) fn fields(row: &Row) -> [String; 9] {
    let (regressor, workload, parameters, metric) = match &row.what {
        What::Device { regressor } => (
            regressor.clone(),
            String::new(),
            String::new(),
            String::new(),
        ),
        What::Result {
            workload,
            parameters,
            metric,
        } => (
            String::new(),
            workload.clone(),
            parameters.to_string(),
            metric.clone(),
        ),
    };
    [
        row.device.clone(),
        regressor,
        workload,
        parameters,
        metric,
        row.quantity.value.to_string(),
        row.quantity.unit.to_string(),
        row.run.to_string(),
        row.source.clone(),
    ]
}

/// Gathers rows of text under a head into a data set.
pub(super) struct Gather<'a> {
    file: &'a str,
    head: Vec<String>,
    data: DataSet,
}

impl<'a> Gather<'a> {
    pub(super) fn new(head: Vec<String>, file: &'a str) -> Result<Gather<'a>, DataError> {
        let whole = |reason: String| DataError::Line {
            file: file.to_owned(),
            line: 1,
            reason,
        };
        for needed in ["device", "value", "unit"] {
            if !head.iter().any(|name| name == needed) {
                return Err(whole(format!(
                    "no column '{needed}'; the head is {}",
                    COLUMNS.join(",")
                )));
            }
        }
        for (n, name) in head.iter().enumerate() {
            if name.is_empty() {
                return Err(whole(format!("column {} has no name", n + 1)));
            }
            if head[..n].contains(name) {
                return Err(whole(format!("two columns are named '{name}'")));
            }
        }
        Ok(Gather {
            file,
            head,
            data: DataSet::default(),
        })
    }

    pub(super) fn row(&mut self, fields: &[&str], line: u64) -> Result<(), DataError> {
        let row = self.parse(fields).and_then(|row| self.data.add(row));
        row.map_err(|reason| DataError::Line {
            file: self.file.to_owned(),
            line,
            reason,
        })
    }

    /// The cell of a line in the column `name`; empty without one.
    fn field<'f>(&self, fields: &[&'f str], name: &str) -> &'f str {
        let at = self.head.iter().position(|column| column == name);
        at.map_or("", |at| fields[at])
    }

    /// What a line speaks of.
    fn what(&self, fields: &[&str]) -> Result<What, String> {
        let field = |name: &str| self.field(fields, name);
        let regressor = field("regressor");
        let (workload, metric) = (field("workload"), field("metric"));
        match (
            regressor.is_empty(),
            workload.is_empty() && metric.is_empty(),
        ) {
            (false, true) => Ok(What::Device {
                regressor: regressor.to_owned(),
            }),
            (true, false) if workload.is_empty() => Err("a metric without a workload".to_owned()),
            (true, false) if metric.is_empty() => Err("a workload without a metric".to_owned()),
            (true, false) => {
                let mut parameters: Parameters = field("parameters").parse()?;
                for (name, value) in self.head.iter().zip(fields) {
                    if !COLUMNS.contains(&name.as_str()) && !value.is_empty() {
                        parameters.set(name, value);
                    }
                }
                Ok(What::Result {
                    workload: workload.to_owned(),
                    parameters,
                    metric: metric.to_owned(),
                })
            }
            (false, false) => {
                Err("a regressor and a workload; a row speaks of one of them".to_owned())
            }
            (true, true) => Err("neither a regressor nor a workload and metric".to_owned()),
        }
    }

    fn parse(&self, fields: &[&str]) -> Result<Row, String> {
        let field = |name: &str| self.field(fields, name);
        let what = self.what(fields)?;
        let unit: Unit = field("unit")
            .parse()
            .map_err(|e: UnitError| e.to_string())?;
        let text = field("value");
        let value: f64 = text.parse().map_err(|_| {
            UnitError::Number {
                asked: text.to_owned(),
            }
            .to_string()
        })?;
        let device = field("device").to_owned();
        let run = match field("run") {
            "" => self.data.next_run(&device, &what),
            text => text
                .parse()
                .ok()
                .filter(|run| *run > 0)
                .ok_or_else(|| format!("run '{text}' is no number from 1"))?,
        };
        Ok(Row {
            device,
            what,
            quantity: Quantity { value, unit },
            run,
            source: field("source").to_owned(),
        })
    }

    pub(super) fn done(self) -> Result<DataSet, DataError> {
        match self.data.rows.is_empty() {
            false => Ok(self.data),
            true => Err(DataError::Whole {
                file: self.file.to_owned(),
                reason: "no measurements; `tanada predict import` adds some".to_owned(),
            }),
        }
    }
}
