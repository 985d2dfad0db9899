//! Any bytes at all, sent to the whole server in virtual time: it answers or hangs up, holds nothing in
//! the end, and still serves an honest client.
//!
//! First byte: bit 0 enters transmission before the bytes are sent, bit 1 agrees on structured replies,
//! bits 2-7 choose the size of the pieces.
#![no_main]

mod common;

use base::{Bytes, Nanos, Sector, View};
use device::{DeviceExt as _, Memory};
use env::net::{Address, Listener};
use front::nbd::proto::{self, opt};
use front::nbd::{Client, ClientOptions, Config, Export, Limits, Server};
use libfuzzer_sys::fuzz_target;

fn said(how: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if how & 1 != 0 {
        bytes.extend(3u32.to_be_bytes());
        if how & 2 != 0 {
            proto::put_option(&mut bytes, opt::STRUCTURED_REPLY, &[]);
            let query = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
            proto::put_option(&mut bytes, opt::SET_META_CONTEXT, query);
        }
        proto::put_option(&mut bytes, opt::GO, &[0; 6]);
    }
    bytes.extend(rest);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let data = data.to_vec();
    env::Runtime::simulated(1).block_on(async move {
        let limits = Limits {
            negotiation: Nanos::secs(1),
            stall: Nanos::secs(1),
            payload_max: Bytes::kib(64),
            ..Limits::default()
        };
        let server = Server::new(Config { limits, tls: None });
        let device = Memory::new("ram", Bytes::mib(1));
        device.set_latency(Nanos::micros(10));
        let export =
            Export { name: "vol0".into(), description: String::new(), device, read_only: false };
        server.add_export(export).expect("exported");
        let address: Address = "127.0.0.1:10809".parse().expect("an address");
        server.serve(Listener::bind(&address).expect("a free port"));
        if let Some((&how, rest)) = data.split_first() {
            common::send(&address, &said(how, rest), how >> 2).await;
        }
        env::sleep(Nanos::secs(10)).await;
        let snapshot = server.snapshot();
        assert!(snapshot.connections.is_empty(), "{snapshot:?}");
        assert_eq!(snapshot.exports[0].counts.in_flight, 0);
        let client = Client::connect(&address, &ClientOptions::default()).await.expect("served");
        client.write_at(Sector(0), View::copy_of(&[7; 512])).await.expect("written");
        let read = client.read_at(Sector(0), Bytes(512)).await.expect("read");
        assert_eq!(read[..], [7; 512]);
        client.close().await;
        server.drain().await;
    });
});
