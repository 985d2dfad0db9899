//! The server and its clients on the simulated network: honest ones, slow ones, dead ones and liars.

mod capped;
mod hostile;
mod tls;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, View};
use device::{Class, Memory};
use env::net::sim::{self, Delay, Link};
use env::net::{Address, Listener, Stream};
use env::sync::join_all;
use env::{Rng, Runtime};
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Costs, Direction, Second, Slot};

use super::{Limits, ServeError, Server};
use crate::Settings;
use crate::net::client::{Client, ClientError, ClientOptions, Credentials, RefusedKind};
use crate::net::wire::{
    CLIENT_HELLO_LEN, Challenge, ClientHello, Failure, HEADER_LEN, Header, Kind, NodeKey, Op,
    Proof, Request, Response, SERVER_HELLO_LEN, ServerHello,
};
use crate::object::error::StoreError;
use crate::object::store::Store;
use crate::object::types::Stat;
use crate::object::types::{Change, Condition, Version};
use crate::ops::{self, ObjectCalls};
use crate::qos::manager::{Manager, ManagerOptions, ManagerTerms, ReservationRequest, set_terms};

const KEY: [u8; 32] = [7; 32];
const SECRET: Credentials = Credentials::NodeKey(KEY);

fn host(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn options() -> ManagerOptions {
    ManagerOptions {
        memory: Bytes::mib(16),
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [9; 32])
    }
}

/// A server on a host of its own, at port 7400.
struct Site {
    server: Rc<Server>,
    device: Rc<Memory>,
    address: Address,
}

async fn manager(device: &Rc<Memory>, options: ManagerOptions) -> Rc<Manager> {
    let formatted = Store::format(Rc::clone(device) as _, Settings::default()).await;
    formatted.expect("formatted").close().await.expect("closed");
    Manager::open(Rc::clone(device) as _, options)
        .await
        .expect("opened")
}

async fn site(limits: Limits) -> Site {
    let device = Memory::new("disk", Bytes::mib(64));
    let options = ManagerOptions {
        node_key: Some(KEY),
        ..options()
    };
    let (device, server) = sim::on_host(host(1), async move {
        let server = Server::new(manager(&device, options).await, limits);
        let listener = Listener::bind(&"0.0.0.0:7400".parse().expect("an address"));
        server
            .serve(listener.expect("a free port"))
            .expect("no client comes in without credentials");
        (device, server)
    })
    .await;
    Site {
        server,
        device,
        address: "10.0.0.1:7400".parse().expect("an address"),
    }
}

async fn client(site: &Site) -> Client {
    Client::connect(&site.address, SECRET)
        .await
        .expect("connected")
}

fn in_virtual_time<T: 'static>(seed: u64, scenario: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(seed).block_on(scenario)
}

// --- honest clients -----------------------------------------------------------------------------------

#[test]
fn two_hundred_requests_travel_in_one_round_trip() {
    in_virtual_time(1, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        let link = Link {
            delay: Delay::Fixed(Nanos::millis(50)),
            ..Link::LAN
        };
        sim::set_default_link(link);
        let begun = env::now();
        let names: Vec<String> = (0..200).map(|n| format!("a/{n}")).collect();
        let made = names
            .iter()
            .map(|name| client.create(name, &[], Change::default()));
        for made in join_all(made).await {
            made.expect("made");
        }
        // 100 ms there and back, and a little for the store.
        let took = env::now().since(begun);
        assert!(took < Nanos::millis(110), "{took}");
        assert_eq!(
            client.list("a/", None, 1000).await.unwrap().objects.len(),
            200
        );
    });
}

#[test]
fn a_quick_answer_overtakes_a_slow_one() {
    in_virtual_time(2, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        let data = View::copy_of(&[5; 8192]);
        client
            .write("a", 0, data, Change::FUA.creating())
            .await
            .unwrap();
        site.device.set_latency(Nanos::millis(40));
        let order = Rc::new(RefCell::new(Vec::new()));
        let slow = {
            let (client, order) = (client.clone(), Rc::clone(&order));
            env::spawn(async move {
                assert_eq!(client.read("a", 0, 8192).await.unwrap()[..], [5; 8192]);
                order.borrow_mut().push("read");
            })
        };
        env::yield_now().await;
        client.ping().await.unwrap();
        order.borrow_mut().push("ping");
        slow.await;
        assert_eq!(*order.borrow(), ["ping", "read"]);
    });
}

#[test]
fn errors_of_the_store_arrive_as_they_were_made() {
    in_virtual_time(3, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        let here = site.server.manager.store();
        let (there, local) = (
            client.read("no", 0, 1).await,
            here.read("no", 0, 1, Class::Foreground).await,
        );
        assert_eq!(there.unwrap_err(), ClientError::Store(local.unwrap_err()));
        let first = client
            .create("a", &[("k", b"v")], Change::default())
            .await
            .unwrap();
        assert_eq!(
            client.attributes("a").await.unwrap(),
            [("k".to_owned(), b"v".to_vec())]
        );
        let again = client.create("a", &[], Change::default()).await;
        assert!(matches!(
            again,
            Err(ClientError::Store(StoreError::Exists { .. }))
        ));
        let marked = Change {
            stamp: Some(9),
            ..Change::default()
        };
        client
            .write("a", 0, View::copy_of(b"x"), marked)
            .await
            .unwrap();
        let late = marked.only_if(Condition::StampAtMost(8));
        let refused = client
            .write("a", 0, View::copy_of(b"y"), late)
            .await
            .unwrap_err();
        let local = here
            .write("a", 0, View::copy_of(b"y"), late)
            .await
            .unwrap_err();
        assert_eq!(refused.to_string(), local.to_string());
        assert!(refused.changed_nothing());
        let late = Change::default().only_if(Condition::Version(first));
        let refused = client.delete("a", late).await;
        let Err(ClientError::Store(StoreError::Condition {
            stamp: 9, found, ..
        })) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(client.stat("a").await.unwrap().version, found);
        let long = client
            .write("a", 0, View::copy_of(&vec![0; 5 << 20]), Change::default())
            .await;
        assert_eq!(
            long.unwrap_err().to_string(),
            format!(
                "cannot write \"a\" in {}: 5.0 MiB are more than the {} that one write takes; split it",
                client.store_name(),
                Bytes(client.write_max())
            )
        );
    });
}

#[test]
fn a_read_goes_into_the_buffer_it_was_given() {
    in_virtual_time(4, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        let data: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        client
            .write("a", 0, View::copy_of(&data), Change::default().creating())
            .await
            .unwrap();
        let mut buf = Buf::zeroed(1 << 17);
        let address = buf.address();
        let (len, mut buf) = client.read_into("a", 0, buf).await.unwrap();
        assert_eq!((len, buf.len(), buf.address()), (100_000, 1 << 17, address));
        assert_eq!(buf[..len], data);
        assert!(buf[len..].iter().all(|byte| *byte == 0));
    });
}

