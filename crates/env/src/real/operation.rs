//! What the kernel is asked to do, with all the memory and descriptors it needs for that.

#![allow(unsafe_code)] // The kernel's view of a message is made of pointers into its pieces.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use base::{Buf, View};
use rustix::event::PollFlags;

use super::exchange::Exchange;

/// What the kernel shall do, with all it needs. Comes back with the result.
pub(crate) enum Operation {
    /// Nothing: a way there and back.
    Nop,
    /// Fills `buf[filled..]` from byte `at + filled`.
    Read {
        file: Rc<OwnedFd>,
        buf: Buf,
        filled: usize,
        at: u64,
    },
    /// Fills what is left of the pieces, one after the other, from byte `at` on for the first of them.
    ReadVectored {
        file: Rc<OwnedFd>,
        pieces: Box<Scatter>,
        at: u64,
    },
    /// Writes `data[written..]` at byte `at + written`.
    Write {
        file: Rc<OwnedFd>,
        data: View,
        written: usize,
        at: u64,
        dsync: bool,
    },
    /// fdatasync(2).
    Sync { file: Rc<OwnedFd> },
    /// fallocate(2).
    Allocate {
        file: Rc<OwnedFd>,
        mode: i32,
        at: u64,
        len: u64,
    },
    /// The BLKDISCARD ioctl.
    Discard {
        file: Rc<OwnedFd>,
        at: u64,
        len: u64,
    },
    /// Receives into `buf[filled..]`; until full if `whole`.
    Receive {
        socket: Rc<OwnedFd>,
        buf: Buf,
        filled: usize,
        whole: bool,
    },
    /// Sends the rest of a message.
    Send {
        socket: Rc<OwnedFd>,
        message: Box<Message>,
    },
    /// Waits until the socket can be read or written, as `events` says.
    Ready {
        socket: Rc<OwnedFd>,
        events: PollFlags,
    },
    /// A command of the file's driver.
    Command {
        file: Rc<OwnedFd>,
        code: u32,
        payload: [u8; 16],
    },
    /// A command for a SCSI disk, and room for its answer.
    Scsi {
        file: Rc<OwnedFd>,
        exchange: Box<Exchange>,
    },
}

impl Operation {
    /// Could it wait for a peer, or a driver, for ever? Then a dropped future cancels it.
    pub(super) fn waits_for_a_peer(&self) -> bool {
        matches!(
            self,
            Operation::Receive { .. }
                | Operation::Send { .. }
                | Operation::Ready { .. }
                | Operation::Command { .. }
        )
    }
}

/// Most pieces one call takes (IOV_MAX).
const PIECES_MAX: usize = 1024;

/// The kernel's view of pieces of memory, and how far it got with them.
struct Pieces {
    rest: Vec<libc::iovec>,
    /// First entry of `rest` that is not done.
    next: usize,
}

impl Pieces {
    fn new(pieces: impl Iterator<Item = (*mut u8, usize)>) -> Pieces {
        let rest = pieces.filter(|(_, len)| *len > 0);
        let rest = rest.map(|(at, iov_len)| libc::iovec {
            iov_base: at.cast(),
            iov_len,
        });
        Pieces {
            rest: rest.collect(),
            next: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.next == self.rest.len()
    }

    /// What one call may take of the rest.
    fn rest(&mut self) -> &mut [libc::iovec] {
        let upto = self.rest.len().min(self.next + PIECES_MAX);
        &mut self.rest[self.next..upto]
    }

    /// `done` bytes more are done.
    fn advance(&mut self, mut done: usize) {
        while let Some(piece) = self.rest.get_mut(self.next) {
            if done < piece.iov_len {
                // SAFETY: stays within the piece, since fewer bytes than it has are done.
                piece.iov_base = unsafe { piece.iov_base.cast::<u8>().add(done) }.cast();
                piece.iov_len -= done;
                return;
            }
            done -= piece.iov_len;
            self.next += 1;
        }
    }
}

/// Buffers to fill in order.
pub(crate) struct Scatter {
    pieces: Pieces,
    filled: u64,
    /// What `pieces` points into.
    bufs: Vec<Buf>,
}

impl Scatter {
    pub(crate) fn new(mut bufs: Vec<Buf>) -> Scatter {
        let pieces = bufs.iter_mut().map(|buf| (buf.address(), buf.len()));
        Scatter {
            pieces: Pieces::new(pieces),
            filled: 0,
            bufs,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pieces.is_done()
    }

    /// Bytes filled so far.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// What one call may fill; valid while `self` stays where it is and unchanged.
    pub(super) fn rest(&mut self) -> (*const libc::iovec, usize) {
        let rest = self.pieces.rest();
        (rest.as_ptr(), rest.len())
    }

    pub(crate) fn advance(&mut self, filled: usize) {
        self.filled += filled as u64;
        self.pieces.advance(filled);
    }

    pub(crate) fn into_bufs(self) -> Vec<Buf> {
        self.bufs
    }
}

/// Pieces to send in order, with the kernel's view of what is left of them.
pub(crate) struct Message {
    header: libc::msghdr,
    pieces: Pieces,
    /// Keeps the memory `pieces` points into.
    _views: Vec<View>,
}

impl Message {
    pub(crate) fn new(views: Vec<View>) -> Message {
        let pieces = views
            .iter()
            .map(|view| (view.address().cast_mut(), view.len()));
        Message {
            // SAFETY: all zeros is a valid msghdr: no name, no pieces, no control data.
            header: unsafe { std::mem::zeroed() },
            pieces: Pieces::new(pieces),
            _views: views,
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.pieces.is_done()
    }

    /// The kernel's header of what is left; valid while `self` stays where it is and unchanged.
    pub(super) fn header(&mut self) -> *const libc::msghdr {
        let rest = self.pieces.rest();
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len();
        &self.header
    }

    /// `sent` bytes more have gone.
    pub(crate) fn advance(&mut self, sent: usize) {
        self.pieces.advance(sent);
    }

    /// Sends what the socket takes now; `WouldBlock` if nothing.
    pub(crate) fn try_send(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let header = self.header();
        // SAFETY: the header points to pieces that `self` keeps.
        let sent = unsafe {
            libc::sendmsg(
                socket.as_raw_fd(),
                header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
