//! The program from outside: a real daemon over sockets, and commands that need none.

mod access;
mod advice;
mod commands;
mod common;
mod daemon;
mod guides;
mod modes;
mod pairs;
mod predict;
mod recording;
mod sim_tier;
mod store;
mod sweep;
mod tier;
mod trace;
