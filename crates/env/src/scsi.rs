//! Commands for a disk behind the kernel's SCSI layer, which SATA disks are behind, too (`SG_IO`).
//!
//! ```text
//! bytes of a command -> a thread waits for the disk -> status, sense data, what was read
//! ```
//!
//! What the bytes mean is the caller's business. A simulated runtime has no disks: sending one there is an error.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use base::Nanos;
use rustix::fs::{Mode, OFlags};

use crate::executor::start;
use crate::real::{Answered, Exchange, Operation};

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

impl From<Answered> for ScsiAnswer {
    fn from(answered: Answered) -> ScsiAnswer {
        let Answered {
            status,
            host,
            driver,
            sense,
            data,
        } = answered;
        ScsiAnswer {
            status,
            host,
            driver,
            sense,
            data,
        }
    }
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

    /// Which disk was opened, for the system's questions.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
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
        let exchange = Box::new(Exchange::new(command, reply, limit));
        let file = Rc::clone(&self.descriptor);
        async move {
            let (result, operation) = start(Operation::Scsi { file, exchange })?.await;
            result?;
            match operation {
                Operation::Scsi { exchange, .. } => Ok(ScsiAnswer::from(exchange.answer())),
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
