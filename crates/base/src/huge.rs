//! Memory for long buffers: pieces of huge pages.
//!
//! ```text
//! slab of 2 MiB, one huge page where the system has one -> pieces of one size -> pools of threads -> the last one back: unmapped
//! ```
//!
//! A device that reads past the page cache pins each page of a buffer. A huge page is pinned at once, and needs one entry of
//! the processor's table of addresses where small ones need 512.
//!
//! Always true:
//! 1. A piece is given out once until it comes back.
//! 2. A slab is unmapped when all of its pieces are back, whichever threads gave them back.

#![allow(unsafe_code)] // Mapped memory; see the rules above.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A huge page of the processors we run on, and its alignment.
pub(crate) const SLAB: usize = 2 << 20;

/// Pieces of each slab that are out, by where it starts. Taken when a slab is made and when a pool gives pieces back, not for
/// each buffer.
static OUT: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn out() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    // Each change of the map is whole, whichever thread panicked.
    OUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new slab, cut into pieces of `size`, a power of two from 4 KiB to 1 MiB; each reads as zeroes. None if the system has no
/// memory for it.
pub(crate) fn pieces(size: usize) -> Option<Vec<NonNull<u8>>> {
    let slab = map()?;
    let count = SLAB / size;
    out().insert(slab.as_ptr() as usize, count);
    // SAFETY: each piece lies within the slab.
    let piece = |number: usize| unsafe { slab.add(number * size) };
    Some((0..count).map(piece).collect())
}

/// Takes a piece back.
///
/// # Safety
/// It came from [`pieces`], was not given back since, and nothing uses it.
pub(crate) unsafe fn give_back(piece: NonNull<u8>) {
    let slab = piece.as_ptr() as usize / SLAB * SLAB;
    let mut out = out();
    let left = out.get_mut(&slab).expect("a piece is of a slab");
    *left -= 1;
    if *left == 0 {
        out.remove(&slab);
        drop(out);
        let inside = piece.as_ptr() as usize - slab;
        // SAFETY: the slab was mapped as a whole in `map`, and all of its pieces are back.
        let unmapped = unsafe { munmap(piece.as_ptr().sub(inside).cast(), SLAB) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Maps one slab at a multiple of its size.
fn map() -> Option<NonNull<u8>> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, at a place of the system's choice.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * SLAB, protection, flags) };
    let mapped = mapped.ok()?.cast::<u8>();
    let before = mapped.align_offset(SLAB);
    // SAFETY: twice the size has an aligned slab in it; what lies before and behind it is no part of it, and of no other.
    let slab = unsafe {
        let slab = mapped.add(before);
        if before > 0 {
            let _ = munmap(mapped.cast(), before);
        }
        let _ = munmap(slab.add(SLAB).cast(), SLAB - before);
        slab
    };
    // SAFETY: the whole slab; the advice changes no byte. Where there are no huge pages small ones do.
    let _ = unsafe { madvise(slab.cast(), SLAB, Advice::LinuxHugepage) };
    NonNull::new(slab)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_out(slab: usize) -> bool {
        out().contains_key(&slab)
    }

    #[test]
    fn a_slab_is_cut_without_gaps_and_goes_when_its_last_piece_is_back() {
        for size in [256 << 10, 1 << 20] {
            let pieces = pieces(size).unwrap();
            let slab = pieces[0].as_ptr() as usize;
            assert_eq!((slab % SLAB, pieces.len()), (0, SLAB / size));
            for (number, piece) in pieces.iter().enumerate() {
                assert_eq!(piece.as_ptr() as usize, slab + number * size);
                // SAFETY: the piece is ours.
                let bytes = unsafe { std::slice::from_raw_parts_mut(piece.as_ptr(), size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(number as u8 + 1);
            }
            let (last, others) = pieces.split_last().unwrap();
            for piece in others.iter().rev() {
                // SAFETY: it came from `pieces`, and is given back once.
                unsafe { give_back(*piece) };
                assert!(is_out(slab));
            }
            // SAFETY: it is still mapped, and ours.
            assert_eq!(unsafe { *last.as_ptr() }, (SLAB / size) as u8);
            // SAFETY: as above.
            unsafe { give_back(*last) };
            assert!(!is_out(slab));
        }
    }
}
