//! How many bytes does a cached block cost? Asserted, so that it does not grow unseen.

use crate::cache::{Cache, Index, Kind, Lru, build, build_remembering};

const FRAMES: u32 = 1 << 20;

fn per_frame(bytes: usize) -> f64 {
    bytes as f64 / f64::from(FRAMES)
}

#[test]
fn the_index_costs_four_bytes_a_frame() {
    let bytes = per_frame(Index::new(FRAMES).memory());
    assert!(bytes <= 4.1, "{bytes}");
    // Beyond 2^24 frames four bytes a slot, and 4 / 3 slots a frame.
    let big = Index::new(1 << 24);
    assert!(big.memory() as f64 / f64::from(1 << 24) <= 5.34);
}

#[test]
fn list_policies_cost_at_most_nine_point_seven_bytes_a_frame() {
    for kind in [
        Kind::Lru,
        Kind::Fifo,
        Kind::Clock,
        Kind::Sieve,
        Kind::S3Fifo,
    ] {
        for policy in [build(kind, FRAMES), build_remembering(kind, FRAMES)] {
            let bytes = per_frame(policy.memory());
            assert!((6.0..=9.7).contains(&bytes), "{kind}: {bytes}");
        }
    }
}

#[test]
fn the_adaptive_policies_cost_what_their_pages_say() {
    let arc = per_frame(build(Kind::Arc, FRAMES).memory());
    assert!(arc <= 6.2 + 14.2, "{arc}");
    let tinylfu = per_frame(build(Kind::WTinyLfu, FRAMES).memory());
    assert!(tinylfu <= 6.3 + 8.0, "{tinylfu}");
}

#[test]
fn a_simulated_cache_costs_its_index_keys_and_policy() {
    let bytes = per_frame(Cache::compact(Lru::new(FRAMES)).memory());
    assert!(bytes <= 4.1 + 8.0 + 6.1, "{bytes}");
    let roomy = per_frame(Cache::new(Lru::new(FRAMES)).memory());
    assert!(roomy <= 8.1 + 8.0 + 6.1, "{roomy}");
}
