//! Three nodes and etcd, clients that write and read all the time, and one fault after the other.
//!
//! ```text
//! 4 clients: write | read, each its own blocks, through one node after the other
//! faults: kill -9 | SIGSTOP, also for longer than a lease | cut off, one way, from etcd -> repaired -> writes must go on
//! in the end: healthy, no losses, every block read once more through each node
//! ```
//!
//! A block holds the number of the write it is from. It may show the last one that was answered or seen, or one that was never answered: that may
//! happen late, once, or not at all.
//!
//! `TANADA_SEED=S` replays one choice of faults and requests (the machine's timing stays its own); `TANADA_ROUNDS=N` has more faults than
//! one of each.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Rng, Runtime};
use front::nbd::{Client, ClientOptions};

use crate::clients::have;
use crate::cluster::{Etcd, free_port, has_all_stores, json, node, start_again};
use crate::daemon::Daemon;
use crate::kill9::number_from;
use crate::ways::{ETCD, Ways};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const BLOCKS: u64 = 2048;
const CLIENTS: u64 = 4;
/// After it a client gives its request up and comes back, here or elsewhere.
const REQUEST_TIMEOUT: Nanos = Nanos::secs(8);
/// How long it may take until writes go on when all faults are over: a lease of 10 s, its margin, and what is asked again.
const PROGRESS: Nanos = Nanos::secs(90);

/// What a block may show.
#[derive(Clone, Default)]
struct Block {
    known: u64,
    /// Writes that were never answered.
    unanswered: Vec<u64>,
}

impl Block {
    fn begin(&mut self, write: u64) {
        self.unanswered.push(write);
    }

    fn answered(&mut self, write: u64) {
        self.unanswered.retain(|it| *it != write);
        self.known = write;
    }

    /// # Errors
    /// If no order of the writes explains it.
    fn seen(&mut self, write: u64) -> Result<(), String> {
        if write == self.known {
            return Ok(());
        }
        if !self.unanswered.contains(&write) {
            let Block { known, unanswered } = self;
            return Err(format!(
                "write {write}, not {known} or one of {unanswered:?}"
            ));
        }
        self.answered(write);
        Ok(())
    }
}

/// All that the clients share.
struct Clients {
    root: PathBuf,
    blocks: RefCell<Vec<Block>>,
    next: Cell<u64>,
    answered: Cell<u64>,
    /// Through which node they go.
    through: Cell<usize>,
    over: Cell<bool>,
}

impl Clients {
    /// One client, until it is over.
    async fn work(self: Rc<Self>, own: u64, mut rng: Rng) {
        let mut connected: Option<(Client, usize)> = None;
        while !self.over.get() {
            let Some((client, through)) = connected.take() else {
                connected = self.connect().await;
                continue;
            };
            let block = own + CLIENTS * rng.below(BLOCKS / CLIENTS);
            let done = match rng.chance(0.7) {
                true => self.write(&client, block).await,
                false => self.read(&client, block).await,
            };
            match done && self.through.get() == through {
                true => connected = Some((client, through)),
                // Others may have gone on already.
                false if self.through.get() == through => self.elsewhere(through),
                false => {}
            }
            env::sleep(Nanos::millis(2)).await;
        }
    }

    fn elsewhere(&self, from: usize) {
        if self.through.get() == from {
            self.through.set((from + 1) % NODES.len());
        }
    }

    async fn connect(&self) -> Option<(Client, usize)> {
        let through = self.through.get();
        match connect(&self.root, through).await {
            Some(client) => Some((client, through)),
            None => {
                self.elsewhere(through);
                env::sleep(Nanos::millis(300)).await;
                None
            }
        }
    }

    async fn write(&self, client: &Client, block: u64) -> bool {
        let number = self.next.get() + 1;
        self.next.set(number);
        self.blocks.borrow_mut()[block as usize].begin(number);
        let data = View::copy_of(&number.to_le_bytes().repeat(512));
        let written = client.write(Sector(block * 8), data, WriteFlags::default());
        let done = matches!(env::timeout(REQUEST_TIMEOUT, written).await, Ok(Ok(())));
        if done {
            self.blocks.borrow_mut()[block as usize].answered(number);
            self.answered.set(self.answered.get() + 1);
        }
        done
    }

    async fn read(&self, client: &Client, block: u64) -> bool {
        let read = client.read(Sector(block * 8), Buf::for_read(4096), Class::Foreground);
        let Ok(Ok(bytes)) = env::timeout(REQUEST_TIMEOUT, read).await else {
            return false;
        };
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        assert!(
            bytes[..] == number.to_le_bytes().repeat(512),
            "block {block} is a mixture"
        );
        let seen = self.blocks.borrow_mut()[block as usize].seen(number);
        seen.unwrap_or_else(|why| panic!("block {block} shows {why}"));
        true
    }

