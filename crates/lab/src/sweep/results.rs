//! One table of all points, and how is it written down?
//!
//! ```text
//! grid + answers -> columns: point, plan, seed, parameters, measured values, failed -> CSV | Parquet | JSON
//! ```
//!
//! Always true:
//! 1. Rows are in the order of the points, columns in the order in which the points first name them.
//! 2. A column has one type: whole numbers, numbers, yes and no, or text where they differ. What is not known is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Map;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::journal::{Answer, Header};
use super::{Figure, SweepError};

/// All rows of a sweep or of a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    kind: String,
    plan: String,
    program: String,
    columns: Vec<Column>,
    rows: usize,
    parameters: Vec<String>,
}

/// A column: one cell for each row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub name: String,
    pub cells: Vec<Option<Figure>>,
}

/// What all cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Whole,
    Real,
    Truth,
    Text,
}

impl Column {
    fn kind(&self) -> Kind {
        let kinds = self.cells.iter().flatten().map(|cell| match cell {
            Figure::Whole(_) => Kind::Whole,
            Figure::Real(_) => Kind::Real,
            Figure::Truth(_) => Kind::Truth,
            Figure::Text(_) => Kind::Text,
        });
        kinds
            .reduce(|a, b| match (a, b) {
                (a, b) if a == b => a,
                (Kind::Whole, Kind::Real) | (Kind::Real, Kind::Whole) => Kind::Real,
                _ => Kind::Text,
            })
            .unwrap_or(Kind::Text)
    }
}

/// The measured value that says of a point on a generated trace where its requests come from.
pub const ORIGIN: &str = "origin";
const FAILED: &str = "failed";
/// Rows in a group of a Parquet file.
const GROUP: usize = 1 << 16;

impl Results {
    pub(super) fn of(header: &Header, answers: BTreeMap<u64, Answer>) -> Results {
        let mut parameters: Vec<String> = header.grid.keys().map(str::to_owned).collect();
        parameters.insert(0, "seed".to_owned());
        let mut table = Builder::default();
        for name in ["point", "plan"]
            .into_iter()
            .chain(parameters.iter().map(String::as_str))
        {
            table.column(name);
        }
        for (point, answer) in answers {
            let (seed, values) = header.grid.parameters(point);
            let (rows, failed) = match answer {
                Answer::Rows(rows) => (rows, None),
                Answer::Failed(reason) => (vec![Vec::new()], Some(reason)),
            };
            for row in rows {
                table.begin_row();
                table.put("point", Figure::from(point));
                table.put("plan", Figure::from(header.plan.as_str()));
                table.put("seed", Figure::from(seed));
                for (key, value) in &values {
                    table.put(key, value.clone());
                }
                for (name, value) in row {
                    // A measured value does not take the place of what was asked for.
                    let taken = matches!(name.as_str(), "point" | "plan" | FAILED)
                        || parameters.contains(&name);
                    match taken {
                        true => table.put(&format!("result.{name}"), value),
                        false => table.put(&name, value),
                    }
                }
                if let Some(reason) = &failed {
                    table.put(FAILED, Figure::from(reason.as_str()));
                }
            }
        }
        Results {
            kind: header.kind.clone(),
            plan: header.plan.clone(),
            program: header.program.clone(),
            rows: table.rows,
            columns: table.finish(),
            parameters,
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What its points are.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The plan's identity and the version of the program that ran it.
    pub fn identity(&self) -> (&str, &str) {
        (&self.plan, &self.program)
    }

    /// The seed and the parameters, by name.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// The names of the measured values.
    pub fn measured(&self) -> impl Iterator<Item = &str> {
        let names = self.columns.iter().map(|column| column.name.as_str());
        let fixed = |name: &&str| !matches!(*name, "point" | "plan" | FAILED);
        names
            .filter(fixed)
            .filter(|name| !self.parameters.iter().any(|known| known == name))
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The cell of a row; `None` if there is no such column or nothing in it.
    pub fn cell(&self, row: usize, column: &str) -> Option<&Figure> {
        self.column(column)?.cells.get(row)?.as_ref()
    }

    /// What generated traces the points ran on, each once.
    pub fn origins(&self) -> Vec<&str> {
        let mut known = Vec::new();
        let cells = self.column(ORIGIN).map(|column| column.cells.iter());
        for cell in cells.into_iter().flatten().flatten() {
            if let Figure::Text(origin) = cell
                && !known.contains(&origin.as_str())
            {
                known.push(origin);
            }
        }
        known
    }

    /// The points that failed, with the reason.
    pub fn failed(&self) -> Vec<(u64, &str)> {
        (0..self.rows)
            .filter_map(
                |row| match (self.cell(row, "point")?, self.cell(row, FAILED)?) {
                    (Figure::Whole(point), Figure::Text(reason)) => {
                        Some((*point as u64, reason.as_str()))
                    }
                    _ => None,
                },
            )
            .collect()
    }

    /// Comma-separated values with a header; cells with commas, quotes or line ends are quoted.
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|column| quoted(&column.name))
            .collect();
        let mut text = names.join(",");
        text.push('\n');
        for row in 0..self.rows {
            for (n, column) in self.columns.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                if let Some(figure) = &column.cells[row] {
                    text.push_str(&quoted(&figure.to_string()));
                }
            }
            text.push('\n');
        }
        text
    }

