//! States of the stores' queues, sent unasked: for nodes without answers that carry them.
//!
//! ```text
//! each store of a node: changed, or a second over -> datagram, tagged with the node key -> a multicast group, or each other node
//!                                                                                            -> newer than the last? -> the policies
//! ```
//!
//! Nothing depends on them. They may be lost, come twice, late and in another order; what is older than what was heard is
//! passed over, and what is from a stranger or of another version, too.
//!
//! Source: COST 3.2 (each disk multicasts cost' and h' periodically). Choice: the paper gives no period; and a disk whose
//! state did not change keeps silent but for once in a second.
//!
//! Always true: of each store the states that are handed on rise in (run, sequence), but for a run after ten seconds of silence.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use base::{Buf, Instant, Nanos};
use env::net::Datagram;
use policy::place::State;
use store::net::wire::{Announced, DATAGRAM_MAX, NodeKey};
use store::qos::manager::Manager;

use crate::names::StoreNumber;

/// What did not change is sent so often all the same.
const SILENT: Nanos = Nanos::secs(1);
/// A run that was not heard of for so long is over.
const FORGOTTEN: Nanos = Nanos::secs(10);
/// Stores whose last datagram is remembered.
const STORES_MAX: usize = 65_536;

/// Where states go and come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A group that all nodes join.
    Multicast(SocketAddr),
    /// Where this node hears, and where the others do, for networks without multicast.
    Unicast {
        /// Its own.
        own: SocketAddr,
        /// Theirs.
        peers: Vec<SocketAddr>,
    },
}

impl Route {
    fn socket(&self) -> io::Result<Datagram> {
        match self {
            Route::Multicast(group) => Datagram::join(*group),
            Route::Unicast { own, .. } => Datagram::bind(*own),
        }
    }

    fn targets(&self) -> &[SocketAddr] {
        match self {
            Route::Multicast(group) => std::slice::from_ref(group),
            Route::Unicast { peers, .. } => peers,
        }
    }
}

/// Sends the states of these stores, each at most `every` so often; never ends.
///
/// # Errors
/// If there is no socket to send from. What cannot be sent is left out, and tried again the next time.
pub async fn announce(
    route: Route,
    key: NodeKey,
    stores: Vec<(StoreNumber, Rc<Manager>)>,
    every: Nanos,
) -> io::Result<std::convert::Infallible> {
    let any = |of: &SocketAddr| match of.is_ipv4() {
        true => SocketAddr::from(([0, 0, 0, 0], 0)),
        false => SocketAddr::from(([0_u16; 8], 0)),
    };
    let from = route
        .targets()
        .first()
        .map_or_else(|| any(&SocketAddr::from(([0; 4], 0))), any);
    let socket = Datagram::bind(from)?;
    let run = env::wall_clock().0;
    let mut sequence = 0;
    let mut last_sent: BTreeMap<StoreNumber, (Instant, State)> = BTreeMap::new();
    loop {
        for (store, node) in &stores {
            let state = node.state();
            let before = last_sent.get(store);
            if before
                .is_some_and(|(at, before)| is_as(before, &state) && state.at.since(*at) < SILENT)
            {
                continue;
            }
            last_sent.insert(*store, (state.at, state));
            sequence += 1;
            let announced = Announced {
                store: store.0,
                run,
                sequence,
                state,
            };
            let bytes = announced.encode(&key);
            for target in route.targets() {
                if let Err(error) = socket.send_to(&bytes, *target).await {
                    tracing::debug!(%target, %error, "a state was not sent");
                }
            }
        }
        env::sleep(every.max(Nanos::micros(100))).await;
    }
}

/// Would a client choose the same by both? Means that fall slowly while the queue is idle are no change.
fn is_as(before: &State, state: &State) -> bool {
    let queue = |it: &State| (it.requests, it.cost, it.queued, it.tail, it.foremost);
    queue(before) == queue(state) && state.requests == 0
}

/// What was heard of a store last.
struct Last {
    run: u64,
    sequence: u64,
    at: Instant,
}

