//! What the kernel is asked to do, with all the memory and descriptors it needs for that.

#![allow(unsafe_code)] // The kernel's view of a message is made of pointers into its pieces.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use base::{Buf, View};
use rustix::event::PollFlags;

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

/// Pieces to send in order, with the kernel's view of what is left of them.
pub(crate) struct Message {
    header: libc::msghdr,
    rest: Vec<libc::iovec>,
    /// First entry of `rest` not yet sent.
    next: usize,
    /// Keeps the memory `rest` points into.
    _pieces: Vec<View>,
}

/// Most pieces one sendmsg takes (IOV_MAX).
const PIECES_MAX: usize = 1024;

impl Message {
    pub(crate) fn new(pieces: Vec<View>) -> Message {
        let rest = pieces
            .iter()
            .filter(|piece| !piece.is_empty())
            .map(|piece| libc::iovec {
                iov_base: piece.address().cast_mut().cast(),
                iov_len: piece.len(),
            })
            .collect();
        Message {
            // SAFETY: all zeros is a valid msghdr: no name, no pieces, no control data.
            header: unsafe { std::mem::zeroed() },
            rest,
            next: 0,
            _pieces: pieces,
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.next == self.rest.len()
    }

    /// The kernel's header of what is left; valid while `self` stays where it is and unchanged.
    pub(super) fn header(&mut self) -> *const libc::msghdr {
        let rest = &mut self.rest[self.next..];
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len().min(PIECES_MAX);
        &self.header
    }

    /// `sent` bytes more have gone.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.rest.get_mut(self.next) {
            if sent < piece.iov_len {
                // SAFETY: stays within the piece, since fewer bytes than it has are gone.
                piece.iov_base = unsafe { piece.iov_base.cast::<u8>().add(sent) }.cast();
                piece.iov_len -= sent;
                return;
            }
            sent -= piece.iov_len;
            self.next += 1;
        }
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
