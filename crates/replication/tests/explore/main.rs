//! The production state machine of a volume's writer, in every order in which its steps can be taken.
//!
//! ```text
//! two writers (`Replication`, `Spread`, `Reconcile`), three toy stores, two copies of one extent, one record
//!   -> every step possible, one after the other -> every state within the bounds -> what was promised holds in it
//! ```
//!
//! `world` says what there is, `rules` what can happen. `turn` does what the machines ask for, in place of `vdisk`: it sends, seals, swaps
//! and copies, loses answers, lets time pass. `explored` looks at everything.
//!
//! What it leaves out, and why that is no loss:
//!
//! - *Partitions and crashes of stores.* Whatever needs an answer may as well not happen here: a message may stay under way for
//!   ever, a writer may stop waiting for any store at any time. What a store answered is durable there: each change asks for that.
//! - *Time*, but for leases. A tick passes on all clocks; on one whose lease runs out it may pass unseen, as often as the
//!   margin allows. Leases are counted only from when another writer has the record: before that they can be kept. A writer that takes the
//!   record when the lease before has run out in the meta store does not wait; that is as if all its ticks passed and nothing else happened
//!   meanwhile.
//! - *Steps that only one party sees*: sealing several stores, copying an extent, writing dirty bits to several stores are one step.
//!   Half of a seal fences only writers that are fenced already; half of a copy has the stamp 0 and counts for nothing; half-written
//!   dirty bits are more bits than needed.
//! - *Several extents, new extents, spare copies*: there is one extent, written before, with two copies, or more after lost answers.
//!   New and several ones are the whole cluster's business, in `simtest`.
//!
//! - *Room, and a lost answer of every kind*: stores are never full, and answers are lost of writes, of the swap that a write or a joining
//!   store asks for, and of a copy that is filled. At most two messages are under way to a store.
//! - *Damaged sources*: a copy that others are made from can be read.
//!
//! Bounds are on writes, openings, faults and generations; within them nothing is left out. `TANADA_BOUNDS="2 2 1 7"` explores
//! others.

mod explored;
mod rules;
mod turn;
mod world;
