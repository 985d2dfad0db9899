//! A store node: what its disk is made of, and how it loses power and comes back.
//!
//! ```text
//! store -> faults (errors, slowness, flipped bits) -> model (how long it takes) -> crash (what is left without power)
//! ```

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::fault::{Book, Done, Injury, Rule};
use device::model::{ModelDisk, Spec, Store as Data};
use device::{Crash, Device, Op};
use env::net::{Address, Listener, sim};
use env::sync::Semaphore;
use policy::share::{BytesPerSec, Costs};
use store::net::server::{Limits, Server};
use store::qos::manager::{Manager, ManagerOptions};
use store::{OpenError, ReservationId, Settings, Store};

/// What all nodes of the cluster know.
pub const KEY: [u8; 32] = [7; 32];
const SIZE: Bytes = Bytes::mib(64);
/// Its write cache is volatile.
const MODEL: &str = "ssd-sata-mlc";

/// A store node, whether or not it is up.
pub struct StoreNode {
    /// The store's number.
    pub number: u16,
    /// Its address.
    pub ip: IpAddr,
    disk: RefCell<Rc<Crash>>,
    book: Rc<Book>,
    lies: bool,
    node: RefCell<Option<Rc<Manager>>>,
    /// Its disk failed: only a restart helps.
    sick: Cell<bool>,
    /// Why it did not open.
    lost: RefCell<Option<String>>,
    /// Room that is taken away.
    filled: Cell<Option<ReservationId>>,
    /// It left for good.
    gone: Cell<bool>,
    /// Who waits for something there, and who ends it.
    one: Rc<Semaphore>,
}

impl StoreNode {
    /// An empty store, up and listening. `lies`: its disk promises more than it keeps.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn new(number: u16, lies: bool) -> Rc<StoreNode> {
        let name = format!("disk {number}");
        let disk = Crash::new(&name, SIZE, env::rng(&name));
        let settings = Settings {
            name: format!("s{number}"),
            ..Settings::default()
        };
        let formatted = Store::format(disk.clone(), settings).await;
        formatted.expect("formatted").close().await.expect("closed");
        disk.lie_about_fua(lies);
        disk.lie_about_flush(lies);
        let node = Rc::new(StoreNode {
            number,
            ip: IpAddr::from([10, 0, 0, number as u8]),
            disk: RefCell::new(disk),
            book: Book::new(env::rng("book")),
            lies,
            node: RefCell::default(),
            sick: Cell::new(false),
            lost: RefCell::default(),
            filled: Cell::new(None),
            gone: Cell::new(false),
            one: Semaphore::new(1),
        });
        node.start().await;
        node
    }

    /// Where it listens.
    ///
    /// # Panics
    /// Never.
    pub fn address(&self) -> Address {
        let address = format!("{}:7400", self.ip);
        address.parse().expect("an address")
    }

    /// Is it running?
    pub fn is_up(&self) -> bool {
        self.node.borrow().is_some()
    }

    /// It never comes back, nor does anything it has.
    pub async fn leave(&self) {
        self.gone.set(true);
        let _one = self.one.acquire(1).await;
        if self.is_up() {
            self.crash();
        }
    }

    /// Did it leave for good?
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// The store, past everything that may be wrong on the way.
    ///
    /// # Panics
    /// If it is down.
    pub fn store(&self) -> Rc<Manager> {
        self.node.borrow().clone().expect("it is up")
    }

    /// Why it did not open, if it did not.
    pub fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// Power on. If the store does not open what it had to keep is gone: [`StoreNode::lost`] says so.
    ///
    /// # Panics
    /// If another store listens at its address.
    pub async fn start(&self) {
        let spec = Spec::find(MODEL).expect("in the catalogue");
        let data: Rc<dyn Device> = self.disk.borrow().clone();
        let seed = u64::from(self.number);
        let name = format!("disk {}", self.number);
        let model = ModelDisk::new(&name, &spec, Some(SIZE), Data::Device(data), seed);
        let disk = self.book.wrap(model.expect("it can be that small"));
        let options = ManagerOptions {
            node_key: Some(KEY),
            scrub: None,
            ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [9; 32])
        };
        let address = self.address();
        let up = sim::on_host(self.ip, async move {
            let node = Manager::open(disk, options).await?;
            let server = Server::new(Rc::clone(&node), Limits::default());
            let listener = Listener::bind(&address).expect("a free port");
            server
                .serve(listener)
                .expect("it takes those with the key alone");
            env::spawn(async move {
                let _server = server;
                std::future::pending::<()>().await;
            });
            Ok(node)
        });
        let up: Result<Rc<Manager>, OpenError> = up.await;
        match up {
            Ok(node) => *self.node.borrow_mut() = Some(node),
            Err(why) => *self.lost.borrow_mut() = Some(format!("store {}: {why}", self.number)),
        }
    }

    /// Power off; what was not flushed may be lost.
    pub fn crash(&self) {
        sim::crash_host(self.ip);
        let gone = self.node.borrow_mut().take();
        drop(gone);
        self.filled.set(None);
        let disk = self.disk.borrow().restart(env::rng("crash"));
        disk.lie_about_fua(self.lies);
        disk.lie_about_flush(self.lies);
        *self.disk.borrow_mut() = disk;
    }

    /// Requests to its disk take so much longer.
    pub fn slow_down(&self, by: Nanos) {
        self.book.add(Rule::new(Injury::Delay(by)).chance(0.5));
    }

    /// Some requests to its disk fail.
    pub fn fail_disk(&self) {
        self.sick.set(true);
        let fails = Rule::new(Injury::Error(Done::Part)).chance(0.1);
        self.book.add(fails.on(&[Op::Read, Op::Write, Op::Flush]));
    }

    /// Bits of what is read next flip, and stay flipped.
    pub fn rot(&self, reads: u64) {
        let bits = Injury::Rot {
            bits: 2,
            lasting: true,
        };
        self.book.add(Rule::new(bits).times(reads));
    }

    /// Takes all its room away.
    pub async fn fill(&self) {
        let _one = self.one.acquire(1).await;
        if self.filled.get().is_some() || !self.is_up() {
            return;
        }
        let node = self.store();
        let space = node.store().space();
        let left = space.free.0.saturating_sub(space.spare.0);
        if left > 0
            && let Ok(taken) = node.store().reserve(Bytes(left)).await
        {
            self.filled.set(Some(taken));
        }
    }

    /// All is well with it from now on.
    pub async fn heal(&self) {
        let _one = self.one.acquire(1).await;
        if self.is_gone() {
            return;
        }
        self.book.clear();
        if self.sick.replace(false) && self.is_up() {
            self.crash();
        }
        if !self.is_up() {
            return self.start().await;
        }
        if let Some(taken) = self.filled.take() {
            // Released or gone with a restart.
            let _ = self.store().store().release(taken).await;
        }
    }
}