/// What an object holds, and its size, by the plainest means.
type Model = BTreeMap<String, Vec<u8>>;

async fn random_step(rng: &mut Rng, client: &Client, model: &mut Model) {
    let name = format!("o{}", rng.below(6));
    let (offset, len) = (rng.below(60_000) as usize, 1 + rng.below(20_000) as usize);
    let there = model.contains_key(&name);
    match rng.below(9) {
        0..3 => {
            let mut data = vec![0; len];
            rng.fill(&mut data);
            let change = Change {
                create: rng.chance(0.7),
                fua: rng.chance(0.2),
                ..Change::default()
            };
            let written = client
                .write(&name, offset as u64, View::copy_of(&data), change)
                .await;
            assert_eq!(written.is_ok(), there || change.create);
            if written.is_ok() {
                let object = model.entry(name).or_default();
                object.resize(object.len().max(offset + len), 0);
                object[offset..offset + len].copy_from_slice(&data);
            }
        }
        3 => {
            let cut = client
                .truncate(&name, offset as u64, Change::default())
                .await;
            assert_eq!(cut.is_ok(), there);
            model
                .entry(name)
                .and_modify(|object| object.resize(offset, 0));
        }
        4 => {
            let hole = client
                .punch(&name, offset as u64, len as u64, Change::default())
                .await;
            assert_eq!(hole.is_ok(), there);
            model.entry(name).and_modify(|object| {
                let end = object.len().min(offset + len);
                if offset < end {
                    object[offset..end].fill(0);
                }
            });
        }
        5 => {
            let gone = client.delete(&name, Change::default()).await;
            assert_eq!(gone.is_ok(), there);
            model.remove(&name);
        }
        6 => {
            let to = format!("o{}", rng.below(6));
            let moved = client.rename(&name, &to, true, Change::default()).await;
            assert_eq!(moved.is_ok(), there);
            if let Some(object) = model.remove(&name) {
                model.insert(to, object);
            }
        }
        7 => {
            let allocated_ranges = client.allocated_ranges(&name, 0, u64::MAX).await;
            assert_eq!(allocated_ranges.is_ok(), there);
            for range in allocated_ranges
                .into_iter()
                .flatten()
                .filter(|range| !range.data)
            {
                let range = range.offset as usize..(range.offset + range.len) as usize;
                assert!(model[&name][range].iter().all(|byte| *byte == 0));
            }
        }
        _ => {
            let read = client.read(&name, offset as u64, len as u64).await;
            assert_eq!(read.is_ok(), there);
            if let (Ok(read), Some(object)) = (read, model.get(&name)) {
                let end = object.len().min(offset + len);
                assert_eq!(&read[..], object.get(offset..end).unwrap_or(&[]));
            }
        }
    }
}

