//! Any bytes at all as hellos, headers, requests and answers: what decodes has one encoding.
//!
//! First byte: the operation; second: the status of an answer.
#![no_main]

use base::Buf;
use libfuzzer_sys::fuzz_target;
use store::net::wire::{ClientHello, Header, Kind, Op, Request, Response, ServerHello};

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk() {
        for kind in [Kind::Request, Kind::Response] {
            if let Ok(header) = Header::parse(bytes, kind) {
                assert_eq!(header.encode(kind), *bytes);
            }
        }
    }
    if let Some(hello) = data.first_chunk().and_then(|bytes| ClientHello::parse(bytes).ok()) {
        assert_eq!(ClientHello::parse(&hello.encode()), Ok(hello));
    }
    if let Some(hello) = data.first_chunk().and_then(|bytes| ServerHello::parse(bytes).ok()) {
        assert_eq!(ServerHello::parse(&hello.encode()), Ok(hello));
    }
    let [op, status, meta @ ..] = data else { return };
    let op = Op::ALL[usize::from(*op) % Op::ALL.len()];
    match Request::decode(op, meta) {
        Ok(ask) => assert_eq!(ask.encode(), meta),
        Err(why) => assert!(why.to_string().contains(op.name())),
    }
    match Response::decode(op, u16::from(*status), meta, Buf::for_read(0)) {
        // Read as far as it is understood, and cut to what can be; then it is as it is.
        Ok(Response::State(state)) => {
            let (_, fields, _) = Response::State(state).parts();
            let again = Response::decode(op, 0, &fields, Buf::for_read(0));
            assert_eq!(again, Ok(Response::State(state)));
        }
        Ok(answer) => {
            let (again, fields, data) = answer.parts();
            assert_eq!((again, &fields[..], data.len()), (u16::from(*status), meta, 0));
        }
        Err(_) => {}
    }
});
