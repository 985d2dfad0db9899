//! Exports that are there when a client asks for them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceExt, Info, Pending, WriteFlags};
use env::net::Listener;
use env::sync::Event;
use env::{Runtime, Task};
use front::nbd::proto::{self, Request};
use front::nbd::{Account, Client, ClientOptions, Config, Limits, Server, Soon, Supplied, Supply};

use crate::common::{Raw, address, export, memory};

/// One disk, opened slowly, and one that cannot be.
struct Disks {
    disk: Rc<dyn Device>,
    opened: Cell<u64>,
    open: Rc<Cell<u64>>,
    asked: RefCell<Vec<String>>,
    account: Account,
}

/// Counts those that are open.
struct Hold(Rc<Cell<u64>>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Supply for Disks {
    fn open<'a>(&'a self, name: &'a str) -> Soon<'a, Result<Option<Supplied>, String>> {
        Box::pin(async move {
            self.asked.borrow_mut().push(name.to_owned());
            env::sleep(Nanos::secs(20)).await;
            match name {
                "vm1" => {
                    self.opened.set(self.opened.get() + 1);
                    self.open.set(self.open.get() + 1);
                    Ok(Some(Supplied {
                        device: Rc::clone(&self.disk),
                        description: "a disk".into(),
                        read_only: false,
                        account: self.account.clone(),
                        hold: Box::new(Hold(Rc::clone(&self.open))),
                    }))
                }
                "vm2" => Err("node n7 has vm2 open".into()),
                _ => Ok(None),
            }
        })
    }

    fn list(&self) -> Soon<'_, Vec<(String, String)>> {
        Box::pin(async {
            let entry = |name: &str| (name.to_owned(), String::new());
            vec![entry("vm1"), entry("vm2"), entry("vol0")]
        })
    }

    fn default_export(&self) -> Option<String> {
        Some("vm1".into())
    }
}

fn asks_for(name: &str) -> ClientOptions {
    ClientOptions {
        export: name.into(),
        timeout: Nanos::secs(60),
        ..ClientOptions::default()
    }
}

#[test]
fn an_export_is_opened_for_a_client_that_names_it_and_let_go_when_it_leaves() {
    Runtime::simulated(7).block_on(async {
        let limits = Limits {
            negotiation: Nanos::secs(60),
            ..Limits::default()
        };
        let server = Server::new(Config { limits, tls: None });
        server
            .add_export(export("vol0", memory(Bytes::mib(1))))
            .unwrap();
        let disks = Rc::new(Disks {
            disk: memory(Bytes::mib(2)),
            opened: Cell::new(0),
            open: Rc::default(),
            asked: RefCell::default(),
            account: Account::default(),
        });
        server.set_supply(disks.clone());
        server.serve(Listener::bind(&address()).unwrap());

        let one = Client::connect(&address(), &asks_for("vm1")).await.unwrap();
        let other = Client::connect(&address(), &asks_for("vm1")).await.unwrap();
        // However often a negotiation names it, it is opened once for each client.
        assert_eq!((disks.opened.get(), disks.open.get()), (2, 2));
        assert_eq!(one.info().size, Bytes::mib(2));
        assert!(one.knows_allocation());
        one.write_at(Sector(0), View::copy_of(&[5; 512]))
            .await
            .unwrap();
        let read = other.read_at(Sector(0), Bytes(512)).await.unwrap();
        assert_eq!(read[0], 5);
        one.close().await;
        other.close().await;
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(disks.open.get(), 0);
        // The counters of a later client go on where those of the earlier ones ended.
        let counts = disks.account.counts();
        assert_eq!((counts.reads, counts.writes, counts.in_flight), (1, 1, 0));

        let refused = Client::connect(&address(), &asks_for("vm2")).await;
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(message.contains("node n7 has vm2 open"), "{message}");
        let refused = Client::connect(&address(), &asks_for("vm3")).await;
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(
            message.contains("there is no export named 'vm3'"),
            "{message}"
        );
        // The server's own come first, and the supply is not asked about them.
        let own = Client::connect(&address(), &asks_for("vol0"))
            .await
            .unwrap();
        assert_eq!(own.info().size, Bytes::mib(1));
        assert!(!disks.asked.borrow().contains(&"vol0".to_owned()));
        let listed = Client::list(&address(), None).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["vol0", "vm1", "vm2"]);
        server.drain().await;
    });
}

