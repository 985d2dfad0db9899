//! Traces as Parquet files, written.

use super::parquet::GROUP_ROWS;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::sync::Arc;
use trace::{Output, REMARK, Request, RowWriter};

impl RowWriter for ParquetWriter<Output> {
    fn remark(&mut self, text: &str) {
        ParquetWriter::remark(self, text);
    }

    fn write(&mut self, batch: &[Request]) -> io::Result<()> {
        ParquetWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> io::Result<Output> {
        ParquetWriter::finish(*self)
    }
}

/// Writes a trace as Parquet in the normal form.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use lab::parquet::ParquetWriter;
/// use trace::{Op, Request};
///
/// let mut writer = ParquetWriter::new(Vec::new())?;
/// writer.write(&[Request {
///     at: Nanos(0),
///     offset: Bytes(4096),
///     size: Bytes(512),
///     device: 0,
///     op: Op::Read,
/// }])?;
/// let file: Vec<u8> = writer.finish()?;
/// assert!(file.starts_with(b"PAR1"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ParquetWriter<W: Write + Send> {
    pub(super) file: SerializedFileWriter<W>,
    pub(super) at_us: Vec<i64>,
    pub(super) op: Vec<ByteArray>,
    pub(super) offset: Vec<i64>,
    pub(super) size: Vec<i64>,
    pub(super) device: Vec<i32>,
    /// The texts of operations, of which a column holds many.
    pub(super) letters: [ByteArray; 4],
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// What writing to `to` says.
    pub fn new(to: W) -> io::Result<ParquetWriter<W>> {
        let schema = parse_message_type(
            "message trace {
                required int64 t_us (INTEGER(64, false));
                required binary op (STRING);
                required int64 offset (INTEGER(64, false));
                required int64 size (INTEGER(64, false));
                required int32 dev (INTEGER(32, false));
            }",
        )?;
        // Times climb slowly: their differences take a few bits each.
        let at_us = ColumnPath::from("t_us");
        let properties = WriterProperties::builder()
            .set_created_by(concat!("tanada ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_column_dictionary_enabled(at_us.clone(), false)
            .set_column_encoding(at_us, Encoding::DELTA_BINARY_PACKED)
            .build();
        let file = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))?;
        Ok(ParquetWriter {
            file,
            at_us: Vec::new(),
            op: Vec::new(),
            offset: Vec::new(),
            size: Vec::new(),
            device: Vec::new(),
            letters: ["R", "W", "D", "F"].map(ByteArray::from),
        })
    }

    /// Adds requests; times are rounded to the nearest microsecond. Full row groups are written.
    ///
    /// # Errors
    /// What writing says.
    pub fn write(&mut self, batch: &[Request]) -> io::Result<()> {
        for request in batch {
            self.at_us.push(request.micros() as i64);
            self.op.push(self.letters[request.op as usize].clone());
            // A number of 2^63 or above keeps its bits; the column says that it has no sign.
            self.offset.push(request.offset.0 as i64);
            self.size.push(request.size.0 as i64);
            self.device.push(request.device as i32);
            if self.at_us.len() == GROUP_ROWS {
                self.write_group()?;
            }
        }
        Ok(())
    }

    /// Puts a remark into the file's metadata.
    pub fn remark(&mut self, text: &str) {
        let pair = KeyValue::new(REMARK.to_owned(), text.to_owned());
        self.file.append_key_value_metadata(pair);
    }

    /// Writes what is left and the footer, and gives back what it was written to.
    ///
    /// # Errors
    /// What writing says.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.at_us.is_empty() {
            self.write_group()?;
        }
        Ok(self.file.into_inner()?)
    }

    pub(super) fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        column::<_, Int64Type>(&mut group, &mut self.at_us)?;
        column::<_, ByteArrayType>(&mut group, &mut self.op)?;
        column::<_, Int64Type>(&mut group, &mut self.offset)?;
        column::<_, Int64Type>(&mut group, &mut self.size)?;
        column::<_, Int32Type>(&mut group, &mut self.device)?;
        group.close()?;
        Ok(())
    }
}

/// Writes the next column of a group and empties `values`.
pub(super) fn column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("fewer columns than written".to_owned()))?;
    column.typed::<T>().write_batch(values, None, None)?;
    values.clear();
    column.close()
}
