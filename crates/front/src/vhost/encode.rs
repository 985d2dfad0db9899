//! The same messages as a client writes them, and the shape of an answer about configuration.

use super::message::number;
use super::message::{CONFIG_MAX, Header, Message, NO_DESCRIPTOR, Notifies, Region};

/// A message as a client writes it: header and payload.
pub fn encode(message: &Message, need_reply: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    let request = write(message, &mut payload);
    let header = Header {
        request,
        need_reply,
        len: payload.len(),
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend(payload);
    bytes
}

fn write(message: &Message, out: &mut Vec<u8>) -> u32 {
    let mut state = |request, queue: u16, value: u32| {
        out.extend(u32::from(queue).to_le_bytes());
        out.extend(value.to_le_bytes());
        request
    };
    match message {
        Message::GetFeatures => number::GET_FEATURES,
        Message::SetOwner => number::SET_OWNER,
        Message::ResetOwner => number::RESET_OWNER,
        Message::GetProtocolFeatures => number::GET_PROTOCOL_FEATURES,
        Message::GetQueueNum => number::GET_QUEUE_NUM,
        Message::SetBackendReq => number::SET_BACKEND_REQ_FD,
        Message::Other(request) => *request,
        Message::SetVringNum { queue, size } => state(number::SET_VRING_NUM, *queue, *size),
        Message::SetVringBase { queue, index } => state(number::SET_VRING_BASE, *queue, *index),
        Message::GetVringBase { queue } => state(number::GET_VRING_BASE, *queue, 0),
        Message::SetVringEnable { queue, on } => {
            state(number::SET_VRING_ENABLE, *queue, u32::from(*on))
        }
        Message::SetFeatures(bits) | Message::SetProtocolFeatures(bits) => {
            out.extend(bits.to_le_bytes());
            match message {
                Message::SetFeatures(_) => number::SET_FEATURES,
                _ => number::SET_PROTOCOL_FEATURES,
            }
        }
        Message::SetVringNotifier { queue, what, given } => {
            let none = if *given { 0 } else { NO_DESCRIPTOR };
            out.extend((u64::from(*queue) | none).to_le_bytes());
            notifies(*what)
        }
        Message::SetVringAddr { queue, at } => {
            out.extend(u64::from(*queue).to_le_bytes());
            for address in [at.descriptors, at.used, at.available, 0] {
                out.extend(address.to_le_bytes());
            }
            number::SET_VRING_ADDR
        }
        Message::SetMemTable(regions) => {
            put_regions(out, regions);
            number::SET_MEM_TABLE
        }
        Message::GetConfig { offset, len } => {
            put_config(out, *offset, &vec![0; (*len as usize).min(CONFIG_MAX)]);
            number::GET_CONFIG
        }
        Message::SetConfig { offset, bytes } => {
            put_config(out, *offset, bytes);
            number::SET_CONFIG
        }
        Message::GetInflight(area) | Message::SetInflight(area) => {
            out.extend(area.encode());
            match message {
                Message::GetInflight(_) => number::GET_INFLIGHT_FD,
                _ => number::SET_INFLIGHT_FD,
            }
        }
    }
}

fn notifies(what: Notifies) -> u32 {
    match what {
        Notifies::Kick => number::SET_VRING_KICK,
        Notifies::Call => number::SET_VRING_CALL,
        Notifies::Error => number::SET_VRING_ERR,
    }
}

fn put_regions(out: &mut Vec<u8>, regions: &[Region]) {
    out.extend((regions.len() as u64).to_le_bytes());
    for region in regions {
        for field in [region.guest, region.len, region.client, region.offset] {
            out.extend(field.to_le_bytes());
        }
    }
}

/// The payload of a message about configuration, and of the answer to one.
pub fn put_config(out: &mut Vec<u8>, offset: u32, bytes: &[u8]) {
    out.extend(offset.to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(bytes);
}
