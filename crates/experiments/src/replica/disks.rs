//! The disks of a scene and the queues before them.

use super::bed::{Disk, Method, Scene};
use super::common::loads::PASSING_PS;
use super::messages::Messages;
use base::{Buf, Bytes, Instant, Nanos, Sector};
use device::model::{ModelDisk, Spec, SpecError, Store as Data};
use device::{Class as DeviceClass, Device, DeviceError};
use env::sync::{Permit, Semaphore};
use policy::place::{At, DiskQueue, Reply, Request, State, Ticket, Weights};
use policy::share::{SessionId, Terms};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::qos::queue::{Queue, QueueOptions};
use vdisk::replica::choice::Reported;

/// Which request is next at a disk.
pub(super) enum Front {
    /// One request at a time, in the order they came.
    Fifo(Rc<Semaphore>),
    /// A store's queue, a line for each client.
    Store {
        queue: Rc<Queue>,
        lines: Vec<SessionId>,
        /// When it answered last.
        answered: Cell<Instant>,
    },
}

pub(super) struct Manager {
    pub(super) device: Rc<ModelDisk>,
    pub(super) kind: Disk,
    pub(super) front: Front,
    pub(super) queue: RefCell<DiskQueue>,
    pub(super) tickets: Cell<u64>,
    pub(super) chance: RefCell<env::Rng>,
    /// Sent and not yet in the queue: what only the oracle knows.
    pub(super) on_their_way: RefCell<BTreeMap<u64, (Request, At, bool)>>,
    pub(super) broken: RefCell<Option<DeviceError>>,
    /// What its node sends and receives.
    pub(super) messages: Messages,
}

/// A request that waits in a node's line; gone from it when it is given up.
pub(super) struct InLine<'a> {
    pub(super) node: &'a Manager,
    pub(super) ticket: Ticket,
    pub(super) begun: bool,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if !self.begun {
            let mut queue = self.node.queue.borrow_mut();
            queue.cancel(env::now(), self.ticket);
        }
    }
}

/// A request on its way to a node.
pub(super) struct OnItsWay<'a>(&'a Manager, u64);

impl<'a> OnItsWay<'a> {
    pub(super) fn new(node: &'a Manager, number: u64, what: (Request, At, bool)) -> OnItsWay<'a> {
        node.on_their_way.borrow_mut().insert(number, what);
        OnItsWay(node, number)
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.on_their_way.borrow_mut().remove(&self.1);
    }
}

impl Manager {
    pub(super) fn new(
        index: usize,
        scene: &Scene,
        method: &Method,
        seed: u64,
    ) -> Result<Manager, SpecError> {
        let kind = scene.disks[index];
        let model = match kind {
            Disk::Hdd | Disk::SlowHdd => "hdd-7200-sata",
            Disk::StallingSsd => "ssd-sata-mlc",
        };
        let spec = Spec::find(model)?;
        let name = format!("disk{index}");
        let seed = seed.wrapping_mul(1_000).wrapping_add(index as u64);
        let device = ModelDisk::new(&name, &spec, None, Data::None, seed)?;
        let front = match method.stores {
            false => Front::Fifo(Semaphore::new(1)),
            true => {
                let options = QueueOptions::new(store::qos::costs::of_model(&spec));
                let queue = Queue::new(Rc::clone(&device) as Rc<dyn Device>, options);
                let lines = scene.loads.iter().map(|load| {
                    let terms = Terms {
                        priority: load.class,
                        ..Terms::best_effort()
                    };
                    queue.open(terms).expect("a line for each client")
                });
                Front::Store {
                    lines: lines.collect(),
                    answered: Cell::default(),
                    queue,
                }
            }
        };
        Ok(Manager {
            device,
            kind,
            front,
            queue: RefCell::new(DiskQueue::new(method.kind.queue(weights(kind)))),
            tickets: Cell::new(0),
            chance: RefCell::new(env::Rng::from_seed(seed ^ 0x005e_ed0f_57a1)),
            on_their_way: RefCell::default(),
            broken: RefCell::default(),
            messages: Messages::new(scene.message),
        })
    }

    /// Its queue now.
    pub(super) fn state(&self) -> State {
        self.queue.borrow_mut().report(env::now())
    }

