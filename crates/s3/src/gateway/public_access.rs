//! Which grants to groups a bucket refuses or leaves out: S3's public access block.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::policies::Action;
use crate::index::Transaction;
use crate::index::record::PublicBlock;

pub(super) fn get(
    gateway: &Gateway,
    request: &Request<GetPublicAccessBlockInput>,
) -> Answer<GetPublicAccessBlockOutput> {
    let bucket = gateway.admit(&Asked::of(
        request,
        &request.input.bucket,
        Action::GetBucketPublicAccessBlock,
    )?)?;
    let block = bucket.public_block.ok_or_else(|| {
        let code = S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into());
        let mut error = S3Error::with_message(code, "the bucket has no public access block");
        error.set_status_code(hyper::StatusCode::NOT_FOUND);
        error
    })?;
    Ok(S3Response::new(GetPublicAccessBlockOutput {
        public_access_block_configuration: Some(PublicAccessBlockConfiguration {
            block_public_acls: Some(block.refuses_grants),
            block_public_policy: Some(block.refuses_policies),
            ignore_public_acls: Some(block.ignores_grants),
            restrict_public_buckets: Some(block.restricts),
        }),
    }))
}

pub(super) async fn set(
    gateway: &Gateway,
    request: Request<PutPublicAccessBlockInput>,
) -> Answer<PutPublicAccessBlockOutput> {
    let bucket = gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::PutBucketPublicAccessBlock,
    )?)?;
    let asked = request.input.public_access_block_configuration;
    let block = PublicBlock {
        refuses_grants: asked.block_public_acls == Some(true),
        refuses_policies: asked.block_public_policy == Some(true),
        ignores_grants: asked.ignore_public_acls == Some(true),
        restricts: asked.restrict_public_buckets == Some(true),
    };
    change(gateway, (request.input.bucket, bucket.id), Some(block)).await?;
    Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeletePublicAccessBlockInput>,
) -> Answer<DeletePublicAccessBlockOutput> {
    let bucket = gateway.admit(&Asked::of(
        &request,
        &request.input.bucket,
        Action::PutBucketPublicAccessBlock,
    )?)?;
    change(gateway, (request.input.bucket, bucket.id), None).await?;
    let mut response = S3Response::new(DeletePublicAccessBlockOutput::default());
    response.status = Some(hyper::StatusCode::NO_CONTENT);
    Ok(response)
}

async fn change(
    gateway: &Gateway,
    (name, id): (String, u64),
    block: Option<PublicBlock>,
) -> s3s::S3Result<()> {
    let change =
        move |t: &mut Transaction<'_>| t.change_bucket((&name, id), |it| it.public_block = block);
    gateway.index.change(change).await.map_err(failed)
}
