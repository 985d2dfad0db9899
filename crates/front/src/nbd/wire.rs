//! How do bytes travel on a connection: in the clear or in TLS, and where do received ones wait?
//!
//! ```text
//! Stream --(plain)---------------> Wire --> Inbox: one large receive buffer, or straight into a Buf
//!    \-----(rustls session)------/      <-- Outbox: heads written one after another, data by reference
//! ```
//!
//! Always true:
//! 1. What was encrypted first is sent first.
//! 2. A payload is copied at most once on its way in (what came along in the receive buffer), and not
//!    at all on its way out (in the clear).

use std::cell::{Cell, RefCell};
use std::io::{self, Read as _, Write as _};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, View};
use env::net::Stream;
use env::sync::Semaphore;

/// A rest of a payload longer than this is received straight into its own buffer.
const DIRECT_FROM: usize = 32 << 10;
/// With less room than this at its end, the receive buffer's contents move to its start.
const ROOM_MIN: usize = 32 << 10;
/// Encrypted bytes gathered before they are sent.
const CIPHER_BATCH: usize = 256 << 10;

/// One connection's bytes, both ways. One task may read while another writes.
pub(super) enum Wire {
    /// In the clear.
    Plain(Rc<Stream>),
    /// Through TLS.
    Tls(Box<TlsWire>),
}

/// A TLS session on a stream.
pub(super) struct TlsWire {
    stream: Rc<Stream>,
    session: RefCell<rustls::Connection>,
    /// Held from encrypting to the end of sending, so that records keep their order.
    sending: Rc<Semaphore>,
    /// Encrypted bytes received and not decrypted yet: buffer, first, end.
    cipher: RefCell<Option<(Buf, usize, usize)>>,
}

impl Wire {
    /// Reads what is there, at least one byte, at most the buffer; 0 at the end.
    pub(super) async fn read(&self, buf: Buf) -> io::Result<(usize, Buf)> {
        match self {
            Wire::Plain(stream) => stream.read(buf).await,
            Wire::Tls(tls) => tls.read(buf).await,
        }
    }

    /// Sends all pieces in order.
    pub(super) async fn write_all(&self, pieces: Vec<View>) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.write_all(pieces).await,
            Wire::Tls(tls) => tls.write_all(&pieces).await,
        }
    }

    /// Says goodbye (in TLS too); reading goes on.
    pub(super) async fn finish(&self) {
        match self {
            Wire::Plain(stream) => stream.shutdown_write(),
            Wire::Tls(tls) => {
                tls.session.borrow_mut().send_close_notify();
                // A peer that is gone already need not hear it.
                let _ = tls.flush().await;
                tls.stream.shutdown_write();
            }
        }
    }
}

