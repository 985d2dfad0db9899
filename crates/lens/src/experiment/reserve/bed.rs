//! One run: clients that ask again as soon as they were answered, at the production queue before the modelled device.
//!
//! ```text
//! Client: start, pause, requests of 1 MiB in sequence, a few at once -> Queue -> Vertex -> what arrived, and when
//! ```
//!
//! Source: PROBS 4 (1 MB I/Os, objects of 4 MB), 4.2 (each access in sequence, the next begins later).
//!
//! Choice: a client has one object of requests outstanding, as it would with the paper's buffers. What arrived is
//! counted piece by piece where the scheduler cuts requests up: that is when the store may send it on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use policy::share::capacity::Interval;
use policy::share::violations::{Violations, Window, throughputs};
use policy::share::{
    BytesPerSec, Cost, Costs, DepthOptions, Direction, Figures, Kind, SessionId, Share, Terms, load,
};
use store::queue::{Queue, QueueOptions};

use super::vertex::{Times, Vertex};

/// The paper's I/O and its object.
pub(super) const IO: Bytes = Bytes::mib(1);
pub(super) const OBJECT: Bytes = Bytes::mib(4);
/// Each client has this part of the device to itself, and begins again at its end.
const REACH: Bytes = Bytes::gib(2);
/// How often a look is taken at what a newcomer has got.
const LOOK: Nanos = Nanos::micros(500);
/// For how long.
const LOOK_FOR: Nanos = Nanos::secs(1);

/// A scheduler and how it is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Method {
    /// Its name in the tables.
    pub name: &'static str,
    pub kind: Kind,
    pub options: QueueOptions,
    /// Do the rates matter, or only their ratio? Then one run tells for every overhead.
    pub paced: bool,
}

/// What the model costs in the terms of the schedulers: each piece is set up anew, as when several are served.
pub(super) fn costs() -> Costs {
    let of = |fixed: Nanos, media: f64| {
        let copy = Times::STORE.copy.map_or(0.0, |copy| 1.0 / copy.0 as f64);
        Cost {
            fixed,
            jump: Nanos(0),
            rate: BytesPerSec((1.0 / (1.0 / media + copy)) as u64),
        }
    };
    let Times {
        setup,
        jump,
        transfer,
        media,
        ..
    } = Times::STORE;
    let (fast, slow) = (media.fast_run.0 as f64, media.slow_run.0 as f64);
    let time = fast / media.fast.0 as f64 + slow / media.slow.0 as f64;
    Costs {
        read: of(setup + jump, transfer.0 as f64),
        write: of(setup, (fast + slow) / time),
    }
}

impl Method {
    fn new(name: &'static str, kind: Kind) -> Method {
        Method {
            name,
            kind,
            options: QueueOptions {
                kind,
                ..QueueOptions::new(costs())
            },
            paced: kind == Kind::Tags,
        }
    }

    /// The four schedulers as they come, `tags` at depth 1, and the published rounds at the depth tags come to.
    pub fn all() -> Vec<Method> {
        let mut all: Vec<Method> = Kind::ALL
            .map(|kind| Method::new(kind.name(), kind))
            .to_vec();
        all.push(Method::tags("tags-depth1", |options| {
            options.share.tags.depth = DepthOptions::fixed(1);
        }));
        all.push(Method::rounds_at("rounds-depth3", 3));
        all
    }

    /// `tags` with something changed.
    pub fn tags(name: &'static str, change: impl FnOnce(&mut QueueOptions)) -> Method {
        let mut method = Method::new(name, Kind::Tags);
        change(&mut method.options);
        method
    }

    /// Nobody in between: first come, first served, one at a time.
    pub fn direct() -> Method {
        Method::new("direct", Kind::Fifo)
    }

    fn rounds_at(name: &'static str, depth: u32) -> Method {
        let mut method = Method::new(name, Kind::Rounds);
        method.options.share.rounds.depth = depth;
        method
    }

    /// The published rounds of so many I/Os.
    pub fn rounds(ios: u64) -> Method {
        let mut method = Method::new("rounds", Kind::Rounds);
        method.options.share.rounds.round_ios = ios;
        method
    }
}

