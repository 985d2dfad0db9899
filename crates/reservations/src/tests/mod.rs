//! Reservations over three stores of a small cluster in virtual time.

mod allotments;
mod ends;
mod kills;
mod offers;
mod reads;
mod scenes;
mod storm;
mod world;
