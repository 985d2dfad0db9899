//! The gates of an NBD address, as the data thread has them: who gets the next client, and how do they all end?
//!
//! ```text
//! Listener -> accept -> the living gate with the fewest clients of that host, and the fewest of all -> its mailbox
//! a gate's client names an export -> rings of its own -> opened here, and served until the client has gone
//! ```
//!
//! Always true:
//! 1. A client is turned away by a full gate only where all are full.
//! 2. A gate that died takes no further client, and hides no other.
//! 3. Clients that were accepted and no gate has looked at yet are as few as the limit of connections says.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use base::{Map, Nanos};
use device::Pending;
use device::remote::{Opened, OwnerEnd};
use env::net::{Address, Listener, Origin, Stream, accept_each};
use env::sync::Event;
use env::{Mailbox, Poster, Task};
use front::nbd::{Limits, ServerSnapshot, Tls};
use policy::poll::Setting;
use tokio::sync::oneshot;

use super::command::Reply;
use super::gate::{ExportView, Message, Place, Setup, start};
use crate::api;
use crate::api::clients::{Gone, Which};

/// A gate that says nothing of itself for so long is silent.
const LATE: Nanos = Nanos::secs(1);
/// Clients that a gate is given beyond those it takes: it chooses whom to turn away.
const TOO_MANY: usize = 16;

/// The device of an export, for a client of a gate.
pub type Open = Rc<dyn Fn(&str) -> Pending<'static, Opened>>;

/// What an address with gates is to be.
pub struct GatesPlan {
    /// As the configuration has it.
    pub configured: Address,
    /// How many gates; at least one.
    pub count: usize,
    /// Of all gates together.
    pub limits: Limits,
    pub tls: Option<Tls>,
    pub poll: Setting,
    pub shown: Shown,
}

/// What clients of an address with gates find, and how it is opened for them.
pub struct Shown {
    pub exports: Vec<ExportView>,
    pub open: Open,
}

/// See the module's head.
pub struct Gates {
    // Fixed.
    pub configured: Address,
    /// The real one: port 0 asks for any.
    pub address: Address,
    desk: Rc<Desk>,
    // As it goes.
    open: Rc<RefCell<Open>>,
    acceptor: Task<()>,
    /// What serves each gate here; ends when the gate has.
    owners: RefCell<Vec<Task<()>>>,
    /// What each gate had done at the last report: one that died is still counted.
    last: RefCell<Vec<ServerSnapshot>>,
}

/// Where clients arrive.
struct Desk {
    gates: Vec<OneGate>,
    /// Connections that a gate takes.
    limit: usize,
    turned_away: Cell<u64>,
}

struct OneGate {
    name: String,
    driver: &'static str,
    poster: Poster<Message>,
    thread: JoinHandle<()>,
    /// Each client has a clone.
    places: Arc<()>,
    /// The same for the clients of each host.
    of_hosts: RefCell<Map<Origin, Arc<()>>>,
}

/// An address with gates at the moment of a report.
pub struct AtGates {
    pub configured: Address,
    pub address: Address,
    pub snapshot: ServerSnapshot,
    pub gates: Vec<api::status::Gate>,
}

impl OneGate {
    fn clients(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }

    fn clients_of(&self, host: Origin) -> usize {
        let of_hosts = self.of_hosts.borrow();
        of_hosts
            .get(&host)
            .map_or(0, |it| Arc::strong_count(it) - 1)
    }

    fn place(&self, host: Origin) -> Place {
        let mut of_hosts = self.of_hosts.borrow_mut();
        of_hosts.retain(|_, places| Arc::strong_count(places) > 1);
        let of_host = of_hosts.entry(host).or_default();
        (Arc::clone(&self.places), Arc::clone(of_host))
    }
}