#[test]
fn random_operations_through_the_client_are_those_on_a_plain_map() {
    for seed in 0..6 {
        in_virtual_time(seed, async move {
            sim::set_default_link(Link {
                loss: 0.01,
                ..Link::LAN
            });
            let site = site(Limits::default()).await;
            let mut rng = env::rng("steps");
            let mut model = Model::new();
            let mut one = client(&site).await;
            for step in 0..250 {
                random_step(&mut rng, &one, &mut model).await;
                if step % 60 == 59 {
                    one.close().await;
                    one = client(&site).await;
                }
            }
            let sizes = |stats: Vec<Stat>| -> Vec<(String, u64)> {
                stats
                    .into_iter()
                    .map(|stat| (stat.name, stat.size))
                    .collect()
            };
            let listed = sizes(one.list("", None, 100).await.unwrap().objects);
            let awaited: Vec<(String, u64)> = model
                .iter()
                .map(|(name, object)| (name.clone(), object.len() as u64))
                .collect();
            assert_eq!(listed, awaited, "seed {seed}");
            for (name, object) in &model {
                let read = one.read(name, 0, 1 << 20).await.unwrap();
                assert_eq!(&read[..], &object[..], "{name}, seed {seed}");
            }
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_conversation_step_by_step() {
    let hash = |seed| {
        let runtime = Runtime::simulated(seed);
        runtime.block_on(async {
            sim::set_default_link(Link {
                loss: 0.05,
                delay: Delay::Exponential {
                    least: Nanos::micros(100),
                    tail: Nanos::millis(1),
                },
                ..Link::LAN
            });
            let site = site(Limits::default()).await;
            let clients = [client(&site).await, client(&site).await];
            let work = (0..40).map(|n| {
                let client = clients[n % 2].clone();
                async move {
                    let name = format!("o{}", n % 5);
                    let data = View::copy_of(&vec![n as u8; 1000 * n + 1]);
                    let written = client
                        .write(&name, 0, data, Change::default().creating())
                        .await;
                    let read = client.read(&name, 0, 100_000).await.map(|buf| buf.len());
                    (written, read)
                }
            });
            join_all(work).await;
            site.server.drain().await;
        });
        runtime.trace_hash()
    };
    assert_eq!(hash(11), hash(11));
    assert_ne!(hash(11), hash(12));
}

// --- who may come in --------------------------------------------------------------------------------------

#[test]
fn only_who_knows_the_node_key_comes_in_with_it() {
    in_virtual_time(5, async {
        let site = site(Limits::default()).await;
        let come = async |credentials| Client::connect(&site.address, credentials).await;
        let wrong = come(Credentials::NodeKey([8; 32]))
            .await
            .map(drop)
            .unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "cannot let a node in: what it shows was not made with the node key of store; give both the same key"
        );
        for credentials in [
            Credentials::Open,
            Credentials::Capability("tanada1.x.y".to_owned()),
        ] {
            let refused = come(credentials.clone()).await.map(drop);
            let Err(ClientError::Refused {
                kind: RefusedKind::Access,
                ..
            }) = refused
            else {
                panic!("{credentials:?}: {refused:?}");
            };
        }
        come(SECRET).await.expect("let in").close().await;
        let figures = site.server.figures();
        assert_eq!((figures.accepted, figures.not_let_in), (4, 3));
    });
}

#[test]
fn a_server_that_does_not_know_the_key_is_found_out() {
    in_virtual_time(6, async {
        let site = site(Limits::default()).await;
        // It lets every client in, and shows what it saw an honest client show.
        let listener = Listener::bind(&"127.0.0.1:7401".parse().unwrap()).unwrap();
        let task = env::spawn(async move {
            let stream = listener.accept().await.unwrap();
            stream
                .read_exact(Buf::for_read(CLIENT_HELLO_LEN))
                .await
                .unwrap();
            let theirs = Client::connect(&site.address, SECRET).await.unwrap();
            let hello = ServerHello {
                nonce: [1; 32],
                ..theirs_hello(&theirs)
            };
            stream
                .write_all(vec![View::copy_of(&hello.encode())])
                .await
                .unwrap();
            let head = stream.read_exact(Buf::for_read(HEADER_LEN)).await.unwrap();
            let header = Header::parse(head[..].try_into().unwrap(), Kind::Request).unwrap();
            let meta = stream
                .read_exact(Buf::for_read(header.meta_len as usize))
                .await
                .unwrap();
            let Ok(Request::Open(Proof::NodeKey(proof))) = Request::decode(Op::Open, &meta) else {
                panic!("no proof")
            };
            let opened = Response::Opened(crate::net::wire::Opened {
                name: "disk".to_owned(),
                proof,
                memory: Bytes::mib(1),
                wall_clock: env::wall_clock(),
            });
            stream
                .write_all(vec![frame(Op::Open as u16, header.id, &opened)])
                .await
                .unwrap();
        });
        let found = Client::connect(&"127.0.0.1:7401".parse().unwrap(), SECRET).await;
        assert!(matches!(found.map(drop), Err(ClientError::Impostor { .. })));
        task.await;
    });
}

fn theirs_hello(client: &Client) -> ServerHello {
    ServerHello {
        version: 1,
        version_min: 1,
        version_max: 1,
        ways: crate::net::wire::Ways::default(),
        nonce: [0; 32],
        store: client.store_uuid(),
        data_max: client.read_max() as u32,
        requests_max: 8,
        write_max: client.write_max() as u32,
        idle_ms: 1000,
    }
}

fn frame(op: u16, id: u64, answer: &Response) -> View {
    let (status, meta, data) = answer.parts();
    let header = Header::of(op, status, id, &meta, &data);
    View::copy_of(&[&header.encode(Kind::Response)[..], &meta, &data].concat())
}

#[test]
fn without_credentials_only_this_machine_comes_in() {
    in_virtual_time(7, async {
        sim::on_host(host(1), async {
            let device = Memory::new("disk", Bytes::mib(32));
            let options = ManagerOptions {
                unauthenticated: true,
                ..options()
            };
            let server = Server::new(manager(&device, options).await, Limits::default());
            for exposed in ["0.0.0.0:7400", "10.0.0.1:7401"] {
                let address: Address = exposed.parse().unwrap();
                let listener = Listener::bind(&address).expect("free");
                let refused = server.serve(listener);
                assert!(
                    matches!(refused, Err(ServeError::Exposed { .. })),
                    "{exposed}"
                );
            }
            for local in ["127.0.0.1:7402", "[::1]:7403", "unix:/run/s0.sock"] {
                let address: Address = local.parse().unwrap();
                server
                    .serve(Listener::bind(&address).expect("free"))
                    .expect("local");
                let client = Client::connect(&address, Credentials::Open)
                    .await
                    .expect(local);
                client.ping().await.unwrap();
            }
        })
        .await
    });
}

#[test]
fn who_came_to_an_address_from_elsewhere_never_comes_in_without_credentials() {
    in_virtual_time(9, async {
        let device = Memory::new("disk", Bytes::mib(32));
        let manager = manager(&device, options()).await;
        let server = Server::new(Rc::clone(&manager), Limits::default());
        let address: Address = "10.0.0.1:7400".parse().unwrap();
        sim::on_host(host(1), async {
            let listener = Listener::bind(&address).expect("free");
            server.serve(listener).expect("it asks for credentials");
        })
        .await;
        // Where it listens is to end with this, and one is on its way in.
        let options = manager.queue().options();
        let open = ManagerTerms {
            unauthenticated: true,
            skew: 5,
            floor: options.floor,
            ceiling: options.ceiling,
        };
        set_terms(&manager, &open).unwrap();
        let refused = sim::on_host(host(2), Client::connect(&address, Credentials::Open)).await;
        let why = refused.map(drop).unwrap_err().to_string();
        assert!(why.contains("from its own machine alone"), "{why}");
    });
}

// --- recorded, changed, cut off --------------------------------------------------------------------------

/// The bytes of an honest client's conversation, with and after the opening, frame by frame.
fn conversation() -> Vec<Vec<u8>> {
    let change = Change::FUA.creating();
    let requests: Vec<(Request, &[u8])> = vec![
        (Request::Open(Proof::Open), b""),
        (
            Request::Object(ops::Request::Write {
                data: View::empty(),
                object: "a".into(),
                offset: 0,
                change,
            }),
            b"hello, sea",
        ),
        (
            Request::Object(ops::Request::Create {
                object: "b".into(),
                attributes: vec![("k".into(), vec![1])],
                change,
            }),
            b"",
        ),
        (
            Request::Object(ops::Request::Read {
                class: Class::Foreground,
                object: "a".into(),
                offset: 0,
                len: 10,
            }),
            b"",
        ),
        (
            Request::Object(ops::Request::Write {
                data: View::empty(),
                object: "c".into(),
                offset: 3,
                change,
            }),
            b"more",
        ),
        (
            Request::Object(ops::Request::List {
                prefix: String::new(),
                after: None,
                most: 10,
            }),
            b"",
        ),
    ];
    let hello = ClientHello {
        version_min: 1,
        version_max: 1,
        data_max: 1 << 20,
        nonce: [4; 32],
    };
    let frames = requests.iter().enumerate().map(|(id, (request, data))| {
        let meta = request.encode();
        let header = Header::of(request.op() as u16, 0, 1 + id as u64, &meta, data);
        [&header.encode(Kind::Request)[..], &meta, data].concat()
    });
    [hello.encode().to_vec()]
        .into_iter()
        .chain(frames)
        .collect()
}

/// What a server sends back to `bytes`: all of it, until it hangs up or two minutes are over.
async fn replay(address: &Address, bytes: &[u8], hang_up: bool) -> Vec<u8> {
    let stream = Rc::new(Stream::connect(address).await.expect("connected"));
    // A server that has had enough may have hung up already.
    let _ = stream.write_all(vec![View::copy_of(bytes)]).await;
    if hang_up {
        stream.shutdown_write();
    }
    let mut all = Vec::new();
    let reading = async {
        let mut buf = Buf::for_read(1 << 16);
        while let Ok((len @ 1.., back)) = stream.read(buf).await {
            all.extend_from_slice(&back[..len]);
            buf = back;
        }
    };
    env::timeout(Nanos::secs(300), reading)
        .await
        .expect("the server hangs up in the end");
    all
}

/// The answers in what a server sent: operation, number, failure.
fn answers(mut bytes: &[u8]) -> Vec<(u16, u64, Option<Failure>)> {
    if bytes.len() >= SERVER_HELLO_LEN
        && Header::parse(bytes[..HEADER_LEN].try_into().unwrap(), Kind::Response).is_err()
    {
        ServerHello::parse(bytes[..SERVER_HELLO_LEN].try_into().unwrap()).expect("a hello");
        bytes = &bytes[SERVER_HELLO_LEN..];
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let header = Header::parse(bytes[..HEADER_LEN].try_into().unwrap(), Kind::Response)
            .expect("a header");
        let meta_end = HEADER_LEN + header.meta_len as usize;
        let end = meta_end + header.data_len as usize;
        header.check_meta(&bytes[HEADER_LEN..meta_end]).unwrap();
        header.check_data(&bytes[meta_end..end]).unwrap();
        let op = Op::of(header.op).unwrap_or(Op::Ping);
        let data = Buf::copy_of(&bytes[meta_end..end]);
        let answer = Response::decode(op, header.status, &bytes[HEADER_LEN..meta_end], data);
        let failure = match answer.expect("an answer") {
            Response::Failed(failure) => Some(failure),
            _ => None,
        };
        found.push((header.op, header.id, failure));
        bytes = &bytes[end..];
    }
    found
}

async fn open_site() -> (Rc<Server>, Address) {
    let device = Memory::new("disk", Bytes::mib(32));
    let options = ManagerOptions {
        unauthenticated: true,
        ..options()
    };
    let limits = Limits {
        stall: Nanos::secs(5),
        idle: Nanos::secs(20),
        opening: Nanos::secs(2),
        ..Limits::default()
    };
    let server = Server::new(manager(&device, options).await, limits);
    let address: Address = "127.0.0.1:7400".parse().unwrap();
    server.serve(Listener::bind(&address).unwrap()).unwrap();
    (server, address)
}

#[test]
fn a_conversation_with_any_byte_changed_ends_there_with_a_sentence() {
    in_virtual_time(8, async {
        let frames = conversation();
        let bytes = frames.concat();
        let (server, address) = open_site().await;
        let whole = answers(&replay(&address, &bytes, true).await);
        assert_eq!(whole.len(), 6);
        let mut rng = env::rng("flips");
        for at in 0..bytes.len() {
            for name in ["a", "b", "c"] {
                // Not there after some rounds: the conversation was changed before it was made.
                let _ = server.manager.store().delete(name, Change::default()).await;
            }
            let mut changed = bytes.clone();
            changed[at] ^= 1 << rng.below(8);
            let received = answers(&replay(&address, &changed, false).await);
            // The frame in which the byte lies; 0 is the hello, 1 the opening.
            let mut end = 0;
            let frame = frames.iter().position(|frame| {
                end += frame.len();
                at < end
            });
            let frame = frame.unwrap() as u64;
            let (op, _, failure) = received.last().expect("a sentence");
            assert_eq!(*op, 0, "byte {at}");
            let Some(Failure::Refused {
                kind: RefusedKind::Malformed,
                text,
                ..
            }) = failure
            else {
                panic!("byte {at}: {failure:?}");
            };
            assert!(!text.is_empty());
            // Whatever came before it was done, and it was not, nor anything behind it.
            let mut ids: Vec<u64> = received.iter().filter(|t| t.0 != 0).map(|t| t.1).collect();
            ids.sort_unstable();
            assert_eq!(ids, (1..frame).collect::<Vec<u64>>(), "byte {at}");
            let made = |name: &str| server.manager.store().stat(name).is_ok();
            assert_eq!(
                (made("a"), made("b"), made("c")),
                (frame > 2, frame > 3, frame > 5),
                "byte {at}"
            );
        }
        env::sleep(Nanos::secs(5)).await;
        let figures = server.figures();
        assert_eq!(figures.held_bytes, Bytes(0));
        assert_eq!(figures.connections, []);
    });
}

#[test]
fn a_conversation_cut_off_anywhere_does_what_was_whole() {
    in_virtual_time(9, async {
        let frames = conversation();
        let bytes = frames.concat();
        let (server, address) = open_site().await;
        for at in 0..bytes.len() {
            for name in ["a", "b", "c"] {
                let _ = server.manager.store().delete(name, Change::default()).await;
            }
            // Half of them hang up, half stay there and say nothing more.
            let received = answers(&replay(&address, &bytes[..at], at % 2 == 0).await);
            let mut end = 0;
            let whole = frames.iter().take_while(|frame| {
                end += frame.len();
                end <= at
            });
            let whole = whole.count() as u64;
            let answered = received.iter().filter(|it| it.0 != 0).count() as u64;
            assert_eq!(answered, whole.saturating_sub(1), "cut at {at}");
            let made = |name: &str| server.manager.store().stat(name).is_ok();
            assert_eq!(
                (made("a"), made("b"), made("c")),
                (whole > 2, whole > 3, whole > 5),
                "cut at {at}"
            );
        }
        env::sleep(Nanos::secs(5)).await;
        let figures = server.figures();
        assert_eq!((figures.held_bytes, figures.violations), (Bytes(0), 0));
        assert_eq!(figures.connections, []);
    });
}

/// Passes bytes on between a client and the server, and keeps what the client sent.
async fn recorded(site: &Site, port: u16) -> (Address, Rc<RefCell<Vec<u8>>>) {
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    let listener = Listener::bind(&address).unwrap();
    let kept = Rc::new(RefCell::new(Vec::new()));
    let (to, keep) = (site.address.clone(), Rc::clone(&kept));
    env::spawn(async move {
        let near = Rc::new(listener.accept().await.unwrap());
        let far = Rc::new(Stream::connect(&to).await.unwrap());
        let back = {
            let (near, far) = (Rc::clone(&near), Rc::clone(&far));
            env::spawn(async move {
                let mut buf = Buf::for_read(4096);
                while let Ok((len @ 1.., back)) = far.read(buf).await {
                    near.write_all(vec![View::copy_of(&back[..len])])
                        .await
                        .unwrap();
                    buf = back;
                }
            })
        };
        let mut buf = Buf::for_read(4096);
        while let Ok((len @ 1.., there)) = near.read(buf).await {
            keep.borrow_mut().extend_from_slice(&there[..len]);
            far.write_all(vec![View::copy_of(&there[..len])])
                .await
                .unwrap();
            buf = there;
        }
        far.shutdown_write();
        back.await;
    });
    (address, kept)
}

#[test]
fn what_was_recorded_of_a_node_opens_nothing_later() {
    in_virtual_time(10, async {
        let site = site(Limits::default()).await;
        let (address, kept) = recorded(&site, 7405).await;
        let client = Client::connect(&address, SECRET).await.expect("let in");
        client.create("a", &[], Change::FUA).await.unwrap();
        client.delete("a", Change::FUA).await.unwrap();
        drop(client);
        env::sleep(Nanos::secs(5)).await;
        let bytes = kept.borrow().clone();
        assert!(bytes.len() > CLIENT_HELLO_LEN + 3 * HEADER_LEN);
        assert!(
            !bytes.windows(32).any(|window| window == KEY),
            "the key itself was sent"
        );
        let received = answers(&replay(&site.address, &bytes, true).await);
        let [
            (
                1,
                1,
                Some(Failure::Refused {
                    kind: RefusedKind::Access,
                    ..
                }),
            ),
        ] = &received[..]
        else {
            panic!("{received:?}");
        };
        assert!(site.server.manager.store().stat("a").is_err());
    });
}

#[test]
fn other_versions_and_operations_are_refused_clearly() {
    in_virtual_time(11, async {
        let (_server, address) = open_site().await;
        let mut hello = ClientHello {
            version_min: 2,
            version_max: 7,
            data_max: 1 << 20,
            nonce: [4; 32],
        };
        let received = replay(&address, &hello.encode(), false).await;
        let answer =
            ServerHello::parse(received[..].try_into().expect("a hello and nothing more")).unwrap();
        assert_eq!(
            (answer.version, answer.version_min, answer.version_max),
            (0, 1, 1)
        );
        // Version 1 among others is spoken.
        hello.version_min = 1;
        let meta = Request::Open(Proof::Open).encode();
        let open = [
            &Header::of(1, 0, 1, &meta, b"").encode(Kind::Request)[..],
            &meta,
        ]
        .concat();
        let later = [
            &Header::of(999, 0, 2, b"new fields", b"new data").encode(Kind::Request)[..],
            b"new fieldsnew data",
        ]
        .concat();
        let ping = Header::of(Op::Ping as u16, 0, 3, b"", b"")
            .encode(Kind::Request)
            .to_vec();
        let bytes = [hello.encode().to_vec(), open, later, ping].concat();
        let received = answers(&replay(&address, &bytes, true).await);
        let unknown = received.iter().find(|it| it.1 == 2).expect("answered");
        assert_eq!(unknown.0, 999);
        assert_eq!(
            unknown.2.as_ref().unwrap().to_string(),
            "this server knows no operation 999; it speaks version 1 of the protocol"
        );
        // The connection stands all the same.
        assert!(received.contains(&(Op::Ping as u16, 3, None)));
    });
}

// --- bounds --------------------------------------------------------------------------------------------------

#[test]
fn a_peer_that_reads_nothing_holds_no_more_than_its_session_may_and_is_cut() {
    in_virtual_time(12, async {
        let limits = Limits {
            stall: Nanos::secs(10),
            ..Limits::default()
        };
        let site = site(limits).await;
        let honest = client(&site).await;
        let data = View::copy_of(&vec![7; 1 << 20]);
        honest
            .write("big", 0, data, Change::FUA.creating())
            .await
            .unwrap();
        // Asks for 200 MiB at once, in reads of a megabyte, and reads none of it.
        let greedy = Rc::new(Stream::connect(&site.address).await.unwrap());
        let opening = opened_by_hand(&greedy, |challenge| {
            Proof::NodeKey(NodeKey(KEY).client_proof(challenge))
        })
        .await;
        let request = Request::Object(ops::Request::Read {
            class: Class::Foreground,
            object: "big".into(),
            offset: 0,
            len: 1 << 20,
        });
        let meta = request.encode();
        let reads = (0..200u64).flat_map(|id| {
            let head =
                Header::of(Op::Read as u16, 0, opening + id, &meta, b"").encode(Kind::Request);
            [View::copy_of(&head), View::copy_of(&meta)]
        });
        greedy.write_all(reads.collect()).await.unwrap();
        env::sleep(Nanos::secs(5)).await;
        let sessions = site.server.manager.sessions();
        let memory = sessions.iter().map(|it| it.memory_bytes).max().unwrap();
        let figures = site.server.figures();
        let held = figures
            .connections
            .iter()
            .map(|c| c.held_bytes)
            .max()
            .unwrap();
        assert!(
            held >= Bytes::mib(1),
            "it waits with something held: {held}"
        );
        // The most that was ever held: the session's memory, and each connection's allowance.
        let most = memory + 2 * limits.allowance.0;
        assert!(
            figures.held_bytes_max.0 <= most,
            "{} held, {} may be",
            figures.held_bytes_max,
            Bytes(most)
        );
        // Small requests of others go on meanwhile.
        honest.ping().await.unwrap();
        assert_eq!(honest.read("big", 0, 4096).await.unwrap().len(), 4096);
        env::sleep(Nanos::secs(40)).await;
        let figures = site.server.figures();
        assert_eq!((figures.stalled, figures.connections.len()), (1, 1));
        assert_eq!(figures.held_bytes, Bytes(0));
        assert_eq!(honest.read("big", 0, 1 << 20).await.unwrap().len(), 1 << 20);
    });
}

#[test]
fn connections_without_credentials_take_no_share_of_the_memory() {
    in_virtual_time(52, async {
        let limits = Limits {
            data_max: Bytes::mib(1),
            bytes: Bytes::mib(8),
            ..Limits::default()
        };
        let site = site(limits).await;
        let honest = client(&site).await;
        let data = View::copy_of(&vec![7; 1 << 20]);
        let made = honest.write("big", 0, data, Change::FUA.creating()).await;
        made.expect("made");
        site.device.set_latency(Nanos::millis(50));
        let reads = async || {
            let begun = env::now();
            for read in join_all((0..4).map(|_| honest.read("big", 0, 1 << 20))).await {
                read.expect("read");
            }
            env::now().since(begun)
        };
        let alone = reads().await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(Stream::connect(&site.address).await.expect("connected"));
        }
        env::sleep(Nanos::millis(10)).await;
        assert_eq!(site.server.figures().connections.len(), 101);
        let beside = reads().await;
        assert!(
            beside < alone + Nanos::millis(20),
            "all four at once: {beside}"
        );
        // Those that were let in have their parts.
        let mut others = Vec::new();
        for _ in 0..100 {
            others.push(client(&site).await);
        }
        assert!(
            reads().await > alone + Nanos::millis(20),
            "one behind the other"
        );
    });
}

/// Opens a session by hand; the next free request number.
async fn opened_by_hand(stream: &Stream, proof: impl Fn(&Challenge) -> Proof) -> u64 {
    let hello = ClientHello {
        version_min: 1,
        version_max: 1,
        data_max: 4 << 20,
        nonce: [4; 32],
    };
    let client = hello.encode();
    stream
        .write_all(vec![View::copy_of(&client)])
        .await
        .unwrap();
    let server = stream
        .read_exact(Buf::for_read(SERVER_HELLO_LEN))
        .await
        .unwrap();
    let challenge = Challenge {
        client,
        server: server[..].try_into().unwrap(),
    };
    let meta = Request::Open(proof(&challenge)).encode();
    let head = Header::of(Op::Open as u16, 0, 1, &meta, b"").encode(Kind::Request);
    stream
        .write_all(vec![View::copy_of(&head), View::copy_of(&meta)])
        .await
        .unwrap();
    let head = stream.read_exact(Buf::for_read(HEADER_LEN)).await.unwrap();
    let header = Header::parse(head[..].try_into().unwrap(), Kind::Response).unwrap();
    assert_eq!((header.op, header.status), (Op::Open as u16, 0));
    stream
        .read_exact(Buf::for_read(header.meta_len as usize))
        .await
        .unwrap();
    2
}

#[test]
fn one_connection_too_many_takes_the_place_of_one_that_is_not_in_yet() {
    in_virtual_time(13, async {
        let limits = Limits {
            connections: 3,
            ..Limits::default()
        };
        let site = site(limits).await;
        let _in = [client(&site).await, client(&site).await];
        let idle = Stream::connect(&site.address).await.unwrap();
        env::sleep(Nanos::secs(1)).await;
        let third = client(&site).await;
        third.ping().await.unwrap();
        let cut = idle.read(Buf::for_read(1)).await;
        assert!(!matches!(cut, Ok((1.., _))));
        assert!(Client::connect(&site.address, SECRET).await.is_err());
        assert_eq!(site.server.figures().turned_away, 2);
    });
}

#[test]
fn a_request_for_more_than_travels_at_once_is_refused_and_the_next_served() {
    in_virtual_time(14, async {
        let (_server, address) = open_site().await;
        let frames = conversation();
        let read = Request::Object(ops::Request::Read {
            class: Class::Foreground,
            object: "a".into(),
            offset: 0,
            len: 2 << 20,
        });
        let meta = read.encode();
        let long = [
            &Header::of(Op::Read as u16, 0, 90, &meta, b"").encode(Kind::Request)[..],
            &meta,
        ]
        .concat();
        let write = Request::Object(ops::Request::Write {
            data: View::empty(),
            object: "a".into(),
            offset: 0,
            change: Change::default().creating(),
        });
        let (meta, data) = (write.encode(), vec![1; (1 << 20) + 1]);
        let wide = [
            &Header::of(Op::Write as u16, 0, 91, &meta, &data).encode(Kind::Request)[..],
            &meta,
            &data,
        ]
        .concat();
        let bytes = [
            frames[0].clone(),
            frames[1].clone(),
            long,
            wide,
            frames[3].clone(),
        ]
        .concat();
        let received = answers(&replay(&address, &bytes, true).await);
        let failure = |id| {
            received
                .iter()
                .find(|it| it.1 == id)
                .unwrap()
                .2
                .as_ref()
                .map(Failure::to_string)
        };
        assert_eq!(
            failure(90).as_deref(),
            Some("cannot read 2.0 MiB at once: at most 1.0 MiB travel in one frame; ask in parts")
        );
        assert!(failure(91).unwrap().starts_with("cannot write"));
        assert_eq!(failure(3), None);
    });
}

// --- what goes wrong on the way ----------------------------------------------------------------------------

#[test]
fn a_client_whose_host_vanished_is_cut_and_holds_nothing() {
    in_virtual_time(15, async {
        let limits = Limits {
            idle: Nanos::secs(30),
            ..Limits::default()
        };
        let site = site(limits).await;
        let address = site.address.clone();
        let lost = env::spawn(sim::on_host(host(2), async move {
            let client = Client::connect(&address, SECRET).await.unwrap();
            client.ping().await.unwrap();
            client.over().await
        }));
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(site.server.figures().connections.len(), 1, "pings keep it");
        sim::crash_host(host(2));
        env::sleep(Nanos::secs(60)).await;
        let figures = site.server.figures();
        assert_eq!((figures.connections.len(), figures.stalled), (0, 1));
        drop(lost);
    });
}

#[test]
fn every_waiter_hears_of_a_lost_connection_and_whether_its_request_was_sent() {
    in_virtual_time(16, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        client.create("a", &[], Change::FUA).await.unwrap();
        site.device.set_latency(Nanos::secs(2));
        let write = {
            let client = client.clone();
            env::spawn(async move { client.write("a", 0, View::copy_of(b"x"), Change::FUA).await })
        };
        let read = {
            let client = client.clone();
            env::spawn(async move { client.read("a", 0, 1).await.map(drop) })
        };
        env::sleep(Nanos::millis(500)).await;
        let here = sim::host();
        sim::reset_streams(here, host(1));
        let write = write.await.unwrap_err();
        let text = write.to_string();
        assert!(
            text.starts_with(
                "no answer from 10.0.0.1:7400 to write 1 B at byte 0 of \"a\": the connection broke"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("it was sent: it may or may not have happened"),
            "{text}"
        );
        assert!(!write.changed_nothing());
        // What the store has answered already is no longer under way.
        let _ = read.await;
        let later = client.delete("a", Change::default()).await.unwrap_err();
        assert!(
            later
                .to_string()
                .ends_with("it was not sent: nothing happened"),
            "{later}"
        );
        assert!(later.changed_nothing());
        assert!(client.ended().is_some());
    });
}

#[test]
fn a_cut_line_makes_calls_late_and_a_healed_one_goes_on() {
    in_virtual_time(17, async {
        let site = site(Limits::default()).await;
        let options = ClientOptions {
            timeout: Nanos::secs(8),
            ..ClientOptions::default()
        };
        let client = Client::connect_with(&site.address, SECRET, &options)
            .await
            .unwrap();
        client.create("a", &[], Change::FUA).await.unwrap();
        let here = sim::host();
        // Pings keep the connection: only what the store is asked for takes long.
        site.device.set_latency(Nanos::secs(20));
        let begun = env::now();
        let late = client
            .write("a", 0, View::copy_of(b"x"), Change::FUA)
            .await
            .unwrap_err();
        assert!(
            matches!(late, ClientError::Late { sent: true, .. }),
            "{late}"
        );
        let waited = env::now().since(begun);
        assert!(
            waited >= Nanos::secs(8) && waited <= Nanos::secs(10),
            "{waited}"
        );
        assert_eq!(client.ended(), None);
        site.device.set_latency(Nanos(0));
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(&client.read("a", 0, 9).await.unwrap()[..], b"x");
        // A short cut is a delay; a long one is the end, and says so.
        sim::partition(&[here], &[host(1)]);
        let slow = {
            let client = client.clone();
            env::spawn(async move { client.stat("a").await })
        };
        env::sleep(Nanos::secs(3)).await;
        sim::heal();
        assert_eq!(slow.await.unwrap().size, 1);
        sim::partition(&[here], &[host(1)]);
        let lost = client.stat("a").await.unwrap_err();
        assert!(
            matches!(lost, ClientError::Late { .. } | ClientError::Lost { .. }),
            "{lost}"
        );
        assert!(
            client
                .over()
                .await
                .starts_with("nothing was heard from the server for")
        );
    });
}

#[test]
fn a_server_whose_host_vanished_is_given_up() {
    in_virtual_time(18, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        sim::crash_host(host(1));
        let begun = env::now();
        let why = client.over().await;
        assert!(env::now().since(begun) < Nanos::secs(60), "{why}");
        std::mem::forget(site);
    });
}

#[test]
fn a_call_dropped_half_way_harms_no_other() {
    in_virtual_time(19, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        let data = View::copy_of(&[9; 100_000]);
        client
            .write("a", 0, data, Change::FUA.creating())
            .await
            .unwrap();
        site.device.set_latency(Nanos::millis(5));
        for n in 0..50 {
            let read = client.read("a", 0, 100_000);
            let given_up = env::timeout(Nanos::micros(100 * n), read).await;
            assert!(given_up.is_err() || n > 49, "{n}");
        }
        assert_eq!(
            client.read("a", 0, 100_000).await.unwrap()[..],
            [9; 100_000]
        );
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(site.server.figures().held_bytes, Bytes(0));
    });
}

