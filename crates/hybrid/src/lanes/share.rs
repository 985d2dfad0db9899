//! What of the choices for the whole is one lane's?
//!
//! Pure. Bytes and counts are divided, shares and spans of time are not.

use base::{Bytes, Span};
use device::shared::part_of;

use crate::settings::Settings;

/// The choices of lane number `lane` of `lanes`, to which `unit` is dealt out in turn.
pub(super) fn lane_settings(settings: &Settings, lanes: u32, lane: u32, unit: Bytes) -> Settings {
    let mut own = settings.clone();
    if lanes == 1 {
        return own;
    }
    let part = |bytes: Bytes| Bytes(bytes.0 / u64::from(lanes));
    own.fast_bytes = settings.fast_bytes.map(part);
    own.flash_writes_per_day = settings.flash_writes_per_day.map(part);
    let parameters = &mut own.tier.parameters;
    parameters.iops_min /= f64::from(lanes);
    parameters.sub_luns_max = parameters.sub_luns_max.div_ceil(lanes);
    let within = |spans: &[Span]| -> Vec<Span> {
        let parts = spans.iter().map(|span| share(*span, lanes, lane, unit));
        parts.filter(|span| span.len > Bytes(0)).collect()
    };
    own.tier.pinned = within(&settings.tier.pinned);
    own.tier.barred = within(&settings.tier.barred);
    own
}

/// What one lane has of `span`, in its own places: one run, perhaps empty.
fn share(span: Span, lanes: u32, lane: u32, unit: Bytes) -> Span {
    // How much of the lane lies before byte `at` of the volume.
    let before = |at: u64| {
        let (of, there) = part_of(unit, lanes, at);
        let row = there / unit.0 * unit.0;
        match of.cmp(&lane) {
            std::cmp::Ordering::Less => row,
            std::cmp::Ordering::Equal => there,
            std::cmp::Ordering::Greater => row + unit.0,
        }
    };
    let (from, to) = (before(span.start.byte()), before(span.end().byte()));
    Span::bytes(from, to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_span_are_its_bytes_and_no_others() {
        let unit = Bytes(2048);
        for (from, len) in [
            (0, 512),
            (512, 8192),
            (3584, 1024),
            (2048, 2048),
            (6144, 20480),
        ] {
            let span = Span::bytes(from, len);
            for lane in 0..4 {
                let share = share(span, 4, lane, unit);
                for at in (0..32768).step_by(512) {
                    let (of, there) = part_of(unit, 4, at);
                    let inside = (span.start.byte()..span.end().byte()).contains(&at);
                    let shared = (share.start.byte()..share.end().byte()).contains(&there);
                    if of == lane {
                        assert_eq!(inside, shared, "{span} of lane {lane} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_counted_for_the_whole_is_divided() {
        let mut whole = Settings {
            fast_bytes: Some(Bytes::mib(64)),
            flash_writes_per_day: Some(Bytes::gib(8)),
            ..Settings::default()
        };
        whole.tier.parameters.sub_luns_max = 10;
        whole.tier.pinned = vec![Span::bytes(0, 16 << 20)];
        let own = lane_settings(&whole, 4, 1, Bytes::mib(16));
        assert_eq!(own.fast_bytes, Some(Bytes::mib(16)));
        assert_eq!(own.flash_writes_per_day, Some(Bytes::gib(2)));
        assert_eq!(own.tier.parameters.sub_luns_max, 3);
        assert_eq!(own.tier.pinned, []);
        assert_eq!(own.dirty_high, whole.dirty_high);
        assert_eq!(lane_settings(&whole, 1, 0, Bytes(u64::MAX)), whole);
    }
}
