//! The seeds the fuzzer starts from: what honest clients send. They are checked in under `fuzz/seeds`;
//! with `TANADA_WRITE_SEEDS=1` this test writes them anew.

use std::path::Path;

use front::nbd::proto::{self, ALLOCATION, Request, cmd, flag, info, opt};
use front::vhost::encode;
use front::vhost::message::{Addresses, InflightArea, Message, Notifies, Region};

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    proto::put_option(&mut out, option, data);
    out
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    proto::put_string(&mut out, name);
    out.extend(rest);
    out
}

fn request(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let cookie = u64::from(command) << 32 | offset;
    let request = Request {
        flags,
        command,
        cookie,
        offset,
        length,
    };
    let mut out = request.encode().to_vec();
    out.resize(out.len() + request.payload() as usize, 0x5a);
    out
}

/// What a vhost-user client says, with how many descriptors come with it.
fn messages() -> Vec<(&'static str, Message, u8)> {
    let region = |number: u64| Region {
        guest: number << 32,
        len: 1 << 30,
        client: 0x7f00_0000_0000 + (number << 32),
        offset: number << 30,
    };
    let at = Addresses {
        descriptors: 0x7f00_0000_1000,
        used: 0x7f00_0000_3000,
        available: 0x7f00_0000_2000,
    };
    let area = InflightArea {
        len: 4096,
        offset: 0,
        queues: 1,
        size: 128,
    };
    let kick = Message::SetVringNotifier {
        queue: 0,
        what: Notifies::Kick,
        given: true,
    };
    let bytes = vec![0];
    vec![
        ("features", Message::SetFeatures(1 << 32), 0),
        (
            "memory",
            Message::SetMemTable(vec![region(0), region(1)]),
            2,
        ),
        ("addresses", Message::SetVringAddr { queue: 0, at }, 0),
        ("base", Message::SetVringBase { queue: 0, index: 7 }, 0),
        ("kick", kick, 1),
        ("config", Message::GetConfig { offset: 0, len: 60 }, 0),
        ("cache", Message::SetConfig { offset: 32, bytes }, 0),
        ("record", Message::SetInflight(area), 1),
    ]
}

/// A guest's memory with a request in a ring of 128 entries, of which a table of its own has the buffers.
fn ring() -> Vec<u8> {
    let mut bytes = vec![0; 0x1008];
    let mut put = |at: usize, to: u64, len: u32, flags: u8, next: u8| {
        let place = &mut bytes[1 + at..][..16];
        place[..8].copy_from_slice(&to.to_le_bytes());
        place[8..12].copy_from_slice(&len.to_le_bytes());
        (place[12], place[14]) = (flags, next);
    };
    put(0, 0x100, 48, 4, 0);
    put(0x100, 0x3000, 16, 1, 1);
    put(0x110, 0x3ff0, 4096, 3, 2);
    put(0x120, 0x3010, 1, 2, 0);
    bytes[0] = 0x87;
    bytes[1 + 0x1002] = 1;
    bytes
}

/// (target, name, bytes)
fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut all = nbd_seeds();
    for (name, message, descriptors) in messages() {
        let bytes = [vec![descriptors], encode(&message, true)].concat();
        all.push(("vhost_message", name, bytes));
    }
    all.push(("vhost_ring", "read", ring()));
    all
}

fn nbd_seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let query = [&1u32.to_be_bytes()[..], &named(ALLOCATION, &[])].concat();
    let facts: Vec<u8> = [3, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]
        .into_iter()
        .flat_map(u16::to_be_bytes)
        .collect();
    let modern = [
        option(opt::STRUCTURED_REPLY, &[]),
        option(opt::LIST, &[]),
        option(opt::LIST_META_CONTEXT, &named("vol0", &[0; 4])),
        option(opt::SET_META_CONTEXT, &named("vol0", &query)),
        option(opt::INFO, &named("vol1", &[0; 2])),
        option(opt::GO, &named("vol0", &facts)),
    ]
    .concat();
    let old = option(opt::EXPORT_NAME, b"vol0");
    let abort = [option(opt::EXTENDED_HEADERS, &[]), option(opt::ABORT, &[])].concat();
    let tls = [option(opt::STARTTLS, &[]), modern.clone()].concat();
    let heads: Vec<Vec<u8>> = vec![
        request(cmd::READ, flag::DF, 512, 4096),
        request(cmd::FLUSH, 0, 0, 0),
        request(cmd::TRIM, flag::FUA, 4096, 4096),
        request(cmd::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, 0, 8192),
        request(cmd::BLOCK_STATUS, flag::REQ_ONE, 0, 1 << 20),
        request(cmd::CACHE, 0, 0, 65_536),
        request(cmd::READ, 0, 1 << 40, 512),
        request(cmd::DISC, 0, 0, 0),
    ];
    let write = request(cmd::WRITE, flag::FUA, 1024, 512);
    let flags = 3u32.to_be_bytes();
    let terms = [0x0d, 0xff, 0, 0, 8, 0, 0, 3];
    vec![
        (
            "nbd_handshake",
            "modern",
            [&flags[..], &[0], &modern].concat(),
        ),
        ("nbd_handshake", "old", [&[0; 4][..], &[0], &old].concat()),
        (
            "nbd_handshake",
            "abort",
            [&flags[..], &[1], &abort].concat(),
        ),
        ("nbd_handshake", "tls", [&flags[..], &[2], &tls].concat()),
        (
            "nbd_transmission",
            "each",
            [&terms[..], &heads.concat(), &write[..28]].concat(),
        ),
        (
            "nbd_server",
            "modern",
            [&[0x28][..], &flags, &modern, &heads.concat()].concat(),
        ),
        (
            "nbd_server",
            "old",
            [&[0x28][..], &[0; 4], &old, &write, &heads.concat()].concat(),
        ),
        (
            "nbd_server",
            "plain",
            [&[0x29][..], &write, &heads.concat()].concat(),
        ),
        (
            "nbd_server",
            "structured",
            [&[0x2b][..], &write, &heads.concat()].concat(),
        ),
        (
            "nbd_server",
            "pieces",
            [&[0x0f][..], &write, &heads.concat()].concat(),
        ),
    ]
}

#[test]
fn the_fuzzers_seeds_are_what_honest_clients_send() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds"));
    let writing = std::env::var_os("TANADA_WRITE_SEEDS").is_some_and(|value| value == "1");
    for (target, name, bytes) in seeds() {
        let path = root.join(target).join(name);
        if writing {
            std::fs::create_dir_all(root.join(target)).expect("a directory");
            std::fs::write(&path, &bytes).expect("written");
        }
        let found = std::fs::read(&path).unwrap_or_default();
        assert!(
            found == bytes,
            "{} differs from what this code sends; run this test with TANADA_WRITE_SEEDS=1",
            path.display()
        );
    }
}