#[test]
fn a_drained_server_answers_what_it_began_and_refuses_the_rest() {
    in_virtual_time(20, async {
        let site = site(Limits::default()).await;
        let client = client(&site).await;
        client.create("a", &[], Change::FUA).await.unwrap();
        site.device.set_latency(Nanos::millis(50));
        let begun = {
            let client = client.clone();
            env::spawn(async move { client.write("a", 0, View::copy_of(b"x"), Change::FUA).await })
        };
        env::sleep(Nanos::millis(5)).await;
        let draining = {
            let server = Rc::clone(&site.server);
            env::spawn(async move { server.drain().await })
        };
        env::sleep(Nanos::millis(1)).await;
        let refused = client.delete("a", Change::default()).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cannot delete: the server is shutting down"
        );
        let written: Version = begun.await.expect("answered");
        draining.await;
        client.over().await;
        let store = site.server.manager.store();
        assert_eq!(store.stat("a").unwrap().version, written);
        assert!(Client::connect(&site.address, SECRET).await.is_err());
    });
}

// --- reservations and their sessions ------------------------------------------------------------------------

/// A reservation made by the node's key holder: its number and its capability.
async fn reserved(nodes: &Client, wanted: &ReservationRequest) -> (BookingId, String) {
    nodes.offer(wanted).await.expect("it would fit");
    let now = wanted.slot.start.0;
    let id = nodes
        .hold(wanted, None, Second(now + 30))
        .await
        .expect("held");
    (id, nodes.commit(id).await.expect("committed"))
}

