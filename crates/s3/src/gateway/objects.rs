//! Objects: put, got, looked at, deleted.

use std::ops::Range;

use policy::share::Direction;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::attributes::part_sum;
use super::conditions::{Expected, of_change};
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::headers::{etag, said, second, show_about};
use super::incoming::{Promised, Received, receive};
use super::locks::{lock_said, show_lock};
use super::outgoing::send;
use super::policies::Action;
use super::service::Service;
use crate::index::record::{
    About, Checksum as Sum, Content, INLINE_MAX, Pairs, Version as Record, VersionId,
};
use crate::index::{Found, Refused, Transaction};

/// Gives an output the checksum of a part.
macro_rules! show_part_sum {
    ($output:expr, $sum:expr) => {
        if let Some(sum) = $sum {
            let value = Some(sum.value.clone());
            match sum.algorithm.as_str() {
                "CRC32" => $output.checksum_crc32 = value,
                "CRC32C" => $output.checksum_crc32c = value,
                "CRC64NVME" => $output.checksum_crc64nvme = value,
                "SHA1" => $output.checksum_sha1 = value,
                _ => $output.checksum_sha256 = value,
            }
        }
    };
}
pub(super) use show_part_sum;

/// Gives an output the checksum of its object, and of what it is.
macro_rules! show_checksum {
    ($output:expr, $sum:expr) => {
        if let Some(sum) = $sum {
            $crate::gateway::objects::show_part_sum!($output, Some(sum));
            $output.checksum_type = Some($crate::gateway::objects::type_of(sum));
        }
    };
}
pub(super) use show_checksum;

/// The longest key, in bytes: paths are looked at before, keys in XML and forms are not.
pub(super) const KEY_MAX: usize = 1024;
/// What an object is of which these bytes came.
fn content_of(received: &Received, about: About) -> Content {
    Content {
        size: received.size,
        etag: received.md5.clone(),
        about,
        checksum: received.checksum.clone(),
        blobs: received.blobs(),
        ..Content::default()
    }
}

/// What a put asks. What a form says in its fields is read where headers are.
fn asked_of(request: &mut Request<PutObjectInput>) -> S3Result<Asked> {
    let input = &request.input;
    let text = |text: &Option<String>| text.clone();
    let mode = input
        .object_lock_mode
        .as_ref()
        .map(|it| it.as_str().to_owned());
    let hold = input.object_lock_legal_hold_status.as_ref();
    for (name, value) in [
        (
            "x-amz-acl",
            input.acl.as_ref().map(|it| it.as_str().to_owned()),
        ),
        ("x-amz-grant-full-control", text(&input.grant_full_control)),
        ("x-amz-grant-read", text(&input.grant_read)),
        ("x-amz-grant-read-acp", text(&input.grant_read_acp)),
        ("x-amz-grant-write-acp", text(&input.grant_write_acp)),
        ("x-amz-tagging", text(&input.tagging)),
        ("x-amz-object-lock-mode", mode),
        (
            "x-amz-object-lock-legal-hold",
            hold.map(|it| it.as_str().to_owned()),
        ),
    ] {
        let Some(value) = value.filter(|_| !request.headers.contains_key(name)) else {
            continue;
        };
        let value = hyper::header::HeaderValue::from_str(&value);
        let value = value.map_err(|_| s3_error!(InvalidArgument, "{name} is no line of text"))?;
        request.headers.insert(name, value);
    }
    let asked = Asked::of(request, &request.input.bucket, Action::PutObject)?;
    Ok(asked.key(&request.input.key))
}

