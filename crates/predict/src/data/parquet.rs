//! The data set as a Parquet file: the columns of the CSV, `value` as a double, `run` as an integer.
//!
//! ```text
//! DataSet <-> one row group, compressed with zstd; texts are UTF-8, empty where the CSV's cell is
//! ```
//!
//! Always true:
//! 1. Other tools' files are read by the names of their columns, whatever their order.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;

use super::{COLUMNS, DataError, DataSet, Gather, fields};

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<DataSet, DataError> {
    let file = path.display().to_string();
    let broken = |error: ParquetError| DataError::Parquet {
        what: "read",
        file: file.clone(),
        reason: error.to_string(),
    };
    let source = File::open(path).map_err(|source| DataError::Io {
        what: "read",
        file: file.clone(),
        source,
    })?;
    let reader = SerializedFileReader::new(source).map_err(broken)?;
    let schema = reader.metadata().file_metadata().schema();
    let head: Vec<String> = schema
        .get_fields()
        .iter()
        .map(|field| field.name().to_owned())
        .collect();
    let mut gather = Gather::new(head, &file)?;
    for (n, row) in reader.get_row_iter(None).map_err(broken)?.enumerate() {
        let row = row.map_err(broken)?;
        let texts: Vec<String> = row
            .get_column_iter()
            .map(|(_, field)| text(field))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        gather.row(&texts, n as u64 + 1)?;
    }
    gather.done()
}

/// A field as the CSV would have it.
fn text(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => String::from_utf8_lossy(bytes.data()).into_owned(),
        Field::Double(number) => number.to_string(),
        Field::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// Writes `data` into `file`, which is to be `path`.
pub fn write(data: &DataSet, file: File, path: &Path) -> Result<(), DataError> {
    write_columns(data, file).map_err(|error| DataError::Parquet {
        what: "write",
        file: path.display().to_string(),
        reason: error.to_string(),
    })
}

fn write_columns(data: &DataSet, file: File) -> Result<(), ParquetError> {
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|name| match *name {
            "value" => "REQUIRED DOUBLE value;".to_owned(),
            "run" => "REQUIRED INT64 run;".to_owned(),
            name => format!("REQUIRED BYTE_ARRAY {name} (UTF8);"),
        })
        .collect();
    let schema = format!("message measurements {{ {} }}", columns.join(" "));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(parquet::basic::ZstdLevel::default()))
        .build();
    let mut writer = SerializedFileWriter::new(
        file,
        Arc::new(parse_message_type(&schema)?),
        Arc::new(properties),
    )?;
    let mut group = writer.next_row_group()?;
    let texts: Vec<[String; 9]> = data.rows().iter().map(fields).collect();
    for (n, name) in COLUMNS.iter().enumerate() {
        let mut column = group.next_column()?.expect("the schema has nine columns");
        match *name {
            "value" => {
                let values: Vec<f64> = data.rows().iter().map(|r| r.quantity.value).collect();
                column
                    .typed::<DoubleType>()
                    .write_batch(&values, None, None)?;
            }
            "run" => {
                let values: Vec<i64> = data.rows().iter().map(|r| r.run.into()).collect();
                column
                    .typed::<Int64Type>()
                    .write_batch(&values, None, None)?;
            }
            _ => {
                let values: Vec<ByteArray> =
                    texts.iter().map(|row| row[n].as_str().into()).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&values, None, None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}
