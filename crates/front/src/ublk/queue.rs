//! One queue of a ublk disk: a task for each tag, which takes a request, carries it out and answers.
//!
//! ```text
//! fetch -> descriptor -> copy in (writes) -> device -> copy out (reads) -> commit and fetch -> ...
//! ```
//!
//! Always true:
//! 1. A tag has one command at the driver, or one request here, never both.
//! 2. A request is committed once, after the device has answered it.
//! 3. The tasks end by the driver's word (the disk was stopped): a command given up earlier tells the driver that its
//!    server dies.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Bytes};
use device::{Device, DeviceError};
use env::sync::{Event, join_all};

use super::proto::{self, DESCRIPTOR, Request, errno};
use crate::counters::Counters;
use crate::pieces::Pieces;

/// A driver as a queue sees it.
pub trait Port {
    /// Ends when the first request of `tag` has come; an error ends the tag.
    fn fetch(&self, tag: u16) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>>;

    /// Answers the request of `tag`; ends when the next one has come.
    fn commit(&self, tag: u16, result: i32) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>>;

    /// The descriptor of the request that has come.
    fn descriptor(&self, tag: u16) -> [u8; DESCRIPTOR];

    /// Fills `data` with what the request of `tag` writes.
    ///
    /// # Errors
    /// The driver's.
    fn copy_in(&self, tag: u16, data: &mut [u8]) -> io::Result<()>;

    /// Hands over what the request of `tag` reads.
    ///
    /// # Errors
    /// The driver's.
    fn copy_out(&self, tag: u16, data: &[u8]) -> io::Result<()>;
}

fn add(counters: &mut Counters, request: &Request) {
    match *request {
        Request::Read { len, .. } => counters.read(len.into()),
        Request::Write { len, fua, .. } => counters.wrote(len.into(), fua),
        Request::Flush => counters.flushes += 1,
        Request::Discard { .. } => counters.discards += 1,
        Request::WriteZeroes { fua, .. } => counters.zeroed(fua),
    }
}

/// A disk that is served; see the module's head.
pub struct Server {
    port: Rc<dyn Port>,
    pieces: Pieces,
    /// Requests go so far.
    size: Cell<Bytes>,
    read_only: bool,
    counters: Cell<Counters>,
    /// Requests that come are neither carried out nor answered.
    halted: Cell<bool>,
    /// A request was answered.
    quiet: Event,
    /// The driver ended a tag.
    ended: Cell<bool>,
}

impl Server {
    /// Serves `device` at `port`.
    pub fn new(port: Rc<dyn Port>, device: Rc<dyn Device>, read_only: bool) -> Rc<Server> {
        let info = device.info();
        Rc::new(Server {
            port,
            size: Cell::new(info.size),
            read_only: read_only || info.read_only,
            pieces: Pieces::new(device),
            counters: Cell::default(),
            halted: Cell::default(),
            quiet: Event::default(),
            ended: Cell::default(),
        })
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Takes requests as far as the device goes, if it has grown: how large it is now. A smaller one answers by itself.
    pub fn grow(&self) -> Bytes {
        let size = self.size.get().max(self.pieces.device().info().size);
        self.size.set(size);
        size
    }

    /// Is no tag ended yet? Once one is, the disk was stopped, by this process or another.
    pub fn serves(&self) -> bool {
        !self.ended.get()
    }

    /// Serves `depth` tags until the driver ends them.
    pub async fn serve(self: Rc<Server>, depth: u16) {
        let tags = (0..depth).map(|tag| {
            let server = Rc::clone(&self);
            env::spawn(async move { server.serve_tag(tag).await })
        });
        join_all(tags.collect::<Vec<_>>()).await;
    }

    /// From now on requests that come wait for the next server, which the driver gives them to.
    pub fn halt(&self) {
        self.halted.set(true);
    }

    /// Waits until no request is under way.
    pub async fn wait_quiet(&self) {
        while self.counters().under_way > 0 {
            self.quiet.wait().await;
        }
    }

    async fn serve_tag(&self, tag: u16) {
        let mut come = self.port.fetch(tag).await;
        while come.is_ok() {
            if self.halted.get() {
                std::future::pending::<()>().await;
            }
            self.count(|counters| counters.under_way += 1);
            let request = env::client_request();
            let result = self.carry_out(tag).await;
            drop(request);
            self.count(|counters| {
                counters.answered += 1;
                counters.failed += u64::from(result < 0);
                counters.under_way -= 1;
            });
            self.quiet.notify_all();
            come = self.port.commit(tag, result).await;
        }
        if let Err(error) = come {
            self.ended.set(true);
            tracing::debug!(tag, %error, "the driver ended a tag");
        }
    }

    /// Carries out the request of `tag`; what to answer: bytes, 0 or a negative `errno`.
    async fn carry_out(&self, tag: u16) -> i32 {
        let descriptor = self.port.descriptor(tag);
        match Request::decode(&descriptor, self.size.get()) {
            Err(errno) => errno,
            Ok(request) => match self.request(tag, request).await {
                Ok(result) => {
                    if result >= 0 {
                        self.count(|counters| add(counters, &request));
                    }
                    result
                }
                Err(failed) => {
                    if let Failed::Port(error) = &failed {
                        tracing::warn!(tag, %error, "data of a request could not be copied");
                    }
                    failed.errno()
                }
            },
        }
    }

    async fn request(&self, tag: u16, request: Request) -> Result<i32, Failed> {
        let changes = !matches!(request, Request::Read { .. } | Request::Flush);
        if self.read_only && changes {
            return Ok(errno::READ_ONLY);
        }
        match request {
            Request::Read { at, len } => {
                let data = self.pieces.read(at, u64::from(len)).await?;
                self.port.copy_out(tag, &data).map_err(Failed::Port)?;
                Ok(len as i32)
            }
            Request::Write { at, len, fua } => {
                let mut data = Buf::for_read(len as usize);
                self.port.copy_in(tag, &mut data).map_err(Failed::Port)?;
                self.pieces.write(at, data.freeze(), fua).await?;
                Ok(len as i32)
            }
            Request::Flush => Ok(self.pieces.device().flush().await.map(|()| 0)?),
            Request::Discard { at, len } => Ok(self.pieces.discard(at, len).await.map(|()| 0)?),
            Request::WriteZeroes {
                at,
                len,
                fua,
                no_unmap,
            } => {
                let zeroed = self.pieces.write_zeroes(at, len, fua, no_unmap).await;
                Ok(zeroed.map(|()| 0)?)
            }
        }
    }
}

/// Why a request failed.
enum Failed {
    Device(DeviceError),
    Port(io::Error),
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Failed {
        Failed::Device(error)
    }
}

impl Failed {
    fn errno(&self) -> i32 {
        match self {
            Failed::Device(error) => proto::errno_of(error),
            Failed::Port(error) => error.raw_os_error().map_or(errno::IO, |errno| -errno),
        }
    }
}