#[test]
fn a_client_without_a_name_gets_the_supplys_default_or_the_servers_export() {
    Runtime::simulated(8).block_on(async {
        let limits = Limits {
            negotiation: Nanos::secs(60),
            ..Limits::default()
        };
        let server = Server::new(Config { limits, tls: None });
        let disks = Rc::new(Disks {
            disk: memory(Bytes::mib(2)),
            opened: Cell::new(0),
            open: Rc::default(),
            asked: RefCell::default(),
            account: Account::default(),
        });
        server.set_supply(disks.clone());
        server.serve(Listener::bind(&address()).unwrap());
        let client = Client::connect(&address(), &asks_for("")).await.unwrap();
        assert_eq!(client.info().size, Bytes::mib(2));
        client.read_at(Sector(0), Bytes(512)).await.unwrap();
        let snapshot = server.snapshot();
        assert_eq!(snapshot.connections[0].export.as_deref(), Some("vm1"));
        assert_eq!(*disks.asked.borrow(), ["vm1"]);
        client.close().await;
        server
            .add_export(export("vol0", memory(Bytes::mib(1))))
            .unwrap();
        let client = Client::connect(&address(), &asks_for("")).await.unwrap();
        assert_eq!(client.info().size, Bytes::mib(1));
        client.close().await;
        server.drain().await;
    });
}

#[test]
fn an_export_that_is_closed_turns_clients_away_with_its_reason_until_it_opens() {
    Runtime::simulated(7).block_on(async {
        let server = Server::new(Config::default());
        for (name, mib) in [("vol0", 1), ("vol1", 2)] {
            let added = server.add_export(export(name, memory(Bytes::mib(mib))));
            added.unwrap();
        }
        let why = Rc::new(RefCell::new(Some("its cache is gone".to_owned())));
        let said = Rc::clone(&why);
        let closed = server.close_while("vol0", Rc::new(move || said.borrow().clone()));
        closed.unwrap();
        let unknown = server.close_while("vol2", Rc::new(|| None));
        assert!(unknown.is_err());
        server.serve(Listener::bind(&address()).unwrap());
        // The default export is no other one meanwhile.
        for name in ["vol0", ""] {
            let refused = Client::connect(&address(), &asks_for(name)).await;
            let message = refused.map(drop).unwrap_err().to_string();
            assert!(message.contains("its cache is gone"), "{name}: {message}");
        }
        let other = Client::connect(&address(), &asks_for("vol1")).await;
        other.unwrap().close().await;
        assert_eq!(Client::list(&address(), None).await.unwrap().len(), 2);

        why.take();
        for name in ["vol0", ""] {
            let now = Client::connect(&address(), &asks_for(name)).await.unwrap();
            assert_eq!(now.info().size, Bytes::mib(1));
            now.close().await;
        }
        server.drain().await;
    });
}

/// Writes of this take two seconds.
const SLOW: u8 = 3;

/// A disk whose writes wait until they are let go.
struct Paused {
    disk: Rc<dyn Device>,
    go: Rc<Event>,
    is_held: Cell<bool>,
}

impl Paused {
    /// Lets go in three seconds what waits; what comes from now on does not wait.
    fn release_later(&self) -> Task<()> {
        self.is_held.set(false);
        let go = Rc::clone(&self.go);
        env::spawn(async move {
            env::sleep(Nanos::secs(3)).await;
            go.notify_all();
        })
    }
}

