//! The client as a [`Device`].
//!
//! ```text
//! Device call -> within the export? -> requests that fit the protocol's 32-bit length -> their answers
//! ```
//!
//! What a server does not announce is done without it: a durable write is a write and a flush, zeroes are written out.

use std::rc::Rc;

use base::{Buf, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags};

use super::super::proto::{Errno, can, cmd, flag, state};
use super::Client;
use super::requests::{Ask, Shared};

/// A trim, zeroing or status request goes this far at once.
const REACH: u64 = 1 << 30;

/// A range in requests that fit the protocol's 32-bit length.
async fn by_reach(
    shared: &Rc<Shared>,
    (op, command, flags): (Op, u16, u16),
    span: Span,
) -> Result<(), DeviceError> {
    let end = span.end().byte();
    let mut at = span.start.byte();
    while at < end {
        let len = (end - at).min(REACH);
        let ask = Ask {
            op,
            command,
            flags,
            at,
            len,
        };
        Rc::clone(shared).call(ask, None, None).await?;
        at += len;
    }
    Ok(())
}

fn fua(shared: &Shared, wanted: bool) -> u16 {
    if wanted && shared.has(can::FUA) {
        flag::FUA
    } else {
        0
    }
}

impl Device for Client {
    fn info(&self) -> Info {
        self.shared.agreed.info.clone()
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        let len = buf.len() as u64;
        if let Err(error) = self.shared.agreed.info.check(Op::Read, at, len) {
            return device::ready(Err(error));
        }
        if len == 0 {
            return device::ready(Ok(buf));
        }
        let ask = Ask {
            op: Op::Read,
            command: cmd::READ,
            flags: 0,
            at: at.byte(),
            len,
        };
        let call = Rc::clone(&self.shared).call(ask, None, Some(buf));
        Box::pin(async move {
            let answered = call.await?;
            Ok(answered.buf.expect("a read is answered with its buffer"))
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let len = data.len() as u64;
        if let Err(error) = self.shared.agreed.info.check(Op::Write, at, len) {
            return device::ready(Err(error));
        }
        if len == 0 {
            return device::ready(Ok(()));
        }
        let fua = fua(&self.shared, flags.fua);
        let ask = Ask {
            op: Op::Write,
            command: cmd::WRITE,
            flags: fua,
            at: at.byte(),
            len,
        };
        let call = Rc::clone(&self.shared).call(ask, Some(data), None);
        Box::pin(async move {
            call.await?;
            if flags.fua && fua == 0 {
                return self.flush().await;
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        if !self.shared.has(can::FLUSH) {
            return device::ready(Ok(()));
        }
        let ask = Ask {
            op: Op::Flush,
            command: cmd::FLUSH,
            flags: 0,
            at: 0,
            len: 0,
        };
        let call = Rc::clone(&self.shared).call(ask, None, None);
        Box::pin(async move { call.await.map(|_| ()) })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(error) = self
            .shared
            .agreed
            .info
            .check(Op::Discard, span.start, span.len.0)
        {
            return device::ready(Err(error));
        }
        if !self.shared.has(can::TRIM) {
            return device::ready(Ok(()));
        }
        Box::pin(by_reach(&self.shared, (Op::Discard, cmd::TRIM, 0), span))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let info = &self.shared.agreed.info;
        if let Err(error) = info.check(Op::WriteZeroes, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        if self.shared.has(can::WRITE_ZEROES) {
            return Box::pin(async move {
                let fua = fua(&self.shared, flags.fua);
                let ask = (Op::WriteZeroes, cmd::WRITE_ZEROES, fua);
                by_reach(&self.shared, ask, span).await?;
                if flags.fua && fua == 0 {
                    return self.flush().await;
                }
                Ok(())
            });
        }
        Box::pin(async move {
            let most = self.shared.agreed.info.max_io.0.min(1 << 20);
            let zeroes = Buf::zeroed(most.min(span.len.0) as usize).freeze();
            let mut at = span.start.byte();
            while at < span.end().byte() {
                let len = (span.end().byte() - at).min(most);
                let piece = zeroes.slice(0, len as usize);
                self.write(Sector::containing(at), piece, flags).await?;
                at += len;
            }
            Ok(())
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self
            .shared
            .agreed
            .info
            .check(Op::Read, span.start, span.len.0)
        {
            return device::ready(Err(error));
        }
        if !self.shared.agreed.allocation {
            return device::ready(Ok(vec![(span.len.0, true)]));
        }
        Box::pin(async move {
            let mut extents: Vec<(u64, bool)> = Vec::new();
            let mut at = span.start.byte();
            let end = span.end().byte();
            while at < end {
                let len = (end - at).min(REACH);
                let ask = Ask {
                    op: Op::Read,
                    command: cmd::BLOCK_STATUS,
                    flags: 0,
                    at,
                    len,
                };
                let answered = Rc::clone(&self.shared).call(ask, None, None).await?;
                let from = at;
                for (len, flags) in answered.extents {
                    let len = u64::from(len).min(end - at);
                    let is_data = flags & state::ZERO == 0;
                    match extents.last_mut() {
                        Some(last) if last.1 == is_data => last.0 += len,
                        _ if len > 0 => extents.push((len, is_data)),
                        _ => {}
                    }
                    at += len;
                }
                if at == from {
                    let why = "its block status covers nothing".to_owned();
                    return Err(self.shared.error(ask, (Errno::Io, why)));
                }
            }
            Ok(extents)
        })
    }

    fn in_flight(&self) -> usize {
        self.shared.in_flight()
    }
}
