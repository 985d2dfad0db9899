//! Opening traces and handing out their requests.
//!
//! ```text
//! Input (unpacked bytes) -> Source (its decoder) -> Order (small disorder put right) -> requests of one file
//! requests of each file, by time -> from the first request on, the span asked for -> batches
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Nanos;

use super::detect::detect;
use super::input::{Input, Progress};
use super::order::{Disorder, Order, REORDER};
use super::sink::{Gathered, Sink};
use super::source::Source;
use super::{
    Format, GENERATED, Malformed, ReadOptions, Request, Requests, TraceError, blktrace, decoders,
};

/// How many requests a batch holds at most.
pub const BATCH: usize = 8192;

/// Opens the trace in the file `path`; `-` is standard input.
///
/// # Errors
/// [`TraceError`] if it cannot be opened or unpacked, or its format cannot be recognized.
///
/// # Example
/// ```
/// use trace::{ReadOptions, Requests, Trace, open};
///
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(file.path(), "t_us,op,offset,size,dev\n5,R,4096,512,0\n9,W,0,4096,0\n")?;
/// let mut trace = open(file.path(), &ReadOptions::default())?;
/// let mut batch = Vec::new();
/// while trace.next_batch(&mut batch)? {
///     assert_eq!(batch[0].at, base::Nanos(0));
///     assert_eq!(batch[1].at, base::Nanos::micros(4));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(path: &Path, options: &ReadOptions) -> Result<Trace, TraceError> {
    open_many(&[path.to_owned()], options)
}

/// Opens several files as one trace, merged by time: the files blktrace writes for each CPU, the parts
/// of a long trace. All count time from the same moment.
///
/// # Errors
/// As [`open`]; also if `paths` is empty.
pub fn open_many(paths: &[PathBuf], options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut inputs = Vec::with_capacity(paths.len());
    for path in paths {
        inputs.push(Input::open(path)?);
    }
    Trace::new(inputs, options)
}

/// One file of a trace.
struct Stream {
    name: String,
    progress: Arc<Progress>,
    source: Box<dyn Source>,
    order: Order,
    ended: bool,
    /// What comes next, when files are merged: from `next` on.
    queue: Vec<Request>,
    next: usize,
}

/// A trace being read. Its requests come through [`Requests`]; the rest says how it goes.
pub struct Trace {
    streams: Vec<Stream>,
    /// The next time of each file that has more, when there are several files.
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
    format: Format,
    options: ReadOptions,
    gathered: Gathered,
    /// When the first request of the trace came, as the files count.
    origin: Option<Nanos>,
    /// When the first request handed out came, as the files count.
    first: Option<Nanos>,
    begun: bool,
    ended: bool,
    /// Requests seen, before the span of time asked for.
    seen: u64,
    latest: Nanos,
}

impl Trace {
    /// Reads the trace that `reader` holds; `name` is what messages call it.
    ///
    /// # Errors
    /// As [`open`].
    pub fn from_reader(
        name: &str,
        reader: Box<dyn Read + Send>,
        options: &ReadOptions,
    ) -> Result<Trace, TraceError> {
        Trace::new(vec![Input::new(name.to_owned(), reader, 0)?], options)
    }

    fn new(inputs: Vec<Input>, options: &ReadOptions) -> Result<Trace, TraceError> {
        options.check()?;
        let mut streams = Vec::with_capacity(inputs.len());
        let mut first = None;
        let stage = blktrace::stage(inputs.iter().map(Input::bytes));
        let parts = inputs.len();
        let mut empty = None;
        for input in inputs {
            if input.bytes().is_empty() && input.is_last() {
                // Of several parts some may be empty: a CPU that did nothing.
                empty = empty.or(Some(input.name));
                continue;
            }
            let format = match options.format {
                Some(format) => format,
                None => detect(&input)?,
            };
            first = first.or(Some(format));
            streams.push(Stream {
                name: input.name.clone(),
                progress: input.progress.clone(),
                source: decoders::source(format, input, options, stage)?,
                order: Order::new(options.reorder.unwrap_or(window(format))),
                ended: false,
                queue: Vec::new(),
                next: 0,
            });
        }
        if let (None, Some(name)) = (first, empty) {
            return Err(TraceError::Empty {
                file: match parts {
                    1 => name,
                    _ => format!("{name} and {} more", parts - 1),
                },
                malformed: Malformed::default(),
            });
        }
        let Some(format) = first else {
            return Err(TraceError::Options("no trace file was named".to_owned()));
        };
        Ok(Trace {
            streams,
            heads: BinaryHeap::new(),
            format,
            options: options.clone(),
            gathered: Gathered::default(),
            origin: None,
            first: None,
            begun: false,
            ended: false,
            seen: 0,
            latest: Nanos(0),
        })
    }

    /// The format of the file, or of the first of several.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The records left out so far.
    #[must_use]
    pub fn malformed(&self) -> &Malformed {
        &self.gathered.malformed
    }

    /// The disorder put right so far.
    #[must_use]
    pub fn disorder(&self) -> Disorder {
        let mut sum = Disorder::default();
        for stream in &self.streams {
            let one = stream.order.disorder();
            sum.count += one.count;
            sum.most = sum.most.max(one.most);
        }
        sum
    }

