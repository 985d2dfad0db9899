//! How fast? Bytes per second, as people write and read them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos};

/// Bytes per second.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::share::BytesPerSec;
/// let rate: BytesPerSec = "85MB/s".parse()?;
/// assert_eq!(rate, BytesPerSec(85_000_000));
/// assert_eq!(rate.to_string(), "85 MB/s");
/// assert_eq!(rate.within(Nanos::millis(100)), Bytes(8_500_000));
/// assert_eq!(rate.time_for(Bytes(850)), Nanos(10_000));
/// # Ok::<(), policy::share::RateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BytesPerSec(pub u64);

impl BytesPerSec {
    /// `n` MB/s, as the paper counts them.
    pub const fn mb(n: u64) -> BytesPerSec {
        BytesPerSec(n * 1_000_000)
    }

    /// What passes in `time` at this rate, rounded down.
    pub fn within(self, time: Nanos) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(time.0) / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// How long `bytes` take at this rate, rounded up; forever at rate zero.
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos(u64::MAX);
        }
        let time = (u128::from(bytes.0) * 1_000_000_000).div_ceil(u128::from(self.0));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// The greatest rate, at most this one, that [`Display`](fmt::Display) shows as it is: what is offered in words is granted
    /// when it is typed back. It lacks less than a thousandth.
    ///
    /// # Example
    /// ```
    /// use policy::share::BytesPerSec;
    /// let rate = BytesPerSec(12_345_999);
    /// assert_eq!(rate.to_string(), "12.346 MB/s");
    /// assert_eq!(rate.floored().to_string(), "12.345 MB/s");
    /// ```
    pub fn floored(self) -> BytesPerSec {
        let (unit, _) = self.unit();
        let step = (unit / 1_000).max(1);
        BytesPerSec(self.0 / step * step)
    }

    /// The unit that it is shown in, in bytes per second, and its name.
    const fn unit(self) -> (u64, &'static str) {
        match self.0 {
            n if n < 1_000 => (1, "B/s"),
            n if n < 1_000_000 => (1_000, "kB/s"),
            n if n < 1_000_000_000 => (1_000_000, "MB/s"),
            _ => (1_000_000_000, "GB/s"),
        }
    }

    /// The rate at which `bytes` passed in `time`, rounded down; the greatest if no time passed.
    pub fn of(bytes: Bytes, time: Nanos) -> BytesPerSec {
        if time.0 == 0 {
            return BytesPerSec(u64::MAX);
        }
        let rate = u128::from(bytes.0) * 1_000_000_000 / u128::from(time.0);
        BytesPerSec(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

impl std::iter::Sum for BytesPerSec {
    fn sum<I: Iterator<Item = BytesPerSec>>(rates: I) -> BytesPerSec {
        BytesPerSec(rates.map(|rate| rate.0).sum())
    }
}

impl fmt::Display for BytesPerSec {
    /// Decimal units, at most three places, rounded to the nearest: `85 MB/s`, `1.5 GB/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = self.unit();
        let text = format!("{:.3}", self.0 as f64 / unit as f64);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{text} {name}"))
    }
}

impl fmt::Debug for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no rate; write a size and '/s', such as 85MB/s or 64MiB/s")]
pub struct RateError(pub String);

impl FromStr for BytesPerSec {
    type Err = RateError;
    fn from_str(text: &str) -> Result<BytesPerSec, RateError> {
        let size = text.trim().strip_suffix("/s");
        let bytes = size.and_then(|size| decimal(size).parse::<Bytes>().ok());
        bytes
            .map(|bytes| BytesPerSec(bytes.0))
            .ok_or_else(|| RateError(text.to_owned()))
    }
}

/// A size whose unit is in short a decimal one, as rates are sold: `100M` of `100M/s` is `100MB`.
fn decimal(size: &str) -> Cow<'_, str> {
    match size.ends_with(|c: char| c.is_ascii_alphabetic() && !c.eq_ignore_ascii_case(&'b')) {
        true => Cow::Owned(format!("{size}B")),
        false => Cow::Borrowed(size),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for (text, rate) in [
            ("85MB/s", 85_000_000),
            ("1.5 GB/s", 1_500_000_000),
            ("64MiB/s", 64 << 20),
            ("300 kB/s", 300_000),
            ("100M/s", 100_000_000),
            ("2 G/s", 2_000_000_000),
            ("512/s", 512),
        ] {
            let read: BytesPerSec = text.parse().unwrap();
            assert_eq!(read, BytesPerSec(rate), "{text}");
        }
        assert_eq!(BytesPerSec(1_500_000_000).to_string(), "1.5 GB/s");
        let refusal = "85MB".parse::<BytesPerSec>().unwrap_err().to_string();
        assert_eq!(
            refusal,
            "'85MB' is no rate; write a size and '/s', such as 85MB/s or 64MiB/s"
        );
    }

    proptest! {
        #[test]
        fn a_floored_rate_is_granted_when_it_is_typed_back(digits in 1_u32..=15, of in 0.0..1.0_f64) {
            // As many rates of each length.
            let least = 10_u64.pow(digits - 1);
            let rate = least + (of * (least * 9) as f64) as u64;
            let text = BytesPerSec(rate).floored().to_string();
            let read: BytesPerSec = text.parse().unwrap();
            // Decimal places are read by way of a float, and cut.
            let lacks = BytesPerSec(rate).floored().0.checked_sub(read.0);
            prop_assert!(lacks.is_some_and(|it| it <= 1), "{rate} is shown as {text}");
            prop_assert!(read.0 <= rate, "{rate} is shown as {text}");
            prop_assert!(read.0 as f64 > rate as f64 * (1.0 - 1e-3), "{rate} is shown as {text}");
        }
    }
}
