//! Memory that another process sees, and may change at any moment.
//!
//! ```text
//! copy out: once, then compute     copy in     16-bit loads and stores in order, for the indices of rings
//! ```
//!
//! Always true: no reference to such bytes is ever made, only copies through pointers.

#![allow(unsafe_code)] // Mapped pages are reached through a pointer; see `SharedMemory::at`.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering, compiler_fence, fence};

use rustix::fs::FileType;
use rustix::mm::{MapFlags, ProtFlags};

use super::descriptor::{Descriptor, Heap, Kind, Object, Simulated, Writes, unfit};
use super::guard::Guarded;
use crate::fs::TMPFS;

/// `statfs` type of large pages in memory.
const HUGETLBFS: i64 = 0x9584_58f6;
/// A peer may always map so much.
const MAPPED_LEAST: u64 = 64 << 30;
/// Copies up to so long are made of single loads, so that nothing computed from them is ever read again.
const SINGLE_MAX: usize = 64;

/// See the module's head.
pub struct SharedMemory {
    pages: Pages,
    /// Where the first byte is in `pages`.
    start: usize,
    len: usize,
}

enum Pages {
    Mapped {
        start: NonNull<u8>,
        len: usize,
        guarded: Guarded,
    },
    Heap {
        bytes: Heap,
        writes: Option<Writes>,
    },
}

/// Checks that it is a file in memory of `end` bytes at least; the bytes of its pages.
fn page_of(descriptor: &OwnedFd, end: u64) -> io::Result<u64> {
    let status = rustix::fs::fstat(descriptor)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(unfit("it is no memory"));
    }
    // A page of another file system may never come, and this thread would wait for it.
    if ![TMPFS, HUGETLBFS].contains(&(rustix::fs::fstatfs(descriptor)?.f_type as i64)) {
        return Err(unfit(
            "guest memory has to be memfd, /dev/shm or hugetlbfs: other files can be taken from under the daemon",
        ));
    }
    if u64::try_from(status.st_size).is_ok_and(|size| size < end) {
        return Err(unfit("the memory is shorter than said"));
    }
    // Pages of hugetlbfs are mapped whole.
    Ok((status.st_blksize as u64).clamp(4096, 1 << 30))
}