impl Device for Paused {
    fn info(&self) -> Info {
        self.disk.info()
    }
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.disk.read(at, buf, class)
    }
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let is_held = self.is_held.get();
        Box::pin(async move {
            if is_held {
                self.go.wait().await;
            }
            if data[0] == SLOW {
                env::sleep(Nanos::secs(2)).await;
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

/// A disk whose writes wait, served as vol0.
fn serve_paused() -> (Rc<Paused>, Rc<Server>) {
    serve_paused_by(Config::default())
}

fn serve_paused_by(config: Config) -> (Rc<Paused>, Rc<Server>) {
    let held = Rc::new(Paused {
        disk: memory(Bytes::mib(1)),
        go: Rc::default(),
        is_held: Cell::new(true),
    });
    let server = Server::new(config);
    server.add_export(export("vol0", held.clone())).unwrap();
    server.serve(Listener::bind(&address()).unwrap());
    (held, server)
}

/// A write of ones waits on the disk, and its connection has ended: the next client is let in once it is done, three seconds
/// from now, so that what it writes stays.
async fn is_waited_for(held: &Paused, server: &Rc<Server>) {
    let later = env::now() + Nanos::secs(3);
    let release = held.release_later();
    let again = Client::connect(&address(), &asks_for("vol0"))
        .await
        .unwrap();
    assert!(env::now() >= later, "it was let in too early");
    again
        .write_at(Sector(0), View::copy_of(&[2; 512]))
        .await
        .unwrap();
    release.await;
    env::sleep(Nanos::secs(1)).await;
    let read = again.read_at(Sector(0), Bytes(512)).await.unwrap();
    assert_eq!(read[0], 2, "the newer write stays");
    again.close().await;
    server.drain().await;
}

#[test]
fn what_is_asked_again_comes_after_what_an_ended_connection_left_behind() {
    Runtime::simulated(7).block_on(async {
        let (held, server) = serve_paused();
        let first = Client::connect(&address(), &asks_for("vol0"))
            .await
            .unwrap();
        let first = Rc::new(first);
        let writes = Rc::clone(&first);
        let old = env::spawn(async move {
            let data = View::copy_of(&[1; 512]);
            writes.write_at(Sector(0), data).await
        });
        env::sleep(Nanos::millis(100)).await;
        // Its connection ends while the old write is under way.
        assert_eq!(server.disconnect(|_| true).len(), 1);
        assert!(old.await.is_err());
        is_waited_for(&held, &server).await;
    });
}

#[test]
fn a_write_that_came_in_one_piece_with_the_goodbye_is_waited_for_too() {
    Runtime::simulated(7).block_on(async {
        let (held, server) = serve_paused();
        let first = Raw::entered(false).await;
        let request = |command, length| {
            let request = Request {
                flags: 0,
                command,
                cookie: 1,
                offset: 0,
                length,
            };
            request.encode()
        };
        let mut bytes = request(proto::cmd::WRITE, 512).to_vec();
        bytes.extend([1; 512]);
        bytes.extend(request(proto::cmd::DISC, 0));
        first.send(&bytes).await;
        env::sleep(Nanos::millis(100)).await;
        is_waited_for(&held, &server).await;
    });
}

/// A client sends two writes to a server that takes one at a time: the first waits on the disk, the second for its turn. Then
/// its connection ends as `end` does, and it comes back and writes to the same place. When it was let in, and what is read
/// in the end.
fn comes_back_behind_two_writes(end: impl FnOnce(&Raw, &Server) + 'static) -> (Nanos, u8) {
    Runtime::simulated(7).block_on(async {
        let (held, server) = serve_paused_by(Config {
            limits: Limits {
                requests_per_connection: 1,
                ..Limits::default()
            },
            ..Config::default()
        });
        let first = Raw::entered(false).await;
        for (cookie, byte) in [(1, 1), (2, SLOW)] {
            let request = Request {
                flags: 0,
                command: proto::cmd::WRITE,
                cookie,
                offset: 0,
                length: 512,
            };
            let bytes = [&request.encode()[..], &[byte; 512]].concat();
            first.send(&bytes).await;
        }
        env::sleep(Nanos::millis(100)).await;
        end(&first, &server);
        env::sleep(Nanos::millis(100)).await;
        let begun = env::now();
        let release = held.release_later();
        let again = Client::connect(&address(), &asks_for("vol0"))
            .await
            .unwrap();
        let waited = env::now().since(begun);
        again
            .write_at(Sector(0), View::copy_of(&[2; 512]))
            .await
            .unwrap();
        release.await;
        env::sleep(Nanos::secs(5)).await;
        let read = again.read_at(Sector(0), Bytes(512)).await.unwrap();
        again.close().await;
        server.drain().await;
        (waited, read[0])
    })
}

#[test]
fn what_waits_for_its_turn_on_a_connection_that_is_cut_is_not_begun() {
    let (waited, read) = comes_back_behind_two_writes(|_first, server| {
        assert_eq!(server.disconnect(|_| true).len(), 1);
    });
    assert_eq!(read, 2, "the newer write stays");
    assert!(
        (Nanos::secs(3)..Nanos::secs(4)).contains(&waited),
        "{waited}"
    );
}

#[test]
fn who_hangs_up_is_let_in_behind_all_that_it_sent() {
    let (waited, read) = comes_back_behind_two_writes(|first, _| first.stream.shutdown_write());
    assert_eq!(read, 2, "the newer write stays");
    assert!(
        (Nanos::secs(5)..Nanos::secs(6)).contains(&waited),
        "{waited}"
    );
}
