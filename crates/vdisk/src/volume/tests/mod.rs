//! A volume under everything that can happen to it, in virtual time.

mod back_in_time;
mod cluster;
mod credit;
mod damage;
mod direct;
mod gate;
mod images;
mod latency;
mod lease;
mod maps;
mod relocation;
mod returns;
mod room;
mod single;
mod storm;
mod unlucky;
mod users;
