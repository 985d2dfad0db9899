//! One end of a simulated stream: connecting, reading, writing, hanging up.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;

use base::{Buf, Instant, Nanos, View};

use super::super::common::Address;
use super::connection::{Connection, End, Segment};
use super::network::{Network, Port, State, host, network};
use super::wake::{wait_for_wake, wake_all};
use crate::shared::Descriptor;
use crate::time::sleep_until_truly;
use crate::{Elapsed, Rng, now, true_now};

/// A connection that cannot be made is given up after this time.
const CONNECT_TIMEOUT: Nanos = Nanos::secs(30);
/// Bytes of a stream under way or unread before its writer waits.
const WINDOW: usize = 1 << 20;
/// Most bytes of one segment.
const SEGMENT_MAX: usize = 64 << 10;

pub(crate) struct Stream {
    network: Rc<Network>,
    connection: Rc<RefCell<Connection>>,
    end: usize,
    /// Cuts reads short now and then, as networks do.
    chance: RefCell<Rng>,
}

impl Stream {
    pub(crate) async fn connect(address: &Address) -> io::Result<Stream> {
        let from = host();
        let network = network();
        let (to, port) = match address {
            Address::Tcp(to) | Address::Tls(to) => {
                (State::resolve(to.ip(), from), Port::Tcp(to.port()))
            }
            Address::Unix(path) => (from, Port::Unix(path.clone())),
        };
        if wait_for_ways(&network, from, to).await.is_err() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("connecting to {address} from host {from}: no answer in {CONNECT_TIMEOUT}"),
            ));
        }
        let (there, back) = {
            let mut state = network.state.borrow_mut();
            let there = state.segment_arrival((from, to), 0);
            let back = state.segment_arrival((to, from), 0).since(true_now());
            (there, back)
        };
        sleep_until_truly(there).await;
        let Some(listener) = network.state.borrow().listener(from, &(to, port)) else {
            sleep_until_truly(true_now() + back).await;
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("connecting to {address} from host {from}: nothing listens there"),
            ));
        };
        let here = match address {
            Address::Tcp(_) | Address::Tls(_) => {
                let port = network.state.borrow_mut().free_port(from);
                SocketAddr::new(from, port).to_string()
            }
            Address::Unix(_) => format!("unix client, host {from}"),
        };
        let ends = [End::new(from, here), End::new(to, address.to_string())];
        let [ours, theirs] = Stream::pair(&network, ends);
        listener.queue.borrow_mut().push_back(theirs);
        let waiter = listener.waiter.borrow_mut().take();
        wake_all(waiter);
        sleep_until_truly(true_now() + back).await;
        Ok(ours)
    }

    /// Both ends of a new connection.
    fn pair(network: &Rc<Network>, ends: [End; 2]) -> [Stream; 2] {
        let connection = Rc::new(RefCell::new(Connection {
            ends,
            pipes: Default::default(),
        }));
        network.state.borrow_mut().add(&connection);
        [0, 1].map(|end| Stream {
            network: Rc::clone(network),
            connection: Rc::clone(&connection),
            end,
            chance: RefCell::new(crate::rng("net short reads")),
        })
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

    pub(crate) async fn receive(&self, buf: Buf, whole: bool) -> io::Result<(usize, Buf)> {
        let (filled, buf, _) = self.receive_with(buf, whole).await?;
        Ok((filled, buf))
    }

    /// Receives, and the descriptors that came with what was received.
    pub(crate) async fn receive_with(
        &self,
        mut buf: Buf,
        whole: bool,
    ) -> io::Result<(usize, Buf, Vec<Descriptor>)> {
        let (mut filled, mut with) = (0, Vec::new());
        while filled < buf.len() {
            let next = {
                let mut connection = self.connection.borrow_mut();
                let next = connection.settle(self.end);
                if let Some(error) = connection.ends[self.end].error() {
                    return Err(error);
                }
                let count = self.take(&mut connection, &mut buf[filled..], &mut with);
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
        Ok((filled, buf, with))
    }

    /// Moves what has arrived to `to`; sometimes less than there is.
    fn take(
        &self,
        connection: &mut Connection,
        to: &mut [u8],
        with: &mut Vec<Descriptor>,
    ) -> usize {
        let (from, back) = (1 - self.end, connection.way(self.end));
        let pipe = &mut connection.pipes[from];
        let Some((first, came)) = pipe.arrived.front_mut() else {
            return 0;
        };
        with.append(came);
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

    pub(crate) async fn send(&self, pieces: Vec<View>) -> io::Result<()> {
        self.send_with(pieces, Vec::new()).await
    }

    /// Sends; `with` goes with the first byte.
    pub(crate) async fn send_with(
        &self,
        pieces: Vec<View>,
        mut with: Vec<Descriptor>,
    ) -> io::Result<()> {
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
                        let with = std::mem::take(&mut with);
                        connection.put(&self.network, self.end, Segment::Data(data, with));
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

    pub(crate) fn shutdown_write(&self) {
        let closed = {
            let end = &mut self.connection.borrow_mut().ends[self.end];
            std::mem::replace(&mut end.write_closed, true)
        };
        if !closed {
            self.put(Segment::Fin);
        }
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let mut connection = self.connection.borrow_mut();
        connection.settle(self.end);
        connection.pipes[1 - self.end].ended || connection.ends[self.end].reset
    }

    pub(crate) fn abort(&self) {
        let before = {
            let end = &mut self.connection.borrow_mut().ends[self.end];
            std::mem::replace(&mut end.aborted, true)
        };
        if !before {
            self.put(Segment::Reset);
        }
    }

    pub(crate) fn peer(&self) -> String {
        let connection = self.connection.borrow();
        connection.ends[1 - self.end].address.label.clone()
    }

    pub(crate) fn peer_host(&self) -> IpAddr {
        self.connection.borrow().ends[1 - self.end].address.host
    }
}

/// Waits until neither way between the two hosts is cut, as long as a connection may take.
async fn wait_for_ways(network: &Network, from: IpAddr, to: IpAddr) -> Result<(), Elapsed> {
    let deadline = now() + CONNECT_TIMEOUT;
    let is_cut = || {
        let state = network.state.borrow();
        state.is_cut((from, to)) || state.is_cut((to, from))
    };
    while is_cut() {
        let left = deadline.since(now());
        crate::timeout(left, network.healed.wait()).await?;
    }
    Ok(())
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
