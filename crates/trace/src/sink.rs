//! What a decoder is, and where it puts what it has decoded.
//!
//! ```text
//! a block of bytes -> Decoder::decode -> Sink::push       requests, times as the file counts
//!                                     -> Sink::malformed  records that are none: fatal or counted
//! ```

use base::{Bytes, Map, Nanos, Set};

use super::order::Order;
use super::{Bad, BadRecord, Malformed, Op, Place, ReadOptions, Reason, Request, TraceError};

/// Beyond this no device reaches: requests end at or before it.
const END_MAX: u64 = 1 << 63;

/// How many devices a trace may name; a number each is kept while it is read.
const DEVICES_MAX: usize = 1 << 16;

/// The notes a trace may leave.
const NOTES_MAX: usize = 16;

/// Turns the bytes of a format into requests.
pub trait Decoder: Send {
    /// Decodes the records at the start of `input` into `sink` and answers how many bytes they took.
    ///
    /// What was not taken comes again at the start of the next call, with more behind it. The first
    /// input is [`super::BLOCK`] bytes or the whole file; taking nothing of as many is an
    /// error, since a record has to be shorter. At the end of the file (`last`) a decoder takes all it
    /// can; what it leaves is reported as cut off.
    ///
    /// # Errors
    /// What [`Sink::malformed`] answers is handed up; so is what makes the whole file unreadable.
    fn decode(
        &mut self,
        input: &[u8],
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Result<usize, TraceError>;

    /// The place of the next record, for the report of one that is cut off.
    fn place(&self) -> Place;
}

/// What is gathered over all files of a trace.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) malformed: Malformed,
    /// Devices by number, with the names the format gives them.
    pub(super) names: Vec<(u32, String)>,
    numbers: Map<Vec<u8>, u32>,
    used: Set<u32>,
    /// Every number below is used.
    free: u32,
    pub(super) notes: Vec<String>,
    /// Requests on devices that were not asked for.
    pub(super) elsewhere: u64,
}

/// Takes what a decoder finds.
pub struct Sink<'a> {
    pub(super) file: &'a str,
    pub(super) options: &'a ReadOptions,
    /// Where in the file, unpacked, the input of the decoder begins.
    pub(super) origin: u64,
    pub(super) order: &'a mut Order,
    pub(super) gathered: &'a mut Gathered,
}

impl Sink<'_> {
    /// Takes a request whose time counts from wherever the file counts from.
    ///
    /// A flush keeps neither place nor size.
    ///
    /// # Errors
    /// The [`Reason`] for which it is no request; hand it to [`Sink::malformed`] with its place.
    #[inline]
    pub fn push(&mut self, mut request: Request) -> Result<(), Reason> {
        if request.op == Op::Flush {
            request.offset = Bytes(0);
            request.size = Bytes(0);
        } else if request.size.0 == 0 {
            return Err(Reason::ZeroSize);
        }
        let (offset, size) = (request.offset.0, request.size.0);
        if offset.checked_add(size).is_none_or(|end| end > END_MAX) {
            return Err(Reason::Beyond { offset, size });
        }
        if let Some(devices) = &self.options.devices
            && !devices.contains(&request.device)
        {
            self.gathered.elsewhere += 1;
            return Ok(());
        }
        self.order.push(request)
    }

    /// Reports the record at `place`, which begins `at` bytes into the decoder's input.
    ///
    /// # Errors
    /// [`TraceError::Malformed`] unless bad records are counted.
    #[cold]
    pub fn malformed(&mut self, place: Place, at: usize, reason: Reason) -> Result<(), TraceError> {
        let record = BadRecord {
            file: self.file.to_owned(),
            place,
            byte: self.origin + at as u64,
            reason,
        };
        match self.options.bad {
            Bad::Fatal => Err(TraceError::Malformed(Box::new(record))),
            Bad::Count => {
                self.gathered.malformed.add(record);
                Ok(())
            }
        }
    }

    /// The number of the device called `name`, the same in all files of a trace: `preferred` if no other
    /// has it, else the next free one from 0 on.
    ///
    /// # Errors
    /// If a trace names more devices than it may.
    pub fn device(&mut self, name: &[u8], preferred: Option<u32>) -> Result<u32, Reason> {
        let gathered = &mut *self.gathered;
        if let Some(&number) = gathered.numbers.get(name) {
            return Ok(number);
        }
        if gathered.names.len() == DEVICES_MAX {
            return Err(Reason::Other(format!(
                "more than {DEVICES_MAX} devices in one trace"
            )));
        }
        while gathered.used.contains(&gathered.free) {
            gathered.free += 1;
        }
        let number = preferred
            .filter(|number| !gathered.used.contains(number))
            .unwrap_or(gathered.free);
        gathered.used.insert(number);
        gathered.numbers.insert(name.to_vec(), number);
        let shown = String::from_utf8_lossy(name).into_owned();
        gathered.names.push((number, shown));
        Ok(number)
    }

    /// The unit of time that was asked for.
    #[must_use]
    pub fn tick(&self) -> Option<Nanos> {
        self.options.tick
    }

    /// The name of the file, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        self.file
    }

    /// Leaves word of what was assumed; shown to people beside the result.
    pub fn note(&mut self, text: String) {
        let notes = &mut self.gathered.notes;
        if notes.len() < NOTES_MAX && !notes.contains(&text) {
            notes.push(text);
        }
    }
}
