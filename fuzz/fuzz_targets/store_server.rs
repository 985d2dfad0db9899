//! Any bytes at all, sent to a whole store server in virtual time: it answers or hangs up, holds nothing in the end,
//! and still serves an honest client.
//!
//! First byte: bit 0 says hello and opens a session before the bytes are sent, bit 1 makes frames of them (operation,
//! length of the fields, length of the data, then both) with the right checksums, bits 2-7 choose the size of the pieces.
#![no_main]

mod common;

use base::{Bytes, Nanos, View};
use device::Memory;
use env::net::{Address, Listener};
use libfuzzer_sys::fuzz_target;
use policy::share::{BytesPerSec, Costs};
use store::net::client::{Client, Credentials};
use store::qos::manager::{Manager, ManagerOptions};
use store::net::server::{Limits, Server};
use store::net::wire::{ClientHello, Header, Kind, Proof, Request};
use store::{Change, ObjectCalls, Settings, Store};

/// Objects that are there before the bytes come.
const NAMES: [&str; 4] = ["a", "b", "o", "songs/1"];

fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut id = 2;
    while let [op, meta, data, after @ ..] = rest {
        let (meta, after) = after.split_at(usize::from(*meta).min(after.len()));
        let (data, after) = after.split_at(usize::from(*data).min(after.len()));
        bytes.extend(Header::of(u16::from(*op), 0, id, meta, data).encode(Kind::Request));
        bytes.extend(meta);
        bytes.extend(data);
        (rest, id) = (after, id + 1);
    }
    bytes
}

fn said(how: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if how & 1 != 0 {
        let hello =
            ClientHello { version_min: 1, version_max: 1, data_max: 1 << 16, nonce: [1; 32] };
        bytes.extend(hello.encode());
        let meta = Request::Open(Proof::Open).encode();
        bytes.extend(Header::of(1, 0, 1, &meta, &[]).encode(Kind::Request));
        bytes.extend(meta);
    }
    if how & 2 != 0 {
        bytes.extend(framed(rest));
    } else {
        bytes.extend(rest);
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let data = data.to_vec();
    env::Runtime::simulated(1).block_on(async move {
        let device = Memory::new("disk", Bytes::mib(16));
        let store = Store::format(device.clone(), Settings::default()).await.expect("formatted");
        store.close().await.expect("closed");
        let options = ManagerOptions {
            unauthenticated: true,
            scrub: None,
            ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [7; 32])
        };
        let node = Manager::open(device, options).await.expect("opened");
        let limits = Limits {
            opening: Nanos::secs(1),
            stall: Nanos::secs(1),
            data_max: Bytes::kib(64),
            ..Limits::default()
        };
        let server = Server::new(node, limits);
        let address: Address = "127.0.0.1:7400".parse().expect("an address");
        server.serve(Listener::bind(&address).expect("a free port")).expect("served");
        // What requests name is there: so they reach what is behind the look-up.
        let first = Client::connect(&address, Credentials::Open).await.expect("served");
        for name in NAMES {
            let change = Change::FUA.creating();
            first.write(name, 0, View::copy_of(&[5; 10_000]), change).await.expect("written");
        }
        first.close().await;
        if let Some((&how, rest)) = data.split_first() {
            common::send(&address, &said(how, rest), how >> 2).await;
        }
        env::sleep(Nanos::secs(10)).await;
        let figures = server.figures();
        assert!(figures.connections.is_empty(), "{figures:?}");
        assert_eq!(figures.held_bytes, Bytes(0));
        let client = Client::connect(&address, Credentials::Open).await.expect("served");
        let change = Change::FUA.creating();
        client.write("honest", 0, View::copy_of(&[7; 512]), change).await.expect("written");
        let read = client.read("honest", 0, 512).await.expect("read");
        assert_eq!(read[..], [7; 512]);
        client.close().await;
        server.drain().await;
    });
});
