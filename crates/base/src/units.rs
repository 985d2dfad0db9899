//! Units are types: a length is not a place, a moment is not a span of time.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The length of a sector in bytes: the smallest unit any device reads or writes.
pub const SECTOR: u64 = 512;

/// A length in bytes. A buffer is a [`crate::Buf`], never a `Bytes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// The number of a 512-byte sector on one device: a place, not a length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

/// A span of time in nanoseconds. A moment is an [`Instant`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// A moment: nanoseconds since the run began (virtual or real).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(pub u64);

/// A range of sectors: `start`, then `len` bytes (a multiple of 512).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// First sector.
    pub start: Sector,
    /// Length; a multiple of 512 bytes.
    pub len: Bytes,
}

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }
    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Bytes(n << 30)
    }
    /// Whole sectors in this length, rounded down.
    pub const fn sectors(self) -> u64 {
        self.0 / SECTOR
    }
    /// The length as an index type.
    pub const fn usize(self) -> usize {
        self.0 as usize
    }
    /// Is this length a multiple of `unit`?
    pub const fn is_multiple_of(self, unit: u64) -> bool {
        self.0.is_multiple_of(unit)
    }
}

impl Sector {
    /// The sector that holds byte `at` of the device.
    pub const fn containing(at: u64) -> Self {
        Sector(at / SECTOR)
    }
    /// The sector's distance from the start of the device, in bytes.
    pub const fn byte(self) -> u64 {
        self.0 * SECTOR
    }
    /// The sector `len` bytes further on (`len` is rounded down to whole sectors).
    pub const fn after(self, len: Bytes) -> Self {
        Sector(self.0 + len.0 / SECTOR)
    }
}

impl Span {
    /// `len` bytes from `start`.
    pub const fn new(start: Sector, len: Bytes) -> Self {
        Span { start, len }
    }
    /// The span of bytes `from..from + len`; both are multiples of 512.
    pub const fn bytes(from: u64, len: u64) -> Self {
        Span {
            start: Sector(from / SECTOR),
            len: Bytes(len),
        }
    }
    /// First sector behind the span.
    pub const fn end(self) -> Sector {
        self.start.after(self.len)
    }
    /// Do the two spans share a sector?
    pub const fn overlaps(self, other: Span) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }
    /// Does the span hold all of `other`?
    pub const fn contains(self, other: Span) -> bool {
        self.start.0 <= other.start.0 && other.end().0 <= self.end().0
    }
}

impl Nanos {
    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Nanos(n * 1_000)
    }
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Nanos(n * 1_000_000)
    }
    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Nanos(n * 1_000_000_000)
    }
    /// A span of `s` seconds, rounded to the nanosecond; negative counts as zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Nanos((s.max(0.0) * 1e9).round() as u64)
    }
    /// The span in seconds.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The span as the standard library's type.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
    /// `self - other`, or zero.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Instant {
    /// Time from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Instant;
    fn add(self, d: Nanos) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}

impl Sub<Nanos> for Instant {
    type Output = Instant;
    fn sub(self, d: Nanos) -> Instant {
        Instant(self.0.saturating_sub(d.0))
    }
}

macro_rules! arithmetic {
    ($t:ident) => {
        impl Add for $t {
            type Output = $t;
            fn add(self, o: $t) -> $t {
                $t(self.0 + o.0)
            }
        }
        impl Sub for $t {
            type Output = $t;
            fn sub(self, o: $t) -> $t {
                $t(self.0 - o.0)
            }
        }
        impl AddAssign for $t {
            fn add_assign(&mut self, o: $t) {
                self.0 += o.0;
            }
        }
        impl SubAssign for $t {
            fn sub_assign(&mut self, o: $t) {
                self.0 -= o.0;
            }
        }
        impl Mul<u64> for $t {
            type Output = $t;
            fn mul(self, n: u64) -> $t {
                $t(self.0 * n)
            }
        }
        impl Div<u64> for $t {
            type Output = $t;
            fn div(self, n: u64) -> $t {
                $t(self.0 / n)
            }
        }
        impl Rem<u64> for $t {
            type Output = u64;
            fn rem(self, n: u64) -> u64 {
                self.0 % n
            }
        }
        impl std::iter::Sum for $t {
            fn sum<I: Iterator<Item = $t>>(items: I) -> $t {
                $t(items.map(|item| item.0).sum())
            }
        }
    };
}
arithmetic!(Bytes);
arithmetic!(Nanos);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bytesize::ByteSize(self.0).display().iec().fmt(f)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

impl fmt::Debug for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sectors {}..{}", self.start.0, self.end().0)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 1_000_000 => write!(f, "{:.2} us", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{:.2} ms", n as f64 / 1e6),
            n => write!(f, "{:.2} s", n as f64 / 1e9),
        }
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a size: {why}; write a whole number of bytes or a number with KiB, MiB, GiB, TiB (in short K, M, G, T), kB, MB, \
     GB or TB"
)]
pub struct SizeError {
    text: String,
    why: String,
}

impl FromStr for Bytes {
    type Err = SizeError;
    /// `10GiB`, and `10G` as lvcreate reads it: the same. `10GB` is 10^10 bytes.
    fn from_str(text: &str) -> Result<Bytes, SizeError> {
        let plain = text.trim();
        let of_short = short_of_binary(plain).map(|short| format!("{short}iB"));
        of_short
            .as_deref()
            .unwrap_or(plain)
            .parse::<bytesize::ByteSize>()
            .map(|size| Bytes(size.0))
            .map_err(|why| SizeError {
                text: text.to_owned(),
                why,
            })
    }
}

/// The text, if it is a number and one letter: `10G`.
fn short_of_binary(text: &str) -> Option<&str> {
    let is_short = text.ends_with(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T', 'p', 'P', 'e', 'E']);
    let number = text.get(..text.len().checked_sub(1)?)?.trim_end();
    (is_short && number.ends_with(|c: char| c.is_ascii_digit() || c == '.')).then_some(text)
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    /// From a number of bytes or a text such as `24GiB`.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Bytes, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a size: a number of bytes, or a text such as \"24GiB\""
        )]
        enum Raw {
            Number(u64),
            Text(String),
        }
        match Raw::deserialize(d)? {
            Raw::Number(n) => Ok(Bytes(n)),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!("24GiB".parse::<Bytes>(), Ok(Bytes::gib(24)));
        assert_eq!("4 KiB".parse::<Bytes>(), Ok(Bytes(4096)));
        assert_eq!("1MB".parse::<Bytes>(), Ok(Bytes(1_000_000)));
        assert_eq!("512".parse::<Bytes>(), Ok(Bytes(512)));
        for (text, bytes) in [
            ("10G", 10 << 30),
            ("4k", 4 << 10),
            ("1.5 T", 3 << 39),
            ("10GB", 10_000_000_000),
            ("10gb", 10_000_000_000),
            ("10gib", 10 << 30),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for odd in ["", "G", "10B0", "10GG", "-1G"] {
            assert!(odd.parse::<Bytes>().is_err(), "{odd}");
        }
        let refusal = "many".parse::<Bytes>().unwrap_err().to_string();
        assert!(refusal.starts_with("'many' is not a size"), "{refusal}");
    }

    #[test]
    fn spans_know_their_neighbours() {
        let a = Span::bytes(0, 4096);
        let b = Span::bytes(4096, 4096);
        assert!(!a.overlaps(b));
        assert!(a.overlaps(Span::bytes(3584, 1024)));
        assert!(a.contains(Span::bytes(512, 512)));
        assert_eq!(a.end(), b.start);
    }
}
