//! Messages on a stream: bytes received and not used yet, bytes gathered to be sent, and how long a peer may take.
//!
//! ```text
//! Channel --> Inbox: one receive buffer, or straight into a Buf of the caller's
//!         <-- Pieces: heads written one after another, data by reference <-- Outbox: what waits for the writer
//! ```
//!
//! Always true:
//! 1. Data are copied at most once on their way in (what came along in the receive buffer); on their way out only
//!    where they are short.
//! 2. A receive buffer has one fixed length.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Bytes, Instant, Nanos, View};

use super::Stream;

/// Data shorter than this are copied behind their header: cheaper than a piece of their own.
const COPIED_BELOW: usize = 1024;

fn ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the peer hung up in the middle of a message",
    )
}

// --- timeouts -----------------------------------------------------------------------------------------

/// When a peer in the middle of something must be done with it. The owner looks at [`TransferTimeout::overdue`] now and
/// then, so no timer is set per request.
///
/// A long transfer has to go on all the time: at each moment as many bytes must have come as the slowest pace allows,
/// `stall` later. A peer that stands still is overdue after `stall` and the time of one [`STEP`], however much is asked.
pub struct TransferTimeout {
    stall: Nanos,
    /// Slowest pace at which a long transfer may go on.
    rate_min_bytes_per_second: u64,
    transfer: Cell<Option<Transfer>>,
}

/// Something under way.
#[derive(Clone, Copy)]
struct Transfer {
    since: Instant,
    len: usize,
    moved: usize,
}

/// Long transfers are made, and their progress looked at, in pieces of at most this many bytes.
pub const STEP: usize = 1 << 20;

impl TransferTimeout {
    /// With a peer that may stall so long, and is no slower than that in a long transfer.
    pub fn new(stall: Nanos, rate_min_bytes_per_second: u64) -> TransferTimeout {
        TransferTimeout {
            stall,
            rate_min_bytes_per_second,
            transfer: Cell::new(None),
        }
    }

    /// A transfer of `len` bytes is under way from now on; one that was already keeps its deadline.
    pub fn begin(&self, len: usize) {
        if self.transfer.get().is_none() {
            self.transfer.set(Some(Transfer {
                since: crate::now(),
                len,
                moved: 0,
            }));
        }
    }

    /// So many more bytes of it have passed.
    pub fn moved(&self, bytes: usize) {
        if let Some(transfer) = self.transfer.get() {
            self.transfer.set(Some(Transfer {
                moved: transfer.moved.saturating_add(bytes),
                ..transfer
            }));
        }
    }

    /// It has ended.
    pub fn end(&self) {
        self.transfer.set(None);
    }

    /// Has a transfer taken too long, as far as it is?
    pub fn overdue(&self, now: Instant) -> bool {
        self.transfer.get().is_some_and(|transfer| {
            let due = transfer.len.min(transfer.moved.saturating_add(STEP));
            let seconds = due as f64 / self.rate_min_bytes_per_second.max(1) as f64;
            now > transfer.since + self.stall + Nanos::from_secs_f64(seconds)
        })
    }
}

/// `pieces` in runs of at most [`STEP`] bytes each, in order.
pub fn in_steps(pieces: Vec<View>) -> impl Iterator<Item = Vec<View>> {
    let mut waiting = VecDeque::from(pieces);
    std::iter::from_fn(move || {
        let mut run = Vec::new();
        let mut room = STEP;
        while let Some(piece) = waiting.pop_front() {
            if piece.len() > room {
                if room > 0 {
                    run.push(piece.slice(0, room));
                }
                waiting.push_front(piece.slice(room, piece.len() - room));
                break;
            }
            room -= piece.len();
            run.push(piece);
        }
        (!run.is_empty()).then_some(run)
    })
}

// --- receiving --------------------------------------------------------------------------------------

/// What bytes come from: a [`Stream`], or something of the caller's around one.
pub trait Channel {
    /// Reads what is there: at least one byte, at most the buffer; 0 at the end.
    fn read(&self, buf: Buf) -> impl Future<Output = io::Result<(usize, Buf)>>;

