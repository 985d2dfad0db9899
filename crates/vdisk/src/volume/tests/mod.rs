//! A volume under everything that can happen to it, in virtual time.

mod cluster;
mod direct;
mod maps;
mod single;
mod storm;