    /// Until `count` more writes are answered.
    async fn go_on(&self, count: u64, what: &str) {
        let (from, begun) = (self.answered.get(), env::now());
        while self.answered.get() < from + count {
            let waited = env::now().since(begun);
            assert!(
                waited < PROGRESS,
                "{what}: no write is answered for {waited}"
            );
            env::sleep(Nanos::millis(50)).await;
        }
    }
}

async fn connect(root: &Path, through: usize) -> Option<Client> {
    let options = ClientOptions {
        export: "vm1".to_owned(),
        timeout: REQUEST_TIMEOUT,
        ..ClientOptions::default()
    };
    let address = Address::Unix(root.join(NODES[through]).join("disks.sock"));
    Client::connect(&address, &options).await.ok()
}

/// The nodes, and what is done to them.
struct Cluster {
    root: PathBuf,
    ways: Ways,
    nodes: Vec<Option<Daemon>>,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    /// SIGSTOP: it wakes up later and does not know that time has gone by.
    Stop,
    /// For longer than its lease.
    StopLong,
    /// From all others, and etcd.
    CutOff,
    /// What it sends does not arrive.
    Dumb,
    /// What is sent to it does not arrive.
    Deaf,
    CutFromEtcd,
}

const FAULTS: [Fault; 7] = [
    Fault::Kill,
    Fault::StopLong,
    Fault::CutOff,
    Fault::Dumb,
    Fault::Deaf,
    Fault::CutFromEtcd,
    Fault::Stop,
];

impl Fault {
    fn lasts(self, rng: &mut Rng) -> Nanos {
        match self {
            Fault::StopLong => Nanos::secs(14 + rng.below(12)),
            Fault::Kill | Fault::Stop => Nanos::secs(1 + rng.below(4)),
            _ => Nanos::secs(2 + rng.below(8)),
        }
    }
}

impl Cluster {
    fn start(root: &Path, etcd: u16) -> Cluster {
        let ways = Ways::default();
        let start = |name: &str| {
            let (dir, at) = (root.join(name), root.join(format!("{name}.way")));
            fs::create_dir_all(&dir).expect("the directory is ours");
            ways.to_store(name, &at, dir.join("s.sock"));
            let store = format!("create = true\nadvertise = \"unix:{}\"", at.display());
            let config =
                node(root, name, ways.to_etcd(name, etcd)).replace("create = true", &store);
            let daemon = Daemon::start(&dir, &config);
            ways.is(daemon.pid(), name);
            Some(daemon)
        };
        let nodes = NODES.map(start).into();
        let root = root.to_owned();
        Cluster { root, ways, nodes }
    }

    fn node(&self, at: usize) -> &Daemon {
        self.nodes[at].as_ref().expect("it is up")
    }

    fn begin(&mut self, fault: Fault, at: usize) {
        let others = |at: usize| (0..NODES.len()).filter(move |it| *it != at);
        let (cut, name) = (|from: &str, to: &str| self.ways.cut(from, to), NODES[at]);
        let mut peers: Vec<&str> = others(at).map(|it| NODES[it]).collect();
        match fault {
            Fault::Kill => return self.nodes[at].take().expect("it is up").kill(),
            Fault::Stop | Fault::StopLong => return self.node(at).pause(),
            Fault::CutFromEtcd => peers = vec![ETCD],
            Fault::CutOff => peers.push(ETCD),
            Fault::Dumb | Fault::Deaf => {}
        }
        for peer in peers {
            if !matches!(fault, Fault::Deaf) {
                cut(name, peer);
            }
            if !matches!(fault, Fault::Dumb) {
                cut(peer, name);
            }
        }
    }

    fn repair(&mut self, fault: Fault, at: usize) {
        match fault {
            Fault::Kill => {
                let daemon = start_again(&self.root.join(NODES[at]), NODES[at]);
                self.ways.is(daemon.pid(), NODES[at]);
                self.nodes[at] = Some(daemon);
            }
            Fault::Stop | Fault::StopLong => self.node(at).wake(),
            _ => self.ways.repair(),
        }
    }

    /// Waits until the volume has all copies again, asking at `at`, where it is open.
    async fn healthy(&self, at: usize) {
        let mut last = serde_json::Value::Null;
        for _ in 0..240 {
            last = json(self.node(at), &["volume", "show", "vm1", "--json"]);
            if last["health"] == "healthy" {
                return;
            }
            env::sleep(Nanos::millis(500)).await;
        }
        panic!("it does not get well: {last}");
    }
}

