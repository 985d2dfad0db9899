//! Which hosts are there, what leads from one to another, and when does what is sent now arrive?
//!
//! ```text
//! (from, to), length -> cut? -> the direction's own generator: lost? twice? how long? -> moments of arrival
//! ```
//!
//! Always true: each direction between two hosts has a generator of its own, so that what one link does never
//! depends on the traffic of another.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::{Rc, Weak};

use base::{Instant, Nanos};

use super::connection::Connection;
use super::datagram::Inbox;
use super::link::Link;
use super::listener::Backlog;
use crate::executor::with_current;
use crate::sync::Event;
use crate::{Rng, true_now};

/// Time after which a lost segment of a stream is sent again; doubles with each try.
const RETRANSMISSION: Nanos = Nanos::millis(200);
/// Tries to send a segment before the loss is taken as a delay and no more.
const TRIES_MAX: u32 = 8;
/// First port given out where 0 is asked for.
const FIRST_FREE_PORT: u16 = 49_152;

pub(super) type Way = (IpAddr, IpAddr);

/// What one direction between two hosts remembers.
struct Direction {
    chance: Rng,
    /// The link is sending until then.
    busy_until: Instant,
    /// When the last datagram that was not held back arrives.
    last_datagram: Instant,
}

/// Where listeners are found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Port {
    Tcp(u16),
    Unix(PathBuf),
}

#[derive(Default)]
pub(super) struct State {
    /// By number; 0 is 127.0.0.1.
    pub(super) hosts: Vec<IpAddr>,
    pub(super) default_link: Option<Link>,
    pub(super) links: BTreeMap<Way, Link>,
    pub(super) cut: BTreeSet<Way>,
    directions: BTreeMap<Way, Direction>,
    pub(super) listeners: BTreeMap<(IpAddr, Port), Rc<Backlog>>,
    pub(super) sockets: BTreeMap<(IpAddr, u16), Rc<Inbox>>,
    pub(super) groups: BTreeMap<SocketAddr, Vec<Rc<Inbox>>>,
    /// In the order they were made.
    pub(super) connections: Vec<Weak<RefCell<Connection>>>,
    next_port: u16,
}

#[derive(Default)]
pub(super) struct Network {
    pub(super) state: RefCell<State>,
    pub(super) healed: Event,
}

pub(super) fn network() -> Rc<Network> {
    with_current(|core| {
        assert!(
            core.is_simulated(),
            "env::net::sim controls the simulated network; this runtime is real"
        );
        let mut extras = core.extras.borrow_mut();
        let known = extras
            .iter()
            .find_map(|extra| Rc::clone(extra).downcast().ok());
        known.unwrap_or_else(|| {
            let network = Rc::new(Network::default());
            {
                let mut state = network.state.borrow_mut();
                state.hosts.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
                state.next_port = FIRST_FREE_PORT;
            }
            extras.push(Rc::clone(&network) as Rc<dyn Any>);
            network
        })
    })
}

/// Adds to the run's trace hash.
fn trace(what: u64) {
    with_current(|core| core.mix(what));
}

impl State {
    fn link(&self, way: Way) -> Link {
        match self.links.get(&way) {
            Some(link) => *link,
            None if way.0 == way.1 => Link::LOOPBACK,
            None => self.default_link.unwrap_or(Link::LAN),
        }
    }

    fn direction(&mut self, way: Way) -> &mut Direction {
        self.directions.entry(way).or_insert_with(|| Direction {
            chance: crate::rng(&format!("net {} -> {}", way.0, way.1)),
            busy_until: Instant(0),
            last_datagram: Instant(0),
        })
    }

    pub(super) fn is_cut(&self, way: Way) -> bool {
        self.cut.contains(&way)
    }

    /// When a message of `len` bytes sent now arrives.
    fn arrival(&mut self, way: Way, len: usize) -> Instant {
        let link = self.link(way);
        let direction = self.direction(way);
        let mut start = true_now();
        if let Some(rate) = link.bandwidth {
            let sending = len as u128 * 1_000_000_000 / u128::from(rate.max(1));
            start = direction.busy_until.max(start) + Nanos(sending as u64);
            direction.busy_until = start;
        }
        start + link.delay.draw(&mut direction.chance)
    }

