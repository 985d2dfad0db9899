//! The bytes on the device are those of `docs/formats/ledger.md`.

use std::fmt::Write as _;

use crate::common::*;
use base::{Bytes, Span};
use ledger::{Batch, Ledger};

/// Rows of 16 bytes as in the document; rows of zeroes are left out.
fn hexdump(bytes: &[u8], from: usize) -> String {
    let mut text = String::new();
    for (row, sixteen) in bytes.chunks(16).enumerate() {
        if sixteen.iter().all(|&byte| byte == 0) {
            continue;
        }
        write!(text, "{:05x} ", from + row * 16).unwrap();
        for byte in sixteen {
            write!(text, " {byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_examples_in_the_format_document_are_what_is_written() {
    run(async {
        let region = Span::bytes(0, 12 * BLOCK);
        let device = device::Memory::new("memory", region.len);
        let ledger = Ledger::format(device.clone(), region, identity())
            .await
            .unwrap();
        let mut owner = Slots::default();
        let mut batch = Batch::new();
        owner.put(&mut batch, 0x0102, b"hello");
        owner.put(&mut batch, 0, b"");
        owner.remove(&mut batch, 7);
        let prepared = ledger.prepare(batch, &mut owner);
        ledger.commit(prepared).await.unwrap();
        let superblock = device.contents(Span::bytes(0, BLOCK));
        let batch = device.contents(Span::new(
            region.start.after(Bytes(2 * BLOCK)),
            Bytes(BLOCK),
        ));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/ledger.md");
        let document = std::fs::read_to_string(path).unwrap();
        for dump in [hexdump(&superblock, 0), hexdump(&batch, 0x2000)] {
            assert!(
                document.contains(&dump),
                "docs/formats/ledger.md should show:\n{dump}"
            );
        }
    });
}
