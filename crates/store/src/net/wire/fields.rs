//! Numbers, texts and bytes, one after another.

use std::fmt;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Malformed {
    pub(super) fn new(why: impl Into<String>) -> Malformed {
        Malformed(why.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads fields from the front of some bytes.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Whose fields, for errors.
    of: &'static str,
}

impl<'a> Fields<'a> {
    pub fn new(of: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes, of }
    }

    /// Refuses the whole for `why`.
    pub fn refuse<T>(&self, why: impl fmt::Display) -> Result<T, Malformed> {
        Err(Malformed(format!("the fields of {}: {why}", self.of)))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((first, rest)) = self.rest.split_first_chunk::<N>() else {
            return self.refuse(format_args!(
                "{N} bytes more are needed, {} are there",
                self.rest.len()
            ));
        };
        self.rest = rest;
        Ok(*first)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub fn u128(&mut self) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.take()?))
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take()
    }

    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => self.refuse(format_args!("{other} is neither yes (1) nor no (0)")),
        }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u16()?);
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return self.refuse(format_args!(
                "{len} bytes are announced, {} are there",
                self.rest.len()
            ));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.refuse("a text is not UTF-8"),
        }
    }

    /// How many entries follow, of at least `least` bytes each: never more than there are bytes for.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least {
            return self.refuse(format_args!(
                "{count} entries are announced, {} bytes are there",
                self.rest.len()
            ));
        }
        Ok(count)
    }

    /// Nothing may be left.
    pub fn end(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            left => self.refuse(format_args!("{left} bytes are left over")),
        }
    }
}

/// Writes fields.
pub(super) trait Put {
    fn bytes(&mut self, bytes: &[u8]);
    fn raw(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }
    fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }
    fn u128(&mut self, value: u128) {
        self.raw(&value.to_le_bytes());
    }
    fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }
    /// Whether there is a text, and the text.
    fn optional_text(&mut self, text: Option<&str>) {
        self.flag(text.is_some());
        self.text(text.unwrap_or(""));
    }
    /// A text; of one longer than 65,535 bytes what fits.
    fn text(&mut self, text: &str) {
        self.bytes(shortened(text, usize::from(u16::MAX)).as_bytes());
    }
}

impl Put for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).expect("bounded by the caller");
        self.u16(len);
        self.raw(bytes);
    }
}

/// The longest beginning of `text` that has at most `most` bytes.
pub(super) fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
