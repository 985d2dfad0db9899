//! Owned, aligned buffers: the one shape in which data travels between levels.
//!
//! ```text
//! Buf (one owner, writable) --freeze--> View (many owners, read only)
//! ```
//!
//! Memory comes from a pool of the thread, in size classes, aligned to 4096 bytes, and goes back when
//! the last owner drops it. A `Buf` can be cut in pieces that are filled apart and joined again.
//!
//! Always true:
//! 1. No two `Buf`s share a byte, and no `Buf` shares one with a `View`.
//! 2. Every byte of a buffer was initialised once; a reused one may hold old contents until written.
//! 3. A fresh buffer starts on a 4096-byte boundary.

#![allow(unsafe_code)] // Aligned memory and disjoint ranges of one allocation; see the rules above.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Alignment of every buffer, and the unit of mapping and checksums: 4 KiB.
pub const PAGE: usize = 4096;

/// Size classes of the pool in bytes; larger buffers come straight from the allocator.
const CLASSES: [usize; 5] = [PAGE, 4 * PAGE, 16 * PAGE, 64 * PAGE, 256 * PAGE];
/// Each class keeps at most this many bytes for reuse.
const KEPT_PER_CLASS: usize = 32 << 20;

struct Memory {
    at: NonNull<u8>,
    capacity: usize,
}

/// Memory kept for reuse, by class; goes back to the system when the thread ends.
struct Pool([Vec<NonNull<u8>>; CLASSES.len()]);

impl Drop for Pool {
    fn drop(&mut self) {
        for (list, &capacity) in self.0.iter_mut().zip(&CLASSES) {
            for at in list.drain(..) {
                // SAFETY: allocated in `fresh` with this very layout, and only the pool has it.
                unsafe { dealloc(at.as_ptr(), layout(capacity)) }
            }
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool([const { Vec::new() }; CLASSES.len()])) };
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, PAGE).expect("a buffer is far smaller than the address space")
}

impl Memory {
    fn take(len: usize) -> (Memory, bool) {
        let Some(class) = CLASSES.iter().position(|&size| len <= size) else {
            return (Memory::fresh(len.next_multiple_of(PAGE)), true);
        };
        let kept = POOL
            .try_with(|pool| pool.borrow_mut().0[class].pop())
            .ok()
            .flatten();
        match kept {
            Some(at) => (
                Memory {
                    at,
                    capacity: CLASSES[class],
                },
                false,
            ),
            None => (Memory::fresh(CLASSES[class]), true),
        }
    }

    fn fresh(capacity: usize) -> Memory {
        let capacity = capacity.max(PAGE);
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout(capacity)) };
        let Some(at) = NonNull::new(raw) else {
            handle_alloc_error(layout(capacity))
        };
        Memory { at, capacity }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(class) = CLASSES.iter().position(|&size| size == self.capacity) {
            let kept = POOL.try_with(|pool| {
                let list = &mut pool.borrow_mut().0[class];
                let room = list.len() * self.capacity < KEPT_PER_CLASS;
                if room {
                    list.push(self.at);
                }
                room
            });
            if kept == Ok(true) {
                return;
            }
        }
        // SAFETY: allocated in `fresh` with this very layout, and no owner is left.
        unsafe { dealloc(self.at.as_ptr(), layout(self.capacity)) }
    }
}

/// A writable buffer with one owner. See the module's head.
///
/// # Example
/// ```
/// use base::Buf;
/// let mut buf = Buf::zeroed(8192);
/// let mut tail = buf.split_off(4096);
/// tail.fill(7);
/// buf.join(tail);
/// let view = buf.freeze();
/// assert_eq!((view[0], view[8191]), (0, 7));
/// ```
pub struct Buf {
    memory: Rc<Memory>,
    start: usize,
    len: usize,
}

/// A read-only piece of a buffer with any number of owners; cloning and slicing copy no data.
#[derive(Clone)]
pub struct View {
    memory: Rc<Memory>,
    start: usize,
    len: usize,
}