#[test]
fn a_reservation_made_over_the_wire_lets_its_holders_share_one_session() {
    in_virtual_time(21, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let now = site.server.manager.now();
        let slot = Slot::new(now, 3600);
        let wanted = ReservationRequest::new(Direction::Write, BytesPerSec::mb(85), slot)
            .scope("songs/")
            .space(Bytes::mib(8))
            .holder("band");
        let (id, token) = reserved(&nodes, &wanted).await;
        assert_eq!(nodes.capability(id).await.unwrap(), Some(token.clone()));
        let all = nodes.reservations().await.unwrap();
        assert_eq!(all, site.server.manager.reservations());
        assert_eq!((all.len(), &all[0].request), (1, &wanted));
        let come = async || {
            let credentials = Credentials::Capability(token.clone());
            Client::connect(&site.address, credentials).await
        };
        let pair = [come().await.unwrap(), come().await.unwrap()];
        let sessions = site.server.manager.sessions();
        let shared: Vec<_> = sessions
            .iter()
            .filter(|it| it.reservation == Some(id.0))
            .collect();
        assert_eq!((shared.len(), shared[0].peers.len()), (1, 2));
        let data = View::copy_of(&[3; 10_000]);
        for (n, client) in pair.iter().enumerate() {
            let name = format!("songs/{n}");
            let change = Change::default().creating();
            client.write(&name, 0, data.clone(), change).await.unwrap();
        }
        let space = nodes.space().await.unwrap();
        assert_eq!(
            space.reserved.0,
            (8 << 20) - 6 * 4096,
            "what they write comes from the room it has"
        );
        let refusals = [
            pair[0]
                .write("other", 0, data.clone(), Change::default())
                .await
                .unwrap_err(),
            pair[0].read("songs/1", 0, 1).await.map(drop).unwrap_err(),
        ];
        for refusal in refusals {
            let ClientError::Refused {
                kind: RefusedKind::Session,
                text,
                ..
            } = refusal
            else {
                panic!("{refusal:?}");
            };
            assert!(text.contains("the capability of reservation"), "{text}");
        }
        let refusal = pair[0].offer(&wanted).await.unwrap_err();
        assert!(matches!(
            refusal,
            ClientError::Refused {
                kind: RefusedKind::NodeKeyOnly,
                ..
            }
        ));
        let report = nodes.report().await.unwrap();
        assert_eq!(report["store"], nodes.store_name());
        nodes.release(id).await.unwrap();
        let refusal = come().await.map(drop).unwrap_err();
        assert!(
            refusal
                .to_string()
                .contains("it was released; reserve anew"),
            "{refusal}"
        );
        let again = nodes.release(id).await.unwrap_err();
        assert!(matches!(
            again,
            ClientError::Refused {
                kind: RefusedKind::Reservation,
                ..
            }
        ));
    });
}

