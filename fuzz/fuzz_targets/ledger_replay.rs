//! Any bytes in a ledger's region: opening, salvaging and going on must answer, never panic, never hang.
#![no_main]

use std::rc::Rc;

use base::{Bytes, Span};
use device::Memory;
use ledger::{Identity, Ledger, Map};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ledger/tests/ledger/forge.rs"]
mod forge;

const LOG_BLOCKS: u64 = 16;

fn sound(device: Rc<Memory>, region: Span) {
    env::Runtime::simulated(1).block_on(async move {
        let map = Map::format(device, region, Identity::default())
            .await
            .expect("a region of the right size");
        for round in 0..40u64 {
            map.put(round % 7, &[round as u8; 300]);
            map.remove(round % 5);
            map.commit().await.expect("memory does not fail");
        }
    });
}

fuzz_target!(|input: &[u8]| {
    let region = Span::bytes(0, (2 + LOG_BLOCKS) * 4096);
    let device = Memory::new("memory", region.len);
    sound(Rc::clone(&device), region);
    let mut image = device.contents(region);
    forge::forge(&mut image, input);
    device.load(region.start, &image);
    env::Runtime::simulated(2).block_on(async move {
        let mut shown = 0;
        let opened = Ledger::open(device.clone(), region, |_| shown += 1).await;
        if let Ok((_, replay)) = opened {
            assert_eq!(replay.records, shown);
        }
        let Ok((map, _)) = Map::open_salvage(device.clone(), region).await else {
            return;
        };
        map.put(1, b"after");
        if map.commit().await.is_ok() {
            let (again, _) = Map::open(device, region).await.expect("what was renewed opens");
            assert_eq!(again.len(), map.len());
            assert_eq!(again.get(1).as_deref(), Some(&b"after"[..]));
        }
        assert!(Bytes(map.ledger().figures().log_used) <= region.len);
    });
});