    /// The same with what is still on its way.
    pub(super) fn exact_state(&self) -> State {
        let mut queue = self.queue.borrow().clone();
        for (ticket, (request, at, local)) in &*self.on_their_way.borrow() {
            let ticket = Ticket(u64::MAX - ticket);
            // A full queue is reported as it is.
            let _ = queue.enqueue(env::now(), ticket, request, Some(*at), *local);
        }
        queue.report(env::now())
    }

    /// A read from `asker`'s node, which may be this one; `Err` if the device failed.
    pub(super) async fn read(
        self: &Rc<Self>,
        request: &Request,
        at: At,
        sector: Sector,
        asker: &Rc<Self>,
    ) -> Result<Reported<()>, ()> {
        let local = Rc::ptr_eq(self, asker);
        let number = self.tickets.get();
        self.tickets.set(number + 1);
        if !local {
            let on_its_way = OnItsWay::new(self, number, (*request, at, local));
            asker.messages.send(&self.messages, Bytes(0)).await;
            drop(on_its_way);
        }
        let reply = self
            .serve(request, at, sector, local, Ticket(number))
            .await?;
        if !local {
            self.messages.send(&asker.messages, request.bytes).await;
        }
        Ok(Reported { what: (), reply })
    }

    pub(super) async fn serve(
        self: &Rc<Self>,
        request: &Request,
        at: At,
        sector: Sector,
        local: bool,
        ticket: Ticket,
    ) -> Result<Reply, ()> {
        let arrived = env::now();
        let queued = {
            let mut queue = self.queue.borrow_mut();
            queue.enqueue(arrived, ticket, request, Some(at), local)
        };
        queued.map_err(|_| ())?;
        let mut in_line = InLine {
            node: self,
            ticket,
            begun: false,
        };
        let read = match &self.front {
            Front::Fifo(turn) => {
                let turn = turn.acquire(1).await;
                in_line.begun = true;
                // What the disk has begun it ends, wanted or not.
                let (node, bytes) = (Rc::clone(self), request.bytes);
                let read = env::spawn(async move { node.alone(sector, bytes, ticket, turn).await });
                read.await
            }
            Front::Store {
                queue,
                lines,
                answered,
            } => {
                let line = lines[request.origin.client.0 as usize];
                let buf = Buf::for_read(request.bytes.usize());
                let read = queue.read(sector, buf, DeviceClass::Session(line.0)).await;
                // As a store reckons: since it came or the one before was answered.
                let now = env::now();
                let service = now.since(answered.replace(now).max(arrived));
                in_line.begun = true;
                self.queue.borrow_mut().complete(now, ticket, service);
                read.map(|_| service)
            }
        };
        match read {
            Ok(service) => Ok(Reply {
                residence: env::now().since(arrived),
                service,
                state: Some(self.state()),
            }),
            Err(error) => {
                *self.broken.borrow_mut() = Some(error);
                Err(())
            }
        }
    }

    /// The disk's own time for a read that nothing is beside.
    pub(super) async fn alone(
        &self,
        sector: Sector,
        bytes: Bytes,
        ticket: Ticket,
        turn: Permit,
    ) -> Result<Nanos, DeviceError> {
        let begun = env::now();
        let buf = Buf::for_read(bytes.usize());
        let read = self.device.read(sector, buf, DeviceClass::Foreground).await;
        env::sleep(self.delay(env::now().since(begun))).await;
        let service = env::now().since(begun);
        self.queue
            .borrow_mut()
            .complete(env::now(), ticket, service);
        drop(turn);
        read.map(|_| service)
    }

    /// What this disk takes beyond its model, where nothing is beside it.
    pub(super) fn delay(&self, service: Nanos) -> Nanos {
        match self.kind {
            Disk::Hdd => Nanos(0),
            Disk::SlowHdd => service * 2,
            Disk::StallingSsd if self.chance.borrow_mut().chance(0.002) => Nanos::millis(300),
            Disk::StallingSsd => Nanos(0),
        }
    }
}

/// The constants of the published cost for a disk: its sheet's speed and mean positioning time.
pub(super) fn weights(kind: Disk) -> Weights {
    let (seek, ps) = match kind {
        // 78 MB/s; 8.5 ms and half a turn. The published method does not learn that some are slow.
        Disk::Hdd | Disk::SlowHdd => (Nanos::micros(12_670), 12_800),
        Disk::StallingSsd => (Nanos::micros(60), 1_900),
    };
    Weights {
        local: policy::place::PerByte(ps),
        remote: policy::place::PerByte(ps + PASSING_PS),
        seek,
    }
}
