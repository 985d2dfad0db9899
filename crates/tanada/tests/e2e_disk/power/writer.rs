//! Inside the guest: the daemon over the two parts of the logged disk, clients, marks, `kill -9`.
//!
//! ```text
//! start -> check -> clients write, flush; after each answered flush: what must survive -> journal, mark -> kill -9 -> start ...
//! ```
//!
//! The journal has one page for each mark: of each block the last write begun and the last one durable.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use base::Nanos;
use device::{Device, DeviceError};
use env::sync::join_all;
use env::{RealConfig, Rng, Runtime};
use front::nbd::Client;

use super::{BLOCKS, config};
use crate::daemon::Daemon;
use crate::kill9::{BlockWrites, EXTENT, Oracle, check, connect, flush, number_from, write};

const CLIENTS: u64 = 4;
/// One life of the daemon each, ended by `kill -9` but the last.
const MODES: [&str; 4] = ["back", "back", "through", "back"];
const MARKS_PER_LIFE: u64 = 12;

struct Writer {
    oracle: RefCell<Oracle>,
    journal: RefCell<File>,
    marks: Cell<u64>,
    over: Cell<bool>,
}

impl Writer {
    /// Notes what is known into the journal, then into the log.
    fn mark(&self) {
        let page: Vec<u8> = {
            let oracle = self.oracle.borrow();
            let numbers = oracle.blocks.iter().flat_map(|it| [it.begun, it.durable]);
            numbers.flat_map(u64::to_le_bytes).collect()
        };
        let written = self.journal.borrow_mut().write_all(&page);
        written.expect("the host takes it");
        let mark = format!("mark {}", self.marks.get());
        let done = Command::new("dmsetup")
            .args(["message", "common", "0", &mark])
            .status();
        assert!(done.expect("dmsetup starts").success(), "{mark}");
        self.marks.set(self.marks.get() + 1);
    }

    /// One client, until the daemon is gone or it is over.
    async fn work(self: Rc<Self>, client: Rc<Client>, own: u64, mut rng: Rng) {
        while !self.over.get() && self.step(&client, own, &mut rng).await.is_ok() {}
    }

    async fn step(&self, client: &Client, own: u64, rng: &mut Rng) -> Result<(), DeviceError> {
        let extent = rng.below(BLOCKS / EXTENT / CLIENTS) * CLIENTS + own;
        let within = rng.below(EXTENT);
        let count = match rng.chance(0.5) {
            true => 1,
            false => 1 + rng.below(EXTENT - within),
        };
        let first = extent * EXTENT + within;
        write(client, &self.oracle, first, count, rng.chance(0.05)).await?;
        if rng.chance(0.06) {
            flush(client, &self.oracle).await?;
            self.mark();
        }
        Ok(())
    }

    /// One life of the daemon, from its start to its end.
    async fn live(self: &Rc<Self>, dir: &Path, life: usize, rng: &mut Rng) {
        let paths = ["/dev/mapper/slow", "/dev/mapper/fast"];
        let daemon = Daemon::start(dir, &config(paths, MODES[life]));
        let client = connect(&daemon).await;
        check(&client, &self.oracle, &format!("in the guest, life {life}")).await;
        self.mark();
        let enough = self.marks.get() + MARKS_PER_LIFE;
        let workers: Vec<_> = (0..CLIENTS)
            .map(|own| {
                let rng = Rng::from_seed(rng.bits());
                env::spawn(Rc::clone(self).work(Rc::clone(&client), own, rng))
            })
            .collect();
        while self.marks.get() < enough {
            env::sleep(Nanos::millis(20)).await;
        }
        if life + 1 < MODES.len() {
            daemon.kill();
            join_all(workers).await;
            // What was begun before its end, before recovery shows what is there.
            self.mark();
            return;
        }
        self.over.set(true);
        join_all(workers).await;
        let last = client.flush().await;
        last.expect("the daemon runs");
        self.mark();
        drop(client);
        daemon.stop();
    }
}

/// All that happens in the guest; the journal goes to `out`.
pub fn run(out: &Path) {
    let journal = File::create(out.join("journal")).expect("the host takes it");
    let seed = number_from("TANADA_SEED", 1);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let oracle = Oracle {
            blocks: vec![BlockWrites::default(); BLOCKS as usize],
            ..Oracle::default()
        };
        let writer = Rc::new(Writer {
            oracle: RefCell::new(oracle),
            journal: RefCell::new(journal),
            marks: Cell::new(0),
            over: Cell::new(false),
        });
        let mut rng = Rng::from_seed(seed);
        for life in 0..MODES.len() {
            writer.live(&path, life, &mut rng).await;
        }
        let oracle = writer.oracle.borrow();
        println!(
            "{} marks, {} writes ({} FUA), {} flushes",
            writer.marks.get(),
            oracle.next,
            oracle.fua_writes,
            oracle.flushes
        );
    });
}
