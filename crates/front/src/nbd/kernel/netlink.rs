//! What do the bytes of a generic netlink message mean? Pure.
//!
//! ```text
//! length 4, type 2, flags 2, sequence 4, port 4 | command 1, version 1, reserved 2 | (length 2, type 2, value, padding)*
//! ```
//!
//! Numbers are in the machine's order. Source: Linux `include/uapi/linux/{netlink,genetlink}.h`.
//!
//! Always true: a parser answers any bytes at all without a panic.

/// The family that names the others.
pub const CONTROLLER: u16 = 16;
/// Of the controller: which number has a family?
pub const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const HEAD: usize = 16;
const GENERIC_HEAD: usize = 4;
const NESTED: u16 = 1 << 15;

/// Attributes of a message.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    fn put(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(4 + value.len()).expect("attributes are short");
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub fn put_u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub fn put_nested(&mut self, kind: u16, inner: &Attributes) {
        self.put(kind | NESTED, &inner.0);
    }
}

/// A request to a family, which is acknowledged.
pub fn request(family: u16, command: u8, attributes: &Attributes) -> Vec<u8> {
    let len = HEAD + GENERIC_HEAD + attributes.0.len();
    let mut out = Vec::with_capacity(len);
    out.extend((len as u32).to_ne_bytes());
    out.extend(family.to_ne_bytes());
    out.extend((REQUEST | ACK).to_ne_bytes());
    // One request at a time goes over a socket of its own: neither sequence nor port tells it from others.
    out.extend([0; 8]);
    out.extend([command, 1, 0, 0]);
    out.extend(&attributes.0);
    out
}

/// Asks the controller for the number of a family.
pub fn which_family(name: &str) -> Vec<u8> {
    let mut attributes = Attributes::default();
    attributes.put(FAMILY_NAME, &[name.as_bytes(), &[0]].concat());
    request(CONTROLLER, GET_FAMILY, &attributes)
}

/// What one datagram of answers says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answers {
    /// Attributes of the messages in it: kind and value.
    pub attributes: Vec<(u16, Vec<u8>)>,
    /// How the request ended: 0, or the error's number.
    pub ended: Option<i32>,
}

/// Reads a datagram.
pub fn answers(mut bytes: &[u8]) -> Answers {
    let mut all = Answers::default();
    while let Some((kind, body, rest)) = message(bytes) {
        bytes = rest;
        if kind == ERROR {
            let code = body.first_chunk().map(|it| i32::from_ne_bytes(*it));
            all.ended = Some(code.map_or(0, i32::wrapping_neg));
        } else {
            all.attributes
                .extend(attributes(body.get(GENERIC_HEAD..).unwrap_or_default()));
        }
    }
    all
}

/// The first message: its type, what is in it, and what comes behind.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEAD..len)?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

fn attributes(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while let (Some(len), Some(kind)) = (
        bytes.first_chunk().map(|it| u16::from_ne_bytes(*it)),
        bytes
            .get(2..)
            .and_then(|it| it.first_chunk())
            .map(|it| u16::from_ne_bytes(*it)),
    ) {
        let len = usize::from(len);
        let Some(value) = bytes.get(4..len) else {
            break;
        };
        all.push((kind & !NESTED, value.to_vec()));
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// The number of the family that was asked for.
pub fn family(answers: &Answers) -> Option<u16> {
    let found = answers.attributes.iter().find(|it| it.0 == FAMILY_ID)?;
    found.1.first_chunk().map(|it| u16::from_ne_bytes(*it))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_what_the_kernel_reads() {
        let mut inner = Attributes::default();
        inner.put_u32(1, 7);
        let mut attributes = Attributes::default();
        attributes.put_u32(1, 3);
        attributes.put_u64(2, 4096);
        attributes.put_nested(7, &inner);
        let bytes = request(25, 1, &attributes);
        assert_eq!(bytes.len(), 16 + 4 + 8 + 12 + 12);
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
        assert_eq!(
            bytes[4..8],
            [25u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat()
        );
        assert_eq!(bytes[16..20], [1, 1, 0, 0]);
        let (kind, body, rest) = message(&bytes).expect("it is whole");
        assert_eq!((kind, rest), (25, &[][..]));
        let found = super::attributes(&body[4..]);
        assert_eq!(found[0], (1, 3u32.to_ne_bytes().to_vec()));
        assert_eq!(found[1], (2, 4096u64.to_ne_bytes().to_vec()));
        assert_eq!(found[2], (7, inner.0));
        // A name is ended by a zero, and padded to four bytes.
        assert_eq!(which_family("nbd").len(), 16 + 4 + 8);
        assert_eq!(which_family("nbdx").len(), 16 + 4 + 12);
    }

    #[test]
    fn an_end_and_a_family_are_read_out_of_a_datagram() {
        let mut bytes = request(CONTROLLER, 1, &Attributes::default());
        let mut with = Attributes::default();
        with.put(FAMILY_NAME, b"nbd\0");
        with.put(FAMILY_ID, &27u16.to_ne_bytes());
        bytes = [bytes, request(CONTROLLER, 1, &with)].concat();
        let mut end = 36u32.to_ne_bytes().to_vec();
        end.extend(ERROR.to_ne_bytes());
        end.extend([0; 10]);
        end.extend((-28i32).to_ne_bytes());
        end.extend([0; 16]);
        bytes.extend(&end);
        let read = answers(&bytes);
        assert_eq!((family(&read), read.ended), (Some(27), Some(28)));
        assert_eq!(answers(&[]), Answers::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let read = answers(&bytes);
            let _ = family(&read);
        }
    }
}