#[test]
fn a_refused_reservation_says_what_would_fit() {
    in_virtual_time(22, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let slot = Slot::new(site.server.manager.now(), 60);
        let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(5000), slot);
        let local = site.server.manager.offer(&wanted).unwrap_err();
        for refused in [
            nodes.offer(&wanted).await.unwrap_err(),
            nodes
                .hold(&wanted, None, slot.end)
                .await
                .map(drop)
                .unwrap_err(),
        ] {
            assert_eq!(refused.to_string(), local.to_string());
            let ClientError::Refused {
                offer: Some(offer), ..
            } = refused
            else {
                panic!("no offer");
            };
            let fits = ReservationRequest::new(
                Direction::Read,
                offer.largest.expect("something fits"),
                slot,
            );
            nodes.offer(&fits).await.expect("what was offered fits");
        }
    });
}

#[test]
fn an_expired_or_forged_capability_opens_nothing() {
    in_virtual_time(23, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let slot = Slot::new(site.server.manager.now(), 60);
        let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
        let (_, token) = reserved(&nodes, &wanted).await;
        let come = async |token: &str| {
            let credentials = Credentials::Capability(token.to_owned());
            Client::connect(&site.address, credentials).await.map(drop)
        };
        come(&token).await.expect("it is good");
        let at = token.len() / 2;
        let other = if token.as_bytes()[at] == b'A' {
            "B"
        } else {
            "A"
        };
        let forged = format!("{}{other}{}", &token[..at], &token[at + 1..]);
        for bad in [&forged, "", "tanada1", &"x".repeat(10_000)] {
            let refusal = come(bad).await.unwrap_err();
            assert!(
                matches!(
                    refusal,
                    ClientError::Refused {
                        kind: RefusedKind::Access,
                        ..
                    }
                ),
                "{refusal:?}"
            );
        }
        env::sleep(Nanos::secs(120)).await;
        let refusal = come(&token).await.unwrap_err();
        assert!(
            matches!(
                refusal,
                ClientError::Refused {
                    kind: RefusedKind::Access,
                    ..
                }
            ),
            "{refusal:?}"
        );
    });
}

