//! The slow device as the engine sees it: what has been written since the last flush, how busy it is, and
//! whether a flush ever failed.
//!
//! Always true: once a flush failed, every later one fails, until the device is opened anew.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, WriteFlags};
use env::sync::{Event, Semaphore};

use crate::payload::Payload;

/// Requests of users that a device answered, and what they waited, in total.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waited {
    pub requests: u64,
    pub nanos: u64,
}

impl Waited {
    /// One more that waited since `begun`.
    pub fn add(cell: &Cell<Waited>, begun: Instant) {
        let so_far = cell.get();
        cell.set(Waited {
            requests: so_far.requests + 1,
            nanos: so_far.nanos + env::now().since(begun).0,
        });
    }
}

/// What was written and what was flushed.
struct Flushes {
    /// Writes completed, and how many of them are durable.
    writes: Cell<u64>,
    flushed: Cell<u64>,
    /// When the last good flush began.
    begun: Cell<Instant>,
    failed: RefCell<Option<String>>,
    /// One flush at a time: the system reports a lost write once, to one of its callers.
    turn: Rc<Semaphore>,
}

/// Requests of users under way, and what they waited.
struct Load {
    foreground: Cell<u32>,
    busy_since: Cell<Instant>,
    busy: Cell<Nanos>,
    last_used: Cell<Instant>,
    /// The last of them ended.
    quiet: Event,
    reads: Cell<Waited>,
    written: Cell<Waited>,
}

impl Load {
    fn begin(&self, class: Class) {
        if class != Class::Background {
            if self.foreground.get() == 0 {
                self.busy_since.set(env::now());
            }
            self.foreground.set(self.foreground.get() + 1);
        }
    }

    fn end(&self, class: Class) {
        if class != Class::Background {
            let now = env::now();
            self.last_used.set(now);
            self.foreground.set(self.foreground.get() - 1);
            if self.foreground.get() == 0 {
                self.busy.set(Nanos(
                    self.busy.get().0 + now.since(self.busy_since.get()).0,
                ));
                self.quiet.notify_all();
            }
        }
    }

    fn busy(&self) -> Nanos {
        let running = if self.foreground.get() > 0 {
            env::now().since(self.busy_since.get())
        } else {
            Nanos(0)
        };
        Nanos(self.busy.get().0 + running.0)
    }
}

/// The slow device of one volume.
pub(crate) struct SlowDevice {
    // Fixed.
    pub device: Rc<dyn Device>,
    pub info: Info,
    // As it is used.
    flushes: Flushes,
    load: Load,
    pub bytes_read: Cell<u64>,
    pub bytes_written: Cell<u64>,
}

impl SlowDevice {
    pub fn new(device: Rc<dyn Device>) -> SlowDevice {
        let info = device.info();
        SlowDevice {
            device,
            info,
            flushes: Flushes {
                // An earlier user of the device may have left writes unflushed.
                writes: Cell::new(1),
                flushed: Cell::new(0),
                begun: Cell::new(Instant(0)),
                failed: RefCell::new(None),
                turn: Semaphore::new(1),
            },
            load: Load {
                foreground: Cell::new(0),
                busy_since: Cell::new(Instant(0)),
                busy: Cell::new(Nanos(0)),
                last_used: Cell::new(env::now()),
                quiet: Event::default(),
                reads: Cell::default(),
                written: Cell::default(),
            },
            bytes_read: Cell::new(0),
            bytes_written: Cell::new(0),
        }
    }

    fn begin(&self, class: Class) {
        self.load.begin(class);
    }

    fn end(&self, class: Class) {
        self.load.end(class);
    }

    /// Reads of users, and what they waited.
    pub fn reads(&self) -> Waited {
        self.load.reads.get()
    }

    /// Writes of users, and what they waited.
    pub fn written(&self) -> Waited {
        self.load.written.get()
    }

    /// Has there been a request of a user on the device for at least `span`, without a moment's pause?
    pub fn busy_for(&self, span: Nanos) -> bool {
        self.load.foreground.get() > 0 && env::now().since(self.load.busy_since.get()) >= span
    }

    /// Waits until no request of a user is under way.
    pub async fn quiet(&self) {
        while self.load.foreground.get() > 0 {
            self.load.quiet.wait().await;
        }
    }

