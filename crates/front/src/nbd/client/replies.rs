//! What the server sends: replies and chunks, each to the request that it names.
//!
//! ```text
//! magic -> simple reply -> the request is answered
//!       -> chunk: data or a hole into the read's buffer, extents, an error -> the last one: answered
//! ```
//!
//! Always true: what makes no sense ends the connection, and nothing is written outside of a read's buffer.

use std::io;
use std::rc::Rc;

use env::net::message::Inbox;

use super::super::proto::{self, CHUNK_LEN, Errno, Fields, SIMPLE_REPLY_LEN, chunk};
use super::handshake::REPLY_MAX;
use super::requests::{Answered, Shared};
use tls::Wire;

/// Reads the replies of one connection.
pub(super) struct Replies {
    pub(super) shared: Rc<Shared>,
    pub(super) inbox: Inbox<Wire>,
}

fn broken() -> io::Error {
    io::Error::other("a chunk makes no sense")
}

impl Replies {
    /// Until the server hangs up, or something is wrong.
    pub(super) async fn read(mut self) -> io::Result<()> {
        loop {
            while self.inbox.here().len() < 4 {
                if !self.inbox.receive().await? {
                    return Ok(());
                }
            }
            let magic = self.inbox.peek::<4>().map(u32::from_be_bytes);
            match magic {
                Some(proto::SIMPLE_REPLY_MAGIC) => self.simple_reply().await?,
                Some(proto::CHUNK_MAGIC) if self.shared.agreed.structured => self.chunk().await?,
                _ => return Err(io::Error::other("a reply begins with the wrong magic")),
            }
        }
    }

    async fn simple_reply(&mut self) -> io::Result<()> {
        let head = self.inbox.take::<SIMPLE_REPLY_LEN>().await?;
        let mut fields = Fields(&head[4..]);
        let code = fields.u32().unwrap_or(0);
        let index = self.shared.waiting(fields.u64().unwrap_or(0))?;
        if code != 0 {
            let failure = (Errno::of(code), String::new());
            self.shared.answer_slot(index, Err(failure));
            return Ok(());
        }
        let mut answered = Answered::default();
        if let Some(buf) = self
            .shared
            .with_waiting(index, |waiting| waiting.buf.take())?
        {
            if self.shared.agreed.structured {
                return Err(io::Error::other("a read was answered by a simple reply"));
            }
            answered.buf = Some(self.inbox.fill(buf).await?);
        }
        self.shared.answer_slot(index, Ok(answered));
        Ok(())
    }

    async fn chunk(&mut self) -> io::Result<()> {
        let head = self.inbox.take::<CHUNK_LEN>().await?;
        let mut fields = Fields(&head[4..]);
        let flags = fields.u16().ok_or_else(broken)?;
        let kind = fields.u16().ok_or_else(broken)?;
        let index = self.shared.waiting(fields.u64().ok_or_else(broken)?)?;
        let len = fields.u32().ok_or_else(broken)? as usize;
        match kind {
            chunk::NONE if len == 0 => {}
            chunk::OFFSET_DATA if len > 8 => {
                let at = u64::from_be_bytes(self.inbox.take::<8>().await?);
                self.place(index, at, len - 8, true).await?;
            }
            chunk::OFFSET_HOLE if len == 12 => {
                let at = u64::from_be_bytes(self.inbox.take::<8>().await?);
                let hole = u32::from_be_bytes(self.inbox.take::<4>().await?) as usize;
                self.place(index, at, hole, false).await?;
            }
            chunk::BLOCK_STATUS if len > 4 && len % 8 == 4 && len <= REPLY_MAX => {
                self.inbox.need(len).await?;
                let ranges = self.inbox.here()[4..len].chunks_exact(8).map(|pair| {
                    let mut pair = Fields(pair);
                    (pair.u32().unwrap_or(0), pair.u32().unwrap_or(0))
                });
                let shared = &self.shared;
                shared.with_waiting(index, |waiting| waiting.extents.extend(ranges))?;
                self.inbox.skip(len);
            }
            kind if kind & (1 << 15) != 0 && (6..=REPLY_MAX).contains(&len) => {
                self.inbox.need(len).await?;
                let mut fields = Fields(&self.inbox.here()[..len]);
                let errno = Errno::of(fields.u32().ok_or_else(broken)?);
                let why = usize::from(fields.u16().ok_or_else(broken)?);
                let why = fields.bytes(why).ok_or_else(broken)?;
                let failure = (errno, String::from_utf8_lossy(why).into_owned());
                let shared = &self.shared;
                shared.with_waiting(index, |waiting| {
                    waiting.failed.get_or_insert(failure);
                })?;
                self.inbox.skip(len);
            }
            _ => return Err(broken()),
        }
        match flags & chunk::DONE {
            0 => Ok(()),
            _ => self.finish(index),
        }
    }

    /// Puts `len` bytes of a read, received or zero, where they belong in its buffer.
    async fn place(&mut self, index: usize, at: u64, len: usize, is_data: bool) -> io::Result<()> {
        let outside = || io::Error::other("a chunk lies outside of its read");
        let found = self.shared.with_waiting(index, |waiting| {
            let from = usize::try_from(at.checked_sub(waiting.at)?).ok()?;
            let fits = len <= waiting.missing && len > 0;
            let buf = waiting.buf.take().filter(|_| fits)?;
            Some((from, buf))
        })?;
        let (from, mut buf) = found.ok_or_else(outside)?;
        if from.checked_add(len).is_none_or(|end| end > buf.len()) {
            return Err(outside());
        }
        let mut middle = buf.split_off(from);
        let tail = middle.split_off(len);
        let middle = if is_data {
            self.inbox.fill(middle).await?
        } else {
            middle.fill(0);
            middle
        };
        buf.join(middle);
        buf.join(tail);
        self.shared.with_waiting(index, |waiting| {
            waiting.buf = Some(buf);
            waiting.missing -= len;
        })
    }

    fn finish(&self, index: usize) -> io::Result<()> {
        let waiting = self.shared.take_waiting(index)?;
        if let Some(failed) = waiting.failed {
            self.shared.answer_slot(index, Err(failed));
            return Ok(());
        }
        if waiting.missing > 0 {
            let why = format!(
                "a {} at byte {} was answered with {} bytes missing",
                waiting.op, waiting.at, waiting.missing
            );
            // The slot still counts as waiting, so that its caller learns why the connection ended.
            self.shared
                .answer_slot(index, Err((Errno::Io, why.clone())));
            return Err(io::Error::other(why));
        }
        let (buf, extents) = (waiting.buf, waiting.extents);
        self.shared
            .answer_slot(index, Ok(Answered { buf, extents }));
        Ok(())
    }
}
