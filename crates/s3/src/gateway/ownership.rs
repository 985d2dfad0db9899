//! Ownership controls of a bucket: put, shown, deleted. What they mean is in `owners`.

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::owners::{check, of_word};
use super::policies::Action;
use crate::index::Transaction;
use crate::index::settings::Ownership;

pub(super) fn get(
    gateway: &Gateway,
    request: &Request<GetBucketOwnershipControlsInput>,
) -> Answer<GetBucketOwnershipControlsOutput> {
    let name = &request.input.bucket;
    let asked = Asked::of(request, name, Action::GetBucketOwnershipControls)?;
    let ownership = gateway.admit(&asked)?.ownership.ok_or_else(|| {
        s3_error!(
            OwnershipControlsNotFoundError,
            "the bucket has no ownership controls"
        )
    })?;
    let word = ObjectOwnership::from_static(match ownership {
        Ownership::BucketOwnerEnforced => ObjectOwnership::BUCKET_OWNER_ENFORCED,
        Ownership::BucketOwnerPreferred => ObjectOwnership::BUCKET_OWNER_PREFERRED,
        Ownership::ObjectWriter => ObjectOwnership::OBJECT_WRITER,
    });
    Ok(S3Response::new(GetBucketOwnershipControlsOutput {
        ownership_controls: Some(OwnershipControls {
            rules: vec![OwnershipControlsRule {
                object_ownership: word,
            }],
        }),
    }))
}

pub(super) async fn set(
    gateway: &Gateway,
    request: Request<PutBucketOwnershipControlsInput>,
) -> Answer<PutBucketOwnershipControlsOutput> {
    let name = &request.input.bucket;
    let bucket = gateway.admit(&Asked::of(
        &request,
        name,
        Action::PutBucketOwnershipControls,
    )?)?;
    let [rule] = &*request.input.ownership_controls.rules else {
        return Err(s3_error!(MalformedXML, "ownership controls have one rule"));
    };
    let ownership = of_word(&rule.object_ownership)?;
    change(gateway, (request.input.bucket, bucket.id), Some(ownership)).await?;
    Ok(S3Response::new(PutBucketOwnershipControlsOutput::default()))
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeleteBucketOwnershipControlsInput>,
) -> Answer<DeleteBucketOwnershipControlsOutput> {
    let name = &request.input.bucket;
    let bucket = gateway.admit(&Asked::of(
        &request,
        name,
        Action::PutBucketOwnershipControls,
    )?)?;
    change(gateway, (request.input.bucket, bucket.id), None).await?;
    Ok(S3Response::new(
        DeleteBucketOwnershipControlsOutput::default(),
    ))
}

async fn change(
    gateway: &Gateway,
    (name, id): (String, u64),
    ownership: Option<Ownership>,
) -> S3Result<()> {
    let change = move |t: &mut Transaction<'_>| {
        t.try_bucket((&name, id), |bucket| {
            check(ownership, bucket.grants.as_deref(), &bucket.owner)?;
            bucket.ownership = ownership;
            Ok(())
        })
    };
    gateway.index.change(change).await.map_err(failed)
}
