//! A virtual machine's disk in virtual time: a guest's driver, its client, and the server.

mod any_message;
mod any_ring;
mod client;
mod guest;
mod hostile;
mod messages;
mod oracle;
mod restarts;
mod spins;

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use client::{Client, feature};
use device::{Device, DeviceExt, Info, Memory, Pending, WriteFlags};
use env::net::{Listener, Stream};
use front::vhost::message::Message;
use front::vhost::{GuestBook, MemoryId, Opened, Server, Snapshot, Source};
use guest::{Ask, Guest};

/// How big the tests' disks are.
const SIZE: Bytes = Bytes::mib(8);
const SOCKET: &str = "unix:/run/vm.sock";

/// Always the same device.
struct Same {
    device: Rc<dyn Device>,
    read_only: bool,
    found_all: bool,
    identity: u64,
    /// Which guest had it last, of all processes that share this.
    book: Rc<Book>,
}

/// In memory that outlives a process.
#[derive(Default)]
struct Book {
    memory: RefCell<Option<Vec<MemoryId>>>,
    /// Nothing can be written.
    full: Cell<bool>,
}

impl GuestBook for Book {
    fn read(&self) -> Result<Option<Vec<MemoryId>>, String> {
        Ok(self.memory.borrow().clone())
    }

    fn write(&self, memory: &[MemoryId]) -> Result<(), String> {
        match self.full.get() {
            true => Err("no room".to_owned()),
            false => {
                self.memory.replace(Some(memory.to_vec()));
                Ok(())
            }
        }
    }
}

impl Source for Same {
    fn open(&self) -> Pin<Box<dyn Future<Output = Result<Opened, String>> + '_>> {
        let opened = Opened {
            device: Rc::clone(&self.device),
            identity: self.identity,
            read_only: self.read_only,
            found_all: self.found_all,
            book: Rc::clone(&self.book) as Rc<dyn GuestBook>,
            hold: Box::new(()),
        };
        Box::pin(async { Ok(opened) })
    }
}

fn serve(device: Rc<dyn Device>, read_only: bool, found_all: bool) -> Rc<Server> {
    serve_at(SOCKET, device, read_only, found_all)
}

fn serve_at(address: &str, device: Rc<dyn Device>, read_only: bool, found_all: bool) -> Rc<Server> {
    serve_source(
        address,
        Same {
            device,
            read_only,
            found_all,
            identity: 1,
            book: Rc::default(),
        },
    )
}

fn serve_source(address: &str, source: Same) -> Rc<Server> {
    let server = Server::new("vol0", Rc::new(source));
    server.serve(Listener::bind(&address.parse().unwrap()).unwrap());
    server
}

fn simulated<T: 'static>(test: impl AsyncFnOnce(Rc<Memory>) -> T + 'static) -> T {
    env::Runtime::simulated(1).block_on(async move { test(Memory::new("disk", SIZE)).await })
}

fn write(at: u64, byte: u8, len: usize) -> Ask {
    Ask::Write {
        at,
        data: vec![byte; len],
    }
}

#[test]
fn what_was_written_is_read() {
    for event_idx in [true, false] {
        simulated(async move |memory| {
            let server = serve(memory.clone(), false, false);
            let guest = Guest::new(event_idx);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            assert_eq!(client.capacity.get(), SIZE.0 / 512);
            // More than slots, so that every slot and both kinds of descriptors are used.
            for number in 0..40u64 {
                let len = 512 * (1 + number as usize % 24);
                let at = number * 16384;
                guest
                    .submit(write(at, number as u8 + 1, len))
                    .await
                    .unwrap();
                let read = guest.submit(Ask::Read { at, len: len + 512 }).await;
                if len + 512 <= guest::DATA_MAX {
                    let read = read.unwrap();
                    assert!(read[..len].iter().all(|&byte| byte == number as u8 + 1));
                    assert_eq!(read[len..], [0; 512]);
                }
            }
            guest.submit(Ask::Flush).await.unwrap();
            assert_eq!(memory.read_at(Sector(0), Bytes(512)).await.unwrap()[0], 1);
            let zero = Ask::WriteZeroes {
                at: 0,
                len: 4096,
                unmap: false,
            };
            guest.submit(zero).await.unwrap();
            let discard = Ask::Discard {
                at: 16384,
                len: 1 << 20,
            };
            guest.submit(discard).await.unwrap();
            for at in [0, 16384] {
                let read = guest.submit(Ask::Read { at, len: 512 }).await.unwrap();
                assert_eq!(read, [0; 512]);
            }
            let name = guest.submit(Ask::Name).await.unwrap();
            assert_eq!(&name[..6], b"vol0\0\0");
            let snapshot = server.snapshot();
            assert_eq!(
                (snapshot.requests.under_way, snapshot.requests.failed),
                (0, 0)
            );
            assert_eq!(snapshot.requests.answered, guest.asked.get());
        });
    }
}