#[test]
fn what_began_before_a_reservation_was_over_is_answered_within_half_a_second_and_no_more() {
    for (latency, answered) in [(Nanos::millis(200), true), (Nanos::secs(3), false)] {
        in_virtual_time(25, async move {
            let site = site(Limits::default()).await;
            let nodes = client(&site).await;
            let data = View::copy_of(&[7; 4096]);
            nodes
                .write("a", 0, data, Change::FUA.creating())
                .await
                .unwrap();
            let slot = Slot::new(site.server.manager.now(), 600);
            let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
            let (id, token) = reserved(&nodes, &wanted).await;
            let holder = Client::connect(&site.address, Credentials::Capability(token))
                .await
                .unwrap();
            site.device.set_latency(latency);
            let reading = {
                let holder = holder.clone();
                env::spawn(async move { holder.read("a", 0, 4096).await.map(drop) })
            };
            env::sleep(Nanos::millis(5)).await;
            site.device.set_latency(Nanos(0));
            let over = env::now();
            nodes.release(id).await.unwrap();
            let why = holder.over().await;
            assert!(why.contains("is over, and the capability with it"), "{why}");
            assert!(
                env::now().since(over) <= Nanos::secs(1),
                "{}",
                env::now().since(over)
            );
            assert_eq!(reading.await.is_ok(), answered);
            assert!(holder.stat("a").await.is_err());
            // The nodes' own access has nothing to do with it.
            nodes.stat("a").await.unwrap();
        });
    }
}

