//! Messages between simulated hosts that may be lost, doubled and overtaken.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;

use base::{Buf, Instant};

use super::network::{Network, State, host, network, own_address};
use super::wake::{wait_for_wake, wake_all};
use crate::true_now;

/// Datagrams that wait at a socket before more are dropped.
const DATAGRAMS_MAX: usize = 4096;
/// Largest datagram in bytes, as in UDP over IPv4.
const DATAGRAM_MAX: usize = 65_507;

/// One message on its way: arrival, order of sending, sender, data.
type Packet = Reverse<(Instant, u64, SocketAddr, Vec<u8>)>;

pub(super) struct Inbox {
    pub(super) host: IpAddr,
    queue: RefCell<BinaryHeap<Packet>>,
    waiter: RefCell<Option<Waker>>,
}

pub(crate) struct Datagram {
    network: Rc<Network>,
    inbox: Rc<Inbox>,
    /// Where it sends from.
    address: SocketAddr,
    sent: Cell<u64>,
}

impl Inbox {
    fn new(host: IpAddr) -> Rc<Inbox> {
        Rc::new(Inbox {
            host,
            queue: RefCell::default(),
            waiter: RefCell::default(),
        })
    }
}

impl Datagram {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<(Datagram, SocketAddr)> {
        let host = host();
        let network = network();
        let mut state = network.state.borrow_mut();
        let address = own_address(&mut state, address, host)?;
        let key = (host, address.port());
        if state.sockets.contains_key(&key) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("binding {address} of host {host}: another task has it"),
            ));
        }
        let inbox = Inbox::new(host);
        state.sockets.insert(key, Rc::clone(&inbox));
        drop(state);
        let datagram = Datagram {
            network,
            inbox,
            address,
            sent: Cell::new(0),
        };
        Ok((datagram, address))
    }

    pub(crate) fn join(group: SocketAddr) -> Datagram {
        let host = host();
        let network = network();
        let inbox = Inbox::new(host);
        network
            .state
            .borrow_mut()
            .groups
            .entry(group)
            .or_default()
            .push(Rc::clone(&inbox));
        Datagram {
            network,
            inbox,
            address: SocketAddr::new(host, group.port()),
            sent: Cell::new(0),
        }
    }

    pub(crate) fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        if data.len() > DATAGRAM_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a datagram of {} bytes to {to}: at most {DATAGRAM_MAX} fit",
                    data.len()
                ),
            ));
        }
        let mut state = self.network.state.borrow_mut();
        let from = self.inbox.host;
        let receivers: Vec<Rc<Inbox>> = if to.ip().is_multicast() {
            state.groups.get(&to).cloned().unwrap_or_default()
        } else {
            let host = State::resolve(to.ip(), from);
            state
                .sockets
                .get(&(host, to.port()))
                .cloned()
                .into_iter()
                .collect()
        };
        let mut wakers = Vec::new();
        for receiver in receivers {
            for arrival in state.datagram_arrivals((from, receiver.host), data.len()) {
                let order = self.sent.get();
                self.sent.set(order + 1);
                let mut queue = receiver.queue.borrow_mut();
                if queue.len() < DATAGRAMS_MAX {
                    queue.push(Reverse((arrival, order, self.address, data.to_vec())));
                }
                wakers.extend(receiver.waiter.borrow_mut().take());
            }
        }
        drop(state);
        wake_all(wakers);
        Ok(())
    }

    pub(crate) async fn receive(&self, mut buf: Buf) -> (usize, SocketAddr, Buf) {
        loop {
            let next = {
                let mut queue = self.inbox.queue.borrow_mut();
                let next = queue.peek().map(|Reverse((arrival, ..))| *arrival);
                if next.is_some_and(|next| next <= true_now())
                    && let Some(Reverse((_, _, from, data))) = queue.pop()
                {
                    let count = data.len().min(buf.len());
                    buf[..count].copy_from_slice(&data[..count]);
                    return (count, from, buf);
                }
                next
            };
            wait_for_wake(|see| see(&mut self.inbox.waiter.borrow_mut()), next).await;
        }
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        let mut state = self.network.state.borrow_mut();
        let ours = |inbox: &Rc<Inbox>| Rc::ptr_eq(inbox, &self.inbox);
        state.sockets.retain(|_, inbox| !ours(inbox));
        state.groups.retain(|_, members| {
            members.retain(|member| !ours(member));
            !members.is_empty()
        });
    }
}