    /// Time during which a user's request was on the device, since it was opened.
    pub fn foreground_busy(&self) -> Nanos {
        self.load.busy()
    }

    /// When the last of the users' requests ended; `None` if one is under way.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.load.foreground.get() == 0).then(|| self.load.last_used.get())
    }

    /// Is the spindle known to stand still?
    pub fn asleep(&self) -> bool {
        self.device.spindle().is_some_and(|spindle| spindle.asleep)
    }

    /// Sends the spindle to sleep, if the device can.
    pub fn sleep_now(&self) {
        if !self.asleep() {
            self.device.standby();
        }
    }

    pub async fn read(&self, at: Sector, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
        let len = buf.len() as u64;
        self.begin(class);
        let begun = env::now();
        let answer = self.device.read(at, buf, class).await;
        self.end(class);
        if class != Class::Background {
            Waited::add(&self.load.reads, begun);
        }
        self.bytes_read.set(self.bytes_read.get() + len);
        answer
    }

    pub async fn write(
        &self,
        at: Sector,
        data: View,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        self.begin(flags.class);
        let begun = env::now();
        let answer = self.device.write(at, data, flags).await;
        self.end(flags.class);
        if flags.class != Class::Background {
            Waited::add(&self.load.written, begun);
        }
        self.bytes_written.set(self.bytes_written.get() + len);
        self.wrote();
        answer
    }

    pub async fn discard(&self, span: Span) -> Result<(), DeviceError> {
        self.begin(Class::Foreground);
        let answer = self.device.discard(span).await;
        self.end(Class::Foreground);
        self.wrote();
        answer
    }

    pub async fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Result<(), DeviceError> {
        self.begin(flags.class);
        let answer = self.device.write_zeroes(span, flags).await;
        self.end(flags.class);
        self.wrote();
        answer
    }

    /// Puts `payload` on bytes `range`, in requests that it takes.
    ///
    /// # Errors
    /// The first of any of them; those after it are not sent.
    pub async fn put(
        &self,
        range: Range<u64>,
        payload: &Payload,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        match payload {
            Payload::Data(view) => {
                let max = self.max_io();
                let mut from = 0;
                while from < view.len() {
                    let len = max.min(view.len() - from);
                    let at = Sector::containing(range.start + from as u64);
                    self.write(at, view.slice(from, len), flags).await?;
                    from += len;
                }
                Ok(())
            }
            Payload::Zeroes => {
                let at = Sector::containing(range.start);
                let span = Span::new(at, Bytes(range.end - range.start));
                self.write_zeroes(span, flags).await
            }
        }
    }

    /// Counted at completion, also of a failed write: some of it may have landed.
    fn wrote(&self) {
        self.flushes.writes.set(self.flushes.writes.get() + 1);
    }

    /// Makes every write completed until now durable.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let upto = self.flushes.writes.get();
        let _turn = self.flushes.turn.acquire(1).await;
        if let Some(why) = self.flushes.failed.borrow().clone() {
            return Err(self.flush_failed(why));
        }
        if self.flushes.flushed.get() >= upto {
            return Ok(());
        }
        let upto = self.flushes.writes.get();
        let begun = env::now();
        match self.device.flush().await {
            Ok(()) => {
                self.flushes.begun.set(begun);
                self.flushes
                    .flushed
                    .set(self.flushes.flushed.get().max(upto));
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                *self.flushes.failed.borrow_mut() = Some(why.clone());
                Err(self.flush_failed(why))
            }
        }
    }

    /// When the last good flush began: everything completed before is durable.
    pub fn flushed_since(&self) -> Instant {
        self.flushes.begun.get()
    }

    fn flush_failed(&self, why: String) -> DeviceError {
        DeviceError::FlushFailed {
            device: self.info.name.clone(),
            why,
        }
    }

    /// Why flushes fail, if they do.
    pub fn failure(&self) -> Option<String> {
        self.flushes.failed.borrow().clone()
    }

    /// Bytes of the last, incomplete page are never cached; this is the rest.
    pub fn whole_pages(&self) -> u64 {
        self.info.size.0 / base::PAGE as u64
    }

    /// Longest request to send, in bytes.
    pub fn max_io(&self) -> usize {
        Bytes(self.info.max_io.0.clamp(base::PAGE as u64, 1 << 20)).usize()
    }
}