    /// Rows for programs: an array of objects, without what is not known.
    pub fn json(&self) -> serde_json::Value {
        let row = |row: usize| {
            let cells = self.columns.iter().filter_map(|column| {
                let figure = column.cells[row].as_ref()?;
                Some((column.name.clone(), figure.to_json()))
            });
            serde_json::Value::Object(cells.collect())
        };
        (0..self.rows).map(row).collect()
    }

    /// The bytes of a Parquet file: the columns of [`Self::csv`], typed.
    ///
    /// # Errors
    /// [`SweepError::Other`] if the writer refuses.
    pub fn parquet(&self) -> Result<Vec<u8>, SweepError> {
        self.write_parquet()
            .map_err(|error| SweepError::Other(format!("cannot write Parquet: {error}")))
    }

    fn write_parquet(&self) -> Result<Vec<u8>, ParquetError> {
        let fields = self.columns.iter().map(|column| {
            let (physical, logical) = match column.kind() {
                Kind::Whole => (Physical::INT64, None),
                Kind::Real => (Physical::DOUBLE, None),
                Kind::Truth => (Physical::BOOLEAN, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            Type::primitive_type_builder(&column.name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .build()
                .map(Arc::new)
        });
        let schema = Type::group_type_builder("sweep")
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("tanada ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        for from in (0..self.rows).step_by(GROUP) {
            let to = (from + GROUP).min(self.rows);
            let mut group = writer.next_row_group()?;
            for column in &self.columns {
                let cells = &column.cells[from..to];
                match column.kind() {
                    Kind::Whole => put::<Int64Type>(&mut group, cells, |cell| match cell {
                        Figure::Whole(number) => Some(*number),
                        _ => None,
                    })?,
                    Kind::Real => put::<DoubleType>(&mut group, cells, Figure::number)?,
                    Kind::Truth => put::<BoolType>(&mut group, cells, |cell| match cell {
                        Figure::Truth(truth) => Some(*truth),
                        _ => None,
                    })?,
                    Kind::Text => put::<ByteArrayType>(&mut group, cells, |cell| {
                        Some(ByteArray::from(cell.to_string().into_bytes()))
                    })?,
                }
            }
            group.close()?;
        }
        writer.into_inner()
    }
}

/// One column of one group of rows.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: &[Option<Figure>],
    value: impl Fn(&Figure) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = cells.iter().map(|cell| value(cell.as_ref()?)).collect();
    let known: Vec<i16> = values
        .iter()
        .map(|value| i16::from(value.is_some()))
        .collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("fewer columns than the schema has".to_owned()))?;
    column
        .typed::<T>()
        .write_batch(&values, Some(&known), None)?;
    column.close()
}

/// A table whose columns appear as rows name them.
#[derive(Default)]
struct Builder {
    columns: Vec<Column>,
    index: Map<String, usize>,
    rows: usize,
}

impl Builder {
    fn column(&mut self, name: &str) -> &mut Column {
        let at = match self.index.get(name) {
            Some(at) => *at,
            None => {
                let at = self.columns.len();
                self.index.insert(name.to_owned(), at);
                self.columns.push(Column {
                    name: name.to_owned(),
                    cells: Vec::new(),
                });
                at
            }
        };
        &mut self.columns[at]
    }

    fn begin_row(&mut self) {
        self.rows += 1;
    }

    /// Puts a cell into the row begun last; a second one of the same name replaces the first.
    fn put(&mut self, name: &str, figure: Figure) {
        let rows = self.rows;
        let column = self.column(name);
        column.cells.resize(rows, None);
        column.cells[rows - 1] = Some(figure);
    }

    /// Every column as long as the table; the reasons of failures last.
    fn finish(mut self) -> Vec<Column> {
        self.column(FAILED);
        let rows = self.rows;
        for column in &mut self.columns {
            column.cells.resize(rows, None);
        }
        let at = self.index[FAILED];
        let failed = self.columns.remove(at);
        self.columns.push(failed);
        self.columns
    }
}