#[test]
fn two_peers_of_one_session_that_read_nothing_hold_its_memory_once() {
    in_virtual_time(24, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let data = View::copy_of(&vec![7; 1 << 20]);
        nodes
            .write("big", 0, data, Change::FUA.creating())
            .await
            .unwrap();
        let slot = Slot::new(site.server.manager.now(), 600);
        let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(100), slot);
        let (id, token) = reserved(&nodes, &wanted).await;
        let meta = Request::Object(ops::Request::Read {
            class: Class::Foreground,
            object: "big".into(),
            offset: 0,
            len: 1 << 20,
        })
        .encode();
        let mut streams = Vec::new();
        for _ in 0..2 {
            let stream = Stream::connect(&site.address).await.unwrap();
            let next = opened_by_hand(&stream, |_| Proof::Capability(token.clone())).await;
            let reads = (0..60).flat_map(|id| {
                let head =
                    Header::of(Op::Read as u16, 0, next + id, &meta, b"").encode(Kind::Request);
                [View::copy_of(&head), View::copy_of(&meta)]
            });
            stream.write_all(reads.collect()).await.unwrap();
            streams.push(stream);
        }
        env::sleep(Nanos::secs(5)).await;
        let sessions = site.server.manager.sessions();
        let memory = sessions
            .iter()
            .find(|it| it.reservation == Some(id.0))
            .unwrap()
            .memory_bytes;
        let figures = site.server.figures();
        let held: u64 = figures.connections.iter().map(|c| c.held_bytes.0).sum();
        let allowance = Limits::default().allowance.0;
        assert!(
            held > memory / 2 && held <= memory + 2 * allowance,
            "{held} of {memory}"
        );
        nodes.ping().await.unwrap();
    });
}

// --- seeds -----------------------------------------------------------------------------------------------------

/// What the fuzzers start from: target, name, bytes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    const PIECES: u8 = 12 << 2;
    let frames = conversation();
    let seed = |target, name: &str, how: u8, bytes: Vec<u8>| {
        (target, name.to_owned(), [vec![how], bytes].concat())
    };
    let framed: Vec<u8> = frames[2..]
        .iter()
        .flat_map(|frame| {
            let header = Header::parse(frame.first_chunk().expect("a header"), Kind::Request);
            let header = header.expect("written by us");
            let lens = [
                header.op as u8,
                header.meta_len as u8,
                header.data_len as u8,
            ];
            [&lens[..], &frame[HEADER_LEN..]].concat()
        })
        .collect();
    let mut all = vec![
        seed("store_server", "whole", PIECES, frames.concat()),
        seed("store_server", "session", 1 | PIECES, frames[2..].concat()),
        seed("store_server", "framed", 3 | PIECES, framed),
    ];
    let read = Response::Object(ops::Response::Data(View::copy_of(b"hello, sea"))).parts();
    let written = Response::Object(ops::Response::Version(Version(7))).parts();
    let mut session = Vec::new();
    for (op, id, (status, meta, data)) in [(Op::Read, 2, read), (Op::Write, 3, written)] {
        session.extend([
            op as u8,
            id,
            status as u8,
            meta.len() as u8,
            data.len() as u8,
        ]);
        session.extend(meta);
        session.extend_from_slice(&data);
    }
    all.push(seed("store_client", "framed", 3 | 2 << 2, session));
    for (number, op) in Op::ALL.iter().enumerate() {
        let received = frames.iter().find_map(|frame| {
            let header = Header::parse(frame.first_chunk()?, Kind::Request).ok()?;
            (header.op == *op as u16)
                .then(|| &frame[HEADER_LEN..HEADER_LEN + header.meta_len as usize])
        });
        if let Some(meta) = received {
            let bytes = [&[number as u8, 0], meta].concat();
            all.push(("store_frames", op.name().replace(' ', "_"), bytes));
        }
    }
    for (number, failure) in crate::net::wire::failures().into_iter().enumerate() {
        let (status, meta, _) = Response::Failed(failure).parts();
        all.push((
            "store_frames",
            format!("failure_{number}"),
            [vec![0, status as u8], meta].concat(),
        ));
    }
    all
}

/// With `TANADA_WRITE_SEEDS=1` this test writes them anew.
#[test]
fn the_fuzzers_start_from_what_honest_peers_send() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (target, name, bytes) in seeds() {
        let path = folder.join(target).join(&name);
        if std::env::var_os("TANADA_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            std::fs::write(&path, &bytes).expect("written");
        }
        let kept = std::fs::read(&path);
        assert!(
            kept.is_ok_and(|kept| kept == bytes),
            "{} is not what is sent today; run this test with TANADA_WRITE_SEEDS=1",
            path.display()
        );
    }
}
