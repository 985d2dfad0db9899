//! Any bytes as a guest's memory: what is taken from its ring stays within that memory, and comes to an end. Run by a test
//! on drawn bytes and by the fuzz target `vhost_ring`.

use std::rc::Rc;

use env::shared::Descriptor;
use front::vhost::inflight::{self, Area};
use front::vhost::memory::{Table, check as check_table};
use front::vhost::message::{Addresses, Region};
use front::vhost::ring::{CHAIN_MAX, Ring, feature};

const MEMORY: usize = 32 << 10;
const HERE: u64 = 1 << 40;

/// The first byte chooses the ring's size and features, the rest is the memory, from the descriptors on. How many requests
/// were read.
pub fn check(data: &[u8]) -> usize {
    let Some((&choice, data)) = data.split_first() else {
        return 0;
    };
    let data = data.to_vec();
    env::Runtime::simulated(1).block_on(async move {
        let descriptor = Descriptor::memory(MEMORY).expect("simulated memory");
        let memory = descriptor.map(0, MEMORY).expect("as long as it is");
        memory.write(0, &data[..data.len().min(MEMORY)]);
        let region = |guest, len, client, offset| Region {
            guest,
            len,
            client,
            offset,
        };
        let half = MEMORY as u64 / 2;
        let regions = [
            region(0, half, HERE, 0),
            region(half, half, HERE << 1, half),
        ];
        check_table(&regions, u64::MAX).expect("a good table");
        let mapped = regions.map(|region| {
            let memory = descriptor.map(region.offset, region.len as usize);
            (region, memory.expect("within it"))
        });
        let table = Rc::new(Table::new(mapped.into()));
        let size = 1 << (choice % 8);
        let features = feature::INDIRECT_DESC | (u64::from(choice >> 7) * feature::EVENT_IDX);
        let at = Addresses {
            descriptors: HERE,
            available: HERE + 0x1000,
            used: HERE + 0x2000,
        };
        let ring = Ring::new(table, at, size, features).expect("within the first region");
        // The same bytes as a record of what is in flight.
        let area = inflight::area(1, ring.size());
        let record = descriptor.map(MEMORY as u64 / 2, area.len as usize);
        let record = Area::new(record.expect("within it"), area).expect("as long as said");
        let queue = record.queue(0, ring.size()).expect("its only queue");
        if let Ok(again) = queue.recover(ring.used_index(), ring.available_index()) {
            assert!(again.iter().all(|head| *head < ring.size()));
            ring.begin(again.len() as u16);
        }
        let mut read = 0;
        // Each answer may change what comes next, where the guest has its ring in its own way.
        for _ in 0..4 * size {
            match ring.take() {
                Ok(Some(head)) => {
                    assert!(head < ring.size());
                    if let Ok(chain) = ring.chain(head) {
                        let places = chain.readable.iter().chain(&chain.writable);
                        let mut count = 0;
                        for place in places {
                            assert!(!place.is_empty() && place.len() <= MEMORY);
                            let mut last = [0];
                            place.read(place.len() - 1, &mut last);
                            count += 1;
                        }
                        assert!(count <= 2 * CHAIN_MAX);
                        read += 1;
                    }
                    ring.put_used(head, 1);
                    ring.wants_call();
                }
                Ok(None) => {
                    ring.wants_kick();
                    break;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        }
        read
    })
}
