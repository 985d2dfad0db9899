//! Clients of exports beside the browser, each on a thread of its own.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};

/// A client at work; it ends when it is told to, or with this value.
pub struct Busy {
    end: Sender<()>,
    thread: JoinHandle<u64>,
}

/// What it asks, and where.
#[derive(Clone, Copy)]
pub struct Work {
    pub socket: &'static str,
    pub export: &'static str,
    /// From one of 64 places to the next, in bytes.
    pub stride: u64,
    /// It is connected, and asks nothing.
    pub idle: bool,
}

pub const VOL0: Work = Work {
    socket: "vol0.sock",
    export: "vol0",
    stride: 64 << 10,
    idle: false,
};

pub const VM1: Work = Work {
    socket: "disks.sock",
    export: "vm1",
    stride: 1 << 20,
    idle: false,
};

impl Busy {
    /// Writes 64 KiB and reads them, and so on, from now on.
    pub fn start(dir: &Path, work: Work) -> Busy {
        let (end, ended) = channel();
        let address = Address::Unix(dir.join(work.socket));
        #[allow(clippy::disallowed_methods)] // A client of its own, beside the browser.
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
            runtime.block_on(run(address, work, ended))
        });
        Busy { end, thread }
    }

    /// Ends it; how often it wrote and read.
    pub fn end(self) -> u64 {
        drop(self.end);
        self.thread.join().expect("it went well")
    }
}

async fn run(address: Address, work: Work, ended: Receiver<()>) -> u64 {
    let options = ClientOptions {
        export: work.export.to_owned(),
        timeout: Nanos::secs(60),
        ..ClientOptions::default()
    };
    let client = Client::connect(&address, &options).await;
    let client = client.expect("it listens");
    let mut rounds = 0;
    while ended.try_recv() == Err(TryRecvError::Empty) {
        if !work.idle {
            let place = Sector(rounds % 64 * work.stride / 512);
            let data = View::copy_of(&[7; 65536]);
            let written = client.write(place, data, WriteFlags::default());
            written.await.expect("it is written");
            let read = client.read(place, Buf::for_read(65536), Class::Foreground);
            read.await.expect("it is read");
            rounds += 1;
        }
        env::sleep(Nanos::millis(10)).await;
    }
    rounds
}

/// Writes `len` bytes in pieces of 1 MiB, and leaves.
pub fn fill(dir: &Path, work: Work, len: u64) {
    let address = Address::Unix(dir.join(work.socket));
    let options = ClientOptions {
        export: work.export.to_owned(),
        timeout: Nanos::secs(60),
        ..ClientOptions::default()
    };
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let client = Client::connect(&address, &options).await;
        let client = client.expect("it listens");
        for at in 0..len >> 20 {
            let data = View::copy_of(&vec![5; 1 << 20]);
            let written = client.write(Sector(at << 11), data, WriteFlags::default());
            written.await.expect("it is written");
        }
    });
}