/// Somebody who asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Client {
    pub terms: Terms,
    pub start: Instant,
    /// It asks for nothing from the first to the second of these.
    pub pause: Option<(Instant, Instant)>,
    /// Requests of [`IO`] it has outstanding.
    pub outstanding: u64,
    /// As background work.
    pub background: bool,
}

impl Client {
    pub fn new(terms: Terms, start: Instant) -> Client {
        Client {
            terms,
            start,
            pause: None,
            outstanding: OBJECT.0 / IO.0,
            background: false,
        }
    }
}

/// N accesses by equation (1), the last of them two seconds after the first.
pub(super) fn by_equation(
    base: BytesPerSec,
    direction: Direction,
    n: u32,
    overhead: f64,
) -> Vec<Client> {
    let rates = load(base, share(overhead), n);
    with_rates(direction, &rates)
}

/// Clients with these rates, the last of them two seconds after the first.
pub(super) fn with_rates(direction: Direction, rates: &[BytesPerSec]) -> Vec<Client> {
    let gaps = rates.len().saturating_sub(1).max(1) as u64;
    let client = |(at, rate): (usize, &BytesPerSec)| {
        let start = Instant(2_000_000_000 * at as u64 / gaps);
        Client::new(Terms::reserved(direction, *rate), start)
    };
    rates.iter().enumerate().map(client).collect()
}

/// A percentage as a part of the device.
pub(super) fn share(percent: f64) -> Share {
    Share((percent * 1e7).round() as u64)
}

/// What became of a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Got {
    pub rate: BytesPerSec,
    pub first_asked: Instant,
    pub deliveries: Vec<(Instant, Bytes)>,
    /// In its first second: the most it was behind its rate.
    pub lag: Bytes,
    /// Until something of it was served.
    pub wait: Nanos,
    /// What the scheduler itself says; none of background work.
    pub figures: Option<Figures>,
}

impl Got {
    /// Its throughputs over windows of one kind.
    pub fn throughputs(&self, window: Window) -> Vec<BytesPerSec> {
        throughputs(self.first_asked, &self.deliveries, window)
    }

    /// What arrived in `from..to`.
    pub fn between(&self, from: Instant, to: Instant) -> Bytes {
        let inside = self.deliveries.iter();
        let inside = inside.filter(|(at, _)| from <= *at && *at < to);
        inside.map(|(_, bytes)| *bytes).sum()
    }

    /// Windows of the contract in which it asked for enough and got less, by the scheduler's own count.
    pub fn broken(&self) -> Violations {
        let windows = self
            .figures
            .map(|figures| figures.windows)
            .unwrap_or_default();
        Violations {
            below: windows.violated(),
            of: windows.all() - windows.no_demand,
        }
    }

    /// From its first request to the end of its first window of a second that got less than promised.
    pub fn first_violation(&self) -> Option<Nanos> {
        let second = Window::Time(Nanos::secs(1));
        let rates = self.throughputs(second);
        let first = rates.iter().position(|rate| *rate < self.rate)?;
        Some(Nanos::secs(first as u64 + 1))
    }
}

/// What a whole run gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// One for each client.
    pub got: Vec<Got>,
    /// The mean depth over looks every 10 ms.
    pub depth: f64,
    pub end: Instant,
    /// When the last client came.
    pub all_there: Instant,
    /// What the device did, second by second.
    pub intervals: Vec<Interval>,
}

impl Run {
    /// Bytes per second of all together, from when all were there.
    pub fn total(&self) -> BytesPerSec {
        let got = self.got.iter();
        let bytes = got.map(|got| got.between(self.all_there, self.end)).sum();
        BytesPerSec::of(bytes, self.end.since(self.all_there))
    }
}

struct Told {
    queue: Rc<Queue>,
    data: View,
    got: RefCell<Vec<Got>>,
    numbers: RefCell<Vec<Option<SessionId>>>,
}

