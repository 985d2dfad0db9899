//! What the server sends: answers into their slots, load reports beside them, its last words.
//!
//! ```text
//! header -> expect: which slot, how long may it be -> fields -> data, into the caller's buffer -> complete
//! ```
//!
//! Always true: a length is compared with what was asked for before anything is received by it.

use std::io;

use base::Buf;

use super::connection::{Got, Shared};
use super::opening::IN_PLACE_MAX;
use crate::net::wire::state::decode;
use crate::net::wire::stream::Inbox;
use crate::net::wire::{
    HEADER_LEN, Header, Kind, Malformed, Op, RESPONSE_META_MAX, Request, Response,
};
use crate::ops;

/// How the reader came to its end.
enum End {
    Stream(io::Error),
    Protocol(String),
    /// The server's last words.
    Server(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Stream(error)
    }
}

impl From<Malformed> for End {
    fn from(why: Malformed) -> End {
        End::Protocol(why.to_string())
    }
}

/// Is it a load report, beside the answers?
fn is_state(header: &Header) -> bool {
    header.op == Op::ClientTag as u16 && header.id == 0
}

/// Reads for one connection.
pub(super) struct Reader<'a>(pub &'a Shared);

impl Reader<'_> {
    /// Reads until no more can come; why not.
    pub async fn until_end(&self, mut inbox: Inbox) -> String {
        let end = loop {
            if let Err(end) = self.read_one(&mut inbox).await {
                break end;
            }
        };
        match end {
            End::Stream(error) => format!("the connection broke ({error})"),
            End::Protocol(why) => format!("what the server sent is not the protocol: {why}"),
            End::Server(why) => format!("the server ended the connection: {why}"),
        }
    }

    /// One frame, from its header to its slot.
    async fn read_one(&self, inbox: &mut Inbox) -> Result<(), End> {
        let header = self.header(inbox).await?;
        let (op, most) = self.expect(&header)?;
        let (meta_len, data_len) = (header.meta_len as usize, header.data_len as usize);
        if meta_len > RESPONSE_META_MAX || data_len > most {
            return Err(End::Protocol(format!(
                "an answer to {} has {meta_len} bytes of fields and {data_len} of data, at most {most} are awaited",
                op.name()
            )));
        }
        let meta = if meta_len <= IN_PLACE_MAX {
            inbox.need(meta_len).await?;
            let meta = inbox.here()[..meta_len].to_vec();
            inbox.skip(meta_len);
            meta
        } else {
            inbox.fill(Buf::for_read(meta_len)).await?.to_vec()
        };
        header.check_meta(&meta)?;
        if is_state(&header) {
            let state = &self.0.state;
            state.set(decode(&meta, env::now()).or(state.get()));
            return Ok(());
        }
        if header.op == 0 {
            let answer = Response::decode(op, header.status, &meta, Buf::for_read(0))?;
            let Response::Failed(failure) = answer else {
                return Err(End::Protocol("its last words are no failure".to_owned()));
            };
            return Err(End::Server(failure.to_string()));
        }
        if op == Op::Read && header.status == 0 {
            return self.bytes(inbox, &header, &meta).await;
        }
        let data = inbox.fill(Buf::for_read(data_len)).await?;
        header.check_data(&data)?;
        self.0.pulse.heard.set(env::now());
        let outcome = match Response::decode(op, header.status, &meta, data)? {
            Response::Failed(failure) => Err(failure.into()),
            answer => Ok(Got::Response(answer)),
        };
        self.0.complete(header.id, outcome);
        Ok(())
    }

    /// The next header, or how the stream ended.
    async fn header(&self, inbox: &mut Inbox) -> Result<Header, End> {
        loop {
            if let Some(head) = inbox.peek::<HEADER_LEN>() {
                inbox.skip(HEADER_LEN);
                return Ok(Header::parse(&head, Kind::Response)?);
            }
            if inbox.receive().await? {
                self.0.pulse.heard.set(env::now());
                continue;
            }
            let closed = self.0.outgoing.borrow().closed;
            return Err(match (inbox.here().is_empty(), closed) {
                (true, true) => End::Server("goodbye".to_owned()),
                (true, false) => End::Server("it hung up without a word".to_owned()),
                _ => End::Stream(io::ErrorKind::UnexpectedEof.into()),
            });
        }
    }

    /// What the frame answers, and the longest data it may carry.
    fn expect(&self, header: &Header) -> Result<(Op, usize), End> {
        if header.op == 0 {
            return Ok((Op::Ping, 0));
        }
        if is_state(header) {
            return Ok((Op::ClientTag, 0));
        }
        let slots = self.0.slots.borrow();
        let Some(slot) = slots.get(&header.id).filter(|slot| slot.sent) else {
            return Err(End::Protocol(format!(
                "it answers request {}, which is not under way",
                header.id
            )));
        };
        let op = slot.request.op();
        if header.op != op as u16 {
            return Err(End::Protocol(format!(
                "it answers {} with an answer to operation {}",
                op.name(),
                header.op
            )));
        }
        let most = match &slot.request {
            Request::Object(ops::Request::Read { len, .. }) => *len as usize,
            Request::Report => self.0.server.data_max as usize,
            _ => 0,
        };
        Ok((op, most))
    }

    /// Takes the bytes of a read, into the caller's buffer if there is one.
    async fn bytes(&self, inbox: &mut Inbox, header: &Header, meta: &[u8]) -> Result<(), End> {
        if !meta.is_empty() {
            return Err(End::Protocol("the answer to a read has fields".to_owned()));
        }
        let len = header.data_len as usize;
        let given = {
            let mut slots = self.0.slots.borrow_mut();
            slots.get_mut(&header.id).and_then(|slot| slot.buf.take())
        };
        let (head, tail) = match given {
            Some(mut buf) => {
                let tail = buf.split_off(len.min(buf.len()));
                (buf, Some(tail))
            }
            None => (Buf::for_read(len), None),
        };
        let mut buf = inbox.fill(head).await?;
        header.check_data(&buf)?;
        self.0.pulse.heard.set(env::now());
        if let Some(tail) = tail {
            buf.join(tail);
        }
        self.0.complete(header.id, Ok(Got::Bytes(len, buf)));
        Ok(())
    }
}
