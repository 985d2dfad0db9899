//! The normal form in Parquet: columns `t_us`, `op`, `offset`, `size`, `dev`, one row per request.
//!
//! ```text
//! reading   footer -> columns by name -> row group by row group, pages of five columns side by side -> rows
//! writing   requests -> 262144 of them -> one row group: five columns, zstd -> ... -> footer
//! ```
//!
//! Written are `t_us`, `offset`, `size` as unsigned 64 bits, `dev` as unsigned 32, `op` as text of one letter
//! (R, W, D, F). Read are these columns in any order among others, integers of any width and sign (a negative
//! number is a malformed row), `op` also as the letter's code; nullable columns as other tools write them (a
//! null is a malformed row); without `dev` every request is of device 0.
//!
//! The footer lies at the end, so a file is needed, no pipe, and no gzip or zstd around it: its pages are
//! packed already.
//!
//! Always true:
//! 1. One page of each column and `ROWS` rows are in memory, whatever the length of the trace.
//! 2. Nothing is read beyond the file's end, whatever its metadata claim.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use base::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArrayType, DataType, FixedLenByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::parquet_source::Plain;
pub use super::parquet_writer::ParquetWriter;
use trace::{Columnar, Op, Output, REMARK, Reason, Request, RowReader, RowWriter, time};

/// Rows read at a time.
const ROWS: usize = 8192;

/// Rows of a row group as we write it: 7.5 MB of memory until it is full.
pub(super) const GROUP_ROWS: usize = 1 << 18;

/// The columns of the normal form, in our order.
const COLUMNS: [&str; 5] = ["t_us", "op", "offset", "size", "dev"];

/// The decoder of Parquet, for [`trace::provide_parquet`].
struct Parquet;

/// From now on this process reads and writes traces in Parquet.
///
/// # Example
/// ```
/// lab::parquet::provide();
/// ```
pub fn provide() {
    trace::provide_parquet(&Parquet);
}

impl Columnar for Parquet {
    fn read(&self, file: File) -> Result<Box<dyn RowReader>, String> {
        Ok(Box::new(Rows::open(file)?))
    }

    fn write(&self, output: Output) -> io::Result<Box<dyn RowWriter>> {
        Ok(Box::new(ParquetWriter::new(output)?))
    }
}

