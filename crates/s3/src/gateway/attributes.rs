//! What is asked of an object beside its bytes, in one answer: ETag, checksum, parts, length.

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::headers::{etag, second};
use super::objects::{show_checksum, show_part_sum, shown_version};
use super::policies::Action;
use crate::index::record::{Checksum as Sum, Content};

/// The most parts of one answer.
const PARTS_MAX: i32 = 1000;

pub(super) fn get(
    gateway: &Gateway,
    request: Request<GetObjectAttributesInput>,
) -> Answer<GetObjectAttributesOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::GetObject)?;
    let input = request.input;
    let version = input.version_id.as_deref();
    let mut asked = asked.key(&input.key).version(version);
    // Attributes are of the object, and as much as it says.
    asked.with.push(match version {
        Some(_) => Action::GetObjectVersionAttributes,
        None => Action::GetObjectAttributes,
    });
    let (bucket, found, content) = gateway.admit_to(&asked, version)?;
    // Clients send one header with all names, or one each.
    let names = input
        .object_attributes
        .iter()
        .flat_map(|it| it.as_str().split(','));
    let asked: Vec<&str> = names.map(str::trim).collect();
    let asks = |name: &str| asked.contains(&name);
    let parts = match asks(ObjectAttributes::OBJECT_PARTS) && !content.parts.is_empty() {
        true => Some(parts_of(
            &content,
            input.max_parts,
            input.part_number_marker,
        )?),
        false => None,
    };
    let checksum = content.checksum.as_ref().map(|sum| {
        let mut shown = Checksum::default();
        show_checksum!(shown, Some(sum));
        shown
    });
    let standard = StorageClass::from_static(StorageClass::STANDARD);
    Ok(S3Response::new(GetObjectAttributesOutput {
        checksum: checksum.filter(|_| asks(ObjectAttributes::CHECKSUM)),
        e_tag: asks(ObjectAttributes::ETAG).then(|| etag(&content.etag)),
        last_modified: Some(second(found.version.modified)),
        object_parts: parts,
        object_size: asks(ObjectAttributes::OBJECT_SIZE).then_some(content.size as i64),
        storage_class: asks(ObjectAttributes::STORAGE_CLASS).then_some(standard),
        version_id: shown_version(&found, bucket.versioning),
        ..GetObjectAttributesOutput::default()
    }))
}

fn parts_of(
    content: &Content,
    most: Option<i32>,
    after: Option<i32>,
) -> S3Result<GetObjectAttributesParts> {
    let (most, after) = (most.unwrap_or(PARTS_MAX), after.unwrap_or(0));
    if most < 0 || after < 0 {
        return Err(s3_error!(
            InvalidArgument,
            "a number of parts is below zero"
        ));
    }
    let most = most.min(PARTS_MAX);
    let behind = content
        .parts
        .iter()
        .filter(|it| i64::from(it.number) > i64::from(after));
    let shown: Vec<ObjectPart> = (behind.clone().take(most as usize))
        .map(|part| {
            let mut shown = ObjectPart {
                part_number: Some(part.number as i32),
                size: Some(part.size as i64),
                ..ObjectPart::default()
            };
            let sum = part_sum(content, part.checksum.as_ref());
            show_part_sum!(shown, sum.as_ref());
            shown
        })
        .collect();
    Ok(GetObjectAttributesParts {
        is_truncated: Some(behind.count() > shown.len()),
        max_parts: Some(most),
        next_part_number_marker: shown.last().and_then(|it| it.part_number),
        part_number_marker: Some(after),
        total_parts_count: Some(content.parts.len() as i32),
        parts: Some(shown),
    })
}

/// The checksum of a part, by the algorithm of its object.
pub(super) fn part_sum(content: &Content, value: Option<&String>) -> Option<Sum> {
    let of_object = content.checksum.as_ref()?;
    Some(Sum {
        value: value?.clone(),
        ..of_object.clone()
    })
}
