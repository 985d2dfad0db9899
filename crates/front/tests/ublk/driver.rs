//! A ublk driver in virtual time, as strict as the kernel's.
//!
//! ```text
//! tag: Unset -fetch-> Active -request-> Owned -commit-> Active ...        the server dies: Unset, requests go back in line
//! ```
//!
//! A second fetch of a tag is `EBUSY`, a commit of one that the server does not own is `EINVAL`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::Bytes;
use env::sync::Event;
use front::ublk::Port;
use front::ublk::proto::{DESCRIPTOR, REQUEST_MAX};

/// What the block layer asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Read { at: u64, len: usize },
    Write { at: u64, data: Vec<u8>, fua: bool },
    Flush,
    Discard { at: u64, len: u64 },
    WriteZeroes { at: u64, len: u64 },
}

/// One request on its way.
struct Request {
    ask: Ask,
    /// What was read.
    data: RefCell<Vec<u8>>,
    result: Cell<Option<i32>>,
}

enum Tag {
    Unset,
    Active,
    Owned(Rc<Request>),
}

/// See the module's head.
#[derive(Default)]
pub struct Driver {
    tags: RefCell<Vec<Tag>>,
    line: RefCell<VecDeque<Rc<Request>>>,
    stopped: Cell<bool>,
    /// Counts servers: commands of a dead one do nothing.
    life: Cell<u64>,
    changed: Event,
    /// What the block layer takes the disk to be; beyond it nothing is asked. None: it does not look.
    capacity: Cell<Option<Bytes>>,
}

fn refused(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

impl Driver {
    pub fn new(depth: u16) -> Rc<Driver> {
        let driver = Driver::default();
        driver
            .tags
            .borrow_mut()
            .resize_with(depth.into(), || Tag::Unset);
        Rc::new(driver)
    }

    /// What the block layer does with one request: cut by the limits, in line, answered piece by piece.
    ///
    /// # Errors
    /// The first piece's `errno`.
    pub async fn submit(&self, ask: Ask) -> Result<Vec<u8>, i32> {
        if let (Some(end), Some(capacity)) = (end_of(&ask), self.capacity.get())
            && end > capacity.0
        {
            return Err(-5);
        }
        let mut data = Vec::new();
        for ask in cut(ask) {
            let request = Rc::new(Request {
                ask,
                data: RefCell::default(),
                result: Cell::default(),
            });
            self.line.borrow_mut().push_back(Rc::clone(&request));
            self.hand_out();
            let result = loop {
                match request.result.get() {
                    Some(result) => break result,
                    None => self.changed.wait().await,
                }
            };
            if result < 0 {
                return Err(result);
            }
            data.append(&mut request.data.borrow_mut());
        }
        Ok(data)
    }

    /// Gives requests in line to tags that wait.
    fn hand_out(&self) {
        let mut line = self.line.borrow_mut();
        for tag in self.tags.borrow_mut().iter_mut() {
            if matches!(tag, Tag::Active)
                && let Some(request) = line.pop_front()
            {
                *tag = Tag::Owned(request);
            }
        }
        self.changed.notify_all();
    }

    /// The block layer takes the disk to have `size` bytes from now on.
    pub fn update_size(&self, size: Bytes) {
        self.capacity.set(Some(size));
    }

    /// Every tag ends once it has nothing under way.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.changed.notify_all();
    }

    /// The server is dead: what it held is issued again, first.
    pub fn server_died(&self) {
        self.life.set(self.life.get() + 1);
        let mut line = self.line.borrow_mut();
        for tag in self.tags.borrow_mut().iter_mut().rev() {
            if let Tag::Owned(request) = std::mem::replace(tag, Tag::Unset) {
                line.push_front(request);
            }
        }
    }

    /// A port for the next server.
    pub fn port(self: &Rc<Driver>) -> Rc<DriverPort> {
        self.port_of(|| true)
    }

    /// The same for a server that does nothing more once it no longer `lives`.
    pub fn port_of(self: &Rc<Driver>, lives: impl Fn() -> bool + 'static) -> Rc<DriverPort> {
        Rc::new(DriverPort {
            driver: Rc::clone(self),
            life: self.life.get(),
            lives: Box::new(lives),
        })
    }

    async fn next(&self, life: u64, tag: u16) -> io::Result<()> {
        self.hand_out();
        loop {
            if life != self.life.get() {
                // A dead server hears nothing.
                std::future::pending::<()>().await;
            }
            match self.tags.borrow()[usize::from(tag)] {
                Tag::Owned(_) => return Ok(()),
                Tag::Active if self.stopped.get() => return Err(refused(ENODEV)),
                _ => {}
            }
            self.changed.wait().await;
        }
    }
}

