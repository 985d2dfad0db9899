//! One queue of a disk: takes requests, carries them out on the device, and answers.
//!
//! ```text
//! kick, or seen by a thread that spins -> take -> in flight -> a task: chain -> copy in (writes) -> device -> copy out (reads) -> status
//!                                          -> used ring -> not in flight -> call
//! ```
//!
//! While the thread spins the guest is asked for no kicks, and the ring is looked at instead ([`Watches`]).
//!
//! Always true:
//! 1. A request is in the record of what is in flight before anything of it is carried out, and until it is answered.
//! 2. As many requests are under way as the ring has entries, at most, and of all queues [`UNDER_WAY_MAX`]; their data
//!    hold as much memory as the session allows.
//! 3. Once the client is gone nothing of its memory is touched; what was under way stays in the record.
//! 4. Before a queue waits, the guest is asked for kicks; after that the ring is looked at once more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::Buf;
use device::DeviceError;
use env::Watched;
use env::shared::Notifier;
use env::sync::{Event, Semaphore};

use super::block::{self, HEADER, ID, RANGE, RANGES_MAX, Range, Request, Status};
use super::inflight::Inflight;
use super::memory::{Place, copy_in, copy_out, len_of};
use super::ring::{Chain, Ring, RingError};
use super::watches::Watches;
use crate::counters::Counters;
use crate::pieces::Pieces;

/// Requests of all queues at once: each may hold a list of a thousand buffers.
const UNDER_WAY_MAX: u64 = 1024;
/// The longest read or write: nothing asks for so much, and an end of a session waits for it.
const REQUEST_MAX: u64 = 128 << 20;
/// Data of a request that are in memory at once.
const PIECE: u64 = 1 << 20;

/// What all queues of a session share.
pub(super) struct Disk {
    pub pieces: Pieces,
    pub read_only: bool,
    pub name: [u8; ID],
    /// A number that no other disk has.
    pub identity: u64,
    /// Must writes be durable when they are answered?
    pub write_through: Cell<bool>,
    /// Bytes that requests may hold.
    pub budget: Rc<Semaphore>,
    pub counters: Rc<Cell<Counters>>,
    /// A request of any queue ended.
    pub ended: Event,
    /// The client's memory is not ours any more.
    pub is_gone: Cell<bool>,
    /// The client took memory of its guest away.
    pub broke: Event,
    pub is_broken: Cell<bool>,
    /// What a thread that spins looks at.
    pub watches: Rc<Watches>,
}

impl Disk {
    fn is_full(&self) -> bool {
        self.counters.get().under_way >= UNDER_WAY_MAX
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Zeroes came for what the guest had written: nothing is answered any more, and the session ends.
    fn break_off(&self) {
        self.is_gone.set(true);
        if !self.is_broken.replace(true) {
            self.broke.notify_all();
        }
    }
}

/// A queue that is served, or may be.
pub(super) struct Queue {
    // Fixed.
    disk: Rc<Disk>,
    kick: Notifier,
    inflight: Inflight,
    // As it goes.
    pub ring: RefCell<Ring>,
    pub call: RefCell<Option<Rc<Notifier>>>,
    pub error: RefCell<Option<Notifier>>,
    /// Requests that the record had, not yet begun.
    again: RefCell<VecDeque<u16>>,
    busy: RefCell<Vec<bool>>,
    under_way: Cell<u16>,
    serving: RefCell<Option<env::CancelOnDrop<()>>>,
    /// Its task, while that waits for a kick.
    idle: RefCell<Option<Waker>>,
}

/// While it lives a queue waits for a kick.
struct Idle<'a>(&'a Queue);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.idle.take();
    }
}

impl Queue {
    /// A queue that goes on with `again`, in this order, and is not served yet.
    pub fn new(
        disk: Rc<Disk>,
        ring: Ring,
        kick: Notifier,
        inflight: Inflight,
        again: Vec<u16>,
    ) -> Rc<Queue> {
        let queue = Rc::new(Queue {
            disk,
            kick,
            inflight,
            busy: RefCell::new(vec![false; ring.size().into()]),
            ring: RefCell::new(ring),
            call: RefCell::default(),
            error: RefCell::default(),
            again: RefCell::new(again.into()),
            under_way: Cell::default(),
            serving: RefCell::default(),
            idle: RefCell::default(),
        });
        queue
            .disk
            .watches
            .add(&(Rc::clone(&queue) as Rc<dyn Watched>));
        queue
    }

    /// Begins to take requests.
    pub fn serve(self: &Rc<Self>) {
        if self.serving.borrow().is_some() {
            return;
        }
        let queue = Rc::clone(self);
        let serving = env::spawn(async move { queue.run().await });
        *self.serving.borrow_mut() = Some(env::cancel_scope(serving));
    }

    /// Takes no more.
    pub fn pause(&self) {
        let serving = self.serving.borrow_mut().take();
        drop(serving);
    }

    /// Waits until nothing is under way.
    pub async fn wait_quiet(&self) {
        while self.under_way.get() > 0 {
            self.disk.ended.wait().await;
        }
    }

