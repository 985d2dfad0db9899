//! Reservations from outside: the commands that make and use them, and the jobs of a real Slurm that have them.

mod cluster;
mod command_line;
mod common;
mod daemon;
mod directives;
mod jobs;
mod runs;
mod service;
