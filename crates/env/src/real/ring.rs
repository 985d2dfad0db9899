//! One io_uring: operations in, results out, one call of the kernel per turn.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use base::Nanos;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::wake::Wake;
use super::{Operation, leave};

/// Marks completions of the watch on the wake-up eventfd.
const WAKE: u64 = u64::MAX;
/// Marks completions of cancellations, which carry no result: the cancelled operation ends by itself.
const CANCEL: u64 = u64::MAX - 1;
/// Most bytes of one call; longer ones come back short and go on.
const BYTES_MAX: usize = 1 << 30;

/// See the module's head.
pub(super) struct Ring {
    ring: IoUring,
    wake: Arc<Wake>,
    /// Does the ring watch the eventfd?
    armed: bool,
    /// What found the submission ring full.
    backlog: VecDeque<squeue::Entry>,
}

impl Ring {
    /// A ring with what this kernel offers to make it fast.
    ///
    /// # Errors
    /// If the kernel refuses io_uring, or is older than 5.13, which added the last part needed here.
    pub(super) fn new(entries: u32, wake: Arc<Wake>) -> io::Result<Ring> {
        let entries = entries.clamp(8, 4096);
        let sized = || {
            let mut builder = IoUring::builder();
            builder
                .dontfork()
                .setup_clamp()
                .setup_cqsize(entries.next_power_of_two() * 4);
            builder
        };
        // Kernel 6.1, then 5.19, then any.
        let ring = sized()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(entries)
            .or_else(|_| {
                sized()
                    .setup_coop_taskrun()
                    .setup_taskrun_flag()
                    .build(entries)
            })
            .or_else(|_| sized().build(entries))?;
        let offered = ring.params();
        // Resource tags came with multi-shot poll, in 5.13.
        if !(offered.is_feature_ext_arg()
            && offered.is_feature_nodrop()
            && offered.is_feature_resource_tagging())
        {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is older than Linux 5.13",
            ));
        }
        Ok(Ring {
            ring,
            wake,
            armed: false,
            backlog: VecDeque::new(),
        })
    }

    /// Queues `operation`; its result comes under `name` at a later turn.
    ///
    /// # Safety
    /// The operation stays alive and untouched until its result has come; its buffers and its message
    /// stay where they are.
    pub(super) unsafe fn start(&mut self, name: u64, operation: &mut Operation) {
        let entry = match operation {
            Operation::Nop => opcode::Nop::new().build(),
            Operation::Read {
                file,
                buf,
                filled,
                at,
            } => {
                let len = (buf.len() - *filled).min(BYTES_MAX);
                let to = buf[*filled..].as_mut_ptr();
                opcode::Read::new(types::Fd(file.as_raw_fd()), to, len as u32)
                    .offset(*at + *filled as u64)
                    .build()
            }
            Operation::ReadVectored { file, pieces, at } => {
                let from = *at + pieces.filled();
                let (rest, count) = pieces.rest();
                opcode::Readv::new(types::Fd(file.as_raw_fd()), rest, count as u32)
                    .offset(from)
                    .build()
            }
            Operation::Write {
                file,
                data,
                written,
                at,
                dsync,
            } => {
                let len = (data.len() - *written).min(BYTES_MAX);
                let from = data[*written..].as_ptr();
                opcode::Write::new(types::Fd(file.as_raw_fd()), from, len as u32)
                    .offset(*at + *written as u64)
                    .rw_flags(if *dsync { libc::RWF_DSYNC } else { 0 })
                    .build()
            }
            Operation::Sync { file } => opcode::Fsync::new(types::Fd(file.as_raw_fd()))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Operation::Allocate {
                file,
                mode,
                at,
                len,
            } => opcode::Fallocate::new(types::Fd(file.as_raw_fd()), *len)
                .offset(*at)
                .mode(*mode)
                .build(),
            operation => peer_entry(operation),
        };
        self.push(entry.user_data(name));
    }

    /// Stays open until this thread has ended: drivers have commands of it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn close_behind(&self) -> io::Result<()> {
        // SAFETY: the ring is open while this borrows it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        leave::close_behind(descriptor)
    }

    /// Asks for the operation under `name` to end early. It still ends with a result.
    pub(super) fn cancel(&mut self, name: u64) {
        self.push(opcode::AsyncCancel::new(name).build().user_data(CANCEL));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        if !self.try_push(&entry) {
            self.enter(None);
            if !self.try_push(&entry) {
                self.backlog.push_back(entry);
            }
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: `start` passes the duty on to its caller; the other entries point to no memory.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Submits what is queued, waits up to `wait` for a result (not at all if `None`, for ever if
    /// `u64::MAX`), and appends what has ended to `ended`: the name's lower half and the result.
    pub(super) fn turn(&mut self, wait: Option<Nanos>, ended: &mut Vec<(u32, i32)>) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                break;
            }
        }
        if !self.armed {
            let event = types::Fd(self.wake.event().as_raw_fd());
            // Each write to the eventfd makes a completion; its count is never read.
            let watch = opcode::PollAdd::new(event, libc::POLLIN as u32)
                .multi(true)
                .build()
                .user_data(WAKE);
            self.armed = self.try_push(&watch);
        }
        // With a backlog the ring is full: submit and come back for the rest.
        let idle = self.armed && self.backlog.is_empty() && self.ring.completion().is_empty();
        match wait {
            Some(wait) if idle => self.enter(Some(wait)),
            _ => {
                let submission = self.ring.submission();
                if !submission.is_empty() || submission.taskrun() || submission.cq_overflow() {
                    drop(submission);
                    self.enter(None);
                }
            }
        }
        for completion in self.ring.completion() {
            match completion.user_data() {
                WAKE => self.armed = cqueue::more(completion.flags()),
                CANCEL => {}
                name => ended.push((name as u32, completion.result())),
            }
        }
    }

    fn enter(&mut self, wait: Option<Nanos>) {
        let answer = match wait {
            None => self.ring.submit(),
            Some(Nanos(u64::MAX)) => self.ring.submit_and_wait(1),
            Some(span) => {
                let span = types::Timespec::from(span.duration());
                let limits = types::SubmitArgs::new().timespec(&span);
                self.ring.submitter().submit_with_args(1, &limits)
            }
        };
        if let Err(error) = answer {
            match error.raw_os_error() {
                // Time is up; a signal came; results must be taken or memory freed first: next turn.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter of our own ring was refused: {error}"),
            }
        }
    }
}

/// Of an operation that a peer ends, or a driver.
fn peer_entry(operation: &mut Operation) -> squeue::Entry {
    match operation {
        Operation::Receive {
            socket,
            buf,
            filled,
            whole,
        } => {
            let len = (buf.len() - *filled).min(BYTES_MAX);
            let to = buf[*filled..].as_mut_ptr();
            opcode::Recv::new(types::Fd(socket.as_raw_fd()), to, len as u32)
                .flags(if *whole { libc::MSG_WAITALL } else { 0 })
                .build()
        }
        Operation::Send { socket, message } => {
            opcode::SendMsg::new(types::Fd(socket.as_raw_fd()), message.header())
                .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
                .build()
        }
        Operation::Ready { socket, events } => {
            opcode::PollAdd::new(types::Fd(socket.as_raw_fd()), u32::from(events.bits())).build()
        }
        Operation::Command {
            file,
            code,
            payload,
        } => opcode::UringCmd16::new(types::Fd(file.as_raw_fd()), *code)
            .cmd(*payload)
            .build(),
        Operation::Discard { .. } | Operation::Scsi { .. } => {
            unreachable!("ioctls are the threads' work")
        }
        _ => unreachable!("the ring has an entry for it itself"),
    }
}
