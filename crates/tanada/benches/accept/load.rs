//! NBD clients that ask as fast as they are let, and count what they get in each second.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Rng, Runtime};
use front::nbd::{Client, ClientOptions};

/// What clients ask for.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Reads of 256 KiB in random places.
    Random,
    /// Reads of 1 MiB, one place after the other.
    InTurn,
    /// Writes of 64 KiB in random places, and a read for every two of them.
    Mixed,
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

async fn connect(target: &Target) -> Rc<Client> {
    let options = ClientOptions {
        export: target.export.clone(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let client = Client::connect(&Address::Unix(target.socket.clone()), &options).await;
    Rc::new(client.expect("the export can be opened"))
}

/// Writes all of it.
pub fn fill(target: &Target) {
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let target = target.clone();
    runtime.block_on(async move {
        let client = connect(&target).await;
        for at in (0..target.size).step_by(1 << 20) {
            let data = View::copy_of(&vec![(at >> 20) as u8 | 1; 1 << 20]);
            let written = client
                .write(
                    Sector((target.from + at) / 512),
                    data,
                    WriteFlags::default(),
                )
                .await;
            written.expect("written");
        }
        client.flush().await.expect("flushed");
    });
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// A connection to each of `targets`, with `depth` requests under way each.
    pub fn start(targets: &[Target], depth: usize, pattern: Pattern) -> Load {
        let (stop, bytes) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (targets, ending, counted) = (targets.to_vec(), Arc::clone(&stop), Arc::clone(&bytes));
        let thread = Builder::new().spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
            runtime.block_on(async move {
                let mut lanes = Vec::new();
                for (nth, target) in targets.into_iter().enumerate() {
                    let client = connect(&target).await;
                    for lane in 0..depth {
                        let asking = Asking {
                            client: Rc::clone(&client),
                            target: target.clone(),
                            place: (lane as u64, depth as u64),
                            rng: Rng::from_seed((nth * depth + lane) as u64),
                        };
                        let (stop, bytes) = (Arc::clone(&ending), Arc::clone(&counted));
                        lanes.push(env::spawn(asking.run(pattern, stop, bytes)));
                    }
                }
                for lane in lanes {
                    lane.await;
                }
            });
        });
        Load {
            stop,
            bytes,
            thread: Some(thread.expect("a thread")),
        }
    }

    /// Bytes answered so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One request after the other.
struct Asking {
    client: Rc<Client>,
    target: Target,
    /// Which lane of how many.
    place: (u64, u64),
    rng: Rng,
}

impl Asking {
    async fn run(mut self, pattern: Pattern, stop: Arc<AtomicBool>, bytes: Arc<AtomicU64>) {
        let mut nth = 0;
        while !stop.load(Ordering::Relaxed) {
            let (at, length, write) = self.next(pattern, nth);
            let sector = Sector((self.target.from + at) / 512);
            let failed = match write {
                true => {
                    let data = View::copy_of(&vec![7; length as usize]);
                    let write = self.client.write(sector, data, WriteFlags::default());
                    write.await.is_err()
                }
                false => {
                    let buf = Buf::for_read(length as usize);
                    let read = self.client.read(sector, buf, Class::Foreground);
                    read.await.is_err()
                }
            };
            if failed {
                return;
            }
            bytes.fetch_add(length, Ordering::Relaxed);
            nth += 1;
        }
    }

    /// Where, how much, and is it a write?
    fn next(&mut self, pattern: Pattern, nth: u64) -> (u64, u64, bool) {
        let mut somewhere = |length: u64| self.rng.below(self.target.size / length) * length;
        match pattern {
            Pattern::Random => (somewhere(256 << 10), 256 << 10, false),
            Pattern::Mixed => (somewhere(64 << 10), 64 << 10, !nth.is_multiple_of(3)),
            Pattern::InTurn => {
                let (lane, lanes) = self.place;
                let at = (nth * lanes + lane) << 20;
                (at % self.target.size, 1 << 20, false)
            }
        }
    }
}