/// Where a request ends, if it has a place.
fn end_of(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::Read { at, len } => Some(at + *len as u64),
        Ask::Write { at, data, .. } => Some(at + data.len() as u64),
        Ask::Flush => None,
        Ask::Discard { at, len } | Ask::WriteZeroes { at, len } => Some(at + len),
    }
}

fn cut(ask: Ask) -> Vec<Ask> {
    let most = REQUEST_MAX.usize();
    match ask {
        Ask::Read { at, len } => (0..len)
            .step_by(most)
            .map(|from| Ask::Read {
                at: at + from as u64,
                len: most.min(len - from),
            })
            .collect(),
        Ask::Write { at, data, fua } => data
            .chunks(most)
            .zip(0u64..)
            .map(|(piece, number)| Ask::Write {
                at: at + number * most as u64,
                data: piece.to_vec(),
                fua,
            })
            .collect(),
        other => vec![other],
    }
}

/// The driver as one server sees it.
pub struct DriverPort {
    driver: Rc<Driver>,
    life: u64,
    lives: Box<dyn Fn() -> bool>,
}

impl DriverPort {
    fn owned(&self, tag: u16) -> Option<Rc<Request>> {
        match &self.driver.tags.borrow()[usize::from(tag)] {
            Tag::Owned(request) if self.life == self.driver.life.get() => Some(Rc::clone(request)),
            _ => None,
        }
    }
}

impl Port for DriverPort {
    fn fetch(&self, tag: u16) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
        Box::pin(async move {
            {
                let mut tags = self.driver.tags.borrow_mut();
                match &tags[usize::from(tag)] {
                    Tag::Unset => tags[usize::from(tag)] = Tag::Active,
                    _ => return Err(refused(EBUSY)),
                }
            }
            self.driver.next(self.life, tag).await
        })
    }

    fn commit(&self, tag: u16, result: i32) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
        Box::pin(async move {
            if self.life != self.driver.life.get() || !(self.lives)() {
                std::future::pending::<()>().await;
            }
            let Some(request) = self.owned(tag) else {
                return Err(refused(EINVAL));
            };
            let expected = match &request.ask {
                Ask::Read { len, .. } => *len,
                Ask::Write { data, .. } => data.len(),
                _ => 0,
            };
            assert!(
                result < 0 || result as usize == expected,
                "all of it, or an error"
            );
            request.result.set(Some(result));
            self.driver.tags.borrow_mut()[usize::from(tag)] = Tag::Active;
            self.driver.next(self.life, tag).await
        })
    }

    fn descriptor(&self, tag: u16) -> [u8; DESCRIPTOR] {
        let request = self.owned(tag).expect("a request has come");
        let (operation, at, len) = match &request.ask {
            Ask::Read { at, len } => (0, *at, *len as u64),
            Ask::Write { at, data, fua } => (1 | u32::from(*fua) << 13, *at, data.len() as u64),
            Ask::Flush => (2, 0, 0),
            Ask::Discard { at, len } => (3, *at, *len),
            Ask::WriteZeroes { at, len } => (5, *at, *len),
        };
        let mut bytes = [0; DESCRIPTOR];
        bytes[..4].copy_from_slice(&operation.to_le_bytes());
        bytes[4..8].copy_from_slice(&((len / 512) as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&(at / 512).to_le_bytes());
        bytes
    }

    fn copy_in(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        let request = self.owned(tag).ok_or_else(|| refused(EINVAL))?;
        let Ask::Write { data: from, .. } = &request.ask else {
            return Err(refused(EINVAL));
        };
        data.copy_from_slice(from);
        Ok(())
    }

    fn copy_out(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        let request = self.owned(tag).ok_or_else(|| refused(EINVAL))?;
        request.data.replace(data.to_vec());
        Ok(())
    }
}

/// How big the tests' disks are.
pub const SIZE: Bytes = Bytes::mib(8);
