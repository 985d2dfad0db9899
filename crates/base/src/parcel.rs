//! A buffer on its way to another thread: its memory has no other owner, so it may go.
//!
//! ```text
//! Buf | View -> Parcel (sole owner; else of a copy) -> the other thread: Buf -> ... -> Parcel -> back
//! ```
//!
//! Buffers count their owners without atomics, and come from a pool of the thread. What goes there and comes back with the answer
//! keeps both pools as they were; what does not come back is given to the other thread's pool, which is bounded.
//!
//! Always true: the memory of a parcel is reached through the parcel alone.

#![allow(unsafe_code)] // A buffer is not `Send`; a parcel is, by the rule above.

use crate::{Buf, View};

/// A buffer that may be sent to another thread. See the module's head.
///
/// # Example
/// ```
/// use base::{Buf, Parcel};
/// let parcel = Parcel::new(Buf::copy_of(b"abc"));
/// let thread = std::thread::Builder::new().spawn(move || {
///     let mut buf = parcel.open();
///     buf.reverse();
///     Parcel::new(buf)
/// })?;
/// assert_eq!(thread.join().unwrap().open()[..], *b"cba");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Parcel(Buf);

// SAFETY: `Buf` is not `Send` because others on its thread may share the memory, and count themselves without atomics. Here
// there are none: `of_sole` and `new` saw to it, and the buffer cannot be written, cut or frozen before `open` takes it out, on one
// thread. `as_ref` shows its bytes and counts no owner.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Packs `buf`; a copy if pieces of it, or views, are elsewhere.
    pub fn new(buf: Buf) -> Parcel {
        Parcel::of_sole(buf).unwrap_or_else(|buf| Parcel(buf.copy_range(0, buf.len())))
    }

    /// Packs `buf`, and never a copy.
    ///
    /// # Errors
    /// The buffer, where pieces of it, or views, are elsewhere.
    pub fn of_sole(buf: Buf) -> Result<Parcel, Buf> {
        match buf.is_sole_owner() {
            true => Ok(Parcel(buf)),
            false => Err(buf),
        }
    }

    /// Packs what `view` shows; a copy if the view has other owners.
    pub fn of_view(view: View) -> Parcel {
        Parcel::new(view.into_buf())
    }

    /// Packs the buffer of `view` if it has no other owner, so that it goes back without a copy.
    pub fn of_sole_view(view: View) -> Option<Parcel> {
        view.is_sole_owner().then(|| Parcel::of_view(view))
    }

    /// The buffer, on the thread that has the parcel.
    pub fn open(self) -> Buf {
        self.0
    }
}

/// The bytes, to be read where they are.
impl AsRef<[u8]> for Parcel {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parcel({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sole_owner_goes_without_a_copy_and_a_shared_one_with() {
        let mut buf = Buf::copy_of(&[7; 5000]);
        let there = buf.address();
        let mut back = Parcel::new(buf).open();
        assert_eq!(back.address(), there);
        let tail = back.split_off(4096);
        let mut back = Parcel::of_sole(back).unwrap_err();
        assert_eq!(back.address(), there);
        let mut copy = Parcel::new(back).open();
        assert!(copy.address() != there && copy[..] == [7; 4096]);
        drop(tail);
        let view = copy.freeze();
        let at = view.address();
        let other = view.clone();
        assert!(Parcel::of_sole_view(view.clone()).is_none());
        assert_eq!(Parcel::of_view(view).open()[..], [7; 4096]);
        let mut back = Parcel::of_sole_view(other).unwrap().open();
        assert_eq!(back.address().cast_const(), at);
    }

    #[test]
    fn a_copy_of_what_is_known_to_be_zero_is_known_to_be_too() {
        let mut buf = Buf::zeroed(8192);
        let _tail = buf.split_off(4096);
        assert!(Parcel::new(buf).open().is_known_zero());
    }
}
