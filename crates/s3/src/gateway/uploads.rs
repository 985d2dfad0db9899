//! Uploads in parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use policy::share::Direction;
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::account::owner;
use super::asked::Asked;
use super::conditions::of_change;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::headers::{etag, moment, said};
use super::incoming::{Promised, checksum_of, receive};
use super::locks::lock_said;
use super::objects::{show_checksum, show_part_sum};
use super::policies::Action;
use super::service::Service;
use crate::index::record::{Checksum as Sum, Part as Record, Upload};
use crate::index::{NamedPart, PARTS_MAX, Refused, Transaction, UploadRef, Uploads, composite};

/// The most rows of one answer.
const ROWS_MAX: i32 = 1000;

/// What is asked of the object that comes of an upload.
macro_rules! asked {
    ($request:expr, $action:expr) => {
        Asked::of(&$request, &$request.input.bucket, $action)?.key(&$request.input.key)
    };
}

pub(super) async fn create(
    gateway: &Gateway,
    mut request: Request<CreateMultipartUploadInput>,
) -> Answer<CreateMultipartUploadOutput> {
    let asked = asked!(request, Action::PutObject);
    let bucket = gateway.admit(&asked)?;
    let account = &asked.caller.account;
    let (owner, grants) = gateway.owned(&request.headers, account, &bucket)?;
    let input = &mut request.input;
    let about = said!(input).into_about()?;
    let lock = lock_said!(input, gateway.now())?;
    if bucket.lock.is_none() && !lock.is_empty() {
        return Err(failed(Refused::NoLock.into()));
    }
    let algorithm = input.checksum_algorithm.clone();
    let full = match input.checksum_type.as_ref().map(ChecksumType::as_str) {
        Some(kind) => kind == ChecksumType::FULL_OBJECT,
        None => algorithm
            .as_ref()
            .is_some_and(|it| it.as_str() == "CRC64NVME"),
    };
    let at = UploadRef {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: gateway.new_blob(&input.bucket)?.id,
    };
    let upload = Upload {
        begun: gateway.now(),
        owner,
        about,
        grants,
        lock,
        algorithm: algorithm.as_ref().map(|it| it.as_str().to_owned()),
        full_object: full,
    };
    let begun = at.clone();
    let kind = algorithm.as_ref().map(|_| {
        ChecksumType::from_static(match full {
            true => ChecksumType::FULL_OBJECT,
            false => ChecksumType::COMPOSITE,
        })
    });
    let begin = move |t: &mut Transaction<'_>| Uploads(t).begin(&begun, &upload);
    gateway.index.change(begin).await.map_err(failed)?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(at.bucket),
        key: Some(at.key),
        upload_id: Some(at.id),
        checksum_algorithm: algorithm,
        checksum_type: kind,
        ..CreateMultipartUploadOutput::default()
    }))
}

/// The number of a part, as S3 allows it.
pub(super) fn part_number(asked: i32) -> S3Result<u32> {
    let number = u32::try_from(asked)
        .ok()
        .filter(|it| (1..=PARTS_MAX).contains(it));
    number.ok_or_else(|| s3_error!(InvalidArgument, "a part has a number from 1 to {PARTS_MAX}"))
}

pub(super) async fn put_part(
    gateway: &Gateway,
    mut request: Request<UploadPartInput>,
) -> Answer<UploadPartOutput> {
    let asked = asked!(request, Action::PutObject);
    let bucket = gateway.admit(&asked)?;
    let caller = asked.caller.clone();
    let promised = Promised::of(
        &request.headers,
        request.trailing_headers.take(),
        request.input.content_length,
    )?;
    let input = &mut request.input;
    let number = part_number(input.part_number)?;
    let found = gateway.index.begun(bucket.id, &input.key, &input.upload_id);
    let upload = found.map_err(failed)?;
    let promised = promised.or_algorithm(upload.algorithm.as_deref());
    let service = Service::of(gateway, (&bucket, &caller), Direction::Write);
    let received = receive(
        gateway,
        (&input.bucket, &service),
        input.body.take(),
        &promised,
        0,
    )
    .await?;
    gateway.may_still(&asked, bucket.id)?;
    let at = UploadRef {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: input.upload_id.clone(),
    };
    let part = Record {
        modified: gateway.now(),
        size: received.size,
        etag: received.md5.clone(),
        checksum: received.checksum.clone(),
        blobs: received.blobs(),
    };
    let put = move |t: &mut Transaction<'_>| Uploads(t).put_part(&at, number, &part);
    gateway.index.change(put).await.map_err(failed)?;
    let mut output = UploadPartOutput {
        e_tag: Some(etag(&received.md5)),
        ..UploadPartOutput::default()
    };
    show_part_sum!(output, received.checksum.as_ref());
    received.finished();
    let mut response = S3Response::new(output);
    service.show(gateway, &mut response.headers).await;
    Ok(response)
}

