//! Sockets that listen, before a server takes them.

use env::net::{Address, Listener};

/// Listeners by the addresses of the configuration; those that are not taken are given up.
#[derive(Default)]
pub struct Unserved(Vec<(Address, Listener)>);

impl Unserved {
    pub fn put(&mut self, address: &Address, listener: Listener) {
        self.0.push((address.clone(), listener));
    }

    pub fn take(&mut self, address: &Address) -> Option<Listener> {
        let place = self.0.iter().position(|(it, _)| it == address)?;
        Some(self.0.swap_remove(place).1)
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        for (_, listener) in &self.0 {
            env::net::inherited::closed(listener.address());
        }
    }
}