pub(super) async fn put(
    gateway: &Gateway,
    mut request: Request<PutObjectInput>,
) -> Answer<PutObjectOutput> {
    let asked = asked_of(&mut request)?;
    let bucket = gateway.admit(&asked)?;
    let caller = asked.caller.clone();
    let (owner, grants) = gateway.owned(&request.headers, &caller.account, &bucket)?;
    let promised = Promised::of(
        &request.headers,
        request.trailing_headers.take(),
        request.input.content_length,
    )?;
    let input = &mut request.input;
    if input.key.is_empty() || input.key.len() > KEY_MAX {
        return Err(s3_error!(KeyTooLongError, "a key has 1 to {KEY_MAX} bytes"));
    }
    let about = said!(input).into_about()?;
    let lock = lock_said!(input, gateway.now())?;
    let condition = of_change(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let service = Service::of(gateway, (&bucket, &caller), Direction::Write);
    let received = receive(
        gateway,
        (&input.bucket, &service),
        input.body.take(),
        &promised,
        INLINE_MAX,
    )
    .await?;
    gateway.may_still(&asked, bucket.id)?;
    let version = Record {
        modified: gateway.now(),
        owner,
        grants,
        lock,
        content: Some(content_of(&received, about)),
        ..Record::default()
    };
    let (name, key, inline) = (
        input.bucket.clone(),
        input.key.clone(),
        received.inline.clone(),
    );
    let put = move |t: &mut Transaction<'_>| {
        t.is_still(&name, bucket.id)?;
        t.put((&name, &key), version, &inline, &condition)
    };
    let number = gateway.index.change(put).await.map_err(failed)?;
    let mut output = PutObjectOutput {
        e_tag: Some(etag(&received.md5)),
        version_id: number.map(|it| it.to_string()),
        ..PutObjectOutput::default()
    };
    show_checksum!(output, received.checksum.as_ref());
    received.finished();
    let mut response = S3Response::new(output);
    service.show(gateway, &mut response.headers).await;
    Ok(response)
}

pub(super) fn type_of(sum: &Sum) -> ChecksumType {
    ChecksumType::from_static(match sum.full_object {
        true => ChecksumType::FULL_OBJECT,
        false => ChecksumType::COMPOSITE,
    })
}

/// Which bytes are asked for, and what is said of them.
struct Part {
    range: Range<u64>,
    /// Only some: `Content-Range`.
    shown: Option<String>,
    /// Of an object in parts, how many it has.
    count: Option<i32>,
}

fn part_of(
    content: &Content,
    range: Option<&s3s::dto::Range>,
    number: Option<i32>,
) -> S3Result<Part> {
    let size = content.size;
    let shown =
        |range: &Range<u64>| Some(format!("bytes {}-{}/{size}", range.start, range.end - 1));
    let (range, count) = match (range, number) {
        (None, None) => {
            return Ok(Part {
                range: 0..size,
                shown: None,
                count: None,
            });
        }
        (Some(range), None) => (range.check(size)?, None),
        (None, Some(number)) => {
            let found = place_of(content, number).ok_or_else(|| {
                let error = format!("the object has no part {number}");
                S3Error::with_message(S3ErrorCode::InvalidPart, error)
            })?;
            (found, Some(content.parts.len() as i32).filter(|it| *it > 0))
        }
        (Some(_), Some(_)) => {
            return Err(s3_error!(
                InvalidRequest,
                "send Range or partNumber, not both"
            ));
        }
    };
    let shown = (range.start < range.end).then(|| shown(&range)).flatten();
    Ok(Part {
        range,
        shown,
        count,
    })
}

/// Where a part lies in its object. What came in one piece is part 1.
fn place_of(content: &Content, number: i32) -> Option<Range<u64>> {
    if content.parts.is_empty() {
        return (number == 1).then_some(0..content.size);
    }
    let mut begin = 0;
    for part in &content.parts {
        if i64::from(part.number) == i64::from(number) {
            return Some(begin..begin + part.size);
        }
        begin += part.size;
    }
    None
}