pub(super) async fn complete(
    gateway: &Gateway,
    request: Request<CompleteMultipartUploadInput>,
) -> Answer<CompleteMultipartUploadOutput> {
    gateway.admit(&asked!(request, Action::PutObject))?;
    let input = request.input;
    let condition = of_change(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let named = input
        .multipart_upload
        .and_then(|it| it.parts)
        .unwrap_or_default();
    if named.is_empty() {
        return Err(s3_error!(
            MalformedXML,
            "name the parts of which the object is made"
        ));
    }
    let named = named.into_iter().map(|part| {
        Ok(NamedPart {
            number: part_number(part.part_number.unwrap_or_default())?,
            etag: part.e_tag.map(|it| it.value().to_owned()),
        })
    });
    let named: Vec<NamedPart> = named.collect::<S3Result<_>>()?;
    let at = UploadRef {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: input.upload_id,
    };
    let now = gateway.now();
    let said = (input.checksum_crc32)
        .or(input.checksum_crc32c)
        .or(input.checksum_crc64nvme)
        .or(input.checksum_sha1)
        .or(input.checksum_sha256);
    let complete = move |t: &mut Transaction<'_>| {
        Uploads(t).complete(&at, &named, (&condition, now), |upload, parts| {
            combined(upload, parts, said.as_deref())
        })
    };
    let (content, version) = gateway.index.change(complete).await.map_err(failed)?;
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(etag(&content.etag)),
        version_id: version.map(|it| it.to_string()),
        ..CompleteMultipartUploadOutput::default()
    };
    show_checksum!(output, content.checksum.as_ref());
    Ok(S3Response::new(output))
}

/// The checksum of an object that comes of parts; refused where the request says another one.
fn combined(
    upload: &Upload,
    parts: &[(u32, Record)],
    said: Option<&str>,
) -> Result<Option<Sum>, Refused> {
    let Some(algorithm) = upload.algorithm.as_deref() else {
        return Ok(None);
    };
    let hash = |bytes: &[u8]| checksum_of(algorithm, bytes).unwrap_or_default();
    let value = match upload.full_object {
        true => joined(algorithm, parts),
        false => composite(hash, parts),
    };
    match (value, said) {
        (Some(found), Some(said)) if found != said => Err(Refused::OtherChecksum {
            found,
            said: said.to_owned(),
        }),
        (value, _) => Ok(value.map(|value| Sum {
            algorithm: algorithm.to_owned(),
            value,
            full_object: upload.full_object,
        })),
    }
}

/// The CRC of all bytes of the parts, from theirs.
fn joined(algorithm: &str, parts: &[(u32, Record)]) -> Option<String> {
    let (crc, bytes) = match algorithm {
        "CRC32" => (CrcAlgorithm::Crc32IsoHdlc, 4),
        "CRC32C" => (CrcAlgorithm::Crc32Iscsi, 4),
        "CRC64NVME" => (CrcAlgorithm::Crc64Nvme, 8),
        _ => return None,
    };
    let mut whole = 0;
    for (place, (_, part)) in parts.iter().enumerate() {
        let raw = STANDARD.decode(&part.checksum.as_ref()?.value).ok()?;
        let own = raw
            .iter()
            .fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
        whole = match place {
            0 => own,
            _ => crc_fast::checksum_combine(crc, whole, own, part.size),
        };
    }
    Some(STANDARD.encode(&whole.to_be_bytes()[8 - bytes..]))
}

