//! What is under way between the two ends of a stream?
//!
//! ```text
//! put -> in flight (or stalled, while the way is cut) -> settle: arrived -> read
//! ```
//!
//! Always true: a stream's bytes only come late. A loss costs a retransmission, a cut stalls them until it ends.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::task::Waker;

use base::{Instant, View};

use super::super::common::aborted;
use super::network::{Network, Way};
use crate::shared::Descriptor;
use crate::true_now;

/// What travels down a pipe.
pub(super) enum Segment {
    /// Bytes, and the descriptors that came with the first of them.
    Data(View, Vec<Descriptor>),
    /// No more data will come.
    Fin,
    /// The other end is closed: no more data will come, and none is taken.
    Close,
    /// The other end has thrown the connection away.
    Reset,
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Pipe {
    flight: VecDeque<(Instant, Segment)>,
    /// Sent while the way was cut.
    pub(super) stalled: VecDeque<Segment>,
    pub(super) arrived: VecDeque<(View, Vec<Descriptor>)>,
    pub(super) ended: bool,
    last_arrival: Instant,
    /// Bytes sent and, as far as the sender knows, not read.
    pub(super) in_window: usize,
    /// Bytes read of which no word came back, since the way back was cut.
    pub(super) withheld: usize,
}

/// Who has an end of a connection.
pub(super) struct Endpoint {
    pub(super) host: IpAddr,
    pub(super) label: String,
}

pub(super) struct End {
    pub(super) address: Endpoint,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) write_closed: bool,
    pub(super) aborted: bool,
    /// The peer takes no more.
    pub(super) peer_closed: bool,
    pub(super) reset: bool,
    /// Its host lost power.
    pub(super) vanished: bool,
}

/// Pipe `i` leads from end `i` to end `1 - i`.
pub(super) struct Connection {
    pub(super) ends: [End; 2],
    pub(super) pipes: [Pipe; 2],
}

impl End {
    pub(super) fn new(host: IpAddr, label: String) -> End {
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

    pub(super) fn error(&self) -> Option<io::Error> {
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
    pub(super) fn way(&self, from: usize) -> Way {
        (
            self.ends[from].address.host,
            self.ends[1 - from].address.host,
        )
    }

    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        self.ends
            .iter_mut()
            .flat_map(|end| [end.reader.take(), end.writer.take()])
            .flatten()
            .collect()
    }

    /// Sends `segment` from `end`, or holds it back while the way is cut.
    pub(super) fn put(&mut self, network: &Network, end: usize, segment: Segment) {
        let way = self.way(end);
        let mut state = network.state.borrow_mut();
        if state.is_cut(way) {
            self.pipes[end].stalled.push_back(segment);
            return;
        }
        let (len, answered) = match &segment {
            Segment::Data(data, _) => (data.len(), true),
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
    pub(super) fn settle(&mut self, end: usize) -> Option<Instant> {
        let now = true_now();
        let pipe = &mut self.pipes[1 - end];
        while let Some((arrival, _)) = pipe.flight.front() {
            if *arrival > now {
                return Some(*arrival);
            }
            match pipe.flight.pop_front().map(|(_, segment)| segment) {
                Some(Segment::Data(data, with)) => pipe.arrived.push_back((data, with)),
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
