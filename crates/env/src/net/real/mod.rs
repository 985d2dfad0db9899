//! Sockets of the system: what `net` hands to a real runtime.

mod datagram;
mod detached;
mod listener;
mod peer;
mod socket;
mod stream;

pub(super) use datagram::Datagram;
pub(super) use detached::Detached;
pub(super) use listener::Listener;
pub use listener::{give_inherited_mode, give_socket_mode};
pub use peer::{peer_groups, watch_peer};
pub(super) use stream::Stream;
