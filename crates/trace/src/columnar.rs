//! Parquet traces: files that are read from their end, by a decoder that the program provides.
//!
//! ```text
//! program at its start -> provide_parquet(decoder)
//! open, TraceWriter    -> the decoder -> rows; without one: an error that says which program has it
//! ```
//!
//! The library for Parquet is large, and the daemon has no use for it.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use super::input::{Input, Progress};
use super::normal;
use super::sink::Sink;
use super::source::Source;
use super::{Format, Place, Reason, Request, TraceError};
use crate::output::Output;

/// What a Parquet file begins and ends with.
pub const PARQUET_MAGIC: &[u8] = b"PAR1";

/// The key under which a Parquet file's metadata have a remark.
pub const REMARK: &str = "tanada.remark";

/// Reads and writes files of columns that have their table of contents at the end.
pub trait Columnar: Send + Sync {
    /// Reads the table of contents.
    ///
    /// # Errors
    /// Why the file is no trace.
    fn read(&self, file: File) -> Result<Box<dyn RowReader>, String>;

    /// Begins to write.
    ///
    /// # Errors
    /// What the system or the format refuses.
    fn write(&self, output: Output) -> io::Result<Box<dyn RowWriter>>;
}

/// The rows of a file of columns.
pub trait RowReader: Send {
    /// What the file remarks for people, under the key [`REMARK`].
    fn remark(&self) -> Option<String>;

    /// Where in the file the present group of rows begins.
    fn position(&self) -> u64;

    /// Gives some thousands of rows to `take`, malformed ones as the reason; `false` once there are no more.
    ///
    /// # Errors
    /// Why the file cannot be read on.
    fn next(&mut self, take: &mut dyn FnMut(Result<Request, Reason>)) -> Result<bool, String>;
}

/// A file of columns being written.
pub trait RowWriter: Send {
    /// Adds a remark for people.
    fn remark(&mut self, text: &str);

    /// Adds rows.
    ///
    /// # Errors
    /// What the system or the format refuses.
    fn write(&mut self, batch: &[Request]) -> io::Result<()>;

    /// Writes the table of contents.
    ///
    /// # Errors
    /// What the system or the format refuses.
    fn finish(self: Box<Self>) -> io::Result<Output>;
}

static PARQUET: OnceLock<&'static dyn Columnar> = OnceLock::new();

/// From now on this process reads and writes Parquet with `decoder`; the first one provided stays.
pub fn provide_parquet(decoder: &'static dyn Columnar) {
    let _ = PARQUET.set(decoder);
}

/// The decoder, or which program has one.
fn parquet() -> Result<&'static dyn Columnar, String> {
    PARQUET.get().copied().ok_or_else(|| {
        "this program reads and writes no Parquet; tanada-lab does, such as with `tanada trace convert`"
            .to_owned()
    })
}

/// Begins to write Parquet.
pub(super) fn write(output: Output) -> io::Result<Box<dyn RowWriter>> {
    parquet().map_err(io::Error::other)?.write(output)
}

/// The source of a trace in Parquet.
pub(super) struct Rows {
    rows: Box<dyn RowReader>,
    progress: Arc<Progress>,
    /// What the file remarks, until it is handed on.
    remark: Option<String>,
    /// Rows read.
    read: u64,
}

impl Rows {
    /// Reads the table of contents of `input`.
    ///
    /// # Errors
    /// [`TraceError::Unsupported`] if `input` is no plain file, or no trace in Parquet, or no decoder was provided.
    pub(super) fn open(mut input: Input) -> Result<Rows, TraceError> {
        let file = input.plain_file();
        let unsupported = |why| TraceError::Unsupported {
            file: input.name.clone(),
            format: Format::Parquet,
            why,
        };
        let decoder = parquet().map_err(unsupported)?;
        let Some(file) = file else {
            return Err(unsupported(
                "its footer lies at its end, so it has to be a plain file: neither a pipe nor packed with \
                 gzip or zstd; unpack it, or save it to a file, first"
                    .to_owned(),
            ));
        };
        let rows = decoder.read(file).map_err(unsupported)?;
        Ok(Rows {
            remark: rows.remark().map(|text| normal::shown(text.as_bytes())),
            rows,
            progress: Arc::clone(&input.progress),
            read: 0,
        })
    }
}

impl Source for Rows {
    fn fill(&mut self, sink: &mut Sink<'_>) -> Result<bool, TraceError> {
        if let Some(remark) = self.remark.take() {
            sink.note(remark);
        }
        let mut answer = Ok(());
        let read = &mut self.read;
        // A row has no byte of its own; its row group's first stands for it.
        sink.origin = self.rows.position();
        let more = self.rows.next(&mut |row| {
            *read += 1;
            if answer.is_ok()
                && let Err(reason) = row.and_then(|request| sink.push(request))
            {
                answer = sink.malformed(Place::Record(*read), 0, reason);
            }
        });
        answer?;
        self.progress.reach(self.rows.position());
        more.map_err(|why| TraceError::Unsupported {
            file: sink.file().to_owned(),
            format: Format::Parquet,
            why,
        })
    }
}
