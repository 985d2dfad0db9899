//! Tags of objects and buckets.

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Admitted, Answer, Gateway, Request};
use super::failure::failed;
use super::objects::shown_version;
use super::policies::Action;
use super::tag_set::{BUCKET_MAX, OBJECT_MAX, of_set, set_of};
use crate::index::Transaction;
use crate::index::record::Pairs;

pub(super) fn of_object(
    gateway: &Gateway,
    request: &Request<GetObjectTaggingInput>,
) -> Answer<GetObjectTaggingOutput> {
    let input = &request.input;
    let version = input.version_id.as_deref();
    let asked = Asked::of(request, &input.bucket, Action::GetObjectTagging)?;
    let asked = asked.key(&input.key).version(version);
    let (bucket, found, content) = gateway.admit_to(&asked, version)?;
    Ok(S3Response::new(GetObjectTaggingOutput {
        tag_set: set_of(&content.about.tags),
        version_id: shown_version(&found, bucket.versioning),
    }))
}

pub(super) async fn set_of_object(
    gateway: &Gateway,
    request: Request<PutObjectTaggingInput>,
) -> Answer<PutObjectTaggingOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::PutObjectTagging)?;
    let input = request.input;
    let tags = of_set(input.tagging.tag_set, OBJECT_MAX)?;
    let version = input.version_id.as_deref();
    let asked = asked.key(&input.key).version(version).tagging(&tags);
    let admitted = gateway.admit_to(&asked, version)?;
    let version_id = change_object(gateway, (input.bucket, input.key), admitted, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
}

pub(super) async fn delete_of_object(
    gateway: &Gateway,
    request: Request<DeleteObjectTaggingInput>,
) -> Answer<DeleteObjectTaggingOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::DeleteObjectTagging)?;
    let input = request.input;
    let version = input.version_id.as_deref();
    let admitted = gateway.admit_to(&asked.key(&input.key).version(version), version)?;
    let at = (input.bucket, input.key);
    let version_id = change_object(gateway, at, admitted, Pairs::new()).await?;
    let mut response = S3Response::new(DeleteObjectTaggingOutput { version_id });
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

async fn change_object(
    gateway: &Gateway,
    (name, key): (String, String),
    (bucket, found, _): Admitted,
    tags: Pairs,
) -> S3Result<Option<String>> {
    let (id, number) = (bucket.id, found.number);
    let change = move |t: &mut Transaction<'_>| {
        t.change_version((&name, id), (&key, number), |it| {
            if let Some(content) = &mut it.content {
                content.about.tags = tags;
            }
            Ok(())
        })
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(shown_version(&found, bucket.versioning))
}

pub(super) fn of_bucket(
    gateway: &Gateway,
    request: &Request<GetBucketTaggingInput>,
) -> Answer<GetBucketTaggingOutput> {
    let bucket = gateway.admit(&Asked::of(
        request,
        &request.input.bucket,
        Action::GetBucketTagging,
    )?)?;
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
    let bucket = gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::PutBucketTagging,
    )?)?;
    let tags = of_set(request.input.tagging.tag_set, BUCKET_MAX)?;
    change_bucket(gateway, (request.input.bucket, bucket.id), tags).await?;
    let mut response = S3Response::new(PutBucketTaggingOutput::default());
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

pub(super) async fn delete_of_bucket(
    gateway: &Gateway,
    request: Request<DeleteBucketTaggingInput>,
) -> Answer<DeleteBucketTaggingOutput> {
    let bucket = gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::PutBucketTagging,
    )?)?;
    change_bucket(gateway, (request.input.bucket, bucket.id), Pairs::new()).await?;
    let mut response = S3Response::new(DeleteBucketTaggingOutput::default());
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

async fn change_bucket(gateway: &Gateway, (name, id): (String, u64), tags: Pairs) -> S3Result<()> {
    let change =
        move |t: &mut Transaction<'_>| t.change_bucket((&name, id), |bucket| bucket.tags = tags);
    gateway.index.change(change).await.map_err(failed)
}
