//! Writing traces: the normal form as CSV or Parquet, and fio's iolog to replay one.
//!
//! ```text
//! batches of requests -> text of the form -> plain, gzip or zstd by the name's ending -> FILE, once it is whole
//! ```
//!
//! Always true:
//! 1. A file bears its name only when it is whole; until then it is a temporary one beside it, which goes
//!    away when writing fails.
//! 2. A file that is there is not overwritten unless that is asked for.

mod csv;
mod fio;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use csv::push_csv;

pub use crate::error::WriteError;
use crate::output::Output;
pub use crate::output::Packing;
use crate::{Format, HEADER, Request, Requests, RowWriter, TraceError, columnar};

/// The form a trace is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The normal form, as CSV.
    Csv,
    /// The normal form, as Parquet.
    Parquet,
    /// fio's iolog, version 3, to replay the trace: device 7 is a file named `dev7`, which fio's
    /// `--replay_redirect=/dev/sdx` makes another.
    Fio,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Csv, Form::Parquet, Form::Fio];

    /// The form that the ending of a file's name stands for; CSV unless it stands for another.
    #[must_use]
    pub fn of_name(path: &Path) -> Form {
        let bare = match Packing::of_name(path) {
            Packing::Plain => path.to_owned(),
            Packing::Gzip | Packing::Zstd => path.with_extension(""),
        };
        match bare.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => Form::Parquet,
            Some("iolog" | "fio") => Form::Fio,
            _ => Form::Csv,
        }
    }

    /// The format a reader sees in it.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Form::Csv => Format::Csv,
            Form::Parquet => Format::Parquet,
            Form::Fio => Format::Fio,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format().fmt(f)
    }
}

/// A name that is no form to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("traces are not written as '{name}'; they are written as {}", list())]
pub struct UnknownForm {
    /// What was asked for.
    pub name: String,
}

fn list() -> String {
    Form::ALL.map(|form| form.to_string()).join(", ")
}

impl FromStr for Form {
    type Err = UnknownForm;

    fn from_str(text: &str) -> Result<Form, UnknownForm> {
        let named = Form::ALL.into_iter().find(|form| form.to_string() == text);
        named.ok_or_else(|| UnknownForm {
            name: text.to_owned(),
        })
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How many requests.
    pub requests: u64,
    /// How many bytes, as the file lies on disk.
    pub bytes: u64,
}

/// Turns requests into the bytes of a form.
trait Encoder: Send {
    /// Appends what `batch` becomes.
    fn encode(&mut self, batch: &[Request], bytes: &mut Vec<u8>);

    /// Appends a remark for people, where the form has room for one.
    fn remark(&mut self, _text: &str, _bytes: &mut Vec<u8>) {}

    /// Appends what stands at the end.
    fn finish(&mut self, _bytes: &mut Vec<u8>) {}
}

/// What the requests become on their way.
enum Body {
    Text(Box<Text>),
    Columns(Box<dyn RowWriter>),
}

struct Text {
    encoder: Box<dyn Encoder>,
    output: Output,
    /// What goes to the file next.
    bytes: Vec<u8>,
}

impl Text {
    fn write(&mut self, batch: &[Request]) -> io::Result<()> {
        self.encoder.encode(batch, &mut self.bytes);
        self.output.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Output> {
        self.encoder.finish(&mut self.bytes);
        self.output.write_all(&self.bytes)?;
        Ok(self.output)
    }
}

/// A trace being written. [`TraceWriter::finish`] gives the file its name; dropped before, it goes away.
pub struct TraceWriter {
    body: Body,
    file: PathBuf,
    requests: u64,
}

impl TraceWriter {
    /// Begins to write `form` to `path`, packed as its ending says (`.gz`, `.zst`); `-` is standard output.
    ///
    /// # Errors
    /// [`WriteError::Exists`] if there is such a file and `force` is not set; [`WriteError::Packed`] if
    /// Parquet is to be packed; [`WriteError::Io`] if no file can be made beside it.
    pub fn create(path: &Path, form: Form, force: bool) -> Result<TraceWriter, WriteError> {
        let file = path.to_owned();
        if form == Form::Parquet && Packing::of_name(path) != Packing::Plain {
            return Err(WriteError::Packed { file });
        }
        let output = Output::create(path, force)?;
        let mut bytes = Vec::new();
        let encoder: Option<Box<dyn Encoder>> = match form {
            Form::Csv => {
                bytes.extend_from_slice(HEADER.as_bytes());
                bytes.push(b'\n');
                Some(Box::new(csv::Csv))
            }
            Form::Fio => Some(Box::new(fio::Fio::new(&mut bytes))),
            Form::Parquet => None,
        };
        let body = match encoder {
            Some(encoder) => Body::Text(Box::new(Text {
                encoder,
                output,
                bytes,
            })),
            None => match columnar::write(output) {
                Ok(writer) => Body::Columns(writer),
                Err(source) => return Err(WriteError::Io { file, source }),
            },
        };
        Ok(TraceWriter {
            body,
            file,
            requests: 0,
        })
    }

    /// Adds a remark in one line, such as where the requests come from; before any request it stands right
    /// behind the header. fio's iolog has no room for one.
    pub fn remark(&mut self, text: &str) {
        let text = text.replace(char::is_control, " ");
        match &mut self.body {
            Body::Columns(writer) => writer.remark(&text),
            Body::Text(writer) => writer.encoder.remark(&text, &mut writer.bytes),
        }
    }

    /// Writes the next requests, which are in order of time.
    ///
    /// # Errors
    /// [`WriteError::Io`], after which the trace is lost.
    pub fn write(&mut self, batch: &[Request]) -> Result<(), WriteError> {
        self.requests += batch.len() as u64;
        let written = match &mut self.body {
            Body::Columns(writer) => writer.write(batch),
            Body::Text(writer) => writer.write(batch),
        };
        written.map_err(|source| WriteError::Io {
            file: self.file.clone(),
            source,
        })
    }

    /// Ends the trace, makes it durable and gives it its name.
    ///
    /// # Errors
    /// [`WriteError`]; also if a file of that name has come up in the meantime.
    pub fn finish(self) -> Result<Written, WriteError> {
        let ended = match self.body {
            Body::Columns(writer) => writer.finish(),
            Body::Text(writer) => writer.finish(),
        };
        let output = ended.map_err(|source| WriteError::Io {
            file: self.file,
            source,
        })?;
        Ok(Written {
            requests: self.requests,
            bytes: output.finish()?,
        })
    }
}

/// Why a trace cannot be copied into another form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The other cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes all of `from` to `to` and ends it, keeping word of its having been generated; `progress` is called after each batch.
///
/// # Errors
/// [`CopyError`]; nothing bears the name of the new trace then.
pub fn copy<R: Requests>(
    from: &mut R,
    mut to: TraceWriter,
    mut progress: impl FnMut(&R, &[Request]),
) -> Result<Written, CopyError> {
    let mut batch = Vec::new();
    while from.next_batch(&mut batch)? {
        if to.requests == 0
            && let Some(remark) = from.generated()
        {
            to.remark(remark);
        }
        to.write(&batch)?;
        progress(from, &batch);
    }
    Ok(to.finish()?)
}

#[cfg(test)]
mod tests;