impl SharedMemory {
    /// See [`Descriptor::map`].
    pub(super) fn of(descriptor: &Descriptor, at: u64, len: usize) -> io::Result<SharedMemory> {
        let end = at.checked_add(len as u64).filter(|_| len > 0);
        let end = end.ok_or_else(|| unfit("no bytes, or more than there can be"))?;
        let descriptor = match &descriptor.0 {
            Kind::Real(descriptor) => descriptor,
            Kind::Simulated(Simulated {
                object: Object::Memory(bytes),
                writes,
            }) => {
                // SAFETY: no reference to the bytes is ever kept, and the type is of one thread.
                let there = unsafe { (&*bytes.get()).len() };
                if end > there as u64 {
                    return Err(unfit("the memory is shorter than said"));
                }
                return Ok(SharedMemory {
                    pages: Pages::Heap {
                        bytes: bytes.clone(),
                        writes: writes.clone(),
                    },
                    start: at as usize,
                    len,
                });
            }
            Kind::Simulated(_) => return Err(unfit("it is no memory")),
        };
        let page = page_of(descriptor, end)?;
        let from = at - at % page;
        let whole = (end - from).next_multiple_of(page) as usize;
        // SAFETY: the address is the kernel's choice, so nothing else is mapped there.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &**descriptor,
                from,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| unfit("mapped at zero"))?;
        let guarded = Guarded::new(start.as_ptr().addr(), whole).inspect_err(|_| {
            // SAFETY: it was just mapped with this length, and nothing points into it.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), whole) };
        })?;
        let pages = Pages::Mapped {
            start,
            len: whole,
            guarded,
        };
        Ok(SharedMemory {
            pages,
            start: (at - from) as usize,
            len,
        })
    }

    /// Bytes that one peer may have mapped here: four times the machine's memory, 64 GiB at least. Files in memory are longer
    /// than that for nothing, and addresses are shared by all peers.
    pub fn most() -> u64 {
        if crate::executor::try_current(|core| core.is_simulated()) == Some(true) {
            return MAPPED_LEAST;
        }
        let system = rustix::system::sysinfo();
        let memory = (system.totalram as u64).saturating_mul(system.mem_unit.into());
        memory.saturating_mul(4).max(MAPPED_LEAST)
    }

    /// Memory of this process alone, `len` zeroes on the heap, for what is shared elsewhere.
    pub fn private(len: usize) -> SharedMemory {
        let bytes = vec![0; len].into_boxed_slice();
        let pages = Pages::Heap {
            bytes: Rc::new(std::cell::UnsafeCell::new(bytes)),
            writes: None,
        };
        SharedMemory {
            pages,
            start: 0,
            len,
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

    /// Did the peer take bytes away? What was there reads as zeroes, and what is written goes nowhere.
    pub fn is_broken(&self) -> bool {
        match &self.pages {
            Pages::Mapped { guarded, .. } => guarded.is_broken(),
            Pages::Heap { .. } => false,
        }
    }

    /// Copies the bytes from `at` on to `out`, each once.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.at(at, out.len());
        if out.len() > SINGLE_MAX {
            // SAFETY: `at` has checked that as many bytes lie there, and `out` is elsewhere. The peer may change them
            // meanwhile: each byte of the copy is then an old or a new one, and nothing is computed from the source.
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
            compiler_fence(Ordering::SeqCst);
            return;
        }
        let (words, bytes) = out.as_chunks_mut::<8>();
        let tail = words.len() * 8;
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: as above.
            let place = unsafe { from.add(number * 8) };
            *word = match place.addr().is_multiple_of(8) {
                // SAFETY: eight bytes of the range, aligned, as was just checked.
                true => unsafe { place.cast::<u64>().read_volatile() }.to_ne_bytes(),
                // SAFETY: as above, byte by byte.
                false => std::array::from_fn(|at| unsafe { place.add(at).read_volatile() }),
            };
        }
        for (offset, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { from.add(tail + offset).read_volatile() };
        }
    }

    /// Puts `bytes` at `at`. What one call wrote is seen before anything of a later [`SharedMemory::store_u16`].
    ///
    /// # Panics
    /// Beyond the end.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        if !self.may_write(at, bytes) {
            return;
        }
        // SAFETY: as for `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        compiler_fence(Ordering::SeqCst);
    }

    /// The number at `at`, little-endian; what is read later is at least as new.
    ///
    /// # Panics
    /// Beyond the end, or if `at` is odd in memory.
    pub fn load_u16(&self, at: usize) -> u16 {
        u16::from_le(self.number(at).load(Ordering::Acquire))
    }

    /// Puts the number there; what was written before is seen by who sees it.
    ///
    /// # Panics
    /// As [`SharedMemory::load_u16`].
    pub fn store_u16(&self, at: usize, value: u16) {
        if self.may_write(at, &value.to_le_bytes()) {
            self.number(at).store(value.to_le(), Ordering::Release);
        }
    }

    /// Can a number of two bytes be loaded from `at`?
    ///
    /// # Panics
    /// Beyond the end.
    pub fn is_even(&self, at: usize) -> bool {
        self.at(at, 0).addr().is_multiple_of(2)
    }

    /// What was written before is seen by the peer before this side reads what comes next.
    pub fn fence() {
        fence(Ordering::SeqCst);
    }

    fn number(&self, at: usize) -> &AtomicU16 {
        let at = self.at(at, 2);
        assert!(at.addr().is_multiple_of(2), "a number has an even address");
        // SAFETY: two bytes lie there, aligned, as was just checked, as long as `self` does; whole words are written by
        // the peer too, and a simulated one is on this thread.
        unsafe { AtomicU16::from_ptr(at.cast()) }
    }

    fn may_write(&self, at: usize, bytes: &[u8]) -> bool {
        match &self.pages {
            Pages::Heap {
                writes: Some(writes),
                ..
            } => writes(self.start + at, bytes),
            _ => true,
        }
    }

    /// Where `len` bytes from `at` on are.
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {at} of {}",
            self.len
        );
        let start = match &self.pages {
            Pages::Mapped { start, .. } => start.as_ptr(),
            // SAFETY: no reference to the bytes is ever kept, and the type is of one thread.
            Pages::Heap { bytes, .. } => unsafe { (*bytes.get()).as_mut_ptr() },
        };
        // SAFETY: within the allocation: `start + len` was checked when it was mapped.
        unsafe { start.add(self.start + at) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Pages::Mapped {
            start,
            len,
            guarded,
        } = &self.pages
        {
            guarded.forget();
            // SAFETY: mapped by `map` with this length, and no pointer into it is left.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), *len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn both_sides_of_a_real_memory_see_what_the_other_wrote() {
        let descriptor = Descriptor::memory(16384).unwrap();
        let (one, other) = (
            descriptor.map(4096, 8192).unwrap(),
            descriptor.map(5000, 100).unwrap(),
        );
        one.write(904, &[7; 100]);
        one.store_u16(906, 0x0102);
        let mut seen = [0; 100];
        other.read(0, &mut seen);
        assert_eq!(seen[..5], [7, 7, 2, 1, 7]);
        assert_eq!(other.load_u16(2), 0x0102);
        assert_eq!(
            descriptor.identity().unwrap(),
            descriptor.clone().identity().unwrap()
        );
    }

    #[test]
    fn more_than_there_is_cannot_be_mapped() {
        let descriptor = Descriptor::memory(8192).unwrap();
        let event = Descriptor::event().unwrap();
        for (descriptor, at, len) in [
            (&descriptor, 4096, 4097),
            (&descriptor, 0, 0),
            (&descriptor, u64::MAX, 2),
            (&event, 0, 8),
        ] {
            let refused = descriptor.map(at, len).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{at} {len}");
        }
    }

    /// Its pages may come from a file system that never answers.
    #[test]
    fn a_file_that_is_not_in_memory_is_refused() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(8192).unwrap();
        let refused = Descriptor::from(std::os::fd::OwnedFd::from(file)).map(0, 4096);
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(
            refused.contains("memfd, /dev/shm or hugetlbfs"),
            "{refused}"
        );
        let shm = tempfile::tempfile_in("/dev/shm").unwrap();
        shm.set_len(8192).unwrap();
        let shm = Descriptor::from(std::os::fd::OwnedFd::from(shm));
        assert_eq!(shm.map(0, 8192).unwrap().len(), 8192);
    }

    #[test]
    fn memory_that_a_peer_cuts_short_reads_as_zeroes() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let theirs = file.try_clone().unwrap();
        let descriptor = Descriptor::from(file);
        let memory = descriptor.map(0, 8192).unwrap();
        memory.write(4096, &[7; 200]);
        assert!(!memory.is_broken());
        rustix::fs::ftruncate(&theirs, 4096).unwrap();
        let mut seen = [1; 200];
        memory.read(4096, &mut seen);
        assert_eq!(seen, [0; 200]);
        assert!(memory.is_broken());
        memory.write(0, &[1; 100]);
        assert_eq!(memory.load_u16(4096), 0);
    }

    #[test]
    fn a_dead_process_writes_nothing() {
        crate::Runtime::simulated(1).block_on(async {
            let descriptor = Descriptor::memory(64).unwrap();
            let dead = descriptor.of_process(|at, bytes| at != 8 || bytes.len() != 2);
            let memory = dead.map(8, 8).unwrap();
            memory.store_u16(0, 7);
            memory.write(2, &[1, 2]);
            let mut seen = [9; 4];
            descriptor.map(8, 8).unwrap().read(0, &mut seen);
            assert_eq!(seen, [0, 0, 1, 2]);
        });
    }
}
