//! Is a panic caught, or does it go on and end its runtime?
//!
//! ```text
//! GoesOn (virtual time) -> Caught       catch_panics
//! Caught (real time)    -> HalfChanged  a panic passed through a critical section
//! GoesOn                -> HalfChanged  the same
//! ```

/// What becomes of a panic under [`crate::caught`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Catch {
    GoesOn,
    Caught,
    /// One left shared state half changed ([`crate::critical_section`]): from then on each goes on.
    HalfChanged,
}

impl Catch {
    pub fn at_first(simulated: bool) -> Catch {
        match simulated {
            true => Catch::GoesOn,
            false => Catch::Caught,
        }
    }
}
