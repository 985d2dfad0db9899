//! The NBD front end, mostly in virtual time.

mod common;
mod gates;
mod hostile;
mod supply;
mod tls;
mod virtual_time;
