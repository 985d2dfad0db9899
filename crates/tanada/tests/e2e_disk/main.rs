//! The whole program as a disk: is what clients wrote what they read, with real tools and after `kill -9`?

mod clients;
mod cluster;
mod daemon;
mod exports;
mod faults;
mod fio_kills;
mod fuse;
mod guest;
mod kernel_client;
mod kill9;
mod nodes;
mod power;
mod reservations;
mod s3_volume;
mod spin_down;
mod targets;
mod ublk;
mod ublk_panic;
mod ublk_waits;
mod vhost;
mod ways;