    /// Bytes read so far and bytes in all of the files as they lie on disk; 0 in all when that is unknown.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for stream in &self.streams {
            let (read, whole) = stream.progress.get();
            sum = (sum.0 + read, sum.1 + whole);
        }
        sum
    }

    /// The devices met so far with the names their format gives them; empty where it only has numbers.
    #[must_use]
    pub fn device_names(&self) -> &[(u32, String)] {
        &self.gathered.names
    }

    /// What was assumed while reading, in sentences for people.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.gathered.notes
    }

    /// All that is to be said of the reading, a line each: what was assumed, put right and left out.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut lines = self.notes().to_vec();
        let disorder = self.disorder();
        if disorder.count > 0 {
            lines.push(format!(
                "{} requests stood up to {} too late in the file and were put in order",
                disorder.count, disorder.most
            ));
        }
        let malformed = self.malformed();
        if malformed.count > 0 {
            lines.push(format!(
                "{} malformed records were left out:",
                malformed.count
            ));
            lines.extend(malformed.first.iter().map(|record| format!("  {record}")));
            let more = malformed.count - malformed.first.len() as u64;
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
        }
        lines
    }

    fn file(&self) -> String {
        match self.streams.as_slice() {
            [one] => one.name.clone(),
            [first, rest @ ..] => format!("{} and {} more", first.name, rest.len()),
            [] => String::new(),
        }
    }

    /// Puts the next requests of file `i` into `batch`; leaves it empty at the file's end.
    fn refill(&mut self, i: usize, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let stream = &mut self.streams[i];
        loop {
            stream.order.take(stream.ended, BATCH, batch);
            if !batch.is_empty() || stream.ended {
                return Ok(());
            }
            let mut sink = Sink {
                file: &stream.name,
                options: &self.options,
                origin: 0,
                order: &mut stream.order,
                gathered: &mut self.gathered,
            };
            stream.ended = !stream.source.fill(&mut sink)?;
        }
    }

    /// Refills the queue of file `i` and says when it goes on.
    fn queue(&mut self, i: usize) -> Result<(), TraceError> {
        let mut queue = std::mem::take(&mut self.streams[i].queue);
        queue.clear();
        let filled = self.refill(i, &mut queue);
        if let Some(request) = queue.first() {
            self.heads.push(Reverse((request.at, i)));
        }
        let stream = &mut self.streams[i];
        stream.queue = queue;
        stream.next = 0;
        filled
    }

    /// The next requests of all files in order of time; nothing at the end.
    fn merge(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        if !std::mem::replace(&mut self.begun, true) {
            for i in 0..self.streams.len() {
                self.queue(i)?;
            }
        }
        while batch.len() < BATCH
            && let Some(Reverse((_, i))) = self.heads.pop()
        {
            // All of this file that comes before the next of any other.
            let until = self.heads.peek().map(|&Reverse(head)| head);
            let stream = &mut self.streams[i];
            while batch.len() < BATCH
                && let Some(request) = stream.queue.get(stream.next)
                && until.is_none_or(|head| (request.at, i) < head)
            {
                batch.push(*request);
                stream.next += 1;
            }
            match stream.queue.get(stream.next) {
                Some(request) => self.heads.push(Reverse((request.at, i))),
                None => self.queue(i)?,
            }
        }
        Ok(())
    }

    /// Keeps what lies in the span of time asked for, and lets time begin with the first of it.
    fn clip(&mut self, batch: &mut Vec<Request>) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return;
        };
        self.seen += batch.len() as u64;
        let origin = *self.origin.get_or_insert(first.at);
        self.latest = last.at - origin;
        if let Some(to) = self.options.to {
            let keep = batch.partition_point(|request| request.at - origin < to);
            self.ended |= keep < batch.len();
            batch.truncate(keep);
        }
        if let Some(from) = self.options.from {
            let skip = batch.partition_point(|request| request.at - origin < from);
            batch.drain(..skip);
        }
        if let Some(request) = batch.first() {
            let first = *self.first.get_or_insert(request.at);
            for request in batch.iter_mut() {
                request.at -= first;
            }
        }
    }

    /// Why nothing came.
    fn nothing(&mut self) -> TraceError {
        let requests = self.seen + self.gathered.elsewhere;
        if requests == 0 {
            return TraceError::Empty {
                file: self.file(),
                malformed: std::mem::take(&mut self.gathered.malformed),
            };
        }
        TraceError::NothingLeft {
            file: self.file(),
            asked: self.options.asked(),
            requests,
            elsewhere: self.gathered.elsewhere,
            latest: self.latest,
        }
    }
}

impl Requests for Trace {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        while !self.ended {
            let read = match self.streams.len() {
                1 => self.refill(0, batch),
                _ => self.merge(batch),
            };
            if let Err(error) = read {
                batch.clear();
                self.ended = true;
                return Err(error);
            }
            if batch.is_empty() {
                self.ended = true;
            }
            self.clip(batch);
            if !batch.is_empty() {
                return Ok(true);
            }
        }
        match self.first {
            Some(_) => Ok(false),
            None => Err(self.nothing()),
        }
    }

    fn generated(&self) -> Option<&str> {
        let mut notes = self.gathered.notes.iter().map(String::as_str);
        notes.find(|note| note.starts_with(GENERATED))
    }
}

/// How much disorder of a format is put right.
fn window(format: Format) -> Nanos {
    match format {
        Format::Csv | Format::Parquet => Nanos(0),
        _ => REORDER,
    }
}