/// One column of one row group, as it is stored.
enum Column {
    Narrow(ColumnReaderImpl<Int32Type>, Sign),
    Wide(ColumnReaderImpl<Int64Type>, Sign),
    Text(ColumnReaderImpl<ByteArrayType>),
    Letters(ColumnReaderImpl<FixedLenByteArrayType>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Signed,
    Unsigned,
}

/// How a column is stored, or why that cannot be read.
fn kind(column: &ColumnDescriptor, name: &str) -> Result<(Physical, Sign), String> {
    if column.max_rep_level() > 0 || column.max_def_level() > 1 {
        return Err(format!(
            "its column {name} is nested or repeated; one value a row is wanted"
        ));
    }
    let (logical, physical) = (column.logical_type_ref(), column.physical_type());
    let text = matches!(
        physical,
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY
    );
    let number = matches!(physical, Physical::INT32 | Physical::INT64);
    let plain = match logical {
        None => number || text,
        Some(LogicalType::Integer(_)) => number,
        Some(LogicalType::String | LogicalType::Enum) => text,
        Some(_) => false,
    };
    // An operation may be text or a letter's code; everything else is a number.
    if !plain || text && name != "op" {
        let wanted = if name == "op" {
            "text or an integer is wanted"
        } else {
            "an integer of 32 or 64 bits is wanted"
        };
        let logical = logical.map_or(String::new(), |logical| format!(" ({logical:?})"));
        return Err(format!(
            "its column {name} is of type {physical}{logical}; {wanted}"
        ));
    }
    let signed = match logical {
        Some(LogicalType::Integer(integer)) => integer.is_signed,
        _ => !matches!(
            column.converted_type(),
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        ),
    };
    Ok((physical, if signed { Sign::Signed } else { Sign::Unsigned }))
}

/// The rows of one chunk that are malformed, and why.
type BadRows = BTreeMap<usize, Reason>;

impl Column {
    fn new(reader: ColumnReader, sign: Sign) -> Option<Column> {
        match reader {
            ColumnReader::Int32ColumnReader(reader) => Some(Column::Narrow(reader, sign)),
            ColumnReader::Int64ColumnReader(reader) => Some(Column::Wide(reader, sign)),
            ColumnReader::ByteArrayColumnReader(reader) => Some(Column::Text(reader)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => Some(Column::Letters(reader)),
            _ => None,
        }
    }

    /// The next values of the column, at most `most`: numbers as they are, operations by their letter.
    fn read(
        &mut self,
        name: &'static str,
        most: usize,
        values: &mut Vec<u64>,
        bad: &mut BadRows,
    ) -> Result<(), ParquetError> {
        match self {
            Column::Narrow(reader, Sign::Signed) => fill(reader, most, values, bad, |&value| {
                u64::try_from(value).map_err(|_| negative(name, i64::from(value)))
            }),
            Column::Narrow(reader, Sign::Unsigned) => fill(reader, most, values, bad, |&value| {
                Ok(u64::from(value as u32))
            }),
            Column::Wide(reader, Sign::Signed) => fill(reader, most, values, bad, |&value| {
                u64::try_from(value).map_err(|_| negative(name, value))
            }),
            Column::Wide(reader, Sign::Unsigned) => {
                fill(reader, most, values, bad, |&value| Ok(value as u64))
            }
            Column::Text(reader) => fill(reader, most, values, bad, |text| letter(text.data())),
            Column::Letters(reader) => fill(reader, most, values, bad, |text| letter(text.data())),
        }
        .map_err(|error| ParquetError::General(format!("in the column {name}: {error}")))
    }
}

fn negative(column: &'static str, value: i64) -> Reason {
    Reason::Number {
        column,
        text: value.to_string(),
    }
}

fn letter(text: &[u8]) -> Result<u64, Reason> {
    match text {
        [letter] => Ok(u64::from(*letter)),
        _ => Err(unknown_operation(text)),
    }
}

fn unknown_operation(text: &[u8]) -> Reason {
    Reason::Operation {
        text: Reason::shown(text),
        known: "R, W, D, F",
    }
}

/// Reads up to `most` values; a null or one that `convert` refuses leaves 0 and the reason.
fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    most: usize,
    values: &mut Vec<u64>,
    bad: &mut BadRows,
    convert: impl Fn(&T::T) -> Result<u64, Reason>,
) -> Result<(), ParquetError> {
    values.clear();
    let (mut levels, mut stored) = (Vec::new(), Vec::new());
    let (rows, ..) = reader.read_records(most, Some(&mut levels), None, &mut stored)?;
    let mut stored = stored.iter();
    for row in 0..rows {
        // A column that cannot be null has no levels.
        let null = levels.get(row).is_some_and(|&level| level == 0);
        let value = if null { None } else { stored.next() };
        let value = value.map_or_else(|| Err(Reason::Other("a null".to_owned())), &convert);
        values.push(value.unwrap_or_else(|reason| {
            bad.entry(row).or_insert(reason);
            0
        }));
    }
    Ok(())
}

/// The rows of a trace, chunk by chunk.
struct Rows {
    reader: SerializedFileReader<Plain>,
    /// For each of [`COLUMNS`] its number in the file and its sign.
    columns: [Option<(usize, Sign)>; 5],
    /// The length of the file.
    len: u64,
    /// The next row group.
    next: usize,
    /// The columns of the present one, and how many of its rows are left.
    group: Option<([Option<Column>; 5], u64)>,
    values: [Vec<u64>; 5],
    bad: BadRows,
}

impl Rows {
    /// Reads the footer.
    ///
    /// # Errors
    /// Why it is no trace in Parquet.
    fn open(file: File) -> Result<Rows, String> {
        let len = file.metadata().map_err(|error| error.to_string())?.len();
        let source = Plain {
            file: Arc::new(file),
            len,
        };
        let reader = SerializedFileReader::new(source).map_err(|error| shown(&error))?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let mut columns = [None; 5];
        for (name, place) in COLUMNS.iter().zip(&mut columns) {
            let number = schema
                .columns()
                .iter()
                .position(|column| column.path().parts() == [*name]);
            *place = match number {
                Some(number) => Some((number, kind(&schema.column(number), name)?.1)),
                None if *name == "dev" => None,
                None => {
                    let names = schema.columns().iter().map(|column| column.path().string());
                    return Err(format!(
                        "it has no column {name}; it has {}; wanted are {}",
                        names.collect::<Vec<_>>().join(", "),
                        COLUMNS.join(", ")
                    ));
                }
            };
        }
        // The library takes it for granted that what the metadata name lies in the file.
        for (number, group) in reader.metadata().row_groups().iter().enumerate() {
            for (at, _) in columns.iter().flatten() {
                let column = group.column(*at);
                let start = column
                    .dictionary_page_offset()
                    .unwrap_or(column.data_page_offset());
                let (start, length) = (
                    u64::try_from(start),
                    u64::try_from(column.compressed_size()),
                );
                let end = start
                    .ok()
                    .zip(length.ok())
                    .and_then(|(start, length)| start.checked_add(length));
                if end.is_none_or(|end| end > len) {
                    return Err(format!(
                        "damaged: row group {} is said to lie beyond the file's {len} bytes",
                        number + 1
                    ));
                }
            }
        }
        Ok(Rows {
            reader,
            columns,
            len,
            next: 0,
            group: None,
            values: Default::default(),
            bad: BadRows::new(),
        })
    }

