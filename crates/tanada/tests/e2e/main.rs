//! The program from outside: a real daemon over sockets, and commands that need none.

mod commands;
mod common;
mod daemon;
mod sweep;
mod trace;
mod recording;