    /// Fills the whole buffer; `UnexpectedEof` if the channel ends first.
    fn read_exact(&self, mut buf: Buf) -> impl Future<Output = io::Result<Buf>> {
        async move {
            let mut filled = 0;
            while filled < buf.len() {
                let room = buf.split_off(filled);
                let (len, room) = self.read(room).await?;
                if len == 0 {
                    return Err(ended());
                }
                buf.join(room);
                filled += len;
            }
            Ok(buf)
        }
    }
}

impl Channel for Stream {
    fn read(&self, buf: Buf) -> impl Future<Output = io::Result<(usize, Buf)>> {
        Stream::read(self, buf)
    }

    fn read_exact(&self, buf: Buf) -> impl Future<Output = io::Result<Buf>> {
        Stream::read_exact(self, buf)
    }
}

/// Bytes received and not used yet.
pub struct Inbox<C> {
    channel: Rc<C>,
    timeout: Rc<TransferTimeout>,
    /// A rest longer than this is received straight into its own buffer; with less room than this at its end, the
    /// receive buffer's contents move to its start.
    direct_from: usize,
    /// `None` only while a receive has it.
    buf: Option<Buf>,
    first: usize,
    end: usize,
}

impl<C: Channel> Inbox<C> {
    /// With a receive buffer of `capacity`; rests longer than `direct_from` (at most half of it) go past the buffer.
    pub fn new(
        channel: Rc<C>,
        capacity: Bytes,
        direct_from: Bytes,
        timeout: Rc<TransferTimeout>,
    ) -> Inbox<C> {
        Inbox {
            channel,
            timeout,
            direct_from: direct_from.usize().min(capacity.usize() / 2),
            buf: Some(Buf::for_read(capacity.usize())),
            first: 0,
            end: 0,
        }
    }

    /// What is here.
    #[inline]
    pub fn here(&self) -> &[u8] {
        match &self.buf {
            Some(buf) => &buf[self.first..self.end],
            None => &[],
        }
    }