impl TlsWire {
    /// Runs the handshake to its end.
    pub(super) async fn handshake(
        stream: Rc<Stream>,
        session: rustls::Connection,
    ) -> io::Result<TlsWire> {
        let tls = TlsWire {
            stream,
            session: RefCell::new(session),
            sending: Semaphore::new(1),
            cipher: RefCell::new(None),
        };
        tls.flush().await?;
        while tls.session.borrow().is_handshaking() {
            if !tls.receive().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        tls.flush().await?;
        Ok(tls)
    }

    async fn read(&self, mut buf: Buf) -> io::Result<(usize, Buf)> {
        let mut filled = 0;
        while filled < buf.len() {
            let got = self.session.borrow_mut().reader().read(&mut buf[filled..]);
            match got {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Answer with what there is before waiting for more.
                    let waits = self.cipher.borrow().is_none();
                    if (waits && filled > 0) || !self.receive().await? {
                        break;
                    }
                }
                // The peer hung up without a goodbye: the protocol above knows whether it was done.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok((filled, buf))
    }

    /// Decrypts some received bytes, receiving first if there are none; false at the stream's end.
    async fn receive(&self) -> io::Result<bool> {
        let held = self.cipher.borrow_mut().take();
        let (buf, first, end) = match held {
            Some(held) => held,
            None => {
                let (len, buf) = self.stream.read(Buf::for_read(64 << 10)).await?;
                (buf, 0, len)
            }
        };
        let processed = {
            let mut session = self.session.borrow_mut();
            let taken = session.read_tls(&mut &buf[first..end])?;
            if end > first + taken {
                *self.cipher.borrow_mut() = Some((buf, first + taken, end));
            }
            session.process_new_packets()
        };
        if self.session.borrow().wants_write() {
            self.flush().await?;
        }
        processed.map_err(io::Error::other)?;
        Ok(end > 0)
    }

    async fn flush(&self) -> io::Result<()> {
        let _turn = self.sending.acquire(1).await;
        let mut out = Pieces::default();
        self.encrypted(&mut out)?;
        self.stream.write_all(out.take()).await
    }

    async fn write_all(&self, pieces: &[View]) -> io::Result<()> {
        let _turn = self.sending.acquire(1).await;
        let mut out = Pieces::default();
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let taken = self.session.borrow_mut().writer().write(rest)?;
                rest = &rest[taken..];
                self.encrypted(&mut out)?;
                if out.bytes >= CIPHER_BATCH {
                    self.stream.write_all(out.take()).await?;
                }
            }
        }
        self.stream.write_all(out.take()).await
    }

    fn encrypted(&self, out: &mut Pieces) -> io::Result<()> {
        let mut session = self.session.borrow_mut();
        while session.wants_write() {
            session.write_tls(out)?;
        }
        Ok(())
    }
}

// --- sending ----------------------------------------------------------------------------------------

/// Bytes to send, as few pieces: small ones are written one after another into shared buffers, large
/// ones go along by reference.
#[derive(Default)]
pub(super) struct Pieces {
    done: Vec<View>,
    open: Option<Buf>,
    used: usize,
    /// Bytes gathered since the last `take`.
    pub(super) bytes: usize,
}

