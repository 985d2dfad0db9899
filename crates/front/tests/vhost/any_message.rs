//! Any bytes as a message: a message whose fields are within bounds, and which comes back as it is, or an error. Run by a
//! test on drawn bytes and by the fuzz target `vhost_message`.

use front::vhost::message::{
    CONFIG_MAX, HEADER, Header, Message, PAYLOAD_MAX, QUEUES_MAX, REGIONS_MAX,
};
use front::vhost::{decode, encode};

/// The first byte is how many descriptors came. True if it was a message.
pub fn check(data: &[u8]) -> bool {
    let Some((&descriptors, data)) = data.split_first() else {
        return false;
    };
    let Some((header, payload)) = data.split_first_chunk::<HEADER>() else {
        return false;
    };
    let header = match Header::decode(header) {
        Ok(header) => header,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(header.len <= PAYLOAD_MAX);
    let payload = &payload[..header.len.min(payload.len())];
    let message = match decode(&header, payload, usize::from(descriptors % 10)) {
        Ok(message) => message,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    match &message {
        Message::SetMemTable(regions) => assert!(regions.len() <= REGIONS_MAX),
        Message::SetVringNum { queue, .. }
        | Message::SetVringAddr { queue, .. }
        | Message::SetVringBase { queue, .. }
        | Message::GetVringBase { queue }
        | Message::SetVringNotifier { queue, .. }
        | Message::SetVringEnable { queue, .. } => assert!(*queue < QUEUES_MAX),
        Message::GetConfig { offset, len } => assert!((offset + len) as usize <= CONFIG_MAX),
        Message::SetConfig { offset, bytes } => {
            assert!(*offset as usize + bytes.len() <= CONFIG_MAX);
        }
        Message::Other(_) => return true,
        _ => {}
    }
    let again = encode(&message, header.need_reply);
    let (first, rest) = again.split_first_chunk::<HEADER>().expect("a header");
    let same = Header::decode(first).expect("it was one");
    assert_eq!(same.request, header.request);
    assert_eq!(
        decode(&same, rest, usize::from(descriptors % 10)),
        Ok(message)
    );
    true
}
