//! Owned, aligned buffers: the one shape in which data travels between levels.
//!
//! ```text
//! Buf (one owner, writable) --freeze--> View (many owners, read only)
//! ```
//!
//! Memory comes from a pool of the thread, in size classes, aligned to 4096 bytes, and goes back when
//! the last owner drops it; that of long buffers is cut from huge pages. A `Buf` can be cut in pieces that are filled apart and joined again.
//!
//! Always true:
//! 1. No two `Buf`s share a byte. One that shares its bytes with a `View` takes a copy before it is written.
//! 2. Every byte of a buffer was initialised once; a reused one may hold old contents until written.
//! 3. A fresh buffer starts on a 4096-byte boundary.
//! 4. Memory that is known to be zero is zero: a caller that may write to it takes that knowledge away first.

#![allow(unsafe_code)] // Aligned memory and disjoint ranges of one allocation; see the rules above.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::huge;

/// Alignment of every buffer, and the unit of mapping and checksums: 4 KiB.
pub const PAGE: usize = 4096;

/// Size classes of the pool in bytes; larger buffers come straight from the allocator.
const CLASSES: [usize; 5] = [PAGE, 4 * PAGE, 16 * PAGE, 64 * PAGE, 256 * PAGE];
/// Classes from this one on are pieces of huge pages. Smaller ones are not: a piece that is in use or kept holds its whole slab,
/// and there would be more of them.
const HUGE_FROM: usize = 4;
/// Each class keeps at most this many bytes for reuse.
const KEPT_PER_CLASS: usize = 32 << 20;

struct Memory {
    at: NonNull<u8>,
    capacity: usize,
    /// Every byte is known to be zero.
    zero: Cell<bool>,
}

/// Memory of one class kept for reuse.
#[derive(Default)]
struct FreeLists {
    used: Vec<NonNull<u8>>,
    /// Known to be zero.
    zero: Vec<NonNull<u8>>,
}

/// Memory kept for reuse, by class; goes back to the system when the thread ends.
struct Pool([FreeLists; CLASSES.len()]);

impl Drop for Pool {
    fn drop(&mut self) {
        for (kept, &capacity) in self.0.iter_mut().zip(&CLASSES) {
            for at in kept.used.drain(..).chain(kept.zero.drain(..)) {
                // SAFETY: from `fresh` with this very capacity, and only the pool has it.
                unsafe { release(at, capacity) }
            }
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool([const { FreeLists { used: Vec::new(), zero: Vec::new() } }; CLASSES.len()])) };
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, PAGE).expect("a buffer is far smaller than the address space")
}

fn is_huge(capacity: usize) -> bool {
    CLASSES[HUGE_FROM..].contains(&capacity)
}

/// Gives memory back to the system.
///
/// # Safety
/// It came from [`Memory::fresh`] with this capacity, and has no owner.
unsafe fn release(at: NonNull<u8>, capacity: usize) {
    match is_huge(capacity) {
        // SAFETY: a piece of a slab, by its capacity; the rest is the caller's promise.
        true => unsafe { huge::give_back(at) },
        // SAFETY: allocated with this very layout; the rest is the caller's promise.
        false => unsafe { dealloc(at.as_ptr(), layout(capacity)) },
    }
}

impl Memory {
    /// Memory for `len` bytes; `zero`: rather such that is known to be zero.
    fn take(len: usize, zero: bool) -> Memory {
        let Some(class) = CLASSES.iter().position(|&size| len <= size) else {
            return Memory::fresh(len.next_multiple_of(PAGE));
        };
        let kept = POOL.try_with(|pool| {
            let kept = &mut pool.borrow_mut().0[class];
            let (used, zeroes) = (&mut kept.used, &mut kept.zero);
            match zero {
                true => zeroes
                    .pop()
                    .map(|at| (at, true))
                    .or_else(|| used.pop().map(|at| (at, false))),
                false => used
                    .pop()
                    .map(|at| (at, false))
                    .or_else(|| zeroes.pop().map(|at| (at, true))),
            }
        });
        match kept.ok().flatten() {
            Some((at, zero)) => Memory {
                at,
                capacity: CLASSES[class],
                zero: Cell::new(zero),
            },
            None => Memory::fresh(CLASSES[class]),
        }
    }

    fn fresh(capacity: usize) -> Memory {
        let capacity = capacity.max(PAGE);
        if is_huge(capacity) {
            return Memory::of_huge_page(capacity);
        }
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout(capacity)) };
        let Some(at) = NonNull::new(raw) else {
            handle_alloc_error(layout(capacity))
        };
        Memory {
            at,
            capacity,
            zero: Cell::new(true),
        }
    }
}

