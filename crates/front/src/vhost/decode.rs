//! Messages out of bytes.

use super::message::{
    Addresses, CONFIG_MAX, Fields, Header, InflightArea, Message, MessageError, NO_DESCRIPTOR,
    Notifies, QUEUES_MAX, REGIONS_MAX, Region, number,
};

/// Reads the payload of a message, which came with so many descriptors.
///
/// # Errors
/// [`MessageError`], but for its first two.
pub fn decode(
    header: &Header,
    payload: &[u8],
    descriptors: usize,
) -> Result<Message, MessageError> {
    let request = header.request;
    let shape = MessageError::Payload {
        request,
        len: payload.len(),
    };
    let message = read(request, payload).ok_or(shape)?;
    if let Some(queue) = queue_of(&message).filter(|&queue| queue >= QUEUES_MAX) {
        let queue = queue.into();
        return Err(MessageError::Queue { request, queue });
    }
    let takes = takes(&message);
    if takes.is_some_and(|takes| takes != descriptors) {
        return Err(MessageError::Descriptors {
            request,
            came: descriptors,
            takes: takes.unwrap_or_default(),
        });
    }
    Ok(message)
}

fn read(request: u32, payload: &[u8]) -> Option<Message> {
    let mut fields = Fields(payload);
    let f = &mut fields;
    let message = match request {
        number::GET_FEATURES => Message::GetFeatures,
        number::SET_FEATURES => Message::SetFeatures(f.u64()?),
        number::SET_OWNER => Message::SetOwner,
        number::RESET_OWNER => Message::ResetOwner,
        number::SET_MEM_TABLE => return read_table(payload),
        number::SET_VRING_NUM => {
            let (queue, size) = (queue(f.u32()?), f.u32()?);
            Message::SetVringNum { queue, size }
        }
        number::SET_VRING_ADDR => {
            let queue = queue(f.u32()?);
            // Flags: only logging, which is not offered.
            let (_flags, descriptors) = (f.u32()?, f.u64()?);
            let (used, available, _log) = (f.u64()?, f.u64()?, f.u64()?);
            let at = Addresses {
                descriptors,
                used,
                available,
            };
            Message::SetVringAddr { queue, at }
        }
        number::SET_VRING_BASE => {
            let (queue, index) = (queue(f.u32()?), f.u32()?);
            Message::SetVringBase { queue, index }
        }
        number::GET_VRING_BASE => {
            let (queue, _) = (queue(f.u32()?), f.u32()?);
            Message::GetVringBase { queue }
        }
        number::SET_VRING_KICK => notifier(Notifies::Kick, f.u64()?),
        number::SET_VRING_CALL => notifier(Notifies::Call, f.u64()?),
        number::SET_VRING_ERR => notifier(Notifies::Error, f.u64()?),
        number::GET_PROTOCOL_FEATURES => Message::GetProtocolFeatures,
        number::SET_PROTOCOL_FEATURES => Message::SetProtocolFeatures(f.u64()?),
        number::GET_QUEUE_NUM => Message::GetQueueNum,
        number::SET_VRING_ENABLE => {
            let (queue, on) = (queue(f.u32()?), f.u32()? != 0);
            Message::SetVringEnable { queue, on }
        }
        number::SET_BACKEND_REQ_FD => Message::SetBackendReq,
        number::GET_CONFIG | number::SET_CONFIG => return read_config(request, payload),
        number::GET_INFLIGHT_FD | number::SET_INFLIGHT_FD => {
            let area = InflightArea::decode(payload).filter(|_| payload.len() <= 24)?;
            return Some(match request {
                number::GET_INFLIGHT_FD => Message::GetInflight(area),
                _ => Message::SetInflight(area),
            });
        }
        other => return Some(Message::Other(other)),
    };
    fields.only(message)
}

/// Descriptors that come with it; none if any number may.
fn takes(message: &Message) -> Option<usize> {
    Some(match message {
        Message::SetMemTable(regions) => regions.len(),
        Message::SetVringNotifier { given, .. } => usize::from(*given),
        Message::SetBackendReq | Message::SetInflight(_) => 1,
        Message::Other(_) => return None,
        _ => 0,
    })
}

fn read_config(request: u32, payload: &[u8]) -> Option<Message> {
    let mut fields = Fields(payload);
    let (offset, len, _flags) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let end = (offset as usize).checked_add(len as usize)?;
    if end > CONFIG_MAX || fields.0.len() > CONFIG_MAX {
        return None;
    }
    if request == number::GET_CONFIG {
        return Some(Message::GetConfig { offset, len });
    }
    let bytes = fields.0.get(..len as usize)?.to_vec();
    Some(Message::SetConfig { offset, bytes })
}

fn read_table(payload: &[u8]) -> Option<Message> {
    let mut fields = Fields(payload);
    let (count, _padding) = (fields.u32()? as usize, fields.u32()?);
    if count > REGIONS_MAX {
        return None;
    }
    let mut regions = Vec::with_capacity(count);
    for _ in 0..count {
        regions.push(Region {
            guest: fields.u64()?,
            len: fields.u64()?,
            client: fields.u64()?,
            offset: fields.u64()?,
        });
    }
    fields.only(Message::SetMemTable(regions))
}

/// A queue's number; one that is too great stays so.
fn queue(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn notifier(what: Notifies, value: u64) -> Message {
    Message::SetVringNotifier {
        queue: (value & 0xff) as u16,
        what,
        given: value & NO_DESCRIPTOR == 0,
    }
}

fn queue_of(message: &Message) -> Option<u16> {
    match message {
        Message::SetVringNum { queue, .. }
        | Message::SetVringAddr { queue, .. }
        | Message::SetVringBase { queue, .. }
        | Message::GetVringBase { queue }
        | Message::SetVringNotifier { queue, .. }
        | Message::SetVringEnable { queue, .. } => Some(*queue),
        _ => None,
    }
}
