//! Reservations from outside: the commands that make and use them, and the jobs of a real Slurm that have them.

mod command_line;
mod common;
mod service;
