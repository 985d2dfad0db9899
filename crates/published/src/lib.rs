//! Methods as their papers describe them, for experiments to compare with.

pub mod dmssd;
