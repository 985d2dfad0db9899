//! The simulated network: hosts, links between them, and what goes wrong there.
//!
//! ```text
//! send -> link of (from, to): cut? lost? twice? how long? -> in flight until its moment -> receive
//! ```
//!
//! A host is an IP address. A task runs on the host of the task that spawned it; [`on_host`] changes
//! that. Everything starts on 127.0.0.1. A link has a direction, so that a partition can be one-way.
//!
//! Always true:
//! 1. Each direction between two hosts has a generator of its own: what one link does never depends on
//!    the traffic of another.
//! 2. Datagrams may be lost, doubled and overtaken. A stream's bytes only come late: a loss costs a
//!    retransmission, a partition stalls them until it heals.
//! 3. What is in flight when a link is cut still arrives.
//! 4. A host's clock may drift; what travels keeps true time.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use base::{Buf, Instant, Nanos, View};

use super::{Address, aborted};
use crate::executor::with_current;
use crate::sync::Event;
use crate::time::{Sleep, sleep_until_truly};
use crate::{Rng, now, true_now};

/// How long a message is under way, its size aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Fixed(Nanos),
    /// Any span from the first to the second, each as likely.
    Uniform(Nanos, Nanos),
    /// At least `least`, and on average `tail` more, seldom far more.
    Exponential {
        /// The shortest.
        least: Nanos,
        /// Mean of what is added.
        tail: Nanos,
    },
}

/// What happens on the way from one host to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time under way.
    pub delay: Delay,
    /// Bytes a second; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Chance that a datagram, or a segment of a stream at each try, is lost.
    pub loss: f64,
    /// Chance that a datagram comes twice.
    pub duplication: f64,
    /// Chance that a datagram is held back, so that others overtake it. Those not held back keep order.
    pub reordering: f64,
    /// Longest time a datagram is held back.
    pub held_back: Nanos,
}

impl Link {
    /// A good local network: 50 to 100 us, nothing lost.
    pub const LAN: Link = Link {
        delay: Delay::Uniform(Nanos::micros(50), Nanos::micros(100)),
        bandwidth: None,
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        held_back: Nanos::millis(1),
    };

    /// From a host to itself: 5 us, nothing lost.
    pub const LOOPBACK: Link = Link {
        delay: Delay::Fixed(Nanos::micros(5)),
        ..Link::LAN
    };
}

/// Time after which a lost segment of a stream is sent again; doubles with each try.
const RETRANSMISSION: Nanos = Nanos::millis(200);
/// Tries to send a segment before the loss is taken as a delay and no more.
const TRIES_MAX: u32 = 8;
/// A connection that cannot be made is given up after this time.
const CONNECT_TIMEOUT: Nanos = Nanos::secs(30);
/// Bytes of a stream under way or unread before its writer waits.
const WINDOW: usize = 1 << 20;
/// Most bytes of one segment.
const SEGMENT_MAX: usize = 64 << 10;
/// Datagrams that wait at a socket before more are dropped.
const DATAGRAMS_MAX: usize = 4096;
/// Largest datagram in bytes, as in UDP over IPv4.
const DATAGRAM_MAX: usize = 65_507;
/// First port given out where 0 is asked for.
const FIRST_FREE_PORT: u16 = 49_152;

// --- the network ------------------------------------------------------------------------------------

type Way = (IpAddr, IpAddr);

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
enum Port {
    Tcp(u16),
    Unix(PathBuf),
}

#[derive(Default)]
struct State {
    /// By number; 0 is 127.0.0.1.
    hosts: Vec<IpAddr>,
    default_link: Option<Link>,
    links: BTreeMap<Way, Link>,
    cut: BTreeSet<Way>,
    directions: BTreeMap<Way, Direction>,
    listeners: BTreeMap<(IpAddr, Port), Rc<Backlog>>,
    sockets: BTreeMap<(IpAddr, u16), Rc<Inbox>>,
    groups: BTreeMap<SocketAddr, Vec<Rc<Inbox>>>,
    /// In the order they were made.
    connections: Vec<Weak<RefCell<Connection>>>,
    next_port: u16,
}

