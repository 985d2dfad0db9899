//! Where does the disk hold data? As the slow device says, but a region with dirty pages holds some.

use base::Span;
use device::DeviceError;

use super::disk::Engine;
use crate::attach::label::PAGE;
use crate::index::page_map::REGION_PAGES;
use crate::tier::drain::drain_buffer;

/// Pieces of `span`: how many bytes, and do they hold data?
pub(super) async fn allocation(
    engine: &Engine,
    span: Span,
) -> Result<Vec<(u64, bool)>, DeviceError> {
    // What is in a temporary buffer is on neither device.
    drain_buffer(engine.tier()).await?;
    let below = engine.volume.slow.device.allocation(span).await?;
    let Some(cache) = engine.live_cache() else {
        return Ok(below);
    };
    let map = cache.state.map();
    let next_dirty = |region| map.regions().from(region).next();
    Ok(with_dirty(span.start.byte(), below, next_dirty))
}

/// Turns holes that touch a dirty region into data there. `next_dirty(region)` returns the first dirty
/// region from `region` on.
fn with_dirty(
    start: u64,
    below: Vec<(u64, bool)>,
    next_dirty: impl Fn(u64) -> Option<u64>,
) -> Vec<(u64, bool)> {
    const REGION: u64 = REGION_PAGES * PAGE;
    let mut pieces: Vec<(u64, bool)> = Vec::new();
    let mut push = |len: u64, data: bool| match pieces.last_mut() {
        Some((so_far, same)) if *same == data => *so_far += len,
        _ if len == 0 => {}
        _ => pieces.push((len, data)),
    };
    let mut at = start;
    for (len, data) in below {
        let end = at + len;
        if data {
            push(len, true);
            at = end;
        }
        while at < end {
            let dirty_at = next_dirty(at / REGION).map_or(u64::MAX, |region| region * REGION);
            let hole_end = dirty_at.clamp(at, end);
            push(hole_end - at, false);
            let data_end = dirty_at.saturating_add(REGION).clamp(hole_end, end);
            push(data_end - hole_end, true);
            at = data_end;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_with_dirty_data_is_data_there() {
        const M: u64 = 1 << 20;
        let dirty = |region: u64| [2, 3, 9].into_iter().find(|dirty| *dirty >= region);
        // A hole of 40 MiB; regions 2, 3 (8..16 MiB) and 9 (36..40 MiB) are dirty.
        assert_eq!(
            with_dirty(0, vec![(40 * M, false)], dirty),
            [
                (8 * M, false),
                (8 * M, true),
                (20 * M, false),
                (4 * M, true)
            ]
        );
        assert_eq!(
            with_dirty(10 * M, vec![(2 * M, false)], dirty),
            [(2 * M, true)]
        );
        assert_eq!(
            with_dirty(0, vec![(4 * M, true), (4 * M, false)], dirty),
            [(4 * M, true), (4 * M, false)]
        );
    }
}
