//! The NBD front end, mostly in virtual time.

mod common;
mod hostile;
mod tls;
mod virtual_time;
