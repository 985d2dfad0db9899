//! Any bytes at all as a server's: a client's calls end, each with an answer or an error, and none with bytes that no server sent.
//!
//! First byte: bit 0 says an honest hello and opens the session before the bytes are sent, bit 1 makes frames of them
//! (operation, number, status, length of the fields, length of the data, then both) with the right checksums.
#![no_main]

use base::{Buf, Bytes, Nanos, View};
use env::net::{Address, Listener};
use libfuzzer_sys::fuzz_target;
use store::{Change, ObjectCalls};
use store::net::client::{Client, ClientOptions, Credentials};
use store::net::wire::{Header, Kind, Opened, Response, ServerHello, Ways};

fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let [op, id, status, meta, data, after @ ..] = rest {
        let (meta, after) = after.split_at(usize::from(*meta).min(after.len()));
        let (data, after) = after.split_at(usize::from(*data).min(after.len()));
        let (op, status, id) = (u16::from(*op), u16::from(*status), u64::from(*id));
        bytes.extend(Header::of(op, status, id, meta, data).encode(Kind::Response));
        bytes.extend(meta);
        bytes.extend(data);
        rest = after;
    }
    bytes
}

fn opening() -> Vec<u8> {
    let hello = ServerHello {
        version: 1,
        version_min: 1,
        version_max: 1,
        ways: Ways::default(),
        nonce: [2; 32],
        store: 5,
        data_max: 1 << 16,
        requests_max: 4,
        write_max: 1 << 16,
        idle_ms: 60_000,
    };
    let opened = Response::Opened(Opened {
        name: "s0".to_owned(),
        proof: [0; 32],
        memory: Bytes::mib(1),
        wall_clock: Nanos::secs(1),
    });
    let (status, meta, data) = opened.parts();
    let header = Header::of(1, status, 1, &meta, &data).encode(Kind::Response);
    [&hello.encode()[..], &header, &meta].concat()
}

fuzz_target!(|data: &[u8]| {
    let data = data.to_vec();
    env::Runtime::simulated(1).block_on(async move {
        let address: Address = "127.0.0.1:7400".parse().expect("an address");
        let listener = Listener::bind(&address).expect("a free port");
        env::spawn(async move {
            let Some((&how, rest)) = data.split_first() else { return };
            let stream = listener.accept().await.expect("connected");
            let mut bytes = if how & 1 != 0 { opening() } else { Vec::new() };
            match how & 2 {
                0 => bytes.extend(rest),
                _ => bytes.extend(framed(rest)),
            }
            let mut buf = Buf::for_read(65_536);
            // Everything is said once the client has spoken a while, so that its calls are under way.
            for _ in 0..how >> 2 {
                match stream.read(buf).await {
                    Ok((1.., back)) => buf = back,
                    _ => return,
                }
                let piece = bytes.len().min(usize::from(how >> 2) * 16);
                let later = bytes.split_off(piece);
                let _ = stream.write_all(vec![View::copy_of(&bytes)]).await;
                bytes = later;
            }
            let _ = stream.write_all(vec![View::copy_of(&bytes)]).await;
            env::sleep(Nanos::secs(100)).await;
        });
        let options = ClientOptions {
            opening: Nanos::secs(1),
            timeout: Nanos::secs(2),
            data_max: Bytes::kib(64),
        };
        let Ok(client) = Client::connect_with(&address, Credentials::Open, &options).await else {
            return;
        };
        if let Ok(read) = client.read("a", 0, 100).await {
            assert!(read.len() <= 100);
        }
        let _ = client.write("a", 0, View::copy_of(b"x"), Change::default()).await;
        let _ = client.list("", None, 10).await;
        let _ = client.allocated_ranges("a", 0, 1 << 20).await;
        let _ = client.reservations().await;
        let _ = client.report().await;
        client.close().await;
    });
});