impl Pieces {
    /// Appends a copy of `bytes`.
    pub(super) fn put(&mut self, mut bytes: &[u8]) {
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

    /// Appends `data` without a copy.
    pub(super) fn put_view(&mut self, data: View) {
        if data.is_empty() {
            return;
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
    pub(super) fn take(&mut self) -> Vec<View> {
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

// --- receiving --------------------------------------------------------------------------------------

/// When a peer in the middle of something must be done with it. The owner looks at `overdue` now and
/// then, so no timer is set per request.
pub(super) struct Patience {
    /// How long without reason is too long.
    pub(super) stall: Nanos,
    /// Slowest pace at which a long transfer may go on.
    pub(super) rate_min_bytes_per_second: u64,
    deadline: Cell<Option<Instant>>,
}

impl Patience {
    pub(super) fn new(stall: Nanos, rate_min_bytes_per_second: u64) -> Patience {
        Patience {
            stall,
            rate_min_bytes_per_second,
            deadline: Cell::new(None),
        }
    }

    /// A transfer of `len` bytes is under way from now on; one that was already keeps its deadline.
    pub(super) fn begin(&self, len: usize) {
        if self.deadline.get().is_none() {
            let seconds = len as f64 / self.rate_min_bytes_per_second.max(1) as f64;
            let deadline = env::now() + self.stall + Nanos::from_secs_f64(seconds);
            self.deadline.set(Some(deadline));
        }
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.deadline.set(None);
    }

    pub(super) fn overdue(&self, now: Instant) -> bool {
        self.deadline.get().is_some_and(|deadline| now > deadline)
    }
}

/// Bytes received and not used yet.
pub(super) struct Inbox {
    wire: Rc<Wire>,
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
    pub(super) fn new(wire: Rc<Wire>, capacity: Bytes, patience: Rc<Patience>) -> Inbox {
        let buf = Some(Buf::for_read(capacity.usize()));
        Inbox {
            wire,
            patience,
            buf,
            first: 0,
            end: 0,
        }
    }

    /// What is here.
    #[inline]
    pub(super) fn here(&self) -> &[u8] {
        match &self.buf {
            Some(buf) => &buf[self.first..self.end],
            None => &[],
        }
    }

    /// The next `N` bytes if they are here; they stay.
    #[inline]
    pub(super) fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        self.here().first_chunk().copied()
    }

    /// Drops `len` bytes that are here.
    #[inline]
    pub(super) fn skip(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.first);
        self.first += len;
        if self.first == self.end {
            self.first = 0;
            self.end = 0;
        }
    }

    /// Receives once; false at the end of the stream.
    pub(super) async fn receive(&mut self) -> io::Result<bool> {
        let mut buf = self.buf.take().ok_or_else(ended)?;
        if buf.len() - self.end < ROOM_MIN.min(buf.len() / 2) {
            buf.copy_within(self.first..self.end, 0);
            self.end -= self.first;
            self.first = 0;
        }
        if self.first < self.end {
            self.patience.begin(0);
        }
        let room = buf.split_off(self.end);
        assert!(!room.is_empty(), "asked to receive with the buffer full");
        let (len, room) = self.wire.read(room).await?;
        buf.join(room);
        self.end += len;
        self.buf = Some(buf);
        Ok(len > 0)
    }

    /// Receives until `len` bytes are here (at most half the capacity).
    pub(super) async fn need(&mut self, len: usize) -> io::Result<()> {
        while self.here().len() < len {
            if !self.receive().await? {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// The next `N` bytes, taken.
    pub(super) async fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.need(N).await?;
        let bytes = self.peek().ok_or_else(ended)?;
        self.skip(N);
        Ok(bytes)
    }

    /// The next bytes, as many as `target` holds.
    pub(super) async fn fill(&mut self, mut target: Buf) -> io::Result<Buf> {
        let len = target.len();
        let rest = len.saturating_sub(self.here().len());
        if rest > 0 {
            self.patience.begin(len);
        }
        if rest > 0 && rest <= DIRECT_FROM && len <= self.capacity() / 2 {
            // A short rest: receive it with what follows, in one go.
            self.need(len).await?;
        }
        let mut filled = len.min(self.here().len());
        target[..filled].copy_from_slice(&self.here()[..filled]);
        self.skip(filled);
        while filled < len {
            let room = target.split_off(filled);
            let (got, room) = self.wire.read(room).await?;
            if got == 0 {
                return Err(ended());
            }
            target.join(room);
            filled += got;
        }
        Ok(target)
    }

    /// Drops the next `len` bytes, received or still to come.
    pub(super) async fn drain(&mut self, mut len: u64) -> io::Result<()> {
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

    /// The same bytes in a larger buffer.
    pub(super) fn grown(self, capacity: Bytes) -> Inbox {
        let mut larger = Inbox::new(Rc::clone(&self.wire), capacity, Rc::clone(&self.patience));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_share_a_piece_and_data_go_by_reference() {
        let mut pieces = Pieces::default();
        pieces.put(b"ab");
        pieces.put(b"cd");
        let data = View::copy_of(b"data");
        let address = data.address();
        pieces.put_view(data);
        pieces.put(b"ef");
        assert_eq!(pieces.bytes, 10);
        let taken = pieces.take();
        assert_eq!(
            taken.iter().map(|p| p.to_vec()).collect::<Vec<_>>(),
            [b"abcd".to_vec(), b"data".to_vec(), b"ef".to_vec()]
        );
        assert_eq!(taken[1].address(), address);
        assert!(pieces.take().is_empty());
        let long = vec![7; 40_000];
        pieces.put(&long);
        assert_eq!(pieces.take().iter().map(|p| p.len()).sum::<usize>(), 40_000);
    }
}
