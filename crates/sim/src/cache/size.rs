//! How large shall the cache be? In percent of the footprint, in bytes, or in objects.

use std::fmt;
use std::str::FromStr;

use base::Bytes;

use super::{Compact, Unit};

/// The size of a simulated cache as a person says it.
#[derive(Clone, Debug, PartialEq)]
pub enum Size {
    /// Percent of the different objects of the trace.
    Percent(f64),
    /// Bytes of blocks.
    Bytes(Bytes),
    /// Objects.
    Objects(u64),
}

/// A text that is no cache size, or one that does not fit the unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// No size.
    #[error(
        "'{0}' is no cache size; say percent of the footprint (1%), bytes with their unit (24GiB) or \
         objects (4897obj)"
    )]
    Unknown(String),
    /// Objects of the request unit have no size in bytes.
    #[error(
        "a cache of {asked} cannot be simulated with the unit 'request', whose objects have no size in \
         bytes; give the size as 1% or 4897obj, or choose a block such as --unit 4KiB"
    )]
    NoBytes {
        /// The size asked for.
        asked: Bytes,
    },
    /// Less than one block.
    #[error("a cache of {asked} holds not one block of {unit}; ask for at least that")]
    TooSmall {
        /// The size asked for.
        asked: Bytes,
        /// The unit.
        unit: Unit,
    },
}

impl fmt::Display for Size {
    /// As it is read: `1%`, `24GiB`, `4897obj`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Percent(percent) => f.pad(&format!("{percent}%")),
            Size::Bytes(bytes) => {
                let (divisor, name) =
                    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")]
                        .into_iter()
                        .map(|(shift, name)| (1u64 << shift, name))
                        .find(|(divisor, _)| bytes.0.is_multiple_of(*divisor))
                        .unwrap_or((1, "B"));
                f.pad(&format!("{}{name}", bytes.0 / divisor))
            }
            Size::Objects(objects) => f.pad(&format!("{objects}obj")),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<Size, SizeError> {
        let unknown = || SizeError::Unknown(text.to_owned());
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.trim().parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Size::Percent(percent)),
                _ => Err(unknown()),
            };
        }
        if let Some(objects) = text.strip_suffix("obj") {
            return match objects.trim().parse::<u64>() {
                Ok(objects) if objects > 0 => Ok(Size::Objects(objects)),
                _ => Err(unknown()),
            };
        }
        // A bare number could be meant either way.
        if text.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(unknown());
        }
        match text.parse::<Bytes>() {
            Ok(bytes) if bytes.0 > 0 => Ok(Size::Bytes(bytes)),
            _ => Err(unknown()),
        }
    }
}

/// Percent of `footprint` objects, rounded to the nearest, at least one.
pub(super) fn objects_in(percent: f64, footprint: u32) -> u64 {
    let objects = f64::from(footprint) * percent / 100.0;
    (objects.round() as u64).max(1)
}

impl Size {
    /// The sizes that are looked at where none are said.
    pub const USUAL: [Size; 5] = [
        Size::Percent(0.1),
        Size::Percent(1.0),
        Size::Percent(5.0),
        Size::Percent(10.0),
        Size::Percent(25.0),
    ];

    /// Objects of `trace` that fit, at least one. Percent are rounded to the nearest.
    ///
    /// # Errors
    /// [`SizeError::NoBytes`], [`SizeError::TooSmall`].
    pub fn objects(&self, trace: &Compact) -> Result<u64, SizeError> {
        match (self, trace.unit()) {
            (Size::Percent(percent), _) => Ok(objects_in(*percent, trace.footprint())),
            (Size::Objects(objects), _) => Ok(*objects),
            (Size::Bytes(asked), Unit::Request) => Err(SizeError::NoBytes { asked: *asked }),
            (Size::Bytes(asked), unit @ Unit::Block(block)) => match asked.0 / block.0 {
                0 => Err(SizeError::TooSmall {
                    asked: *asked,
                    unit,
                }),
                objects => Ok(objects),
            },
        }
    }

    /// Does it make sense with `unit`, whatever the trace?
    ///
    /// # Errors
    /// [`SizeError::NoBytes`], [`SizeError::TooSmall`].
    pub fn check(&self, unit: Unit) -> Result<(), SizeError> {
        match (self, unit) {
            (Size::Bytes(asked), Unit::Request) => Err(SizeError::NoBytes { asked: *asked }),
            (Size::Bytes(asked), Unit::Block(block)) if *asked < block => {
                Err(SizeError::TooSmall {
                    asked: *asked,
                    unit,
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        for text in ["1%", "0.1%", "24GiB", "512B", "1536KiB", "4897obj"] {
            assert_eq!(
                text.parse::<Size>().map(|size| size.to_string()),
                Ok(text.to_owned())
            );
        }
        for wrong in [
            "0%", "101%", "1", "0obj", "obj", "GiB", "-1%", "1e400%", "nan%", "",
        ] {
            let refusal = wrong.parse::<Size>().unwrap_err();
            assert_eq!(refusal, SizeError::Unknown(wrong.to_owned()));
        }
    }

    #[test]
    fn bytes_need_blocks_that_have_some() {
        let size = Size::Bytes(Bytes::gib(24));
        assert_eq!(
            size.check(Unit::Request).unwrap_err().to_string(),
            "a cache of 24.0 GiB cannot be simulated with the unit 'request', whose objects have no size in \
             bytes; give the size as 1% or 4897obj, or choose a block such as --unit 4KiB"
        );
        assert_eq!(size.check(Unit::PAGE), Ok(()));
        assert!(Size::Bytes(Bytes(512)).check(Unit::PAGE).is_err());
    }
}
