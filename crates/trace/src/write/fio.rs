//! fio's iolog, version 3: see the reader of the same name for its lines.

use std::io::Write;

use base::Set;

use super::Encoder;
use crate::{Op, Request};

pub(super) struct Fio {
    /// The devices that have been opened.
    open: Set<u32>,
    /// In the order in which they were.
    order: Vec<u32>,
    last: u64,
}

impl Fio {
    pub(super) fn new(bytes: &mut Vec<u8>) -> Fio {
        bytes.extend_from_slice(b"fio version 3 iolog\n");
        Fio {
            open: Set::default(),
            order: Vec::new(),
            last: 0,
        }
    }

    fn line(bytes: &mut Vec<u8>, at: u64, device: u32, rest: std::fmt::Arguments<'_>) {
        writeln!(bytes, "{at} dev{device} {rest}").expect("a Vec takes all");
    }
}

impl Encoder for Fio {
    fn encode(&mut self, batch: &[Request], bytes: &mut Vec<u8>) {
        for request in batch {
            let (at, device) = (request.micros(), request.device);
            self.last = at;
            if self.open.insert(device) {
                self.order.push(device);
                Fio::line(bytes, at, device, format_args!("add"));
                Fio::line(bytes, at, device, format_args!("open"));
            }
            let action = match request.op {
                Op::Read => "read",
                Op::Write => "write",
                Op::Discard => "trim",
                Op::Flush => "sync",
            };
            let (offset, size) = (request.offset.0, request.size.0);
            Fio::line(bytes, at, device, format_args!("{action} {offset} {size}"));
        }
    }

    fn finish(&mut self, bytes: &mut Vec<u8>) {
        for &device in &self.order {
            Fio::line(bytes, self.last, device, format_args!("close"));
        }
    }
}
