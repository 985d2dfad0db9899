//! Lists longer than one answer: asked for in parts, and joined.
//!
//! Between two parts the store may change. What a server tells must be in order and without gaps; what is not ends the
//! connection.

use super::connection::Shared;
use super::error::ClientError;
use crate::object::damage::Damage;
use crate::object::types::AllocatedRange;
use crate::ops::{Request, Response};

/// All ranges of `len` bytes from `offset`. What changed meanwhile has a later version.
pub(super) async fn allocated_ranges(
    shared: &Shared,
    object: &str,
    offset: u64,
    len: u64,
) -> Result<Response, ClientError> {
    let end = offset.saturating_add(len);
    let mut all: Vec<AllocatedRange> = Vec::new();
    let mut from = offset;
    loop {
        let request = Request::AllocatedRanges {
            object: object.to_owned(),
            offset: from,
            len: end - from,
        };
        let answer = shared.on_objects(request).await?;
        let Response::AllocatedRanges {
            allocated_ranges,
            more,
        } = answer
        else {
            unreachable!("decoded by what was asked: {answer:?}")
        };
        for range in allocated_ranges {
            if range.offset != from || range.len == 0 || range.len > end - from {
                let why = "the extents it tells of leave gaps or overlap".to_owned();
                return Err(shared.broken(why));
            }
            from += range.len;
            match all.last_mut() {
                Some(last) if last.data == range.data && last.version == range.version => {
                    last.len += range.len;
                }
                _ => all.push(range),
            }
        }
        if !more || from == end {
            return Ok(Response::AllocatedRanges {
                allocated_ranges: all,
                more: false,
            });
        }
    }
}

/// All damage of objects whose names begin with `prefix`, from byte `offset` of `object` on.
pub(super) async fn damage(
    shared: &Shared,
    prefix: &str,
    mut object: String,
    mut offset: u64,
) -> Result<Response, ClientError> {
    let mut all: Vec<Damage> = Vec::new();
    loop {
        let request = Request::Damage {
            prefix: prefix.to_owned(),
            object,
            offset,
            most: usize::MAX,
        };
        let answer = shared.on_objects(request).await?;
        let Response::Damage { damage, more } = answer else {
            unreachable!("decoded by what was asked: {answer:?}")
        };
        let ends = damage.is_empty();
        for one in damage {
            if all.last().is_some_and(|last| *last >= one) || one.len == 0 {
                let why = "the damage it tells of is in no order".to_owned();
                return Err(shared.broken(why));
            }
            all.push(one);
        }
        match all.last() {
            Some(last) if more && !ends => {
                object = last.object.clone();
                offset = last.offset.saturating_add(last.len);
            }
            _ => {
                return Ok(Response::Damage {
                    damage: all,
                    more: false,
                });
            }
        }
    }
}
