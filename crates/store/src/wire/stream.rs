//! Bytes received and not used yet, bytes gathered to be sent, and how long a peer may take.
//!
//! Always true:
//! 1. Data are copied at most once on their way in (what came along with a header), and not at all on their way out.
//! 2. The receive buffer has one fixed length.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use base::{Buf, Instant, Nanos, View};
use env::net::Stream;

/// Length of the receive buffer: of a megabyte that follows a header at most 6 % come along and are copied.
pub(crate) const RECEIVE_BUFFER: usize = 64 << 10;
/// A rest shorter than this is received with what follows it, in one go.
const DIRECT_FROM: usize = 16 << 10;
/// Data shorter than this are copied behind their header: cheaper than a piece of their own.
const COPIED_BELOW: usize = 1024;

/// When a peer in the middle of something must be done with it. The owner looks at `overdue` now and then, so no
/// timer is set per request.
pub(crate) struct Patience {
    stall: Nanos,
    /// Slowest pace at which a long transfer may go on.
    rate_min_bytes_per_second: u64,
    deadline: Cell<Option<Instant>>,
}

impl Patience {
    pub fn new(stall: Nanos, rate_min_bytes_per_second: u64) -> Patience {
        Patience {
            stall,
            rate_min_bytes_per_second,
            deadline: Cell::new(None),
        }
    }

    /// A transfer of `len` bytes is under way from now on; one that was already keeps its deadline.
    pub fn begin(&self, len: usize) {
        if self.deadline.get().is_none() {
            let seconds = len as f64 / self.rate_min_bytes_per_second.max(1) as f64;
            let deadline = env::now() + self.stall + Nanos::from_secs_f64(seconds);
            self.deadline.set(Some(deadline));
        }
    }

    /// It has ended.
    pub fn end(&self) {
        self.deadline.set(None);
    }

    pub fn overdue(&self, now: Instant) -> bool {
        self.deadline.get().is_some_and(|deadline| now > deadline)
    }
}

// --- receiving --------------------------------------------------------------------------------------

/// Bytes received and not used yet.
pub(crate) struct Inbox {
    stream: Rc<Stream>,
    patience: Rc<Patience>,
    /// `None` only while a receive has it.
    buf: Option<Buf>,
    first: usize,
    end: usize,
}

fn ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the peer hung up in the middle of a message",
    )
}

impl Inbox {
    pub fn new(stream: Rc<Stream>, patience: Rc<Patience>) -> Inbox {
        Inbox {
            stream,
            patience,
            buf: Some(Buf::for_read(RECEIVE_BUFFER)),
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
    pub async fn receive(&mut self) -> io::Result<bool> {
        let mut buf = self.buf.take().ok_or_else(ended)?;
        if buf.len() - self.end < DIRECT_FROM {
            buf.copy_within(self.first..self.end, 0);
            self.end -= self.first;
            self.first = 0;
        }
        if self.first < self.end {
            self.patience.begin(0);
        }
        let room = buf.split_off(self.end);
        assert!(!room.is_empty(), "asked to receive with the buffer full");
        let (len, room) = self.stream.read(room).await?;
        buf.join(room);
        self.end += len;
        self.buf = Some(buf);
        Ok(len > 0)
    }

    /// Receives until `len` bytes are here (at most half the buffer).
    pub async fn need(&mut self, len: usize) -> io::Result<()> {
        debug_assert!(len <= RECEIVE_BUFFER / 2);
        while self.here().len() < len {
            if !self.receive().await? {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// The next `N` bytes, taken.
    pub async fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.need(N).await?;
        let bytes = self.peek().ok_or_else(ended)?;
        self.skip(N);
        Ok(bytes)
    }

    /// The next bytes, as many as `target` holds.
    pub async fn fill(&mut self, mut target: Buf) -> io::Result<Buf> {
        let len = target.len();
        let rest = len.saturating_sub(self.here().len());
        if rest > 0 {
            self.patience.begin(len);
        }
        if rest > 0 && rest < DIRECT_FROM && len <= RECEIVE_BUFFER / 2 {
            self.need(len).await?;
        }
        let filled = len.min(self.here().len());
        target[..filled].copy_from_slice(&self.here()[..filled]);
        self.skip(filled);
        if filled < len {
            let room = target.split_off(filled);
            target.join(self.stream.read_exact(room).await?);
        }
        Ok(target)
    }

    /// Drops the next `len` bytes, received or still to come.
    pub async fn drain(&mut self, mut len: u64) -> io::Result<()> {
        if len > self.here().len() as u64 {
            self.patience
                .begin(usize::try_from(len).unwrap_or(usize::MAX));
        }
        while len > 0 {
            if self.here().is_empty() && !self.receive().await? {
                return Err(ended());
            }
            let now = len.min(self.here().len() as u64);
            self.skip(now as usize);
            len -= now;
        }
        Ok(())
    }
}

// --- sending ----------------------------------------------------------------------------------------

/// Bytes to send, as few pieces: small ones are written one after another into shared buffers, large ones go along by
/// reference.
#[derive(Default)]
pub(crate) struct Pieces {
    done: Vec<View>,
    open: Option<Buf>,
    used: usize,
    /// Bytes gathered since the last `take`.
    pub bytes: usize,
}

impl Pieces {
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

    /// Appends `data`, without a copy if they are not short.
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
