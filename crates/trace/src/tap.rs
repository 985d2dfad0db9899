//! A device that lets others look on: a recorder or a shadow sees each request as it is asked.
//!
//! ```text
//! front -> Tap -> device
//!           \-> observers, while there are any
//! ```
//!
//! Always true:
//! 1. What is asked and answered is what the device below is asked and answers; observers see requests
//!    when they are made, before the device does.
//! 2. Without an observer a request costs one look at a flag more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Sector, Span, View};
use device::{Class, Device, Info, Pending, Power, Spindle, WriteFlags};

use crate::Op;

/// An observer of requests. It is called on the data path: it must be quick and must not wait.
pub trait Observer {
    /// A request was made now, at `at`. Writing zeroes is a write; a flush has the span of no bytes at
    /// sector 0.
    fn request(&mut self, at: Instant, op: Op, span: Span);
}

/// An observer that is attached; [`Tap::detach`] takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached(u64);

/// An observer and the name of its attachment.
type Watcher = (Attached, Rc<RefCell<dyn Observer>>);

/// A device with observers.
///
/// # Example
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// use base::{Bytes, Instant, Sector, Span};
/// use device::{DeviceExt, Memory};
/// use trace::{tap::{Observer, Tap}, Op};
///
/// struct Count(u64);
/// impl Observer for Count {
///     fn request(&mut self, _at: Instant, _op: Op, _span: Span) {
///         self.0 += 1;
///     }
/// }
/// env::Runtime::simulated(1).block_on(async {
///     let tap = Tap::new(Memory::new("disk", Bytes::mib(1)));
///     let count = Rc::new(RefCell::new(Count(0)));
///     let attached = tap.attach(count.clone());
///     tap.read_at(Sector(0), Bytes(4096)).await.unwrap();
///     tap.detach(attached);
///     tap.read_at(Sector(0), Bytes(4096)).await.unwrap();
///     assert_eq!(count.borrow().0, 1);
/// });
/// ```
pub struct Tap {
    inner: Rc<dyn Device>,
    watched: Cell<bool>,
    observers: RefCell<Vec<Watcher>>,
    next: Cell<u64>,
}

impl Tap {
    /// A tap on `inner` without an observer yet.
    pub fn new(inner: Rc<dyn Device>) -> Rc<Tap> {
        Rc::new(Tap {
            inner,
            watched: Cell::new(false),
            observers: RefCell::new(Vec::new()),
            next: Cell::new(0),
        })
    }

    /// `observer` sees every request from now on. It must not attach or detach while it is called.
    pub fn attach(&self, observer: Rc<RefCell<dyn Observer>>) -> Attached {
        let attached = Attached(self.next.get());
        self.next.set(attached.0 + 1);
        self.observers.borrow_mut().push((attached, observer));
        self.watched.set(true);
        attached
    }

    /// The observer sees nothing more. One that is gone already is no trouble.
    pub fn detach(&self, attached: Attached) {
        let mut observers = self.observers.borrow_mut();
        observers.retain(|(one, _)| *one != attached);
        self.watched.set(!observers.is_empty());
    }

    #[inline]
    fn show(&self, op: Op, span: Span) {
        if self.watched.get() {
            self.show_all(op, span);
        }
    }

    #[cold]
    fn show_all(&self, op: Op, span: Span) {
        let now = env::now();
        for (_, observer) in &*self.observers.borrow() {
            observer.borrow_mut().request(now, op, span);
        }
    }
}

impl Device for Tap {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.show(Op::Read, Span::new(at, Bytes(buf.len() as u64)));
        self.inner.read(at, buf, class)
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.show(Op::Read, Span::new(at, Bytes(len)));
        self.inner.read_vectored(at, bufs, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.show(Op::Write, Span::new(at, Bytes(data.len() as u64)));
        self.inner.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.show(Op::Flush, Span::default());
        self.inner.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.show(Op::Discard, span);
        self.inner.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.show(Op::Write, span);
        self.inner.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