    /// The next `N` bytes if they are here; they stay.
    #[inline]
    pub fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        self.here().first_chunk().copied()
    }

    /// Drops `len` bytes that are here.
    #[inline]
    pub fn skip(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.first);
        self.first += len;
        if self.first == self.end {
            self.first = 0;
            self.end = 0;
        }
    }

    /// Receives once; false at the end of the stream.
    ///
    /// # Errors
    /// Those of the channel.
    ///
    /// # Panics
    /// If the buffer is full.
    pub async fn receive(&mut self) -> io::Result<bool> {
        let mut buf = self.buf.take().ok_or_else(ended)?;
        if buf.len() - self.end < self.direct_from {
            buf.copy_within(self.first..self.end, 0);
            self.end -= self.first;
            self.first = 0;
        }
        if self.first < self.end {
            self.timeout.begin(0);
        }
        let room = buf.split_off(self.end);
        assert!(!room.is_empty(), "asked to receive with the buffer full");
        let (len, room) = self.channel.read(room).await?;
        buf.join(room);
        self.end += len;
        self.buf = Some(buf);
        Ok(len > 0)
    }

    /// Receives until `len` bytes are here (at most half the capacity).
    ///
    /// # Errors
    /// Those of the channel; `UnexpectedEof` if it ends first.
    pub async fn need(&mut self, len: usize) -> io::Result<()> {
        debug_assert!(self.buf.is_none() || len <= self.capacity() / 2);
        while self.here().len() < len {
            if !self.receive().await? {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// The next `N` bytes, taken.
    ///
    /// # Errors
    /// As for [`Inbox::need`].
    pub async fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.need(N).await?;
        let bytes = self.peek().ok_or_else(ended)?;
        self.skip(N);
        Ok(bytes)
    }

    /// The next bytes, as many as `target` holds.
    ///
    /// # Errors
    /// As for [`Inbox::need`].
    pub async fn fill(&mut self, mut target: Buf) -> io::Result<Buf> {
        let len = target.len();
        let rest = len.saturating_sub(self.here().len());
        if rest > 0 {
            self.timeout.begin(len);
        }
        if rest > 0 && rest <= self.direct_from && len <= self.capacity() / 2 {
            // A short rest: receive it with what follows, in one go.
            self.need(len).await?;
        }
        let mut filled = len.min(self.here().len());
        target[..filled].copy_from_slice(&self.here()[..filled]);
        self.skip(filled);
        self.timeout.moved(filled);
        while filled < len {
            let step = STEP.min(len - filled);
            let mut room = target.split_off(filled);
            let later = (room.len() > step).then(|| room.split_off(step));
            target.join(self.channel.read_exact(room).await?);
            if let Some(later) = later {
                target.join(later);
            }
            filled += step;
            self.timeout.moved(step);
        }
        Ok(target)
    }

    /// Drops the next `len` bytes, received or still to come.
    ///
    /// # Errors
    /// As for [`Inbox::need`].
    pub async fn drain(&mut self, mut len: u64) -> io::Result<()> {
        if len > self.here().len() as u64 {
            self.timeout
                .begin(usize::try_from(len).unwrap_or(usize::MAX));
        }
        while len > 0 {
            if self.here().is_empty() && !self.receive().await? {
                return Err(ended());
            }
            let now = len.min(self.here().len() as u64);
            self.skip(now as usize);
            self.timeout.moved(now as usize);
            len -= now;
        }
        Ok(())
    }

    /// The same bytes in a larger buffer.
    #[must_use]
    pub fn grown(self, capacity: Bytes, direct_from: Bytes) -> Inbox<C> {
        let (channel, timeout) = (Rc::clone(&self.channel), Rc::clone(&self.timeout));
        let mut larger = Inbox::new(channel, capacity, direct_from, timeout);
        let here = self.here();
        if let Some(buf) = &mut larger.buf {
            buf[..here.len()].copy_from_slice(here);
            larger.end = here.len();
        }
        larger
    }

    fn capacity(&self) -> usize {
        self.buf.as_ref().map_or(0, |buf| buf.len())
    }
}

// --- sending ----------------------------------------------------------------------------------------

/// Bytes to send, as few pieces: small ones are written one after another into shared buffers, large ones go along by
/// reference.
#[derive(Default)]
pub struct Pieces {
    done: Vec<View>,
    open: Option<Buf>,
    used: usize,
    bytes: usize,
}

impl Pieces {
    /// Bytes gathered since the last [`Pieces::take`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a copy of `bytes`.
    pub fn put(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            let open = self.open.get_or_insert_with(|| Buf::for_read(16 << 10));
            let len = bytes.len().min(open.len() - self.used);
            open[self.used..self.used + len].copy_from_slice(&bytes[..len]);
            self.used += len;
            bytes = &bytes[len..];
            if self.used == open.len() {
                self.close();
            }
        }
    }

    /// Appends `data`: by reference, or a copy where they are short.
    pub fn put_view(&mut self, data: View) {
        if data.len() < COPIED_BELOW {
            return self.put(&data);
        }
        self.bytes += data.len();
        self.close();
        self.done.push(data);
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        if self.used == 0 {
            self.open = Some(open);
            return;
        }
        let rest = open.split_off(self.used);
        self.used = 0;
        self.done.push(open.freeze());
        if !rest.is_empty() {
            self.open = Some(rest);
        }
    }

    /// All pieces in order; the room left in the last buffer is kept for the next round.
    pub fn take(&mut self) -> Vec<View> {
        self.close();
        self.bytes = 0;
        std::mem::take(&mut self.done)
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What waits for a connection's one writer.
pub struct Outbox<T>(RefCell<Waiting<T>>);

struct Waiting<T> {
    replies: VecDeque<T>,
    writer: Option<Waker>,
    closed: bool,
}

impl<T> Default for Outbox<T> {
    fn default() -> Outbox<T> {
        Outbox(RefCell::new(Waiting {
            replies: VecDeque::new(),
            writer: None,
            closed: false,
        }))
    }
}

impl<T> Outbox<T> {
    /// One more.
    pub fn push(&self, reply: T) {
        self.change(|waiting| waiting.replies.push_back(reply));
    }

    /// No more will come.
    pub fn close(&self) {
        self.change(|waiting| waiting.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Waiting<T>)) {
        let mut waiting = self.0.borrow_mut();
        change(&mut waiting);
        let writer = waiting.writer.take();
        drop(waiting);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The next one, if it is here.
    pub fn pop(&self) -> Option<T> {
        self.0.borrow_mut().replies.pop_front()
    }

    /// Drops all that are here.
    pub fn clear(&self) {
        let unsent = std::mem::take(&mut self.0.borrow_mut().replies);
        // What they hold may look at this outbox while it goes.
        drop(unsent);
    }

    /// Waits for some: true if there are, false once no more will come.
    pub fn wait(&self) -> impl Future<Output = bool> + '_ {
        poll_fn(|cx| {
            let mut waiting = self.0.borrow_mut();
            if !waiting.replies.is_empty() {
                return Poll::Ready(true);
            }
            if waiting.closed {
                return Poll::Ready(false);
            }
            waiting.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Waits for whichever comes first; the other is dropped.
pub async fn either<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending => second.as_mut().poll(cx),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_share_a_piece_and_data_go_by_reference() {
        let mut pieces = Pieces::default();
        pieces.put(b"ab");
        pieces.put_view(View::copy_of(b"cd"));
        let data = View::copy_of(&[7; COPIED_BELOW]);
        let address = data.address();
        pieces.put_view(data);
        pieces.put(b"ef");
        assert_eq!(pieces.bytes(), 6 + COPIED_BELOW);
        let taken = pieces.take();
        let lengths: Vec<usize> = taken.iter().map(|piece| piece.len()).collect();
        assert_eq!(lengths, [4, COPIED_BELOW, 2]);
        assert_eq!((&taken[0][..], &taken[2][..]), (&b"abcd"[..], &b"ef"[..]));
        assert_eq!(taken[1].address(), address);
        assert!(pieces.take().is_empty());
    }

    /// A channel that gives its bytes in portions of so many.
    struct Portions {
        bytes: RefCell<VecDeque<u8>>,
        at_most: usize,
    }

    impl Channel for Portions {
        async fn read(&self, mut buf: Buf) -> io::Result<(usize, Buf)> {
            let mut bytes = self.bytes.borrow_mut();
            let len = self.at_most.min(buf.len()).min(bytes.len());
            for (to, from) in buf.iter_mut().zip(bytes.drain(..len)) {
                *to = from;
            }
            Ok((len, buf))
        }
    }

    #[test]
    fn what_is_received_comes_out_in_order_however_it_is_asked_for() {
        crate::Runtime::simulated(1).block_on(async {
            for at_most in [1, 7, 1000, 100_000] {
                let all: Vec<u8> = (0..60_000_u32).map(|n| (n % 251) as u8).collect();
                let channel = Rc::new(Portions {
                    bytes: RefCell::new(all.iter().copied().collect()),
                    at_most,
                });
                let timeout = Rc::new(TransferTimeout::new(Nanos::secs(1), 1));
                let (small, direct) = (Bytes::kib(4), Bytes::kib(1));
                let mut inbox = Inbox::new(channel, small, direct, timeout);
                assert_eq!(inbox.take::<3>().await.unwrap(), all[..3]);
                let short = inbox.fill(Buf::for_read(500)).await.unwrap();
                assert_eq!(short[..], all[3..503]);
                let long = inbox.fill(Buf::for_read(20_000)).await.unwrap();
                assert_eq!(long[..], all[503..20_503]);
                inbox.drain(10_000).await.unwrap();
                inbox.need(8).await.unwrap();
                let mut inbox = inbox.grown(Bytes::kib(16), direct);
                assert_eq!(inbox.peek::<8>().unwrap(), all[30_503..30_511]);
                let rest = inbox.fill(Buf::for_read(29_497)).await.unwrap();
                assert_eq!(rest[..], all[30_503..]);
                assert!(!inbox.receive().await.unwrap());
                let error = inbox.take::<1>().await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            }
        });
    }

    #[test]
    fn an_outbox_wakes_its_writer_and_ends() {
        crate::Runtime::simulated(1).block_on(async {
            let outbox: Rc<Outbox<u32>> = Rc::default();
            let writer = {
                let outbox = Rc::clone(&outbox);
                crate::spawn(async move {
                    let mut seen = Vec::new();
                    while outbox.wait().await {
                        seen.extend(outbox.pop());
                    }
                    seen
                })
            };
            crate::yield_now().await;
            outbox.push(1);
            crate::yield_now().await;
            outbox.push(2);
            outbox.push(3);
            outbox.close();
            assert_eq!(writer.await, [1, 2, 3]);
        });
    }
}
