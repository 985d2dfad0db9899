//! Bytes that go: read ahead while the client takes what came before.
//!
//! ```text
//! range of an object -> pieces of 1 MiB over its blobs -> four under way, in order -> body
//! ```
//!
//! Always true: a body has as many bytes as its header says, or its connection is cut.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use policy::share::Direction;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{Body, S3Result, StdError};
use tokio::sync::mpsc;

use super::core::Gateway;
use super::failure::unstored;
use super::service::{Service, soon};
use super::turns::Turn;
use crate::data::{Data, DataError};
use crate::index::Use;
use crate::index::record::{BlobRef, Content};
use crate::lanes::Qos;

/// What is read at once.
const PIECE: u64 = 1 << 20;
/// Pieces under way.
const AT_ONCE: usize = 4;

/// The bytes `range` of an object, whose bytes in the index are `inline`.
pub(super) async fn send(
    (gateway, service): (&Gateway, &Service),
    content: &Content,
    inline: &[u8],
    range: Range<u64>,
) -> S3Result<StreamingBlob> {
    if content.blobs.is_empty() {
        let len = range.end - range.start;
        let passed = gateway.data.pass(&service.qos, Direction::Read, len);
        soon(passed).await?.map_err(unstored)?;
        let bytes = &inline[range.start as usize..range.end as usize];
        return Ok(StreamingBlob::from(Body::from(Bytes::copy_from_slice(
            bytes,
        ))));
    }
    let using = gateway.index.in_use().begin(&content.blobs);
    let pieces = pieces(&content.blobs, range.clone());
    if let [(blob, offset, len)] = &pieces[..] {
        let read = gateway.data.read(&service.qos, (blob, *offset), *len);
        let bytes = soon(read).await?.map_err(unstored)?;
        return Ok(StreamingBlob::from(Body::from(bytes)));
    }
    let (sender, mut pieces_read) = mpsc::channel(1);
    let turn = gateway.going.take(&service.lane, service.promised > 0);
    let turn = soon(turn).await??;
    tokio::spawn(read_ahead(
        (gateway.data.clone(), service.qos.clone()),
        pieces,
        sender,
        (turn, using),
    ));
    // What cannot be read at all is answered so, not cut off.
    let first = match soon(pieces_read.recv()).await? {
        Some(read) => Some(read.map_err(unstored)?),
        None => None,
    };
    Ok(StreamingBlob::new(Pieces {
        first,
        pieces: pieces_read,
        left: (range.end - range.start) as usize,
    }))
}

/// Bytes of an object, for a copy of a part of it.
pub(super) fn pieces(blobs: &[BlobRef], range: Range<u64>) -> Vec<(BlobRef, u64, u64)> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    for blob in blobs {
        let end = begin + blob.size;
        let (from, to) = (range.start.max(begin), range.end.min(end));
        let mut at = from;
        while at < to {
            // By multiples of a piece: so few reads as possible meet two chunks.
            let within = at - begin;
            let len = (PIECE - within % PIECE).min(to - at);
            pieces.push((blob.clone(), within, len));
            at += len;
        }
        begin = end;
    }
    pieces
}

async fn read_ahead(
    (data, qos): (Data, Qos),
    pieces: Vec<(BlobRef, u64, u64)>,
    sender: mpsc::Sender<Result<Bytes, DataError>>,
    _while_it_lasts: (Turn, Use),
) {
    let reads = pieces.into_iter().map(|(blob, offset, len)| {
        let (data, qos) = (data.clone(), qos.clone());
        async move { data.read(&qos, (&blob, offset), len).await }
    });
    let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
    while let Some(read) = reads.next().await {
        // A client that hung up takes no more.
        if sender.send(read).await.is_err() {
            return;
        }
    }
}

/// The pieces of a body.
struct Pieces {
    /// Was read before the answer began.
    first: Option<Bytes>,
    pieces: mpsc::Receiver<Result<Bytes, DataError>>,
    left: usize,
}

impl Stream for Pieces {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => std::task::ready!(self.pieces.poll_recv(cx)),
        };
        Poll::Ready(piece.map(|piece| match piece {
            Ok(bytes) => {
                self.left -= bytes.len();
                Ok(bytes)
            }
            Err(error) => {
                tracing::warn!("an object is not sent to its end: {error}");
                Err(error.into())
            }
        }))
    }
}

impl ByteStream for Pieces {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_over_several_blobs() {
        let blob = |id: &str, size| BlobRef {
            folder: "b".into(),
            id: id.into(),
            size,
        };
        let blobs = [blob("a", 3 << 20), blob("b", 10), blob("c", 1 << 20)];
        let range = (2 << 20) + 5..(3 << 20) + 12;
        let found = pieces(&blobs, range.clone());
        let short: Vec<(&str, u64, u64)> = found.iter().map(|it| (&*it.0.id, it.1, it.2)).collect();
        assert_eq!(
            short,
            [
                ("a", (2 << 20) + 5, (1 << 20) - 5),
                ("b", 0, 10),
                ("c", 0, 2)
            ]
        );
        assert_eq!(
            found.iter().map(|it| it.2).sum::<u64>(),
            range.end - range.start
        );
        assert!(pieces(&blobs, 7..7).is_empty());
    }
}