impl Last {
    /// Is it newer? After so long a silence an earlier run's report is, too: a node's clock may have been set back.
    fn follows(&self, before: &Last) -> bool {
        let later = (self.run, self.sequence) > (before.run, before.sequence);
        later || (self.run != before.run && self.at.since(before.at) > FORGOTTEN)
    }
}

/// Hears states, and hands on those that are newer; never ends.
///
/// # Errors
/// If there is no socket to hear at, or it fails.
pub async fn hear(
    route: Route,
    key: NodeKey,
    on_state: impl Fn(StoreNumber, &State),
) -> io::Result<std::convert::Infallible> {
    let socket = route.socket()?;
    let mut heard: BTreeMap<u16, Last> = BTreeMap::new();
    let mut buf = Buf::for_read(DATAGRAM_MAX + 1);
    loop {
        let (len, _, back) = socket.receive(buf).await?;
        let announced = Announced::decode(&back[..len], &key, env::now());
        buf = back;
        let Some(announced) = announced else { continue };
        let now = Last {
            run: announced.run,
            sequence: announced.sequence,
            at: announced.state.at,
        };
        let last = heard.get(&announced.store);
        if last.is_some_and(|last| !now.follows(last)) || heard.len() >= STORES_MAX {
            continue;
        }
        heard.insert(announced.store, now);
        on_state(StoreNumber(announced.store), &announced.state);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::IpAddr;

    use base::{Bytes, View};
    use device::Memory;
    use env::net::sim::{self, Link};
    use policy::share::{BytesPerSec, Costs};
    use store::qos::fenced::Fenced;
    use store::qos::manager::ManagerOptions;
    use store::qos::session::Access;
    use store::{Change, ObjectCalls, Settings, Store};

    use super::*;

    const KEY: NodeKey = NodeKey([7; 32]);

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    async fn node() -> Rc<Manager> {
        let device = Memory::new("disk", Bytes::mib(16));
        let formatted = Store::format(Rc::clone(&device) as _, Settings::default()).await;
        formatted.unwrap().close().await.unwrap();
        let options = ManagerOptions {
            node_key: Some(KEY.0),
            scrub: None,
            ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [9; 32])
        };
        let node = Manager::open(Rc::clone(&device) as _, options)
            .await
            .unwrap();
        let session = node.open_session(Access::NodeKey).unwrap();
        let data = View::copy_of(&[1; 65_536]);
        let change = Change::FUA.creating();
        session.write("a", 0, data, change).await.unwrap();
        device.set_latency(Nanos::millis(2));
        node
    }

    type Heard = Rc<RefCell<Vec<(StoreNumber, State)>>>;

    fn hears(at: u8, route: Route, key: NodeKey) -> Heard {
        let heard = Heard::default();
        let on_state = Rc::clone(&heard);
        env::spawn(sim::on_host(host(at), async move {
            let on_state = move |store, state: &State| on_state.borrow_mut().push((store, *state));
            hear(route, key, on_state).await.map(|_| ()).unwrap();
        }));
        heard
    }

    /// Node 1 has stores 4 and 5; store 5 is read for a while by a session of its own.
    async fn run_both(route: impl Fn(u8) -> Route) -> [Heard; 2] {
        let heard = [hears(2, route(2), KEY), hears(3, route(3), KEY)];
        let strangers = hears(4, route(4), NodeKey([1; 32]));
        let (idle, busy) = (node().await, node().await);
        let stores = vec![(StoreNumber(4), idle), (StoreNumber(5), Rc::clone(&busy))];
        let own = route(1);
        env::spawn(sim::on_host(host(1), async move {
            let sent = announce(own, KEY, stores, Nanos::millis(1));
            sent.await.map(|_| ()).unwrap();
        }));
        let session = busy.open_session(Access::NodeKey).unwrap();
        let guarded = Fenced::new(&session, "g", 1).unwrap();
        for _ in 0..8 {
            let guarded = Rc::clone(&guarded);
            env::spawn(async move {
                for nth in 0..50 {
                    guarded.read("a", nth % 16 * 4096, 4096).await.unwrap();
                }
            });
        }
        env::sleep(Nanos::secs(4)).await;
        assert!(
            strangers.borrow().is_empty(),
            "without the key nothing is heard"
        );
        heard
    }

    fn check(heard: &Heard) {
        let heard = heard.borrow();
        let of = |store| {
            heard
                .iter()
                .filter(move |(of, _)| *of == StoreNumber(store))
        };
        let most = of(5).map(|(_, state)| state.requests).max().unwrap();
        assert_eq!(most, 8, "all that wait are reported");
        assert_eq!(
            of(5).next_back().unwrap().1.requests,
            0,
            "and that they have gone"
        );
        assert!(
            (2..10).contains(&of(4).count()),
            "who has nothing to say says it seldom"
        );
    }

    #[test]
    fn a_group_hears_each_store_of_a_node_and_strangers_hear_nothing() {
        env::Runtime::simulated(1).block_on(async {
            let group = Route::Multicast("239.1.2.3:7411".parse().unwrap());
            for heard in run_both(|_| group.clone()).await {
                check(&heard);
            }
        });
    }

    #[test]
    fn without_multicast_a_state_is_sent_to_each_peer() {
        env::Runtime::simulated(2).block_on(async {
            let at = |host: u8| SocketAddr::from(([10, 0, 0, host], 7411));
            let route = |own: u8| Route::Unicast {
                own: SocketAddr::from(([0, 0, 0, 0], 7411)),
                peers: (1..=4).filter(|peer| *peer != own).map(at).collect(),
            };
            for heard in run_both(route).await {
                check(&heard);
            }
        });
    }

    #[test]
    fn what_comes_late_or_twice_never_takes_the_place_of_what_is_newer() {
        env::Runtime::simulated(3).block_on(async {
            let group: SocketAddr = "239.1.2.3:7411".parse().unwrap();
            let heard = hears(2, Route::Multicast(group), KEY);
            env::yield_now().await;
            let socket = Datagram::bind("0.0.0.0:0".parse().unwrap()).unwrap();
            let sent = [
                (1, 3),
                (1, 1),
                (1, 3),
                (1, 4),
                (2, 1),
                (1, 9),
                (2, 1),
                (2, 2),
            ];
            for (nth, (run, sequence)) in sent.into_iter().enumerate() {
                let mut state = State::idle(policy::place::Weights::default());
                state.requests = nth as u32;
                let announced = Announced {
                    store: 1,
                    run,
                    sequence,
                    state,
                };
                let bytes = announced.encode(&KEY);
                socket.send_to(&bytes, group).await.unwrap();
                socket.send_to(&bytes[1..], group).await.unwrap();
                env::sleep(Nanos::millis(1)).await;
            }
            let requests =
                || -> Vec<u32> { heard.borrow().iter().map(|(_, it)| it.requests).collect() };
            assert_eq!(requests(), [0, 3, 4, 7]);
            // Its clock was set back while it was away.
            env::sleep(Nanos::secs(11)).await;
            let state = State::idle(policy::place::Weights::default());
            let announced = Announced {
                store: 1,
                run: 1,
                sequence: 1,
                state,
            };
            let bytes = announced.encode(&KEY);
            socket.send_to(&bytes, group).await.unwrap();
            env::sleep(Nanos::millis(1)).await;
            assert_eq!(requests().len(), 5);
        });
    }

    #[test]
    fn a_network_that_loses_and_doubles_most_of_it_tells_in_the_end_how_it_is() {
        env::Runtime::simulated(4).block_on(async {
            sim::set_default_link(Link {
                loss: 0.3,
                duplication: 0.3,
                reordering: 0.5,
                held_back: Nanos::millis(20),
                ..Link::LAN
            });
            let group = Route::Multicast("239.1.2.3:7411".parse().unwrap());
            for heard in run_both(|_| group.clone()).await {
                let heard = heard.borrow();
                let mut busy = heard.iter().filter(|(of, _)| *of == StoreNumber(5));
                assert_eq!(busy.next_back().unwrap().1.requests, 0);
            }
        });
    }
}
