//! NBD clients that read as fast as they are let, and count what they get in each second.

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

/// Bytes of one read.
const READ: u64 = 256 << 10;

/// What is read.
#[derive(Clone)]
pub struct Target {
    pub socket: PathBuf,
    pub volume: &'static str,
    pub size: u64,
}

async fn connect(target: &Target) -> Rc<Client> {
    let options = ClientOptions {
        export: target.volume.to_owned(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let client = Client::connect(&Address::Unix(target.socket.clone()), &options).await;
    Rc::new(client.expect("the volume can be opened"))
}

/// Writes all of a volume.
pub fn fill(target: &Target) {
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let target = target.clone();
    runtime.block_on(async move {
        let client = connect(&target).await;
        for at in (0..target.size).step_by(1 << 20) {
            let data = View::copy_of(&vec![(at >> 20) as u8 | 1; 1 << 20]);
            let written = client
                .write(Sector(at / 512), data, WriteFlags::default())
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
    /// `clients` connections with `depth` reads under way each.
    pub fn start(target: &Target, clients: usize, depth: usize) -> Load {
        let (stop, bytes) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (target, ending, counted) = (target.clone(), Arc::clone(&stop), Arc::clone(&bytes));
        let thread = Builder::new().spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
            runtime.block_on(async move {
                let mut readers = Vec::new();
                for nth in 0..clients {
                    let client = connect(&target).await;
                    for lane in 0..depth {
                        let seed = (nth * depth + lane) as u64;
                        let reader = read(
                            Rc::clone(&client),
                            (target.size, seed),
                            (Arc::clone(&ending), Arc::clone(&counted)),
                        );
                        readers.push(env::spawn(reader));
                    }
                }
                for reader in readers {
                    reader.await;
                }
            });
        });
        Load {
            stop,
            bytes,
            thread: Some(thread.expect("a thread")),
        }
    }

    /// Bytes read so far.
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

async fn read(
    client: Rc<Client>,
    (size, seed): (u64, u64),
    (stop, bytes): (Arc<AtomicBool>, Arc<AtomicU64>),
) {
    let mut rng = Rng::from_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let at = rng.below(size / READ) * READ;
        let got = client
            .read(
                Sector(at / 512),
                Buf::for_read(READ as usize),
                Class::Foreground,
            )
            .await;
        if got.is_err() {
            return;
        }
        bytes.fetch_add(READ, Ordering::Relaxed);
    }
}