impl Gates {
    /// Lets clients in at `listener`'s address, once every gate is up.
    ///
    /// # Errors
    /// If one cannot be started.
    pub async fn open(listener: Listener, plan: GatesPlan) -> anyhow::Result<Gates> {
        let address = listener.address().clone();
        let limits = limits_of_one(plan.limits, plan.count);
        let (mut gates, mut owners) = (Vec::new(), Vec::new());
        let open = Rc::new(RefCell::new(Rc::clone(&plan.shown.open)));
        for number in 0..plan.count {
            let (gate, owner) = start_one((&address, limits, number), &plan, &open).await?;
            gates.push(gate);
            owners.push(owner);
        }
        let desk = Rc::new(Desk {
            gates,
            limit: limits.connections,
            turned_away: Cell::new(0),
        });
        let to = Rc::clone(&desk);
        let acceptor = accept_each(
            listener,
            move |stream| to.assign(stream),
            |listener, error| {
                tracing::warn!(%error, address = %listener.address(), "cannot accept");
            },
        );
        Ok(Gates {
            configured: plan.configured,
            address,
            desk,
            open,
            acceptor,
            owners: RefCell::new(owners),
            last: RefCell::new(vec![ServerSnapshot::default(); plan.count]),
        })
    }

    /// Asks every living gate.
    fn post<T>(&self, message: impl Fn(Reply<T>) -> Message) -> Vec<oneshot::Receiver<T>> {
        let post = |gate: &OneGate| {
            let (reply, answer) = oneshot::channel();
            // Where it is refused the reply is dropped with it.
            drop(gate.poster.post(message(reply)));
            answer
        };
        self.desk.gates.iter().map(post).collect()
    }

    /// Asks every living gate, and gathers what they answer; none for one that died.
    async fn ask<T>(&self, message: impl Fn(Reply<T>) -> Message) -> Vec<Option<T>> {
        let mut answers = Vec::new();
        for answer in self.post(message) {
            answers.push(answer.await.ok());
        }
        answers
    }

    /// How the gates are now. One that is silent delays the others' report for [`LATE`] at most.
    pub async fn report(&self) -> AtGates {
        let deadline = env::now() + LATE;
        let mut reports = Vec::new();
        for answer in self.post(Message::Report) {
            reports.push(env::timeout(deadline.since(env::now()), answer).await);
        }
        let mut last = self.last.borrow_mut();
        let mut gates = Vec::new();
        for ((gate, report), last) in self.desk.gates.iter().zip(reports).zip(&mut *last) {
            let answered = report.as_ref().ok().and_then(|it| it.as_ref().ok());
            gates.push(api::status::Gate {
                name: gate.name.clone(),
                driver: gate.driver.to_owned(),
                dead: matches!(report, Ok(Err(_))),
                thread: answered.map(|it| it.thread.clone()),
            });
            match report {
                Ok(Ok(report)) => *last = report.snapshot,
                // It is silent, and what it does is not known.
                Err(_) => {}
                Ok(Err(_)) => {
                    last.connections.clear();
                    last.exports.iter_mut().for_each(|it| it.connections = 0);
                }
            }
        }
        let mut snapshot = joined(&last);
        snapshot.turned_away += self.desk.turned_away.get();
        AtGates {
            configured: self.configured.clone(),
            address: self.address.clone(),
            snapshot,
            gates,
        }
    }

    /// Ends connections at once; those that were.
    pub async fn disconnect(&self, which: &Which) -> Vec<Gone> {
        let asked = |reply| Message::Disconnect(which.clone(), reply);
        let gone = self.ask(asked).await;
        gone.into_iter().flatten().flatten().collect()
    }

    /// Clients find these exports from now on, and TLS so; those of the exports `gone` are answered and end before this
    /// returns.
    pub async fn change(&self, shown: Shown, tls: Option<Tls>, gone: &[String]) {
        *self.open.borrow_mut() = shown.open;
        let show = |reply| Message::Show {
            exports: shown.exports.clone(),
            tls: tls.clone(),
            gone: gone.to_vec(),
            reply,
        };
        self.ask(show).await;
    }

    /// Takes no further client.
    pub fn close(&self) {
        self.acceptor.cancel();
    }

