//! Commands for a disk behind the kernel's SCSI layer, which SATA disks are behind, too (`SG_IO`).
//!
//! ```text
//! bytes of a command -> a thread waits for the disk -> status, sense data, what was read
//! ```
//!
//! What the bytes mean is the caller's business. A simulated runtime has no disks: sending one there is an error.

#![allow(unsafe_code)] // The kernel is handed pointers to the command and to room for its answer.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use base::Nanos;
use rustix::fs::{Mode, OFlags};

use crate::executor::start;
use crate::real::Operation;

/// Room for sense data: more than disks send.
const SENSE_MAX: usize = 64;
/// The longest command that disks take.
const COMMAND_MAX: usize = 16;
/// Nothing, or data of the disk, go along with the command.
const NO_DATA: i32 = -1;
const FROM_DISK: i32 = -3;

/// `sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
struct Header {
    interface: i32,
    direction: i32,
    command_len: u8,
    sense_max: u8,
    pieces: u16,
    data_len: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    limit_ms: u32,
    flags: u32,
    pack: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host: u16,
    driver: u16,
    left: i32,
    took_ms: u32,
    info: u32,
}

/// A command, and room for its answer.
pub(crate) struct Exchange {
    header: Header,
    command: [u8; COMMAND_MAX],
    sense: [u8; SENSE_MAX],
    data: Vec<u8>,
}

impl Exchange {
    fn new(command: &[u8], reply: usize, limit: Nanos) -> Exchange {
        let mut bytes = [0; COMMAND_MAX];
        bytes[..command.len()].copy_from_slice(command);
        Exchange {
            header: Header {
                interface: i32::from(b'S'),
                direction: if reply > 0 { FROM_DISK } else { NO_DATA },
                command_len: command.len() as u8,
                sense_max: SENSE_MAX as u8,
                pieces: 0,
                data_len: reply as u32,
                data: std::ptr::null_mut(),
                command: std::ptr::null(),
                sense: std::ptr::null_mut(),
                limit_ms: u32::try_from(limit.0 / 1_000_000).unwrap_or(u32::MAX),
                flags: 0,
                pack: 0,
                user: std::ptr::null_mut(),
                status: 0,
                masked_status: 0,
                message_status: 0,
                sense_len: 0,
                host: 0,
                driver: 0,
                left: 0,
                took_ms: 0,
                info: 0,
            },
            command: bytes,
            sense: [0; SENSE_MAX],
            data: vec![0; reply],
        }
    }

    /// What the kernel is handed. Good as long as this stays where it is.
    pub(crate) fn header(&mut self) -> *mut libc::c_void {
        self.header.data = self.data.as_mut_ptr();
        self.header.command = self.command.as_ptr();
        self.header.sense = self.sense.as_mut_ptr();
        (&raw mut self.header).cast()
    }

    fn answer(mut self) -> ScsiAnswer {
        let header = &self.header;
        let missing = usize::try_from(header.left).unwrap_or(0);
        self.data.truncate(self.data.len().saturating_sub(missing));
        let sense = usize::from(header.sense_len).min(SENSE_MAX);
        ScsiAnswer {
            status: header.status,
            host: header.host,
            driver: header.driver,
            sense: self.sense[..sense].to_vec(),
            data: self.data,
        }
    }
}

/// What came back for a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScsiAnswer {
    /// The disk's status byte: 0 is good, 2 has sense data.
    pub status: u8,
    /// What the host adapter's driver says; 0: nothing.
    pub host: u16,
    /// What the kernel's layer says; 0: nothing, 8: there is sense data.
    pub driver: u16,
    /// Sense data, as they came.
    pub sense: Vec<u8>,
    /// What was read.
    pub data: Vec<u8>,
}

/// A disk that is sent commands, beside whatever reads and writes it.
#[derive(Clone)]
pub struct ScsiFile {
    descriptor: Rc<OwnedFd>,
}

impl ScsiFile {
    /// Opens the disk at `path`; its medium is not looked at.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// assert!(env::scsi::ScsiFile::open("/dev/no-such-disk".as_ref()).is_err());
    /// ```
    pub fn open(path: &Path) -> io::Result<ScsiFile> {
        // Commands that change a disk's state are for those who may write to it.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(ScsiFile {
            descriptor: Rc::new(rustix::fs::open(path, flags, Mode::empty())?),
        })
    }

    /// Sends `command`, which is answered with `reply` bytes at most, within `limit`. A future dropped early stops nothing.
    ///
    /// The answer is an error where the kernel sends no such commands to this device (`ENOTTY`), or not for this
    /// process (`EPERM`). What the disk refuses is in the answer.
    ///
    /// # Panics
    /// If the command is longer than 16 bytes.
    pub fn send(
        &self,
        command: &[u8],
        reply: usize,
        limit: Nanos,
    ) -> impl Future<Output = io::Result<ScsiAnswer>> + 'static {
        assert!(command.len() <= COMMAND_MAX, "{} bytes", command.len());
        let exchange = Box::new(Exchange::new(command, reply, limit));
        let file = Rc::clone(&self.descriptor);
        async move {
            let (result, operation) = start(Operation::Scsi { file, exchange })?.await;
            result?;
            match operation {
                Operation::Scsi { exchange, .. } => Ok(exchange.answer()),
                _ => unreachable!("an operation comes back as what it was"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RealConfig, Runtime};

    #[test]
    fn the_header_is_laid_out_as_the_kernel_has_it() {
        // Offsets of `sg_io_hdr` on 64-bit Linux.
        assert_eq!(size_of::<Header>(), 88);
        assert_eq!(std::mem::offset_of!(Header, data), 16);
        assert_eq!(std::mem::offset_of!(Header, status), 64);
        assert_eq!(std::mem::offset_of!(Header, info), 80);
    }

    #[test]
    fn an_answer_is_cut_to_what_came_whatever_the_kernel_says() {
        let mut exchange = Exchange::new(&[0x12, 0, 0, 0, 96, 0], 96, Nanos::secs(1));
        exchange.header.left = 60;
        exchange.header.sense_len = 200;
        let answer = exchange.answer();
        assert_eq!((answer.data.len(), answer.sense.len()), (36, SENSE_MAX));
        let mut exchange = Exchange::new(&[0; 6], 4, Nanos::secs(1));
        exchange.header.left = 500;
        assert_eq!(exchange.answer().data.len(), 0);
    }

    #[test]
    fn what_is_no_disk_answers_with_the_systems_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        let refused = runtime.block_on(async move {
            let file = ScsiFile::open(&path).unwrap();
            file.send(&[0; 6], 0, Nanos::secs(1)).await.unwrap_err()
        });
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTTY));
    }
}
