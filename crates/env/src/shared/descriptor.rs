//! A descriptor that came from another process, or goes there.

use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

use super::memory::SharedMemory;
use super::notifier::Notifier;
use crate::sync::Event;

/// Asked before each write of a simulated process to what it shares: where, and what. False: the process is dead, and
/// nothing is written.
pub(super) type Writes = Rc<dyn Fn(usize, &[u8]) -> bool>;

/// Bytes of a simulated memory.
pub(super) type Heap = Rc<UnsafeCell<Box<[u8]>>>;

/// A simulated eventfd.
#[derive(Default)]
pub(super) struct Count {
    pub count: Cell<u64>,
    pub changed: Event,
}

/// See the module's head. Cloning it opens nothing anew.
///
/// # Example
/// ```
/// use env::shared::Descriptor;
/// env::Runtime::simulated(1).block_on(async {
///     let descriptor = Descriptor::memory(4096)?;
///     let (ours, theirs) = (descriptor.map(0, 4096)?, descriptor.map(0, 4096)?);
///     ours.write(100, b"hello");
///     let mut seen = [0; 5];
///     theirs.read(100, &mut seen);
///     assert_eq!(&seen, b"hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Descriptor(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    Real(Rc<OwnedFd>),
    Simulated(Simulated),
}

#[derive(Clone)]
pub(super) struct Simulated {
    pub object: Object,
    pub writes: Option<Writes>,
}

#[derive(Clone)]
pub(super) enum Object {
    Memory(Heap),
    Event(Rc<Count>),
    /// Another part's, which knows its type.
    Other(Rc<RefCell<Option<Box<dyn Any>>>>),
}

impl From<OwnedFd> for Descriptor {
    fn from(descriptor: OwnedFd) -> Descriptor {
        Descriptor(Kind::Real(Rc::new(descriptor)))
    }
}

/// It is not what it should be.
pub(super) fn unfit(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Descriptor {
    fn simulated(object: Object) -> Descriptor {
        Descriptor(Kind::Simulated(Simulated {
            object,
            writes: None,
        }))
    }

    /// Memory of `len` bytes, zeroes, that no process can cut short.
    ///
    /// # Errors
    /// The system's.
    pub fn memory(len: usize) -> io::Result<Descriptor> {
        if is_simulated() {
            let bytes = vec![0; len].into_boxed_slice();
            return Ok(Descriptor::simulated(Object::Memory(Rc::new(
                UnsafeCell::new(bytes),
            ))));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("tanada", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    }

    /// An eventfd, for [`Descriptor::notifier`].
    ///
    /// # Errors
    /// The system's.
    pub fn event() -> io::Result<Descriptor> {
        if is_simulated() {
            return Ok(Descriptor::simulated(Object::Event(Rc::default())));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(rustix::event::eventfd(0, flags)?.into())
    }

    /// Maps `len` bytes from byte `at` on of the memory or file that it is.
    ///
    /// # Errors
    /// `InvalidInput` if it is no memory or has fewer bytes; else the system's.
    pub fn map(&self, at: u64, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::of(self, at, len)
    }

    /// The notifier that it is.
    ///
    /// # Errors
    /// `InvalidInput` if it is neither an eventfd nor an end of a pipe, on which this thread could have to wait.
    pub fn notifier(&self) -> io::Result<Notifier> {
        Notifier::of(self)
    }

    /// Something of a simulation that travels as a descriptor.
    pub(crate) fn of_simulation(object: Box<dyn Any>) -> Descriptor {
        Descriptor::simulated(Object::Other(Rc::new(RefCell::new(Some(object)))))
    }

    /// That something, once; none if it is of another type, or was taken.
    pub(crate) fn take_of_simulation<T: 'static>(&self) -> Option<T> {
        match &self.0 {
            Kind::Simulated(Simulated {
                object: Object::Other(object),
                ..
            }) => {
                let object = object.borrow_mut().take()?;
                object.downcast().ok().map(|object| *object)
            }
            _ => None,
        }
    }

    /// The system's descriptor, if it is one.
    pub(crate) fn as_real(&self) -> Option<&Rc<OwnedFd>> {
        match &self.0 {
            Kind::Real(descriptor) => Some(descriptor),
            Kind::Simulated(_) => None,
        }
    }

    /// The same, as another simulated process has it: before each change of what it maps, and each notification (8 bytes
    /// at 0), `writes` is asked. A process whose `writes` answers false is dead: nothing happens.
    ///
    /// # Panics
    /// If it is the system's.
    pub fn of_process(&self, writes: impl Fn(usize, &[u8]) -> bool + 'static) -> Descriptor {
        let Kind::Simulated(simulated) = &self.0 else {
            panic!("only simulated processes share it so");
        };
        Descriptor(Kind::Simulated(Simulated {
            object: simulated.object.clone(),
            writes: Some(Rc::new(writes)),
        }))
    }

    /// Two numbers that no other open file has: is this the memory that was seen before?
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        Ok(match &self.0 {
            Kind::Real(descriptor) => {
                let status = rustix::fs::fstat(descriptor)?;
                (status.st_dev, status.st_ino)
            }
            Kind::Simulated(simulated) => {
                let at = match &simulated.object {
                    Object::Memory(bytes) => Rc::as_ptr(bytes).addr(),
                    Object::Event(count) => Rc::as_ptr(count).addr(),
                    Object::Other(object) => Rc::as_ptr(object).addr(),
                };
                (0, at as u64)
            }
        })
    }
}

impl std::fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Real(descriptor) => descriptor.fmt(f),
            Kind::Simulated(_) => f.write_str("Descriptor(simulated)"),
        }
    }
}

fn is_simulated() -> bool {
    crate::executor::try_current(|core| core.is_simulated()) == Some(true)
}
