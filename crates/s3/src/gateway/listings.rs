//! What listings show, in both of S3's forms and with versions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::account::owner;
use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::headers::{etag, moment};
use super::objects::type_of;
use super::policies::Action;
use crate::index::record::VersionId;
use crate::index::{Found, Listed, Wanted};

/// The most keys of one answer.
const KEYS_MAX: i32 = 1000;

/// How names are shown: as they are, or for URLs.
#[derive(Clone, Copy)]
struct Shown {
    encoded: bool,
}

impl Shown {
    fn of(encoding: Option<&EncodingType>) -> S3Result<Shown> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Shown { encoded: false }),
            Some(EncodingType::URL) => Ok(Shown { encoded: true }),
            Some(other) => Err(s3_error!(
                InvalidArgument,
                "encoding-type is url, not {other:?}"
            )),
        }
    }

    fn name(self, name: &str) -> String {
        match self.encoded {
            true => encoded(name),
            false => name.to_owned(),
        }
    }

    fn some(self, name: Option<&String>) -> Option<String> {
        name.map(|it| self.name(it))
    }

    fn prefixes(self, listed: &Listed) -> Option<CommonPrefixList> {
        let shown = listed.prefixes.iter().map(|prefix| CommonPrefix {
            prefix: Some(self.name(prefix)),
        });
        (!listed.prefixes.is_empty()).then(|| shown.collect())
    }

    fn object(self, key: &str, found: &Found, with_owner: bool) -> Object {
        let content = found.version.content.clone().unwrap_or_default();
        let sum = content.checksum.as_ref();
        Object {
            checksum_algorithm: sum.map(|it| vec![ChecksumAlgorithm::from(it.algorithm.clone())]),
            checksum_type: sum.map(type_of),
            e_tag: Some(etag(&content.etag)),
            key: Some(self.name(key)),
            last_modified: Some(moment(found.version.modified)),
            owner: with_owner.then(|| owner(&found.version.owner)),
            size: Some(content.size as i64),
            storage_class: Some(ObjectStorageClass::from_static(
                ObjectStorageClass::STANDARD,
            )),
            ..Object::default()
        }
    }
}

/// A name as URLs have it: slashes and what needs no sign stay.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'*' => {
                text.push(byte as char);
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn most(asked: Option<i32>) -> S3Result<i32> {
    match asked.unwrap_or(KEYS_MAX) {
        negative if negative < 0 => Err(s3_error!(InvalidArgument, "max-keys is below zero")),
        most => Ok(most.min(KEYS_MAX)),
    }
}

/// What a listing asks, of any kind.
macro_rules! listing {
    ($request:expr, $action:expr) => {{
        let (input, rows) = (&$request.input, most($request.input.max_keys)?);
        Asked::of($request, &input.bucket, $action)?
            .saying("s3:prefix", input.prefix.as_deref())
            .saying("s3:delimiter", input.delimiter.as_deref())
            .saying("s3:max-keys", Some(&rows.to_string()))
    }};
}

pub(super) fn first(
    gateway: &Gateway,
    request: Request<ListObjectsInput>,
) -> Answer<ListObjectsOutput> {
    let bucket = gateway.admit(&listing!(&request, Action::ListBucket))?;
    let input = request.input;
    let shown = Shown::of(input.encoding_type.as_ref())?;
    let asked = most(input.max_keys)?;
    let wanted = Wanted {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after: input.marker.clone().filter(|it| !it.is_empty()),
        most: asked as usize,
        ..Wanted::default()
    };
    let listed = gateway.index.list(bucket.id, &wanted).map_err(failed)?;
    let objects = listed.entries.iter();
    let objects = objects.map(|(key, found, _)| shown.object(key, found, true));
    let next = listed.next.as_ref().map(|it| shown.name(&it.0));
    Ok(S3Response::new(ListObjectsOutput {
        contents: Some(objects.collect()),
        common_prefixes: shown.prefixes(&listed),
        is_truncated: Some(listed.next.is_some()),
        // Where there is no delimiter the last key says it.
        next_marker: next.filter(|_| !wanted.delimiter.is_empty()),
        name: Some(input.bucket),
        prefix: Some(shown.name(&wanted.prefix)),
        marker: Some(shown.name(&input.marker.unwrap_or_default())),
        delimiter: shown.some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
        max_keys: Some(asked),
        encoding_type: input.encoding_type,
        ..ListObjectsOutput::default()
    }))
}

