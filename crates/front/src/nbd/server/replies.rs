//! How one answer goes onto the wire: a simple reply, or chunks.

use base::View;
use env::net::message::Pieces;

use super::super::proto::{self, ALLOCATION_ID, chunk};
use super::requests::{Part, Response};

/// Longest sentence sent with an error.
const SENTENCE_MAX: usize = 1024;

/// Puts one answer on the wire: a simple reply, or chunks.
pub(super) fn encode(out: &mut Pieces, cookie: u64, answer: Response, structured: bool) {
    match answer {
        Response::Done => out.put(&proto::simple_reply(cookie, 0)),
        Response::Failed(errno, _) if !structured => {
            out.put(&proto::simple_reply(cookie, errno.code()));
        }
        Response::Failed(errno, why) => {
            let why = proto::shortened(&why, SENTENCE_MAX);
            let len = 6 + why.len() as u32;
            out.put(&proto::chunk_head(chunk::DONE, chunk::ERROR, cookie, len));
            out.put(&errno.code().to_be_bytes());
            out.put(&(why.len() as u16).to_be_bytes());
            out.put(why.as_bytes());
        }
        Response::Data { data, .. } if !structured => {
            out.put(&proto::simple_reply(cookie, 0));
            out.put_view(data);
        }
        Response::Data { data, .. } if data.is_empty() => {
            out.put(&proto::chunk_head(chunk::DONE, chunk::NONE, cookie, 0));
        }
        Response::Data { at, data } => put_data(out, chunk::DONE, cookie, at, data),
        Response::Parts(parts) => {
            let last = parts.len() - 1;
            for (number, part) in parts.into_iter().enumerate() {
                let flags = if number == last { chunk::DONE } else { 0 };
                match part {
                    Part::Data { at, data } => put_data(out, flags, cookie, at, data),
                    Part::Hole { at, len } => {
                        out.put(&proto::chunk_head(flags, chunk::OFFSET_HOLE, cookie, 12));
                        out.put(&at.to_be_bytes());
                        out.put(&len.to_be_bytes());
                    }
                }
            }
        }
        Response::Extents(extents) => {
            let len = 4 + 8 * extents.len() as u32;
            out.put(&proto::chunk_head(
                chunk::DONE,
                chunk::BLOCK_STATUS,
                cookie,
                len,
            ));
            out.put(&ALLOCATION_ID.to_be_bytes());
            for (len, flags) in extents {
                out.put(&len.to_be_bytes());
                out.put(&flags.to_be_bytes());
            }
        }
    }
}

fn put_data(out: &mut Pieces, flags: u16, cookie: u64, at: u64, data: View) {
    let len = 8 + data.len() as u32;
    out.put(&proto::chunk_head(flags, chunk::OFFSET_DATA, cookie, len));
    out.put(&at.to_be_bytes());
    out.put_view(data);
}
