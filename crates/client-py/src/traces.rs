//! A trace in memory: columns that Arrow's readers share, and what simulations make of them.
//!
//! ```text
//! files -> trace::open_many -> batches of requests -> columns, 2^20 rows each --> Arrow's C stream, without a copy
//!                                                                            \-> Compact, one remembered
//! ```

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Int8Type, UInt32Type, UInt64Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, RecordBatch, RecordBatchIterator, StringArray,
    UInt32Array, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use base::{Bytes, Nanos};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sim::cache::{Builder, Compact, LoadError, Ops, Unit};
use trace::{Bad, Format, Op, ReadOptions, Request, Requests, TraceError};

use crate::errors;
use crate::interrupt::{Stop, detached};

/// Rows of one piece of the columns: 29 MiB.
const ROWS: usize = 1 << 20;
/// What the column `op` can hold, by its number.
const OPS: [(Op, &str); 4] = [
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Discard, "discard"),
    (Op::Flush, "flush"),
];

/// How a trace is read, in the words of the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReadWords {
    format: Option<String>,
    tick: Option<String>,
    bad: String,
    start: Option<String>,
    end: Option<String>,
    devices: Option<Vec<u32>>,
    reorder: Option<String>,
    columns: Option<String>,
}

impl ReadWords {
    /// The same for the library.
    pub fn options(self) -> Result<ReadOptions, TraceError> {
        let time = |text: Option<String>| text.as_deref().map(time).transpose();
        let wrong = |why: String| TraceError::Options(why);
        let format = self.format.as_deref().map(Format::from_str).transpose();
        Ok(ReadOptions {
            format: format.map_err(|error| wrong(error.to_string()))?,
            tick: time(self.tick)?,
            bad: match self.bad.as_str() {
                "fatal" => Bad::Fatal,
                "count" => Bad::Count,
                other => return Err(wrong(format!("bad is '{other}'; say fatal or count"))),
            },
            from: time(self.start)?,
            to: time(self.end)?,
            devices: self.devices,
            reorder: time(self.reorder)?,
            columns: self.columns,
        })
    }
}

/// A time such as `10m`.
fn time(text: &str) -> Result<Nanos, TraceError> {
    let time = humantime::parse_duration(text);
    let time = time.map_err(|error| TraceError::Options(format!("'{text}': {error}")))?;
    Ok(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// The formats that can be read, and a line about each.
#[pyfunction]
pub fn formats() -> Vec<(&'static str, &'static str)> {
    let all = Format::all().iter();
    all.map(|format| (format.name(), format.about())).collect()
}

/// Reads a trace as a whole.
#[pyfunction]
pub fn read_trace(py: Python<'_>, paths: Vec<PathBuf>, words: ReadWords) -> PyResult<Trace> {
    let read = detached(py, |stop| Trace::read(&paths, words, stop))?;
    read.map_err(|error| errors::trace(&error))
}

/// The requests of a trace.
#[pyclass(frozen, module = "tanada._native")]
pub struct Trace {
    batches: Vec<RecordBatch>,
    rows: usize,
    format: Format,
    remarks: Vec<String>,
    names: Vec<(u32, String)>,
    /// How it was looked at last: comparisons of one trace mostly look in the same way.
    compact: Mutex<Option<Arc<Looked>>>,
}

/// A trace as one simulation sees it.
struct Looked {
    unit: Unit,
    ops: Ops,
    compact: Compact,
}

#[pymethods]
impl Trace {
    fn __len__(&self) -> usize {
        self.rows
    }

    /// The format of the file, or of the first of several.
    #[getter]
    fn format(&self) -> &'static str {
        self.format.name()
    }

    /// What was assumed, put right and left out.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// The names of devices, by number.
    #[getter]
    fn device_names(&self) -> Vec<(u32, String)> {
        self.names.clone()
    }

    /// When the last request comes, in nanoseconds.
    #[getter]
    fn span_ns(&self) -> u64 {
        let last = self.batches.last();
        let times = last.map(|batch| batch.column(0).as_primitive::<UInt64Type>());
        times.map_or(0, |times| times.value(times.len() - 1))
    }

    /// Memory of the columns.
    #[getter]
    fn nbytes(&self) -> usize {
        let sizes = self.batches.iter();
        sizes.map(RecordBatch::get_array_memory_size).sum()
    }

    /// All columns, as Arrow's C stream interface has them. A schema that is asked for is not looked at: the reader casts.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches: Vec<Result<RecordBatch, ArrowError>> =
            self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// What the columns are.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(schema().as_ref());
        let schema = schema.map_err(|error| errors::trace(&error))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

impl Trace {
    fn read(paths: &[PathBuf], words: ReadWords, stop: &Stop) -> Result<Trace, TraceError> {
        let mut trace = trace::open_many(paths, &words.options()?)?;
        let (mut batches, mut rows) = (Vec::new(), 0);
        let mut columns = Columns::default();
        let mut batch = Vec::new();
        // Of a trace that is broken off nothing is used.
        while stop.flow().is_continue() && trace.next_batch(&mut batch)? {
            rows += batch.len();
            columns.push(&batch);
            if columns.time.len() >= ROWS {
                batches.push(columns.batch());
                columns = Columns::with_room();
            }
        }
        if !columns.time.is_empty() {
            batches.push(columns.batch());
        }
        Ok(Trace {
            batches,
            rows,
            format: trace.format(),
            remarks: trace.remarks(),
            names: trace.device_names().to_vec(),
            compact: Mutex::new(None),
        })
    }

    /// The unit in which it is looked at where none is said.
    pub fn usual_unit(&self) -> Unit {
        Unit::usual(self.format)
    }

    /// Gives `work` the trace in units of `unit`; nothing where it was stopped before.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn with_compact<T>(
        &self,
        (unit, ops): (Unit, Ops),
        stop: &Stop,
        work: impl FnOnce(&Compact) -> T,
    ) -> Result<Option<T>, LoadError> {
        let last = || self.compact.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |it: &Arc<Looked>| it.unit == unit && it.ops == ops;
        let here = last().clone().filter(same);
        let looked = match here {
            Some(looked) => looked,
            None => {
                // Of two the earlier one goes before the later one takes room.
                *last() = None;
                let Some(compact) = self.build(unit, ops, stop)? else {
                    return Ok(None);
                };
                let looked = Arc::new(Looked { unit, ops, compact });
                *last() = Some(Arc::clone(&looked));
                looked
            }
        };
        Ok(Some(work(&looked.compact)))
    }

    fn build(&self, unit: Unit, ops: Ops, stop: &Stop) -> Result<Option<Compact>, LoadError> {
        let mut builder = Builder::new(unit, ops);
        for batch in &self.batches {
            if stop.flow().is_break() {
                return Ok(None);
            }
            for request in requests(batch) {
                builder.push(&request)?;
            }
        }
        builder.finish().map(Some)
    }
}

/// A trace as one simulation sees it, which is read for that alone; nothing where it was stopped before.
///
/// # Errors
/// [`LoadError`].
pub fn stream(
    trace: &mut trace::Trace,
    (unit, ops): (Unit, Ops),
    stop: &Stop,
) -> Result<Option<Compact>, LoadError> {
    let mut builder = Builder::new(unit, ops);
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch)? {
        if stop.flow().is_break() {
            return Ok(None);
        }
        for request in &batch {
            builder.push(request)?;
        }
    }
    builder.finish().map(Some)
}

