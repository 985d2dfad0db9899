//! Memory that outlives the process: a mapped file on a file system in memory.
//!
//! ```text
//! process -> mapped pages, which are the kernel's   process dies: they stay   machine stops: they are gone
//! ```
//!
//! Always true:
//! 1. What one process wrote before it died, the next one that maps the file reads.
//! 2. Every page is allocated when the file is opened: a full file system is an error there, and never a signal later.

#![allow(unsafe_code)] // Mapped pages are reached through a pointer; see `Mapping::at`.

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::mm::{MapFlags, ProtFlags};

use crate::fs::TMPFS;

/// Bytes that outlive the process.
///
/// # Example
/// ```
/// let memory = env::Mapping::simulated(4096);
/// memory.write(100, b"answered");
/// let mut found = [0; 8];
/// memory.read(100, &mut found);
/// assert_eq!(&found, b"answered");
/// ```
pub struct Mapping {
    bytes: Pages,
    len: usize,
}

enum Pages {
    /// Of a file, which stays open as long: it has the lock.
    File { start: NonNull<u8>, _file: File },
    Heap {
        bytes: Rc<UnsafeCell<Box<[u8]>>>,
        /// Does the simulated process that maps them live?
        lives: Box<dyn Fn() -> bool>,
    },
}

impl Mapping {
    /// Maps `len` bytes of the file `path`, which is made if there is none; what is in it stays, and what is missing reads
    /// as zeroes. No other process maps it through this function until this one has dropped it or died.
    ///
    /// # Errors
    /// The system's; also if the file is not on a tmpfs or is another user's, and `ResourceBusy` if another process maps it.
    ///
    /// # Example
    /// ```no_run
    /// let memory = env::Mapping::open("/dev/shm/example".as_ref(), 1 << 20)?;
    /// memory.write(0, &[7; 32]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(path: &Path, len: usize) -> io::Result<Mapping> {
        let refused = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        let status = file.metadata()?;
        if !status.is_file() || status.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused("it is not a regular file of this user"));
        }
        if rustix::fs::fstatfs(&file)?.f_type != TMPFS {
            return Err(refused("it is not on a file system in memory (tmpfs)"));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let why = refused("another process uses it");
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            answer => answer?,
        }
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        // SAFETY: the address is the kernel's choice, so nothing else is mapped there.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| refused("it was mapped at zero"))?;
        Ok(Mapping {
            bytes: Pages::File { start, _file: file },
            len,
        })
    }

    /// As many bytes on the heap, zeroes, for a simulated machine.
    pub fn simulated(len: usize) -> Mapping {
        Mapping {
            bytes: Pages::Heap {
                bytes: Rc::new(UnsafeCell::new(vec![0; len].into_boxed_slice())),
                lives: Box::new(|| true),
            },
            len,
        }
    }

    /// The same bytes, as another simulated process maps them. Each write asks first whether that one still `lives`: a
    /// dead process writes nothing.
    ///
    /// # Panics
    /// If it is a file that is mapped.
    pub fn of_process(&self, lives: impl Fn() -> bool + 'static) -> Mapping {
        let Pages::Heap { bytes, .. } = &self.bytes else {
            panic!("only simulated processes share a mapping");
        };
        Mapping {
            bytes: Pages::Heap {
                bytes: Rc::clone(bytes),
                lives: Box::new(lives),
            },
            len: self.len,
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from `at` on to `out`.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        // SAFETY: `at` has checked that as many bytes lie there, and `out` is elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at(at, out.len()), out.as_mut_ptr(), out.len())
        }
    }

    /// Puts `bytes` at `at`. What one call wrote is in the memory before anything of the next one is.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        if let Pages::Heap { lives, .. } = &self.bytes
            && !lives()
        {
            return;
        }
        // SAFETY: as for `read`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at, bytes.len()), bytes.len())
        }
        // A process dies between two instructions of one core: only the compiler could turn them round.
        compiler_fence(Ordering::SeqCst);
    }

    /// Where `len` bytes from `at` on are.
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {at} of {}",
            self.len
        );
        let start = match &self.bytes {
            Pages::File { start, .. } => start.as_ptr(),
            // SAFETY: no reference to the bytes is ever kept, and the type is of one thread.
            Pages::Heap { bytes, .. } => unsafe { (*bytes.get()).as_mut_ptr() },
        };
        // SAFETY: within the allocation, as was just checked.
        unsafe { start.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Pages::File { start, .. } = &self.bytes {
            // SAFETY: mapped by `open` with this length, and no pointer into it is left.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), self.len) };
        }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let path = Path::new("/dev/shm").join(format!("tanada-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_was_written_is_found_by_the_next_to_map_the_file() {
        let path = path("found");
        let first = Mapping::open(&path, 8192).unwrap();
        first.write(5000, b"answered");
        let refused = Mapping::open(&path, 8192).unwrap_err().to_string();
        assert!(refused.contains("another process uses it"), "{refused}");
        drop(first);
        let next = Mapping::open(&path, 8192).unwrap();
        let mut found = [1; 9];
        next.read(5000, &mut found);
        assert_eq!(&found, b"answered\0");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_a_reboot_would_keep_is_refused() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let refused = Mapping::open(&folder.path().join("log"), 4096);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("not on a file system in memory"),
            "{refused}"
        );
    }

    #[test]
    fn a_link_is_not_followed() {
        let (path, target) = (path("link"), path("target"));
        std::fs::write(&target, b"mine").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Mapping::open(&path, 4096).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        for path in [path, target] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4090 of 4096")]
    fn nothing_is_written_beyond_the_end() {
        Mapping::simulated(4096).write(4090, &[0; 8]);
    }
}