    /// Takes no further client, lets requests finish, and ends the gates. When this returns no device is used by them, also not
    /// by one that died.
    pub async fn drain(&self) {
        self.close();
        self.ask(Message::Stop).await;
        let owners = self.owners.take();
        env::sync::join_all(owners).await;
    }
}

/// Starts gate `number`, and what serves its clients here.
async fn start_one(
    (address, limits, number): (&Address, Limits, usize),
    plan: &GatesPlan,
    open: &Rc<RefCell<Open>>,
) -> anyhow::Result<(OneGate, Task<()>)> {
    let name = format!("gate {number} of {address}");
    let (owner, ends) = env::mailbox();
    let (poster, mailbox) = env::mailbox();
    let (up, is_up) = oneshot::channel();
    let setup = Setup {
        number,
        of: plan.count,
        address: address.clone(),
        limits,
        tls: plan.tls.clone(),
        // One that never sleeps would take a processor for each.
        poll: plan.poll.min(Setting::Adaptive),
        exports: plan.shown.exports.clone(),
        owner,
        up,
    };
    let thread = start(setup, mailbox).with_context(|| format!("cannot start {name}"))?;
    let up = is_up.await;
    let up = up.unwrap_or_else(|_| Err("its thread ended".to_owned()));
    let driver = up.map_err(|why| anyhow!("cannot start {name}: {why}"))?;
    let gate = OneGate {
        name,
        driver,
        poster,
        thread,
        places: Arc::new(()),
        of_hosts: RefCell::default(),
    };
    Ok((gate, env::spawn(serve(ends, Rc::clone(open)))))
}

/// Serves the clients of one gate until it has ended and the last of their calls too.
async fn serve(mut ends: Mailbox<OwnerEnd>, open: Rc<RefCell<Open>>) {
    let (serving, ended) = (Rc::new(Cell::new(0)), Rc::new(Event::default()));
    while let Ok(end) = ends.receive().await {
        serving.set(serving.get() + 1);
        let open = Rc::clone(&open.borrow());
        let (serving, ended) = (Rc::clone(&serving), Rc::clone(&ended));
        env::spawn(async move {
            end.serve(move |name| open(name)).await;
            serving.set(serving.get() - 1);
            ended.notify_all();
        });
    }
    while serving.get() > 0 {
        ended.wait().await;
    }
}

impl Desk {
    /// Gives a client to the living gate that has the fewest of its host, and of those to that with the fewest of all.
    fn assign(&self, stream: Stream) {
        let (peer, host) = (stream.peer(), stream.origin());
        let Some(mut client) = stream.detach() else {
            tracing::warn!(peer, "turned away: no descriptor is free");
            return self.turn_away();
        };
        let mut order: Vec<&OneGate> = self.gates.iter().collect();
        order.sort_by_key(|gate| (gate.clients_of(host), gate.clients()));
        for gate in order {
            if gate.thread.is_finished() || gate.clients() >= self.limit + TOO_MANY {
                continue;
            }
            match gate.poster.post(Message::Client(client, gate.place(host))) {
                Ok(()) => return,
                // It died just now: the next one takes it.
                Err(Message::Client(back, _)) => client = back,
                Err(_) => unreachable!("what is refused comes back"),
            }
        }
        tracing::warn!(peer, "turned away: every gate is full or died");
        self.turn_away();
    }

    fn turn_away(&self) {
        self.turned_away.set(self.turned_away.get() + 1);
    }
}

/// What each of `count` gates takes on, so that all together take on `limits`.
fn limits_of_one(limits: Limits, count: usize) -> Limits {
    let part = |bytes: base::Bytes| base::Bytes(bytes.0.div_ceil(count as u64));
    Limits {
        connections: limits.connections.div_ceil(count),
        connections_per_host: limits.connections_per_host.div_ceil(count),
        bytes: part(limits.bytes),
        bytes_per_host: part(limits.bytes_per_host),
        ..limits
    }
}