    async fn run(self: Rc<Self>) {
        let broken = match self.take_all().await {
            Ok(broken) => broken,
            Err(error) => {
                tracing::debug!(%error, "a queue's kicks have ended");
                return;
            }
        };
        tracing::warn!(error = %broken, "a guest broke its queue, which is not served any more");
        if let Some(error) = &*self.error.borrow() {
            // The client may have gone meanwhile.
            let _ = error.notify();
        }
    }

    /// Takes requests until the ring is broken; an error of its kick.
    async fn take_all(self: &Rc<Self>) -> io::Result<RingError> {
        loop {
            // A pause while it waits leaves the others for later.
            self.wait_room().await;
            let Some(head) = self.again.borrow_mut().pop_front() else {
                break;
            };
            self.busy.borrow_mut()[usize::from(head)] = true;
            self.start(head);
        }
        let mut kick = pin!(self.kick.wait());
        loop {
            self.wait_room().await;
            let taken = self.ring.borrow().take();
            match taken {
                Err(error) => return Ok(error),
                Ok(Some(head)) => {
                    let before = self.busy.borrow_mut()[usize::from(head)];
                    if before {
                        return Ok(RingError::Again { head });
                    }
                    self.busy.borrow_mut()[usize::from(head)] = true;
                    self.inflight.begin(head);
                    self.start(head);
                }
                Ok(None) if self.ring.borrow().wants_kick() => {}
                Ok(None) => {
                    if self.wait(kick.as_mut()).await? {
                        kick.set(self.kick.wait());
                    }
                }
            }
        }
    }

    /// Waits for a kick, or until this thread has seen a request while it spins. Was it a kick?
    async fn wait(
        &self,
        mut kick: Pin<&mut impl Future<Output = io::Result<()>>>,
    ) -> io::Result<bool> {
        let _idle = Idle(self);
        let mut waits = false;
        std::future::poll_fn(|cx| {
            if waits && !self.is_idle() {
                return Poll::Ready(Ok(false));
            }
            waits = true;
            *self.idle.borrow_mut() = Some(cx.waker().clone());
            kick.as_mut().poll(cx).map_ok(|()| true)
        })
        .await
    }

    fn is_idle(&self) -> bool {
        self.idle.borrow().is_some()
    }

    /// Until one more request may be under way.
    async fn wait_room(&self) {
        let size = self.ring.borrow().size();
        while self.under_way.get() >= size || self.disk.is_full() {
            self.disk.ended.wait().await;
        }
    }

    fn start(self: &Rc<Self>, head: u16) {
        self.under_way.set(self.under_way.get() + 1);
        self.disk.count(|counters| counters.under_way += 1);
        let queue = Rc::clone(self);
        env::spawn(async move {
            let request = env::client_request();
            let chain = queue.ring.borrow().chain(head);
            match chain {
                _ if queue.is_broken() => queue.disk.break_off(),
                Ok(chain) => {
                    let written = queue.carry_out(chain).await;
                    queue.answer(head, written);
                }
                // It can be answered all the same: there is no byte of status to be found.
                Err(error) => {
                    tracing::warn!(%error, "a guest's request cannot be read");
                    queue.disk.count(|counters| counters.failed += 1);
                    queue.answer(head, 0);
                }
            }
            drop(request);
            queue.under_way.set(queue.under_way.get() - 1);
            queue.disk.count(|counters| counters.under_way -= 1);
            queue.disk.ended.notify_all();
        });
    }

    fn is_broken(&self) -> bool {
        self.ring.borrow().is_broken() || self.inflight.is_broken()
    }

    /// Hands the answer over; the guest finds `written` bytes in its buffers.
    fn answer(&self, head: u16, written: u32) {
        if self.is_broken() {
            self.disk.break_off();
        }
        if self.disk.is_gone.get() {
            return;
        }
        self.disk.count(|counters| counters.answered += 1);
        self.busy.borrow_mut()[usize::from(head)] = false;
        let ring = self.ring.borrow();
        self.inflight.before_used(head);
        ring.put_used(head, written);
        self.inflight.after_used(head, ring.used());
        if ring.wants_call()
            && let Some(call) = &*self.call.borrow()
            && let Err(error) = call.notify()
        {
            tracing::debug!(%error, "a guest could not be called");
        }
    }

    /// Carries a request out and writes its status; how many bytes of its buffers were written.
    async fn carry_out(&self, chain: Chain) -> u32 {
        let Some((room, status_at)) = split_status(chain.writable) else {
            tracing::warn!("a guest's request has no room for its status");
            self.disk.count(|counters| counters.failed += 1);
            return 0;
        };
        let outcome = self.request(chain.readable, &room).await;
        let (status, written) = match outcome {
            Ok(written) => (Status::Ok, written),
            Err(Failed::Status(status)) => (status, 0),
            Err(Failed::Device(error)) => {
                tracing::debug!(%error, "a request failed");
                (Status::Io, 0)
            }
        };
        if status != Status::Ok {
            self.disk.count(|counters| counters.failed += 1);
        }
        if !self.disk.is_gone.get() {
            status_at.write(0, &[status as u8]);
        }
        // The byte of status counts; more than a number can say is not told.
        u32::try_from(written + 1).unwrap_or(u32::MAX)
    }

