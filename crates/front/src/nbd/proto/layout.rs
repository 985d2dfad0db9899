//! How numbers, texts, options, requests and replies lie on the wire.

use super::numbers::{CHUNK_LEN, CHUNK_MAGIC, GREETING_LEN, GREETING_MAGIC, OPTION_LEN};
use super::numbers::{OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_LEN, REQUEST_MAGIC};
use super::numbers::{SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC, STRING_MAX, cmd, handshake};

// --- reading ----------------------------------------------------------------------------------------

/// Takes numbers and strings off the front of some bytes.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A 32-bit length, then that many bytes of text: UTF-8 without NUL, at most 4096 bytes.
    pub fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        text(self.bytes(len)?)
    }
}

/// The bytes as a string of the protocol: UTF-8 without NUL, at most 4096 bytes.
pub fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// The head of an option: which, and how many bytes of data follow. `None` on a wrong magic.
pub fn option_head(head: &[u8; OPTION_LEN]) -> Option<(u32, u32)> {
    let mut fields = Fields(head);
    (fields.u64()? == OPTION_MAGIC).then_some(())?;
    Some((fields.u32()?, fields.u32()?))
}

/// The head of a request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The client's name for the request, sent back with the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Request {
    /// Reads the head of a request; `None` on a wrong magic.
    #[inline]
    pub fn parse(head: &[u8; REQUEST_LEN]) -> Option<Request> {
        let mut fields = Fields(head);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Request {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// The request's head on the wire.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut head = [0; REQUEST_LEN];
        head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        head[4..6].copy_from_slice(&self.flags.to_be_bytes());
        head[6..8].copy_from_slice(&self.command.to_be_bytes());
        head[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        head[16..24].copy_from_slice(&self.offset.to_be_bytes());
        head[24..].copy_from_slice(&self.length.to_be_bytes());
        head
    }

    /// Bytes that follow the head and must be taken off the stream, whatever the answer.
    pub fn payload(&self) -> u32 {
        if self.command == cmd::WRITE {
            self.length
        } else {
            0
        }
    }
}

// --- writing ----------------------------------------------------------------------------------------

/// A simple reply's head.
#[inline]
pub fn simple_reply(cookie: u64, code: u32) -> [u8; SIMPLE_REPLY_LEN] {
    let mut head = [0; SIMPLE_REPLY_LEN];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&code.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    head
}

/// A chunk's head; `len` bytes of payload follow.
#[inline]
pub fn chunk_head(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; CHUNK_LEN] {
    let mut head = [0; CHUNK_LEN];
    head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&len.to_be_bytes());
    head
}

/// The server's greeting.
pub fn greeting() -> [u8; GREETING_LEN] {
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let mut greeting = [0; GREETING_LEN];
    greeting[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting[16..].copy_from_slice(&flags.to_be_bytes());
    greeting
}

/// Appends an option with its data.
pub fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends a reply to `option` with its data.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends a 32-bit length and the text.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Shortens a sentence to at most `max` bytes, between characters.
pub fn shortened(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::super::numbers::flag;
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_a_wrong_magic_is_none() {
        let asked = Request {
            flags: flag::FUA,
            command: cmd::WRITE,
            cookie: 7,
            offset: 0x1234_5678_9abc_de00,
            length: 0xfeed_be00,
        };
        let mut head = asked.encode();
        assert_eq!(head[..4], [0x25, 0x60, 0x95, 0x13]);
        assert_eq!(Request::parse(&head), Some(asked));
        head[0] ^= 1;
        assert_eq!(Request::parse(&head), None);
    }

    #[test]
    fn the_greeting_is_the_protocols() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn strings_are_utf8_without_nul_and_of_bounded_length() {
        let mut data = Vec::new();
        put_string(&mut data, "disk");
        data.extend([0, 0, 0, 9, b'x']);
        let mut fields = Fields(&data);
        assert_eq!(fields.string(), Some("disk"));
        assert_eq!(fields.string(), None);
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(&[0xff]), None);
        assert_eq!(text(&[b'a'; STRING_MAX + 1]), None);
        assert!(text(&[b'a'; STRING_MAX]).is_some());
    }

    #[test]
    fn a_sentence_is_shortened_between_characters() {
        assert_eq!(shortened("aé", 2), "a");
        assert_eq!(shortened("aé", 3), "aé");
        assert_eq!(shortened("abc", 10), "abc");
    }
}
