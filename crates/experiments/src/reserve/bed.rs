//! One run: clients that ask again as soon as they were answered, at the production queue before the modelled device.
//!
//! ```text
//! Client: start, pause, requests of one size in sequence (1 MiB), a few at once -> Ground -> Vertex -> what arrived, and when
//! Ground: the queue alone (here), or a whole store with sessions, in virtual or in real time (`real`)
//! ```
//!
//! Source: PROBS 4 (1 MB I/Os, objects of 4 MB), 4.2 (each access in sequence, the next begins later).
//!
//! Choice: a client has one object of requests outstanding, as it would with the paper's buffers. What arrived is
//! counted piece by piece where the scheduler cuts requests up: that is when the store may send it on.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use policy::share::capacity::Interval;
use policy::share::violations::{Violations, Window, throughputs};
use policy::share::{
    BytesPerSec, DepthOptions, Direction, Kind, SessionCounters, SessionId, Share, Terms, load,
};
use store::qos::queue::{Queue, QueueOptions};

use super::vertex::{Times, Vertex, costs};

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
    /// Do the rates matter, or only their ratio? Then one run stands for every overhead.
    pub paced: bool,
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

    /// No scheduler in between: first come, first served, one at a time.
    pub fn direct() -> Method {
        Method::new("direct", Kind::Fifo)
    }

    pub fn rounds_at(name: &'static str, depth: u32) -> Method {
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

/// A client that asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Client {
    pub terms: Terms,
    pub start: Instant,
    /// It asks for nothing from the first to the second of these.
    pub pause: Option<(Instant, Instant)>,
    /// What it asks for at a time.
    pub io: Bytes,
    /// How often at once.
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
            io: IO,
            outstanding: OBJECT.0 / IO.0,
            background: false,
        }
    }

    /// The same with requests of `io`, as many at once as an object has.
    pub fn asking(self, io: Bytes) -> Client {
        Client {
            io,
            outstanding: OBJECT.0 / io.0,
            ..self
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
    pub figures: Option<SessionCounters>,
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
    /// By how much the device answered later than it should, on average: in virtual time never.
    pub late: Nanos,
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

/// Why a request was not done: a device that is real can fail.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A request on its way.
pub(super) type Asked = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// A client's own line at the queue; none if it is background work.
pub(super) type Line = Option<SessionId>;

/// Where clients ask.
pub(super) trait Ground {
    fn queue(&self) -> &Queue;

    /// What the device did since the last call, where no other component records that.
    fn take_interval(&self) -> Option<Interval> {
        None
    }

    /// Client `at` has come.
    fn enter(&self, at: usize, client: &Client) -> Result<Line, Failure>;

    /// It asks for a piece, by its first byte of all it ever asks for and its length.
    fn ask(
        self: Rc<Self>,
        at: usize,
        piece: (u64, Bytes),
        direction: Direction,
        line: Line,
    ) -> Asked;
}

/// The queue alone, before a device without contents.
struct Bare {
    queue: Rc<Queue>,
    data: View,
}

impl Ground for Bare {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn take_interval(&self) -> Option<Interval> {
        Some(self.queue.take_interval())
    }

    fn enter(&self, _at: usize, client: &Client) -> Result<Line, Failure> {
        Ok(match client.background {
            true => None,
            false => Some(self.queue.open(client.terms)?),
        })
    }

    fn ask(
        self: Rc<Self>,
        at: usize,
        (place, io): (u64, Bytes),
        direction: Direction,
        line: Line,
    ) -> Asked {
        let class = line.map_or(Class::Background, |number| Class::Session(number.0));
        let from = Sector::containing(REACH.0 * at as u64 + place % REACH.0);
        Box::pin(async move {
            match direction {
                Direction::Read => {
                    let buf = Buf::for_read(io.usize());
                    self.queue.read(from, buf, class).await.map(drop)?;
                }
                Direction::Write => {
                    let flags = WriteFlags { fua: false, class };
                    let data = self.data.slice(0, io.usize());
                    self.queue.write(from, data, flags).await?;
                }
            }
            Ok(())
        })
    }
}

struct Shared<G> {
    ground: Rc<G>,
    /// All moments of clients count from here.
    origin: Instant,
    got: RefCell<Vec<Got>>,
    lines: RefCell<Vec<Line>>,
    failed: RefCell<Option<Failure>>,
}

impl<G> Shared<G> {
    /// When it is so much by the clients' own clock.
    fn at(&self, moment: Instant) -> Instant {
        self.origin + moment.since(Instant(0))
    }

    /// What it is by the clients' own clock.
    fn own(&self, moment: Instant) -> Instant {
        Instant(0) + moment.since(self.origin)
    }
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
        let ground = Rc::new(Bare {
            queue: Queue::new(vertex.clone(), method.options),
            data: View::copy_of(&vec![7; IO.usize()]),
        });
        let run = drive(&vertex, ground, &clients, end).await;
        run.expect("the model refuses nothing")
    })
}