impl Memory {
    /// A piece of a new slab; its other pieces are the pool's.
    fn of_huge_page(capacity: usize) -> Memory {
        let pieces = huge::pieces(capacity);
        let Some((first, others)) = pieces.as_deref().and_then(<[_]>::split_first) else {
            handle_alloc_error(layout(capacity))
        };
        let class = CLASSES.iter().position(|&size| size == capacity);
        let class = class.expect("huge pages are cut into classes");
        let kept = POOL.try_with(|pool| pool.borrow_mut().0[class].zero.extend(others));
        if kept.is_err() {
            // The thread ends.
            for piece in others {
                // SAFETY: just made, and known here alone.
                unsafe { huge::give_back(*piece) }
            }
        }
        Memory {
            at: *first,
            capacity,
            zero: Cell::new(true),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(class) = CLASSES.iter().position(|&size| size == self.capacity) {
            let kept = POOL.try_with(|pool| {
                let kept = &mut pool.borrow_mut().0[class];
                let room = (kept.used.len() + kept.zero.len()) * self.capacity < KEPT_PER_CLASS;
                if room {
                    let list = if self.zero.get() {
                        &mut kept.zero
                    } else {
                        &mut kept.used
                    };
                    list.push(self.at);
                }
                room
            });
            if kept == Ok(true) {
                return;
            }
        }
        // SAFETY: from `fresh` with this very capacity, and no owner is left.
        unsafe { release(self.at, self.capacity) }
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
    /// A view may read the memory: it must not be written where it is.
    shared: bool,
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
        Buf {
            memory: Rc::new(Memory::take(len, false)),
            start: 0,
            len,
            shared: false,
        }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Buf {
        let mut buf = Buf {
            memory: Rc::new(Memory::take(len, true)),
            start: 0,
            len,
            shared: false,
        };
        buf.zero();
        buf
    }

    /// Makes every byte zero; takes no time where that is known already.
    ///
    /// # Example
    /// ```
    /// use base::Buf;
    /// let mut buf = Buf::copy_of(&[7; 4096]);
    /// assert!(!buf.is_known_zero());
    /// buf.zero();
    /// assert!(buf.is_known_zero() && buf[4095] == 0);
    /// ```
    pub fn zero(&mut self) {
        if self.memory.zero.get() {
            return;
        }
        if Rc::strong_count(&self.memory) > 1 {
            return self.fill(0);
        }
        // No other buffer shares the memory, so all of it can be known to be zero from here on.
        // SAFETY: the whole allocation, of which this is the only owner.
        unsafe { std::ptr::write_bytes(self.memory.at.as_ptr(), 0, self.memory.capacity) };
        self.memory.zero.set(true);
    }

    /// Is every byte known to be zero? `false` says nothing.
    pub fn is_known_zero(&self) -> bool {
        self.memory.zero.get()
    }

    /// Does nothing else share the memory, no piece of this buffer and no view?
    pub(crate) fn is_sole_owner(&self) -> bool {
        Rc::strong_count(&self.memory) == 1
    }

    /// A copy of the bytes `from..from + len`, which is known to be zero where this buffer is.
    ///
    /// # Panics
    /// If they are not within the buffer.
    pub fn copy_range(&self, from: usize, len: usize) -> Buf {
        let bytes = &self[from..from + len];
        match self.is_known_zero() {
            true => Buf::zeroed(len),
            false => Buf::copy_of(bytes),
        }
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
            shared: self.shared,
        };
        self.len = at;
        tail
    }

    /// Appends `tail`: without a copy if it is the next piece of the same buffer, as `split_off` cut it.
    pub fn join(&mut self, tail: Buf) {
        let beside = Rc::ptr_eq(&self.memory, &tail.memory) && self.start + self.len == tail.start;
        if beside {
            self.len += tail.len;
            self.shared |= tail.shared;
            return;
        }
        let mut whole = Buf::for_read(self.len + tail.len);
        whole[..self.len].copy_from_slice(self);
        whole[self.len..].copy_from_slice(&tail);
        *self = whole;
    }

    /// A view of the bytes as they are now, without a copy. A later write to this buffer takes one instead, while the view
    /// is there.
    ///
    /// # Example
    /// ```
    /// use base::Buf;
    /// let mut buf = Buf::copy_of(b"abc");
    /// let view = buf.share();
    /// assert_eq!(view.address(), buf.as_ptr());
    /// buf[0] = b'x';
    /// assert_eq!((&view[..], &buf[..]), (&b"abc"[..], &b"xbc"[..]));
    /// ```
    pub fn share(&mut self) -> View {
        self.shared = true;
        View {
            memory: Rc::clone(&self.memory),
            start: self.start,
            len: self.len,
        }
    }

    /// Makes the memory this buffer's alone, before it is written.
    fn take_apart(&mut self) {
        if self.shared {
            match Rc::strong_count(&self.memory) {
                1 => self.shared = false,
                _ => *self = Buf::copy_of(self),
            }
        }
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

    /// Where the buffer starts in memory, to be written; stays put until the last owner drops.
    pub fn address(&mut self) -> *mut u8 {
        self.take_apart();
        self.memory.zero.set(false);
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
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.take_apart();
        self.memory.zero.set(false);
        // SAFETY: as in `deref`, `&mut self` is the only way in, and no view has the memory.
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

    /// Is every byte known to be zero? `false` says nothing.
    pub fn is_known_zero(&self) -> bool {
        self.memory.zero.get()
    }

    /// Does nothing else share the memory?
    pub(crate) fn is_sole_owner(&self) -> bool {
        Rc::strong_count(&self.memory) == 1
    }

    /// Writable again, without a copy if this is the only owner of the whole allocation, else a copy.
    pub fn into_buf(self) -> Buf {
        if Rc::strong_count(&self.memory) == 1 {
            Buf {
                memory: self.memory,
                start: self.start,
                len: self.len,
                shared: false,
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
        // SAFETY: within the allocation, initialised, and no `Buf` that covers this range is written.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(self.start), self.len) }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// Equal bytes, wherever they lie.
impl PartialEq for View {
    fn eq(&self, other: &View) -> bool {
        self[..] == other[..]
    }
}

impl Eq for View {}

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
    fn what_is_known_to_be_zero_is_zero_until_a_write_is_possible() {
        let mut dirty = Buf::for_read(3 * PAGE);
        dirty.fill(7);
        assert!(!dirty.is_known_zero());
        drop(dirty);
        // The pool hands the same memory out again.
        let mut buf = Buf::for_read(3 * PAGE);
        assert!(!buf.is_known_zero());
        buf.zero();
        assert!(buf.is_known_zero());
        assert!(buf.iter().all(|&byte| byte == 0));
        let copy = buf.copy_range(PAGE, PAGE);
        assert!(copy.is_known_zero() && copy.len() == PAGE);
        let tail = buf.split_off(PAGE);
        let mut tail = tail;
        tail[0] = 1;
        // One allocation in two pieces: neither piece counts as known zero any more.
        assert!(!buf.is_known_zero() && !tail.is_known_zero());
        assert_eq!(tail.copy_range(0, 2)[..], [1, 0]);
        tail.zero();
        assert_eq!((tail[0], tail.is_known_zero()), (0, false));
        let mut view = Buf::zeroed(PAGE).freeze();
        assert!(view.is_known_zero() && view.slice(512, 512).is_known_zero());
        view = View::copy_of(&view);
        assert!(!view.is_known_zero(), "not looked at");
        let mut buf = Buf::zeroed(PAGE);
        buf.address();
        assert!(!buf.is_known_zero(), "a device may write there");
    }

    #[test]
    fn pieces_of_two_buffers_join_by_a_copy() {
        let mut head = Buf::copy_of(b"ab");
        let mut end = head.split_off(1);
        end = Buf::copy_of(&end);
        head.join(end);
        head.join(Buf::copy_of(b"c"));
        assert_eq!(&head[..], b"abc");
    }

    #[test]
    fn a_piece_that_is_shared_is_copied_before_it_is_written_and_still_joins() {
        let mut head = Buf::copy_of(b"abcdef");
        let mut tail = head.split_off(3);
        let view = tail.share();
        assert_eq!(tail.len() + head.len(), 6);
        tail[0] = b'x';
        let again = tail.share();
        let mut rest = tail.split_off(1);
        rest[1] = b'y';
        tail.join(rest);
        head.join(tail);
        assert_eq!((&head[..], &view[..]), (&b"abcxey"[..], &b"def"[..]));
        assert_eq!(&again[..], b"xef");
        let mut alone = Buf::copy_of(b"abc");
        let view = alone.share();
        let place = alone.as_ptr();
        alone.zero();
        assert_ne!(alone.as_ptr(), place);
        assert_eq!((&alone[..], &view[..]), (&[0, 0, 0][..], &b"abc"[..]));
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