    async fn request(&self, readable: Vec<Place>, room: &[Place]) -> Result<u64, Failed> {
        let (from, to) = (len_of(&readable), len_of(room));
        let mut header = [0; HEADER];
        let Some(data) = from.checked_sub(HEADER as u64) else {
            return Err(Failed::Status(Status::Io));
        };
        self.take(&readable, 0, &mut header)?;
        let size = self.disk.pieces.device().info().size;
        let request = block::decode(&header, data, to, size).map_err(Failed::Status)?;
        let changes = !matches!(
            request,
            Request::Read { .. } | Request::Flush | Request::Name
        );
        if self.disk.read_only && changes {
            return Err(Failed::Status(Status::Io));
        }
        let fua = self.disk.write_through.get();
        match request {
            Request::Read { len, .. } | Request::Write { len, .. } if len > REQUEST_MAX => {
                Err(Failed::Status(Status::Io))
            }
            Request::Read { at, len } => {
                let read = self.read(at, len, room).await?;
                self.disk.count(|counters| counters.read(len));
                Ok(read)
            }
            Request::Write { at, len } => {
                self.write(at, len, &readable, fua).await?;
                self.disk.count(|counters| counters.wrote(len, fua));
                Ok(0)
            }
            Request::Flush => {
                self.disk.pieces.device().flush().await?;
                self.disk.count(|counters| counters.flushes += 1);
                Ok(0)
            }
            Request::Name => {
                let len = to.min(ID as u64);
                copy_in(room, 0, &self.disk.name[..len as usize]);
                Ok(len)
            }
            Request::Discard | Request::WriteZeroes => {
                let mut bytes = [0; RANGE * RANGES_MAX];
                let bytes = &mut bytes[..data as usize];
                self.take(&readable, HEADER as u64, bytes)?;
                let zeroes = request == Request::WriteZeroes;
                let ranges = block::ranges(bytes, zeroes, size).map_err(Failed::Status)?;
                self.change(ranges, zeroes, fua).await
            }
        }
    }

    /// Zeroes ranges, or discards them.
    async fn change(&self, ranges: Vec<Range>, zeroes: bool, fua: bool) -> Result<u64, Failed> {
        for range in ranges {
            let (pieces, at, len) = (&self.disk.pieces, range.at, range.len);
            match zeroes {
                true => pieces.write_zeroes(at, len, fua, !range.unmap).await?,
                false => pieces.discard(at, len).await?,
            }
        }
        self.disk.count(|counters| match zeroes {
            true => counters.zeroed(fua),
            false => counters.discards += 1,
        });
        Ok(0)
    }

    async fn read(&self, at: u64, len: u64, room: &[Place]) -> Result<u64, Failed> {
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE);
            let _held = self.disk.budget.acquire(piece).await;
            let data = self.disk.pieces.read(at + done, piece).await?;
            if self.disk.is_gone.get() {
                break;
            }
            copy_in(room, done, &data);
            done += piece;
        }
        Ok(done)
    }

    async fn write(&self, at: u64, len: u64, from: &[Place], fua: bool) -> Result<u64, Failed> {
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE);
            let _held = self.disk.budget.acquire(piece).await;
            if self.disk.is_gone.get() {
                break;
            }
            let mut data = Buf::for_read(piece as usize);
            self.take(from, HEADER as u64 + done, &mut data)?;
            let written = self.disk.pieces.write(at + done, data.freeze(), fua);
            written.await?;
            done += piece;
        }
        Ok(0)
    }

    /// Copies what the guest wrote. What a client took away reads as zeroes, which are not to be used.
    fn take(&self, from: &[Place], at: u64, out: &mut [u8]) -> Result<(), Failed> {
        copy_out(from, at, out);
        if from.iter().any(Place::is_broken) {
            self.disk.break_off();
            return Err(Failed::Status(Status::Io));
        }
        Ok(())
    }
}

/// A queue where something was seen is left as it is: its task takes what there is, and asks for kicks before it waits.
impl Watched for Queue {
    fn spin_begins(&self) {
        if self.is_idle() {
            self.ring.borrow().ask_no_kick();
        }
    }

    fn look(&self) -> bool {
        let came = self.is_idle() && self.ring.borrow().has_more();
        if came && let Some(waker) = self.idle.take() {
            waker.wake();
        }
        came
    }

    fn spin_ends(&self) -> bool {
        if self.is_idle() {
            self.ring.borrow().ask_kick();
        }
        self.look()
    }
}

/// Why a request failed.
enum Failed {
    Device(DeviceError),
    Status(Status),
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Failed {
        Failed::Device(error)
    }
}

/// The last byte, which is the status's, apart from the others.
fn split_status(mut writable: Vec<Place>) -> Option<(Vec<Place>, Place)> {
    let last = writable.pop()?;
    let rest = last.len() - 1;
    let status = last.part(rest, 1);
    if rest > 0 {
        writable.push(last.part(0, rest));
    }
    Some((writable, status))
}