/// Lets `clients` ask until `end` by their own clock, which begins now.
///
/// # Errors
/// The first failure of any request.
pub(super) async fn drive<G: Ground + 'static>(
    vertex: &Vertex,
    ground: Rc<G>,
    clients: &[Client],
    end: Instant,
) -> Result<Run, Failure> {
    let shared = Rc::new(Shared {
        ground,
        origin: env::now(),
        got: RefCell::new(vec![Got::default(); clients.len()]),
        lines: RefCell::new(vec![None; clients.len()]),
        failed: RefCell::default(),
    });
    vertex.take_log();
    for (at, client) in clients.iter().enumerate() {
        env::spawn(live(Rc::clone(&shared), at, *client));
    }
    let queue = shared.ground.queue();
    let (mut looks, mut depth) = (0, 0);
    let mut intervals = Vec::new();
    while env::now() + Nanos::millis(10) < shared.at(end) {
        env::sleep(Nanos::millis(10)).await;
        (looks, depth) = (looks + 1, depth + u64::from(queue.depth()));
        if looks % 100 == 0 {
            intervals.extend(shared.ground.take_interval());
        }
        if let Some(failure) = shared.failed.take() {
            return Err(failure);
        }
    }
    env::sleep_until(shared.at(end)).await;
    let (mut log, late) = vertex.take_log();
    let mut got = shared.got.take();
    for (got, line) in got.iter_mut().zip(shared.lines.borrow().iter()) {
        if let Some(line) = line {
            got.deliveries = log.remove(&line.0).unwrap_or_default();
            for (at, _) in &mut got.deliveries {
                *at = shared.own(*at);
            }
            got.figures = queue.figures(*line);
        }
    }
    Ok(Run {
        got,
        depth: depth as f64 / f64::from(looks.max(1)),
        late,
        end,
        intervals,
        all_there: clients.iter().map(|it| it.start).max().unwrap_or_default(),
    })
}

/// One client, from its start on.
async fn live<G: Ground + 'static>(shared: Rc<Shared<G>>, at: usize, client: Client) {
    env::sleep_until(shared.at(client.start)).await;
    let line = match shared.ground.enter(at, &client) {
        Ok(line) => line,
        Err(failure) => {
            shared.failed.borrow_mut().get_or_insert(failure);
            return;
        }
    };
    shared.lines.borrow_mut()[at] = line;
    {
        let got = &mut shared.got.borrow_mut()[at];
        got.rate = client.terms.rate;
        got.first_asked = shared.own(env::now());
    }
    let next = Rc::new(Cell::new(0));
    for _ in 0..client.outstanding {
        let (shared, next) = (Rc::clone(&shared), Rc::clone(&next));
        env::spawn(async move {
            loop {
                if let Some((from, to)) = client.pause
                    && (from..to).contains(&shared.own(env::now()))
                {
                    env::sleep_until(shared.at(to)).await;
                }
                let place = next.get();
                next.set(place + client.io.0);
                let ground = Rc::clone(&shared.ground);
                let asked = ground.ask(at, (place, client.io), client.terms.direction, line);
                if let Err(failure) = asked.await {
                    shared.failed.borrow_mut().get_or_insert(failure);
                    return;
                }
            }
        });
    }
    if let Some(line) = line {
        watch(&shared, at, line, client).await;
    }
}

/// How a newcomer fares in its first second.
async fn watch<G: Ground>(shared: &Shared<G>, at: usize, line: SessionId, client: Client) {
    let (mut lag, mut wait) = (Bytes(0), None);
    loop {
        env::sleep(LOOK).await;
        let Some(figures) = shared.ground.queue().figures(line) else {
            return;
        };
        let passed = env::now().since(shared.at(client.start));
        let due = client.terms.rate.within(passed);
        lag = lag.max(Bytes(due.0.saturating_sub(figures.delivered.0)));
        if figures.delivered.0 > 0 {
            wait.get_or_insert(passed);
        }
        if passed >= LOOK_FOR && wait.is_some() {
            break;
        }
    }
    let got = &mut shared.got.borrow_mut()[at];
    (got.lag, got.wait) = (lag, wait.unwrap_or(LOOK_FOR));
}
