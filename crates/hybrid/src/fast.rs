//! The fast device as the engine sees it: whole pages in numbered slots, each checked when it is read.
//!
//! Always true: a page that is given out agrees with its checksum.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View, crc::crc32c_of_page};
use device::{Class, Device, DeviceError, Pending, WriteFlags};

use crate::attach::label::{Label, PAGE};
use crate::index::Index;
use crate::index::page_map::PageMap;
use crate::slow::Waited;
use crate::stats::count;
use crate::trouble::Unreadable;

/// After this many failed reads in a row the fast device is given up.
const READ_ERRORS_MAX: u64 = 16;

/// What went over the fast device's slots since it was attached.
#[derive(Debug, Default)]
pub(crate) struct FastCounters {
    pub bytes_read: Cell<u64>,
    pub bytes_written: Cell<u64>,
    pub writes: Cell<u64>,
    pub bad_checksums: Cell<u64>,
}

/// The slots of one attached fast device.
pub(crate) struct FastDevice {
    pub device: Rc<dyn Device>,
    name: String,
    /// The longest request it takes, in bytes; whole pages.
    pub io_max: usize,
    /// First byte of slot 0.
    slots_start: u64,
    /// Failed reads since the last good one.
    failed_reads: Cell<u64>,
    /// Reads of users from slots.
    waited: Cell<Waited>,
    pub unreadable: Unreadable,
    pub counters: FastCounters,
}

impl FastDevice {
    pub fn new(device: Rc<dyn Device>, label: &Label) -> FastDevice {
        let info = device.info();
        FastDevice {
            name: info.name,
            io_max: (info.max_io.0 / PAGE * PAGE).clamp(PAGE, 1 << 20) as usize,
            slots_start: label.slots_start,
            device,
            failed_reads: Cell::new(0),
            waited: Cell::default(),
            unreadable: Unreadable::default(),
            counters: FastCounters::default(),
        }
    }

    /// Its name; a device may have changed it since it was attached.
    pub fn name(&self) -> String {
        self.device.info().name
    }

    fn sector(&self, slot: u32) -> Sector {
        Sector::containing(self.slots_start + u64::from(slot) * PAGE)
    }

    /// Writes neighbouring slots from `first` on; calls `written` after each request.
    ///
    /// # Errors
    /// The device's; the slots may hold anything then.
    pub async fn write(
        &self,
        first: u32,
        data: View,
        class: Class,
        written: impl Fn(),
    ) -> Result<(), DeviceError> {
        count(&self.counters.bytes_written, data.len() as u64);
        let flags = WriteFlags { fua: false, class };
        let mut from = 0;
        while from < data.len() {
            let len = self.io_max.min(data.len() - from);
            let slot = first + (from / base::PAGE) as u32;
            let piece = data.slice(from, len);
            let answer = self.device.write(self.sector(slot), piece, flags).await;
            count(&self.counters.writes, 1);
            written();
            answer?;
            let slots = (len / base::PAGE) as u32;
            self.unreadable.read(slot, slots, false);
            from += len;
        }
        Ok(())
    }

    /// Reads neighbouring slots from `first` on and checks every page against the checksum that `index` has by then.
    ///
    /// # Errors
    /// The device's own, or `Corrupt` for a page whose checksum does not agree.
    pub async fn read(
        &self,
        first: u32,
        buf: Buf,
        class: Class,
        index: &RefCell<Index>,
    ) -> Result<Buf, DeviceError> {
        let slots = (buf.len() / base::PAGE) as u32;
        let answer = self.read_and_check(first, buf, class, index).await;
        self.unreadable.read(first, slots, answer.is_err());
        answer
    }

    async fn read_and_check(
        &self,
        first: u32,
        buf: Buf,
        class: Class,
        index: &RefCell<Index>,
    ) -> Result<Buf, DeviceError> {
        let len = buf.len();
        let read = self.device.read(self.sector(first), buf, class);
        let buf = self.watched(len, class, read).await?;
        self.check(first, &buf, &index.borrow().map)?;
        Ok(buf)
    }

    /// Fills each buffer of `pieces` from its slot on, with one request: slots come in rising order, and those between
    /// two pieces are read into scrap. Every page of a piece is checked as in [`FastDevice::read`].
    ///
    /// # Errors
    /// As for [`FastDevice::read`].
    pub async fn read_pieces(
        &self,
        pieces: Vec<(u32, Buf)>,
        class: Class,
        index: &RefCell<Index>,
    ) -> Result<Vec<Buf>, DeviceError> {
        let first = pieces[0].0;
        let mut next = first;
        let mut bufs = Vec::with_capacity(pieces.len() * 2);
        let mut slots = Vec::with_capacity(pieces.len() * 2);
        for (slot, buf) in pieces {
            if slot > next {
                bufs.push(Buf::for_read((slot - next) as usize * base::PAGE));
                slots.push(None);
            }
            next = slot + (buf.len() / base::PAGE) as u32;
            bufs.push(buf);
            slots.push(Some(slot));
        }
        let len = (next - first) as usize * base::PAGE;
        let read = self.device.read_vectored(self.sector(first), bufs, class);
        let bufs = self.watched(len, class, read).await?;
        let map = &index.borrow().map;
        let mut filled = Vec::with_capacity(bufs.len());
        for (slot, buf) in slots.into_iter().zip(bufs) {
            let Some(slot) = slot else { continue };
            self.check(slot, &buf, map)?;
            let count = (buf.len() / base::PAGE) as u32;
            self.unreadable.read(slot, count, false);
            filled.push(buf);
        }
        Ok(filled)
    }

    /// Counts a read of `len` bytes.
    async fn watched<T>(
        &self,
        len: usize,
        class: Class,
        read: Pending<'_, T>,
    ) -> Result<T, DeviceError> {
        count(&self.counters.bytes_read, len as u64);
        let begun = env::now();
        let answer = read.await?;
        if class != Class::Background {
            Waited::add(&self.waited, begun);
        }
        self.failed_reads.set(0);
        Ok(answer)
    }

    /// Do the pages in `buf`, read from slot `first` on, agree with their checksums?
    fn check(&self, first: u32, buf: &Buf, map: &PageMap) -> Result<(), DeviceError> {
        let zero = buf.is_known_zero();
        for (slot, page) in (first..).zip(buf.chunks(PAGE as usize)) {
            if crc32c_of_page(page, zero) != map.crc(slot) {
                count(&self.counters.bad_checksums, 1);
                return Err(DeviceError::Corrupt {
                    device: self.name(),
                    span: Span::new(self.sector(slot), Bytes(PAGE)),
                    why: format!("the checksum of slot {slot} does not agree"),
                });
            }
        }
        Ok(())
    }

    /// Reads of users from slots, and what they waited.
    pub fn waited(&self) -> Waited {
        self.waited.get()
    }

    /// Is this an error of the fast device?
    pub fn is_own(&self, error: &DeviceError) -> bool {
        match error {
            DeviceError::Io { device, .. }
            | DeviceError::Corrupt { device, .. }
            | DeviceError::Gone { device, .. } => *device == self.name,
            _ => false,
        }
    }

    /// A read failed. True once it is one of so many in a row that the device is to be given up.
    pub fn read_failed(&self, error: &DeviceError) -> bool {
        if matches!(error, DeviceError::Corrupt { .. }) {
            return false;
        }
        count(&self.failed_reads, 1);
        self.failed_reads.get() >= READ_ERRORS_MAX
    }
}