#[derive(Default)]
struct Network {
    state: RefCell<State>,
    healed: Event,
}

fn network() -> Rc<Network> {
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

    fn is_cut(&self, way: Way) -> bool {
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
    fn segment_arrival(&mut self, way: Way, len: usize) -> Instant {
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
    fn datagram_arrivals(&mut self, way: Way, len: usize) -> Vec<Instant> {
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
    fn resolve(ip: IpAddr, host: IpAddr) -> IpAddr {
        match ip.is_loopback() || ip.is_unspecified() {
            true => host,
            false => ip,
        }
    }

    fn free_port(&mut self, host: IpAddr) -> u16 {
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

impl Delay {
    fn draw(self, chance: &mut Rng) -> Nanos {
        match self {
            Delay::Fixed(span) => span,
            Delay::Uniform(least, most) => {
                least + Nanos(chance.below(most.saturating_sub(least).0 + 1))
            }
            Delay::Exponential { least, tail } => {
                // `unit` is below 1, so the logarithm is finite.
                let factor = -(1.0 - chance.unit()).ln();
                least + Nanos((tail.0 as f64 * factor) as u64)
            }
        }
    }
}

// --- control ----------------------------------------------------------------------------------------

/// A future that runs on a host; see [`on_host`].
pub struct OnHost<F> {
    host: u32,
    future: Pin<Box<F>>,
}

/// Runs `future`, and every task it spawns, on the host of this address.
///
/// # Example
/// ```
/// use env::net::{Datagram, sim};
/// use base::Buf;
/// let [a, b] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
/// env::Runtime::simulated(7).block_on(async move {
///     let server = env::spawn(sim::on_host(b, async {
///         let socket = Datagram::bind("0.0.0.0:7".parse().unwrap()).unwrap();
///         socket.receive(Buf::for_read(100)).await.unwrap().1.ip()
///     }));
///     env::yield_now().await;
///     sim::on_host(a, async {
///         let socket = Datagram::bind("0.0.0.0:0".parse().unwrap()).unwrap();
///         socket.send_to(b"hello", "10.0.0.2:7".parse().unwrap()).await.unwrap();
///     })
///     .await;
///     assert_eq!(server.await, a);
/// });
/// ```
pub fn on_host<F: Future>(ip: IpAddr, future: F) -> OnHost<F> {
    OnHost {
        host: host_number(ip),
        future: Box::pin(future),
    }
}

impl<F: Future> Future for OnHost<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = with_current(|core| core.enter_host(self.host));
        let answer = self.future.as_mut().poll(cx);
        with_current(|core| core.enter_host(before));
        answer
    }
}

fn host_number(ip: IpAddr) -> u32 {
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

/// What all links between different hosts are like that have not been set apart.
pub fn set_default_link(link: Link) {
    network().state.borrow_mut().default_link = Some(link);
}

/// What the link from one host to another is like, in this direction.
pub fn set_link(from: IpAddr, to: IpAddr, link: Link) {
    network().state.borrow_mut().links.insert((from, to), link);
}

/// From now on the clock of `host` goes `parts_per_million` faster than it should, or slower where that is below zero: what its
/// tasks read and how long they sleep. Sleeps that have begun end as they would have. The network keeps true time.
///
/// # Panics
/// If the clock would stand still or go backwards.
///
/// # Example
/// ```
/// use base::Nanos;
/// use env::net::sim;
/// env::Runtime::simulated(7).block_on(async {
///     let late = "10.0.0.1".parse().unwrap();
///     sim::set_drift(late, -100_000);
///     let start = env::now();
///     let slept = sim::on_host(late, async {
///         let start = env::now();
///         env::sleep(Nanos::secs(9)).await;
///         env::now().since(start)
///     })
///     .await;
///     assert_eq!((slept, env::now().since(start)), (Nanos::secs(9), Nanos::secs(10)));
/// });
/// ```
pub fn set_drift(host: IpAddr, parts_per_million: i32) {
    let number = host_number(host);
    with_current(|core| core.set_drift(number, parts_per_million));
}

/// A host was suspended for `span`: its wall clock and the one that counts that too ([`crate::Clocks::boot`]) show it from now on;
/// [`crate::now`] and timers do not.
///
/// # Example
/// ```
/// use base::Nanos;
/// use env::net::sim;
/// env::Runtime::simulated(7).block_on(async {
///     let (before, host) = (env::clocks(), sim::host());
///     sim::suspended(host, Nanos::secs(9));
///     let after = env::clocks();
///     assert_eq!(after.boot, Nanos(before.boot.0 + Nanos::secs(9).0));
///     assert_eq!(after.jumped_since(&before), Nanos(0));
///     sim::stopped(host, Nanos::secs(2));
///     assert_eq!(env::clocks().boot, after.boot);
///     assert_eq!(env::clocks().jumped_since(&before), Nanos::secs(2));
/// });
/// ```
pub fn suspended(host: IpAddr, span: Nanos) {
    let number = host_number(host);
    with_current(|core| core.stood_still(number, span, true));
}

/// A host, a virtual machine, was stopped for `span`: only its wall clock shows it, which was set right just now.
pub fn stopped(host: IpAddr, span: Nanos) {
    let number = host_number(host);
    with_current(|core| core.stood_still(number, span, false));
}

/// Cuts the way from `from` to `to`; the way back stays.
pub fn cut(from: IpAddr, to: IpAddr) {
    network().state.borrow_mut().cut.insert((from, to));
}

/// Cuts every way, both directions, between the hosts of one side and those of the other.
pub fn partition(one: &[IpAddr], other: &[IpAddr]) {
    for &a in one {
        for &b in other {
            cut(a, b);
            cut(b, a);
        }
    }
}

/// Ends all cuts and partitions: what streams held back goes on its way.
pub fn heal() {
    let cuts = std::mem::take(&mut network().state.borrow_mut().cut);
    healed(&cuts);
}

/// Ends the cut from `from` to `to`.
pub fn heal_way(from: IpAddr, to: IpAddr) {
    if network().state.borrow_mut().cut.remove(&(from, to)) {
        healed(&BTreeSet::from([(from, to)]));
    }
}

fn healed(ways: &BTreeSet<Way>) {
    let network = network();
    for connection in live_connections(&network) {
        for end in 0..2 {
            let mut inner = connection.borrow_mut();
            let way = inner.way(end);
            if ways.contains(&way) {
                let stalled = std::mem::take(&mut inner.pipes[end].stalled);
                for segment in stalled {
                    inner.put(&network, end, segment);
                }
                // Word of what was read comes back over this way too.
                let withheld = std::mem::take(&mut inner.pipes[1 - end].withheld);
                inner.pipes[1 - end].in_window -= withheld;
            }
            let wakers = inner.wakers();
            drop(inner);
            wake_all(wakers);
        }
    }
    network.healed.notify_all();
}

/// Resets every stream between the two hosts, at both ends, now.
pub fn reset_streams(a: IpAddr, b: IpAddr) {
    for connection in live_connections(&network()) {
        let mut inner = connection.borrow_mut();
        let way = inner.way(0);
        if way == (a, b) || way == (b, a) {
            for end in &mut inner.ends {
                end.reset = true;
            }
            let wakers = inner.wakers();
            drop(inner);
            wake_all(wakers);
        }
    }
}

/// The host loses power: its tasks end where they stand, its sockets and streams vanish without a
/// word, and peers learn of it when they send (a reset comes back) or by their own timeouts. Start it
/// again with [`on_host`].
///
/// # Panics
/// If a task of that very host calls it.
pub fn crash_host(ip: IpAddr) {
    assert_ne!(host(), ip, "a task cannot crash the host it runs on");
    let number = host_number(ip);
    let network = network();
    for connection in live_connections(&network) {
        let mut inner = connection.borrow_mut();
        for end in 0..2 {
            if inner.ends[end].address.host == ip && !inner.ends[end].vanished {
                inner.ends[end].vanished = true;
                if inner.pipes[1 - end].in_window > 0 && inner.ends[1 - end].address.host != ip {
                    // What the peer sent before and this host did not take is sent again, and refused.
                    inner.put(&network, end, Segment::Reset);
                }
            }
        }
        let wakers = inner.wakers();
        drop(inner);
        wake_all(wakers);
    }
    with_current(|core| core.retire_host(number));
    let orphans = {
        let mut state = network.state.borrow_mut();
        let listeners = std::mem::take(&mut state.listeners);
        let (gone, stay) = listeners
            .into_iter()
            .partition(|((host, _), _)| *host == ip);
        state.listeners = stay;
        let gone: BTreeMap<_, Rc<Backlog>> = gone;
        state.sockets.retain(|(host, _), _| *host != ip);
        for members in state.groups.values_mut() {
            members.retain(|member| member.host != ip);
        }
        gone
    };
    // With no borrow held: streams that were not accepted drop here.
    drop(orphans);
}

fn live_connections(network: &Network) -> Vec<Rc<RefCell<Connection>>> {
    let mut state = network.state.borrow_mut();
    state
        .connections
        .retain(|connection| connection.strong_count() > 0);
    state.connections.iter().filter_map(Weak::upgrade).collect()
}

fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// Waits until `place`, which this fills with a waker, is emptied by a wake, or until the moment.
async fn wait_for_wake(place: impl Fn(&mut dyn FnMut(&mut Option<Waker>)), until: Option<Instant>) {
    let mut sleep: Option<Sleep> = until.map(sleep_until_truly);
    let mut asked = false;
    poll_fn(|cx| {
        let mut woken = false;
        place(&mut |waker| {
            woken = asked && waker.is_none();
            *waker = Some(cx.waker().clone());
        });
        asked = true;
        let late = sleep
            .as_mut()
            .is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
        match woken || late {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

// --- listeners --------------------------------------------------------------------------------------

#[derive(Default)]
struct Backlog {
    /// Of loopback only?
    local: Cell<bool>,
    queue: RefCell<VecDeque<Stream>>,
    waiter: RefCell<Option<Waker>>,
}

pub(super) struct Listener {
    network: Rc<Network>,
    key: (IpAddr, Port),
    backlog: Rc<Backlog>,
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<(Listener, Address)> {
        let host = host();
        let network = network();
        let mut state = network.state.borrow_mut();
        let backlog = Rc::new(Backlog::default());
        let (port, bound) = match address {
            Address::Unix(path) => (Port::Unix(path.clone()), address.clone()),
            Address::Tcp(at) => {
                let at = own_address(&mut state, *at, host)?;
                backlog.local.set(at.ip().is_loopback());
                (Port::Tcp(at.port()), Address::Tcp(at))
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

    pub(super) async fn accept(&self) -> Stream {
        loop {
            if let Some(stream) = self.backlog.queue.borrow_mut().pop_front() {
                return stream;
            }
            wait_for_wake(|see| see(&mut self.backlog.waiter.borrow_mut()), None).await;
        }
    }
}

/// `at` with its free port and, for "any", the host's own address.
fn own_address(state: &mut State, at: SocketAddr, host: IpAddr) -> io::Result<SocketAddr> {
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

// --- streams ----------------------------------------------------------------------------------------

/// What travels down a pipe.
enum Segment {
    Data(View),
    /// No more data will come.
    Fin,
    /// The other end is closed: no more data will come, and none is taken.
    Close,
    /// The other end has thrown the connection away.
    Reset,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    flight: VecDeque<(Instant, Segment)>,
    /// Sent while the way was cut.
    stalled: VecDeque<Segment>,
    arrived: VecDeque<View>,
    ended: bool,
    last_arrival: Instant,
    /// Bytes sent and, as far as the sender knows, not read.
    in_window: usize,
    /// Bytes read of which no word came back, since the way back was cut.
    withheld: usize,
}

/// Who has an end of a connection.
struct Endpoint {
    host: IpAddr,
    label: String,
}

struct End {
    address: Endpoint,
    reader: Option<Waker>,
    writer: Option<Waker>,
    write_closed: bool,
    aborted: bool,
    /// The peer takes no more.
    peer_closed: bool,
    reset: bool,
    /// Its host lost power.
    vanished: bool,
}

/// Pipe `i` leads from end `i` to end `1 - i`.
struct Connection {
    ends: [End; 2],
    pipes: [Pipe; 2],
}

impl End {
    fn new(host: IpAddr, label: String) -> End {
        End {
            address: Endpoint { host, label },
            reader: None,
            writer: None,
            write_closed: false,
            aborted: false,
            peer_closed: false,
            reset: false,
            vanished: false,
        }
    }

    fn error(&self) -> Option<io::Error> {
        if self.aborted {
            return Some(aborted());
        }
        self.reset.then(|| {
            io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the connection was reset by the other end",
            )
        })
    }
}

impl Connection {
    fn way(&self, from: usize) -> Way {
        (
            self.ends[from].address.host,
            self.ends[1 - from].address.host,
        )
    }

    fn wakers(&mut self) -> Vec<Waker> {
        self.ends
            .iter_mut()
            .flat_map(|end| [end.reader.take(), end.writer.take()])
            .flatten()
            .collect()
    }

    /// Sends `segment` from `end`, or holds it back while the way is cut.
    fn put(&mut self, network: &Network, end: usize, segment: Segment) {
        let way = self.way(end);
        let mut state = network.state.borrow_mut();
        if state.is_cut(way) {
            self.pipes[end].stalled.push_back(segment);
            return;
        }
        let (len, answered) = match &segment {
            Segment::Data(data) => (data.len(), true),
            Segment::Fin | Segment::Close => (0, true),
            Segment::Reset => (0, false),
        };
        let pipe = &mut self.pipes[end];
        let arrival = state.segment_arrival(way, len).max(pipe.last_arrival);
        pipe.last_arrival = arrival;
        pipe.flight.push_back((arrival, segment));
        drop(state);
        if answered && self.ends[1 - end].vanished {
            // The host is up again, or its neighbour answers: neither knows such a connection.
            self.put(network, 1 - end, Segment::Reset);
        }
    }

    /// Takes in what has arrived at `end`; when the next will arrive.
    fn settle(&mut self, end: usize) -> Option<Instant> {
        let now = true_now();
        let pipe = &mut self.pipes[1 - end];
        while let Some((arrival, _)) = pipe.flight.front() {
            if *arrival > now {
                return Some(*arrival);
            }
            match pipe.flight.pop_front().map(|(_, segment)| segment) {
                Some(Segment::Data(data)) => pipe.arrived.push_back(data),
                Some(Segment::Fin) => pipe.ended = true,
                Some(Segment::Close) => {
                    pipe.ended = true;
                    self.ends[end].peer_closed = true;
                }
                Some(Segment::Reset) => {
                    pipe.arrived.clear();
                    self.ends[end].reset = true;
                }
                None => {}
            }
        }
        None
    }
}

pub(super) struct Stream {
    network: Rc<Network>,
    connection: Rc<RefCell<Connection>>,
    end: usize,
    /// Cuts reads short now and then, as networks do.
    chance: RefCell<Rng>,
}

impl Stream {
    pub(super) async fn connect(address: &Address) -> io::Result<Stream> {
        let from = host();
        let network = network();
        let (to, port) = match address {
            Address::Tcp(to) => (State::resolve(to.ip(), from), Port::Tcp(to.port())),
            Address::Unix(path) => (from, Port::Unix(path.clone())),
        };
        let deadline = now() + CONNECT_TIMEOUT;
        loop {
            let cut = {
                let state = network.state.borrow();
                state.is_cut((from, to)) || state.is_cut((to, from))
            };
            if !cut {
                break;
            }
            let left = deadline.since(now());
            if crate::timeout(left, network.healed.wait()).await.is_err() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "connecting to {address} from host {from}: no answer in {CONNECT_TIMEOUT}"
                    ),
                ));
            }
        }
        let (there, back) = {
            let mut state = network.state.borrow_mut();
            let there = state.segment_arrival((from, to), 0);
            let back = state.segment_arrival((to, from), 0).since(true_now());
            (there, back)
        };
        sleep_until_truly(there).await;
        let listener = {
            let state = network.state.borrow();
            let listener = state.listeners.get(&(to, port));
            listener
                .filter(|backlog| from == to || !backlog.local.get())
                .map(Rc::clone)
        };
        let Some(listener) = listener else {
            sleep_until_truly(true_now() + back).await;
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("connecting to {address} from host {from}: nothing listens there"),
            ));
        };
        let here = match address {
            Address::Tcp(_) => {
                let port = network.state.borrow_mut().free_port(from);
                SocketAddr::new(from, port).to_string()
            }
            Address::Unix(_) => format!("unix client, host {from}"),
        };
        let connection = Rc::new(RefCell::new(Connection {
            ends: [End::new(from, here), End::new(to, address.to_string())],
            pipes: Default::default(),
        }));
        {
            let mut state = network.state.borrow_mut();
            let connections = &mut state.connections;
            // Forget those that are gone now and then.
            if connections.len() == connections.capacity() {
                connections.retain(|connection| connection.strong_count() > 0);
            }
            connections.push(Rc::downgrade(&connection));
        }
        let [ours, theirs] = [0, 1].map(|end| Stream {
            network: Rc::clone(&network),
            connection: Rc::clone(&connection),
            end,
            chance: RefCell::new(crate::rng("net short reads")),
        });
        listener.queue.borrow_mut().push_back(theirs);
        let waiter = listener.waiter.borrow_mut().take();
        wake_all(waiter);
        sleep_until_truly(true_now() + back).await;
        Ok(ours)
    }

    async fn wait_for_wake(&self, reader: bool, until: Option<Instant>) {
        let place = |see: &mut dyn FnMut(&mut Option<Waker>)| {
            let end = &mut self.connection.borrow_mut().ends[self.end];
            see(match reader {
                true => &mut end.reader,
                false => &mut end.writer,
            });
        };
        wait_for_wake(place, until).await;
    }

    pub(super) async fn receive(&self, mut buf: Buf, whole: bool) -> io::Result<(usize, Buf)> {
        let mut filled = 0;
        while filled < buf.len() {
            let next = {
                let mut connection = self.connection.borrow_mut();
                let next = connection.settle(self.end);
                if let Some(error) = connection.ends[self.end].error() {
                    return Err(error);
                }
                let count = self.take(&mut connection, &mut buf[filled..]);
                filled += count;
                if count > 0 {
                    // The peer may send again.
                    let writer = connection.ends[1 - self.end].writer.take();
                    drop(connection);
                    wake_all(writer);
                    match whole {
                        true => continue,
                        false => break,
                    }
                }
                if connection.pipes[1 - self.end].ended {
                    break;
                }
                next
            };
            self.wait_for_wake(true, next).await;
        }
        Ok((filled, buf))
    }

    /// Moves what has arrived to `to`; sometimes less than there is.
    fn take(&self, connection: &mut Connection, to: &mut [u8]) -> usize {
        let (from, back) = (1 - self.end, connection.way(self.end));
        let pipe = &mut connection.pipes[from];
        let Some(first) = pipe.arrived.front_mut() else {
            return 0;
        };
        let mut count = first.len().min(to.len());
        let mut chance = self.chance.borrow_mut();
        if count > 1 && chance.chance(0.125) {
            count = 1 + chance.below(count as u64 - 1) as usize;
        }
        to[..count].copy_from_slice(&first[..count]);
        if count == first.len() {
            pipe.arrived.pop_front();
        } else {
            *first = first.slice(count, first.len() - count);
        }
        match self.network.state.borrow().is_cut(back) {
            true => pipe.withheld += count,
            false => pipe.in_window -= count,
        }
        count
    }

    pub(super) async fn send(&self, pieces: Vec<View>) -> io::Result<()> {
        for piece in pieces {
            let mut from = 0;
            while from < piece.len() {
                let len = (piece.len() - from).min(SEGMENT_MAX);
                let next = {
                    let mut connection = self.connection.borrow_mut();
                    let next = connection.settle(self.end);
                    let end = &connection.ends[self.end];
                    if let Some(error) = end.error() {
                        return Err(error);
                    }
                    if end.peer_closed || end.write_closed {
                        return Err(io::Error::new(
                            io::ErrorKind::BrokenPipe,
                            "the connection is closed: nothing can be sent",
                        ));
                    }
                    let pipe = &mut connection.pipes[self.end];
                    if pipe.in_window + len <= WINDOW {
                        pipe.in_window += len;
                        // Copied by reference: a view shares its memory.
                        let data = piece.slice(from, len);
                        connection.put(&self.network, self.end, Segment::Data(data));
                        from += len;
                        let reader = connection.ends[1 - self.end].reader.take();
                        drop(connection);
                        wake_all(reader);
                        continue;
                    }
                    next
                };
                self.wait_for_wake(false, next).await;
            }
        }
        Ok(())
    }

    fn put(&self, segment: Segment) {
        let mut connection = self.connection.borrow_mut();
        connection.put(&self.network, self.end, segment);
        let wakers = connection.wakers();
        drop(connection);
        wake_all(wakers);
    }

    pub(super) fn shutdown_write(&self) {
        let closed = {
            let end = &mut self.connection.borrow_mut().ends[self.end];
            std::mem::replace(&mut end.write_closed, true)
        };
        if !closed {
            self.put(Segment::Fin);
        }
    }

    pub(super) fn abort(&self) {
        let before = {
            let end = &mut self.connection.borrow_mut().ends[self.end];
            std::mem::replace(&mut end.aborted, true)
        };
        if !before {
            self.put(Segment::Reset);
        }
    }

    pub(super) fn peer(&self) -> String {
        let connection = self.connection.borrow();
        connection.ends[1 - self.end].address.label.clone()
    }

    pub(super) fn peer_host(&self) -> IpAddr {
        self.connection.borrow().ends[1 - self.end].address.host
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let quiet = {
            let connection = self.connection.borrow();
            let end = &connection.ends[self.end];
            end.vanished || end.aborted || end.reset
        };
        // A runtime that is going takes its network with it.
        let running = crate::executor::try_current(|_| ()).is_some();
        if !quiet && running {
            self.put(Segment::Close);
        }
    }
}

// --- datagrams --------------------------------------------------------------------------------------

/// One message on its way: arrival, order of sending, sender, data.
type Packet = Reverse<(Instant, u64, SocketAddr, Vec<u8>)>;

struct Inbox {
    host: IpAddr,
    queue: RefCell<BinaryHeap<Packet>>,
    waiter: RefCell<Option<Waker>>,
}

pub(super) struct Datagram {
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
    pub(super) fn bind(address: SocketAddr) -> io::Result<(Datagram, SocketAddr)> {
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

    pub(super) fn join(group: SocketAddr) -> Datagram {
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

    pub(super) fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
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

    pub(super) async fn receive(&self, mut buf: Buf) -> (usize, SocketAddr, Buf) {
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