    /// Reads the next rows of all columns; how many, `None` at the end.
    fn chunk(&mut self) -> Result<Option<usize>, String> {
        let (columns, left) = loop {
            match &mut self.group {
                Some((columns, left)) if *left > 0 => break (columns, left),
                _ if self.next == self.reader.num_row_groups() => return Ok(None),
                _ => self.group = Some(self.open_group()?),
            }
        };
        let most = (*left).min(ROWS as u64) as usize;
        let damaged = |why: String| format!("damaged in row group {}: {why}", self.next);
        self.bad.clear();
        for ((column, values), name) in columns.iter_mut().zip(&mut self.values).zip(COLUMNS) {
            let Some(column) = column else { continue };
            column
                .read(name, most, values, &mut self.bad)
                .map_err(|error| damaged(shown(&error)))?;
            if values.len() != most {
                return Err(damaged(format!(
                    "its column {name} ends {} rows too early",
                    *left - values.len() as u64
                )));
            }
        }
        *left -= most as u64;
        Ok(Some(most))
    }

    fn open_group(&mut self) -> Result<([Option<Column>; 5], u64), String> {
        let number = self.next;
        self.next += 1;
        let damaged = |why: String| format!("damaged in row group {}: {why}", number + 1);
        let group = self
            .reader
            .get_row_group(number)
            .map_err(|error| damaged(shown(&error)))?;
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| damaged(format!("{} rows", group.metadata().num_rows())))?;
        let mut columns = [const { None }; 5];
        for (place, column) in self.columns.iter().zip(&mut columns) {
            let Some((at, sign)) = *place else { continue };
            let reader = group
                .get_column_reader(at)
                .map_err(|error| damaged(shown(&error)))?;
            *column = Column::new(reader, sign);
        }
        Ok((columns, rows))
    }
}

impl RowReader for Rows {
    fn remark(&self) -> Option<String> {
        let pairs = self
            .reader
            .metadata()
            .file_metadata()
            .key_value_metadata()?;
        let remark = pairs.iter().find(|pair| pair.key == REMARK)?;
        remark.value.clone()
    }

    /// At the end, the file's length.
    fn position(&self) -> u64 {
        let metadata = self.reader.metadata();
        let ended = self.group.as_ref().is_some_and(|(_, left)| *left == 0);
        match metadata
            .row_groups()
            .get(self.next.saturating_sub(usize::from(!ended)))
        {
            Some(group) => {
                let starts = group.columns().iter().map(|column| column.byte_range().0);
                starts.min().unwrap_or(0)
            }
            None => self.len,
        }
    }

    fn next(&mut self, take: &mut dyn FnMut(Result<Request, Reason>)) -> Result<bool, String> {
        let Some(rows) = self.chunk()? else {
            return Ok(false);
        };
        let [at_us, op, offset, size, device] = &self.values;
        for row in 0..rows {
            let device = if device.is_empty() { 0 } else { device[row] };
            take(match self.bad.remove(&row) {
                Some(reason) => Err(reason),
                None => request(at_us[row], op[row], offset[row], size[row], device),
            });
        }
        Ok(true)
    }
}

/// The sentence of an error, without the name of the library.
fn shown(error: &ParquetError) -> String {
    match error {
        ParquetError::General(why) | ParquetError::NYI(why) | ParquetError::EOF(why) => why.clone(),
        other => other.to_string(),
    }
}