/// Runs `clients` by `method` on a device like this until `end`.
pub(super) fn run(
    method: &Method,
    times: Times,
    clients: &[Client],
    end: Instant,
    seed: u64,
) -> Run {
    let (method, clients) = (*method, clients.to_vec());
    let runtime = env::Runtime::simulated(seed);
    runtime.block_on(async move {
        let size = REACH * (clients.len() as u64 + 1);
        let vertex = Vertex::new(times, size, None);
        let queue = Queue::new(vertex.clone(), method.options);
        let told = Rc::new(Told {
            queue: Rc::clone(&queue),
            data: View::copy_of(&vec![7; IO.usize()]),
            got: RefCell::new(vec![Got::default(); clients.len()]),
            numbers: RefCell::new(vec![None; clients.len()]),
        });
        for (at, client) in clients.iter().enumerate() {
            env::spawn(live(Rc::clone(&told), at, *client));
        }
        let (mut looks, mut depth) = (0, 0);
        let mut intervals = Vec::new();
        while env::now() + Nanos::millis(10) < end {
            env::sleep(Nanos::millis(10)).await;
            (looks, depth) = (looks + 1, depth + u64::from(queue.depth()));
            if looks % 100 == 0 {
                intervals.push(queue.take_interval());
            }
        }
        env::sleep_until(end).await;
        let mut log = vertex.take_log();
        let mut got = told.got.take();
        for (got, number) in got.iter_mut().zip(told.numbers.borrow().iter()) {
            if let Some(number) = number {
                got.deliveries = log.remove(&number.0).unwrap_or_default();
                got.figures = queue.figures(*number);
            }
        }
        Run {
            got,
            depth: depth as f64 / f64::from(looks.max(1)),
            end,
            intervals,
            all_there: clients.iter().map(|it| it.start).max().unwrap_or_default(),
        }
    })
}

/// One client, from its start on.
async fn live(told: Rc<Told>, at: usize, client: Client) {
    env::sleep_until(client.start).await;
    let (class, number) = match client.background {
        true => (Class::Background, None),
        false => {
            let number = told.queue.open(client.terms).expect("there is room");
            (Class::Session(number.0), Some(number))
        }
    };
    told.numbers.borrow_mut()[at] = number;
    {
        let got = &mut told.got.borrow_mut()[at];
        got.rate = client.terms.rate;
        got.first_asked = env::now();
    }
    let next = Rc::new(Cell::new(0));
    for _ in 0..client.outstanding {
        let (told, next) = (Rc::clone(&told), Rc::clone(&next));
        env::spawn(async move {
            loop {
                if let Some((from, to)) = client.pause
                    && (from..to).contains(&env::now())
                {
                    env::sleep_until(to).await;
                }
                let place = next.get();
                next.set(place + IO.0);
                ask(&told, at, place, client.terms.direction, class).await;
            }
        });
    }
    if let Some(number) = number {
        watch(&told, at, number, client).await;
    }
}

async fn ask(told: &Told, at: usize, place: u64, direction: Direction, class: Class) {
    let from = Sector::containing(REACH.0 * at as u64 + place % REACH.0);
    let asked = match direction {
        Direction::Read => {
            let buf = Buf::for_read(IO.usize());
            told.queue.read(from, buf, class).await.map(drop)
        }
        Direction::Write => {
            let flags = WriteFlags { fua: false, class };
            told.queue.write(from, told.data.clone(), flags).await
        }
    };
    asked.expect("the model refuses nothing");
}

/// How a newcomer fares in its first second.
async fn watch(told: &Told, at: usize, number: SessionId, client: Client) {
    let (mut lag, mut wait) = (Bytes(0), None);
    loop {
        env::sleep(LOOK).await;
        let Some(figures) = told.queue.figures(number) else {
            return;
        };
        let passed = env::now().since(client.start);
        let owed = client.terms.rate.within(passed);
        lag = lag.max(Bytes(owed.0.saturating_sub(figures.delivered.0)));
        if figures.delivered.0 > 0 {
            wait.get_or_insert(passed);
        }
        if passed >= LOOK_FOR && wait.is_some() {
            break;
        }
    }
    let got = &mut told.got.borrow_mut()[at];
    (got.lag, got.wait) = (lag, wait.unwrap_or(LOOK_FOR));
}