/// One fault, with clients at work before, while and after.
async fn round(
    cluster: &mut Cluster,
    clients: &Clients,
    fault: Fault,
    holder: bool,
    rng: &mut Rng,
) {
    clients.go_on(50, "before a fault").await;
    let through = clients.through.get();
    let at = match holder {
        true => through,
        false => (through + 1 + rng.below(2) as usize) % NODES.len(),
    };
    let (lasts, name) = (fault.lasts(rng), NODES[at]);
    let what = format!(
        "{fault:?} of {name} for {lasts}, clients at {}",
        NODES[through]
    );
    println!("{what}; {} writes answered", clients.answered.get());
    cluster.begin(fault, at);
    env::sleep(lasts).await;
    cluster.repair(fault, at);
    clients.go_on(100, &what).await;
}

#[test]
fn no_answered_write_is_lost_while_nodes_are_killed_stopped_and_cut_off() {
    if !have("etcd") {
        return;
    }
    let seed = number_from("TANADA_SEED", 1);
    let rounds = number_from("TANADA_ROUNDS", FAULTS.len() as u64);
    println!("TANADA_SEED={seed} TANADA_ROUNDS={rounds}");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let port = free_port();
    let _etcd = Etcd::start(&root, port);
    let mut cluster = Cluster::start(&root, port);
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        has_all_stores(cluster.node(0), 3).await;
        let create = [
            "volume", "create", "vm1", "--size", "32MiB", "--copies", "3",
        ];
        let min = ["--min-copies", "2"];
        cluster.node(0).command(&[&create[..], &min].concat());
        let mut rng = Rng::from_seed(seed);
        let clients = Rc::new(Clients {
            root,
            blocks: RefCell::new(vec![Block::default(); BLOCKS as usize]),
            next: Cell::new(0),
            answered: Cell::new(0),
            through: Cell::new(0),
            over: Cell::new(false),
        });
        let work = |own: u64| {
            env::spawn(Rc::clone(&clients).work(own, Rng::from_seed(seed ^ (own + 1) << 32)))
        };
        let working: Vec<_> = (0..CLIENTS).map(work).collect();
        for round_number in 0..rounds {
            // Each once, half of them at the node that the clients go through; then by chance.
            let (fault, holder) = match FAULTS.get(round_number as usize) {
                Some(fault) => (*fault, round_number % 2 == 1),
                None => (
                    FAULTS[rng.below(FAULTS.len() as u64) as usize],
                    rng.chance(0.5),
                ),
            };
            round(&mut cluster, &clients, fault, holder, &mut rng).await;
        }
        clients.over.set(true);
        env::sync::join_all(working).await;
        read_through_each(&mut cluster, &clients).await;
    });
}

/// All is there, whichever node one asks, and all copies are.
async fn read_through_each(cluster: &mut Cluster, clients: &Clients) {
    let first = clients.through.get();
    for through in (0..NODES.len()).map(|it| (first + it) % NODES.len()) {
        let begun = env::now();
        let client = loop {
            if let Some(client) = connect(&clients.root, through).await {
                break client;
            }
            assert!(
                env::now().since(begun) < PROGRESS,
                "{} does not open it",
                NODES[through]
            );
            env::sleep(Nanos::millis(300)).await;
        };
        for block in 0..BLOCKS {
            assert!(
                clients.read(&client, block).await,
                "block {block} cannot be read"
            );
        }
        cluster.healthy(through).await;
        let repaired = json(
            cluster.node(through),
            &["volume", "repair", "vm1", "--json"],
        );
        assert_eq!(repaired["losses"], serde_json::json!([]), "{repaired}");
        client.close().await;
        // The next one finds it without a farewell.
        cluster.begin(Fault::Kill, through);
        cluster.repair(Fault::Kill, through);
    }
    println!("{} writes answered, all there", clients.answered.get());
}

#[test]
fn a_block_shows_an_answered_or_an_unanswered_write_and_no_past_one() {
    let mut block = Block::default();
    block.begin(1);
    assert!(block.seen(0).is_ok());
    block.answered(1);
    assert!(block.seen(0).is_err(), "an answered write is gone");
    block.begin(2);
    block.begin(3);
    block.answered(3);
    assert!(block.seen(3).is_ok());
    // It was under way all the time.
    assert!(block.seen(2).is_ok());
    assert!(block.seen(3).is_err(), "what was seen is not unseen");
}
