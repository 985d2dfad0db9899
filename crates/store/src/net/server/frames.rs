//! Requests off the stream: which frames are one, and which of them are refused at once?
//!
//! ```text
//! header -> is there such an operation, are its fields short enough -> fields -> within the limits, in turn
//!             '-> no: its fields are taken off the stream all the same, so that the next frame is found
//! ```
//!
//! Always true: a length is compared with a limit before anything is received by it.

use std::cell::Cell;
use std::io;

use base::{Bytes, Nanos};

use crate::net::wire::stream::Inbox;
use crate::net::wire::{
    DATA_MAX, Failure, HEADER_LEN, Header, Kind, Malformed, Op, REQUEST_META_MAX,
    RESPONSE_META_MAX, RefusedKind, Request, VERSION,
};
use crate::ops;

/// The number of a frame that concerns the whole connection.
pub(super) const CONNECTION: u16 = 0;

/// How a connection came to its end.
pub(super) enum End {
    /// The client hung up between requests.
    Left,
    /// The server drains and nothing is in flight.
    Drained,
    /// The stream failed or ended in the middle of a request.
    Lost(io::Error),
    /// What came is not the protocol: the frame it concerns, and why.
    Violation(u64, String),
    /// The capability it came with is void, and why.
    Revoked(String),
    /// The reservation that it came under is over, and why.
    Ended(String),
    /// The certificate it showed is revoked, and why.
    Disowned(String),
}

/// Last words to the holder of a revoked certificate may take so long: with what goes before it is cut within a second.
const DISOWNED_LINGER: Nanos = Nanos::millis(250);

impl End {
    /// Why nothing more is answered, and how long the peer may take to read that.
    pub fn is_revoked(&self, linger: Nanos) -> Option<(&str, Nanos)> {
        match self {
            End::Revoked(why) => Some((why, linger)),
            End::Disowned(why) => Some((why, linger.min(DISOWNED_LINGER))),
            _ => None,
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Lost(error)
    }
}

/// What came in frame `id` is not the protocol.
pub(super) fn violation(id: u64, why: Malformed) -> End {
    End::Violation(id, why.to_string())
}

/// The next frame's header.
pub(super) async fn header(inbox: &mut Inbox) -> Result<Header, End> {
    loop {
        if let Some(head) = inbox.peek::<HEADER_LEN>() {
            inbox.skip(HEADER_LEN);
            return Header::parse(&head, Kind::Request).map_err(|why| violation(0, why));
        }
        match inbox.receive().await? {
            true => {}
            false if inbox.here().is_empty() => return Err(End::Left),
            false => return Err(End::Lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// What a frame asks for, its fields taken; or why it is refused. Its data are still to come.
pub(super) async fn request(
    inbox: &mut Inbox,
    header: &Header,
    data_max: u32,
    draining: &Cell<bool>,
) -> Result<Result<Request, Failure>, End> {
    let id = header.id;
    let (meta_len, data_len) = (header.meta_len as usize, header.data_len);
    if meta_len > RESPONSE_META_MAX || data_len > DATA_MAX {
        let why = format!("no frame has {meta_len} bytes of fields and {data_len} of data");
        return Err(End::Violation(id, why));
    }
    let op = match operation(header) {
        Ok(op) => op,
        Err(failure) => {
            inbox.drain(meta_len as u64).await?;
            return Ok(Err(failure));
        }
    };
    inbox.need(meta_len).await?;
    let meta = &inbox.here()[..meta_len];
    header.check_meta(meta).map_err(|why| violation(id, why))?;
    let request = Request::decode(op, meta).map_err(|why| violation(id, why))?;
    inbox.skip(meta_len);
    if data_len > 0 && op != Op::Write {
        let name = op.name();
        let why = format!("{name} carries {data_len} bytes of data, where there can be none");
        return Err(End::Violation(id, why));
    }
    Ok(
        match refused(&request, data_len, data_max, draining.get()) {
            Some(failure) => Err(failure),
            None => Ok(request),
        },
    )
}

/// Which operation a frame asks for, if its fields are short enough for one.
fn operation(header: &Header) -> Result<Op, Failure> {
    let Some(op) = Op::of(header.op) else {
        let text = format!(
            "this server knows no operation {}; it speaks version {VERSION} of the protocol",
            header.op
        );
        return Err(Failure::refused(RefusedKind::Unknown, text));
    };
    let (name, meta_len) = (op.name(), header.meta_len);
    if meta_len as usize > REQUEST_META_MAX {
        let text = format!(
            "cannot {name}: its fields have {meta_len} bytes, at most {REQUEST_META_MAX} are taken"
        );
        return Err(Failure::refused(RefusedKind::TooLong, text));
    }
    Ok(op)
}

/// Why a request is refused before it is begun.
fn refused(request: &Request, data_len: u32, data_max: u32, draining: bool) -> Option<Failure> {
    let name = request.op().name();
    let len = match request {
        Request::Object(ops::Request::Read { len, .. }) => *len,
        _ => data_len.into(),
    };
    let (kind, text) = if len > u64::from(data_max) {
        let (len, most) = (Bytes(len), Bytes(u64::from(data_max)));
        let text = format!(
            "cannot {name} {len} at once: at most {most} travel in one frame; ask in parts"
        );
        (RefusedKind::TooLong, text)
    } else if draining {
        let text = format!("cannot {name}: the server is shutting down");
        (RefusedKind::ShuttingDown, text)
    } else if matches!(request, Request::Open(_)) {
        let text = "the session is open already; connect again for another one".to_owned();
        (RefusedKind::OutOfTurn, text)
    } else {
        return None;
    };
    Some(Failure::refused(kind, text))
}