/// The requests of a piece of the columns.
fn requests(batch: &RecordBatch) -> impl Iterator<Item = Request> {
    let of_64 = |n: usize| batch.column(n).as_primitive::<UInt64Type>().values().iter();
    let ops = batch.column(1).as_dictionary::<Int8Type>().keys().values();
    let devices = batch.column(4).as_primitive::<UInt32Type>().values();
    let places = of_64(2).zip(of_64(3)).zip(devices);
    let rows = of_64(0).zip(ops).zip(places);
    rows.map(|((at, op), ((offset, size), device))| Request {
        at: Nanos(*at),
        offset: Bytes(*offset),
        size: Bytes(*size),
        device: *device,
        op: OPS[*op as usize].0,
    })
}

/// Columns being filled.
#[derive(Default)]
struct Columns {
    time: Vec<u64>,
    op: Vec<i8>,
    offset: Vec<u64>,
    size: Vec<u64>,
    device: Vec<u32>,
}

impl Columns {
    /// With room for a whole piece, as there was one before.
    fn with_room() -> Columns {
        let most = ROWS + trace::BATCH;
        Columns {
            time: Vec::with_capacity(most),
            op: Vec::with_capacity(most),
            offset: Vec::with_capacity(most),
            size: Vec::with_capacity(most),
            device: Vec::with_capacity(most),
        }
    }

    fn push(&mut self, batch: &[Request]) {
        let number = |op: Op| OPS.iter().position(|(one, _)| *one == op);
        self.time.extend(batch.iter().map(|it| it.at.0));
        let ops = batch
            .iter()
            .map(|it| number(it.op).unwrap_or_default() as i8);
        self.op.extend(ops);
        self.offset.extend(batch.iter().map(|it| it.offset.0));
        self.size.extend(batch.iter().map(|it| it.size.0));
        self.device.extend(batch.iter().map(|it| it.device));
    }

    fn batch(mut self) -> RecordBatch {
        self.time.shrink_to_fit();
        self.op.shrink_to_fit();
        self.offset.shrink_to_fit();
        self.size.shrink_to_fit();
        self.device.shrink_to_fit();
        let words = StringArray::from_iter_values(OPS.map(|(_, word)| word));
        let ops = DictionaryArray::new(Int8Array::from(self.op), Arc::new(words));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(self.time)),
            Arc::new(ops),
            Arc::new(UInt64Array::from(self.offset)),
            Arc::new(UInt64Array::from(self.size)),
            Arc::new(UInt32Array::from(self.device)),
        ];
        RecordBatch::try_new(schema(), columns)
            .expect("five columns of one length, as the schema says")
    }
}

/// What the columns are, with units in their names.
fn schema() -> SchemaRef {
    let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let column = |name, of| Field::new(name, of, false);
    Arc::new(Schema::new(vec![
        column("time_ns", DataType::UInt64),
        column("op", words),
        column("offset_bytes", DataType::UInt64),
        column("size_bytes", DataType::UInt64),
        column("device", DataType::UInt32),
    ]))
}