pub(super) fn second(
    gateway: &Gateway,
    request: Request<ListObjectsV2Input>,
) -> Answer<ListObjectsV2Output> {
    let bucket = gateway.admit(&listing!(&request, Action::ListBucket))?;
    let input = request.input;
    let shown = Shown::of(input.encoding_type.as_ref())?;
    let asked = most(input.max_keys)?;
    let token = input.continuation_token.as_deref();
    let after = match token {
        Some(token) => Some(of_token(token)?),
        None => input.start_after.clone().filter(|it| !it.is_empty()),
    };
    let wanted = Wanted {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after,
        most: asked as usize,
        ..Wanted::default()
    };
    let listed = gateway.index.list(bucket.id, &wanted).map_err(failed)?;
    let with_owner = input.fetch_owner == Some(true);
    let objects = listed.entries.iter();
    let objects = objects.map(|(key, found, _)| shown.object(key, found, with_owner));
    let count = listed.entries.len() + listed.prefixes.len();
    let next = listed.next.as_ref().map(|it| URL_SAFE_NO_PAD.encode(&it.0));
    Ok(S3Response::new(ListObjectsV2Output {
        contents: Some(objects.collect()),
        common_prefixes: shown.prefixes(&listed),
        is_truncated: Some(listed.next.is_some()),
        next_continuation_token: next,
        continuation_token: input.continuation_token,
        key_count: Some(count as i32),
        name: Some(input.bucket),
        prefix: Some(shown.name(&wanted.prefix)),
        start_after: shown.some(input.start_after.as_ref()),
        delimiter: shown.some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
        max_keys: Some(asked),
        encoding_type: input.encoding_type,
        ..ListObjectsV2Output::default()
    }))
}

/// The key behind which a listing goes on.
fn of_token(token: &str) -> S3Result<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let key = bytes.and_then(|it| String::from_utf8(it).ok());
    key.ok_or_else(|| {
        s3_error!(
            InvalidArgument,
            "this continuation-token is not one of ours"
        )
    })
}

pub(super) fn versions(
    gateway: &Gateway,
    request: Request<ListObjectVersionsInput>,
) -> Answer<ListObjectVersionsOutput> {
    let bucket = gateway.admit(&listing!(&request, Action::ListBucketVersions))?;
    let input = request.input;
    let shown = Shown::of(input.encoding_type.as_ref())?;
    let asked = most(input.max_keys)?;
    let after = input.key_marker.clone().filter(|it| !it.is_empty());
    let wanted = Wanted {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after_number: number_of(
            gateway,
            bucket.id,
            after.as_deref(),
            input.version_id_marker.as_deref(),
        )?,
        after,
        most: asked as usize,
        versions: true,
    };
    let listed = gateway.index.list(bucket.id, &wanted).map_err(failed)?;
    let (mut versions, mut markers) = (Vec::new(), Vec::new());
    for (key, found, newest) in &listed.entries {
        match found.version.content {
            Some(_) => versions.push(version(&shown, key, found, *newest)),
            None => markers.push(DeleteMarkerEntry {
                is_latest: Some(*newest),
                key: Some(shown.name(key)),
                last_modified: Some(moment(found.version.modified)),
                owner: Some(owner(&found.version.owner)),
                version_id: Some(found.id().to_string()),
            }),
        }
    }
    let last = listed
        .entries
        .last()
        .filter(|_| listed.next.as_ref().is_some_and(|it| it.1.is_some()));
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: shown.prefixes(&listed),
        delete_markers: (!markers.is_empty()).then_some(markers),
        versions: (!versions.is_empty()).then_some(versions),
        is_truncated: Some(listed.next.is_some()),
        next_key_marker: listed.next.as_ref().map(|it| shown.name(&it.0)),
        next_version_id_marker: last.map(|it| it.1.id().to_string()),
        key_marker: Some(shown.name(&input.key_marker.unwrap_or_default())),
        version_id_marker: input.version_id_marker,
        name: Some(input.bucket),
        prefix: Some(shown.name(&wanted.prefix)),
        delimiter: shown.some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
        max_keys: Some(asked),
        encoding_type: input.encoding_type,
        ..ListObjectVersionsOutput::default()
    }))
}

/// The number of the version behind which a listing goes on.
fn number_of(
    gateway: &Gateway,
    bucket: u64,
    key: Option<&str>,
    version: Option<&str>,
) -> S3Result<Option<u64>> {
    let Some((key, version)) = key.zip(version.filter(|it| !it.is_empty())) else {
        return Ok(None);
    };
    match VersionId::parse(version) {
        Some(VersionId::Number(number)) => Ok(Some(number)),
        Some(VersionId::Null) => {
            let found = gateway.index.version(bucket, key, Some(VersionId::Null));
            Ok(found.map_err(failed)?.map(|it| it.number))
        }
        None => Err(s3_error!(
            InvalidArgument,
            "this version-id-marker is not one of ours"
        )),
    }
}

fn version(shown: &Shown, key: &str, found: &Found, newest: bool) -> ObjectVersion {
    let object = shown.object(key, found, true);
    ObjectVersion {
        checksum_algorithm: object.checksum_algorithm,
        checksum_type: object.checksum_type,
        e_tag: object.e_tag,
        is_latest: Some(newest),
        key: object.key,
        last_modified: object.last_modified,
        owner: object.owner,
        size: object.size,
        storage_class: Some(ObjectVersionStorageClass::from_static(
            ObjectVersionStorageClass::STANDARD,
        )),
        version_id: Some(found.id().to_string()),
        ..ObjectVersion::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_urls_have_them() {
        assert_eq!(encoded("a/b c+d%é"), "a/b%20c%2Bd%25%C3%A9");
        assert_eq!(of_token(&URL_SAFE_NO_PAD.encode("a/é")).unwrap(), "a/é");
        assert!(of_token("*").is_err());
    }
}