    /// When a segment of a stream sent now arrives, lost tries included.
    pub(super) fn segment_arrival(&mut self, way: Way, len: usize) -> Instant {
        let mut arrival = self.arrival(way, len);
        let loss = self.link(way).loss;
        for tries in 0..TRIES_MAX {
            if loss == 0.0 || !self.direction(way).chance.chance(loss) {
                break;
            }
            arrival = arrival + RETRANSMISSION * (1 << tries);
        }
        trace(arrival.0 ^ ((len as u64) << 32));
        arrival
    }

    /// When the copies of a datagram sent now arrive: none, one or two moments.
    pub(super) fn datagram_arrivals(&mut self, way: Way, len: usize) -> Vec<Instant> {
        if self.is_cut(way) {
            return Vec::new();
        }
        let link = self.link(way);
        let copies = 1 + u32::from(self.direction(way).chance.chance(link.duplication));
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let arrival = self.arrival(way, len);
            let direction = self.direction(way);
            if direction.chance.chance(link.loss) {
                continue;
            }
            arrivals.push(if direction.chance.chance(link.reordering) {
                arrival + Nanos(direction.chance.below(link.held_back.0 + 1))
            } else {
                direction.last_datagram = direction.last_datagram.max(arrival);
                direction.last_datagram
            });
        }
        for arrival in &arrivals {
            trace(arrival.0 ^ ((len as u64) << 32));
        }
        arrivals
    }

    /// The host meant by `ip` on `host`.
    pub(super) fn resolve(ip: IpAddr, host: IpAddr) -> IpAddr {
        match ip.is_loopback() || ip.is_unspecified() {
            true => host,
            false => ip,
        }
    }

    /// What listens at `key`, if a task on `host` can reach it.
    pub(super) fn listener(&self, host: IpAddr, key: &(IpAddr, Port)) -> Option<Rc<Backlog>> {
        let backlog = self.listeners.get(key)?;
        (host == key.0 || !backlog.local.get()).then(|| Rc::clone(backlog))
    }

    pub(super) fn add(&mut self, connection: &Rc<RefCell<Connection>>) {
        let connections = &mut self.connections;
        // Forget those that are gone now and then.
        if connections.len() == connections.capacity() {
            connections.retain(|connection| connection.strong_count() > 0);
        }
        connections.push(Rc::downgrade(connection));
    }

    pub(super) fn free_port(&mut self, host: IpAddr) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
            let taken = self.listeners.contains_key(&(host, Port::Tcp(port)))
                || self.sockets.contains_key(&(host, port));
            if !taken {
                return port;
            }
        }
    }
}

pub(super) fn host_number(ip: IpAddr) -> u32 {
    let network = network();
    let mut state = network.state.borrow_mut();
    let known = state.hosts.iter().position(|host| *host == ip);
    let number = known.unwrap_or_else(|| {
        state.hosts.push(ip);
        state.hosts.len() - 1
    });
    number as u32
}

/// The host of the task that calls.
pub fn host() -> IpAddr {
    let number = with_current(|core| core.host());
    network().state.borrow().hosts[number as usize]
}

pub(super) fn live_connections(network: &Network) -> Vec<Rc<RefCell<Connection>>> {
    let mut state = network.state.borrow_mut();
    state
        .connections
        .retain(|connection| connection.strong_count() > 0);
    state.connections.iter().filter_map(Weak::upgrade).collect()
}

/// `at` with its free port and, for "any", the host's own address.
pub(super) fn own_address(
    state: &mut State,
    at: SocketAddr,
    host: IpAddr,
) -> io::Result<SocketAddr> {
    let ip = match at.ip() {
        ip if ip.is_unspecified() => host,
        ip if ip.is_loopback() || ip == host => ip,
        ip => {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("{ip} is not an address of host {host}; bind to 0.0.0.0 or {host}"),
            ));
        }
    };
    let port = match at.port() {
        0 => state.free_port(host),
        port => port,
    };
    Ok(SocketAddr::new(ip, port))
}
