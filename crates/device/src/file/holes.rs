//! Which parts of a regular file are data, and which are holes?

use std::os::fd::BorrowedFd;

use base::{SECTOR, Span};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// At most so many holes and pieces of data are looked up for one answer; what follows counts as data.
const PIECES_MAX: usize = 256;

/// Holes and data of `file` within `span`, from `SEEK_DATA` and `SEEK_HOLE`: (length in bytes, is it data?).
pub(super) fn pieces(file: BorrowedFd<'_>, span: Span) -> Vec<(u64, bool)> {
    let (mut at, end) = (span.start.byte(), span.end().byte());
    let mut pieces: Vec<(u64, bool)> = Vec::new();
    let mut push = |len: u64, data: bool| match pieces.last_mut() {
        _ if len == 0 => {}
        Some((last, kind)) if *kind == data => *last += len,
        _ => pieces.push((len, data)),
    };
    for _ in 0..PIECES_MAX {
        if at >= end {
            break;
        }
        // A sector that is data in part is data.
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => (data - data % SECTOR).clamp(at, end),
            // No data from here to the end of the file.
            Err(Errno::NXIO) => end,
            Err(_) => break,
        };
        push(data - at, false);
        at = data;
        if at == end {
            break;
        }
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(at)) else {
            break;
        };
        let hole = hole.next_multiple_of(SECTOR).clamp(at + SECTOR, end);
        push(hole - at, true);
        at = hole;
    }
    push(end.saturating_sub(at), true);
    pieces
}
