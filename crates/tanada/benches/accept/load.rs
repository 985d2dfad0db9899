//! NBD clients that ask as fast as they are let, and note when what they asked for came.
//!
//! ```text
//! lane: request -> answer -> the tenth of a second in which it came: bytes and requests
//! Span (whole tenths) -> windows of any length without a gap between them
//! ```
//!
//! Always true: a lane that ends by an error is noted; no case takes it for one that asks for nothing.

use std::cell::Cell;
use std::error::Error;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Rng, Runtime};
use front::nbd::{Client, ClientOptions};

/// What clients ask for.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub places: Places,
    /// Lengths in bytes, drawn for each request.
    pub lengths: &'static [u64],
    /// Each such request is a read, the others are writes; 0: there is no read.
    pub read_each: u64,
}

#[derive(Clone, Copy)]
pub enum Places {
    Anywhere,
    /// Four of five requests in the first twentieth.
    Hot,
    /// One after the other, whichever lane asks.
    InTurn,
}

impl Pattern {
    /// Reads of 256 KiB in random places.
    pub const RANDOM: Pattern = Pattern {
        places: Places::Anywhere,
        lengths: &[256 << 10],
        read_each: 1,
    };
    /// Such reads, most of them in a few places.
    pub const HOT: Pattern = Pattern {
        places: Places::Hot,
        ..Pattern::RANDOM
    };
    /// Reads of 1 MiB, one place after the other.
    pub const IN_TURN: Pattern = Pattern {
        places: Places::InTurn,
        lengths: &[1 << 20],
        read_each: 1,
    };
    /// Reads of 256 KiB, one place after the other.
    pub const SHORT: Pattern = Pattern {
        places: Places::InTurn,
        ..Pattern::RANDOM
    };
    /// Writes of 64 KiB in random places, and a read for every two of them.
    pub const MIXED: Pattern = Pattern {
        places: Places::Anywhere,
        lengths: &[64 << 10],
        read_each: 3,
    };
    /// Writes of 256 KiB in random places.
    pub const WRITES: Pattern = Pattern {
        read_each: 0,
        ..Pattern::RANDOM
    };
    /// Reads of 4 KiB and of 256 KiB in random places.
    pub const TWO_SIZES: Pattern = Pattern {
        lengths: &[4 << 10, 256 << 10],
        ..Pattern::RANDOM
    };
}

/// A part of an export.
#[derive(Clone)]
pub struct Target {
    pub socket: PathBuf,
    pub export: String,
    /// Where the part begins, in bytes.
    pub from: u64,
    /// Its length.
    pub size: u64,
}