impl Buf {
    /// A buffer of `len` bytes with unspecified (but initialised) contents, for a read to fill.
    pub fn for_read(len: usize) -> Buf {
        let (memory, _) = Memory::take(len);
        Buf {
            memory: Rc::new(memory),
            start: 0,
            len,
        }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Buf {
        let (memory, fresh) = Memory::take(len);
        let mut buf = Buf {
            memory: Rc::new(memory),
            start: 0,
            len,
        };
        if !fresh {
            buf.fill(0);
        }
        buf
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        let mut buf = Buf::for_read(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Cuts the buffer at `at`: keeps the head, returns the rest.
    ///
    /// # Panics
    /// If `at` is behind the end.
    pub fn split_off(&mut self, at: usize) -> Buf {
        assert!(at <= self.len, "cut at {at} of a {}-byte buffer", self.len);
        let tail = Buf {
            memory: Rc::clone(&self.memory),
            start: self.start + at,
            len: self.len - at,
        };
        self.len = at;
        tail
    }

    /// Joins a piece that `split_off` cut from the end of this one.
    ///
    /// # Panics
    /// If `tail` is not the very next piece of the same buffer.
    pub fn join(&mut self, tail: Buf) {
        assert!(
            Rc::ptr_eq(&self.memory, &tail.memory) && self.start + self.len == tail.start,
            "only neighbours of one buffer join"
        );
        self.len += tail.len;
    }

    /// Shortens the buffer to `len` bytes; longer than it is changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives up writing: the contents as a shareable view.
    pub fn freeze(self) -> View {
        View {
            memory: self.memory,
            start: self.start,
            len: self.len,
        }
    }

    /// Where the buffer starts in memory; stays put until the last owner drops.
    pub fn address(&mut self) -> *mut u8 {
        // SAFETY: `start` is within the allocation.
        unsafe { self.memory.at.as_ptr().add(self.start) }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: within the allocation, initialised, and this range has one owner: us.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way in.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at.as_ptr().add(self.start), self.len) }
    }
}

impl View {
    /// A view of no bytes.
    pub fn empty() -> View {
        Buf::for_read(0).freeze()
    }

    /// A view of a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> View {
        Buf::copy_of(bytes).freeze()
    }

    /// The piece `from..from + len`, sharing the memory.
    ///
    /// # Panics
    /// If the piece is not within the view.
    pub fn slice(&self, from: usize, len: usize) -> View {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len),
            "slice {from}+{len} of a {}-byte view",
            self.len
        );
        View {
            memory: Rc::clone(&self.memory),
            start: self.start + from,
            len,
        }
    }

    /// Writable again, without a copy if this is the only owner of the whole allocation, else a copy.
    pub fn into_buf(self) -> Buf {
        if Rc::strong_count(&self.memory) == 1 {
            Buf {
                memory: self.memory,
                start: self.start,
                len: self.len,
            }
        } else {
            Buf::copy_of(&self)
        }
    }

    /// Where the view starts in memory; stays put until the last owner drops.
    pub fn address(&self) -> *const u8 {
        // SAFETY: `start` is within the allocation.
        unsafe { self.memory.at.as_ptr().add(self.start) }
    }
}

impl Deref for View {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: within the allocation, initialised, and no `Buf` covers this range any more.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(self.start), self.len) }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_buffer_is_aligned_and_a_zeroed_one_is_zero_even_when_reused() {
        for len in [1, 512, 4096, 5000, 1 << 20, 3 << 20] {
            let mut dirty = Buf::for_read(len);
            dirty.fill(0xff);
            drop(dirty);
            let mut buf = Buf::zeroed(len);
            assert_eq!(buf.address() as usize % PAGE, 0);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn pieces_filled_apart_join_in_order() {
        let mut head = Buf::zeroed(3 * 512);
        let mut middle = head.split_off(512);
        let mut tail = middle.split_off(512);
        head.fill(1);
        middle.fill(2);
        tail.fill(3);
        middle.join(tail);
        head.join(middle);
        let view = head.freeze();
        assert_eq!([view[0], view[512], view[1024], view[1535]], [1, 2, 3, 3]);
        assert_eq!(view.slice(512, 512)[..], [2; 512]);
    }

    #[test]
    #[should_panic(expected = "only neighbours")]
    fn strangers_do_not_join() {
        let mut a = Buf::zeroed(512);
        a.join(Buf::zeroed(512));
    }

    #[test]
    fn a_shared_view_is_copied_before_it_is_written() {
        let view = View::copy_of(b"abc");
        let other = view.clone();
        let mut buf = view.into_buf();
        buf[0] = b'x';
        assert_eq!(&other[..], b"abc");
        assert_eq!(&buf[..], b"xbc");
    }
}
