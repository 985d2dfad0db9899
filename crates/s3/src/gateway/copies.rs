//! Objects made of others: a copy has the same bytes in the stores, a part has bytes of its own.
//!
//! Always true: a copy is one change of the index; it moves no bytes, whatever its length.

use std::ops::Range;

use policy::share::Direction;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::conditions::Expected;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::headers::{etag, moment, said};
use super::incoming::{Promised, receive};
use super::locks::lock_said;
use super::objects::{show_checksum, show_part_sum, shown_version};
use super::outgoing::send;
use super::policies::Action;
use super::service::Service;
use super::uploads::part_number;
use crate::index::record::{Content, Pairs, Part as Record, Version};
use crate::index::{Condition, Found, Transaction, UploadRef, Uploads};

/// What a copy expects of its source, of either kind.
macro_rules! of_source {
    ($input:expr) => {
        Expected {
            matches: $input.copy_source_if_match.take(),
            none_matches: $input.copy_source_if_none_match.take(),
            modified_since: $input.copy_source_if_modified_since.take(),
            unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}

/// The longest object that one request copies: 5 GiB.
const COPY_MAX: u64 = 5 << 30;

/// The object that is copied.
struct Source {
    bucket: crate::Bucket,
    found: Found,
    content: Content,
}

fn source_of<T>(
    gateway: &Gateway,
    request: &Request<T>,
    source: &CopySource,
    expected: &Expected,
) -> S3Result<Source> {
    let CopySource::Bucket {
        bucket,
        key,
        version_id,
    } = source
    else {
        return Err(s3_error!(NotImplemented, "copies are made of BUCKET/KEY"));
    };
    let version = version_id.as_deref();
    let asked = Asked::of(request, bucket, Action::GetObject)?;
    let asked = asked.key(key).version(version);
    let (bucket, found, content) = gateway.admit_to(&asked, version)?;
    expected
        .check(&found.version, &content)
        .map_err(|error| match error.code() {
            S3ErrorCode::NotModified => s3_error!(
                PreconditionFailed,
                "the source is not as the request expects it"
            ),
            _ => error,
        })?;
    Ok(Source {
        bucket,
        found,
        content,
    })
}

/// What a copy asks of the bucket that it goes to. Its source is said as it is read, however the header writes it.
fn asked_of<T>(
    request: &Request<T>,
    (bucket, key): (&str, &str),
    source: &CopySource,
) -> S3Result<Asked> {
    let asked = Asked::of(request, bucket, Action::PutObject)?.key(key);
    Ok(match source {
        CopySource::Bucket { bucket, key, .. } => {
            let source = format!("{bucket}/{key}");
            asked.saying("s3:x-amz-copy-source", Some(&source))
        }
        _ => asked,
    })
}

/// Tags that a copy takes along are got, and put.
fn check_tags<T>(
    gateway: &Gateway,
    (request, asked): (&Request<T>, &Asked),
    (source, tags): (&CopySource, &Pairs),
) -> S3Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    let mut put = asked.clone().tagging(tags);
    put.beside.push(Action::PutObjectTagging);
    gateway.admit(&put)?;
    if let CopySource::Bucket {
        bucket,
        key,
        version_id,
    } = source
    {
        let version = version_id.as_deref();
        let mut got = Asked::of(request, bucket, Action::GetObject)?.key(key);
        got.beside.push(match version {
            Some(_) => Action::GetObjectVersionTagging,
            None => Action::GetObjectTagging,
        });
        gateway.admit_to(&got.version(version), version)?;
    }
    Ok(())
}

fn is_itself(request: &CopyObjectInput) -> bool {
    match &request.copy_source {
        CopySource::Bucket {
            bucket,
            key,
            version_id: None,
        } => **bucket == *request.bucket && **key == *request.key,
        _ => false,
    }
}

/// What a copy is: as its source, but for what the request replaces.
fn content_of(input: &mut CopyObjectInput, source: &Source) -> S3Result<Content> {
    let replaces = |directive: Option<&str>| directive == Some("REPLACE");
    let of_object = replaces(
        input
            .metadata_directive
            .as_ref()
            .map(MetadataDirective::as_str),
    );
    let of_tags = replaces(
        input
            .tagging_directive
            .as_ref()
            .map(TaggingDirective::as_str),
    );
    if is_itself(input) && !of_object && !of_tags && input.storage_class.is_none() {
        return Err(s3_error!(
            InvalidRequest,
            "an object is copied onto itself only to change its metadata or tags"
        ));
    }
    let given = said!(input).into_about()?;
    let mut content = source.content.clone();
    if of_object {
        (content.about.headers, content.about.metadata) = (given.headers, given.metadata);
    }
    if of_tags {
        content.about.tags = given.tags;
    }
    Ok(content)
}

pub(super) async fn copy(
    gateway: &Gateway,
    mut request: Request<CopyObjectInput>,
) -> Answer<CopyObjectOutput> {
    let at = (&*request.input.bucket, &*request.input.key);
    let asked = asked_of(&request, at, &request.input.copy_source)?;
    let bucket = gateway.admit(&asked)?;
    let account = &asked.caller.account;
    let (owner, grants) = gateway.owned(&request.headers, account, &bucket)?;
    let expected = of_source!(request.input);
    let source = source_of(gateway, &request, &request.input.copy_source, &expected)?;
    if source.content.size > COPY_MAX {
        return Err(s3_error!(
            InvalidRequest,
            "one request copies at most {COPY_MAX} bytes: copy the object in parts"
        ));
    }
    let content = content_of(&mut request.input, &source)?;
    let now = gateway.now();
    let lock = lock_said!(request.input, now)?;
    let input = &request.input;
    let tags = (&input.copy_source, &content.about.tags);
    check_tags(gateway, (&request, &asked), tags)?;
    let version = Version {
        modified: now,
        owner,
        grants,
        lock,
        content: Some(content.clone()),
        ..Version::default()
    };
    let (name, key, inline) = (
        input.bucket.clone(),
        input.key.clone(),
        source.found.inline.clone(),
    );
    let id = bucket.id;
    gateway.check_room()?;
    let put = move |t: &mut Transaction<'_>| {
        t.is_still(&name, id)?;
        t.copy((&name, &key), version, &inline, &Condition::Any)
    };
    let number = gateway.index.change(put).await.map_err(failed)?;
    let mut result = CopyObjectResult {
        e_tag: Some(etag(&content.etag)),
        last_modified: Some(moment(now)),
        ..CopyObjectResult::default()
    };
    show_checksum!(result, content.checksum.as_ref());
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id: shown_version(&source.found, source.bucket.versioning),
        version_id: number.map(|it| it.to_string()),
        ..CopyObjectOutput::default()
    }))
}

