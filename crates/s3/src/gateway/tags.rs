//! Tags of objects and buckets.

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::objects::{readable, shown_version, version_of};
use super::tag_set::{BUCKET_MAX, OBJECT_MAX, of_set, set_of};
use crate::index::Transaction;
use crate::index::record::{Pairs, Permission};

pub(super) fn of_object(
    gateway: &Gateway,
    request: &Request<GetObjectTaggingInput>,
) -> Answer<GetObjectTaggingOutput> {
    let input = &request.input;
    let (bucket, caller) = gateway.any_bucket(request, &input.bucket)?;
    let version = input.version_id.as_deref();
    let (found, content) = readable(gateway, (&bucket, &caller), &input.key, version)?;
    Ok(S3Response::new(GetObjectTaggingOutput {
        tag_set: set_of(&content.about.tags),
        version_id: shown_version(&found, bucket.versioning),
    }))
}

pub(super) async fn set_of_object(
    gateway: &Gateway,
    request: Request<PutObjectTaggingInput>,
) -> Answer<PutObjectTaggingOutput> {
    gateway.bucket_for(&request, &request.input.bucket, Permission::Write)?;
    let input = request.input;
    let tags = of_set(input.tagging.tag_set, OBJECT_MAX)?;
    let at = (input.bucket, input.key, input.version_id);
    let version_id = change_object(gateway, at, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
}

pub(super) async fn delete_of_object(
    gateway: &Gateway,
    request: Request<DeleteObjectTaggingInput>,
) -> Answer<DeleteObjectTaggingOutput> {
    gateway.bucket_for(&request, &request.input.bucket, Permission::Write)?;
    let input = request.input;
    let at = (input.bucket, input.key, input.version_id);
    let version_id = change_object(gateway, at, Pairs::new()).await?;
    let mut response = S3Response::new(DeleteObjectTaggingOutput { version_id });
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

async fn change_object(
    gateway: &Gateway,
    (bucket, key, version): (String, String, Option<String>),
    tags: Pairs,
) -> S3Result<Option<String>> {
    let version = version_of(&key, version.as_deref())?;
    let change = move |t: &mut Transaction<'_>| {
        let has_versions = t.bucket(&bucket)?.versioning != crate::Versioning::Off;
        let changed = t.change_version((&bucket, &key), version, |it| {
            if let Some(content) = &mut it.content {
                content.about.tags = tags;
            }
        })?;
        Ok(has_versions.then(|| changed.to_string()))
    };
    gateway.index.change(change).await.map_err(failed)
}

pub(super) fn of_bucket(
    gateway: &Gateway,
    request: &Request<GetBucketTaggingInput>,
) -> Answer<GetBucketTaggingOutput> {
    let (bucket, _) = gateway.bucket_of(request, &request.input.bucket)?;
    if bucket.tags.is_empty() {
        return Err(s3_error!(NoSuchTagSet, "the bucket has no tags"));
    }
    Ok(S3Response::new(GetBucketTaggingOutput {
        tag_set: set_of(&bucket.tags),
    }))
}

pub(super) async fn set_of_bucket(
    gateway: &Gateway,
    request: Request<PutBucketTaggingInput>,
) -> Answer<PutBucketTaggingOutput> {
    gateway.bucket_of(&request, &request.input.bucket)?;
    let tags = of_set(request.input.tagging.tag_set, BUCKET_MAX)?;
    change_bucket(gateway, request.input.bucket, tags).await?;
    let mut response = S3Response::new(PutBucketTaggingOutput::default());
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

pub(super) async fn delete_of_bucket(
    gateway: &Gateway,
    request: Request<DeleteBucketTaggingInput>,
) -> Answer<DeleteBucketTaggingOutput> {
    gateway.bucket_of(&request, &request.input.bucket)?;
    change_bucket(gateway, request.input.bucket, Pairs::new()).await?;
    let mut response = S3Response::new(DeleteBucketTaggingOutput::default());
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

async fn change_bucket(gateway: &Gateway, bucket: String, tags: Pairs) -> S3Result<()> {
    let change =
        move |t: &mut Transaction<'_>| t.change_bucket(&bucket, |bucket| bucket.tags = tags);
    gateway.index.change(change).await.map_err(failed)
}
