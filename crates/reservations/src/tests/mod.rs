//! Reservations over three stores of a small cluster in virtual time.

mod kills;
mod scenes;
mod storm;
mod world;