pub(super) async fn copy_part(
    gateway: &Gateway,
    mut request: Request<UploadPartCopyInput>,
) -> Answer<UploadPartCopyOutput> {
    let at = (&*request.input.bucket, &*request.input.key);
    let asked = asked_of(&request, at, &request.input.copy_source)?;
    let bucket = gateway.admit(&asked)?;
    let caller = asked.caller.clone();
    let number = part_number(request.input.part_number)?;
    let expected = of_source!(request.input);
    let source = source_of(gateway, &request, &request.input.copy_source, &expected)?;
    let input = request.input;
    let found = gateway.index.begun(bucket.id, &input.key, &input.upload_id);
    let upload = found.map_err(failed)?;
    let range = range_of(input.copy_source_range.as_deref(), source.content.size)?;
    let promised = Promised::of(&hyper::HeaderMap::new(), None, None)?
        .or_algorithm(upload.algorithm.as_deref());
    let read = Service::of(gateway, (&source.bucket, &caller), Direction::Read);
    let service = Service::of(gateway, (&bucket, &caller), Direction::Write);
    let bytes = send(
        (gateway, &read),
        &source.content,
        &source.found.inline,
        range,
    )
    .await?;
    let received = receive(
        gateway,
        (&input.bucket, &service),
        Some(bytes),
        &promised,
        0,
    )
    .await?;
    gateway.may_still(&asked, bucket.id)?;
    let at = UploadRef {
        bucket: input.bucket,
        key: input.key,
        id: input.upload_id,
    };
    let part = Record {
        modified: gateway.now(),
        size: received.size,
        etag: received.md5.clone(),
        checksum: received.checksum.clone(),
        blobs: received.blobs(),
    };
    let result = result_of(&part);
    let put = move |t: &mut Transaction<'_>| Uploads(t).put_part(&at, number, &part);
    gateway.index.change(put).await.map_err(failed)?;
    received.finished();
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id: shown_version(&source.found, source.bucket.versioning),
        ..UploadPartCopyOutput::default()
    }))
}

/// What is answered of a part that was copied.
fn result_of(part: &Record) -> CopyPartResult {
    let mut result = CopyPartResult {
        e_tag: Some(etag(&part.etag)),
        last_modified: Some(moment(part.modified)),
        ..CopyPartResult::default()
    };
    show_part_sum!(result, part.checksum.as_ref());
    result
}

/// `bytes=FIRST-LAST` of an object of `size` bytes; both are named, and there.
fn range_of(text: Option<&str>, size: u64) -> S3Result<Range<u64>> {
    let Some(text) = text else {
        return Ok(0..size);
    };
    let bad = || {
        s3_error!(
            InvalidArgument,
            "x-amz-copy-source-range is bytes=FIRST-LAST, both within the source"
        )
    };
    let (first, last) = text
        .strip_prefix("bytes=")
        .and_then(|it| it.split_once('-'))
        .ok_or_else(bad)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(bad());
    }
    if last >= size {
        return Err(S3Error::with_message(
            S3ErrorCode::InvalidRange,
            format!("the source has {size} bytes"),
        ));
    }
    Ok(first..last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_a_source_is_whole_or_refused() {
        assert_eq!(range_of(None, 7).unwrap(), 0..7);
        assert_eq!(range_of(Some("bytes=0-6"), 7).unwrap(), 0..7);
        for (text, code) in [
            ("0-6", S3ErrorCode::InvalidArgument),
            ("bytes=3-", S3ErrorCode::InvalidArgument),
            ("bytes=3-2", S3ErrorCode::InvalidArgument),
            ("bytes=0-7", S3ErrorCode::InvalidRange),
        ] {
            assert_eq!(*range_of(Some(text), 7).unwrap_err().code(), code, "{text}");
        }
    }
}
