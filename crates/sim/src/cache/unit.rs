//! What is one object of the cache, and which requests count?

use std::fmt;
use std::str::FromStr;

use base::Bytes;
use trace::Format;

/// What counts as one object of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// The first block address of a request stands for all of it: one object of size 1.
    Request,
    /// Requests are split into blocks of this size, a power of two from 512 B to 1 GiB.
    Block(Bytes),
}

impl Unit {
    /// Pages of 4 KiB, the unit in which the production cache maps.
    pub const PAGE: Unit = Unit::Block(Bytes::kib(4));

    /// The unit for a trace of `format` where none is said: objects with names of their own stay apart.
    ///
    /// # Example
    /// ```
    /// use sim::cache::Unit;
    /// assert_eq!(Unit::usual(trace::Format::Msr), Unit::PAGE);
    /// assert_eq!(Unit::usual(trace::Format::OracleGeneral), Unit::Request);
    /// ```
    #[must_use]
    pub fn usual(format: Format) -> Unit {
        match format.names_objects() {
            true => Unit::Request,
            false => Unit::PAGE,
        }
    }
}

impl fmt::Display for Unit {
    /// `request`, `512B`, `4KiB`, `1MiB`: as it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Request => f.pad("request"),
            Unit::Block(size) => match size.0.trailing_zeros() {
                30.. => write!(f, "{}GiB", size.0 >> 30),
                20.. => write!(f, "{}MiB", size.0 >> 20),
                10.. => write!(f, "{}KiB", size.0 >> 10),
                _ => write!(f, "{}B", size.0),
            },
        }
    }
}

/// A text that names no unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no unit; say request (the first address of a request is one object), or the size of a \
     block, a power of two from 512 B to 1 GiB such as 4KiB"
)]
pub struct UnknownUnit(String);

impl FromStr for Unit {
    type Err = UnknownUnit;
    fn from_str(text: &str) -> Result<Unit, UnknownUnit> {
        if text == "request" {
            return Ok(Unit::Request);
        }
        match text.parse::<Bytes>() {
            Ok(size) if size.0.is_power_of_two() && (512..=1 << 30).contains(&size.0) => {
                Ok(Unit::Block(size))
            }
            _ => Err(UnknownUnit(text.to_owned())),
        }
    }
}

/// Which requests count. Flushes and discards never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ops {
    /// Reads and writes.
    #[default]
    All,
    /// Reads only, as if nothing were written.
    Reads,
    /// Writes only.
    Writes,
}

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ops::All => "all",
            Ops::Reads => "reads",
            Ops::Writes => "writes",
        })
    }
}

impl FromStr for Ops {
    type Err = String;
    fn from_str(text: &str) -> Result<Ops, String> {
        [Ops::All, Ops::Reads, Ops::Writes]
            .into_iter()
            .find(|ops| ops.to_string() == text)
            .ok_or_else(|| format!("'{text}' is no choice of requests; say all, reads or writes"))
    }
}
