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

mod connection;
mod datagram;
mod link;
mod listener;
mod network;
mod stream;
mod wake;

pub(super) use datagram::Datagram;
pub use link::{Delay, Link};
pub(super) use listener::Listener;
pub use network::host;
pub(super) use stream::Stream;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use base::Nanos;

use connection::Segment;
use listener::Backlog;
use network::{Way, host_number, live_connections, network};
use wake::wake_all;

use crate::executor::with_current;

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