fn request(at_us: u64, op: u64, offset: u64, size: u64, device: u64) -> Result<Request, Reason> {
    let op = match u8::try_from(op) {
        Ok(b'R') => Op::Read,
        Ok(b'W') => Op::Write,
        Ok(b'D') => Op::Discard,
        Ok(b'F') => Op::Flush,
        Ok(letter) => return Err(unknown_operation(&[letter])),
        Err(_) => return Err(unknown_operation(op.to_string().as_bytes())),
    };
    let device = u32::try_from(device)
        .map_err(|_| Reason::Other(format!("device {device}; devices have numbers below 2^32")))?;
    Ok(Request {
        at: time(at_us, 1_000)?,
        offset: Bytes(offset),
        size: Bytes(size),
        device,
        op,
    })
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;
    use parquet::data_type::ByteArray;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use trace::{Bad, Format, ReadOptions, Requests, Trace, TraceError, open};

    fn sample(rows: u64) -> Vec<Request> {
        let ops = [Op::Read, Op::Write, Op::Discard, Op::Flush];
        let request = |n: u64| {
            let op = ops[(n * 7 % 4) as usize];
            let flush = op == Op::Flush;
            Request {
                at: Nanos::micros(n * 3),
                offset: Bytes(if flush { 0 } else { (n % 1_000) << 40 }),
                size: Bytes(if flush { 0 } else { 512 + n % 5 }),
                device: if n == 1 { u32::MAX } else { n as u32 % 3 },
                op,
            }
        };
        (0..rows).map(request).collect()
    }

    fn written(trace: &[Request]) -> Vec<u8> {
        let mut writer = ParquetWriter::new(Vec::new()).expect("memory does not fail");
        for part in trace.chunks(10_000) {
            writer.write(part).expect("memory does not fail");
        }
        writer.finish().expect("memory does not fail")
    }

    /// A file of these columns, each with its type in the language of schemas, in one row group.
    fn made(columns: &[(&str, Cells)]) -> Vec<u8> {
        let lines = columns.iter().map(|(schema, _)| format!("{schema};"));
        let schema = format!("message m {{ {} }}", lines.collect::<String>());
        let schema = parse_message_type(&schema).expect("a schema");
        let mut file =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).expect("begun");
        let mut group = file.next_row_group().expect("a group");
        for (_, cells) in columns {
            let mut column = group.next_column().expect("a column").expect("one more");
            match cells {
                Cells::Narrow(values) => {
                    column.typed::<Int32Type>().write_batch(values, None, None)
                }
                Cells::Wide(values) => column.typed::<Int64Type>().write_batch(values, None, None),
                Cells::Text(values) => {
                    let values: Vec<ByteArray> = values.iter().map(|&text| text.into()).collect();
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(&values, None, None)
                }
                Cells::Nullable(values) => {
                    let levels: Vec<i16> =
                        values.iter().map(|cell| cell.is_some().into()).collect();
                    let values: Vec<i64> = values.iter().copied().flatten().collect();
                    column
                        .typed::<Int64Type>()
                        .write_batch(&values, Some(&levels), None)
                }
                Cells::Double(values) => column
                    .typed::<parquet::data_type::DoubleType>()
                    .write_batch(values, None, None),
            }
            .expect("written");
            column.close().expect("closed");
        }
        group.close().expect("closed");
        file.into_inner().expect("finished")
    }

    enum Cells {
        Narrow(&'static [i32]),
        Wide(&'static [i64]),
        Text(&'static [&'static str]),
        Nullable(&'static [Option<i64>]),
        Double(&'static [f64]),
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        file
    }

    fn read(bytes: &[u8], options: &ReadOptions) -> Result<(Vec<Request>, Trace), TraceError> {
        provide();
        let file = file(bytes);
        let mut trace = open(file.path(), options)?;
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while trace.next_batch(&mut batch)? {
            all.extend_from_slice(&batch);
        }
        Ok((all, trace))
    }

    fn refusal(bytes: &[u8]) -> String {
        match read(bytes, &ReadOptions::default()) {
            Ok((all, _)) => panic!("{} requests", all.len()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_written_is_read_back_over_several_row_groups() {
        let trace = sample(GROUP_ROWS as u64 + 20_001);
        let bytes = written(&trace);
        let (all, opened) = read(&bytes, &ReadOptions::default()).expect("readable");
        assert_eq!(opened.format(), Format::Parquet);
        assert!(all == trace, "{} requests of {}", all.len(), trace.len());
        assert_eq!(opened.progress(), (bytes.len() as u64, bytes.len() as u64));
    }

    #[test]
    fn columns_are_found_by_name_in_any_order_and_width() {
        let bytes = made(&[
            ("required double latency", Cells::Double(&[0.5, 0.25])),
            (
                "required int32 size (INTEGER(16, true))",
                Cells::Narrow(&[512, 4096]),
            ),
            (
                "required int32 op (INTEGER(8, false))",
                Cells::Narrow(&[b'W' as i32, b'R' as i32]),
            ),
            (
                "optional int64 offset",
                Cells::Nullable(&[Some(0), Some(1 << 40)]),
            ),
            (
                "required int32 t_us (INTEGER(32, false))",
                Cells::Narrow(&[5, -1]),
            ),
        ]);
        let (all, _) = read(&bytes, &ReadOptions::default()).expect("readable");
        let second = Request {
            at: Nanos::micros(u64::from(u32::MAX) - 5),
            offset: Bytes(1 << 40),
            size: Bytes(4096),
            device: 0,
            op: Op::Read,
        };
        assert_eq!(all[1], second);
        assert_eq!(all[0].op, Op::Write);
    }

    #[test]
    fn a_bad_row_is_named_or_counted() {
        let bytes = made(&[
            ("required int64 t_us", Cells::Wide(&[0, 1, 2, -3, 4, 5])),
            (
                "required binary op (STRING)",
                Cells::Text(&["R", "W", "READ", "R", "W", "R"]),
            ),
            (
                "optional int64 offset",
                Cells::Nullable(&[
                    Some(0),
                    None,
                    Some(0),
                    Some(0),
                    Some(1 << 62),
                    Some(i64::MAX),
                ]),
            ),
            (
                "required int64 size",
                Cells::Wide(&[512, 512, 512, 512, 512, 512]),
            ),
        ]);
        let first = refusal(&bytes);
        assert!(
            first.contains("record 2 (byte 4): a null; to leave such records out"),
            "{first}"
        );
        let options = ReadOptions {
            bad: Bad::Count,
            ..ReadOptions::default()
        };
        let (all, trace) = read(&bytes, &options).expect("readable");
        assert_eq!(all.len(), 2);
        assert_eq!(trace.malformed().count, 4);
        let reasons: Vec<String> = trace
            .malformed()
            .first
            .iter()
            .map(|bad| bad.reason.to_string())
            .collect();
        assert_eq!(
            reasons[1],
            "'READ' is no operation of this format; it knows R, W, D, F"
        );
        assert_eq!(
            reasons[2],
            "'-3' in the place of the t_us is no whole number from 0 to 2^64 - 1"
        );
        assert!(reasons[3].contains("ends beyond 2^63"), "{}", reasons[3]);
    }

    #[test]
    fn columns_that_are_missing_or_of_another_type_are_named() {
        let missing = refusal(&made(&[
            ("required int64 t_us", Cells::Wide(&[0])),
            ("required int64 lba", Cells::Wide(&[0])),
        ]));
        let wanted =
            "it has no column op; it has t_us, lba; wanted are t_us, op, offset, size, dev";
        assert!(missing.ends_with(wanted), "{missing}");
        let double = refusal(&made(&[("required double t_us", Cells::Double(&[0.0]))]));
        let wanted = "its column t_us is of type DOUBLE; an integer of 32 or 64 bits is wanted";
        assert!(double.ends_with(wanted), "{double}");
        let repeated = refusal(&made(&[("repeated int64 t_us", Cells::Wide(&[]))]));
        assert!(
            repeated.contains("its column t_us is nested or repeated"),
            "{repeated}"
        );
    }

    #[test]
    fn without_its_footer_a_file_is_refused() {
        let bytes = written(&sample(100));
        let cut = refusal(&bytes[..bytes.len() - 1]);
        assert!(cut.contains("cannot be read as parquet: "), "{cut}");
        let packed = zstd::encode_all(&bytes[..], 1).expect("packed");
        let packed = refusal(&packed);
        assert!(packed.contains("it has to be a plain file"), "{packed}");
    }
}
