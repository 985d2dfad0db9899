//! Ranges, times of the day, sizes and spans of time as texts that are read back exactly.

use base::{Bytes, Nanos, Span};

const DAY: Nanos = Nanos::secs(24 * 3600);

/// `10GiB+2GiB`: where it begins, and its length.
pub fn range(text: &str) -> Result<Span, String> {
    let bad = |why: &str| {
        format!("'{text}' is no range{why}; write OFFSET+LENGTH such as \"10GiB+2GiB\"")
    };
    let (offset, length) = text.split_once('+').ok_or_else(|| bad(""))?;
    let size = |part: &str| {
        part.trim()
            .parse::<Bytes>()
            .map_err(|error| bad(&format!(": {error}")))
    };
    let (offset, length) = (size(offset)?, size(length)?);
    if length.0 == 0 {
        return Err(bad(": it is empty"));
    }
    if !offset.0.is_multiple_of(4096) || !length.0.is_multiple_of(4096) {
        return Err(bad(": both are multiples of 4096 bytes"));
    }
    match offset.0.checked_add(length.0) {
        Some(end) if end <= 1 << 60 => Ok(Span::bytes(offset.0, length.0)),
        _ => Err(bad(": no disk is as large")),
    }
}

/// As [`range`] reads it.
pub fn range_text(span: Span) -> String {
    format!(
        "{}+{}",
        size_text(Bytes(span.start.byte())),
        size_text(span.len)
    )
}

/// `22:00-06:00`, in the time of the day.
pub(super) fn window(text: &str) -> Result<(Nanos, Nanos), String> {
    let bad = || {
        format!(
            "'{text}' is no time of the day; write from and to below 24:00, such as \"22:00-06:00\" (UTC)"
        )
    };
    let clock = |part: &str| -> Option<Nanos> {
        let (hours, minutes) = part.trim().split_once(':')?;
        let two = |digits: &str| match digits.len() {
            1 | 2 => digits.parse::<u64>().ok(),
            _ => None,
        };
        let (hours, minutes) = (two(hours)?, two(minutes)?);
        let time = Nanos::secs(hours * 3600 + minutes * 60);
        (minutes < 60 && time < DAY).then_some(time)
    };
    let (from, to) = text.split_once('-').ok_or_else(bad)?;
    let (from, to) = (clock(from).ok_or_else(bad)?, clock(to).ok_or_else(bad)?);
    match from == to {
        true => Err(format!(
            "'{text}' holds no time; leave it out to allow moves always"
        )),
        false => Ok((from, to)),
    }
}

/// As [`window`] reads it.
pub(super) fn window_text((from, to): (Nanos, Nanos)) -> String {
    let clock = |time: Nanos| {
        let minutes = time.0 / Nanos::secs(60).0;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    };
    format!("{}-{}", clock(from), clock(to))
}

/// A size that is read back exactly: `10GiB`, `4100KiB`, `512`.
pub fn size_text(size: Bytes) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .iter()
        .find(|(shift, _)| size.0 > 0 && size.0.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{}{unit}", size.0 >> shift),
        None => size.0.to_string(),
    }
}

/// A span of time that is read back exactly: `1m`, `90s`.
pub fn time_text(span: Nanos) -> String {
    humantime::format_duration(span.duration()).to_string()
}
