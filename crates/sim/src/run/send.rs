//! One request onto the volume, long ones in pieces, as a kernel would send them.

use std::rc::Rc;

use base::{Buf, Span, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::sync::join_all;
use trace::Op;

/// The longest piece that is sent at once.
const PIECE: usize = 1 << 20;
/// Pieces of one request under way at once.
const PIECES: usize = 32;

/// Where requests go.
pub(super) struct Sender {
    volume: Rc<dyn Device>,
    /// The longest piece that is sent at once.
    piece: usize,
    zeroes: View,
}

impl Sender {
    pub(super) fn new(volume: Rc<dyn Device>) -> Sender {
        Sender {
            piece: volume.info().max_io.usize().min(PIECE),
            zeroes: Buf::zeroed(PIECE).freeze(),
            volume,
        }
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn carry_out(&self, op: Op, span: Span) -> Result<(), DeviceError> {
        let volume = &self.volume;
        let len = span.len.usize();
        match op {
            Op::Read if len <= self.piece => {
                let buf = Buf::for_read(len);
                volume
                    .read(span.start, buf, Class::Foreground)
                    .await
                    .map(drop)
            }
            Op::Write if len <= self.piece => {
                let data = self.zeroes.slice(0, len);
                volume.write(span.start, data, WriteFlags::default()).await
            }
            Op::Read | Op::Write => self.in_pieces(op, span).await,
            Op::Discard => volume.discard(span).await,
            Op::Flush => volume.flush().await,
        }
    }

    /// A long request, as a kernel would send it.
    async fn in_pieces(&self, op: Op, span: Span) -> Result<(), DeviceError> {
        let (mut from, end) = (span.start.byte(), span.end().byte());
        while from < end {
            let mut pieces = Vec::new();
            while from < end && pieces.len() < PIECES {
                let len = (end - from).min(self.piece as u64);
                let piece = Span::bytes(from, len);
                from += len;
                pieces.push(async move { Box::pin(self.carry_out(op, piece)).await });
            }
            join_all(pieces)
                .await
                .into_iter()
                .collect::<Result<(), _>>()?;
        }
        Ok(())
    }
}
