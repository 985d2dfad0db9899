//! A volume under everything that can happen to it, in virtual time.

mod cluster;
mod single;
mod storm;
