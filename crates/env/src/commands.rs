//! Files of drivers that are spoken to by io_uring commands (`IORING_OP_URING_CMD`): ublk's.
//!
//! ```text
//! CommandFile: a future a command, in the runtime's own ring     what the driver shows: mapped, read only
//! ControlFile: one command at a time, in a ring of its own, and the thread waits
//! ```
//!
//! A simulated runtime has no drivers, and a runtime on the thread pool no commands: both are errors.

#![allow(unsafe_code)] // Mapped pages are reached through a pointer, and a command may point to memory.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::executor::start;
use crate::real::Operation;

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A driver's file whose commands end in the order that the driver chooses.
#[derive(Clone)]
pub struct CommandFile {
    descriptor: Rc<OwnedFd>,
}

impl CommandFile {
    /// Opens the driver's file at `path`.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// assert!(env::commands::CommandFile::open("/dev/no-such-driver".as_ref()).is_err());
    /// ```
    pub fn open(path: &Path) -> io::Result<CommandFile> {
        Ok(CommandFile {
            descriptor: Rc::new(open(path)?),
        })
    }

    /// Sends command `code` with its payload; ends with what the driver returns. Dropped early it is cancelled.
    pub fn command(
        &self,
        code: u32,
        payload: [u8; 16],
    ) -> impl Future<Output = io::Result<u32>> + 'static {
        let file = Rc::clone(&self.descriptor);
        async move {
            let command = Operation::Command {
                file,
                code,
                payload,
            };
            let (result, _) = start(command)?.await;
            result.map(|value| value as u32)
        }
    }

    /// Maps `len` bytes that the driver shows from `at` on.
    ///
    /// # Errors
    /// The system's.
    pub fn map(&self, at: u64, len: usize) -> io::Result<Shown> {
        // SAFETY: the address is the kernel's choice, so nothing else is mapped there.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                &*self.descriptor,
                at,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Shown { start, len })
    }

    /// Fills `out` from `at` on: a copy that waits for no device.
    ///
    /// # Errors
    /// The driver's; `UnexpectedEof` if it has less.
    pub fn copy_in(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            match rustix::io::pread(&*self.descriptor, &mut out[filled..], at + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Puts `data` at `at`: a copy that waits for no device.
    ///
    /// # Errors
    /// The driver's; `WriteZero` if it takes less.
    pub fn copy_out(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&*self.descriptor, &data[written..], at + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Memory that a driver writes and this process reads.
pub struct Shown {
    start: NonNull<u8>,
    len: usize,
}

impl Shown {
    /// Copies the bytes from `at` on to `out`.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        assert!(
            at.checked_add(out.len()).is_some_and(|end| end <= self.len),
            "{} bytes at {at} of {}",
            out.len(),
            self.len
        );
        for (offset, byte) in out.iter_mut().enumerate() {
            // SAFETY: within the mapping, as was just checked; the driver may change it meanwhile.
            *byte = unsafe { self.start.as_ptr().add(at + offset).read_volatile() };
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no pointer into it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A driver's file for commands with 80 bytes of payload, one at a time. The thread waits for each.
pub struct ControlFile {
    descriptor: OwnedFd,
    /// None after an error that leaves open what the kernel still has of a command.
    ring: Option<ControlRing>,
}

type ControlRing = IoUring<squeue::Entry128, cqueue::Entry>;

fn control_ring() -> io::Result<ControlRing> {
    IoUring::builder().dontfork().build(4)
}

impl ControlFile {
    /// Opens the driver's file at `path`.
    ///
    /// # Errors
    /// The system's; also if the kernel has no io_uring with long entries (before 5.19).
    pub fn open(path: &Path) -> io::Result<ControlFile> {
        Ok(ControlFile {
            descriptor: open(path)?,
            ring: Some(control_ring()?),
        })
    }

    /// Sends command `code` and waits for its end. The driver is told of `memory` in the payload, as in ublk's: bytes 6 and 7
    /// are its length, bytes 8 to 15 its address; both are 0 if it is empty.
    ///
    /// # Errors
    /// The driver's; `InvalidInput` if the memory is longer than a length can say.
    pub fn command(
        &mut self,
        code: u32,
        mut payload: [u8; 80],
        memory: &mut [u8],
    ) -> io::Result<u32> {
        let len = u16::try_from(memory.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let address = match memory.is_empty() {
            true => 0,
            false => memory.as_mut_ptr() as u64,
        };
        payload[6..8].copy_from_slice(&len.to_ne_bytes());
        payload[8..16].copy_from_slice(&address.to_ne_bytes());
        let mut ring = match self.ring.take() {
            Some(ring) => ring,
            None => control_ring()?,
        };
        let entry = opcode::UringCmd80::new(types::Fd(self.descriptor.as_raw_fd()), code)
            .cmd(payload)
            .build();
        // SAFETY: the memory is borrowed until the command has ended. On an error the ring goes away instead, and with it
        // what the kernel has not begun.
        unsafe { ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("a ring of four entries is full"))?;
        let result = loop {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if let Some(ended) = ring.completion().next() {
                break ended.result();
            }
        };
        self.ring = Some(ring);
        u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }
}

/// Tells the kernel that this thread serves a block device: memory that it asks for is never waited for behind writes to
/// that device.
///
/// # Errors
/// The system's: it takes `CAP_SYS_RESOURCE`.
pub fn serve_block_devices() -> io::Result<()> {
    const PR_SET_IO_FLUSHER: i32 = 57;
    // SAFETY: the call takes numbers alone.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