/// What several gates saw, as one server.
fn joined(gates: &[ServerSnapshot]) -> ServerSnapshot {
    let mut all = ServerSnapshot::default();
    for ServerSnapshot {
        exports,
        connections,
        accepted,
        turned_away,
        negotiations_failed,
        stalled,
        violations,
    } in gates
    {
        all.exports.extend(exports.iter().cloned());
        all.connections.extend(connections.iter().cloned());
        all.accepted += accepted;
        all.turned_away += turned_away;
        all.negotiations_failed += negotiations_failed;
        all.stalled += stalled;
        all.violations += violations;
    }
    // The oldest first, as of one server.
    all.connections.sort_by_key(|of| std::cmp::Reverse(of.age));
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use base::{Buf, Bytes, Sector, Span, View};
    use device::{Class, Device, DeviceError, DeviceExt, Info, Memory, WriteFlags, ready};
    use env::{RealConfig, Runtime};
    use front::nbd::{Client, ClientOptions, Leaving};

    use super::*;

    fn runtime() -> Runtime {
        Runtime::real(RealConfig::default()).expect("a runtime")
    }

    fn at(folder: &Path) -> Address {
        Address::Unix(folder.join("nbd"))
    }

    /// Two gates of one device in memory.
    async fn two_gates(folder: &Path) -> Gates {
        two_gates_of(Memory::new("disk", Bytes::mib(1)), folder).await
    }

    async fn two_gates_of(disk: Rc<dyn Device>, folder: &Path) -> Gates {
        let open: Open = Rc::new(move |_| ready(Ok(Opened::of(Rc::clone(&disk)))));
        let plan = GatesPlan {
            configured: at(folder),
            count: 2,
            limits: Limits::default(),
            tls: None,
            poll: Setting::Off,
            shown: Shown {
                exports: vec![ExportView {
                    description: String::new(),
                    name: "disk".to_owned(),
                    read_only: false,
                    leaving: Leaving::default(),
                }],
                open,
            },
        };
        let listener = Listener::bind(&at(folder)).expect("a free socket");
        Gates::open(listener, plan).await.expect("two threads")
    }

    async fn connect(folder: &Path) -> Client {
        let options = ClientOptions::default();
        Client::connect(&at(folder), &options)
            .await
            .expect("let in")
    }

    async fn read(client: &Client) -> Result<(), DeviceError> {
        client.read_at(Sector(0), Bytes(512)).await.map(drop)
    }

    #[test]
    fn a_gate_that_died_is_named_and_the_other_one_takes_every_client() {
        let folder = tempfile::tempdir().unwrap();
        runtime().block_on(async move {
            let folder = folder.path();
            let gates = two_gates(folder).await;
            let (one, other) = (connect(folder).await, connect(folder).await);
            assert_eq!(gates.report().await.snapshot.accepted, 2);
            // The first one ends, as a panic would end it.
            let (reply, stopped) = oneshot::channel();
            assert!(
                gates.desk.gates[0]
                    .poster
                    .post(Message::Stop(reply))
                    .is_ok()
            );
            stopped.await.unwrap();
            while !gates.desk.gates[0].thread.is_finished() {
                env::sleep(base::Nanos::millis(1)).await;
            }
            assert!(read(&one).await.is_err());
            read(&other).await.unwrap();
            let third = connect(folder).await;
            read(&third).await.unwrap();
            let report = gates.report().await;
            let dead: Vec<bool> = report.gates.iter().map(|gate| gate.dead).collect();
            assert_eq!(dead, [true, false]);
            assert!(report.gates[0].name.starts_with("gate 0 of unix:"));
            // What it had done is still counted, and its clients are gone.
            let numbers = report.snapshot.connections.iter().map(|it| it.id);
            assert_eq!(numbers.collect::<Vec<_>>(), [2, 4]);
            assert_eq!(report.snapshot.accepted, 3);
            gates.drain().await;
            assert!(read(&third).await.is_err());
        });
    }

    /// A disk whose writes wait until they are let go.
    struct Paused {
        disk: Rc<Memory>,
        go: Event,
        waiting: Cell<usize>,
        is_held: Cell<bool>,
    }

    impl Device for Paused {
        fn info(&self) -> Info {
            self.disk.info()
        }
        fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
            self.disk.read(at, buf, class)
        }
        fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
            Box::pin(async move {
                self.waiting.set(self.waiting.get() + 1);
                while self.is_held.get() {
                    self.go.wait().await;
                }
                self.disk.write(at, data, flags).await
            })
        }
        fn flush(&self) -> Pending<'_, ()> {
            self.disk.flush()
        }
        fn discard(&self, span: Span) -> Pending<'_, ()> {
            self.disk.discard(span)
        }
        fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
            self.disk.write_zeroes(span, flags)
        }
    }

    #[test]
    fn a_client_that_comes_back_at_another_gate_waits_for_what_it_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        runtime().block_on(async move {
            let folder = folder.path().to_owned();
            let disk = Rc::new(Paused {
                disk: Memory::new("disk", Bytes::mib(1)),
                go: Event::default(),
                waiting: Cell::default(),
                is_held: Cell::new(true),
            });
            let gates = two_gates_of(Rc::clone(&disk) as _, &folder).await;
            let first = connect(&folder).await;
            let old = env::spawn(async move {
                let written = first.write_at(Sector(0), View::copy_of(&[1; 512])).await;
                (first, written)
            });
            while disk.waiting.get() == 0 {
                env::sleep(Nanos::millis(1)).await;
            }
            assert_eq!(gates.disconnect(&Which::default()).await.len(), 1);
            assert!(old.await.1.is_err());
            let is_in = Rc::new(Cell::new(false));
            let entered = Rc::clone(&is_in);
            let again = env::spawn(async move {
                let again = connect(&folder).await;
                entered.set(true);
                again
            });
            // It has named its export at the other gate: the first one's place is the old connection's.
            let named = async || {
                let report = gates.report().await.snapshot;
                let named = report.connections.iter().filter(|it| it.export.is_some());
                named.count()
            };
            while named().await < 2 {
                env::sleep(Nanos::millis(1)).await;
            }
            let clients: Vec<_> = gates.desk.gates.iter().map(OneGate::clients).collect();
            assert_eq!(clients, [1, 1]);
            env::sleep(Nanos::millis(100)).await;
            assert!(!is_in.get(), "it was let in too early");
            disk.is_held.set(false);
            disk.go.notify_all();
            let again = again.await;
            again
                .write_at(Sector(0), View::copy_of(&[2; 512]))
                .await
                .unwrap();
            let read = again.read_at(Sector(0), Bytes(512)).await.unwrap();
            assert_eq!(read[0], 2, "the newer write stays");
            gates.drain().await;
        });
    }

    #[test]
    fn clients_of_a_data_thread_that_dies_lose_their_connections_and_hear_of_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_owned();
        let (die, mut is_to_die) = env::mailbox::<()>();
        let (up, is_up) = std::sync::mpsc::channel();
        let data_thread = std::thread::Builder::new().spawn(move || {
            runtime().block_on(async move {
                let _gates = two_gates(&there).await;
                up.send(()).unwrap();
                is_to_die.receive().await.unwrap();
                panic!("planted");
            });
        });
        is_up.recv().unwrap();
        runtime().block_on(async move {
            let client = connect(folder.path()).await;
            read(&client).await.unwrap();
            die.post(()).unwrap();
            assert!(data_thread.unwrap().join().is_err());
            let failed = read(&client).await.unwrap_err();
            assert!(matches!(failed, DeviceError::Gone { .. }), "{failed}");
        });
    }

    #[test]
    fn gates_together_take_on_what_one_server_does() {
        let whole = Limits::default();
        for count in [1, 2, 3, 8, 64] {
            let one = limits_of_one(whole, count);
            assert!(one.connections * count >= whole.connections);
            assert!((one.connections - 1) * count < whole.connections);
            let bytes = one.bytes.0 * count as u64;
            assert!((whole.bytes.0..whole.bytes.0 + 64).contains(&bytes));
            assert_eq!(one.payload_max, whole.payload_max);
        }
    }
}
