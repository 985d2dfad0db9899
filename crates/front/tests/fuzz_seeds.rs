//! The seeds the fuzzer starts from: what honest clients send. They are checked in under `fuzz/seeds`;
//! with `TANADA_WRITE_SEEDS=1` this test writes them anew.

use std::path::Path;

use front::nbd::proto::{self, ALLOCATION, Request, cmd, flag, info, opt};

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

/// (target, name, bytes)
fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
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