pub(super) async fn get(
    gateway: &Gateway,
    request: Request<GetObjectInput>,
) -> Answer<GetObjectOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::GetObject)?;
    let input = request.input;
    let version = input.version_id.as_deref();
    let asked = asked.key(&input.key).version(version);
    let (bucket, found, content) = gateway.admit_to(&asked, version)?;
    let caller = asked.caller;
    let expected = Expected {
        matches: input.if_match,
        none_matches: input.if_none_match,
        modified_since: input.if_modified_since,
        unmodified_since: input.if_unmodified_since,
    };
    expected.check(&found.version, &content)?;
    let part = part_of(&content, input.range.as_ref(), input.part_number)?;
    let mut output = GetObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: Some((part.range.end - part.range.start) as i64),
        content_range: part.shown,
        e_tag: Some(etag(&content.etag)),
        last_modified: Some(second(found.version.modified)),
        parts_count: part.count,
        tag_count: count_of(&content.about.tags),
        version_id: shown_version(&found, bucket.versioning),
        ..GetObjectOutput::default()
    };
    show_about!(output, content.about);
    show_lock!(output, found.version.lock);
    let whole = output.content_range.is_none();
    if asks(input.checksum_mode.as_ref()) {
        let sum = match input.part_number {
            Some(number) => sum_of_part(&content, number),
            None => content.checksum.clone().filter(|_| whole),
        };
        show_checksum!(output, sum.as_ref());
    }
    output.cache_control = input.response_cache_control.or(output.cache_control);
    output.content_disposition = input
        .response_content_disposition
        .or(output.content_disposition);
    output.content_encoding = input.response_content_encoding.or(output.content_encoding);
    output.content_language = input.response_content_language.or(output.content_language);
    output.content_type = input.response_content_type.or(output.content_type);
    output.expires = input.response_expires.or(output.expires);
    let service = Service::of(gateway, (&bucket, &caller), Direction::Read);
    let body = send((gateway, &service), &content, &found.inline, part.range).await?;
    output.body = Some(body);
    let mut response = S3Response::new(output);
    service.show(gateway, &mut response.headers).await;
    if !whole {
        response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
    }
    Ok(response)
}

/// The checksum of one part.
fn sum_of_part(content: &Content, number: i32) -> Option<Sum> {
    let mut parts = content.parts.iter();
    let part = parts.find(|it| i64::from(it.number) == i64::from(number));
    match part {
        Some(part) => part_sum(content, part.checksum.as_ref()),
        None => content.checksum.clone(),
    }
}

fn asks(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|it| it.as_str() == ChecksumMode::ENABLED)
}

fn count_of(tags: &Pairs) -> Option<i32> {
    (!tags.is_empty()).then_some(tags.len() as i32)
}

/// Versions are named only where the bucket has, or had, some.
pub(super) fn shown_version(found: &Found, versioning: crate::Versioning) -> Option<String> {
    (versioning != crate::Versioning::Off).then(|| found.id().to_string())
}

pub(super) async fn head(
    gateway: &Gateway,
    request: Request<HeadObjectInput>,
) -> Answer<HeadObjectOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::GetObject)?;
    let input = request.input;
    let version = input.version_id.as_deref();
    let asked = asked.key(&input.key).version(version);
    let (bucket, found, content) = gateway.admit_to(&asked, version)?;
    let expected = Expected {
        matches: input.if_match,
        none_matches: input.if_none_match,
        modified_since: input.if_modified_since,
        unmodified_since: input.if_unmodified_since,
    };
    expected.check(&found.version, &content)?;
    let part = part_of(&content, input.range.as_ref(), input.part_number)?;
    let mut output = HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: Some((part.range.end - part.range.start) as i64),
        content_range: part.shown,
        e_tag: Some(etag(&content.etag)),
        last_modified: Some(second(found.version.modified)),
        parts_count: part.count,
        version_id: shown_version(&found, bucket.versioning),
        ..HeadObjectOutput::default()
    };
    show_about!(output, content.about);
    show_lock!(output, found.version.lock);
    if asks(input.checksum_mode.as_ref()) {
        show_checksum!(output, content.checksum.as_ref());
    }
    let mut response = S3Response::new(output);
    if let Some(count) = count_of(&content.about.tags) {
        response.headers.insert("x-amz-tagging-count", count.into());
    }
    Ok(response)
}

/// The version that a change names.
pub(super) fn version_of(key: &str, text: Option<&str>) -> S3Result<Option<VersionId>> {
    let Some(text) = text.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let found = VersionId::parse(text);
    let (key, version) = (key.to_owned(), text.to_owned());
    let found = found.ok_or_else(|| failed(Refused::NoVersion { key, version }.into()))?;
    Ok(Some(found))
}
