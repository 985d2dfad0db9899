//! Hot regions live on the fast device, and come home again.

use std::rc::Rc;

use base::{Bytes, Nanos, Span};
use device::Memory;
use hybrid::{Hybrid, Mode, MoveEnd, Settings, Tier, TierStatus};
use policy::tier::{Parameters, Region};

use crate::common::{get, make, noise, pages, put, reads_as, run};

const SLOW: Bytes = Bytes::mib(64);
const FAST: Bytes = Bytes::mib(24);

/// Regions of 4 MiB in extents of 1 MiB, judged every second: two seconds in a row up, three away down.
fn tiered(mode: Mode) -> Settings {
    Settings {
        name: "vol0".to_owned(),
        mode,
        tier: Tier {
            parameters: Parameters {
                period: Nanos::secs(1),
                iops_min: 1.0,
                share_min: 50.0,
                streak_min: 2,
                timeout: 3,
                ..Parameters::default()
            },
            region: Bytes::mib(4),
            extent: Bytes::mib(1),
            break_even: false,
            ..Tier::default()
        },
        ..Settings::default()
    }
}

fn devices() -> (Rc<Memory>, Rc<Memory>) {
    let slow = Memory::new("hdd0", SLOW);
    slow.load(base::Sector(0), &noise(7, SLOW));
    (slow, Memory::new("ssd0", FAST))
}

/// Reads in `region` for `seconds`, ten times a second.
async fn heat_up(disk: &Hybrid, region: u32, seconds: u64) {
    for round in 0..seconds * 10 {
        get(
            disk,
            pages(u64::from(region - 1) * 1024 + round % 7 * 100, 1),
        )
        .await;
        env::sleep(Nanos::millis(100)).await;
    }
}

fn tier(disk: &Hybrid) -> TierStatus {
    disk.tier().expect("there is a tier")
}

#[test]
fn a_hot_region_goes_up_and_all_of_it_is_read_from_the_fast_device() {
    run(1, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).regions_up, 1);
        assert_eq!(tier(&disk).held_bytes, 4 << 20);
        let before = disk.status().slow_bytes_read;
        let all = get(&disk, Span::bytes(8 << 20, 4 << 20)).await;
        assert_eq!(disk.status().slow_bytes_read, before);
        assert_eq!(&all[..], &noise(7, SLOW)[8 << 20..12 << 20]);
        let moves = disk.moves(0);
        assert_eq!(moves.len(), 1);
        assert_eq!(
            (moves[0].region, moves[0].up, moves[0].end),
            (Region(3), true, MoveEnd::Done)
        );
    });
}

#[test]
fn what_is_not_up_is_left_where_it_is() {
    run(2, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        put(&disk, pages(9000, 4), 5).await;
        for _ in 0..3 {
            get(&disk, pages(5000, 16)).await;
        }
        let status = disk.status();
        assert_eq!((status.cached_bytes, status.dirty_bytes), (0, 0));
        assert!(reads_as(&*slow, pages(9000, 4), 5).await);
    });
}