pub(super) async fn abort(
    gateway: &Gateway,
    request: Request<AbortMultipartUploadInput>,
) -> Answer<AbortMultipartUploadOutput> {
    gateway.admit(&asked!(request, Action::AbortMultipartUpload))?;
    let input = request.input;
    let at = UploadRef {
        bucket: input.bucket,
        key: input.key,
        id: input.upload_id,
    };
    let abort = move |t: &mut Transaction<'_>| Uploads(t).abort(&at);
    gateway.index.change(abort).await.map_err(failed)?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

fn rows(asked: Option<i32>) -> S3Result<i32> {
    match asked.unwrap_or(ROWS_MAX) {
        negative if negative < 0 => {
            Err(s3_error!(InvalidArgument, "a number of rows is below zero"))
        }
        most => Ok(most.min(ROWS_MAX)),
    }
}

pub(super) fn parts(
    gateway: &Gateway,
    request: Request<ListPartsInput>,
) -> Answer<ListPartsOutput> {
    let bucket = gateway.admit(&asked!(request, Action::ListMultipartUploadParts))?;
    let input = request.input;
    let found = gateway
        .index
        .upload(bucket.id, &input.key, &input.upload_id);
    let (upload, all) = found.map_err(failed)?;
    let after = input.part_number_marker.unwrap_or(0);
    let most = rows(input.max_parts)?;
    let behind: Vec<&(u32, Record)> = all
        .iter()
        .filter(|it| i64::from(it.0) > i64::from(after))
        .collect();
    let more = behind.len() > most as usize;
    let shown = behind
        .into_iter()
        .take(most as usize)
        .map(|(number, part)| {
            let mut shown = Part {
                e_tag: Some(etag(&part.etag)),
                last_modified: Some(moment(part.modified)),
                part_number: Some(*number as i32),
                size: Some(part.size as i64),
                ..Part::default()
            };
            show_part_sum!(shown, part.checksum.as_ref());
            shown
        });
    let shown: Vec<Part> = shown.collect();
    let account = upload.owner;
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        checksum_algorithm: upload.algorithm.map(ChecksumAlgorithm::from),
        initiator: Some(initiator(&account)),
        owner: Some(owner(&account)),
        is_truncated: Some(more),
        max_parts: Some(most),
        next_part_number_marker: shown.last().and_then(|it| it.part_number),
        part_number_marker: Some(after),
        parts: Some(shown),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..ListPartsOutput::default()
    }))
}

fn initiator(account: &str) -> Initiator {
    Initiator {
        display_name: Some(super::account::name_of(account).to_owned()),
        id: Some(account.to_owned()),
    }
}

pub(super) fn list(
    gateway: &Gateway,
    request: Request<ListMultipartUploadsInput>,
) -> Answer<ListMultipartUploadsOutput> {
    let input = &request.input;
    let asked = Asked::of(&request, &input.bucket, Action::ListBucketMultipartUploads)?;
    let bucket = gateway.admit(&asked.saying("s3:prefix", input.prefix.as_deref()))?;
    let input = request.input;
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = (
        input.key_marker.clone().unwrap_or_default(),
        input.upload_id_marker.clone().unwrap_or_default(),
    );
    let most = rows(input.max_uploads)?;
    let found = gateway.index.uploads(bucket.id).map_err(failed)?;
    let is_behind = |key: &str, id: &str| match (after.0.is_empty(), after.1.is_empty()) {
        (true, _) => true,
        (false, true) => key > &*after.0,
        (false, false) => (key, id) > (&*after.0, &*after.1),
    };
    let mut found: Vec<_> = (found.into_iter())
        .filter(|(key, id, _)| key.starts_with(&prefix) && is_behind(key, id))
        .collect();
    let more = found.len() > most as usize;
    found.truncate(most as usize);
    let last = found.last().map(|it| (it.0.clone(), it.1.clone()));
    let uploads = found.into_iter().map(|(key, id, upload)| MultipartUpload {
        checksum_algorithm: upload.algorithm.map(ChecksumAlgorithm::from),
        initiated: Some(moment(upload.begun)),
        initiator: Some(initiator(&upload.owner)),
        owner: Some(owner(&upload.owner)),
        key: Some(key),
        upload_id: Some(id),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..MultipartUpload::default()
    });
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        uploads: Some(uploads.collect()),
        is_truncated: Some(more),
        max_uploads: Some(most),
        next_key_marker: last.as_ref().filter(|_| more).map(|it| it.0.clone()),
        next_upload_id_marker: last.filter(|_| more).map(|it| it.1),
        key_marker: input.key_marker,
        upload_id_marker: input.upload_id_marker,
        prefix: input.prefix,
        ..ListMultipartUploadsOutput::default()
    }))
}
