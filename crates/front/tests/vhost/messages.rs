//! The bytes of messages: as they were sent they come back, and whatever comes is a message or an error.

use env::Rng;
use front::vhost::message::{
    Addresses, HEADER, Header, InflightArea, Message, MessageError, Notifies, PAYLOAD_MAX, Region,
    config_changed, reply,
};
use front::vhost::{decode, encode};

use crate::{any_message, any_ring};

/// One of each kind.
pub fn all() -> Vec<(Message, usize)> {
    let region = |number: u64| Region {
        guest: number << 32,
        len: 4096,
        client: 0x7f00_0000_0000 + (number << 32),
        offset: number * 4096,
    };
    let at = Addresses {
        descriptors: 1 << 40,
        used: 2 << 40,
        available: 3 << 40,
    };
    let area = InflightArea {
        len: 8192,
        offset: 4096,
        queues: 2,
        size: 128,
    };
    let notifier = |what, given| Message::SetVringNotifier {
        queue: 255,
        what,
        given,
    };
    let bytes = vec![1, 2, 3];
    vec![
        (Message::GetFeatures, 0),
        (Message::SetFeatures(1 << 32), 0),
        (Message::SetOwner, 0),
        (Message::ResetOwner, 0),
        (Message::SetMemTable(vec![region(0), region(1)]), 2),
        (Message::SetVringNum { queue: 1, size: 64 }, 0),
        (Message::SetVringAddr { queue: 2, at }, 0),
        (Message::SetVringBase { queue: 3, index: 7 }, 0),
        (Message::GetVringBase { queue: 4 }, 0),
        (notifier(Notifies::Kick, true), 1),
        (notifier(Notifies::Call, false), 0),
        (notifier(Notifies::Error, true), 1),
        (Message::GetProtocolFeatures, 0),
        (Message::SetProtocolFeatures(0x1229), 0),
        (Message::GetQueueNum, 0),
        (Message::SetVringEnable { queue: 5, on: true }, 0),
        (Message::SetBackendReq, 1),
        (Message::GetConfig { offset: 0, len: 60 }, 0),
        (Message::SetConfig { offset: 32, bytes }, 0),
        (Message::GetInflight(area), 0),
        (Message::SetInflight(area), 1),
        (Message::Other(34), 3),
    ]
}

fn read(bytes: &[u8], descriptors: usize) -> Result<Message, MessageError> {
    let (header, payload) = bytes.split_first_chunk().expect("a header");
    let header = Header::decode(header)?;
    assert!(header.len <= PAYLOAD_MAX);
    decode(
        &header,
        &payload[..header.len.min(payload.len())],
        descriptors,
    )
}

#[test]
fn a_message_comes_back_as_it_was_sent() {
    for (message, descriptors) in all() {
        let bytes = encode(&message, true);
        assert_eq!(read(&bytes, descriptors), Ok(message.clone()));
        let header = Header::decode(bytes.first_chunk().unwrap()).unwrap();
        assert!(header.need_reply && header.len == bytes.len() - HEADER);
        // Cut short, drawn out, or with another number of descriptors it is none.
        if matches!(message, Message::Other(_)) {
            continue;
        }
        assert!(read(&bytes, descriptors + 1).is_err(), "{message:?}");
        let payload = &bytes[HEADER..];
        let inflight = matches!(message, Message::GetInflight(_) | Message::SetInflight(_));
        let config = matches!(
            message,
            Message::GetConfig { .. } | Message::SetConfig { .. }
        );
        if !payload.is_empty() {
            // Padding and room for an answer may be missing.
            let less = if inflight {
                19
            } else if config {
                11
            } else {
                payload.len() - 1
            };
            assert!(
                decode(&header, &payload[..less], descriptors).is_err(),
                "{message:?}"
            );
        }
        if !config {
            let more = [payload, &[0; 8]].concat();
            assert!(decode(&header, &more, descriptors).is_err(), "{message:?}");
        }
    }
}

#[test]
fn a_header_of_another_version_or_an_answer_is_refused() {
    let good = Header {
        request: 1,
        need_reply: false,
        len: 0,
    };
    assert_eq!(Header::decode(&good.encode()), Ok(good));
    for flags in [0u32, 2, 3, 5, 1 << 2] {
        let mut bytes = good.encode();
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(MessageError::Flags { flags }));
    }
    let mut bytes = good.encode();
    bytes[8..].copy_from_slice(&4097u32.to_le_bytes());
    let long = MessageError::TooLong { len: 4097 };
    assert_eq!(Header::decode(&bytes), Err(long));
    assert_eq!(reply(1, &[7])[..], [1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(config_changed()[..8], [2, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn whatever_comes_is_a_message_within_bounds_or_an_error() {
    let mut rng = Rng::from_seed(1);
    let all = all();
    let mut messages = 0;
    for _ in 0..200_000 {
        let (message, descriptors) = &all[rng.below(all.len() as u64) as usize];
        let mut bytes = vec![*descriptors as u8];
        bytes.extend(encode(message, rng.chance(0.5)));
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = [0, 1, 8, 0xff, rng.bits() as u8][rng.below(5) as usize];
        }
        if rng.chance(0.2) {
            bytes.truncate(HEADER + rng.below(300) as usize);
        }
        messages += u64::from(any_message::check(&bytes));
    }
    assert!(messages > 50_000, "{messages}");
}

#[test]
fn whatever_is_in_memory_a_ring_stays_within_it() {
    let mut read = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = vec![0; 0x5000];
        bytes[0] = rng.bits() as u8;
        let mut put =
            |at: usize, with: &[u8]| bytes[1 + at..1 + at + with.len()].copy_from_slice(with);
        put(0x1000 + 2, &[rng.below(40) as u8, 0]);
        for entry in 0..128 {
            let to = [0, 0x3000, 0x3ff8, 0x7ff8, rng.bits()][rng.below(5) as usize];
            let len = [0, 1, 16, 17, 64, 4096, u32::MAX][rng.below(7) as usize];
            let mut descriptor = [0; 16];
            descriptor[..8].copy_from_slice(&u64::to_le_bytes(to));
            descriptor[8..12].copy_from_slice(&len.to_le_bytes());
            descriptor[12] = rng.below(8) as u8;
            descriptor[14] = rng.below(20) as u8;
            put(16 * entry, &descriptor);
            // Tables of their own lie there.
            if entry < 64 {
                put(0x3000 + 16 * entry, &descriptor);
            }
            put(0x1004 + 2 * entry, &[rng.below(20) as u8, 0]);
        }
        for _ in 0..rng.below(8) {
            let at = rng.below(0x1000) as usize;
            put(0x4000 - 0x1000 + at, &[rng.bits() as u8]);
        }
        read += any_ring::check(&bytes);
    }
    assert!(read > 5_000, "{read}");
}
