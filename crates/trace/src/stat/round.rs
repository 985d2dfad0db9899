//! Figures as they are printed: rounded, in percent, in GiB.

pub(super) const GIB: f64 = (1u64 << 30) as f64;

/// `value` to so many digits behind the point, halves to the even digit, as `round` of other languages.
pub(super) fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.digits$}").parse().unwrap_or(value)
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * (part as f64 / whole as f64)
}