async fn connect(target: &Target) -> Result<Rc<Client>, String> {
    let options = ClientOptions {
        export: target.export.clone(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let client = Client::connect(&Address::Unix(target.socket.clone()), &options).await;
    let text = |error| format!("export {}: {error}", target.export);
    client.map(Rc::new).map_err(text)
}

/// Writes all of it; each MiB has its number in its bytes.
pub fn fill(target: &Target) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::real(RealConfig::default())?;
    let target = target.clone();
    let done: Result<(), String> = runtime.block_on(async move {
        let client = connect(&target).await?;
        for at in (0..target.size).step_by(1 << 20) {
            let data = View::copy_of(&vec![(at >> 20) as u8 | 1; 1 << 20]);
            let sector = Sector((target.from + at) / 512);
            let written = client.write(sector, data, WriteFlags::default()).await;
            written.map_err(|error| error.to_string())?;
        }
        client.flush().await.map_err(|error| error.to_string())
    });
    Ok(done?)
}

/// Does all of it read as [`fill`] wrote it?
pub fn is_filled(target: &Target) -> Result<bool, Box<dyn Error>> {
    let runtime = Runtime::real(RealConfig::default())?;
    let target = target.clone();
    let same: Result<bool, String> = runtime.block_on(async move {
        let client = connect(&target).await?;
        for at in (0..target.size).step_by(1 << 20) {
            let sector = Sector((target.from + at) / 512);
            let read = client.read(sector, Buf::for_read(1 << 20), Class::Foreground);
            let read = read.await.map_err(|error| error.to_string())?;
            if read.iter().any(|byte| *byte != (at >> 20) as u8 | 1) {
                return Ok(false);
            }
        }
        Ok(true)
    });
    Ok(same?)
}

/// Ticks are tenths of a second since the program first asked for one.
const TICK: Duration = Duration::from_millis(100);
pub const TICKS_PER_SECOND: usize = 10;
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The tick of a moment.
pub fn tick(at: Instant) -> usize {
    (at.saturating_duration_since(*BEGUN).as_nanos() / TICK.as_nanos()) as usize
}

/// Whole ticks from one on, up to another.
#[derive(Clone, Copy)]
pub struct Span {
    pub from: usize,
    pub until: usize,
}

impl Span {
    /// From the next tick on.
    pub fn begin() -> usize {
        tick(Instant::now()) + 1
    }

    /// What began then and ends with the last whole second.
    pub fn since(from: usize) -> Span {
        let ticks = tick(Instant::now()).saturating_sub(from);
        let until = from + ticks / TICKS_PER_SECOND * TICKS_PER_SECOND;
        Span { from, until }
    }

    /// So many seconds from now on; it returns when they are over.
    pub fn of(seconds: usize) -> Span {
        let from = Span::begin();
        let until = from + seconds * TICKS_PER_SECOND;
        while tick(Instant::now()) < until {
            sleep(Duration::from_millis(20));
        }
        Span { from, until }
    }
}

/// What came in a tick.
#[derive(Clone, Copy, Default)]
pub struct Came {
    pub bytes: u64,
    pub requests: u64,
}

/// What a load's lanes note.
#[derive(Default)]
pub struct Notes {
    stop: AtomicBool,
    ticks: Mutex<Vec<Came>>,
    /// Why lanes ended before they were to.
    ended: Mutex<Vec<String>>,
}

impl Notes {
    /// Is it over?
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// So many bytes came now.
    pub fn came(&self, bytes: u64) {
        let mut ticks = self.ticks.lock().expect("no lane panics with it");
        let now = tick(Instant::now());
        if ticks.len() <= now {
            ticks.resize(now + 1, Came::default());
        }
        ticks[now].bytes += bytes;
        ticks[now].requests += 1;
    }

    fn ended(&self, why: String) {
        self.ended.lock().expect("no lane panics with it").push(why);
    }
}

/// Clients at work.
pub struct Load {
    notes: Arc<Notes>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// A connection to each of `targets`, with `depth` requests under way each; returns when all are open.
    pub fn start(
        targets: &[Target],
        depth: usize,
        pattern: Pattern,
    ) -> Result<Load, Box<dyn Error>> {
        let notes = Arc::<Notes>::default();
        let (open, opened) = mpsc::channel();
        let (targets, telling) = (targets.to_vec(), Arc::clone(&notes));
        let thread = Builder::new().spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
            runtime.block_on(lanes(targets, (depth, pattern), telling, open));
        })?;
        let load = Load {
            notes,
            thread: Some(thread),
        };
        opened.recv()??;
        Ok(load)
    }

    /// Clients of another kind: each works on a thread of its own until it is over, or fails.
    pub fn of<C>(clients: Vec<C>) -> Result<Load, Box<dyn Error>>
    where
        C: FnOnce(&Notes) -> Result<(), String> + Send + 'static,
    {
        let notes = Arc::<Notes>::default();
        let noting = Arc::clone(&notes);
        let thread = Builder::new().spawn(move || {
            std::thread::scope(|scope| {
                for client in clients {
                    let noting = &noting;
                    scope.spawn(move || {
                        if let Err(why) = client(noting) {
                            noting.ended(why);
                        }
                    });
                }
            });
        })?;
        Ok(Load {
            notes,
            thread: Some(thread),
        })
    }

    /// What came in each tick of a span.
    pub fn ticks(&self, span: Span) -> Vec<Came> {
        let ticks = self.notes.ticks.lock().expect("no lane panics with it");
        let at = |tick| ticks.get(tick).copied().unwrap_or_default();
        (span.from..span.until).map(at).collect()
    }

    /// What came in each second of it, in MB.
    pub fn seconds(&self, span: Span) -> Vec<f64> {
        let ticks = self.ticks(span);
        let second = |ticks: &[Came]| ticks.iter().map(|it| it.bytes).sum::<u64>() as f64 / 1e6;
        ticks.chunks_exact(TICKS_PER_SECOND).map(second).collect()
    }

    /// Lanes that ended by an error, in words.
    pub fn ended(&self) -> Vec<String> {
        let mut ended = self
            .notes
            .ended
            .lock()
            .expect("no lane panics with it")
            .clone();
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            ended.push("all of its clients ended".to_owned());
        }
        ended
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.notes.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Connects, says so, and asks until it is to stop.
async fn lanes(
    targets: Vec<Target>,
    (depth, pattern): (usize, Pattern),
    notes: Arc<Notes>,
    open: mpsc::Sender<Result<(), String>>,
) {
    let mut asking = Vec::new();
    for (nth, target) in targets.into_iter().enumerate() {
        let client = match connect(&target).await {
            Ok(client) => client,
            Err(why) => return drop(open.send(Err(why))),
        };
        let next = Rc::<Cell<u64>>::default();
        asking.extend((0..depth).map(|lane| Asking {
            client: Rc::clone(&client),
            target: target.clone(),
            next: Rc::clone(&next),
            rng: Rng::from_seed((nth * depth + lane) as u64),
            pattern,
        }));
    }
    // Nothing waits for it if the case is over already.
    let _ = open.send(Ok(()));
    let running = asking
        .into_iter()
        .map(|it| env::spawn(it.run(Arc::clone(&notes))));
    for lane in running.collect::<Vec<_>>() {
        lane.await;
    }
}

/// One request after the other.
struct Asking {
    client: Rc<Client>,
    target: Target,
    /// Where what is asked for in turn goes on, for all lanes of a client.
    next: Rc<Cell<u64>>,
    rng: Rng,
    pattern: Pattern,
}

impl Asking {
    async fn run(mut self, notes: Arc<Notes>) {
        let mut nth = 0_u64;
        while !notes.stops() {
            let (at, length) = self.place();
            let sector = Sector((self.target.from + at) / 512);
            let each = self.pattern.read_each;
            let done = match each != 0 && nth.is_multiple_of(each) {
                true => {
                    let buf = Buf::for_read(length as usize);
                    let read = self.client.read(sector, buf, Class::Foreground);
                    read.await.map(drop)
                }
                false => {
                    let data = View::copy_of(&vec![7; length as usize]);
                    let write = self.client.write(sector, data, WriteFlags::default());
                    write.await
                }
            };
            if let Err(error) = done {
                return notes.ended(format!("export {}: {error}", self.target.export));
            }
            notes.came(length);
            nth += 1;
        }
    }

    /// Where, and how much?
    fn place(&mut self) -> (u64, u64) {
        let lengths = self.pattern.lengths;
        let length = lengths[self.rng.below(lengths.len() as u64) as usize];
        let within = match self.pattern.places {
            Places::InTurn => {
                let at = self.next.get();
                self.next.set((at + length) % self.target.size);
                return (at, length);
            }
            Places::Hot if self.rng.below(5) > 0 => self.target.size / 20,
            Places::Hot | Places::Anywhere => self.target.size,
        };
        (self.rng.below(within / length) * length, length)
    }
}
