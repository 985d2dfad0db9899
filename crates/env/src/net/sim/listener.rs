//! Who takes connections at an address of a simulated host?

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Waker;

use super::super::common::Address;
use super::network::{Network, Port, host, network, own_address};
use super::stream::Stream;
use super::wake::wait_for_wake;

#[derive(Default)]
pub(super) struct Backlog {
    /// Of loopback only?
    pub(super) local: Cell<bool>,
    pub(super) queue: RefCell<VecDeque<Stream>>,
    pub(super) waiter: RefCell<Option<Waker>>,
}

pub(crate) struct Listener {
    network: Rc<Network>,
    key: (IpAddr, Port),
    backlog: Rc<Backlog>,
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> io::Result<(Listener, Address)> {
        let host = host();
        let network = network();
        let mut state = network.state.borrow_mut();
        let backlog = Rc::new(Backlog::default());
        let (port, bound) = match address {
            Address::Unix(path) => (Port::Unix(path.clone()), address.clone()),
            Address::Tcp(at) | Address::Tls(at) => {
                let at = own_address(&mut state, *at, host)?;
                backlog.local.set(at.ip().is_loopback());
                let bound = match address.is_tls() {
                    true => Address::Tls(at),
                    false => Address::Tcp(at),
                };
                (Port::Tcp(at.port()), bound)
            }
        };
        let key = (host, port);
        if state.listeners.contains_key(&key) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("listening at {address} of host {host}: another task listens there"),
            ));
        }
        state.listeners.insert(key.clone(), Rc::clone(&backlog));
        drop(state);
        let listener = Listener {
            network,
            key,
            backlog,
        };
        Ok((listener, bound))
    }

    pub(crate) async fn accept(&self) -> Stream {
        loop {
            if let Some(stream) = self.backlog.queue.borrow_mut().pop_front() {
                return stream;
            }
            wait_for_wake(|see| see(&mut self.backlog.waiter.borrow_mut()), None).await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.network.state.borrow_mut();
        // After a crash of the host another may listen there.
        if state
            .listeners
            .get(&self.key)
            .is_some_and(|backlog| Rc::ptr_eq(backlog, &self.backlog))
        {
            state.listeners.remove(&self.key);
        }
        drop(state);
        let waiting = std::mem::take(&mut *self.backlog.queue.borrow_mut());
        drop(waiting);
    }
}