#[test]
fn a_request_that_cannot_be_carried_out_fails_alone() {
    simulated(async |memory| {
        let server = serve(memory, true, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        assert_eq!(guest.submit(write(0, 1, 512)).await, Err(1), "read-only");
        let beyond = Ask::Read {
            at: SIZE.0 - 512,
            len: 1024,
        };
        assert_eq!(guest.submit(beyond).await, Err(1));
        let long = Ask::Discard {
            at: 0,
            len: 128 << 20,
        };
        assert_eq!(guest.submit(long).await, Err(1));
        let read = Ask::Read { at: 0, len: 512 };
        assert_eq!(guest.submit(read).await, Ok(vec![0; 512]));
        assert_eq!(server.snapshot().requests.failed, 3);
    });
}

/// Notes how each write was asked for, and takes a while for it.
struct Watched {
    memory: Rc<Memory>,
    fua: RefCell<Vec<bool>>,
    delay: Nanos,
    size: Cell<Bytes>,
}

impl Watched {
    fn new(memory: Rc<Memory>, delay: Nanos) -> Rc<Watched> {
        Rc::new(Watched {
            size: Cell::new(memory.info().size),
            memory,
            fua: RefCell::default(),
            delay,
        })
    }
}

impl Device for Watched {
    fn info(&self) -> Info {
        Info {
            size: self.size.get(),
            ..self.memory.info()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: device::Class) -> Pending<'_, Buf> {
        self.memory.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.fua.borrow_mut().push(flags.fua);
        Box::pin(async move {
            env::sleep(self.delay).await;
            self.memory.write(at, data, flags).await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.memory.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.memory.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.fua.borrow_mut().push(flags.fua);
        self.memory.write_zeroes(span, flags)
    }
}

#[test]
fn writes_are_durable_where_the_driver_does_not_flush() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos(0));
        let _server = serve(watched.clone(), false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        client.set_write_back(false).await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        let zero = Ask::WriteZeroes {
            at: 0,
            len: 4096,
            unmap: true,
        };
        guest.submit(zero).await.unwrap();
        client.set_write_back(true).await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(*watched.fua.borrow(), [false, true, true, false]);
        // It is known after a connection was lost, too.
        client.set_write_back(false).await.unwrap();
        client.hang_up();
        env::sleep(Nanos::millis(1)).await;
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(watched.fua.borrow()[4..], [true]);
        client.hang_up();
        env::sleep(Nanos::millis(1)).await;

        let guest = Guest::new(true);
        let mut client = Client::new(&guest, SOCKET);
        client.without = feature::FLUSH;
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(watched.fua.borrow()[5..], [true]);
    });
}

#[test]
fn a_queue_that_is_stopped_answers_first_and_goes_on_later() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos::millis(5));
        let _server = serve(watched, false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let writing = env::spawn({
            let guest = Rc::clone(&guest);
            async move { guest.submit(write(0, 1, 512)).await }
        });
        env::sleep(Nanos::millis(1)).await;
        assert_eq!(client.stop_queue(0).await.unwrap(), 1);
        assert_eq!(guest.used_index(), 1, "what was taken is answered");
        writing.await.unwrap();
        let waiting = env::spawn({
            let guest = Rc::clone(&guest);
            async move { guest.submit(write(0, 2, 512)).await }
        });
        env::sleep(Nanos::millis(50)).await;
        assert_eq!(guest.under_way(), 1, "nothing is taken");
        client.begin_queue(0).await.unwrap();
        waiting.await.unwrap();
    });
}

#[test]
fn a_client_hears_of_a_new_size() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos(0));
        watched.size.set(Bytes::mib(4));
        let _server = serve(watched.clone(), false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let listener = Listener::bind(&"unix:/run/back.sock".parse().unwrap()).unwrap();
        let address = listener.address().clone();
        let connecting = env::spawn(async move { Stream::connect(&address).await.unwrap() });
        let ours = listener.accept().await.unwrap();
        let theirs = connecting.await.into_descriptor();
        client
            .ask(&Message::SetBackendReq, &[&theirs])
            .await
            .unwrap();
        let beyond = write(Bytes::mib(5).0, 1, 512);
        assert_eq!(guest.submit(beyond.clone()).await, Err(1));
        watched.size.set(Bytes::mib(8));
        let notice = ours.read_exact(Buf::for_read(12)).await.unwrap();
        assert_eq!(notice[..], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        client.look().await.unwrap();
        assert_eq!(client.capacity.get(), SIZE.0 / 512);
        guest.submit(beyond).await.unwrap();
    });
}

#[test]
fn one_client_at_a_time() {
    simulated(async |memory| {
        let server = serve(memory, false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let other = Client::new(&Guest::new(true), SOCKET);
        assert!(other.connect().await.is_err());
        guest.submit(Ask::Flush).await.unwrap();
        client.hang_up();
        other.connect().await.unwrap();
        let Snapshot {
            client,
            turned_away,
            ..
        } = server.snapshot();
        assert!(client.is_some() && turned_away == 1);
        server.drain().await;
        assert_eq!(server.snapshot().client, None);
        assert!(other.connect().await.is_err(), "nothing listens");
    });
}

/// One waits for its turn, others are gone at once; who says nothing does not keep the disk.
#[test]
fn clients_that_only_connect_take_no_place() {
    simulated(async |memory| {
        let server = serve(memory, false, false);
        let address = SOCKET.parse().unwrap();
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.push(Stream::connect(&address).await.unwrap());
        }
        env::sleep(Nanos::millis(10)).await;
        assert_eq!(server.snapshot().turned_away, 8);
        env::sleep(Nanos::secs(11)).await;
        assert_eq!(server.snapshot().client, None);
        let client = Client::new(&Guest::new(true), SOCKET);
        client.connect().await.unwrap();
    });
}
